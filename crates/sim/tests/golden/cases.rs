//! The cases: what is simulated.

use std::sync::Arc;

use ropewalk_engine::{Span, Time, congestion, scheduler};
use ropewalk_link::{Change, ChangeAction, Jitter, JitterShape, LinkSpec, Loss, Queue, Rate, RateTrace};
use ropewalk_sim::{
    Background, Direction, EndSpec, Middlebox, RunSpec, Scenario, Side, Times, Traffic, Workload, networks,
};
use ropewalk_wire::{Segment, SyntheticPayload};

use crate::common::{MILLISECOND, SECOND, single, spec};

pub struct Case {
    pub name: String,
    pub spec: RunSpec,
    pub middlebox: Option<OptionStripper>,
    /// A middlebox may make the transfer impossible.
    pub may_fail: bool,
}

fn case(name: impl Into<String>, spec: RunSpec) -> Case {
    Case { name: name.into(), spec, middlebox: None, may_fail: false }
}

/// Removes the options of Multipath TCP from segments that a side sends over a path, from one with this index
/// on.
#[derive(Clone, Copy)]
pub struct OptionStripper {
    from: u64,
    count: u64,
    side: Option<Side>,
    path: usize,
    seen: u64,
}

impl Middlebox for OptionStripper {
    fn process(&mut self, _: Time, from: Side, path: usize, segment: &mut Segment<SyntheticPayload>) {
        if path != self.path || self.side.is_some_and(|side| side != from) {
            return;
        }
        let index = self.seen;
        self.seen += 1;
        if index < self.from || index - self.from >= self.count {
            return;
        }
        segment.strip_mptcp();
    }
}

fn bulk(scenario: Scenario, duration: Span) -> Scenario {
    Scenario { workload: Workload::Bulk { duration }, ..scenario }
}

fn flow(scenario: Scenario, bytes: u64) -> Scenario {
    Scenario { workload: Workload::Flow { bytes }, ..scenario }
}

fn up(scenario: Scenario) -> Scenario {
    Scenario { direction: Direction::Upload, ..scenario }
}

fn ends(scenario: Scenario, end: EndSpec) -> Scenario {
    Scenario { client: end.clone(), server: end, ..scenario }
}

/// Changes every link.
fn links(mut scenario: Scenario, change: impl Fn(&mut LinkSpec)) -> Scenario {
    for path in &mut scenario.paths {
        change(&mut path.down);
        change(&mut path.up);
    }
    scenario
}

/// Changes the links down.
fn downlinks(mut scenario: Scenario, change: impl Fn(&mut LinkSpec)) -> Scenario {
    scenario.paths.iter_mut().for_each(|path| change(&mut path.down));
    scenario
}

fn jitter(spread: Span, shape: JitterShape, keeps_order: bool) -> Option<Jitter> {
    Some(Jitter { spread, shape, keeps_order })
}

fn equal() -> Scenario {
    networks::two_equal(20_000_000, 15 * MILLISECOND)
}

/// Wi-Fi and LTE with all that draws from floating-point functions: jitter of this shape, losses in bursts.
fn rough(shape: JitterShape, keeps_order: bool) -> Scenario {
    downlinks(networks::wifi_lte(), |link| {
        link.jitter = jitter(3 * MILLISECOND, shape, keeps_order);
        link.loss = Loss::GilbertElliott { to_bad: 0.01, to_good: 0.3, loss_good: 0.001, loss_bad: 0.4 };
    })
}

/// Packets and acknowledgements are lost.
fn lossy(scenario: Scenario) -> Scenario {
    let scenario = links(scenario, |link| link.loss = Loss::Bernoulli(0.005));
    downlinks(scenario, |link| link.loss = Loss::Bernoulli(0.015))
}

/// Packets and acknowledgements are lost and reordered.
fn wild(scenario: Scenario) -> Scenario {
    links(lossy(scenario), |link| link.jitter = jitter(3 * MILLISECOND, JitterShape::Normal, false))
}

