//! What Ropewalk needs of Linux: TUN devices with segmentation offload, randomness, and what sockets tell of
//! their peers.
#![deny(unsafe_op_in_unsafe_fn)]

pub mod dscp;
pub mod entropy;
pub mod tun;
