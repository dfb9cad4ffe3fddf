//! `ropewalk gateway` in network namespaces, with the kernel's Multipath TCP, curl and nginx as its clients and servers.
#![cfg(target_os = "linux")]

mod convert;
mod forwarding;
mod middlebox;
mod operation;
mod settings;
mod stage;
mod unprivileged;
