//! The model and the states against the draft's equations.

use super::super::testing::{OnList, build, subflow, subflows};
use super::super::{CongestionControl, LossCause, LostSegments, RateSample};
use crate::metrics::{CaState, SubflowMetrics};
use crate::testing::WithoutSender as _;
use crate::{MILLISECOND, SECOND, Span, Time};

/// A connection of one subflow over a link that delivers this many segments per round trip of 40 ms.
struct Link {
    bbr: Box<dyn CongestionControl>,
    subflows: Vec<SubflowMetrics>,
    now: Time,
    /// Segments that the link delivers in 40 ms.
    bdp: u32,
    queue: u32,
    /// Of how many one is lost; 0: none.
    lose: u32,
    sent: u64,
    /// Of the present round trip: segments left, all, what was delivered before, and the round-trip time.
    left: u32,
    delivered: u32,
    prior: u64,
    rtt: Span,
}

const RTT: Span = Span::from_millis(40);

impl Link {
    fn new(text: &str, bdp: u32) -> Link {
        let mut list = subflows(&[subflow(10, 40)]);
        list[0].set_ssthresh(u32::MAX);
        list[0].totals.delivered = 0;
        let mut bbr = build(text);
        bbr.added_on(&mut list, 0, Time::ZERO);
        bbr.before_transmit_on(&mut list, 0, Time::ZERO, true);
        let (left, delivered, prior, rtt) = (0, 0, 0, RTT);
        Link {
            bbr,
            subflows: list,
            now: Time::ZERO,
            bdp,
            queue: 0,
            lose: 0,
            sent: 0,
            left,
            delivered,
            prior,
            rtt,
        }
    }

    fn metric(&self, name: &str) -> f64 {
        let all = self.bbr.metrics_on(&self.subflows, 0);
        all.iter().find(|(other, _)| *other == name).map_or_else(|| panic!("no {name}"), |(_, value)| *value)
    }

    /// The state: 0 Startup, 1 Drain, 2 DOWN, 3 CRUISE, 4 REFILL, 5 UP, 6 ProbeRTT.
    fn state(&self) -> u8 {
        self.metric("state") as u8
    }

    /// Begins a round trip: what the pacing rate and the window let out comes back, at most the link's rate.
    fn begin_round(&mut self) {
        let own = &self.subflows[0];
        let paced = own.rate.pacing as f64 * (RTT.as_secs_f64()) / f64::from(own.mss);
        let most = (paced as u32).min(own.cwnd().saturating_sub(self.queue)).max(1);
        let waiting = self.queue + most;
        self.delivered = waiting.min(self.bdp).max(1);
        self.left = self.delivered;
        self.queue = waiting - self.delivered;
        self.rtt = RTT + u64::from(self.queue) * RTT / u64::from(self.bdp);
        self.prior = own.totals.delivered;
    }

    /// The next ACK.
    fn ack(&mut self) {
        if self.left == 0 {
            self.begin_round();
        }
        let (delivered, rtt) = (self.delivered, self.rtt);
        let in_flight = delivered + self.queue;
        let n = delivered - self.left + 1;
        self.left -= 1;
        self.now += RTT / u64::from(delivered);
        self.sent += 1;
        let lost = if self.lose > 0 { in_flight.div_ceil(self.lose) } else { 0 };
        if self.lose > 0 && self.sent.is_multiple_of(u64::from(self.lose)) {
            self.subflows[0].totals.lost += 1;
            let end = self.sent * 1000;
            let (now, position, tx_in_flight) = (self.now, end - 1000, in_flight);
            let lost =
                LostSegments { now, segments: 1, position, end, tx_in_flight, lost, app_limited: false };
            self.bbr.lost_on(&self.subflows, 0, &lost);
        }
        let own = &mut self.subflows[0];
        own.totals.delivered += 1;
        own.set_packets_out(in_flight - n.min(in_flight));
        (own.rtt.latest, own.rtt.smoothed) = (rtt, rtt);
        let sample = RateSample {
            now: self.now,
            acked: 1,
            rtt: Some(rtt),
            rate: u64::from(delivered) * u64::from(own.mss) * SECOND / RTT,
            app_limited: false,
            delivered: u64::from(delivered),
            prior_delivered: self.prior.saturating_sub(u64::from(delivered - n)),
            tx_in_flight: in_flight,
            lost,
            cwnd_limited: false,
        };
        self.bbr.sample_on(&mut self.subflows, 0, &sample);
    }

    /// The rest of a round trip.
    fn round(&mut self) {
        self.ack();
        while self.left > 0 {
            self.ack();
        }
    }

