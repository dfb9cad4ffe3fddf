//! `ropewalkd doctor`: what this host lacks, and what to do about it.

use std::path::{Path, PathBuf};

use ropewalk_algorithms::Registries;
use ropewalk_command_line::{Failure, output};
use ropewalk_gateway::config;
use ropewalk_gateway::doctor::{self, Finding, Verdict};
use serde_json::json;

/// What this host lacks for a gateway or a proxy, and what to do about it
///
/// Looks at kernel, permissions, programs, firewall, clock, and, of each configuration, at addresses, routes,
/// MTU, nftables' modules and the far end. Nothing is changed; to far ends connections are opened and closed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ropewalkd doctor
  ropewalkd doctor --proxy proxy.toml --json

Exit code: 0, or 1 if something can't work.")]
pub(crate) struct Options {
    /// A gateway's configuration [default: /etc/ropewalk/gateway.toml, if it is there]
    #[arg(long, value_name = "FILE")]
    gateway: Option<PathBuf>,
    /// A proxy's configuration [default: /etc/ropewalk/proxy.toml, if it is there]
    #[arg(long, value_name = "FILE")]
    proxy: Option<PathBuf>,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

/// The configurations that are looked at: those that are named, else those that are there.
fn files(options: &Options) -> [Option<PathBuf>; 2] {
    if options.gateway.is_some() || options.proxy.is_some() {
        return [options.gateway.clone(), options.proxy.clone()];
    }
    ["gateway", "proxy"].map(|kind| {
        let path = PathBuf::from(format!("/etc/ropewalk/{kind}.toml"));
        path.exists().then_some(path)
    })
}

fn findings_of<T>(
    path: &Path,
    loaded: Result<T, impl std::fmt::Display>,
    look: impl FnOnce(&T) -> Vec<Finding>,
) -> Vec<Finding> {
    match loaded {
        Ok(loaded) => look(&loaded),
        Err(error) => {
            vec![Finding::wrong("configuration", error.to_string(), format!("mend {}", path.display()))]
        }
    }
}

fn line(finding: &Finding) -> String {
    let word = match finding.verdict {
        Verdict::Fine => "ok      ",
        Verdict::Doubtful => "perhaps ",
        Verdict::Wrong => "WRONG   ",
    };
    let mut text =
        format!("{word}{}: {}\n", finding.what, finding.found.trim_end().replace('\n', "\n          "));
    if let Some(to_do) = &finding.to_do {
        text.push_str(&format!("        -> {to_do}\n"));
    }
    text
}

pub(crate) fn run(registries: &Registries, options: &Options) -> Result<(), Failure> {
    let [gateway, proxy] = files(options);
    let mut findings = doctor::host();
    if let Some(path) = &gateway {
        let loaded = config::load(path, registries);
        findings.extend(findings_of(path, loaded, |settings| doctor::gateway(settings, path)));
    }
    if let Some(path) = &proxy {
        let loaded = config::proxy::load(path);
        findings.extend(findings_of(path, loaded, |config| doctor::proxy(config, path)));
    }
    let wrong = findings.iter().filter(|finding| finding.verdict == Verdict::Wrong).count();
    output::print(&match options.json {
        true => format!("{:#}\n", json!({ "findings": findings, "wrong": wrong })),
        false => {
            let mut text: String = findings.iter().map(line).collect();
            if gateway.is_none() && proxy.is_none() {
                text.push_str("no configuration: `ropewalkd install` writes one\n");
            }
            text
        }
    })?;
    match wrong {
        0 => Ok(()),
        1 => Err(Failure::other("one thing can't work so")),
        wrong => Err(Failure::other(format!("{wrong} things can't work so"))),
    }
}
