//! The README's picture: two schedulers on the same two paths, where the choice decides. Each segment is a
//! line from when it was sent to when it arrived; beneath, what the application has in order, and what waits
//! in the out-of-order queue.

use ropewalk_engine::scheduler::BASELINE;
use ropewalk_engine::{Span, Time};
use std::fmt::Write;
use std::sync::Arc;

use ropewalk_algorithms::{Registries, algorithm};
use ropewalk_command_line::Failure;
use ropewalk_lab::scenario;
use ropewalk_sim::{Mode, Recording, RunResult, RunSpec, Scenario, Transmission, Workload};

/// The link pair, the size and the buffers.
const PATHS: [&str; 2] = ["wifi: 10 Mbit/s, 20 ms", "lte: 10 Mbit/s, 100 ms, queue 300 packets"];
const BYTES: u64 = 1 << 20;
const BUFFER: u64 = 128 << 10;

/// Who is shown, the upper one first.
pub(super) const SHOWN: [&str; 2] = [super::BASE_SCHEDULER, BASELINE];

const WIDTH: f64 = 960.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 20.0;
const LANE: f64 = 38.0;
const CHART: f64 = 78.0;
const TITLE: f64 = 30.0;
const GAP: f64 = 6.0;
const PANEL: f64 = TITLE + 2.0 * (LANE + GAP) + CHART + 18.0;
const AXIS: f64 = 46.0;

