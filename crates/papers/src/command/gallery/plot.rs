//! The gallery's pictures, as SVG: segments over paths, and windows over time. Plain text with whole numbers,
//! so that the same run gives the same file.

use std::fmt::Write;

use ropewalk_engine::{MILLISECOND, SECOND, Span};
use ropewalk_sim::{Sample, SegmentTrace, Transmission};

const WIDTH: u64 = 560;
const HEIGHT: u64 = 200;
/// Room for the title and the labels.
const LEFT: u64 = 56;
const TOP: u64 = 24;
const RIGHT: u64 = 12;
const BOTTOM: u64 = 34;

/// Of paths and of what is sent again: those of the report and of the README's picture.
const COLOURS: [&str; 4] = ["#009e73", "#0072b2", "#56b4e9", "#7a9a01"];
const AGAIN: &str = "#d55e00";

fn colour(path: usize) -> &'static str {
    COLOURS[path % COLOURS.len()]
}

/// `value` of `whole` on an axis of `length`.
fn scaled(value: u64, whole: u64, length: u64) -> u64 {
    (u128::from(value.min(whole)) * u128::from(length) / u128::from(whole.max(1))) as u64
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Frame, title, labels at both ends of the axes, and a legend; then what `body` draws.
fn frame(title: &str, x: [String; 2], y: [String; 2], legend: &[(String, &str)], body: &str) -> String {
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" \
         font-size=\"11\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n\
         <path d=\"M{LEFT} {TOP}V{bottom}H{right}\" fill=\"none\" stroke=\"#888\"/>\n\
         <text x=\"{LEFT}\" y=\"15\" font-weight=\"bold\">{}</text>\n",
        escaped(title)
    );
    let mut label = |at: u64, down: u64, anchor: &str, what: &str| {
        let _ =
            writeln!(text, "<text x=\"{at}\" y=\"{down}\" text-anchor=\"{anchor}\">{}</text>", escaped(what));
    };
    label(LEFT, bottom + 14, "middle", &x[0]);
    label(right, bottom + 14, "end", &x[1]);
    label(LEFT - 6, bottom, "end", &y[0]);
    label(LEFT - 6, TOP + 8, "end", &y[1]);
    for (place, (name, colour)) in legend.iter().enumerate() {
        let at = LEFT + 40 + place as u64 * 130;
        let _ = writeln!(
            text,
            "<text x=\"{at}\" y=\"{}\" fill=\"{colour}\">\u{25a0} {}</text>",
            HEIGHT - 6,
            escaped(name)
        );
    }
    text + body + "</svg>\n"
}

