//! Advice as text to type and as JSON: what the command prints, and what a script gets.

use ropewalk_engine::scheduler::BASELINE;
use ropewalk_settings::units;
use serde_json::{Value, json};

use super::measure::Reading;
use super::{Answer, Gain, Question, Recommended, Share};
use crate::compare::System;
use crate::report::comparison;

/// What to use, in a sentence.
#[must_use]
pub fn recommendation(answer: &Answer) -> String {
    if answer.use_this.is_tcp() {
        format!("Use plain TCP on {}, with {}", answer.best_path, answer.use_this.congestion.text)
    } else {
        format!(
            "Use Multipath TCP with the scheduler `{}` and {}, the first subflow on {}",
            answer.use_this.scheduler.text, answer.use_this.congestion.text, answer.opens_on
        )
    }
}

/// The lines to type.
#[must_use]
pub fn lines(question: &Question, answer: &Answer) -> Vec<String> {
    match question.system {
        System::Router | System::OldRouter => return router_lines(question, answer),
        System::Apple | System::Android => return phone_lines(question, answer),
        _ => {}
    }
    let mut lines = Vec::new();
    let control = &answer.use_this.congestion.text;
    if answer.use_this.is_tcp() {
        lines.push(format!("# the default route over {}, as root:", answer.best_path));
        lines.push(format!(
            "ip route replace default via GATEWAY_OF_{0} dev INTERFACE_OF_{0}",
            answer.best_path
        ));
        lines.push(format!("sysctl net.ipv4.tcp_congestion_control={control}"));
        lines.extend(buffer_lines(answer));
        return lines;
    }
    let others = question.scenario.paths.iter().filter(|path| path.name != answer.opens_on);
    let interfaces: Vec<&str> = others.map(|path| path.name.as_str()).collect();
    let system = match question.system {
        System::Here if answer.use_this.scheduler.entry.name == BASELINE => System::Linux,
        System::Here => System::Ropewalk,
        asked => asked,
    };
    match system {
        System::Linux => {
            lines
                .push("# Linux 5.19 or later, on both ends, as root; its one scheduler is `default`:".into());
            lines.push("sysctl net.mptcp.enabled=1".into());
            lines.push(format!("sysctl net.ipv4.tcp_congestion_control={control}"));
            lines.push(format!("ip mptcp limits set subflows {0} add_addr_accepted {0}", interfaces.len()));
            for name in &interfaces {
                lines
                    .push(format!("ip mptcp endpoint add ADDRESS_OF_{name} dev INTERFACE_OF_{name} subflow"));
            }
            lines.extend(buffer_lines(answer));
            lines.push(format!("# the default route by {}, then:", answer.opens_on));
            lines.push("mptcpize run PROGRAM".into());
        }
        System::OtherKernel => {
            let (name, since) = in_kernel(system, answer);
            let since = since.map_or(String::new(), |version| format!(" ({version} or later)"));
            lines.push(format!(
                "# the kernel of github.com/multipath-tcp/mptcp{since}, on the sending end, as root:"
            ));
            lines.push("sysctl net.mptcp.mptcp_enabled=1".into());
            lines.push("sysctl net.mptcp.mptcp_path_manager=fullmesh".into());
            lines.push(format!("sysctl net.mptcp.mptcp_scheduler={name}"));
            lines.push(format!("sysctl net.ipv4.tcp_congestion_control={control}"));
            lines.extend(buffer_lines(answer));
        }
        _ => {
            let algorithms =
                format!("--scheduler '{}' --congestion {control}", answer.use_this.scheduler.text);
            let opened = std::iter::once(answer.opens_on.as_str()).chain(interfaces);
            let vias: Vec<String> = opened.map(|name| format!("--via INTERFACE_OF_{name}")).collect();
            lines.push(
                "# at the end with these links, as root; programs use the proxy at 127.0.0.1:1080:".into(),
            );
            lines.push(format!("ropewalkd proxy {} {algorithms}", vias.join(" ")));
            lines.push("# in front of a TCP server at the other end, as root:".into());
            lines.push(format!("ropewalkd gateway --listen ADDRESS:PORT --to 127.0.0.1:PORT {algorithms}"));
            lines.push(
                "# each schedules what it sends: the gateway downloads, the proxy uploads (docs/gateway.md)"
                    .into(),
            );
            let bytes = answer.buffer.map_or(0, |buffer| buffer.bytes);
            if bytes > 4 << 20 {
                lines.push(format!(
                    "# in the gateway's file: send-buffer = \"{}\"",
                    units::write_bytes(bytes)
                ));
            }
        }
    }
    lines
}

