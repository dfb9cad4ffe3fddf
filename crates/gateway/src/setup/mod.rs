//! What the kernel is told: TUN devices, nftables, policy routing. Every step can be shown before it is done,
//! and is undone at the end.
//!
//! The steps are done by `ip` and `nft`, the tools with which one would do the same by hand. What they make
//! has names of its own (a table of nftables, a routing protocol number), so that what a killed process left
//! is found and removed. What the kernel has is read by netlink ([`Host`]).

pub mod claim;
pub(crate) mod conntrack;
pub mod gateway;
mod host;
mod installed;
mod leftovers;
mod netlink;
mod nexthop;
mod preview;
mod route;

use std::fmt;
use std::io::{self, Write};
use std::net::IpAddr;
use std::ops::Range;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::tunnel::DEVICES;

pub(crate) use host::MAIN_TABLE;
pub(crate) use host::new_devices_have_v6;
pub use host::{Host, HostAddress, Interface, has_force_forwarding, is_forwarding};
pub use installed::Installed;
pub use leftovers::{clean, note, remember, remove_notes};
pub use netlink::{Change, settled_changes};
pub use preview::Preview;
pub use route::Route;

/// Routing tables of the proxy's uplinks. The priority of an uplink's rule is the same number: before the
/// main table (32766).
pub const PROXY_TABLES: Range<u32> = 5_200..5_264;
/// The same of the gateway's addresses.
pub const GATEWAY_TABLES: Range<u32> = 7_100..7_164;

/// A gateway and a proxy may run beside each other: what one switches on and guards has to pass the other's
/// packets.
const TO_OTHERS: &str = "oifname != \"rope-gw*\" oifname != \"ropeproxy*\" oifname != \"rope-dg*\"";

/// Whether an interface is a TUN device of a gateway or a proxy.
fn is_own_device(name: &str) -> bool {
    ["rope-gw", "ropeproxy", DEVICES].iter().any(|own| name.starts_with(own))
}

/// The rule that drops what was switched on for the engine and isn't for it. `from`: the interfaces.
pub(crate) fn guard(v6: bool, from: &str) -> String {
    let family = if v6 { "ipv6" } else { "ipv4" };
    format!("    meta nfproto {family} {from} {TO_OTHERS} drop\n")
}

/// One change of the kernel's state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// A program is run.
    Run {
        /// `ip` or `nft`.
        program: &'static str,
        /// Its arguments.
        arguments: Vec<String>,
        /// What it reads from standard input.
        input: Option<String>,
    },
    /// A sysctl is set.
    Sysctl {
        /// Such as `net/ipv4/conf/eth0/forwarding`; with slashes, since an interface's name may have dots.
        key: String,
        /// The value.
        value: String,
    },
}

impl Step {
    /// `ip` with these words.
    pub fn ip(line: &str) -> Step {
        let arguments = line.split_whitespace().map(String::from).collect();
        Step::Run { program: "ip", arguments, input: None }
    }

    /// A ruleset for nftables, replaced as a whole.
    pub fn ruleset(text: String) -> Step {
        Step::Run { program: "nft", arguments: vec!["-f".into(), "-".into()], input: Some(text) }
    }

    /// Whether the kernel takes a ruleset; nothing is changed.
    pub fn check_ruleset(text: String) -> Step {
        Step::Run {
            program: "nft",
            arguments: ["-c", "-f", "-"].map(String::from).to_vec(),
            input: Some(text),
        }
    }

    /// A sysctl.
    pub fn sysctl(key: impl Into<String>, value: impl Into<String>) -> Step {
        Step::Sysctl { key: key.into(), value: value.into() }
    }

    /// Removes a table of nftables.
    pub fn delete_table(name: &str) -> Step {
        let arguments = ["delete", "table", "inet", name].map(String::from).to_vec();
        Step::Run { program: "nft", arguments, input: None }
    }

    /// Does it.
    ///
    /// # Errors
    /// If the program can't be run or refuses: the message has the command and what it said.
    pub fn run(&self) -> io::Result<()> {
        match self {
            Step::Run { program, arguments, input } => {
                let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
                run(program, &arguments, input.as_deref()).map(drop)
            }
            // In a container /proc/sys can't be written, and what is asked for may have been set from
            // outside.
            Step::Sysctl { key, value } if read_sysctl(key).as_deref() == Some(value) => Ok(()),
            Step::Sysctl { key, value } => {
                std::fs::write(format!("/proc/sys/{key}"), value).map_err(|error| {
                    let hint = match error.kind() {
                        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
                            "; in a container it has to be set from outside (`--sysctl`)"
                        }
                        _ => "",
                    };
                    io::Error::new(error.kind(), format!("sysctl {key}={value}: {error}{hint}"))
                })
            }
        }
    }
}

