//! Runs a script against an endpoint, in virtual time.

mod handshakes;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use ropewalk_engine::config::ConnectionConfig;
use ropewalk_engine::endpoint::{ConnectionId, Endpoint};
use ropewalk_engine::metrics::SubflowStatus;
use ropewalk_engine::mptcp::{Event, Key};
use ropewalk_engine::{PathId, Span, Time};
use ropewalk_wire::{Ecn, Flags, FourTuple, Segment, Seq, TooBig};

use crate::language::{Action, Mistake, Pattern, Script, Statement, When, pattern};
use crate::segments::{
    PEER_ISN, PEER_KEY, Rendered, Shared, SubflowState, blank, flags, option_matches, put_option, render,
    stream, stream_byte,
};
use crate::settings::{Settings, numeric, switch};
use crate::split_mix::SplitMix64;

/// A time in a script is exact to this.
const TOLERANCE: Span = Span::from_millis(1);
/// More turns of the engine's at one moment mean that it never rests.
const TURNS: u32 = 10_000;

/// One four-tuple of the script.
struct Subflow {
    local: SocketAddr,
    peer: SocketAddr,
    path: PathId,
    state: SubflowState,
    /// What the engine has sent and the script hasn't expected yet, with the time.
    sent: VecDeque<(Time, Rendered)>,
}

impl Subflow {
    fn new(local: SocketAddr, peer: SocketAddr, path: u16, number: usize) -> Subflow {
        let state = SubflowState {
            peer_isn: PEER_ISN.wrapping_add((number as u32) << 24),
            engine_isn: None,
            timestamp_base: None,
            engine_nonce: None,
            mappings: Vec::new(),
        };
        Subflow { local, peer, path: PathId(path), state, sent: VecDeque::new() }
    }

    /// As the peer's segments carry them.
    fn tuple(&self) -> FourTuple {
        FourTuple::new(self.peer, self.local)
    }

    /// Whether a segment of the engine's is this subflow's.
    fn sends(&self, tuple: &FourTuple) -> bool {
        let from = tuple.source();
        tuple.destination() == self.peer
            && from.ip() == self.local.ip()
            && (from.port() == self.local.port() || self.local.port() == 0)
    }
}

struct Runner {
    endpoint: Endpoint<Bytes, SplitMix64>,
    config: Arc<ConnectionConfig>,
    listens: bool,
    offload: u32,
    now: Time,
    last: Time,
    id: Option<ConnectionId>,
    events: Vec<String>,
    subflows: Vec<Subflow>,
    shared: Shared,
    written: u64,
    read: u64,
}

type Outcome = Result<(), String>;

/// Runs a script; the first thing that isn't as it says.
pub fn run(script: &Script) -> Result<(), Mistake> {
    let mut runner = Runner::new(script).map_err(|text| Mistake::new(1, text))?;
    for statement in &script.statements {
        runner.step(statement).map_err(|text| Mistake::new(statement.line, text))?;
    }
    let last = script.statements.last().map_or(1, |statement| statement.line);
    runner.drain().and_then(|()| runner.nothing_is_left()).map_err(|text| Mistake::new(last, text))
}

fn seconds(time: Time) -> String {
    format!("{:.3} s", time.as_nanos() as f64 / 1e9)
}

impl Runner {
    fn new(script: &Script) -> Result<Runner, String> {
        let Settings { connection, endpoint, listens, offload, v6 } = Settings::of(&script.options)?;
        let text = |v4: &str, v6_text: &str| if v6 { v6_text } else { v4 }.to_string();
        let local: IpAddr = numeric(&text("192.168.0.1", "fd00::1"))?;
        let peer: IpAddr = numeric(&text("10.0.0.1", "fd01::1"))?;
        let (local, peer) = if listens {
            (SocketAddr::new(local, 8080), SocketAddr::new(peer, 40_000))
        } else {
            (SocketAddr::new(local, 0), SocketAddr::new(peer, 8080))
        };
        let config = Arc::new(connection);
        let mut endpoint = Endpoint::new(endpoint, SplitMix64(7));
        if listens {
            endpoint.listen(local, Arc::clone(&config));
        }
        Ok(Runner {
            endpoint,
            config,
            listens,
            offload,
            now: Time::ZERO,
            last: Time::ZERO,
            id: None,
            events: Vec::new(),
            subflows: vec![Subflow::new(local, peer, 0, 0)],
            shared: Shared { engine: None, peer: Key::new(PEER_KEY) },
            written: 0,
            read: 0,
        })
    }

