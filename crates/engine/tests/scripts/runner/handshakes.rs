//! The handshakes that a script may ask for in one line.

use ropewalk_engine::{Span, Time};

use super::{Outcome, Runner};
use crate::language::split_options;
use crate::segments::Rendered;
use crate::settings::{nanos, numeric};

impl Runner {
    /// The usual handshake on subflow 0, with the options that are named (the peer's).
    pub(super) fn handshake(&mut self, words: &[&str]) -> Outcome {
        let named = |name: &str| words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        let rtt = named("rtt").map_or(Ok(Span::from_millis(100)), nanos)?;
        let window = named("win").unwrap_or("65535");
        let given = words.iter().find_map(|word| word.strip_prefix('<')?.strip_suffix('>'));
        let mut options = split_options(given.unwrap_or("mss 1000,sackOK,wscale 7"));
        let multipath = self.config.multipath && !words.contains(&"plain");
        let timestamps = options.iter().any(|option| option.starts_with("TS")) && self.config.tcp.timestamps;
        let flag = if words.contains(&"flag_a") { "flag_a,flag_h" } else { "flag_h" };
        let stamp = |value: u32, echo: &str| {
            if timestamps { format!("TS val {value} ecr {echo}") } else { String::new() }
        };
        if self.listens {
            if multipath {
                options.push(format!("mpcapable v1 flags[{flag}]"));
            }
            self.part(Span::ZERO, '<', &format!("S 0:0(0) win 65535 <{}>", options.join(",")))?;
            self.part(Span::ZERO, '>', "S. 0:0(0) ack 1 <...>")?;
            let third = [
                stamp(200, "0"),
                if multipath { format!("mpcapable v1 flags[{flag}] key[peer,local]") } else { String::new() },
            ];
            self.part(rtt, '<', &format!(". 1:1(0) ack 1 win {window} <{}>", third.join(",")))?;
            Ok(())
        } else {
            if self.id.is_none() {
                self.call(&["connect"])?;
            }
            self.part(Span::ZERO, '>', "S 0:0(0) <...>")?;
            if multipath {
                options.push(format!("mpcapable v1 flags[{flag}] key[peer]"));
            }
            self.part(rtt, '<', &format!("S. 0:0(0) ack 1 win 65535 <{}>", options.join(",")))?;
            self.part(Span::ZERO, '>', ". 1:1(0) ack 1 <...>")?;
            if multipath {
                // Until a DATA_ACK comes the third ACK isn't known to have arrived (RFC 8684 3.1).
                let line = format!(". 1:1(0) ack 1 win {window} <{},dss dack8=1>", stamp(200, "0"));
                self.part(rtt, '<', &line)?;
            }
            Ok(())
        }
    }

    /// The usual handshake of a further subflow: the peer's if the engine listens, else the engine's.
    pub(super) fn join(&mut self, words: &[&str]) -> Outcome {
        let number: usize = numeric(words.get(1).ok_or("`join` needs a subflow")?)?;
        let named = |name: &str| words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        let rtt = named("rtt").map_or(Ok(Span::from_millis(100)), nanos)?;
        let id = named("id").map_or(number.to_string(), str::to_string);
        let backup = if words.contains(&"backup") { " backup" } else { "" };
        let window = named("win").unwrap_or("65535");
        if self.listens {
            let syn = format!("mp_join_syn address_id={id} token=ok{backup}");
            self.part(
                Span::ZERO,
                '<',
                &format!("@{number} S 0:0(0) win 65535 <mss 1000,sackOK,wscale 7,{syn}>"),
            )?;
            self.part(
                Span::ZERO,
                '>',
                &format!("@{number} S. 0:0(0) ack 1 <mp_join_syn_ack address_id=* hmac=ok,...>"),
            )?;
            // A join that comes before any data is given the first DSS.
            let answers = &mut self.subflows[0].sent;
            let is_data_ack = |(_, answer): &(Time, Rendered)| {
                answer.sequence.2 == 0
                    && !answer.options.is_empty()
                    && answer.options.iter().all(|option| {
                        option.starts_with("dss dack") && !option.contains("dsn") || option.starts_with("TS")
                    })
            };
            if answers.front().is_some_and(is_data_ack) {
                answers.pop_front();
            }
            self.part(rtt, '<', &format!("@{number} . 1:1(0) ack 1 win {window} <mp_join_ack hmac=ok>"))?;
            self.part(Span::ZERO, '>', &format!("@{number} . 1:1(0) ack 1 <...>"))
        } else {
            self.part(
                Span::ZERO,
                '>',
                &format!("@{number} S 0:0(0) <mp_join_syn address_id=* token=ok,...>"),
            )?;
            let answer = format!("mp_join_syn_ack address_id={id} hmac=ok{backup}");
            self.part(
                rtt,
                '<',
                &format!("@{number} S. 0:0(0) ack 1 win 65535 <mss 1000,sackOK,wscale 7,{answer}>"),
            )?;
            self.part(Span::ZERO, '>', &format!("@{number} . 1:1(0) ack 1 <mp_join_ack hmac=ok,...>"))?;
            self.part(rtt, '<', &format!("@{number} . 1:1(0) ack 1 win {window} <dss dack8=1>"))
        }
    }
}
