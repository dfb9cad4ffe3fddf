//! `ropewalkd gateway` in network namespaces, with the kernel's Multipath TCP, curl and nginx as its clients
//! and servers.
#![cfg(target_os = "linux")]

mod cases;
mod control;
mod convert;
mod forwarding;
mod life;
mod middlebox;
mod network;
mod operation;
mod path;
mod settings;
mod stage;
mod unprivileged;
