//! The engine as a host of its own beside this machine's kernel: a TUN device per path in the current network
//! namespace, with the kernel at its one end and the engine at the other.
//!
//! Addresses come in pairs that differ in their last bit (RFC 3021): the engine has one, the kernel the
//! other. Unless they are given they are 10.126.N.2 and .3 (fd72:6f70:65:7eN::2 and ::3), N from 0 for
//! servers, from 128 for clients, the first that is free. Devices are named `ropeN` and vanish with the
//! process.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::netns::Namespace;
use crate::network::{ENGINE_CLIENT, KernelEnd, engine_address};
use crate::tun::{self, Offload, Tun};

/// Largest IP packet on a device.
pub const MTU: u32 = 1500;
/// What its names begin with.
pub const DEVICE_PREFIX: &str = "rope";
/// Most paths.
pub const MOST_PATHS: usize = 8;

/// One path of the engine's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EnginePath {
    /// The device.
    pub name: String,
    /// The engine's address.
    pub engine: IpAddr,
    /// The kernel's.
    pub kernel: IpAddr,
}

/// The devices, and the kernel's end of them.
#[derive(Debug)]
pub struct Device {
    /// The kernel.
    pub end: KernelEnd,
    /// The paths, in order.
    pub paths: Vec<EnginePath>,
}

/// The address that shares a link with `address`.
fn neighbour(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits() ^ 1).into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() ^ 1).into(),
    }
}

/// Whether a device of this namespace has the address.
fn is_taken(address: IpAddr) -> bool {
    let mut all = nix::ifaddrs::getifaddrs().into_iter().flatten().filter_map(|one| one.address);
    all.any(|one| match address {
        IpAddr::V4(v4) => one.as_sockaddr_in().is_some_and(|one| one.ip() == v4),
        IpAddr::V6(v6) => one.as_sockaddr_in6().is_some_and(|one| one.ip() == v6),
    })
}

/// The first `count` free pairs from `first` on.
fn free_addresses(first: u8, count: usize, v6: bool) -> io::Result<Vec<IpAddr>> {
    let candidates = (first..=first.saturating_add(99)).map(|n| engine_address(n, v6));
    let free: Vec<_> = candidates.filter(|address| !is_taken(neighbour(*address))).take(count).collect();
    if free.len() < count {
        return Err(io::Error::other("no address of 10.126.0.0/16 is free: give some with --address"));
    }
    Ok(free)
}

/// Makes a device of the first free name.
fn create() -> io::Result<Tun> {
    for n in 0..=255u8 {
        match Tun::create(&format!("{DEVICE_PREFIX}{n}"), Offload::Segmentation) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(io::Error::new(
                    error.kind(),
                    format!(
                        "{error}: the engine needs a TUN device, and CAP_NET_ADMIN to make one. Run this as \
                         root, in a namespace of your own (unshare -rn), or inside `ropewalk emulate`"
                    ),
                ));
            }
            made => return made,
        }
    }
    Err(io::Error::other("all names from rope0 to rope255 are taken"))
}

impl Device {
    /// Makes the devices: one per address in `given`, or `count` with addresses from the first free one on.
    ///
    /// # Errors
    /// Without CAP_NET_ADMIN, or if an address is in use; the message names the command that failed.
    pub fn open(given: &[IpAddr], count: usize, v6: bool, server: bool) -> io::Result<Device> {
        let addresses = if given.is_empty() {
            free_addresses(if server { 0 } else { ENGINE_CLIENT }, count, v6)?
        } else {
            given.to_vec()
        };
        let namespace = Namespace::current()?;
        let mut end = KernelEnd { namespace, tuns: Vec::new() };
        let mut paths = Vec::new();
        for engine in addresses {
            let kernel = neighbour(engine);
            if is_taken(engine) {
                return Err(io::Error::other(format!(
                    "{engine} is an address of this machine's kernel already: the engine needs its own"
                )));
            }
            let device = create()?;
            let name = device.name().to_string();
            tun::bring_up(&name, MTU, kernel, if engine.is_ipv4() { 31 } else { 127 })?;
            end.tuns.push(device);
            paths.push(EnginePath { name, engine, kernel });
        }
        Ok(Device { end, paths })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_share_a_link() {
        let pair = |n, v6| {
            let engine = engine_address(n, v6);
            (engine.to_string(), neighbour(engine).to_string())
        };
        assert_eq!(pair(0, false), ("10.126.0.2".into(), "10.126.0.3".into()));
        assert_eq!(pair(129, true), ("fd72:6f70:65:7e81::2".into(), "fd72:6f70:65:7e81::3".into()));
    }

    #[test]
    fn devices_take_the_first_free_addresses_and_names() {
        let namespace = match Namespace::new("devices") {
            Ok(namespace) => namespace,
            Err(why) => {
                crate::skip::skipped(why);
                return;
            }
        };
        namespace
            .run(|| {
                let one = Device::open(&[], 2, false, true)?;
                let two = Device::open(&[], 1, false, true)?;
                let names: Vec<_> =
                    one.paths.iter().chain(&two.paths).map(|path| path.name.clone()).collect();
                assert_eq!(names, ["rope0", "rope1", "rope2"]);
                assert_eq!(two.paths[0].engine.to_string(), "10.126.2.2");
                let given = [one.paths[0].kernel];
                let error = Device::open(&given, 0, false, true).expect_err("the kernel's own");
                assert!(error.to_string().contains("10.126.0.3 is an address of this machine"), "{error}");
                Ok(())
            })
            .unwrap();
    }
}
