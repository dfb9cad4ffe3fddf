//! `ropewalkd status`.

use std::path::PathBuf;
use std::time::Duration;

use ropewalk_command_line::recording::sockets;
use ropewalk_command_line::{Failure, output};
use ropewalk_settings::units::{self, write_bytes};
use serde_json::Value;

/// Links, connections, subflows and the scheduler's last decisions of a running proxy or gateway
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ropewalkd status
  ropewalkd status --watch 2s
  ropewalkd status --before 4000
  ropewalkd status --socket /run/ropewalk/gateway.sock --json")]
pub(crate) struct Options {
    /// The socket that `--status` of the proxy or gateway names [default: those in /run/ropewalk that are
    /// there]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Tell of connections with a lower number, which are older: one answer has at most 1,000, the newest
    /// first
    #[arg(long, value_name = "NUMBER")]
    before: Option<u64>,
    /// Ask again and again, so often
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "1 s")]
    watch: Option<String>,
    /// As JSON, one value a line
    #[arg(long)]
    json: bool,
}

/// Names come from clients.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), ropewalk_gateway::log::escape)
}

/// Rounded down, in decimal units, as the status page and quotas have them.
fn bytes(value: &Value) -> String {
    let exact = value.as_u64().unwrap_or(0);
    let unit = [10u64.pow(12), 10u64.pow(9), 1_000_000, 1000]
        .into_iter()
        .find(|unit| exact >= 4 * unit)
        .unwrap_or(1);
    write_bytes(exact / unit * unit)
}

