//! Whose set-up it is: one gateway and one proxy run in a network namespace. Their TUN devices say so, since
//! the kernel gives a name to one process only.
//!
//! Who ends its connections first (SIGTERM) marks its device. The next one waits for its end, and sets up on
//! clean ground.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use ropewalk_os::tun::Tun;
use ropewalk_tokio::Offload;
use tokio::time::Instant;

use super::{Host, Step, run};

/// How long a device may be taken by one that is ending, or by a program that a killed one had started.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often it is tried again.
const PAUSE: Duration = Duration::from_millis(50);
/// The alias (`ip link`) of the device of one whose connections are ending.
const DRAINING: &str = "draining";

/// Keeps the first device taken until what was set up is removed. Programs that are started inherit it: what
/// one of them still does for a killed process is done before the next one takes the device.
#[derive(Debug)]
pub struct Claim {
    _descriptor: OwnedFd,
}

/// Says that the connections of one whose first device this is are ending: the next one waits.
pub fn mark_draining(device: &str) {
    // If it is gone, nobody waits for it.
    let _ = Step::ip(&format!("link set dev {device} alias {DRAINING}")).run();
}

/// Checks that no device of ours was removed: nothing is served then, and it can't be made again.
///
/// # Errors
/// If one was.
pub fn check_devices<'a>(host: &Host, devices: impl IntoIterator<Item = &'a str>) -> io::Result<()> {
    match devices.into_iter().find(|device| host.interface(device).is_none()) {
        None => Ok(()),
        Some(device) => {
            let message =
                format!("another program removed or renamed the device {device}: nothing can be served");
            Err(io::Error::new(io::ErrorKind::NotConnected, message))
        }
    }
}

fn is_draining(device: &str) -> bool {
    run("ip", &["-o", "link", "show", "dev", device], None)
        .is_ok_and(|text| text.contains(&format!("alias {DRAINING}")))
}

/// Makes TUN devices of these names with so many queues each. `what` they are for has each of the names taken
/// by one of its kind only.
///
/// # Errors
/// If another of the kind runs in this network namespace, or CAP_NET_ADMIN is missing.
pub async fn take(what: &str, devices: &[&str], queues: usize) -> io::Result<(Vec<Vec<Tun>>, Claim)> {
    let (mut since, mut was_draining) = (Instant::now(), false);
    loop {
        let create = |name: &&str| {
            Tun::create_queues(name, Offload::Segmentation, queues).map_err(|error| (name.to_string(), error))
        };
        let made: Result<Vec<Vec<Tun>>, _> = devices.iter().map(create).collect();
        let (device, error) = match made {
            Ok(made) => {
                let first = made.first().and_then(|queues| queues.first());
                let first = first.ok_or_else(|| io::Error::other("no device is needed"))?;
                // Not close-on-exec.
                let claim = Claim { _descriptor: nix::unistd::dup(first.as_fd())? };
                return Ok((made, claim));
            }
            Err(failed) => failed,
        };
        match error.kind() {
            io::ErrorKind::ResourceBusy => {}
            io::ErrorKind::PermissionDenied => {
                let message = format!("{error}; the {what} needs CAP_NET_ADMIN (run it as root)");
                return Err(io::Error::new(error.kind(), message));
            }
            _ => return Err(error),
        }
        if is_draining(&device) {
            if !std::mem::replace(&mut was_draining, true) {
                tracing::info!(target: "ropewalk::setup", device, "an earlier {what} lets its connections \
                    end: waiting");
            }
            since = Instant::now();
        } else if since.elapsed() >= PATIENCE {
            let message = format!("the device {device} is in use: another {what} is running on this host");
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, message));
        }
        tokio::time::sleep(PAUSE).await;
    }
}