    /// ACKs until the state is this. Returns how many round trips it took.
    fn until(&mut self, state: u8) -> u64 {
        let since = self.now;
        for _ in 0..2_000_000 {
            if self.state() == state {
                return (self.now - since) / RTT;
            }
            self.ack();
        }
        panic!("state {state} never comes: {:?}", self.bbr.metrics_on(&self.subflows, 0));
    }
}

#[test]
fn the_initial_pacing_rate_is_the_window_over_the_round_trip_time() {
    // 2.77 10 segments in 40 ms (section 5.6.2).
    let link = Link::new("bbr", 100);
    assert_eq!(link.subflows[0].rate.pacing, (2.77 * 10_000.0 / 0.04) as u64);
    assert_eq!(link.state(), 0);
}

#[test]
fn startup_doubles_each_round_and_ends_three_rounds_after_the_plateau() {
    let mut link = Link::new("bbr", 160);
    let mut rates = Vec::new();
    while link.state() == 0 {
        link.round();
        rates.push(link.metric("max_bw"));
    }
    assert!(rates.len() > 3, "{rates:?}");
    assert!(rates[1] >= 1.9 * rates[0] && rates[2] >= 1.9 * rates[1], "{rates:?}");
    let plateau = rates.iter().position(|rate| *rate >= 4_000_000.0).unwrap();
    // The rate of the plateau is the new baseline; then three rounds without 25 % more (section 5.3.1.2).
    assert!((3..=4).contains(&(rates.len() - 1 - plateau)), "{rates:?}");
    assert_eq!(link.metric("max_bw"), 4_000_000.0, "160 segments in 40 ms");
}

#[test]
fn drain_halves_the_rate_until_a_bandwidth_delay_product_is_in_flight() {
    let mut link = Link::new("bbr", 160);
    link.until(1);
    assert_eq!(link.subflows[0].rate.pacing, (0.5 * 0.99 * 4_000_000.0) as u64);
    assert!(link.queue > 40, "Startup leaves a queue: {}", link.queue);
    // DOWN is left for CRUISE with the same ACK.
    link.until(3);
    assert!(link.subflows[0].in_flight() <= 161);
    assert!(link.subflows[0].ssthresh() < u32::MAX, "not in slow start any more");
}

#[test]
fn probe_bw_cycles_through_its_states_with_their_gains() {
    let mut link = Link::new("bbr", 100);
    link.until(5);
    let rate = |gain: f64| (gain * 0.99 * 2_500_000.0) as u64;
    for (state, gain) in [(2, 0.9), (3, 1.0), (4, 1.0), (5, 1.25)] {
        link.until(state);
        assert_eq!(link.subflows[0].rate.pacing, rate(gain), "state {state}");
    }
    // cwnd_gain 2 outside UP: two bandwidth-delay products and extra_acked.
    link.until(3);
    let cwnd = link.subflows[0].cwnd();
    assert!((200..=240).contains(&cwnd), "{cwnd}");
}

#[test]
fn the_next_probe_comes_within_63_rounds_and_three_seconds() {
    // Section 5.3.3.5.2: with 30 segments the Reno time scale, with 1000 the wall clock of 2 to 3 s, which is
    // 50 to 75 rounds.
    for (bdp, rounds) in [(30, 20..=31), (1000, 45..=64)] {
        let mut link = Link::new("bbr", bdp);
        // The clock begins anew after ProbeRTT (section 5.3.4.4).
        link.until(6);
        link.until(3);
        let waited = link.until(4);
        assert!(rounds.contains(&waited), "{bdp}: {waited}");
    }
}

#[test]
fn probe_rtt_halves_what_is_in_flight_for_200_ms_every_5_s() {
    let mut link = Link::new("bbr", 100);
    link.until(6);
    // 5 s after the last lower sample, which the first rounds gave.
    assert!((5..6).contains(&(link.now.since_origin() / SECOND)), "{}", link.now);
    let since = link.now;
    link.round();
    assert!(link.subflows[0].cwnd() <= 51, "{}", link.subflows[0].cwnd());
    link.until(3);
    let lasted = (link.now - since) / MILLISECOND;
    assert!((200..=400).contains(&lasted), "{lasted} ms");
    assert!(link.subflows[0].cwnd() > 150, "restored: {}", link.subflows[0].cwnd());
    let before = link.now;
    link.until(6);
    assert!(link.now - before >= 4 * SECOND);
}

