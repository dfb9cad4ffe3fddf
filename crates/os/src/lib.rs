//! What Ropewalk needs of Linux: TUN devices with segmentation offload, and randomness.
#![deny(unsafe_op_in_unsafe_fn)]

pub mod entropy;
pub mod tun;