fn source(traffic: Traffic, direction: Direction, extra_delay: Span) -> Background {
    Background {
        path: 0,
        direction,
        traffic,
        extra_delay,
        start: Time::ZERO,
        stop: Some(Time::ZERO + 20 * SECOND),
    }
}

fn on_off() -> Traffic {
    Traffic::UdpOnOff {
        rate: 5_000_000,
        packet: 1000,
        on: 100 * MILLISECOND,
        on_shape: Times::Pareto,
        off: 100 * MILLISECOND,
        off_shape: Times::Exponential,
    }
}

fn outage(link: &mut LinkSpec, from: Span, until: Span) {
    link.changes.push(Change::once(Time::ZERO + from, ChangeAction::Down));
    link.changes.push(Change::once(Time::ZERO + until, ChangeAction::Up));
}

/// A shared bottleneck, competing traffic, a path that goes down and up again.
fn crowded() -> Scenario {
    let mut scenario = networks::shared_bottleneck();
    outage(&mut scenario.paths[1].down, 300 * MILLISECOND, 800 * MILLISECOND);
    let sources = [Traffic::TcpSaturated { congestion: "cubic".into() }, on_off()];
    scenario.background =
        sources.into_iter().map(|traffic| source(traffic, Direction::Download, 3 * MILLISECOND)).collect();
    scenario.warmup = 200 * MILLISECOND;
    scenario
}

/// Every kind of competing traffic, in both directions.
fn competing() -> Scenario {
    let mut scenario = networks::wifi_lte();
    let limited = Traffic::TcpLimited { congestion: "reno".into(), packets_per_second: 157.0, packet: 1000 };
    let flows = Traffic::TcpFlows {
        congestion: "cubic".into(),
        bytes: 50_000,
        pause: 50 * MILLISECOND,
        times: Some(4),
        receive_buffer: None,
    };
    scenario.background = vec![
        source(Traffic::TcpSaturated { congestion: "lia".into() }, Direction::Upload, Span::ZERO),
        source(limited, Direction::Download, 5 * MILLISECOND),
        source(flows, Direction::Download, Span::ZERO),
        source(on_off(), Direction::Upload, Span::ZERO),
    ];
    scenario.background[1].path = 1;
    scenario.warmup = 100 * MILLISECOND;
    scenario
}

/// Marks, checksums and an upload.
fn marked() -> Scenario {
    let mut scenario = ends(equal(), EndSpec { ecn: true, checksum: true, ..EndSpec::default() });
    scenario.paths[0].up.queue = Queue::Packets { limit: 200, ecn_threshold: Some(20) };
    up(scenario)
}

fn codel(ecn: bool) -> Scenario {
    let queue = Queue::CoDel { limit: 200, target: 5 * MILLISECOND, interval: 100 * MILLISECOND, ecn };
    ends(downlinks(bulk(equal(), SECOND), |link| link.queue = queue), EndSpec { ecn, ..EndSpec::default() })
}

fn trace() -> Scenario {
    let opportunities = (0..400).map(|i: u32| i * 3 + i % 7 * u32::from(i % 50 > 30)).collect::<Vec<_>>();
    let mut sorted = opportunities;
    sorted.sort_unstable();
    let trace = Arc::new(RateTrace::new("made up", sorted));
    downlinks(flow(equal(), 300_000), |link| link.rate = Rate::Trace(Arc::clone(&trace)))
}

fn changing() -> Scenario {
    let change = |at: u64, action| Change::once(Time::ZERO + at * MILLISECOND, action);
    let mut scenario = bulk(equal(), 1500 * MILLISECOND);
    scenario.paths[0].down.changes = vec![
        change(300, ChangeAction::Delay(2 * MILLISECOND)),
        change(600, ChangeAction::Rate(Rate::Constant(4_000_000))),
        change(900, ChangeAction::Loss(Loss::Bernoulli(0.05))),
        change(1200, ChangeAction::Delay(60 * MILLISECOND)),
    ];
    scenario
}

