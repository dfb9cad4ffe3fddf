//! A run as its ends see it: a digest of every packet with its moment, and on demand one line per packet that
//! a person can read.
#![allow(dead_code, reason = "each test binary uses its part")]

use ropewalk_engine::Time;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use ropewalk_sim::{RunResult, RunSpec, SegmentObserver, Side, World};
use ropewalk_wire::{
    ChecksumMode, Flags, FourTuple, MpCapable, MpJoin, RareOptions, Segment, SyntheticPayload, encode_headers,
};
use sha2::{Digest, Sha256};

/// What was seen of a run.
pub struct Seen {
    pub result: RunResult,
    /// The endpoints' counters that aren't 0, by side.
    pub counters: [Vec<(String, u64)>; 2],
    /// Segments sent and arrived.
    pub segments: u64,
    /// The first 64 bits of the digest of every packet's headers, sent and arrived, in their order.
    pub digest: String,
    /// What was sent, as text.
    pub lines: String,
}

/// Runs a specification to its end; `readable`: with the lines.
pub fn watch(spec: &RunSpec, readable: bool) -> Seen {
    watch_in(World::new(spec).expect("a scenario that can be simulated"), spec, readable)
}

/// Runs a world of this specification to its end.
pub fn watch_world(world: World, spec: &RunSpec) -> Seen {
    watch_in(world, spec, false)
}

fn watch_in(mut world: World, spec: &RunSpec, readable: bool) -> Seen {
    let log = Arc::new(Mutex::new(Log { readable, ..Log::default() }));
    world.set_observer(Box::new(Watch {
        log: Arc::clone(&log),
        names: spec.scenario.paths.iter().map(|path| path.name.clone()).collect(),
    }));
    world.run_until(Time::MAX);
    let counters = [Side::Client, Side::Server]
        .map(|side| world.counters(side).into_iter().filter(|(_, value)| *value > 0).collect());
    let result = world.into_result();
    let log = std::mem::take(&mut *log.lock().expect("no panic while it is held"));
    let digest = hex(log.digest);
    Seen { result, counters, segments: log.segments, digest, lines: log.lines }
}

/// The first 64 bits of a text's digest.
pub fn digest_of(text: &str) -> String {
    hex(Sha256::new_with_prefix(text))
}

fn hex(digest: Sha256) -> String {
    digest.finalize()[..8].iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes all");
        text
    })
}

#[derive(Default)]
struct Log {
    readable: bool,
    digest: Sha256,
    segments: u64,
    lines: String,
    /// By direction of a subflow: the first sequence number.
    isns: Vec<(FourTuple, u32)>,
    /// By side and the client's port: the first data sequence number that it sent or that was acknowledged to
    /// it.
    bases: Vec<((Side, u16), u32)>,
}

struct Watch {
    log: Arc<Mutex<Log>>,
    names: Vec<String>,
}

impl Watch {
    fn see(&self, now: Time, side: Side, path: usize, sent: bool, segment: &Segment<SyntheticPayload>) {
        let mut log = self.log.lock().expect("no panic while it is held");
        log.segments += 1;
        log.digest.update(now.as_nanos().to_be_bytes());
        log.digest.update([side as u8, u8::from(sent), path as u8, segment.ecn as u8]);
        log.digest.update((segment.payload.0).to_be_bytes());
        let headers = encode_headers(segment, ChecksumMode::Full).expect("a segment of the wire");
        log.digest.update(&headers[..]);
        if sent && log.readable {
            let line = log.line(now, side, &self.names[path], segment);
            log.lines.push_str(&line);
            log.lines.push('\n');
        }
    }
}

impl SegmentObserver for Watch {
    fn on_sent(
        &mut self,
        now: Time,
        from: Side,
        path: usize,
        _: Option<u32>,
        segment: &Segment<SyntheticPayload>,
    ) {
        self.see(now, from, path, true, segment);
    }

    fn on_arrived(&mut self, now: Time, at: Side, path: usize, segment: &Segment<SyntheticPayload>) {
        self.see(now, at, path, false, segment);
    }
}

/// The value known for a key, else this one from now on.
fn first<K: PartialEq>(known: &mut Vec<(K, u32)>, key: K, value: u32) -> u32 {
    match known.iter().find(|(there, _)| *there == key) {
        Some(&(_, value)) => value,
        None => {
            known.push((key, value));
            value
        }
    }
}

