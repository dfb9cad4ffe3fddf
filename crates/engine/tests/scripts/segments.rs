//! Segments as scripts write them, with numbers relative to what each side began with, and back.

use std::net::IpAddr;

use bytes::Bytes;
use ropewalk_engine::mptcp::{Key, add_addr_hmac, join_hmac, leftmost_64, leftmost_160};
use ropewalk_wire::checksum::{dss_checksum, dss_checksum_holds, ones_complement};
use ropewalk_wire::{
    AddAddr, Dss, DssMapping, Ecn, Flags, MpCapable, MpFail, MpFastClose, MpJoin, MpPrio, MpTcpRst,
    RareOptions, RemoveAddr, Segment, Seq, Timestamps,
};

/// The peer's key.
pub const PEER_KEY: u64 = 0x0102_0304_0506_0708;
/// The random number in the peer's joins.
pub const PEER_NONCE: u32 = 0x0a0b_0c0d;
/// The peer's initial sequence number on its first subflow: within a script's reach of the wrap.
pub const PEER_ISN: u32 = 0xffff_f000;

/// The byte of a stream at an offset.
pub fn stream_byte(of_engine: bool, offset: u64) -> u8 {
    let mixed = (offset + 1).wrapping_mul(if of_engine { 0x9e37_79b9 } else { 0x85eb_ca6b });
    (mixed >> 13) as u8
}

/// Part of a stream.
pub fn stream(of_engine: bool, from: u64, len: usize) -> Bytes {
    (from..from + len as u64).map(|offset| stream_byte(of_engine, offset)).collect()
}

/// What both sides of a connection have agreed on, as far as it was seen.
#[derive(Clone, Debug)]
pub struct Shared {
    pub engine: Option<Key>,
    pub peer: Key,
}

/// What is known of a subflow.
#[derive(Clone, Debug)]
pub struct SubflowState {
    pub peer_isn: u32,
    pub engine_isn: Option<u32>,
    /// The engine's first timestamp.
    pub timestamp_base: Option<u32>,
    pub engine_nonce: Option<u32>,
    /// Peer's mappings: first subflow sequence number, length, data sequence number, all relative.
    pub mappings: Vec<(u64, u64, u64)>,
}

impl SubflowState {
    fn engine_base(&self) -> u32 {
        self.engine_isn.unwrap_or(0)
    }

    /// Offset in the peer's stream of a relative sequence number.
    pub fn offset(&self, sequence: u64) -> u64 {
        let covers = |(first, len, _): &&(u64, u64, u64)| (*first..first + len.max(&1)).contains(&sequence);
        match self.mappings.iter().rev().find(covers) {
            Some((first, _, data)) => data + (sequence - first) - 1,
            None => sequence.saturating_sub(1),
        }
    }
}

fn relative(number: u32, base: u32) -> i64 {
    i64::from(number.wrapping_sub(base) as i32)
}

fn relative_data(number: u64, wide: bool, idsn: u64) -> i64 {
    if wide { number.wrapping_sub(idsn) as i64 } else { relative(number as u32, idsn as u32) }
}

/// The parts of a segment as words, in the order in which they are compared.
#[derive(Clone, PartialEq, Debug)]
pub struct Rendered {
    pub flags: String,
    pub ecn: &'static str,
    pub sequence: (i64, i64, u32),
    pub ack: Option<i64>,
    pub window: u16,
    pub urgent: Option<u16>,
    pub options: Vec<String>,
}

impl std::fmt::Display for Rendered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.ecn != "noecn" {
            write!(f, "[{}] ", self.ecn)?;
        }
        let (from, to, len) = self.sequence;
        write!(f, "{} {from}:{to}({len})", self.flags)?;
        if let Some(ack) = self.ack {
            write!(f, " ack {ack}")?;
        }
        write!(f, " win {}", self.window)?;
        if let Some(urgent) = self.urgent {
            write!(f, " urg {urgent}")?;
        }
        if !self.options.is_empty() {
            write!(f, " <{}>", self.options.join(","))?;
        }
        Ok(())
    }
}

const LETTERS: [(char, Flags); 8] = [
    ('S', Flags::SYN),
    ('F', Flags::FIN),
    ('R', Flags::RST),
    ('P', Flags::PSH),
    ('.', Flags::ACK),
    ('E', Flags::ECE),
    ('W', Flags::CWR),
    ('U', Flags::URG),
];