    /// Takes everything that the engine has to say now.
    fn drain(&mut self) -> Outcome {
        for _ in 0..TURNS {
            while let Some((id, event)) = self.endpoint.poll_event() {
                if self.id.is_none() || matches!(event, Event::Accepted { .. }) {
                    self.id = Some(id);
                }
                self.events.push(format!("{event:?}"));
            }
            let Some((path, segment)) = self.endpoint.poll_transmit(self.now, self.offload) else {
                return Ok(());
            };
            self.sent(path, &segment)?;
        }
        Err(format!("the engine doesn't come to rest at {}", seconds(self.now)))
    }

    /// The engine sent a segment.
    fn sent(&mut self, path: PathId, segment: &Segment<Bytes>) -> Outcome {
        let number = self.subflows.iter().rposition(|subflow| subflow.sends(&segment.tuple));
        let Some(number) = number else {
            return Err(format!(
                "the engine sent on a four-tuple that the script doesn't know: {:?}",
                segment.tuple
            ));
        };
        let subflow = &mut self.subflows[number];
        subflow.local = segment.tuple.source();
        if path != subflow.path {
            return Err(format!("the engine sent for subflow {number} on path {}", path.0));
        }
        let rendered = render(segment, &mut self.shared, &mut subflow.state);
        let mtu = 1500.max(segment.payload.len() + 100);
        if segment.gso_size == 0 && segment.wire_len() > mtu {
            return Err(format!("a packet of {} bytes: {rendered}", segment.wire_len()));
        }
        let offset = match segment.dss.and_then(|dss| dss.mapping) {
            Some(mapping) => {
                let idsn = self.shared.engine.unwrap_or_default().idsn;
                let dsn = u64::from((mapping.dsn as u32).wrapping_sub(idsn as u32));
                // A mapping may cover segments before this one.
                Some(dsn - 1 + (rendered.sequence.0 as u64).wrapping_sub(u64::from(mapping.ssn)))
            }
            None if number == 0 && rendered.sequence.0 > 0 => Some(rendered.sequence.0 as u64 - 1),
            None => None,
        };
        if let Some(offset) = offset.filter(|_| !segment.payload.is_empty() && self.written > 0) {
            let right = segment
                .payload
                .iter()
                .enumerate()
                .all(|(at, byte)| *byte == stream_byte(true, offset + at as u64));
            let is_probe = segment.payload.len() == 1;
            if !right && !is_probe {
                return Err(format!("the payload isn't the stream's bytes from {offset} on: {rendered}"));
            }
        }
        subflow.sent.push_back((self.now, rendered));
        Ok(())
    }

    /// Lets time pass until `to`, or until something was sent for a subflow.
    fn advance(&mut self, to: Time, until_sent: Option<usize>) -> Outcome {
        self.drain()?;
        for _ in 0..TURNS {
            if until_sent.is_some_and(|number| !self.subflows[number].sent.is_empty()) {
                return Ok(());
            }
            match self.endpoint.poll_timeout() {
                Some(due) if due <= to => {
                    self.now = self.now.max(due);
                    self.endpoint.on_timeout(self.now);
                    self.drain()?;
                }
                _ => {
                    self.now = self.now.max(to);
                    return Ok(());
                }
            }
        }
        Err(format!("deadlines without end at {}", seconds(self.now)))
    }

    fn nothing_is_left(&self) -> Outcome {
        for (number, subflow) in self.subflows.iter().enumerate() {
            if let Some((at, segment)) = subflow.sent.front() {
                let on = if number == 0 { String::new() } else { format!("@{number} ") };
                return Err(format!("not expected, but sent at {}: {on}{segment}", seconds(*at)));
            }
        }
        Ok(())
    }

    /// The span of time in which a statement may happen.
    fn between(&self, when: When) -> (Time, Time) {
        match when {
            When::At(from, to) => (from, to),
            When::After(from, to) => (self.last + from, self.last + to),
            When::Any => (self.now, Time::from_nanos(u64::MAX / 2)),
        }
    }