/// Where Linux's own limits of buffers (net.ipv4.tcp_wmem, tcp_rmem) are too small.
fn buffer_lines(answer: &Answer) -> Vec<String> {
    let bytes = answer.buffer.map_or(0, |buffer| buffer.bytes);
    let mut lines = Vec::new();
    if bytes > 4 << 20 {
        lines.push(format!("sysctl net.ipv4.tcp_wmem='4096 16384 {bytes}'"));
    }
    if bytes > 6 << 20 {
        lines.push(format!("sysctl net.ipv4.tcp_rmem='4096 131072 {bytes}'"));
    }
    lines
}

/// The scheduler's name in the system's kernel, and the version from which on it is there.
fn in_kernel(system: System, answer: &Answer) -> (&'static str, Option<&'static str>) {
    let entry = &answer.use_this.scheduler.entry;
    let there = system.kernel().and_then(|kernel| entry.in_kernel(kernel));
    (there.and_then(|one| one.name).unwrap_or(entry.name), there.and_then(|one| one.since))
}

/// Its settings are UCI's section `network.globals`, and `multipath` of each interface; /etc/init.d/mptcp
/// applies them.
fn router_lines(question: &Question, answer: &Answer) -> Vec<String> {
    let (scheduler, _) = in_kernel(question.system, answer);
    let tcp = answer.use_this.is_tcp();
    let first = if tcp { &answer.best_path } else { &answer.opens_on };
    let mut lines = vec!["# on the router, as root; interfaces by the paths' names:".to_string()];
    if !tcp {
        lines.push("uci set network.globals.multipath=enable".into());
        lines.push(format!("uci set network.globals.mptcp_scheduler={scheduler}"));
    }
    lines.push(format!("uci set network.globals.congestion={}", answer.use_this.congestion.text));
    for path in &question.scenario.paths {
        let mode = match path.name == *first {
            true => "master",
            false if tcp => "off",
            false => "on",
        };
        lines.push(format!("uci set network.{}.multipath={mode}", path.name));
    }
    lines.push("uci commit network && /etc/init.d/mptcp restart".into());
    if !tcp {
        lines.push("# on its server, which schedules downloads:".into());
        lines.push(match question.system {
            System::OldRouter => format!("sysctl net.mptcp.mptcp_scheduler={scheduler}"),
            // Linux 6.1 has no such setting, and this scheduler.
            _ => format!("sysctl -e net.mptcp.scheduler={scheduler}"),
        });
    }
    lines
}

/// What an application or a person can choose on a phone.
fn phone_lines(question: &Question, answer: &Answer) -> Vec<String> {
    let apple = question.system == System::Apple;
    if answer.use_this.is_tcp() {
        return vec![format!(
            "# plain TCP uses the default network: choose {} in the settings",
            answer.best_path
        )];
    }
    debug_assert!(apple, "nothing else runs there");
    vec![
        "// in the application (Network.framework; entitlement com.apple.developer.networking.multipath):"
            .into(),
        "parameters.multipathServiceType = .interactive  // .aggregate works in development only".into(),
        "# the system schedules what it sends; the server what it receives: there, as root,".into(),
        "sysctl net.mptcp.enabled=1".into(),
        format!("sysctl net.ipv4.tcp_congestion_control={}", answer.use_this.congestion.text),
        "mptcpize run PROGRAM".into(),
    ]
}

fn gain_json(gain: &Gain) -> Value {
    json!({ "ratio": gain.ratio, "interval_90": [gain.interval.0, gain.interval.1], "faster_in": gain.sure })
}

