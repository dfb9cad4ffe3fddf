//! The command line and the configuration's file.

use std::fs;

use super::stage::*;

#[test]
fn a_dry_run_shows_the_rules_and_does_nothing() {
    let Some(stage) = Stage::new() else { return };
    let mut command = stage.server.command(ROPEWALK);
    command.args(["gateway", "--listen", "10.0.0.1:443", "--to", "127.0.0.1:8443", "--dry-run"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    assert!(
        shown.contains("ip daddr 10.0.0.1 tcp dport { 443 } notrack ip daddr set 10.126.64.1"),
        "{shown}"
    );
    assert!(shown.contains("ip address replace 10.126.64.0/31 dev rope-gw0"), "{shown}");
    assert_eq!(stage.traces(), "");
    let json = command.arg("--json").output().unwrap();
    let value: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(value["devices"][0]["public"], "10.0.0.1");
    assert!(value["removal"].as_array().is_some_and(|steps| steps.len() >= 2), "{value}");
}

#[test]
fn settings_that_cannot_be_used_are_refused_in_words() {
    let rows: [(&[&str], &str); 7] = [
        (&["--listen", "10.0.0.1", "--to", "127.0.0.1:80"], "an address and a port"),
        (&["--listen", "10.0.0.1:0", "--to", "127.0.0.1:80"], "an address and a port"),
        (&["--listen", "10.0.0.1:80", "--to", "localhost"], "--to"),
        (&["--listen", "10.0.0.1:80", "--to", "127.0.0.1:80", "--address", "x"], "without a port"),
        (&["--listen", "10.0.0.1:80", "--to", "127.0.0.1:80", "--scheduler", "blets"], "blest"),
        (&["--listen", "10.0.0.1:80", "--to", "127.0.0.1:80", "--drain", "5 x"], "--drain"),
        (
            &["--listen", "10.0.0.1:80", "--to", "127.0.0.1:80", "--metrics", "10.0.0.1:99"],
            "metrics are for this host only",
        ),
    ];
    for (arguments, expected) in rows {
        let output = ropewalk(&[&["gateway"], arguments].concat());
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {told}");
        assert!(told.contains(expected), "{arguments:?}: {told}");
    }
    // What only the host can refuse.
    for (listen, expected) in [
        ("127.0.0.1:81", "no client reaches it"),
        ("0.0.0.0:80", "every address"),
        ("203.0.113.77:80", "no address of this host"),
    ] {
        let output = ropewalk(&["gateway", "--listen", listen, "--to", "127.0.0.1:80", "--dry-run"]);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{listen}: {told}");
        assert!(told.contains(expected), "{listen}: {told}");
    }
}

#[test]
fn a_configuration_is_checked_without_root() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("g.toml");
    let check = |text: &str| {
        fs::write(&path, text).unwrap();
        ropewalk(&["gateway", "--check", "--config", path.to_str().unwrap()])
    };
    // What the host lacks keeps the gateway from starting, too.
    for (listen, expected) in [
        ("192.0.2.77:80", "192.0.2.77 is no address of this host"),
        ("0.0.0.0:80", "0.0.0.0 stands for every address of the host"),
    ] {
        let lacking = check(&format!("[[listener]]\nlisten = '{listen}'\nto = '127.0.0.1:80'\n"));
        let told = text(&lacking.stderr);
        assert!(lacking.status.code() == Some(1) && told.contains(expected), "{told}");
    }
    if let Some(stage) = Stage::new() {
        fs::write(&path, listener(80, "")).unwrap();
        let line = ["gateway", "--check", "--config", path.to_str().unwrap()];
        assert_eq!(stage.server.check(ROPEWALK, &line).unwrap(), "1 listener: nothing is wrong\n");
    }
    let bad = check(&listener(80, "schedular = 'blest'"));
    assert_eq!(bad.status.code(), Some(2));
    let told = text(&bad.stderr);
    assert!(told.contains("g.toml:5:1") && told.contains("did you mean `scheduler`?"), "{told}");
    let schema = ropewalk(&["gateway", "--schema"]);
    let schema: serde_json::Value = serde_json::from_slice(&schema.stdout).unwrap();
    assert_eq!(schema["properties"]["listener"]["items"]["required"], serde_json::json!(["listen"]));
}
