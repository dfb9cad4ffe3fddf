//! What gateway and proxy can't do any more once they run, whoever takes them over: Landlock and seccomp,
//! where the kernel has them.
//!
//! Landlock (since Linux 5.13): files are written below a few folders only, read where the system keeps what
//! every program needs and where the configuration and what it names are, and programs started from the
//! system's folders only. seccomp: system calls that neither they nor `ip` and `nft` ever need fail with
//! EPERM: tracing, mounting, modules, other namespaces. Both hold for the programs that they start, too.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus,
    path_beneath_rules,
};
use nix::libc;
use seccompiler::{SeccompAction, SeccompFilter};

/// Where programs may be started from.
const PROGRAMS: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/nix/store", "/gnu/store"];
/// What has to be written besides what the configuration names: the TUN device, and the network's sysctls.
const WRITTEN: [&str; 3] = ["/dev/net", "/dev/null", "/proc/sys/net"];
/// What is read besides programs: names of hosts and users, resolvers (which `/run` keeps, whoever finds
/// them), what the kernel tells.
const READ: [&str; 5] = ["/etc", "/run", "/proc", "/sys", "/dev/urandom"];

/// Confines this thread and those that it starts from now on: files are written only below the folders
/// `written`, which are made if they aren't there, and read below these, `read` and the system's. What the
/// kernel doesn't have is left out, and logged.
pub(crate) fn confine(written: &[PathBuf], read: &[PathBuf]) {
    for folder in written {
        // What needs the folder says so.
        let _ = std::fs::create_dir_all(folder);
    }
    match landlock(written, read) {
        Ok(RulesetStatus::FullyEnforced) => {}
        Ok(status) => tracing::debug!(target: "ropewalk::setup", ?status, "Landlock"),
        Err(error) => tracing::warn!(target: "ropewalk::setup", %error, "Landlock isn't used"),
    }
    if let Err(error) = seccomp() {
        tracing::warn!(target: "ropewalk::setup", %error, "seccomp isn't used");
    }
}

/// The folder of a file that is written.
pub(crate) fn folder_of(file: &Path) -> PathBuf {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_path_buf(),
        _ => PathBuf::from("."),
    }
}

fn landlock(written: &[PathBuf], read: &[PathBuf]) -> Result<RulesetStatus, RulesetError> {
    let abi = ABI::V5;
    let reading = AccessFs::ReadFile | AccessFs::ReadDir;
    let writing = AccessFs::from_write(abi) | reading;
    let status = Ruleset::default()
        .handle_access(AccessFs::from_all(abi))?
        .create()?
        .add_rules(path_beneath_rules(PROGRAMS, reading | AccessFs::Execute))?
        .add_rules(path_beneath_rules(READ, reading))?
        .add_rules(path_beneath_rules(read, reading))?
        .add_rules(path_beneath_rules(crate::secret::credentials(), reading))?
        .add_rules(path_beneath_rules(WRITTEN, writing))?
        .add_rules(path_beneath_rules(written, writing))?
        .restrict_self()?;
    Ok(status.ruleset)
}

/// System calls that fail.
const REFUSED: [libc::c_long; 24] = [
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_chroot,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_init_module,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_mount,
    libc::SYS_open_by_handle_at,
    libc::SYS_perf_event_open,
    libc::SYS_pivot_root,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setns,
    libc::SYS_swapon,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
];

fn seccomp() -> Result<(), Box<dyn std::error::Error>> {
    let rules: BTreeMap<i64, Vec<seccompiler::SeccompRule>> =
        REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    let refuse = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, std::env::consts::ARCH.try_into()?)?;
    let program: seccompiler::BpfProgram = filter.try_into()?;
    seccompiler::apply_filter(&program)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a thread of its own, which is confined with it.
    #[test]
    fn a_confined_thread_reads_and_writes_where_it_may_and_nowhere_else() {
        let [open, shut, named] = std::array::from_fn(|_| tempfile::tempdir().unwrap());
        for folder in [&shut, &named] {
            std::fs::write(folder.path().join("key"), "secret").unwrap();
        }
        let inner = open.path().join("made");
        let (folder, elsewhere) = (inner.clone(), shut.path().join("file"));
        let done = std::thread::spawn(move || {
            if !matches!(landlock(&[], &[PathBuf::from("/nonexistent")]), Ok(RulesetStatus::FullyEnforced)) {
                return None;
            }
            Some(())
        });
        if done.join().unwrap().is_none() {
            ropewalk_host::skip::skipped("this kernel has no Landlock, or not all of it");
            return;
        }
        std::thread::spawn(move || {
            confine(std::slice::from_ref(&folder), &[named.path().to_path_buf()]);
            std::fs::write(folder.join("file"), "text").unwrap();
            let refused = std::fs::write(&elsewhere, "text").unwrap_err();
            assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
            for there in ["/etc/hosts", "/proc/self/status", "/sys/class/net/lo/mtu"] {
                std::fs::read(there).unwrap();
            }
            assert_eq!(std::fs::read_to_string(named.path().join("key")).unwrap(), "secret");
            let denied = std::io::ErrorKind::PermissionDenied;
            assert_eq!(std::fs::read(shut.path().join("key")).unwrap_err().kind(), denied);
            assert_eq!(std::fs::read_dir(shut.path()).unwrap_err().kind(), denied);
            assert_eq!(std::fs::write(named.path().join("key"), "other").unwrap_err().kind(), denied);
            // Programs of the system run, others don't, and neither mounts anything.
            let run = |program: &str| std::process::Command::new(program).output();
            assert!(run("/bin/true").unwrap().status.success());
            let copy = folder.join("true");
            std::fs::copy("/bin/true", &copy).unwrap();
            assert!(run(copy.to_str().unwrap()).is_err());
            let unshared = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET);
            assert_eq!(unshared, Err(nix::errno::Errno::EPERM));
        })
        .join()
        .unwrap();
        assert!(inner.join("file").exists());
    }
}