/// Each data segment as a dash: the time it was sent, and its place in the stream.
pub(super) fn segments(
    title: &str,
    names: &[String],
    trace: &[SegmentTrace],
    bytes: u64,
    length: Span,
) -> String {
    let (width, height) = (WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
    // Per path, and last retransmissions.
    let mut dashes = vec![String::new(); names.len() + 1];
    for segment in trace {
        let x = LEFT + scaled(segment.sent.as_nanos(), length.as_nanos(), width);
        let y = HEIGHT - BOTTOM - scaled(segment.offset, bytes, height);
        let lane =
            if segment.transmission == Transmission::New { usize::from(segment.path) } else { names.len() };
        if let Some(dash) = dashes.get_mut(lane) {
            let _ = write!(dash, "M{x} {y}h3");
        }
    }
    let mut legend: Vec<(String, &str)> =
        names.iter().enumerate().map(|(path, name)| (name.clone(), colour(path))).collect();
    if !dashes[names.len()].is_empty() {
        legend.push(("sent again".into(), AGAIN));
    }
    let mut body = String::new();
    for (lane, dash) in dashes.iter().enumerate().filter(|(_, dash)| !dash.is_empty()) {
        let stroke = if lane == names.len() { AGAIN } else { colour(lane) };
        let _ = writeln!(body, "<path d=\"{dash}\" stroke=\"{stroke}\" stroke-width=\"2\"/>");
    }
    let ms = format!("{} ms", length.div_ceil(MILLISECOND));
    let kib = format!("{} KiB", bytes >> 10);
    frame(title, ["0".into(), ms], ["0".into(), kib], &legend, &body)
}

/// Each path's congestion window over time.
pub(super) fn windows(title: &str, names: &[String], samples: &[Sample], length: Span) -> String {
    let (width, height) = (WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
    let all = samples.iter().flat_map(|sample| &sample.subflows);
    let most = all.map(|subflow| u64::from(subflow.cwnd)).max().unwrap_or(1);
    let mut lines = vec![String::new(); names.len()];
    for sample in samples {
        for subflow in &sample.subflows {
            let x = LEFT + scaled(sample.at.as_nanos(), length.as_nanos(), width);
            let y = HEIGHT - BOTTOM - scaled(u64::from(subflow.cwnd), most, height);
            if let Some(line) = lines.get_mut(usize::from(subflow.path)) {
                let _ = write!(line, "{}{x} {y}", if line.is_empty() { 'M' } else { 'L' });
            }
        }
    }
    let legend: Vec<(String, &str)> =
        names.iter().enumerate().map(|(path, name)| (name.clone(), colour(path))).collect();
    let mut body = String::new();
    for (path, line) in lines.iter().enumerate().filter(|(_, line)| !line.is_empty()) {
        let stroke = colour(path);
        let _ = writeln!(body, "<path d=\"{line}\" fill=\"none\" stroke=\"{stroke}\" stroke-width=\"1.5\"/>");
    }
    let seconds = format!("{} s", length.div_ceil(SECOND));
    frame(title, ["0".into(), seconds], ["0".into(), format!("{most} seg.")], &legend, &body)
}

#[cfg(test)]
mod tests {
    use ropewalk_engine::Time;
    use ropewalk_sim::SubflowSample;

    use super::*;

    fn names() -> Vec<String> {
        vec!["wifi".into(), "a<b".into()]
    }

    #[test]
    fn a_dash_per_segment_on_its_path_s_line() {
        let segment = |path, offset, sent, transmission| SegmentTrace {
            connection: 0,
            path,
            offset,
            len: 1000,
            sent,
            arrived: None,
            acked: None,
            transmission,
        };
        let trace = [
            segment(0, 0, Time::ZERO, Transmission::New),
            segment(1, 4096, Time::ZERO + Span::from_millis(10), Transmission::New),
            segment(0, 4096, Time::ZERO + Span::from_millis(10), Transmission::Reinjected),
        ];
        let svg = segments("t", &names(), &trace, 4096, Span::from_millis(10));
        assert!(svg.contains("<path d=\"M56 166h3\" stroke=\"#009e73\""), "{svg}");
        assert!(svg.contains("<path d=\"M548 24h3\" stroke=\"#0072b2\""), "{svg}");
        assert!(svg.contains("stroke=\"#d55e00\"") && svg.contains("sent again"), "{svg}");
        assert!(svg.contains("a&lt;b") && svg.contains(">10 ms<") && svg.contains(">4 KiB<"), "{svg}");
        assert!(!segments("t", &names(), &trace[..2], 4096, Span::from_millis(10)).contains("sent again"));
    }

    #[test]
    fn a_line_per_path_up_to_the_greatest_window() {
        let sample = |at, cwnd| Sample {
            at,
            connection: 0,
            delivered: 0,
            ofo: 0,
            window_left: 0,
            subflows: vec![SubflowSample { path: 1, cwnd, ssthresh: 0, in_flight: 0, srtt: Span::ZERO }],
            scheduler: Vec::new(),
        };
        let svg = windows(
            "t",
            &names(),
            &[sample(Time::ZERO, 10), sample(Time::ZERO + Span::from_secs(2), 40)],
            Span::from_secs(2),
        );
        assert!(svg.contains("d=\"M56 131L548 24\" fill=\"none\" stroke=\"#0072b2\""), "{svg}");
        assert!(svg.contains(">40 seg.<") && svg.contains(">2 s<"), "{svg}");
    }
}
