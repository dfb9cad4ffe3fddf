//! Any programs behind emulated paths: one on each side, in network namespaces, with the kernel's Multipath
//! TCP set up.

use std::ffi::OsString;
use std::io;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ropewalk_engine::{Span, Time};
use ropewalk_link::LinkSpec;

use crate::clock::Clock;
use crate::netns::{Namespace, become_root_of_own_user_namespace, kill_group};
use crate::network::{KernelEnd, PathConfig, Side, client_v4, server_v4};
use crate::perf::device::DEVICE_PREFIX;
use crate::reaper::{self, Mark};
use crate::tun::Offload;
use crate::world::{End, PathLinks, Tap, World};

/// How long to wait until the peer listens.
const PEER_START_LIMIT: Span = Span::from_secs(3);

/// How long the peer may go on after the program has ended.
const PEER_GRACE: Span = Span::from_millis(300);

/// How long the program may go on after SIGINT, which it may have received too.
const INTERRUPT_GRACE: Span = Span::from_millis(500);

/// What is set up.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The paths' interfaces.
    pub paths: Vec<PathConfig>,
    /// The paths' links, in the same order.
    pub links: Vec<PathLinks>,
    /// Links that paths share, up and down.
    pub shared: Vec<[LinkSpec; 2]>,
    /// Seed of the links' randomness.
    pub seed: u64,
    /// The client's program and its arguments; none: a shell.
    pub command: Vec<String>,
    /// The shell's prompt.
    pub prompt: String,
    /// A command that is started first, on the server's side.
    pub peer: Option<String>,
    /// Whether its output is dropped; else it goes to standard error.
    pub peer_is_silent: bool,
}

/// Why programs can't be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramsError {
    /// Namespaces, devices or signals can't be set up.
    #[error("{0}")]
    System(#[from] io::Error),
    /// A program can't be started.
    #[error("{0}: {1}")]
    Start(String, io::Error),
    /// The peer ended too early.
    #[error("the peer's command ended before anything listened ({0})")]
    PeerEnded(ExitStatus),
    /// The emulator failed.
    #[error("the emulator: {0}")]
    Emulator(io::Error),
    /// The emulator stopped while the program ran.
    #[error("the emulator stopped")]
    Stopped,
    /// The emulator's thread panicked.
    #[error("the emulator's thread panicked")]
    Panicked,
    /// SIGINT, and the program went on.
    #[error("the program didn't end by itself and was killed")]
    Killed,
    /// SIGTERM or SIGHUP.
    #[error("terminated")]
    Terminated,
}

/// A child process that is killed on drop; with its process group if it leads one.
struct ChildGuard(Child, bool);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        if self.1 {
            kill_group(&self.0);
        }
        // It may have exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether the kernel's routing tables (IPv4, IPv6) have a route to an engine's TUN device. The kernel
/// doesn't list what the engine listens on. Once the route exists, packets wait in the device until the
/// engine reads them. The device's existence isn't enough: it gets an IPv6 multicast route before its
/// address.
fn has_engine_route(v4: &str, v6: &str) -> bool {
    let is_device =
        |word: &str| word.strip_prefix(DEVICE_PREFIX).is_some_and(|number| number.parse::<u8>().is_ok());
    // The engine's prefixes: /31, its mask in column 8, little-endian; and /127, in column 2.
    let routed = |text: &str, device: usize, mask: usize, pair: &str| {
        text.lines().any(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            words.get(device).is_some_and(|word| is_device(word)) && words.get(mask) == Some(&pair)
        })
    };
    routed(v4, 0, 7, "FEFFFFFF") || routed(v6, 9, 1, "7f")
}

