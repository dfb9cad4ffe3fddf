//! The grid of the arena as data: families with two varied quantities each, and every pair of their levels.

use std::sync::Arc;

use ropewalk_engine::{Span, Time};
use ropewalk_lab::scenario::trace::Cellular;
use ropewalk_lab::scenario::{default_around, path};
use ropewalk_link::{Change, ChangeAction, Rate};
use ropewalk_sim::{PathSpec, Scenario, Workload};

use super::Half;

const MS: f64 = 1e6;
const SECOND: Span = Span::from_secs(1);

/// A varied quantity.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    /// What it is, with its unit.
    pub name: &'static str,
    /// The grid's values, in ascending order.
    pub levels: &'static [f64],
}

/// Cells that differ in two quantities.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Its name.
    pub name: &'static str,
    /// What it is about, one line.
    pub summary: &'static str,
    /// The columns of its heat map.
    pub x: Axis,
    /// The rows.
    pub y: Axis,
    /// The scenario at one place.
    build: fn(f64, f64) -> Scenario,
}

/// One scenario of the arena.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Family and place: `rtt/4/256`.
    pub id: String,
    /// The family's name.
    pub family: &'static str,
    /// Which half of the grid it belongs to.
    pub half: Half,
    /// Value of the family's first quantity.
    pub x: f64,
    /// Of the second.
    pub y: f64,
    /// The scenario. The connection opens on the first path.
    pub scenario: Arc<Scenario>,
    /// A drawn cell's scenario file.
    pub text: Option<String>,
}

const fn axis(name: &'static str, levels: &'static [f64]) -> Axis {
    Axis { name, levels }
}

const SIZES: &[f64] = &[64.0, 512.0, 4096.0];

/// All families.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "rtt",
        summary: "two paths of one rate and different round-trip times",
        x: axis("ratio of the RTTs", &[1.0, 2.0, 4.0, 8.0, 12.0, 20.0]),
        y: axis("size, KiB", &[16.0, 256.0, 2048.0, 16_384.0]),
        build: |ratio, size| flow(size, [link(20.0, 20.0), link(20.0, 20.0 * ratio)]),
    },
    Family {
        name: "rate",
        summary: "two paths of one round-trip time and different rates",
        x: axis("ratio of the rates", &[1.0, 3.0, 10.0, 50.0]),
        y: axis("size, KiB", SIZES),
        build: |ratio, size| flow(size, [link(50.0, 30.0), link(50.0 / ratio, 30.0)]),
    },
    Family {
        name: "loss",
        summary: "random loss, on the slower path twice as much as on the other",
        x: axis("loss, %", &[0.1, 0.5, 1.0, 2.0]),
        y: axis("size, KiB", &[64.0, 1024.0, 8192.0]),
        build: |loss, size| {
            let fast = format!("{}, {} %", link(30.0, 25.0), loss / 2.0);
            flow(size, [fast, format!("{}, {loss} %", link(15.0, 60.0))])
        },
    },
    Family {
        name: "jitter",
        summary: "round-trip times that vary from packet to packet",
        x: axis("spread of the RTT, ms", &[2.0, 10.0, 30.0]),
        y: axis("size, KiB", &[64.0, 1024.0, 8192.0]),
        build: |spread, size| {
            let jittery =
                |rate: f64, rtt: f64| format!("{rate} Mbit/s, {rtt} ms +-{spread:.3} ms, jitter normal");
            flow(size, [jittery(40.0, 40.0), jittery(20.0, 60.0)])
        },
    },
    Family {
        name: "queue",
        summary: "shallow and bloated queues",
        x: axis("length of the queues, ms", &[10.0, 50.0, 400.0, 2000.0]),
        y: axis("size, KiB", &[256.0, 1024.0, 8192.0]),
        build: |queue, size| {
            let queued = |link: String| format!("{link}, queue {queue:.3} ms");
            flow(size, [queued(link(20.0, 20.0)), queued(link(10.0, 50.0))])
        },
    },
    Family {
        name: "cellular",
        summary: "a cellular link whose rate wanders, beside a slow steady one; the traces are generated",
        x: axis("standard deviation of the rate's logarithm", &[0.3, 0.6, 0.9]),
        y: axis("size, KiB", &[128.0, 1024.0, 8192.0]),
        build: |variation, size| {
            let mut scenario = flow(size, [link(12.0, 60.0), link(8.0, 25.0)]);
            wander(&mut scenario.paths[0], variation, size as u64);
            scenario
        },
    },
    Family {
        name: "buffer",
        summary: "4 MiB into receive buffers that don't grow",
        x: axis("receive buffer, KiB", &[64.0, 256.0, 1024.0, 4096.0]),
        y: axis("ratio of the RTTs", &[2.0, 5.0, 15.0]),
        build: |buffer, ratio| {
            let mut scenario = flow(4096.0, [link(20.0, 20.0), link(10.0, 20.0 * ratio)]);
            for end in [&mut scenario.client, &mut scenario.server] {
                end.receive_buffer = (buffer * 1024.0) as u64;
                end.autotune = false;
            }
            scenario
        },
    },
    Family {
        name: "frames",
        summary: "60 frames per second over paths of 8 Mbit/s with 0.3 % loss; the delay of a frame counts",
        x: axis("rate of the frames, Mbit/s", &[2.4, 5.6, 8.8]),
        y: axis("ratio of the RTTs", &[1.0, 3.0, 8.0]),
        build: |rate, ratio| {
            let lossy = |rtt: f64| format!("{}, 0.3 %", link(8.0, rtt));
            let mut scenario = flow(1.0, [lossy(20.0), lossy(20.0 * ratio)]);
            let rate = (rate * 1e6) as u64;
            scenario.workload = Workload::Cbr {
                frame: (rate / 480) as u32,
                rate,
                key: None,
                duration: 5 * SECOND,
                deadline: None,
            };
            scenario
        },
    },
    Family {
        name: "exchanges",
        summary: "ten requests, one after another on one connection",
        x: axis("response, KiB", &[4.0, 64.0, 512.0]),
        y: axis("ratio of the RTTs", &[1.5, 4.0, 10.0]),
        build: |response, ratio| {
            let mut scenario = flow(1.0, [link(20.0, 20.0), link(30.0, 20.0 * ratio)]);
            scenario.workload = Workload::RequestResponse {
                request: 300,
                response: (response * 1024.0) as u64,
                count: 10,
                think: SECOND / 10,
            };
            scenario
        },
    },
    Family {
        name: "paths",
        summary: "three and four paths",
        x: axis("number of paths", &[3.0, 4.0]),
        y: axis("size, KiB", &[64.0, 512.0, 2048.0, 8192.0]),
        build: |count, size| {
            let links = [link(20.0, 20.0), link(30.0, 45.0), link(5.0, 80.0), link(40.0, 150.0)];
            flow(size, links.into_iter().take(count as usize))
        },
    },
    Family {
        name: "dies",
        summary: "4 MiB, and a path that loses everything from some moment on",
        x: axis("moment, ms", &[100.0, 400.0, 1500.0]),
        y: axis("number of the path", &[1.0, 2.0]),
        build: |moment, which| {
            let mut scenario = flow(4096.0, [link(20.0, 20.0), link(20.0, 40.0)]);
            let path = &mut scenario.paths[usize::from(which > 1.5)];
            for link in [&mut path.up, &mut path.down] {
                link.changes = vec![Change::once(Time::from_nanos((moment * MS) as u64), ChangeAction::Down)];
            }
            scenario
        },
    },
    Family {
        name: "useless",
        summary: "a second path of 0.3 Mbit/s with 3 % loss, which should never be used",
        x: axis("its RTT, ms", &[300.0, 1000.0, 3000.0]),
        y: axis("size, KiB", SIZES),
        build: |rtt, size| flow(size, [link(20.0, 20.0), format!("{}, 3 %", link(0.3, rtt))]),
    },
    Family {
        name: "worse-first",
        summary: "a connection that opens on the slower and narrower path",
        x: axis("ratio of the RTTs", &[2.0, 5.0, 15.0]),
        y: axis("size, KiB", SIZES),
        build: |ratio, size| flow(size, [link(5.0, 20.0 * ratio), link(25.0, 20.0)]),
    },
];