pub fn flags(text: &str) -> Flags {
    let set = LETTERS.iter().filter(|(letter, _)| text.contains(*letter));
    set.fold(Flags::default(), |flags, (_, flag)| flags.with(*flag))
}

fn flag_words(capable: &MpCapable) -> String {
    let flags = [
        (capable.checksum_required, "flag_a"),
        (capable.extensibility, "flag_b"),
        (capable.deny_join_initial_address, "flag_c"),
        (capable.hmac_sha256, "flag_h"),
    ];
    let names: Vec<_> = flags.iter().filter(|(set, _)| *set).map(|(_, name)| *name).collect();
    format!("flags[{}]", names.join(","))
}

fn verdict(holds: bool) -> &'static str {
    if holds { "ok" } else { "bad" }
}

/// A segment of the engine's in words. Learns what it says first.
pub fn render(segment: &Segment<Bytes>, shared: &mut Shared, subflow: &mut SubflowState) -> Rendered {
    let flags = segment.flags;
    if flags.contains(Flags::SYN) {
        subflow.engine_isn = Some(segment.seq.0);
    }
    let base = subflow.engine_base();
    let rare = segment.rare.as_deref().cloned().unwrap_or_default();
    let RareOptions {
        mss,
        window_scale,
        sack_permitted,
        mp_capable,
        mp_join,
        add_addr,
        remove_addr,
        mp_prio,
        mp_fail,
        mp_fastclose,
        mp_tcprst,
    } = rare;
    if let Some(key) = mp_capable.and_then(|capable| capable.sender_key) {
        shared.engine = Some(Key::new(key));
    }
    let engine = shared.engine.unwrap_or_default();
    let mut options = Vec::new();
    if let Some(mss) = mss {
        options.push(format!("mss {mss}"));
    }
    if sack_permitted {
        options.push("sackOK".into());
    }
    if let Some(timestamps) = segment.timestamps {
        let base = *subflow.timestamp_base.get_or_insert(timestamps.value);
        let value = relative(timestamps.value, base);
        options.push(format!("TS val {value} ecr {}", timestamps.echo));
    }
    if let Some(shift) = window_scale {
        options.push(format!("wscale {shift}"));
    }
    if !segment.sack.is_empty() {
        let block = |(left, right): &(u32, u32)| {
            format!("{}:{}", relative(*left, subflow.peer_isn), relative(*right, subflow.peer_isn))
        };
        let blocks: Vec<_> = segment.sack.as_slice().iter().map(block).collect();
        options.push(format!("sack {}", blocks.join(" ")));
    }
    if let Some(capable) = mp_capable {
        let mut text = format!("mpcapable v{} {}", capable.version, flag_words(&capable));
        let name = |key: u64| {
            if key == shared.peer.key {
                "peer".to_string()
            } else if key == engine.key {
                "local".to_string()
            } else {
                format!("{key:#x}")
            }
        };
        let keys: Vec<_> =
            [capable.sender_key, capable.receiver_key].into_iter().flatten().map(name).collect();
        if !keys.is_empty() {
            text += &format!(" key[{}]", keys.join(","));
        }
        if let Some(len) = capable.data_len {
            text += &format!(" mpcdatalen {len}");
        }
        if let Some(sum) = capable.checksum {
            let holds = dss_checksum_holds(
                engine.idsn.wrapping_add(1),
                1,
                segment.payload.len() as u16,
                ones_complement(&segment.payload),
                sum,
            );
            text += &format!(" cs={}", verdict(holds));
        }
        options.push(text);
    }
    if let Some(join) = mp_join {
        options.push(render_join(&join, shared, subflow));
    }
    if let Some(dss) = segment.dss {
        options.push(render_dss(&dss, segment, shared));
    }
    if let Some(add) = add_addr {
        let mut text = format!("add_address address_id={} addr={}", add.address_id, add.address);
        if let Some(port) = add.port {
            text += &format!(" port={port}");
        }
        if let Some(hmac) = add.hmac {
            let right = add_addr_hmac(engine.key, shared.peer.key, add.address_id, add.address, add.port);
            text += &format!(" hmac={}", verdict(hmac == right));
        }
        if add.echo {
            text += " echo";
        }
        options.push(text);
    }
    if let Some(remove) = &remove_addr {
        let ids: Vec<_> = remove.address_ids.iter().map(u8::to_string).collect();
        options.push(format!("remove_address address_id=[{}]", ids.join(",")));
    }
    if let Some(prio) = mp_prio {
        options.push(if prio.backup { "mp_prio backup" } else { "mp_prio" }.into());
    }
    if let Some(fail) = mp_fail {
        options.push(format!("mp_fail dsn={}", relative_data(fail.dsn, true, shared.peer.idsn)));
    }
    if let Some(close) = mp_fastclose {
        options.push(format!("mp_fastclose key={}", verdict(close.receiver_key == shared.peer.key)));
    }
    if let Some(reset) = mp_tcprst {
        options.push(format!("mp_reset reason={}{}", reset.reason, if reset.transient { " T" } else { "" }));
    }
    let from = relative(segment.seq.0, base);
    let len = segment.payload.len() as u32;
    let letters: String =
        LETTERS.iter().filter(|(_, flag)| flags.contains(*flag)).map(|(letter, _)| *letter).collect();
    Rendered {
        flags: if letters.is_empty() { "-".into() } else { letters },
        ecn: match segment.ecn {
            Ecn::NotEct => "noecn",
            Ecn::Ect0 => "ect0",
            Ecn::Ect1 => "ect1",
            Ecn::Ce => "ce",
        },
        sequence: (from, from + i64::from(len), len),
        ack: flags.contains(Flags::ACK).then(|| relative(segment.ack.0, subflow.peer_isn)),
        window: segment.window,
        urgent: flags.contains(Flags::URG).then_some(segment.urgent),
        options,
    }
}

