//! `ropewalk status`.

use std::path::PathBuf;
use std::time::Duration;

use ropewalk_gateway::status;
use ropewalk_lab::units::{self, write_bytes};
use serde_json::Value;

use crate::{Failure, output};

/// Connections, subflows and the scheduler's last decisions of a running gateway
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ropewalk status
  ropewalk status --watch 2s
  ropewalk status --socket /run/ropewalk/gateway.sock --json")]
pub(crate) struct Options {
    /// The socket that the gateway's `--status` names
    #[arg(long, value_name = "PATH", default_value = status::DEFAULT)]
    socket: PathBuf,
    /// Ask again and again, so often
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "1 s")]
    watch: Option<String>,
    /// As JSON, one value a line
    #[arg(long)]
    json: bool,
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), String::from)
}

fn bytes(value: &Value) -> String {
    write_bytes(value.as_u64().unwrap_or(0))
}

fn milliseconds(value: &Value) -> String {
    format!("{:.1} ms", value.as_f64().unwrap_or(0.0) * 1e3)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The state for people.
fn show(state: &Value) -> String {
    let mut lines = Vec::new();
    let draining = if state["draining"] == true { ", draining" } else { "" };
    let number = |key: &str| text(&state[key]);
    lines.push(format!(
        "{} connections{draining}; accepted {}, refused {}, server unreachable {}, lost by client {}, by server {}",
        number("connections_open"),
        number("connections_accepted"),
        number("connections_refused"),
        number("connections_unreachable"),
        number("connections_client_lost"),
        number("connections_backend_lost"),
    ));
    for path in list(&state["paths"]) {
        let ports: Vec<String> = list(&path["ports"]).iter().map(text).collect();
        let [address, interface, device, is] =
            ["address", "interface", "device", "state"].map(|key| text(&path[key]));
        lines.push(format!("{address} on {interface}, ports {}: {device} is {is}", ports.join(", ")));
    }
    for one in list(&state["connections"]) {
        let [client, to, scheduler, congestion] =
            ["client", "to", "scheduler", "congestion"].map(|key| text(&one[key]));
        let kind = if one["multipath"] == true { "Multipath TCP" } else { "TCP" };
        let age = one["age_s"].as_f64().unwrap_or(0.0);
        let (up, down) = (bytes(&one["bytes_up"]), bytes(&one["bytes_down"]));
        lines.push(format!(
            "\n{client} -> {to}: {kind}, {age:.0} s, {down} down, {up} up, scheduler {scheduler}, congestion control {congestion}"
        ));
        for subflow in list(&one["subflows"]) {
            let [interface, local, remote, is] =
                ["interface", "local", "remote", "status"].map(|key| text(&subflow[key]));
            let backup = if subflow["backup"] == true { ", backup" } else { "" };
            let (srtt, cwnd) = (milliseconds(&subflow["srtt_s"]), text(&subflow["cwnd_segments"]));
            let (sent, again) = (bytes(&subflow["bytes_sent"]), bytes(&subflow["bytes_retransmitted"]));
            lines.push(format!(
                "  {interface}  {local} -> {remote}  {is}{backup}  srtt {srtt}  cwnd {cwnd}  sent {sent}, {again} again"
            ));
        }
        for decision in list(&one["decisions"]) {
            lines.push(format!("    {}: {}", text(&decision["what"]), text(&decision["why"])));
        }
    }
    lines.join("\n") + "\n"
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let interval = match options.watch.as_deref() {
        None => None,
        Some(text) => Some(Duration::from_nanos(units::duration(text).map_err(|error| {
            let source = ropewalk_lab::diagnostic::Source::new("--watch", text);
            ropewalk_lab::diagnostic::Diagnostic::new(error.message)
                .at(&source, error.span)
                .label(error.label)
                .help(error.help)
        })?)),
    };
    loop {
        let state = status::ask(&options.socket).map_err(Failure::other)?;
        let text = if options.json { format!("{state}\n") } else { show(&state) };
        let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stdout());
        let clear = if interval.is_some() && is_terminal && !options.json { "\x1b[2J\x1b[H" } else { "" };
        output::print(&format!("{clear}{text}"))?;
        let Some(interval) = interval else { return Ok(()) };
        std::thread::sleep(interval);
    }
}