/// As one would type it.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Run { program, arguments, input } => {
                write!(f, "{program} {}", arguments.join(" "))?;
                match input {
                    Some(input) => write!(f, " <<'END'\n{}\nEND", input.trim_end()),
                    None => Ok(()),
                }
            }
            Step::Sysctl { key, value } => write!(f, "sysctl -w {key}={value}"),
        }
    }
}

/// This host's addresses.
pub(crate) fn own_addresses() -> Vec<IpAddr> {
    let Ok(all) = nix::ifaddrs::getifaddrs() else { return Vec::new() };
    let of = |one: nix::ifaddrs::InterfaceAddress| {
        let address = one.address?;
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::from(v4.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::from(v6.ip())))
    };
    all.filter_map(of).collect()
}

/// The rules of a table of nftables as `nft` lists them, without what they counted; `None` if there is no
/// such table.
pub(crate) fn listing(table: &str) -> Option<String> {
    run("nft", &["-s", "list", "table", "inet", table], None).ok()
}

/// Tells that another program had undone something.
pub(crate) fn repaired(what: &str) {
    tracing::warn!(target: "ropewalk::setup", what, "another program changed the set-up: repaired");
}

/// A sysctl's value; `None` if there is no such key.
pub(crate) fn read_sysctl(key: &str) -> Option<String> {
    let value = std::fs::read_to_string(format!("/proc/sys/{key}")).ok()?;
    Some(value.trim().to_string())
}

/// Runs a program to its end; its standard output.
pub(crate) fn run(program: &str, arguments: &[&str], input: Option<&str>) -> io::Result<String> {
    let failed = |reason: String| io::Error::other(format!("`{program} {}`: {reason}", arguments.join(" ")));
    let stdin = if input.is_some() { Stdio::piped() } else { Stdio::null() };
    let mut child = Command::new(program)
        .args(arguments)
        // A terminal's Ctrl-C is for the daemon: half a set-up, or half of its removal, is nobody's wish.
        .process_group(0)
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => io::Error::new(
                error.kind(),
                format!("`{program}` isn't installed: packages `iproute2` and `nftables` are needed"),
            ),
            _ => failed(error.to_string()),
        })?;
    if let (Some(mut pipe), Some(input)) = (child.stdin.take(), input) {
        // A program that ends early says why below.
        let _ = pipe.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let not_permitted = text.contains("Operation not permitted");
        let hint = if not_permitted { " (CAP_NET_ADMIN is needed)" } else { "" };
        return Err(failed(format!("{}{hint}", text.trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What was done, to be undone. Dropping it undoes it too.
#[derive(Debug, Default)]
pub struct Undo {
    steps: Vec<Step>,
}

impl Undo {
    /// Does `step`, and remembers how to undo it.
    ///
    /// # Errors
    /// As [`Step::run`].
    pub fn run(&mut self, step: &Step, undo: impl IntoIterator<Item = Step>) -> io::Result<()> {
        tracing::debug!(target: "ropewalk::setup", %step);
        step.run()?;
        self.steps.extend(undo);
        Ok(())
    }

    /// Lets everything stay as it is.
    pub fn forget(mut self) {
        self.steps.clear();
    }

    /// Remembers how something is undone that was done otherwise.
    pub fn remember(&mut self, undo: Step) {
        self.steps.push(undo);
    }

    /// The same for several steps, if that isn't remembered already.
    pub fn remember_once(&mut self, undo: Vec<Step>) {
        let new: Vec<Step> = undo.into_iter().filter(|step| !self.steps.contains(step)).collect();
        self.steps.extend(new);
    }

    /// Does a step again, and remembers how to undo it, unless that is remembered: it may have failed before.
    ///
    /// # Errors
    /// As [`Step::run`].
    pub fn repair(&mut self, (step, undo): (Step, Vec<Step>)) -> io::Result<()> {
        step.run()?;
        self.remember_once(undo);
        Ok(())
    }

    /// Undoes what these steps undo, the last first, and remembers them no more. What fails is logged.
    pub fn undo_these(&mut self, steps: &[Step]) {
        let mut these = Vec::new();
        self.steps.retain(|step| {
            let is_one = steps.contains(step);
            if is_one {
                these.push(step.clone());
            }
            !is_one
        });
        Undo { steps: these }.undo();
    }

    /// Undoes everything, the last first. What fails is logged, and the rest is undone.
    pub fn undo(&mut self) {
        while let Some(step) = self.steps.pop() {
            if let Err(error) = step.run() {
                tracing::warn!(target: "ropewalk::setup", %error, "a step of the set-up couldn't be undone");
            }
        }
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        self.undo();
    }
}