struct Colours {
    paper: &'static str,
    ink: &'static str,
    soft: &'static str,
    lane: &'static str,
    paths: [&'static str; 2],
    again: &'static str,
    queue: &'static str,
}

/// Okabe and Ito's palette, which is distinct for any colour vision.
const LIGHT: Colours = Colours {
    paper: "#ffffff",
    ink: "#1c2127",
    soft: "#5b646e",
    lane: "#f4f3ef",
    paths: ["#009e73", "#0072b2"],
    again: "#d55e00",
    queue: "#e69f00",
};
const DARK: Colours = Colours {
    paper: "#0d1117",
    ink: "#e6e8ea",
    soft: "#9aa4af",
    lane: "#171d25",
    paths: ["#1fc496", "#56b4e9"],
    again: "#ee7722",
    queue: "#f0c13c",
};

/// The runs that are shown, and that of plain TCP on the first path, seconds.
pub(super) struct Runs {
    shown: Vec<(String, RunResult)>,
    tcp: f64,
}

impl Runs {
    /// Seconds of the run that is shown at this place.
    #[cfg(test)]
    pub(super) fn seconds(&self, place: usize) -> f64 {
        seconds(&self.shown[place].1)
    }
}

fn seconds(result: &RunResult) -> f64 {
    result.flows.first().and_then(|flow| flow.fct).unwrap_or(result.duration).as_secs_f64()
}

fn paths() -> Result<Scenario, Failure> {
    let mut scenario =
        scenario::default_around(scenario::paths(&PATHS.map(String::from), ropewalk_settings::input::open)?);
    scenario.workload = Workload::Flow { bytes: BYTES };
    for end in [&mut scenario.client, &mut scenario.server] {
        (end.send_buffer, end.receive_buffer, end.autotune) = (BUFFER, BUFFER, false);
    }
    Ok(scenario)
}

pub(super) fn runs(registries: &Registries) -> Result<Runs, Failure> {
    let scenario = Arc::new(paths()?);
    let run = |name: &str, mode| -> Result<RunResult, Failure> {
        Ok(ropewalk_sim::run(&RunSpec {
            scenario: Arc::clone(&scenario),
            scheduler: algorithm(&registries.schedulers, "gallery", name)?,
            congestion: algorithm(&registries.congestion, "gallery", super::BASE_CONTROL)?,
            mode,
            seed: 1,
            start_phase: Span::ZERO,
            recording: Recording { segments: true, ..Recording::default() },
        }))
    };
    let shown = SHOWN.iter().map(|name| Ok(((*name).to_string(), run(name, Mode::Multipath)?)));
    let shown = shown.collect::<Result<Vec<_>, Failure>>()?;
    Ok(Runs { shown, tcp: seconds(&run("single", Mode::SinglePath(0))?) })
}

/// Both pictures: for light and for dark pages.
pub(super) fn pictures(runs: &Runs) -> [(&'static str, String); 2] {
    [("light", picture(runs, &LIGHT)), ("dark", picture(runs, &DARK))]
}

/// One sentence for beneath it.
pub(super) fn sentence(runs: &Runs) -> String {
    let [first, second] = [&runs.shown[0], &runs.shown[1]].map(|(name, result)| (name, seconds(result)));
    let longer = |a: f64, b: f64| format!("{:.0} % longer", (a / b - 1.0) * 100.0);
    format!(
        "1 MiB over the same two paths ({}; {}) with buffers of 128 KiB: `{}` takes {:.0} ms, `{}` {}, \
         which is {} than \
         plain TCP on wifi alone.",
        PATHS[0],
        PATHS[1],
        first.0,
        first.1 * 1e3,
        second.0,
        longer(second.1, first.1),
        longer(second.1, runs.tcp)
    )
}

fn picture(runs: &Runs, colours: &Colours) -> String {
    let longest = runs.shown.iter().map(|(_, result)| seconds(result)).fold(0.0, f64::max);
    let end = (longest * 10.0).ceil() / 10.0 * 1e9;
    let x = |at: Time| LEFT + at.as_nanos() as f64 / end * (WIDTH - LEFT - RIGHT);
    let height = PANEL * runs.shown.len() as f64 + AXIS;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"system-ui, sans-serif\" \
         font-size=\"13\" fill=\"{}\">\n<title>{}</title>\n<rect width=\"{WIDTH}\" height=\"{height}\" \
         fill=\"{}\"/>\n",
        colours.ink,
        sentence(runs).replace('`', "").replace('<', "&lt;"),
        colours.paper
    );
    for (place, (name, result)) in runs.shown.iter().enumerate() {
        text += &panel(PANEL * place as f64, name, result, colours, &x);
    }
    let bottom = PANEL * runs.shown.len() as f64;
    for tenth in (0..=(end / 1e8) as u64).filter(|tenth| tenth % 2 == 0) {
        let at = x(Time::ZERO + Span::from_millis(100 * tenth));
        let _ = writeln!(
            text,
            "<text x=\"{at:.1}\" y=\"{:.0}\" text-anchor=\"{}\" fill=\"{}\" font-size=\"12\">{} ms</text>",
            bottom + 8.0,
            if at > WIDTH - RIGHT - 30.0 { "end" } else { "middle" },
            colours.soft,
            tenth * 100
        );
    }
    let legend = [
        (colours.paths[0], "a segment on wifi, from sent (top) to arrived (bottom)"),
        (colours.paths[1], "on lte"),
        (colours.again, "sent again"),
        (colours.ink, "in order at the application"),
        (colours.queue, "out-of-order queue"),
    ];
    let mut at = LEFT;
    for (colour, what) in legend {
        let _ = writeln!(
            text,
            "<rect x=\"{at:.0}\" y=\"{:.0}\" width=\"12\" height=\"4\" fill=\"{colour}\"/><text x=\"{:.0}\" \
             y=\"{:.0}\" \
             fill=\"{}\" font-size=\"12\">{what}</text>",
            bottom + 27.0,
            at + 17.0,
            bottom + 33.0,
            colours.soft
        );
        at += 36.0 + what.len() as f64 * 6.3;
    }
    text + "</svg>\n"
}

fn panel(top: f64, name: &str, result: &RunResult, colours: &Colours, x: &impl Fn(Time) -> f64) -> String {
    let right = WIDTH - RIGHT;
    let done = seconds(result);
    let mut text = format!(
        "<text x=\"{LEFT}\" y=\"{:.0}\" font-size=\"16\" font-weight=\"600\">{name}: {:.0} ms</text>\n",
        top + 21.0,
        done * 1e3
    );
    for (lane, path) in ["wifi", "lte"].iter().enumerate() {
        let (up, down) = {
            let up = top + TITLE + lane as f64 * (LANE + GAP);
            (up, up + LANE)
        };
        let _ = writeln!(
            text,
            "<rect x=\"{LEFT}\" y=\"{up:.0}\" width=\"{:.0}\" height=\"{LANE}\" fill=\"{}\"/><text \
             x=\"{:.0}\" y=\"{:.0}\" \
             text-anchor=\"end\" fill=\"{}\">{path}</text>",
            right - LEFT,
            colours.lane,
            LEFT - 8.0,
            up + LANE / 2.0 + 4.0,
            colours.paths[lane]
        );
        let (mut new, mut again) = (String::new(), String::new());
        for segment in result.segments.iter().filter(|segment| usize::from(segment.path) == lane) {
            let line = if segment.transmission == Transmission::New { &mut new } else { &mut again };
            match segment.arrived {
                Some(arrived) => {
                    let _ = write!(line, "M{:.1} {up:.0}L{:.1} {down:.0}", x(segment.sent), x(arrived));
                }
                // Lost: it ends on its way.
                None => {
                    let _ = write!(line, "M{:.1} {up:.0}l4 {:.0}", x(segment.sent), LANE / 3.0);
                }
            }
        }
        for (line, colour) in [(new, colours.paths[lane]), (again, colours.again)] {
            if !line.is_empty() {
                let _ = writeln!(
                    text,
                    "<path d=\"{line}\" stroke=\"{colour}\" stroke-width=\"1\" stroke-opacity=\".75\" \
                     fill=\"none\"/>"
                );
            }
        }
    }
    let up = top + TITLE + 2.0 * (LANE + GAP);
    let down = up + CHART;
    let y = |bytes: u64| down - bytes as f64 / BYTES as f64 * CHART;
    let (in_order, received) = arrivals(result);
    let line = |points: &Curve| {
        let mut path = format!("M{:.1} {down:.1}", x(Time::ZERO));
        for (at, bytes) in points {
            let _ = write!(path, "H{:.1}V{:.1}", x(*at), y(*bytes));
        }
        path
    };
    // What was received, and back along what is in order.
    let mut area = line(&received);
    let mut back: Curve = in_order.clone();
    back.insert(0, (Time::ZERO, 0));
    for pair in back.windows(2).rev() {
        let _ = write!(area, "L{:.1} {:.1}V{:.1}", x(pair[1].0), y(pair[1].1), y(pair[0].1));
    }
    let end = x(Time::ZERO + Span::from_secs_f64(done));
    let _ = writeln!(
        text,
        "<path d=\"{area}Z\" fill=\"{}\" fill-opacity=\".7\"/>\n<path d=\"{}\" fill=\"none\" stroke=\"{}\" \
         stroke-width=\"1.8\"/>\n<path d=\"M{LEFT} {down:.0}H{right}\" stroke=\"{}\" \
         stroke-opacity=\".5\"/>\n\
         <text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\" fill=\"{}\" font-size=\"12\">1 MiB</text>\n\
         <path d=\"M{end:.1} {:.0}V{down:.0}\" stroke=\"{}\" stroke-width=\"1.5\" stroke-dasharray=\"4 3\"/>",
        colours.queue,
        line(&in_order),
        colours.ink,
        colours.soft,
        LEFT - 8.0,
        up + 10.0,
        colours.soft,
        top + TITLE,
        colours.ink
    );
    text
}

/// Bytes after each arrival: (time, bytes).
type Curve = Vec<(Time, u64)>;

/// Bytes in order, and bytes received once.
fn arrivals(result: &RunResult) -> (Curve, Curve) {
    let mut arrived: Vec<(Time, u64, u64)> = result
        .segments
        .iter()
        .filter_map(|segment| {
            Some((segment.arrived?, segment.offset, segment.offset + u64::from(segment.len)))
        })
        .collect();
    arrived.sort_unstable();
    // Ranges beyond what is in order, apart from one another.
    let mut ahead: Vec<(u64, u64)> = Vec::new();
    let (mut next, mut in_order, mut received) = (0, Vec::new(), Vec::new());
    for (at, from, to) in arrived {
        ahead.push((from.max(next), to.max(next)));
        ahead.sort_unstable();
        let mut joined: Vec<(u64, u64)> = Vec::new();
        for (from, to) in ahead {
            match joined.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => joined.push((from, to)),
            }
        }
        if let Some(first) = joined.first().copied().filter(|first| first.0 <= next) {
            next = first.1.max(next);
            joined.remove(0);
        }
        ahead = joined;
        let waiting: u64 = ahead.iter().map(|(from, to)| to - from).sum();
        in_order.push((at, next));
        received.push((at, next + waiting));
    }
    (in_order, received)
}