fn render_join(join: &MpJoin, shared: &Shared, subflow: &mut SubflowState) -> String {
    let engine = shared.engine.unwrap_or_default();
    let backup = |set: bool| if set { " backup" } else { "" };
    match *join {
        MpJoin::Syn { backup: set, address_id, token, nonce } => {
            subflow.engine_nonce = Some(nonce);
            let token = verdict(token == shared.peer.token);
            format!("mp_join_syn address_id={address_id} token={token}{}", backup(set))
        }
        MpJoin::SynAck { backup: set, address_id, hmac, nonce } => {
            subflow.engine_nonce = Some(nonce);
            let right = leftmost_64(&join_hmac(engine.key, shared.peer.key, nonce, PEER_NONCE));
            format!("mp_join_syn_ack address_id={address_id} hmac={}{}", verdict(hmac == right), backup(set))
        }
        MpJoin::Ack { hmac } => {
            let nonce = subflow.engine_nonce.unwrap_or(0);
            let right = leftmost_160(&join_hmac(engine.key, shared.peer.key, nonce, PEER_NONCE));
            format!("mp_join_ack hmac={}", verdict(hmac == right))
        }
    }
}

fn render_dss(dss: &Dss, segment: &Segment<Bytes>, shared: &Shared) -> String {
    let engine = shared.engine.unwrap_or_default();
    let mut text = "dss".to_string();
    if let Some(ack) = dss.data_ack {
        let width = if dss.ack_is_64 { 8 } else { 4 };
        text += &format!(" dack{width}={}", relative_data(ack, dss.ack_is_64, shared.peer.idsn));
    }
    if let Some(mapping) = dss.mapping {
        let width = if mapping.dsn_is_64 { 8 } else { 4 };
        let dsn = relative_data(mapping.dsn, mapping.dsn_is_64, engine.idsn);
        text += &format!(" dsn{width}={dsn} ssn={} dll={}", mapping.ssn, mapping.len);
        match mapping.checksum {
            None => text += " nocs",
            Some(sum) => {
                let whole = engine.idsn.wrapping_add(dsn as u64);
                let data = ones_complement(&segment.payload);
                let holds = dss_checksum_holds(whole, mapping.ssn, mapping.len, data, sum);
                text += &format!(" cs={}", verdict(holds));
            }
        }
    }
    if dss.data_fin {
        text += " fin";
    }
    text
}

/// The value of `name=` among words.
fn value<'a>(words: &[&'a str], name: &str) -> Option<&'a str> {
    words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