/// Waits until something listens in the namespace, the peer exits, or the limit is over.
fn wait_until_listening(namespace: &Namespace, peer: &mut ChildGuard) -> Result<(), ProgramsError> {
    let clock = Clock::start();
    while clock.now() < Time::ZERO + PEER_START_LIMIT {
        let listening = namespace.run(|| {
            let listens = |file: &str| {
                std::fs::read_to_string(file).is_ok_and(|text| {
                    // State 0A is LISTEN, in the fourth column.
                    text.lines().skip(1).any(|line| line.split_whitespace().nth(3) == Some("0A"))
                })
            };
            let text = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
            let engine = has_engine_route(
                &text("/proc/thread-self/net/route"),
                &text("/proc/thread-self/net/ipv6_route"),
            );
            Ok(engine || listens("/proc/thread-self/net/tcp") || listens("/proc/thread-self/net/tcp6"))
        });
        if listening.map_err(ProgramsError::System)? {
            return Ok(());
        }
        if let Ok(Some(status)) = peer.0.try_wait() {
            return Err(ProgramsError::PeerEnded(status));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    // The peer may use UDP, or only send.
    Ok(())
}

/// Programs that are ready to start.
pub struct Programs {
    world: World,
    mark: Mark,
    /// A handle to the server's namespace: the world owns both.
    server: Namespace,
    program: Command,
    name: String,
    peer: Option<Command>,
    terminated: &'static AtomicBool,
}

/// What there is when the program has ended.
pub struct Ended {
    /// How the program ended.
    pub status: Result<ExitStatus, ProgramsError>,
    /// The world, with its counters.
    pub world: World,
    /// How long it took.
    pub took: Duration,
}

impl Programs {
    /// Sets everything up. The process must have one thread only.
    ///
    /// # Errors
    /// See [`ProgramsError`].
    pub fn set_up(setup: Setup) -> Result<Programs, ProgramsError> {
        let terminated = reaper::termination_flag()?;
        become_root_of_own_user_namespace()?;
        let mark = Mark::own()?;
        let client = KernelEnd::new(Side::Client, &setup.paths, Offload::Segmentation)?;
        let server = KernelEnd::new(Side::Server, &setup.paths, Offload::Segmentation)?;
        client.forward_for_engines(Side::Client)?;
        server.forward_for_engines(Side::Server)?;
        let program = match setup.command.split_first() {
            Some((program, arguments)) => {
                let mut command = client.namespace.command(program);
                command.args(arguments);
                command
            }
            None => {
                let shell = std::env::var_os("SHELL").unwrap_or_else(|| OsString::from("/bin/sh"));
                let mut command = client.namespace.command(shell);
                command.env("PS1", &setup.prompt);
                command
            }
        };
        let name = setup.command.first().cloned().unwrap_or_else(|| "the shell".into());
        let space = Namespace::from_fd(server.namespace.fd().try_clone_to_owned()?, "server");
        let peer = setup.peer.as_ref().map(|line| {
            let mut command = server.namespace.command("/bin/sh");
            command.args(["-c", line]).stdin(Stdio::null());
            // Keep the peer's output apart from the program's.
            command.stdout(if setup.peer_is_silent { Stdio::null() } else { Stdio::from(io::stderr()) });
            // A process group of its own: the shell may start further processes.
            std::os::unix::process::CommandExt::process_group(&mut command, 0);
            command
        });
        let mut world = World::new(End::Kernel(client), End::Kernel(server), setup.paths.len());
        world.emulate(&setup.links, &setup.shared, setup.seed);
        Ok(Programs { world, mark, server: space, program, name, peer, terminated })
    }

    /// Shows all packets to a tap.
    pub fn set_tap(&mut self, tap: Box<dyn Tap>) {
        self.world.set_tap(tap);
    }

    /// Runs the programs until the client's ends, or a signal ends all. What they leave running is killed.
    ///
    /// # Errors
    /// If the emulator fails; otherwise [`Ended::status`] says how the program ended.
    pub fn run(self) -> Result<Ended, ProgramsError> {
        let Programs { mut world, mark, server, program, name, peer, terminated } = self;
        let stop = world.stopper();
        // Ctrl-C reaches the program too; everything ends with it.
        let interrupted = reaper::interruption_flag()?;
        let failed = Arc::new(AtomicBool::new(false));
        let worker_failed = Arc::clone(&failed);
        let worker = std::thread::spawn(move || {
            crate::clock::request_real_time();
            let ran = world.run(None);
            worker_failed.store(ran.is_err(), Ordering::Relaxed);
            (world, ran)
        });
        let clock = Clock::start();
        let spawn = |mut command: Command, name: &str| {
            command
                .env("ROPEWALK_SERVER", server_v4().to_string())
                .env("ROPEWALK_CLIENT", client_v4(0).to_string());
            mark.put(&mut command);
            command.spawn().map_err(|error| ProgramsError::Start(name.to_string(), error))
        };
        let status = (|| {
            let mut peer = match peer {
                Some(command) => {
                    let mut peer = ChildGuard(spawn(command, "the peer's command")?, true);
                    wait_until_listening(&server, &mut peer)?;
                    Some(peer)
                }
                None => None,
            };
            let mut child = ChildGuard(spawn(program, &name)?, false);
            let mut interrupted_at = None;
            loop {
                if let Some(status) = child.0.try_wait()? {
                    let until = clock.now() + PEER_GRACE;
                    while let Some(ChildGuard(peer, _)) = &mut peer
                        && matches!(peer.try_wait(), Ok(None))
                        && clock.now() < until
                    {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    return Ok(status);
                }
                if failed.load(Ordering::Relaxed) {
                    return Err(ProgramsError::Stopped);
                }
                if interrupted.load(Ordering::Relaxed) {
                    interrupted_at.get_or_insert(clock.now());
                }
                if interrupted_at.is_some_and(|at| clock.now() > at + INTERRUPT_GRACE) {
                    return Err(ProgramsError::Killed);
                }
                if terminated.load(Ordering::Relaxed) {
                    return Err(ProgramsError::Terminated);
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        })();
        // Kill what they left running.
        mark.end();
        let took = Duration::from(clock.now().since_origin());
        stop.store(true, Ordering::Relaxed);
        let Ok((world, ran)) = worker.join() else { return Err(ProgramsError::Panicked) };
        ran.map_err(ProgramsError::Emulator)?;
        Ok(Ended { status, world, took })
    }
}

#[cfg(test)]
mod tests {
    use super::has_engine_route;

    #[test]
    fn an_engine_is_there_once_its_pair_of_addresses_is_routed_and_not_when_its_device_is_up() {
        let head = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n";
        let wifi = "wifi\t0200007F\t00000000\t0005\t0\t0\t0\tFFFFFFFF\t0\t0\t0\n";
        let rope = "rope0\t02007E0A\t00000000\t0001\t0\t0\t0\tFEFFFFFF\t0\t0\t0\n";
        let six = |prefix: &str, length: &str| {
            format!(
                "{prefix:0<32} {length} {0} 00 {0} 00000100 00000001 00000000 00000001    rope0\n",
                "0".repeat(32)
            )
        };
        let pair = six("fd726f700065007e", "7f");
        assert!(!has_engine_route("", ""));
        assert!(!has_engine_route(&format!("{head}{wifi}"), &six("ff", "08")));
        assert!(!has_engine_route(head, &six("fe80", "40")));
        assert!(has_engine_route(&format!("{head}{wifi}{rope}"), ""));
        assert!(has_engine_route(head, &(six("ff", "08") + &pair)));
        assert!(!has_engine_route(head, &pair.replace("rope0", "ropery")));
    }
}
