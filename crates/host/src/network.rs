//! Namespaces wired for Multipath TCP: one TUN per path at each kernel end, addresses, a route per source,
//! endpoints and limits of the kernel's path manager.
//!
//! The set-up is done by `ip`, the tool with which a user would do the same by hand; each command that failed
//! is named in the error.
//!
//! | | IPv4 | IPv6 |
//! |---|---|---|
//! | client on path i | 10.127.i.2 | fd72:6f70:65:i::2 |
//! | server | 10.127.255.1 | fd72:6f70:65:ff::1 |
//! | an engine behind the client, its address i | 10.126.128+i.2 | fd72:6f70:65:7e80+i::2 |
//! | an engine behind the server | 10.126.0.2 | |

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::kernel;
use crate::netns::Namespace;
use crate::tun::{Offload, Tun};

/// Most paths that the addresses have room for.
pub const MAX_PATHS: usize = 64;

/// Most endpoints that the kernel's path manager takes (`MPTCP_PM_ADDR_MAX`).
pub const MOST_ENDPOINTS: usize = 8;

/// The client's IPv4 address on a path.
pub fn client_v4(path: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 127, path as u8, 2)
}

/// The client's IPv6 address on a path.
pub fn client_v6(path: usize) -> Ipv6Addr {
    Ipv6Addr::new(0xfd72, 0x6f70, 0x65, path as u16, 0, 0, 0, 2)
}

/// The server's IPv4 address.
pub fn server_v4() -> Ipv4Addr {
    Ipv4Addr::new(10, 127, 255, 1)
}

/// The server's IPv6 address.
pub fn server_v6() -> Ipv6Addr {
    Ipv6Addr::new(0xfd72, 0x6f70, 0x65, 0xff, 0, 0, 0, 1)
}

/// Address number `n` of an engine behind a kernel: servers count from 0, clients from [`ENGINE_CLIENT`].
pub fn engine_address(n: u8, v6: bool) -> IpAddr {
    if v6 {
        Ipv6Addr::new(0xfd72, 0x6f70, 0x65, 0x7e00 | u16::from(n), 0, 0, 0, 2).into()
    } else {
        Ipv4Addr::new(10, 126, n, 2).into()
    }
}

/// The first of the addresses of engines that are clients.
pub const ENGINE_CLIENT: u8 = 128;

/// Which of the two ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Opens connections; an address per path.
    Client,
    /// Answers; one address.
    Server,
}

/// One path as the set-up sees it.
#[derive(Clone, Debug)]
pub struct PathConfig {
    /// Becomes the device's name.
    pub name: String,
    /// Largest IP packet, bytes.
    pub mtu: u32,
    /// Whether subflows on it are backups.
    pub backup: bool,
}

/// A namespace whose kernel is one end of all paths.
#[derive(Debug)]
pub struct KernelEnd {
    /// The namespace.
    pub namespace: Namespace,
    /// One device per path, in order.
    pub tuns: Vec<Tun>,
}