fn parsed<T: std::str::FromStr>(words: &[&str], name: &str) -> Result<T, String> {
    let text = value(words, name).ok_or_else(|| format!("`{name}=` is missing"))?;
    text.parse().map_err(|_| format!("`{name}={text}`"))
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Puts an option of the peer's into a segment whose payload and numbers stand.
pub fn put_option(
    text: &str,
    segment: &mut Segment<Bytes>,
    shared: &mut Shared,
    subflow: &mut SubflowState,
) -> Result<(), String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let plain = |at: usize| words.get(at).and_then(|word| number(word)).ok_or(format!("`{text}`"));
    let has = |name: &str| words.contains(&name);
    let engine = shared.engine.unwrap_or_default();
    match words[0] {
        "mss" => segment.rare_mut().mss = Some(plain(1)? as u16),
        "sackOK" => segment.rare_mut().sack_permitted = true,
        "wscale" => segment.rare_mut().window_scale = Some(plain(1)? as u8),
        "TS" => {
            let echo = plain(4)? as u32;
            let base = subflow.timestamp_base.unwrap_or(0);
            segment.timestamps = Some(Timestamps { value: plain(2)? as u32, echo: base.wrapping_add(echo) });
        }
        "sack" => {
            for block in &words[1..] {
                let (left, right) = block.split_once(':').ok_or(format!("`{block}`"))?;
                let absolute = |text: &str| {
                    text.parse::<i64>()
                        .map(|value| subflow.engine_base().wrapping_add(value as u32))
                        .map_err(|_| format!("`{block}`"))
                };
                if !segment.sack.push(absolute(left)?, absolute(right)?) {
                    return Err("four SACK blocks at most".into());
                }
            }
        }
        "mpcapable" => {
            let mut capable = MpCapable {
                version: words.get(1).and_then(|word| word.strip_prefix('v')?.parse().ok()).unwrap_or(1),
                checksum_required: text.contains("flag_a"),
                extensibility: text.contains("flag_b"),
                deny_join_initial_address: text.contains("flag_c"),
                hmac_sha256: text.contains("flag_h"),
                ..MpCapable::default()
            };
            if let Some(keys) = text.split_once("key[").and_then(|(_, rest)| rest.split_once(']')) {
                let key = |name: &str| match name.trim() {
                    "peer" => Ok(shared.peer.key),
                    "local" => Ok(engine.key),
                    "wrong" => Ok(0xdead_beef_dead_beef),
                    other => number(other).ok_or(format!("key `{other}`")),
                };
                let mut keys = keys.0.split(',').map(key);
                capable.sender_key = keys.next().transpose()?;
                capable.receiver_key = keys.next().transpose()?;
            }
            if let Some(at) = words.iter().position(|word| *word == "mpcdatalen") {
                let len = plain(at + 1)? as u16;
                capable.data_len = Some(len);
                if let Some(sum) = value(&words, "cs") {
                    let data = ones_complement(&stream(false, 0, usize::from(len)));
                    let right = dss_checksum(shared.peer.idsn.wrapping_add(1), 1, len, data);
                    capable.checksum = Some(if sum == "ok" { right } else { !right });
                }
            }
            segment.rare_mut().mp_capable = Some(capable);
        }
        "mp_join_syn" => {
            let token = match value(&words, "token") {
                None | Some("ok") => engine.token,
                Some(_) => !engine.token,
            };
            let (backup, address_id) = (has("backup"), parsed(&words, "address_id")?);
            segment.rare_mut().mp_join = Some(MpJoin::Syn { backup, address_id, token, nonce: PEER_NONCE });
        }
        "mp_join_syn_ack" => {
            let nonce = subflow.engine_nonce.unwrap_or(0);
            let mut hmac = leftmost_64(&join_hmac(shared.peer.key, engine.key, PEER_NONCE, nonce));
            if value(&words, "hmac").is_some_and(|hmac| hmac != "ok") {
                hmac = !hmac;
            }
            let (backup, address_id) = (has("backup"), parsed(&words, "address_id")?);
            segment.rare_mut().mp_join = Some(MpJoin::SynAck { backup, address_id, hmac, nonce: PEER_NONCE });
        }
        "mp_join_ack" => {
            let nonce = subflow.engine_nonce.unwrap_or(0);
            let mut hmac = leftmost_160(&join_hmac(shared.peer.key, engine.key, PEER_NONCE, nonce));
            if value(&words, "hmac").is_some_and(|hmac| hmac != "ok") {
                hmac[0] = !hmac[0];
            }
            segment.rare_mut().mp_join = Some(MpJoin::Ack { hmac });
        }
        "dss" => segment.dss = Some(build_dss(&words, shared, subflow)?),
        "add_address" => {
            let address: IpAddr = parsed(&words, "addr")?;
            let address_id = parsed(&words, "address_id")?;
            let port = value(&words, "port").and_then(|port| port.parse().ok());
            let right = add_addr_hmac(shared.peer.key, engine.key, address_id, address, port);
            let hmac = match value(&words, "hmac") {
                Some("ok") => Some(right),
                Some("none") => None,
                Some(_) => Some(!right),
                None => (!has("echo")).then_some(right),
            };
            segment.rare_mut().add_addr =
                Some(AddAddr { echo: has("echo"), address_id, address, port, hmac });
        }
        "remove_address" => {
            let ids = value(&words, "address_id").unwrap_or_default().trim_matches(['[', ']']);
            let address_ids = ids.split(',').filter_map(|id| id.parse().ok()).collect();
            segment.rare_mut().remove_addr = Some(RemoveAddr { address_ids });
        }
        "mp_prio" => segment.rare_mut().mp_prio = Some(MpPrio { backup: has("backup") }),
        "mp_fail" => {
            let dsn: u64 = parsed(&words, "dsn")?;
            segment.rare_mut().mp_fail = Some(MpFail { dsn: engine.idsn.wrapping_add(dsn) });
        }
        "mp_fastclose" => {
            let right = value(&words, "key").is_none_or(|key| key == "ok");
            let receiver_key = if right { engine.key } else { !engine.key };
            segment.rare_mut().mp_fastclose = Some(MpFastClose { receiver_key });
        }
        "mp_reset" => {
            let reason = parsed(&words, "reason")?;
            segment.rare_mut().mp_tcprst = Some(MpTcpRst { transient: has("T"), reason });
        }
        other => return Err(format!("there is no option `{other}`")),
    }
    Ok(())
}