#[test]
fn a_round_with_loss_in_cruise_lowers_the_short_term_bounds_to_what_was_delivered() {
    let mut link = Link::new("bbr", 100);
    link.until(3);
    link.lose = 100;
    link.round();
    link.round();
    link.round();
    // The link still delivers its rate: max(bw_latest, 0.7 bw_shortterm) is the rate (section 5.5.10.3).
    assert!(link.metric("inflight_shortterm") > 0.0, "set");
    assert_eq!(link.metric("bw"), 2_500_000.0);
    link.bdp = 50;
    (0..3).for_each(|_| link.round());
    assert!(link.metric("bw") < 2_500_000.0 && link.metric("bw") >= 0.3 * 2_500_000.0);
    link.bdp = 100;
    link.lose = 0;
    link.until(4);
    assert_eq!(link.metric("inflight_shortterm"), -1.0, "REFILL forgets it");
}

#[test]
fn loss_above_two_percent_while_probing_bounds_what_is_in_flight() {
    let mut link = Link::new("bbr", 100);
    link.until(5);
    link.lose = 20;
    link.round();
    assert!([2, 3].contains(&link.state()), "5 %: UP ends at once");
    let longterm = link.metric("inflight_longterm");
    assert!((60.0..=130.0).contains(&longterm), "{longterm}");
    let cwnd = f64::from(link.subflows[0].cwnd());
    assert!(cwnd <= longterm);
    link.lose = 0;
    link.until(3);
    link.round();
    let headroom = f64::from(link.subflows[0].cwnd());
    assert!(headroom <= longterm * 0.85 + 1.0, "CRUISE leaves 15 %: {headroom} of {longterm}");
}

#[test]
fn loss_of_one_percent_while_probing_bounds_nothing() {
    let mut link = Link::new("bbr", 200);
    link.until(5);
    link.lose = 100;
    link.round();
    assert_eq!((link.state(), link.metric("inflight_longterm")), (5, -1.0));
}

#[test]
fn startup_ends_with_a_round_of_heavy_loss_in_recovery() {
    let mut link = Link::new("bbr", 100_000);
    for _ in 0..5 {
        link.round();
    }
    assert_eq!(link.state(), 0);
    link.subflows[0].set_ca_state(CaState::Recovery);
    link.lose = 20;
    for _ in 0..3 {
        link.round();
    }
    assert_ne!(link.state(), 0);
    assert!(link.metric("inflight_longterm") > 0.0);
}

#[test]
fn recovery_restores_the_window_that_it_found() {
    let mut link = Link::new("bbr", 100);
    link.until(3);
    let cwnd = link.subflows[0].cwnd();
    let ssthresh = link.bbr.ssthresh_on(&link.subflows, 0, LossCause::Timeout, link.now);
    assert!(ssthresh >= cwnd, "a loss sets no threshold");
    link.subflows[0].set_ca_state(CaState::Loss);
    link.subflows[0].set_cwnd(1);
    let one = RateSample {
        now: link.now + Span::from_nanos(1),
        acked: 1,
        rtt: Some(RTT),
        rate: 2_500_000,
        delivered: 1,
        prior_delivered: link.subflows[0].totals.delivered,
        tx_in_flight: 1,
        ..RateSample::default()
    };
    link.bbr.sample_on(&mut link.subflows, 0, &one);
    assert_eq!(link.subflows[0].cwnd(), 4, "MinPipeCwnd");
    link.subflows[0].set_ca_state(CaState::Open);
    link.bbr.sample_on(&mut link.subflows, 0, &one);
    assert!(link.subflows[0].cwnd() >= cwnd, "{} of {cwnd}", link.subflows[0].cwnd());
}

#[test]
fn a_spurious_recovery_gives_the_bounds_back() {
    let mut link = Link::new("bbr", 100);
    link.until(3);
    link.lose = 50;
    link.bdp = 60;
    (0..4).for_each(|_| link.round());
    let low = link.metric("bw");
    assert!(low < 2_500_000.0);
    // The last round's loss saved what held before it; the first one saved no bound at all.
    let mut fresh = Link::new("bbr", 100);
    fresh.until(3);
    let lost = LostSegments { segments: 1, end: 1000, tx_in_flight: 100, lost: 1, ..LostSegments::default() };
    fresh.bbr.lost_on(&fresh.subflows, 0, &lost);
    (0..2).for_each(|_| fresh.round());
    assert!(fresh.metric("inflight_shortterm") > 0.0);
    fresh.bbr.undo_on(&fresh.subflows, 0);
    fresh.round();
    assert_eq!(fresh.metric("inflight_shortterm"), -1.0);
}

#[test]
fn after_an_idle_time_it_paces_at_the_bandwidth() {
    let mut link = Link::new("bbr", 100);
    link.until(5);
    assert_eq!(link.subflows[0].rate.pacing, (1.25 * 0.99 * 2_500_000.0) as u64);
    link.bbr.before_transmit_on(&mut link.subflows, 0, link.now + SECOND, true);
    assert_eq!(link.subflows[0].rate.pacing, (0.99 * 2_500_000.0) as u64);
}
