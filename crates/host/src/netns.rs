//! Network namespaces that belong to this process and vanish with it.
//!
//! A namespace is held by a file descriptor and has no name in the file system, so that nothing is left
//! behind by a crash or a SIGKILL: when the last descriptor and the last process in it are gone, the kernel
//! removes it with every device in it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::{getgid, getuid};

/// A network namespace.
#[derive(Debug)]
pub struct Namespace {
    fd: OwnedFd,
    name: String,
}

impl Namespace {
    /// Makes an empty namespace. `name` is for messages.
    ///
    /// # Errors
    /// Without CAP_SYS_ADMIN in the current user namespace: see [`become_root_of_own_user_namespace`].
    pub fn new(name: &str) -> io::Result<Self> {
        // A namespace is a property of a thread: one is made for the purpose, and its namespace outlives it
        // through the descriptor.
        let made = std::thread::spawn(|| -> io::Result<OwnedFd> {
            unshare(CloneFlags::CLONE_NEWNET)?;
            Ok(File::open("/proc/thread-self/ns/net")?.into())
        })
        .join();
        let fd = match made {
            Ok(fd) => fd.map_err(|error| {
                io::Error::new(error.kind(), format!("making network namespace `{name}`: {error}"))
            })?,
            Err(_) => return Err(io::Error::other("the thread that makes a namespace panicked")),
        };
        Ok(Namespace { fd, name: name.to_string() })
    }

    /// The calling thread's.
    ///
    /// # Errors
    /// If /proc can't be read.
    pub fn current() -> io::Result<Self> {
        Ok(Namespace { fd: File::open("/proc/thread-self/ns/net")?.into(), name: "current".into() })
    }

    /// One that exists already, by its descriptor.
    pub fn from_fd(fd: OwnedFd, name: &str) -> Self {
        Namespace { fd, name: name.to_string() }
    }

    /// Its name, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The descriptor that holds it.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Runs `work` on a thread of its own inside the namespace and waits for it. Descriptors that it opens (a
    /// TUN, a socket) stay in the namespace and can be used from any thread afterwards.
    ///
    /// # Errors
    /// If the namespace can't be entered, or what `work` returns.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        let ran = std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    setns(self.fd(), CloneFlags::CLONE_NEWNET)?;
                    work()
                })
                .join()
        });
        match ran {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// A command that will run inside the namespace.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        let fd = self.fd.as_raw_fd();
        // SAFETY: between fork and exec only async-signal-safe calls are allowed: setns is one system call.
        // The descriptor is open at that time, since the child has a copy of this process's table and the
        // caller keeps the namespace alive until the command is spawned (else setns fails with EBADF, no
        // more).
        unsafe {
            command.pre_exec(move || {
                let fd = BorrowedFd::borrow_raw(fd);
                setns(fd, CloneFlags::CLONE_NEWNET).map_err(io::Error::from)
            });
        }
        command
    }

    /// Runs a command to its end inside the namespace.
    ///
    /// # Errors
    /// If it can't be started, or exits with anything but 0: the message has its standard error.
    pub fn check(&self, program: &str, arguments: &[&str]) -> io::Result<String> {
        let output = self
            .command(program)
            .args(arguments)
            .output()
            .map_err(|error| io::Error::new(error.kind(), format!("{program}: {error}")))?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            let line = format!("{program} {}", arguments.join(" "));
            return Err(io::Error::other(format!("in namespace `{}`: `{line}`: {}", self.name, text.trim())));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Sets a sysctl of the namespace, e.g. `net.ipv4.ip_forward`.
    ///
    /// # Errors
    /// If there is no such key, or the value is refused.
    pub fn sysctl(&self, key: &str, value: &str) -> io::Result<()> {
        let path = format!("/proc/sys/{}", key.replace('.', "/"));
        self.run(|| {
            std::fs::write(&path, value)
                .map_err(|error| io::Error::new(error.kind(), format!("sysctl {key}={value}: {error}")))
        })
    }

    /// Reads a sysctl of the namespace, without the newline.
    ///
    /// # Errors
    /// If there is no such key.
    pub fn read_sysctl(&self, key: &str) -> io::Result<String> {
        let path = format!("/proc/sys/{}", key.replace('.', "/"));
        self.run(|| Ok(std::fs::read_to_string(&path)?.trim().to_string()))
    }
}

/// Ends a child and everything that it started, if it was spawned as the leader of a process group of its
/// own.
pub fn kill_group(child: &std::process::Child) {
    use nix::sys::signal::{Signal, killpg};
    // It may have ended by itself.
    let _ = killpg(nix::unistd::Pid::from_raw(child.id() as i32), Signal::SIGKILL);
}

/// For an ordinary user: enters a user namespace in which this process may make network namespaces. Call it
/// before any other thread is started; it does nothing for root.
///
/// # Errors
/// If unprivileged user namespaces are switched off.
pub fn become_root_of_own_user_namespace() -> io::Result<()> {
    let (uid, gid) = (getuid(), getgid());
    if uid.is_root() {
        return Ok(());
    }
    unshare(CloneFlags::CLONE_NEWUSER).map_err(|error| {
        io::Error::other(format!(
            "an unprivileged user namespace can't be made ({error}); run as root, or allow them (sysctl \
             kernel.unprivileged_userns_clone=1)"
        ))
    })?;
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("0 {gid} 1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reason why namespaces can't be made here, if they can't: tests say so and pass.
    fn unavailable() -> Option<String> {
        Namespace::new("probe").err().map(|error| error.to_string())
    }

    #[test]
    fn a_new_namespace_has_a_loopback_of_its_own_and_nothing_else() {
        if let Some(why) = unavailable() {
            crate::skip::skipped(why);
            return;
        }
        let namespace = Namespace::new("alone").unwrap();
        let links = namespace.run(|| std::fs::read_to_string("/proc/thread-self/net/dev")).unwrap();
        let devices: Vec<_> =
            links.lines().skip(2).map(|line| line.split(':').next().unwrap().trim()).collect();
        assert_eq!(devices, ["lo"]);
    }

    #[test]
    fn a_sysctl_changes_in_its_own_namespace_only() {
        if let Some(why) = unavailable() {
            crate::skip::skipped(why);
            return;
        }
        let (one, two) = (Namespace::new("one").unwrap(), Namespace::new("two").unwrap());
        one.sysctl("net.ipv4.ip_default_ttl", "33").unwrap();
        assert_eq!(one.read_sysctl("net.ipv4.ip_default_ttl").unwrap(), "33");
        assert_ne!(two.read_sysctl("net.ipv4.ip_default_ttl").unwrap(), "33");
    }
}