fn build_dss(words: &[&str], shared: &Shared, subflow: &mut SubflowState) -> Result<Dss, String> {
    let engine = shared.engine.unwrap_or_default();
    let mut dss = Dss { data_fin: words.contains(&"fin"), ..Dss::default() };
    for (name, wide) in [("dack8", true), ("dack4", false)] {
        if value(words, name).is_some() {
            let ack: i64 = parsed(words, name)?;
            let whole = engine.idsn.wrapping_add(ack as u64);
            dss.data_ack = Some(if wide { whole } else { u64::from(whole as u32) });
            dss.ack_is_64 = wide;
        }
    }
    for (name, wide) in [("dsn8", true), ("dsn4", false)] {
        if value(words, name).is_none() {
            continue;
        }
        let dsn: i64 = parsed(words, name)?;
        let (ssn, len): (u32, u16) = (parsed(words, "ssn")?, parsed(words, "dll")?);
        let whole = shared.peer.idsn.wrapping_add(dsn as u64);
        let covered = len - u16::from(dss.data_fin && len > 0);
        let checksum = match value(words, "cs") {
            None => None,
            Some(sum) => {
                let data = stream(false, (dsn - 1).max(0) as u64, usize::from(covered));
                let right = dss_checksum(whole, ssn, len, ones_complement(&data));
                Some(if sum == "ok" { right } else { !right })
            }
        };
        if covered > 0 || len == 0 {
            subflow.mappings.push((u64::from(ssn), u64::from(covered), dsn as u64));
        }
        let dsn = if wide { whole } else { u64::from(whole as u32) };
        dss.mapping = Some(DssMapping { dsn, ssn, len, checksum, dsn_is_64: wide });
    }
    Ok(dss)
}

/// An empty segment of the peer's.
pub fn blank(
    subflow: &SubflowState,
    tuple: ropewalk_wire::FourTuple,
    from: i64,
    ack: i64,
    flags: Flags,
) -> Segment<Bytes> {
    let seq = Seq(subflow.peer_isn.wrapping_add(from as u32));
    let ack = if flags.contains(Flags::ACK) { subflow.engine_base().wrapping_add(ack as u32) } else { 0 };
    Segment::new(tuple, seq, Seq(ack), flags)
}

/// Whether an option as found is what was expected; `*` stands for any word or value.
pub fn option_matches(expected: &str, found: &str) -> bool {
    let (expected, found): (Vec<_>, Vec<_>) = (expected.split(' ').collect(), found.split(' ').collect());
    let same = |(one, other): (&&str, &&str)| match one.split_once('*') {
        None => one == other,
        Some((start, end)) => {
            other.len() >= start.len() + end.len() && other.starts_with(start) && other.ends_with(end)
        }
    };
    expected.len() == found.len() && expected.iter().zip(&found).all(same)
}