fn outages() -> Scenario {
    let mut scenario = bulk(equal(), 5 * SECOND);
    outage(&mut scenario.paths[0].down, 500 * MILLISECOND, 2500 * MILLISECOND);
    outage(&mut scenario.paths[0].up, 500 * MILLISECOND, 2500 * MILLISECOND);
    outage(&mut scenario.paths[1].up, 3 * SECOND, 3500 * MILLISECOND);
    links(scenario, |link| link.queue = Queue::Bytes { limit: 60_000, ecn_threshold: None })
}

fn eight_paths() -> Scenario {
    let path = |i: u64| {
        networks::path(&format!("p{i}"), 2_000_000 * (i + 1), (3 + 5 * i) * MILLISECOND, 30 + 10 * i as u32)
    };
    bulk(lossy(networks::over((0..8).map(path).collect())), SECOND)
}

fn backup() -> Scenario {
    let mut scenario = outages();
    scenario.paths[1].backup = true;
    scenario
}

fn mtus(first: u32, second: u32) -> Scenario {
    let mut scenario = flow(wild(equal()), 600_000);
    (scenario.paths[0].mtu, scenario.paths[1].mtu) = (first, second);
    scenario
}

fn small_buffers(autotune: bool) -> Scenario {
    let end = EndSpec { send_buffer: 24 << 10, receive_buffer: 16 << 10, autotune, ..EndSpec::default() };
    ends(flow(networks::wifi_lte(), 400_000), end)
}

fn web(connections: u32, direction: Direction) -> Scenario {
    let objects = (0..3 * u64::from(connections)).map(|i| 2_000 + 3_571 * i % 30_000).collect();
    let workload = Workload::Web { objects, connections, request: 300, persistent: true };
    Scenario { workload, direction, ..networks::wifi_lte() }
}

fn cbr() -> Scenario {
    let workload =
        Workload::Cbr { frame: 5 << 10, rate: 3_000_000, key: None, duration: 2 * SECOND, deadline: None };
    Scenario { workload, ..lossy(networks::wifi_lte()) }
}

fn exchanges() -> Scenario {
    let workload =
        Workload::RequestResponse { request: 900, response: 20_000, count: 20, think: 150 * MILLISECOND };
    Scenario { workload, ..lossy(networks::wifi_lte()) }
}