fn reading_json(reading: &Reading) -> Value {
    let pair = |(low, high): (f64, f64)| [low, high];
    json!({
        "path": reading.path,
        "files": reading.files,
        "rtt_ms": pair(reading.rtt_ms),
        "up_bit_per_s": pair(reading.rate[0]),
        "down_bit_per_s": pair(reading.rate[1]),
        "up_at_least": reading.at_least[0],
        "down_at_least": reading.at_least[1],
        "loss": pair(reading.loss),
        "loss_counted": reading.counted,
        "queue_ms": reading.queue_ms,
        "notes": reading.notes,
    })
}

/// All of it. `to_type`: what [`lines`] gives.
#[must_use]
pub fn json(question: &Question, readings: &[Reading], answer: &Answer, to_type: &[String]) -> Value {
    json!({
        "recommendation": recommendation(answer),
        "multipath": !answer.use_this.is_tcp(),
        "scheduler": if answer.use_this.is_tcp() { None } else { Some(&answer.use_this.scheduler.text) },
        "congestion": answer.use_this.congestion.text,
        "buffer_bytes": answer.buffer.map(|buffer| buffer.bytes),
        "buffer": answer.buffer.map(|buffer| json!({
            "bytes": buffer.bytes,
            "shown": buffer.shown,
            "least_not_shown_slower_bytes": buffer.least,
            "next_smaller_ratio": buffer.smaller,
        })),
        "first_subflow_on": if answer.use_this.is_tcp() { None } else { Some(&answer.opens_on) },
        "best_path": answer.best_path,
        "why": match answer.why {
            Recommended::Better => "better",
            Recommended::OwnAsGood => "linux-as-good",
            Recommended::LesserRisk => "lesser-risk",
            Recommended::NothingBetter => "nothing-better",
            Recommended::NotSure => "not-sure",
        },
        "certainty": question.certainty,
        "faster_than_tcp_on_every_path_in": answer.sure.as_ref().map(Share::faster_in),
        "at_most_5_percent_slower_in": answer.sure.as_ref().map(Share::value),
        "tcp_over_5_percent_slower_in": answer.sure.as_ref().map(Share::tcp_slower_in),
        "not_sure": answer.unsure.as_ref().map(|(name, gain)| json!({
            "scheduler": name, "gain": gain_json(gain),
        })),
        "named_as_stated": answer.named_before,
        "read": readings.iter().map(reading_json).collect::<Vec<_>>(),
        "versus_tcp": gain_json(&answer.versus_tcp),
        "versus_tcp_as_stated": answer.stated.as_ref().map(gain_json),
        "worth": question.worth.text(),
        "versus_linux": answer.versus_own.as_ref().map(|(_, gain)| gain_json(gain)),
        "beyond": answer.beyond.as_ref().map(|(name, gain)| json!({
            "scheduler": name, "gain": gain_json(gain),
        })),
        "variants": answer.variants,
        "seed": question.seed,
        "decision": comparison::decision(&answer.decision),
        "candidates": answer.judged.iter().map(|one| json!({
            "scheduler": one.label,
            "standing": comparison::standing(one.standing),
            "variants": one.variants,
            "versus_tcp": gain_json(&one.gain),
            "bytes_on_paths": one.bytes,
            "repeated_bytes": one.duplicated + one.reinjected,
            "duplicated_bytes": one.duplicated,
            "reinjected_bytes": one.reinjected,
            "retransmitted_segments": one.retransmits,
        })).collect::<Vec<_>>(),
        "flips": answer.flips.iter().map(|flip| json!({
            "what": flip.what,
            "now": flip.now,
            "side": flip.side,
            "at": flip.at,
            "to": flip.to,
            "ratio": flip.ratio,
        })).collect::<Vec<_>>(),
        "would_change": answer.telling.as_ref().map(|one| json!({
            "path": one.path,
            "what": one.what,
            "run": one.run,
            "now": [one.now.0, one.now.1],
            "side": one.side,
            "at": one.at,
            "to": one.to,
        })),
        "simulated": answer.cut,
        "ahead_on_these_paths": answer.ahead.as_ref().map(|(name, ratio)| json!({
            "scheduler": name, "ratio": ratio,
        })),
        "to_type": to_type,
    })
}
