//! What programs do with connections, case by case (`packaging/peer_cases.py`): by a gateway, by a pair, and
//! by a proxy alone before a server of the kernel's Multipath TCP.

use std::process::Command;

use super::stage::{ROPEWALK, Stage};

#[test]
fn each_case_of_programs_goes_well_by_gateway_pair_and_proxy() {
    // Where there are namespaces and the tools.
    if Stage::new().is_none() {
        return;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/peers");
    // Most of them wait.
    std::thread::scope(|scope| {
        for way in [["--way", "gateway"], ["--way", "pair"], ["--front", "kernel"]] {
            scope.spawn(move || {
                let mut command = Command::new("python3");
                command.args([script, "cases", "--ropewalkd", ROPEWALK]).args(way);
                let output = command.output().unwrap();
                let told = String::from_utf8_lossy(&output.stdout);
                let errors = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{way:?}: {told}{errors}");
                assert!(told.contains("39 of 39 cases"), "{way:?}: {told}{errors}");
            });
        }
    });
}