pub fn networks() -> Vec<Case> {
    let objects = Workload::Web { objects: vec![20_000; 12], connections: 4, request: 300, persistent: true };
    let objects = Scenario { workload: objects, ..networks::wifi_lte() };
    let first_window = |segments| EndSpec { initial_window: segments, ..EndSpec::default() };
    let impatient = EndSpec { min_rto: 20 * MILLISECOND, ..EndSpec::default() };
    let checksums = EndSpec { checksum: true, ..EndSpec::default() };
    let second = || bulk(equal(), SECOND);
    let order =
        |keeps| links(second(), |link| link.jitter = jitter(5 * MILLISECOND, JitterShape::Uniform, keeps));
    let twice = || links(wild(second()), |link| link.duplicate = 0.02);
    let late = RunSpec { start_phase: 7 * MILLISECOND, seed: 9, ..spec(outages(), "blest", "balia") };
    let mut cases = vec![
        case("clean minrtt lia", spec(networks::wifi_lte(), "minrtt", "lia")),
        case("clean linux cubic", spec(networks::wifi_lte(), "linux", "cubic")),
        case("clean single cubic", single(networks::wifi_lte(), 0, "cubic")),
        case("normal jitter ecf olia", spec(rough(JitterShape::Normal, false), "ecf", "olia")),
        case("pareto jitter blest balia", spec(rough(JitterShape::Pareto, true), "blest", "balia")),
        case("uniform jitter daps wvegas", spec(rough(JitterShape::Uniform, false), "daps", "wvegas")),
        case("crowded redundant lia", spec(crowded(), "redundant", "lia")),
        case("marked roundrobin cubic", spec(marked(), "roundrobin", "cubic")),
        case("web otias reno", spec(objects, "otias", "reno")),
        case("bulk minrtt lia", spec(second(), "minrtt", "lia")),
        case("bulk up linux cubic", spec(up(second()), "linux", "cubic")),
        case("loss minrtt olia", spec(lossy(second()), "minrtt", "olia")),
        case("loss redundant lia", spec(lossy(second()), "redundant", "lia")),
        case("loss linux cubic", spec(lossy(second()), "linux", "cubic")),
        case("loss up single reno", single(up(lossy(second())), 0, "reno")),
        case("loss of a flow to its end", spec(lossy(equal()), "minrtt", "lia")),
        case("jitter in order", spec(order(true), "minrtt", "lia")),
        case("reordering", spec(order(false), "minrtt", "lia")),
        case("reordering single cubic", single(order(false), 0, "cubic")),
        case("reordering and loss minrtt lia", spec(wild(second()), "minrtt", "lia")),
        case("reordering and loss up blest cubic", spec(up(wild(second())), "blest", "cubic")),
        case("reordering and loss up single cubic", single(up(wild(second())), 0, "cubic")),
        case("reordering and loss of a flow", spec(wild(equal()), "linux", "lia")),
        case("duplicates minrtt lia", spec(twice(), "minrtt", "lia")),
        case("duplicates single cubic", single(twice(), 1, "cubic")),
        case("codel minrtt lia", spec(codel(false), "minrtt", "lia")),
        case("codel ecn minrtt lia", spec(codel(true), "minrtt", "lia")),
        case("codel ecn single cubic", single(codel(true), 0, "cubic")),
        case("checksums minrtt lia", spec(ends(wild(second()), checksums.clone()), "minrtt", "lia")),
        case("checksums of a flow", spec(ends(equal(), checksums), "linux", "cubic")),
        case("trace minrtt lia", spec(trace(), "minrtt", "lia")),
        case("trace single cubic", single(trace(), 0, "cubic")),
        case("changes minrtt lia", spec(changing(), "minrtt", "lia")),
        case("changes single cubic", single(changing(), 0, "cubic")),
        case("outages minrtt lia", spec(outages(), "minrtt", "lia")),
        case("outages redundant olia", spec(outages(), "redundant", "olia")),
        case("outages single cubic", single(outages(), 0, "cubic")),
        case("outages up linux lia, start phase", late),
        case("backup path", spec(backup(), "minrtt", "lia")),
        case("eight paths minrtt olia", spec(eight_paths(), "minrtt", "olia")),
        case("eight paths redundant lia", spec(eight_paths(), "redundant", "lia")),
        case("MTU 576 and 1500", spec(mtus(576, 1500), "minrtt", "lia")),
        case("MTU 9000 and 1280", spec(mtus(9000, 1280), "minrtt", "lia")),
        case("small buffers minrtt lia", spec(small_buffers(true), "minrtt", "lia")),
        case("small fixed buffers linux lia", spec(small_buffers(false), "linux", "lia")),
        case("small buffers blest lia", spec(small_buffers(true), "blest", "lia")),
        case("small buffers single reno", single(small_buffers(true), 0, "reno")),
        case("small buffers with loss", spec(wild(small_buffers(true)), "minrtt", "lia")),
        case("initial window 2", spec(ends(equal(), first_window(2)), "minrtt", "lia")),
        case("initial window 40", spec(ends(lossy(equal()), first_window(40)), "minrtt", "lia")),
        case("short least RTO", spec(ends(lossy(second()), impatient), "minrtt", "lia")),
        case("one byte", spec(flow(equal(), 1), "minrtt", "lia")),
        case("one byte up", spec(up(flow(equal(), 1)), "minrtt", "lia")),
        case("30 kB up", spec(up(flow(networks::wifi_lte(), 30_000)), "linux", "lia")),
        case("shared bottleneck", spec(bulk(networks::shared_bottleneck(), SECOND), "minrtt", "lia")),
        case("competing traffic minrtt lia", spec(competing(), "minrtt", "lia")),
        case("competing traffic single reno", single(competing(), 1, "reno")),
        case("competing traffic up", spec(up(competing()), "ecf", "olia")),
        case("web of 6", spec(lossy(web(6, Direction::Download)), "minrtt", "lia")),
        case("web up of 6", spec(web(6, Direction::Upload), "linux", "cubic")),
        case("web single of 6", single(web(6, Direction::Download), 0, "cubic")),
        case("CBR minrtt lia", spec(cbr(), "minrtt", "lia")),
        case("CBR up redundant lia", spec(up(cbr()), "redundant", "lia")),
        case("CBR single", single(cbr(), 0, "cubic")),
        case("exchanges minrtt lia", spec(exchanges(), "minrtt", "lia")),
        case("exchanges up linux lia", spec(up(exchanges()), "linux", "lia")),
        case("exchanges single", single(exchanges(), 1, "cubic")),
    ];
    for seed in 2..12 {
        for (name, spec) in [
            ("loss linux cubic", spec(lossy(second()), "linux", "cubic")),
            ("reordering and loss minrtt lia", spec(wild(second()), "minrtt", "lia")),
            ("reordering and loss up ecf olia", spec(up(wild(equal())), "ecf", "olia")),
            ("duplicates single cubic", single(twice(), 0, "cubic")),
        ] {
            cases.push(case(format!("{name}, seed {seed}"), RunSpec { seed, ..spec }));
        }
    }
    cases
}