    fn step(&mut self, statement: &Statement) -> Outcome {
        let (from, to) = self.between(statement.when);
        match &statement.action {
            Action::Expect(pattern) => self.expect(pattern, from, to),
            Action::Inject(pattern) => {
                self.pass(from)?;
                self.inject(pattern)
            }
            Action::Call(words) => {
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                if words[0] == "drain" {
                    self.advance(from, None)?;
                    self.subflows.iter_mut().for_each(|subflow| subflow.sent.clear());
                    self.last = from;
                    return Ok(());
                }
                // The engine's own joins may have begun.
                if words[0] == "join" && !self.listens {
                    self.advance(from, None)?;
                    self.last = from;
                } else {
                    self.pass(from)?;
                }
                self.call(&words)
            }
        }
    }

    /// Lets time pass until `to`; nothing that isn't expected may be sent until then.
    fn pass(&mut self, to: Time) -> Outcome {
        if to + TOLERANCE < self.now {
            return Err(format!("this is for {}, but it is {} already", seconds(to), seconds(self.now)));
        }
        self.advance(to, None)?;
        self.nothing_is_left()?;
        self.last = to;
        Ok(())
    }

    fn subflow(&mut self, number: usize) -> Result<&mut Subflow, String> {
        self.subflows.get_mut(number).ok_or(format!("subflow {number} wasn't declared"))
    }

    fn expect(&mut self, pattern: &Pattern, from: Time, to: Time) -> Outcome {
        self.subflow(pattern.subflow)?;
        self.advance(to.saturating_add(TOLERANCE), Some(pattern.subflow))?;
        let Some((at, found)) = self.subflows[pattern.subflow].sent.pop_front() else {
            return Err(format!("nothing was sent until {}", seconds(self.now)));
        };
        let differs = |what: &str| Err(format!("{what}; found at {}: {found}", seconds(at)));
        if at + TOLERANCE < from || at > to.saturating_add(TOLERANCE) {
            return differs(&format!("expected at {}", seconds(from)));
        }
        let wanted = pattern.flags.as_str();
        let same = |text: &str| flags(text).0 & !if wanted.contains('P') { 0 } else { Flags::PSH.0 };
        if same(wanted) != same(&found.flags) {
            return differs("other flags");
        }
        if pattern.ecn.as_deref().is_some_and(|ecn| ecn != found.ecn) {
            return differs("another ECN field");
        }
        if pattern.sequence.is_some_and(|range| range != found.sequence) {
            return differs("other sequence numbers");
        }
        if found.ack.is_some() && pattern.ack.is_some() && pattern.ack != found.ack {
            return differs("another acknowledgement number");
        }
        if pattern.window.is_some_and(|window| window != found.window) {
            return differs("another window");
        }
        if pattern.urgent != found.urgent {
            return differs("another urgent pointer");
        }
        for option in &pattern.options {
            if !found.options.iter().any(|other| option_matches(option, other)) {
                return differs(&format!("without `{option}`"));
            }
        }
        let further =
            found.options.iter().find(|other| !pattern.options.iter().any(|one| option_matches(one, other)));
        if let Some(further) = further.filter(|_| !pattern.open) {
            return differs(&format!("with `{further}`"));
        }
        self.last = at;
        Ok(())
    }

    fn inject(&mut self, pattern: &Pattern) -> Outcome {
        let mut shared = self.shared.clone();
        let subflow = self.subflow(pattern.subflow)?;
        let (from, _, len) = pattern.sequence.unwrap_or_default();
        let mut segment =
            blank(&subflow.state, subflow.tuple(), from, pattern.ack.unwrap_or(0), flags(&pattern.flags));
        segment.window = pattern.window.unwrap_or(u16::MAX);
        segment.urgent = pattern.urgent.unwrap_or(0);
        segment.ecn = match pattern.ecn.as_deref() {
            Some("ect0") => Ecn::Ect0,
            Some("ect1") => Ecn::Ect1,
            Some("ce") => Ecn::Ce,
            _ => Ecn::NotEct,
        };
        for option in &pattern.options {
            put_option(option, &mut segment, &mut shared, &mut subflow.state)?;
        }
        let syn = i64::from(segment.flags.contains(Flags::SYN));
        let offset = subflow.state.offset((from + syn).max(0) as u64);
        segment.payload = stream(false, offset, len as usize);
        if pattern.corrupt {
            segment.payload = segment.payload.iter().map(|byte| byte ^ 0x55).collect();
        }
        let path = subflow.path;
        // Scripts know the options that fit.
        if segment.options_len() > 40 {
            return Err(format!("{} bytes of options don't fit", segment.options_len()));
        }
        self.endpoint.on_segment(self.now, path, segment);
        self.drain()
    }

