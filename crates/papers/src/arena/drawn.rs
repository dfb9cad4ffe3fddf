//! Cells drawn anew: networks and workloads from [`super::distributions`], each as the text of a scenario
//! file, so that any of them can be repeated by `ropewalk compare --scenario`.

use std::path::Path;
use std::sync::Arc;

use rand_core::Rng;
use rand_pcg::Pcg64;
use ropewalk_algorithms::Registries;
use ropewalk_lab::scenario;
use ropewalk_settings::diagnostic::{InputError, Source};

use super::distributions::{
    BUFFER, CARRIED_IN, COMPETITION, DOWN, FRAMES_FOR, FRAMES_SHARE, LINKS, LinkKind, PATHS, Range,
    SATURATED, SHARED, UDP, UPLOAD, USERS, WORKLOADS, What,
};
use super::{Cell, Half};

/// Random values.
struct Draw(Pcg64);

impl Draw {
    /// Of the cell with this number: a cell doesn't depend on how many are drawn.
    fn new(seed: u64, number: usize) -> Self {
        Draw(Pcg64::new(u128::from(seed), 0xd4a3 + number as u128))
    }

    /// In [0, 1).
    fn uniform(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn chance(&mut self, probability: f64) -> bool {
        self.uniform() < probability
    }

    /// Uniform in its logarithm; a range from 0 has nothing but 0.
    fn within(&mut self, (from, to): Range) -> f64 {
        let share = self.uniform();
        if from <= 0.0 { 0.0 } else { from * libm::pow(to / from, share) }
    }

    fn whole(&mut self, (from, to): Range) -> u64 {
        libm::round(self.within((from, to))).clamp(from, to) as u64
    }

    /// One of them, by its weight.
    fn one<'a, T>(&mut self, all: &'a [T], weight: impl Fn(&T) -> f64) -> &'a T {
        let mut left = self.uniform() * all.iter().map(&weight).sum::<f64>();
        let found = all.iter().find(|one| {
            left -= weight(one);
            left < 0.0
        });
        found.unwrap_or(&all[all.len() - 1])
    }
}

/// One direction's numbers that others depend on.
struct Drawn {
    name: String,
    /// Mean rates, Mbit/s: down and up.
    rates: [f64; 2],
    text: String,
}

/// A value with four digits that count.
fn short(value: f64) -> String {
    let digits = if value > 0.0 { (3.0 - libm::floor(libm::log10(value))).clamp(0.0, 9.0) } else { 0.0 };
    format!("{value:.*}", digits as usize)
}

/// One path: its TOML table.
fn path(draw: &mut Draw, kind: &LinkKind, number: usize, down: Option<(f64, f64)>, shared: bool) -> Drawn {
    let name = format!("{number}-{}", kind.name);
    let rates = [draw.within(kind.down), draw.within(kind.up)].map(|rate| rate.max(0.05));
    // What is bought is rarely faster up than down.
    let rates = [rates[0], rates[1].min(rates[0])];
    let variation = draw.within(kind.variation);
    let (memory, every, outage) =
        (draw.within(kind.memory), draw.within(kind.outage_every), draw.within(kind.outage));
    let mut link = |rate: f64| {
        if variation == 0.0 {
            return format!("rate = \"{} Mbit/s\"", short(rate));
        }
        let seed = draw.0.next_u64() >> 33;
        format!(
            "trace = {{ mean = \"{} Mbit/s\", variation = {}, memory = \"{} ms\", length = \"40 s\", seed = \
             {seed} }}",
            short(rate),
            short(variation),
            short(memory * 1e3)
        )
    };
    let (down_link, up_link) = (link(rates[0]), link(rates[1]));
    let rtt = draw.within(kind.rtt);
    let jitter = rtt * draw.within(kind.jitter);
    let queue = draw.within(kind.queue);
    let mut text = format!("[[path]]\nname = \"{name}\"\n");
    for (way, link) in [("down", down_link), ("up", up_link)] {
        text += &format!("{way} = {{ {link}, queue = \"{} ms\" }}\n", short(queue));
    }
    text += &format!("rtt = \"{} ms +-{} ms\"\n", short(rtt), short(jitter));
    text += &format!("jitter-shape = \"{}\"\n", kind.shape);
    if draw.chance(kind.lossy) {
        let burst = draw.whole(kind.burst);
        let bursts = if burst > 1 { format!(" in bursts of {burst}") } else { String::new() };
        text += &format!("loss = \"{} %{bursts}\"\n", short(draw.within(kind.loss)));
    }
    let mut changes = Vec::new();
    if every > 0.0 {
        let first = every * draw.uniform();
        changes.push(format!(
            "{{ at = \"{} ms\", every = \"{} ms\", link = \"down\", for = \"{} ms\" }}",
            short(first * 1e3),
            short(every * 1e3),
            short(outage)
        ));
    }
    if let Some((at, length)) = down {
        changes.push(format!(
            "{{ at = \"{} ms\", link = \"down\", for = \"{} ms\" }}",
            short(at * 1e3),
            short(length * 1e3)
        ));
    }
    if !changes.is_empty() {
        text += &format!("changes = [{}]\n", changes.join(", "));
    }
    if shared {
        text += "bottleneck = \"shared\"\n";
    }
    Drawn { name, rates, text }
}