/// Rate in Mbit/s and round-trip time in ms, with 1 % of jitter: seeds differ, and no result hangs on two
/// events of one moment.
fn link(rate: f64, rtt: f64) -> String {
    format!("{rate:.4} Mbit/s, {rtt:.4} ms +-{:.4} ms", rtt / 100.0)
}

/// A download of `size` KiB over links that each have a name by their number.
fn flow(size: f64, links: impl IntoIterator<Item = String>) -> Scenario {
    let paths = links.into_iter().enumerate().filter_map(|(number, link)| {
        let read = path(&format!("p{}: {link}", number + 1));
        debug_assert!(read.is_ok(), "{link}: {read:?}");
        read.ok()
    });
    let mut scenario = default_around(paths.collect());
    scenario.workload = Workload::Flow { bytes: (size * 1024.0) as u64 };
    scenario.limit = 120 * SECOND;
    scenario
}

/// Replaces the rate of the path by a wandering one with the same mean.
fn wander(path: &mut PathSpec, variation: f64, seed: u64) {
    for (link, way) in [(&mut path.down, 0), (&mut path.up, 1)] {
        if let Rate::Constant(mean) = link.rate {
            let plan = Cellular { variation, seed: 2 * seed + way, ..Cellular::new(mean) };
            link.rate = Rate::Trace(Arc::new(plan.generate()));
        }
    }
}

impl Family {
    fn cell(&self, x: f64, y: f64, half: Half) -> Cell {
        let mut scenario = (self.build)(x, y);
        let id = format!("{}/{}/{}", self.name, short(x), short(y));
        scenario.name.clone_from(&id);
        scenario.summary = self.summary.into();
        Cell { id, family: self.name, half, x, y, scenario: Arc::new(scenario), text: None }
    }
}

/// A number of an id: three digits that count.
fn short(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{}", (value * 100.0).round() / 100.0) }
}

/// The grid. Cells of its two halves alternate like the squares of a chessboard.
pub fn grid() -> Vec<Cell> {
    let mut cells = Vec::new();
    for family in FAMILIES {
        for (row, y) in family.y.levels.iter().enumerate() {
            for (column, x) in family.x.levels.iter().enumerate() {
                let half = if (row + column) % 2 == 0 { Half::Dev } else { Half::Test };
                cells.push(family.cell(*x, *y, half));
            }
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_grid_has_at_least_120_cells_in_two_halves_without_a_repetition() {
        let cells = grid();
        let (dev, test): (Vec<_>, Vec<_>) = cells.iter().partition(|cell| cell.half == Half::Dev);
        assert!(cells.len() >= 120, "{}", cells.len());
        assert!(dev.len().abs_diff(test.len()) <= FAMILIES.len(), "{} and {}", dev.len(), test.len());
        let ids: HashSet<&str> = cells.iter().map(|cell| cell.id.as_str()).collect();
        assert_eq!(ids.len(), cells.len());
        assert!(cells.iter().all(|cell| cell.scenario.paths.len() >= 2));
    }
}