impl KernelEnd {
    /// Makes the namespace and everything in it.
    ///
    /// # Errors
    /// If a namespace, device, address or route can't be made: the message names the command.
    pub fn new(side: Side, paths: &[PathConfig], offload: Offload) -> io::Result<Self> {
        if paths.is_empty() || paths.len() > MAX_PATHS {
            let message = format!("{} paths: 1 to {MAX_PATHS} are allowed", paths.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        if side == Side::Client && paths.len() > MOST_ENDPOINTS {
            let message = format!(
                "{} paths: the kernel's path manager takes {MOST_ENDPOINTS} addresses at most",
                paths.len()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let label = if side == Side::Client { "client" } else { "server" };
        let namespace = Namespace::new(label)?;
        let names = device_names(paths);
        let tuns = names
            .iter()
            .map(|name| namespace.run(|| Tun::create(name, offload)))
            .collect::<io::Result<Vec<_>>>()?;
        let end = KernelEnd { namespace, tuns };
        end.configure(side, paths, &names)?;
        Ok(end)
    }

    fn configure(&self, side: Side, paths: &[PathConfig], names: &[String]) -> io::Result<()> {
        let ip = |line: &str| {
            let words: Vec<_> = line.split_whitespace().collect();
            self.namespace.check("ip", &words).map(drop)
        };
        for key in ["net.ipv4.conf.all.rp_filter", "net.ipv4.conf.default.rp_filter"] {
            self.namespace.sysctl(key, "0")?;
        }
        // Nothing but what is tested goes over the paths: no router solicitations, no duplicate detection.
        for key in ["accept_dad", "router_solicitations", "autoconf", "accept_ra"] {
            self.namespace.sysctl(&format!("net.ipv6.conf.default.{key}"), "0")?;
            for name in names {
                self.namespace.sysctl(&format!("net.ipv6.conf.{name}.{key}"), "0")?;
            }
        }
        ip("link set lo up")?;
        if side == Side::Server {
            ip(&format!("address add {}/32 dev lo", server_v4()))?;
            ip(&format!("address add {}/128 dev lo nodad", server_v6()))?;
        }
        for (index, (path, name)) in paths.iter().zip(names).enumerate() {
            // No link-local addresses: the kernel would talk to itself over the path.
            self.namespace.sysctl(&format!("net.ipv6.conf.{name}.addr_gen_mode"), "1")?;
            ip(&format!("link set dev {name} mtu {} txqueuelen 10000 up", path.mtu))?;
            let (v4, v6) = (client_v4(index), client_v6(index));
            match side {
                Side::Client => {
                    ip(&format!("address add {v4}/32 dev {name}"))?;
                    ip(&format!("address add {v6}/128 dev {name} nodad"))?;
                    let table = 100 + index;
                    ip(&format!("route add default dev {name} src {v4} table {table}"))?;
                    ip(&format!("rule add from {v4} table {table}"))?;
                    ip(&format!("-6 route add default dev {name} table {table}"))?;
                    ip(&format!("-6 rule add from {v6} table {table}"))?;
                    let metric = 10 + index;
                    ip(&format!("route add default dev {name} src {v4} metric {metric}"))?;
                    ip(&format!("-6 route add default dev {name} src {v6} metric {metric}"))?;
                }
                Side::Server => {
                    ip(&format!("route add {v4}/32 dev {name} src {}", server_v4()))?;
                    ip(&format!("-6 route add {v6}/128 dev {name} src {}", server_v6()))?;
                }
            }
        }
        let most = paths.len().clamp(2, MOST_ENDPOINTS);
        ip(&format!("mptcp limits set subflows {most} add_addr_accepted {most}"))?;
        if side == Side::Client {
            // IPv4 first: every path has that, and IPv6 where there is room left.
            let addresses = (0..paths.len())
                .map(|path| (path, IpAddr::V4(client_v4(path))))
                .chain((0..paths.len()).map(|path| (path, IpAddr::V6(client_v6(path)))));
            for (path, address) in addresses.take(MOST_ENDPOINTS) {
                let backup = if paths[path].backup { " backup" } else { "" };
                ip(&format!("mptcp endpoint add {address} dev {} subflow{backup}", names[path]))?;
            }
        }
        Ok(())
    }

    /// Lets engines be in the namespace, behind TUN devices of their own (see [`crate::perf::device`]): the
    /// kernel forwards for them, each of a client's addresses over a path of its own.
    ///
    /// # Errors
    /// If forwarding or a route can't be set; the message names the command.
    pub fn forward_for_engines(&self, side: Side) -> io::Result<()> {
        self.namespace.sysctl("net.ipv4.ip_forward", "1")?;
        self.namespace.sysctl("net.ipv6.conf.all.forwarding", "1")?;
        for (index, tun) in self.tuns.iter().enumerate().take(usize::from(u8::MAX - ENGINE_CLIENT)) {
            for (family, length, v6) in [("", 32, false), ("-6 ", 128, true)] {
                let address = engine_address(ENGINE_CLIENT + index as u8, v6);
                let line = match side {
                    Side::Client => format!("{family}rule add from {address} table {}", 100 + index),
                    Side::Server => format!("{family}route add {address}/{length} dev {}", tun.name()),
                };
                let words: Vec<_> = line.split_whitespace().collect();
                self.namespace.check("ip", &words)?;
            }
        }
        Ok(())
    }

    /// The kernel's counters whose names begin with `prefix` and that aren't 0, as `nstat -asz` names them.
    ///
    /// # Errors
    /// If /proc can't be read.
    pub fn counters(&self, prefix: &str) -> io::Result<Vec<(String, u64)>> {
        let all = self.namespace.run(kernel::counters)?;
        Ok(all.into_iter().filter(|(name, value)| *value > 0 && name.starts_with(prefix)).collect())
    }
}

/// The paths' names as device names: what the kernel allows, all different.
fn device_names(paths: &[PathConfig]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (index, path) in paths.iter().enumerate() {
        let clean: String =
            path.name.chars().filter(|c| c.is_ascii_alphanumeric() || "-_".contains(*c)).take(12).collect();
        let taken =
            clean.is_empty() || ["lo", "all", "default"].contains(&clean.as_str()) || names.contains(&clean);
        names.push(if taken { format!("path{index}") } else { clean });
    }
    names
}

/// The server's address in a family, as seen by the client.
pub fn server_address(v6: bool) -> IpAddr {
    if v6 { server_v6().into() } else { server_v4().into() }
}

/// The client's address on a path in a family.
pub fn client_address(path: usize, v6: bool) -> IpAddr {
    if v6 { client_v6(path).into() } else { client_v4(path).into() }
}

#[cfg(test)]
mod tests {
    use super::{KernelEnd, PathConfig, Side, device_names};
    use crate::netns::Namespace;
    use crate::tun::Offload;

    fn path(name: &str) -> PathConfig {
        PathConfig { name: name.to_string(), mtu: 1500, backup: name == "sat" }
    }

    #[test]
    fn device_names_are_legal_and_distinct() {
        let paths = [path("wifi"), path("Wi Fi!"), path("wifi"), path(""), path("a-very-long-name-indeed")];
        assert_eq!(device_names(&paths), ["wifi", "WiFi", "path2", "path3", "a-very-long-"]);
    }

    #[test]
    fn both_ends_can_be_set_up_with_endpoints_and_routes() {
        if let Err(why) = Namespace::new("probe") {
            crate::skip::skipped(why);
            return;
        }
        let paths = [path("wifi"), path("lte"), path("sat")];
        let client = KernelEnd::new(Side::Client, &paths, Offload::Segmentation).unwrap();
        let endpoints = client.namespace.check("ip", &["mptcp", "endpoint"]).unwrap();
        assert!(endpoints.contains("10.127.1.2 id"), "{endpoints}");
        assert_eq!(endpoints.matches("backup").count(), 2, "{endpoints}");
        let route =
            client.namespace.check("ip", &["route", "get", "10.127.255.1", "from", "10.127.1.2"]).unwrap();
        assert!(route.contains("dev lte"), "{route}");
        let server = KernelEnd::new(Side::Server, &paths, Offload::Segmentation).unwrap();
        let route = server.namespace.check("ip", &["route", "get", "10.127.2.2"]).unwrap();
        assert!(route.contains("dev sat"), "{route}");
    }
    #[test]
    fn a_client_has_an_endpoint_for_each_of_eight_paths_and_refuses_a_ninth_in_words() {
        if let Err(why) = Namespace::new("probe") {
            crate::skip::skipped(why);
            return;
        }
        let paths = |count: usize| (0..count).map(|at| path(&format!("p{at}"))).collect::<Vec<_>>();
        for (count, v6) in [(2, 2), (4, 4), (5, 3), (8, 0)] {
            let client = KernelEnd::new(Side::Client, &paths(count), Offload::Segmentation).unwrap();
            let endpoints = client.namespace.check("ip", &["mptcp", "endpoint"]).unwrap();
            assert_eq!(endpoints.matches("10.127.").count(), count, "{endpoints}");
            assert_eq!(endpoints.matches("fd72:").count(), v6, "{endpoints}");
        }
        let error = KernelEnd::new(Side::Client, &paths(9), Offload::Segmentation).unwrap_err().to_string();
        assert_eq!(error, "9 paths: the kernel's path manager takes 8 addresses at most");
    }
}