/// Links shared by so many connections.
fn shared(count: u32, bytes: u64) -> Scenario {
    let rate = 1_000_000 * u64::from(count);
    let mut scenario = networks::over(vec![
        networks::path("left", rate, 10 * MILLISECOND, 15 * count),
        networks::path("right", rate, 25 * MILLISECOND, 15 * count),
    ]);
    scenario.workload = Workload::Flows { count, bytes };
    scenario.limit = 30 * SECOND;
    scenario
}

/// As [`shared`], ended by the limit.
fn endless(count: u32, limit: Span) -> Scenario {
    Scenario { limit, ..shared(count, 1 << 40) }
}

pub fn many() -> Vec<Case> {
    let marked = |count| {
        let scenario =
            ends(up(endless(count, 500 * MILLISECOND)), EndSpec { ecn: true, ..EndSpec::default() });
        let queue = Queue::Packets { limit: 15 * count, ecn_threshold: Some(3 * count) };
        links(scenario, |link| link.queue = queue)
    };
    let reordered = |count| {
        links(shared(count, 60_000), |link| link.jitter = jitter(2 * MILLISECOND, JitterShape::Normal, false))
    };
    let starved = |count| {
        let queue = Queue::Packets { limit: count / 2, ecn_threshold: None };
        downlinks(endless(count, SECOND), |link| link.queue = queue)
    };
    let web = |connections| {
        let Scenario { workload, .. } = web(connections, Direction::Download);
        Scenario { workload, ..shared(connections, 0) }
    };
    let mut cases = Vec::new();
    // More than 64 connections are handled in batches where nothing forbids it.
    for count in [40, 200] {
        let mut add = |name: &str, spec| cases.push(case(format!("{count} {name}"), spec));
        add("flows minrtt lia", spec(shared(count, 60_000), "minrtt", "lia"));
        add("flows up linux cubic", spec(up(shared(count, 60_000)), "linux", "cubic"));
        add("flows single cubic", single(shared(count, 60_000), 0, "cubic"));
        add("flows with loss minrtt lia", spec(lossy(shared(count, 60_000)), "minrtt", "lia"));
        add("flows reordered minrtt lia", spec(reordered(count), "minrtt", "lia"));
        add("endless minrtt lia", spec(endless(count, 600 * MILLISECOND), "minrtt", "lia"));
        add("endless with loss redundant olia", spec(lossy(endless(count, SECOND)), "redundant", "olia"));
        add("endless up, marked", spec(marked(count), "roundrobin", "cubic"));
        add("endless with short queues", spec(starved(count), "minrtt", "lia"));
        add("connections of a page", spec(web(count), "blest", "lia"));
    }
    cases
}