impl Log {
    /// One packet: when, whose, on which path; flags, relative numbers, window, options.
    fn line(&mut self, now: Time, side: Side, path: &str, segment: &Segment<SyntheticPayload>) -> String {
        let arrow = if side == Side::Client { "->" } else { "<-" };
        let (millis, micros) = (now.as_millis(), now.as_nanos() / 1_000 % 1_000);
        let mut text = format!("{millis:>5}.{micros:03} {arrow} {path:<5} {:?}", segment.flags);
        let mut say = |what: std::fmt::Arguments<'_>| text.write_fmt(what).expect("a string takes all");
        let own = segment.seq.0.wrapping_sub(first(&mut self.isns, segment.tuple, segment.seq.0));
        say(format_args!("seq {own}"));
        if segment.payload.0 > 0 {
            say(format_args!("+{}", segment.payload.0));
        }
        let mut theirs = |number: u32| {
            number.wrapping_sub(first(&mut self.isns, segment.tuple.reversed(), number.wrapping_sub(1)))
        };
        if segment.flags.contains(Flags::ACK) {
            say(format_args!(" ack {}", theirs(segment.ack.0)));
        }
        say(format_args!(" win {}", segment.window));
        for &(left, right) in segment.sack.as_slice() {
            say(format_args!(" sack {}..{}", theirs(left), theirs(right)));
        }
        if segment.timestamps.is_some() {
            say(format_args!(" ts"));
        }
        if let Some(dss) = &segment.dss {
            let port = if side == Side::Client { segment.tuple.src_port } else { segment.tuple.dst_port };
            let mut relative = |side: Side, number: u64| {
                (number as u32).wrapping_sub(first(&mut self.bases, (side, port), number as u32)) as i32
            };
            if let Some(ack) = dss.data_ack {
                say(format_args!(" data-ack {}", relative(side.other(), ack)));
            }
            if let Some(map) = &dss.mapping {
                say(format_args!(" dsn {}+{} at {}", relative(side, map.dsn), map.len, map.ssn));
                if map.checksum.is_some() {
                    say(format_args!(" checksum"));
                }
            }
            if dss.data_fin {
                say(format_args!(" DATA_FIN"));
            }
        }
        if let Some(rare) = segment.rare.as_deref() {
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
            if let Some(mss) = mss {
                say(format_args!(" mss {mss}"));
            }
            if let Some(shift) = window_scale {
                say(format_args!(" scale {shift}"));
            }
            if *sack_permitted {
                say(format_args!(" sack-ok"));
            }
            match mp_capable {
                Some(MpCapable { sender_key: None, .. }) => say(format_args!(" MP_CAPABLE")),
                Some(MpCapable { receiver_key: None, .. }) => say(format_args!(" MP_CAPABLE(key)")),
                Some(MpCapable { data_len, .. }) => {
                    say(format_args!(" MP_CAPABLE(keys, {} bytes)", data_len.unwrap_or(0)));
                }
                None => {}
            }
            match mp_join {
                Some(MpJoin::Syn { address_id, .. }) => say(format_args!(" MP_JOIN(id {address_id})")),
                Some(MpJoin::SynAck { address_id, .. }) => {
                    say(format_args!(" MP_JOIN(id {address_id}, hmac)"));
                }
                Some(MpJoin::Ack { .. }) => say(format_args!(" MP_JOIN(hmac)")),
                None => {}
            }
            if let Some(add) = add_addr {
                let echo = if add.echo { " echo" } else { "" };
                say(format_args!(" ADD_ADDR(id {}{echo})", add.address_id));
            }
            if let Some(remove) = remove_addr {
                say(format_args!(" REMOVE_ADDR({:?})", remove.address_ids));
            }
            if let Some(prio) = mp_prio {
                say(format_args!(" MP_PRIO(backup {})", prio.backup));
            }
            for (there, name) in [
                (mp_fail.is_some(), "MP_FAIL"),
                (mp_fastclose.is_some(), "MP_FASTCLOSE"),
                (mp_tcprst.is_some(), "MP_TCPRST"),
            ] {
                if there {
                    say(format_args!(" {name}"));
                }
            }
        }
        text
    }
}