    /// Runs a statement that is part of a larger one, now.
    fn part(&mut self, delay: Span, direction: char, text: &str) -> Outcome {
        let pattern = pattern(0, text).map_err(|mistake| mistake.text)?;
        let at = self.last + delay;
        if direction == '>' {
            self.expect(&pattern, at, at)
        } else {
            self.pass(at)?;
            self.inject(&pattern)
        }
    }

    fn call(&mut self, words: &[&str]) -> Outcome {
        let now = self.now;
        let argument = |at: usize| words.get(at).copied().ok_or(format!("`{}` needs more words", words[0]));
        let named = |name: &str| words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        let result = words.iter().position(|word| *word == "->").and_then(|at| words.get(at + 1)).copied();
        let id = self.id;
        let known = || id.ok_or("there is no connection yet".to_string());
        match words[0] {
            "quiet" => {}
            "handshake" => self.handshake(words)?,
            "join" => self.join(words)?,
            "subflow" => {
                let number: usize = numeric(argument(1)?)?;
                if number != self.subflows.len() {
                    return Err(format!("the next subflow is {}", self.subflows.len()));
                }
                let first = (self.subflows[0].local, self.subflows[0].peer);
                let address = |name: &str, default: SocketAddr| match named(name) {
                    None => Ok(default),
                    Some(text) => text
                        .parse()
                        .or_else(|_| text.parse().map(|ip| SocketAddr::new(ip, 0)))
                        .map_err(|_| format!("`{text}` is no address")),
                };
                let (local, peer) = (address("local", first.0)?, address("peer", first.1)?);
                let path = named("path").map_or(Ok(0), numeric)?;
                self.subflows.push(Subflow::new(local, peer, path, number));
            }
            "connect" => {
                let subflow = &self.subflows[0];
                let config = Arc::clone(&self.config);
                let made = self.endpoint.connect(now, subflow.path, subflow.local, subflow.peer, config);
                self.id = Some(made.map_err(|error| error.to_string())?);
            }
            "write" => {
                let len: usize = numeric(argument(1)?)?;
                let taken = self.endpoint.write(now, known()?, stream(true, self.written, len));
                let told = match taken {
                    Ok(taken) => {
                        self.written += taken as u64;
                        taken.to_string()
                    }
                    Err(_) => "error".into(),
                };
                let wanted = result.map_or(len.to_string(), str::to_string);
                if told != wanted {
                    return Err(format!("write gave {told}"));
                }
            }
            "read" => self.read(numeric(argument(1)?)?, result)?,
            "shutdown" => self.endpoint.shutdown(now, known()?),
            "close" => self.endpoint.close(now, known()?),
            "abort" => self.endpoint.abort(now, known()?),
            "cork" | "nagle" => {
                let (id, on) = (known()?, switch(argument(1)?)?);
                let set = if words[0] == "cork" { Endpoint::set_cork } else { Endpoint::set_nagle };
                set(&mut self.endpoint, now, id, on).map_err(|error| error.to_string())?;
            }
            "add_path" => {
                let number: usize = numeric(argument(1)?)?;
                let (local, peer, path) = {
                    let subflow = self.subflow(number)?;
                    (subflow.local, subflow.peer, subflow.path)
                };
                self.endpoint.add_path(now, known()?, path, local, Some(peer), number as u8);
            }
            "remove_path" => {
                let path = PathId(numeric(argument(1)?)?);
                self.endpoint.remove_path(now, known()?, path);
            }
            "backup" => {
                let path = PathId(numeric(argument(1)?)?);
                self.endpoint.set_backup(now, known()?, path, switch(argument(2)?)?);
            }
            "too_big" => {
                let subflow = &self.subflows[0];
                let seq = numeric::<u32>(argument(1)?)?;
                let seq = Seq(subflow.state.engine_isn.unwrap_or(0).wrapping_add(seq));
                let (tuple, router) = (subflow.tuple().reversed(), subflow.peer.ip());
                let message = TooBig { router, tuple, seq, mtu: numeric(argument(2)?)? };
                self.endpoint.on_too_big(now, &message);
            }
            "event" | "no_event" => {
                self.drain()?;
                let name = argument(1)?;
                let seen = self.events.iter().position(|event| event.starts_with(name));
                match (words[0], seen) {
                    ("event", Some(at)) => {
                        self.events.remove(at);
                    }
                    ("no_event", None) => {}
                    _ => return Err(format!("events so far: {}", self.events.join(", "))),
                }
            }
            "assert" => self.check(argument(1)?, argument(2)?, numeric(argument(3)?)?)?,
            other => return Err(format!("there is no call `{other}`")),
        }
        self.drain()
    }