/// Competing traffic on a path.
fn competition(draw: &mut Draw, path: &Drawn, direction: usize) -> String {
    let head = |kind: &str| format!("[[background]]\nkind = \"{kind}\"\npath = \"{}\"\n", path.name);
    let congestion = if draw.chance(0.3) { "bbr" } else { "cubic" };
    match (draw.uniform() * 3.0) as u32 {
        0 => {
            let count = draw.whole(SATURATED);
            head("tcp-saturated") + &format!("congestion = \"{congestion}\"\ncount = {count}\n")
        }
        1 => {
            let (count, size, pause) = (draw.whole(USERS.0), draw.whole(USERS.1), draw.whole(USERS.2));
            head("tcp-flows")
                + &format!(
                    "congestion = \"{congestion}\"\nsize = \"{size} KiB\"\npause = \"{pause} ms\"\ncount = \
                     {count}\n"
                )
        }
        _ => {
            let rate = path.rates[direction] * draw.within(UDP.0);
            let (on, off) = (draw.within(UDP.1), draw.within(UDP.1));
            head("udp-on-off")
                + &format!(
                    "rate = \"{} Mbit/s\"\non = \"{} s\"\noff = \"{} s\"\n",
                    short(rate),
                    short(on),
                    short(off)
                )
        }
    }
}

/// The workload's TOML, for paths that carry `rate` Mbit/s together.
fn workload(draw: &mut Draw, what: &What, rate: f64) -> String {
    let most = (rate * 1e6 / 8.0 * CARRIED_IN / 1024.0).max(8.0);
    match *what {
        What::Flow(size) => {
            format!("{{ kind = \"flow\", size = \"{:.0} KiB\" }}", draw.within(size).min(most))
        }
        What::Flows(count, size) => {
            let count = draw.whole(count);
            let size = draw.within(size).min(most / count as f64).max(1.0);
            format!("{{ kind = \"flows\", count = {count}, size = \"{size:.0} KiB\" }}")
        }
        What::Web(objects, size, connections) => {
            let count = draw.whole(objects);
            let sizes = (0..count).map(|_| draw.within(size).min(most / count as f64).max(1.0));
            let sizes: Vec<String> = sizes.map(|size| format!("\"{size:.0} KiB\"")).collect();
            let connections = draw.whole(connections);
            format!("{{ kind = \"web\", connections = {connections}, objects = [{}] }}", sizes.join(", "))
        }
        What::Exchanges(count, response, pause) => {
            let (count, pause) = (draw.whole(count), draw.whole(pause));
            let response = draw.within(response).min(most / count as f64).max(1.0);
            format!(
                "{{ kind = \"request-response\", count = {count}, response = \"{response:.0} KiB\", think = \
                 \"{pause} ms\" }}"
            )
        }
        What::Bulk(seconds) => {
            format!("{{ kind = \"bulk\", duration = \"{} s\" }}", short(draw.within(seconds)))
        }
        What::Frames { frames, rate: wanted, key, deadline, .. } => {
            let frames = draw.within(frames);
            let (times, between) = (draw.within(key.0), draw.within(key.1));
            let every = (between * frames).max(2.0) as u64;
            // How much more all frames are than those that aren't key frames.
            let more = if times > 0.0 { 1.0 + (times - 1.0) / every as f64 } else { 1.0 };
            let rate = draw.within(wanted).min(rate * draw.within(FRAMES_SHARE) / more);
            let frame = libm::round(rate * 1e6 / 8.0 / frames).max(20.0);
            // The interval is what it was for frames of that rate.
            let rate = frame * 8.0 * frames;
            let keys = if times > 0.0 {
                format!("key-frames = {{ frame = \"{:.0} B\", every = {every} }}, ", frame * times)
            } else {
                String::new()
            };
            format!(
                "{{ kind = \"cbr\", frame = \"{frame:.0} B\", rate = \"{rate:.0} bit/s\", {keys}duration = \
                 \"{FRAMES_FOR:.0} s\", deadline = \"{:.0} ms\" }}",
                draw.within(deadline)
            )
        }
    }
}

