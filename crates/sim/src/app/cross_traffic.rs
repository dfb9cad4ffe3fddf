//! Competing TCP: a flow that always has data, one whose application writes a packet now and then, or a flow
//! of a size again and again.

use rand_pcg::Pcg64;
use ropewalk_engine::{Span, Time};

use super::{App, AppContext, Conn, Report};
use crate::Side;
use crate::entropy::exponential;
use crate::result::FlowResult;
use crate::spec::{Background, Traffic};

/// Wake-ups that aren't about a connection.
const STOP: u32 = 0;
const WRITE: u32 = 1;
const OPEN: u32 = 2;

/// See the module.
#[derive(Debug)]
pub(crate) struct CrossTraffic {
    sender: Side,
    kind: Kind,
    stop: Option<Time>,
    stopped: bool,
    conn: Option<Conn>,
    /// When the present flow's connection was opened.
    opened: Time,
    finished: Vec<FlowResult>,
    rng: Pcg64,
}

#[derive(Debug)]
enum Kind {
    Saturated,
    /// Mean time between packets; bytes.
    Limited(f64, u64),
    /// Bytes per flow; pause; how many, if they end.
    Flows(u64, Span, Option<u32>),
}

impl CrossTraffic {
    /// The application of a background source; none if it isn't TCP.
    pub(crate) fn new(background: &Background, rng: Pcg64) -> Option<Self> {
        let kind = match &background.traffic {
            Traffic::TcpSaturated { .. } | Traffic::MptcpSaturated { .. } => Kind::Saturated,
            Traffic::TcpLimited { packets_per_second, packet, .. } => {
                Kind::Limited(1e9 / packets_per_second.max(1e-9), u64::from(*packet).max(1))
            }
            Traffic::TcpFlows { bytes, pause, times, .. } => Kind::Flows((*bytes).max(1), *pause, *times),
            Traffic::UdpOnOff { .. } => return None,
        };
        let sender = background.direction.sender();
        Some(CrossTraffic {
            sender,
            kind,
            stop: background.stop,
            stopped: false,
            conn: None,
            opened: Time::ZERO,
            finished: Vec::new(),
            rng,
        })
    }

    fn open(&mut self, cx: &mut AppContext<'_>) {
        self.opened = cx.now;
        self.conn = Some(cx.open());
    }

    /// Whether all its flows are complete.
    fn complete(&self) -> bool {
        matches!(self.kind, Kind::Flows(_, _, Some(times)) if self.finished.len() >= times as usize)
    }

    fn write_later(&mut self, cx: &mut AppContext<'_>) {
        if let Kind::Limited(mean, _) = self.kind {
            // Saturates for absurd means.
            cx.wake(cx.now.saturating_add(Span::from_nanos(exponential(&mut self.rng, mean) as u64)), WRITE);
        }
    }
}

impl App for CrossTraffic {
    fn start(&mut self, cx: &mut AppContext<'_>) {
        if let Some(stop) = self.stop {
            cx.wake(stop.max(cx.now), STOP);
        }
        self.open(cx);
    }

    fn connected(&mut self, cx: &mut AppContext<'_>, conn: Conn, side: Side) {
        if side != self.sender || self.conn != Some(conn) || self.stopped {
            return;
        }
        match self.kind {
            Kind::Saturated => cx.send(conn, self.sender, u64::MAX / 4),
            Kind::Limited(..) => self.write_later(cx),
            Kind::Flows(bytes, ..) => {
                cx.send(conn, self.sender, bytes);
                cx.finish(conn, self.sender);
            }
        }
    }

    fn delivered(&mut self, cx: &mut AppContext<'_>, conn: Conn, side: Side, total: u64) {
        if let Kind::Flows(bytes, pause, _) = self.kind
            && side != self.sender
            && self.conn == Some(conn)
            && total >= bytes
        {
            self.conn = None;
            cx.finish(conn, side);
            self.finished.push(FlowResult { bytes, start: self.opened, fct: Some(cx.now - self.opened) });
            if !self.stopped && !self.complete() {
                cx.wake(cx.now.saturating_add(pause), OPEN);
            }
        }
    }

    fn wake(&mut self, cx: &mut AppContext<'_>, token: u32) {
        match (token, self.conn) {
            (STOP, conn) => {
                self.stopped = true;
                if let Some(conn) = conn {
                    cx.stop(conn);
                }
            }
            (WRITE, Some(conn)) if !self.stopped => {
                if let Kind::Limited(_, packet) = self.kind {
                    cx.send(conn, self.sender, packet);
                }
                self.write_later(cx);
            }
            (OPEN, None) if !self.stopped => self.open(cx),
            _ => {}
        }
    }

    fn done(&self) -> bool {
        self.stopped || self.complete()
    }

    fn delays_end(&self) -> bool {
        matches!(self.kind, Kind::Flows(_, _, Some(_))) && !self.done()
    }

    fn report(&self) -> Report {
        Report { flows: self.finished.clone(), delays: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::driver;
    use crate::entropy::{Purpose, stream};
    use crate::spec::Direction;

    fn cross_traffic(traffic: Traffic, stop: Option<Time>) -> CrossTraffic {
        let background = Background {
            path: 0,
            direction: Direction::Download,
            traffic,
            extra_delay: Span::ZERO,
            start: Time::ZERO,
            stop,
        };
        CrossTraffic::new(&background, stream(1, Purpose::Background, 0)).expect("TCP")
    }

    #[test]
    fn a_limited_source_writes_at_its_mean_rate() {
        let traffic =
            Traffic::TcpLimited { congestion: "reno".into(), packets_per_second: 157.0, packet: 1000 };
        let second = 1_000_000_000;
        let mut app = cross_traffic(traffic, None);
        let (_, totals) = driver::run(&mut app, 1000, 100 * second);
        let packets = totals[&(0, Side::Client)] as f64 / 1000.0 / 100.0;
        assert!((packets - 157.0).abs() < 157.0 * 0.03, "{packets}");
    }

    #[test]
    fn flows_come_again_until_the_stop() {
        let traffic = Traffic::TcpFlows {
            congestion: "reno".into(),
            bytes: 5000,
            pause: Span::from_nanos(80),
            times: None,
            receive_buffer: None,
        };
        let mut app = cross_traffic(traffic, Some(Time::from_nanos(950)));
        let (_, totals) = driver::run(&mut app, 10, 10_000);
        // One flow per 100: open at 0, there at 10, delivered at 20, and 80 of pause.
        assert_eq!(totals.len(), 10);
        assert!(totals.values().all(|&bytes| bytes == 5000));
        assert!(app.done());
        assert!(!app.delays_end());
    }

    #[test]
    fn a_number_of_flows_delays_the_end() {
        let traffic = Traffic::TcpFlows {
            congestion: "reno".into(),
            bytes: 5000,
            pause: Span::from_nanos(80),
            times: Some(3),
            receive_buffer: None,
        };
        let mut app = cross_traffic(traffic, None);
        assert!(app.delays_end());
        let (report, totals) = driver::run(&mut app, 10, 10_000);
        assert_eq!(totals.len(), 3);
        let took: Vec<_> = report.flows.iter().map(|flow| flow.fct).collect();
        assert_eq!(took, [Some(Span::from_nanos(20)); 3]);
        assert!(app.done() && !app.delays_end());
    }
}