    fn read(&mut self, most: usize, wanted: Option<&str>) -> Outcome {
        let id = self.id.ok_or("there is no connection yet")?;
        let got = self.endpoint.read(self.now, id, most);
        let told = match &got {
            Err(_) => "error".to_string(),
            Ok(None) => "none".into(),
            Ok(Some(data)) if data.is_empty() => "eof".into(),
            Ok(Some(data)) => data.len().to_string(),
        };
        if let Ok(Some(data)) = got {
            let right =
                data.iter().enumerate().all(|(at, byte)| *byte == stream_byte(false, self.read + at as u64));
            if !right {
                return Err(format!("the bytes from {} on aren't the peer's", self.read));
            }
            self.read += data.len() as u64;
        }
        let wanted = wanted.map_or(most.to_string(), str::to_string);
        if told == wanted { Ok(()) } else { Err(format!("read gave {told}")) }
    }

    /// Compares something countable.
    fn check(&mut self, name: &str, relation: &str, wanted: i64) -> Outcome {
        self.drain()?;
        let connection = self.id.and_then(|id| self.endpoint.connection(id));
        let metrics = connection.map(|connection| connection.subflow_metrics()).unwrap_or_default();
        let open =
            |status: SubflowStatus| !matches!(status, SubflowStatus::Closed | SubflowStatus::Handshaking);
        let found = match name {
            "connections" => self.endpoint.len() as i64,
            "multipath" => i64::from(connection.is_some_and(|connection| connection.is_multipath())),
            "subflows" => metrics.iter().filter(|metrics| open(metrics.state)).count() as i64,
            "backups" => {
                metrics.iter().filter(|metrics| open(metrics.state) && metrics.backup).count() as i64
            }
            "cwnd" => metrics.first().map_or(0, |metrics| i64::from(metrics.cwnd())),
            "ssthresh" => metrics.first().map_or(0, |metrics| i64::from(metrics.ssthresh())),
            "in_flight" => metrics.first().map_or(0, |metrics| i64::from(metrics.packets_out())),
            "sacked" => metrics.first().map_or(0, |metrics| i64::from(metrics.sacked_out())),
            "lost" => metrics.first().map_or(0, |metrics| i64::from(metrics.lost_out())),
            "srtt_ms" => metrics.first().map_or(0, |metrics| (metrics.rtt.smoothed.as_millis()) as i64),
            "rto_ms" => metrics.first().map_or(0, |metrics| (metrics.rto.as_millis()) as i64),
            counter => {
                let all = self.endpoint.mib();
                let found = all.into_iter().find(|(name, _)| name == counter);
                found.ok_or(format!("there is no `{counter}`"))?.1 as i64
            }
        };
        let holds = match relation {
            "==" => found == wanted,
            "!=" => found != wanted,
            "<=" => found <= wanted,
            ">=" => found >= wanted,
            "<" => found < wanted,
            ">" => found > wanted,
            other => return Err(format!("`{other}` is no relation")),
        };
        if holds { Ok(()) } else { Err(format!("{name} is {found}")) }
    }
}
