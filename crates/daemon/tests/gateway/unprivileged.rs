//! The gateway as its systemd unit runs it: a user without any right but CAP_NET_ADMIN, told by sd_notify.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use ropewalk_host::skip::skipped;

use super::stage::*;

/// A file system of its own: a device that anybody may open, a folder for the status socket, the program
/// where anybody may run it.
const MOUNTS: &str = "mount -t tmpfs none /dev/net && mknod -m 666 /dev/net/tun c 10 200 && mount -t tmpfs \
                      -o mode=755 none /run \
     && mkdir /run/ropewalk && chown 65534:65534 /run/ropewalk && : > /run/program && mount \
     --bind \"$PROGRAM\" /run/program";

#[test]
fn a_user_with_nothing_but_cap_net_admin_runs_it() {
    let Some(stage) = Stage::new() else { return };
    if lacks(&["setpriv", "unshare", "curl"]) {
        return;
    }
    let shell = |line: &str| {
        let mut command = stage.server.command("unshare");
        command.args(["--mount", "sh", "-c", line]).env("PROGRAM", ROPEWALK);
        command
    };
    let possible = shell(&format!("{MOUNTS} && setpriv --reuid 65534 --regid 65534 --clear-groups true"))
        .output()
        .unwrap();
    if !possible.status.success() {
        skipped(format!("no other user can be had: {}", text(&possible.stderr)));
        return;
    }
    let unit = include_str!("../../../../packaging/systemd/ropewalk-gateway.service");
    for line in
        ["AmbientCapabilities=CAP_NET_ADMIN", "CapabilityBoundingSet=CAP_NET_ADMIN", "NoNewPrivileges=yes"]
    {
        assert!(unit.lines().any(|known| known == line), "{line}");
    }
    let folder = stage.folder.path();
    std::fs::set_permissions(folder, PermissionsExt::from_mode(0o755)).unwrap();
    let path = folder.join("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o777)).unwrap();
    let settings = format!("[gateway]\nstatus = '/run/ropewalk/status'\n{}", listener(PORT, ""));
    let file = file(&stage, &settings);
    let nothing_else = "--no-new-privs --bounding-set=-all,+net_admin --inh-caps=-all,+net_admin \
                        --ambient-caps=-all,+net_admin";
    let user = format!("setpriv --reuid 65534 --regid 65534 --clear-groups {nothing_else}");
    let mut command =
        shell(&format!("{MOUNTS} && exec {user} /run/program gateway --config {file} --log debug"));
    let log = folder.join("gateway.log");
    command.env("NOTIFY_SOCKET", &path).stderr(std::fs::File::create(&log).unwrap());
    let mut gateway = Gateway { child: Ended(command.spawn().unwrap()), log };
    gateway.wait_for("listening");
    let told = |expected: &str| {
        let mut buffer = [0; 100];
        loop {
            let len = socket.recv(&mut buffer).unwrap();
            if text(&buffer[..len]).trim() == expected {
                return;
            }
        }
    };
    told("READY=1");
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.child.0.id())).unwrap();
    let field =
        |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim();
    assert_eq!((field("Uid:"), field("NoNewPrivs:")), ("65534\t65534\t65534\t65534", "1"));
    for set in ["CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        assert_eq!(field(set), "0000000000001000", "{set}");
    }
    // It serves, over both addresses, and removes what it set up.
    let _server = nginx(&stage);
    let data = pattern(300_000);
    std::fs::write(folder.join("data"), &data).unwrap();
    assert!(stage.curl("http://10.0.0.1/data") == data, "{}", gateway.log());
    gateway.signal("-TERM");
    told("STOPPING=1");
    assert_eq!(gateway.child.0.wait().unwrap().code(), Some(0), "{}", gateway.log());
    assert_eq!(stage.traces(), "", "something is left");
}