/// The scenario file of one drawn cell, and the kind of its workload.
fn text(seed: u64, number: usize) -> (String, &'static str) {
    let mut draw = Draw::new(seed, number);
    let kind = draw.one(WORKLOADS, |kind| kind.weight);
    let count = draw.one(&PATHS, |(_, weight)| *weight).0;
    let upload = match kind.what {
        What::Frames { upload, .. } => draw.chance(upload),
        _ => draw.chance(UPLOAD),
    };
    let way = usize::from(upload);
    let shared = draw.chance(SHARED.0);
    let down = draw.chance(DOWN.0).then(|| (draw.whole((1.0, count as f64)) as usize, &DOWN));
    let paths: Vec<Drawn> = (1..=count)
        .map(|number| {
            let kind = draw.one(LINKS, |kind| kind.weight);
            let down = down
                .filter(|(which, _)| *which == number)
                .map(|(_, (_, at, length))| (draw.within(*at), draw.within(*length)));
            path(&mut draw, kind, number, down, shared)
        })
        .collect();
    let mut sum: [f64; 2] = [0, 1].map(|way| paths.iter().map(|path| path.rates[way]).sum());
    let mut links = String::new();
    if shared {
        let share = draw.within(SHARED.1);
        sum = sum.map(|rate| rate * share);
        links = format!(
            "[[bottleneck]]\nname = \"shared\"\nrate = \"{}/{} Mbit/s\"\n\n",
            short(sum[0]),
            short(sum[1])
        );
    }
    for path in &paths {
        links += &path.text;
        links += "\n";
    }
    let mut competitors = String::new();
    for path in &paths {
        if draw.chance(COMPETITION) {
            competitors += &competition(&mut draw, path, way);
            competitors += "\n";
        }
    }
    let buffer = draw.chance(BUFFER.0).then(|| draw.whole(BUFFER.1));
    let workload = workload(&mut draw, &kind.what, sum[way]);
    let direction = if upload { "upload" } else { "download" };
    let mut text = format!("name = \"{}\"\n", id(seed, number, kind.name));
    text += &format!("direction = \"{direction}\"\nworkload = {workload}\nlimit = \"60 s\"\n");
    if !competitors.is_empty() {
        text += "warmup = \"2 s\"\n";
    }
    text += "\n";
    if let Some(buffer) = buffer {
        text += &format!("[ends]\nreceive-buffer = \"{buffer} KiB\"\nautotune = false\n\n");
    }
    (text + &links + &competitors, kind.name)
}

fn id(seed: u64, number: usize, kind: &str) -> String {
    format!("{kind}-{seed}-{number}")
}

/// So many cells. A cell depends on the seed and its number alone.
///
/// # Errors
/// A drawn text isn't a scenario, which would be a mistake in the distributions.
pub fn draw(count: usize, seed: u64, registries: &Registries) -> Result<Vec<Cell>, InputError> {
    let one = |number| {
        let (text, kind) = text(seed, number);
        let id = id(seed, number, kind);
        let source = Source::new(format!("{id}.toml"), text);
        let loaded = scenario::parse(&source, &id, Path::new(""), registries)?;
        let scenario = Arc::new(loaded.scenario);
        Ok(Cell { id, family: kind, half: Half::Drawn, x: 0.0, y: 0.0, scenario, text: Some(loaded.text) })
    };
    (0..count).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_is_a_scenario_and_depends_on_seed_and_number_alone() {
        let registries = Registries::builtin();
        let cells = draw(300, 7, &registries).unwrap();
        let same = |other: &[Cell]| cells.iter().zip(other).all(|(a, b)| a.scenario == b.scenario);
        assert!(same(&draw(20, 7, &registries).unwrap()) && !same(&draw(20, 8, &registries).unwrap()));
        for kind in WORKLOADS {
            assert!(cells.iter().any(|cell| cell.family == kind.name), "{}", kind.name);
        }
        for cell in &cells {
            assert!(cell.scenario.paths.len() >= 2, "{}", cell.id);
        }
        let some = |found: &dyn Fn(&Cell) -> bool| cells.iter().filter(|cell| found(cell)).count();
        assert!(some(&|cell| !cell.scenario.background.is_empty()) > 60);
        assert!(some(&|cell| !cell.scenario.bottlenecks.is_empty()) > 10);
        assert!(some(&|cell| !cell.scenario.client.autotune) > 40);
    }

    #[test]
    fn values_stay_in_their_range() {
        let mut draw = Draw::new(1, 1);
        for _ in 0..1000 {
            assert!((2.0..=50.0).contains(&draw.within((2.0, 50.0))));
            assert!((1..=8).contains(&draw.whole((1.0, 8.0))));
            assert_eq!(draw.within((0.0, 0.0)), 0.0);
        }
        assert_eq!([short(0.012_345_6), short(123.456), short(7.0)], ["0.01235", "123.5", "7.000"]);
    }
}