pub fn schedulers() -> Vec<Case> {
    let mut cases = Vec::new();
    let registry = scheduler::builtin();
    // Not `ropewalk`, whose rule isn't a paper's and may be tuned on.
    let names = registry.entries().iter().map(|entry| entry.name).filter(|name| *name != "ropewalk");
    let names: Vec<_> = names.collect();
    for name in names.into_iter().chain(["minrtt:linux", "roundrobin:strict"]) {
        let mut add =
            |what, scenario| cases.push(case(format!("{name} {what}"), spec(scenario, name, "lia")));
        add("clean", flow(networks::wifi_lte(), 400_000));
        add("reordering and loss", flow(wild(networks::wifi_lte()), 400_000));
        add("small buffers", small_buffers(true));
        add("up, outages", up(outages()));
        add("eight paths", eight_paths());
        add("page", web(4, Direction::Download));
    }
    cases
}

pub fn controls() -> Vec<Case> {
    let mut cases = Vec::new();
    for entry in congestion::builtin().entries() {
        let name = entry.name;
        let mut add = |what, spec| cases.push(case(format!("{name} {what}"), spec));
        add("clean", spec(bulk(networks::wifi_lte(), SECOND), "minrtt", name));
        add("reordering and loss", spec(bulk(wild(networks::wifi_lte()), SECOND), "minrtt", name));
        add("single, overflow", single(bulk(equal(), 2 * SECOND), 0, name));
        add("up, outages", spec(up(outages()), "minrtt", name));
        add("marked", spec(codel(true), "minrtt", name));
        add(
            "4 flows",
            spec(
                Scenario { workload: Workload::Flows { count: 4, bytes: 2_000_000 }, ..equal() },
                "linux",
                name,
            ),
        );
    }
    cases
}

pub fn middleboxes() -> Vec<Case> {
    let one = || networks::one(20_000_000, 10 * MILLISECOND);
    let mut cases = Vec::new();
    for (setting, scenario) in [("one path", one()), ("two paths", equal()), ("one path up", up(one()))] {
        for (what, side) in
            [("both", None), ("client's", Some(Side::Client)), ("server's", Some(Side::Server))]
        {
            for (from, count) in
                [(0, 1), (0, u64::MAX), (1, 1), (1, u64::MAX), (2, 1), (3, 4), (40, 1), (40, u64::MAX)]
            {
                let middlebox = OptionStripper { from, count, side, path: 0, seen: 0 };
                let scenario = Scenario { limit: 5 * SECOND, ..flow(scenario.clone(), 120_000) };
                let many = if count == u64::MAX { "all".to_string() } else { count.to_string() };
                cases.push(Case {
                    name: format!("{setting}, {what} stripped from {from}: {many}"),
                    spec: spec(scenario, "minrtt", "lia"),
                    middlebox: Some(middlebox),
                    may_fail: true,
                });
            }
        }
    }
    let join = OptionStripper { from: 0, count: 3, side: None, path: 1, seen: 0 };
    cases.push(Case { middlebox: Some(join), ..case("join stripped", spec(equal(), "minrtt", "lia")) });
    let join = OptionStripper { from: 60, count: u64::MAX, ..join };
    cases.push(Case {
        middlebox: Some(join),
        ..case("second path stripped later", spec(equal(), "minrtt", "lia"))
    });
    cases
}