fn milliseconds(value: &Value) -> String {
    format!("{:.1} ms", value.as_f64().unwrap_or(0.0) * 1e3)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A proxy's links, and what it did so far.
fn show_links(state: &Value) -> Vec<String> {
    let number = |key: &str| text(&state[key]);
    let draining = if state["draining"] == true { ", draining" } else { "" };
    let mut lines = vec![format!(
        "proxy at {}, policy {}, rules: {}, connections: {}{draining}; opened {}, not opened {}, lost {}",
        number("listen"),
        number("policy"),
        number("rules"),
        number("connections_open"),
        number("connections_opened"),
        number("connections_failed"),
        number("connections_lost"),
    )];
    for link in list(&state["links"]) {
        let rate = |key: &str| units::write_rate(link[key].as_u64().unwrap_or(0) / 1000 * 1000);
        let delay = if link["rtt_s"].is_null() { "unknown".into() } else { milliseconds(&link["rtt_s"]) };
        let lost = link["probes_lost"].as_f64().unwrap_or(0.0) * 100.0;
        let mut line = format!(
            "  {} is {}: {} down, {} up, round trip {delay}, {lost:.1} % of probes lost, carried {} down, \
             {} up",
            text(&link["interface"]),
            text(&link["state"]),
            rate("rate_down_bits_per_s"),
            rate("rate_up_bits_per_s"),
            bytes(&link["bytes_received"]),
            bytes(&link["bytes_sent"]),
        );
        for (key, what) in [("metered", ", metered"), ("backup", ", backup")] {
            line += if link[key] == true { what } else { "" };
        }
        if link["mtu"].as_u64() < link["interface_mtu"].as_u64() {
            line += &format!(", carries packets of up to {} B only", text(&link["mtu"]));
        }
        if link["price"].as_f64() > Some(0.0) {
            line += &format!(", price {}", link["price"].as_f64().unwrap_or(0.0));
        }
        let quota = &link["quota"];
        if quota.is_object() {
            let (carried, most) = (bytes(&quota["carried"]), bytes(&quota["bytes"]));
            line += &format!(", quota: {carried} of {most} until {}", text(&quota["until"]));
        }
        lines.push(line);
    }
    let datagrams = &state["datagrams"];
    if datagrams.is_object() {
        let carrier = match datagrams["carrier"].as_str() {
            Some("quic") => "by QUIC over the links",
            Some(_) => "by a stream, nothing comes by UDP",
            None => "nowhere, no link answers",
        };
        let number = |key: &str| text(&datagrams[key]);
        lines.push(format!(
            "  datagrams go {carrier}: packets sent {}, received {}, dropped {}",
            number("packets_sent"),
            number("packets_received"),
            number("packets_dropped"),
        ));
    }
    lines
}

/// A gateway's paths, and what it did so far.
fn show_paths(state: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    let draining = if state["draining"] == true { ", draining" } else { "" };
    let number = |key: &str| text(&state[key]);
    lines.push(format!(
        "connections: {}{draining}; accepted {}, refused {}, denied {}, without progress when memory was \
         short {}, server unreachable {}, lost by client {}, by server {}",
        number("connections_open"),
        number("connections_accepted"),
        number("connections_refused"),
        number("connections_denied"),
        number("connections_evicted"),
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
    lines
}

/// The state for people.
fn show(state: &Value) -> String {
    let mut lines = if state["kind"] == "proxy" { show_links(state) } else { show_paths(state) };
    for one in list(&state["connections"]) {
        let [client, to, scheduler, congestion] =
            ["client", "to", "scheduler", "congestion"].map(|key| text(&one[key]));
        let kind = if one["multipath"] == true { "Multipath TCP" } else { "TCP" };
        let age = one["age_s"].as_f64().unwrap_or(0.0);
        let (up, down) = (bytes(&one["bytes_up"]), bytes(&one["bytes_down"]));
        lines.push(format!(
            "\n{client} -> {to}: {kind}, {age:.0} s, {down} down, {up} up, scheduler {scheduler}, \
             congestion control {congestion}"
        ));
        if one["policy"].is_string() {
            let rule = one["rule"].as_u64().map_or("no rule fits".into(), |rule| format!("rule {rule}"));
            let opened_on = text(&one["opened_on"]);
            lines.push(format!("  policy {} ({rule}), opened on {opened_on}", text(&one["policy"])));
        }
        for link in list(&one["links"]) {
            let [interface, role, why] = ["interface", "role", "why"].map(|key| text(&link[key]));
            lines.push(format!("    {interface}: {role}, {why}"));
        }
        for subflow in list(&one["subflows"]) {
            let [interface, local, remote, is] =
                ["interface", "local", "remote", "status"].map(|key| text(&subflow[key]));
            let backup = if subflow["backup"] == true { ", backup" } else { "" };
            let (srtt, cwnd) = (milliseconds(&subflow["srtt_s"]), text(&subflow["cwnd_segments"]));
            let (sent, again) = (bytes(&subflow["bytes_sent"]), bytes(&subflow["bytes_retransmitted"]));
            lines.push(format!(
                "  {interface}  {local} -> {remote}  {is}{backup}  srtt {srtt}  cwnd {cwnd}  sent {sent}, \
                 {again} again"
            ));
        }
        for decision in list(&one["decisions"]) {
            lines.push(format!("    {}: {}", text(&decision["what"]), text(&decision["why"])));
        }
    }
    if let (Some(older @ 1..), Some(last)) =
        (state["connections_older"].as_u64(), list(&state["connections"]).last())
    {
        lines.push(format!("\n{older} older connections: `--before {}`", text(&last["number"])));
    }
    lines.join("\n") + "\n"
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let interval = match options.watch.as_deref() {
        None => None,
        Some(text) => Some(Duration::from(units::duration(text).map_err(|error| {
            let source = ropewalk_settings::diagnostic::Source::new("--watch", text);
            ropewalk_settings::diagnostic::Diagnostic::new(error.message)
                .at(&source, error.span)
                .label(error.label)
                .help(error.help)
        })?)),
    };
    let sockets = sockets(options.socket.as_ref())?;
    loop {
        let mut texts = Vec::new();
        for socket in &sockets {
            let state = ropewalk_status::ask(socket, &ropewalk_status::state_before(options.before))
                .map_err(Failure::other)?;
            texts.push(if options.json { format!("{state}\n") } else { show(&state) });
        }
        let text = texts.join(if options.json { "" } else { "\n" });
        let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stdout());
        let clear = if interval.is_some() && is_terminal && !options.json { "\x1b[2J\x1b[H" } else { "" };
        output::print(&format!("{clear}{text}"))?;
        let Some(interval) = interval else { return Ok(()) };
        std::thread::sleep(interval);
    }
}
