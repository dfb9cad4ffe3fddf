//! Questions for the browser's tests, with the answers of this machine's own code: a line of JSON each.
//! Random scenarios with every kind of link, traffic, scheduler and congestion control, and texts that are
//! refused: spoilt ones, and those of the laboratory's tests. `questions time` measures this machine instead:
//! the clean case of the simulator's benchmark, in ms.

use std::time::Instant;

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use ropewalk_algorithms::Registries;
use ropewalk_lab::scenario::builtins;
use ropewalk_playground::Playground;
use serde_json::{Value, json};

/// Random scenarios.
const SCENARIOS: usize = 300;

/// Texts with something wrong in them.
const SPOILT: usize = 200;

/// A rule with what could differ between machines: fractions, a state, text.
const RULE: &str = "
if !(\"spread\" in state) { state.spread = 0.0; }
let best = ();
let least = 0.0;
for subflow in view.usable {
    let arrives = sqrt(subflow.srtt + 1) + ln(subflow.in_flight + 1) * exp(-0.1 * subflow.window_space) + \
    state.spread;
    if best == () || arrives < least { best = subflow; least = arrives; }
}
state.spread = state.spread * 0.9 + least / 7.0;
if best != () && !best.available { wait_until(view.now + to_int(pow(least + 2.0, 1.5)) % (20 * MS) + MS) } \
else { best }";

struct Random(Pcg64Mcg);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        (self.0.next_u64() % limit as u64) as usize
    }

    fn one<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// A line, now and then.
    fn perhaps(&mut self, percent: usize, line: impl FnOnce(&mut Random) -> String) -> String {
        if self.chance(percent) { line(self) + "\n" } else { String::new() }
    }

    fn path(&mut self, number: usize) -> String {
        let (rate, up) = (self.between(1, 60), self.between(1, 20));
        let rtt = self.between(2, 200);
        let mut text = format!("[[path]]\nname = \"p{number}\"\n");
        text += &if self.chance(25) {
            let (variation, seed) = (self.between(0, 12), self.below(1000));
            format!(
                "trace = {{ mean = \"{rate} Mbit/s\", variation = {}, outage-every = \"3 s\", seed = {seed} \
                 }}\n",
                variation as f64 / 10.0
            )
        } else {
            format!("rate = \"{rate}/{up} Mbit/s\"\n")
        };
        text += &if self.chance(50) {
            let spread = self.between(1, rtt / 2);
            let shape = self.one(&["uniform", "normal", "pareto"]);
            format!(
                "rtt = \"{rtt} ms +-{spread} ms\"\njitter-shape = \"{shape}\"\nreordering = {}\n",
                self.chance(30)
            )
        } else {
            format!("rtt = \"{rtt} ms\"\n")
        };
        text += &self.perhaps(50, |random| {
            let percent = random.between(1, 40) as f64 / 10.0;
            match random.below(3) {
                0 => format!("loss = \"{percent} %\""),
                1 => format!("loss = \"{percent} % in bursts of {}\"", random.between(2, 6)),
                _ => "loss = { to-bad = \"1 %\", to-good = \"30 %\", loss-good = \"0.1 %\", loss-bad = \"40 \
                      %\" }"
                    .into(),
            }
        });
        text += &self.perhaps(60, |random| match random.below(4) {
            0 => format!("queue = \"{} packets\"", random.between(10, 500)),
            1 => format!("queue = \"{} KiB\"", random.between(16, 512)),
            2 => format!("queue = \"{} ms\"", random.between(5, 200)),
            _ => "queue = { kind = \"codel\", limit = \"300 packets\", ecn = true }".into(),
        });
        text += &self.perhaps(10, |_| "duplicate = \"1 %\"".into());
        text += &self.perhaps(20, |random| {
            let at = random.between(50, 1500);
            match random.below(3) {
                0 => format!(
                    "changes = [{{ at = \"{at} ms\", link = \"down\" }}, {{ at = \"{} ms\", link = \"up\" \
                     }}]",
                    at + 300
                ),
                1 => format!(
                    "changes = [{{ at = \"{at} ms\", rate = \"{} Mbit/s\" \
                              }}]",
                    random.between(1, 50)
                ),
                _ => format!(
                    "changes = [{{ at = \"{at} ms\", every = \"2 s\", link = \"down\", for = \"100 \
                              ms\" }}]"
                ),
            }
        });
        text
    }

    fn scenario(&mut self) -> String {
        let paths = self.between(1, 3);
        let mut text = format!(
            "limit = \"20 s\"\ndirection = \"{}\"\n",
            if self.chance(30) { "upload" } else { "download" }
        );
        for number in 0..paths {
            text += &self.path(number);
        }
        let size = self.between(1, 600);
        text += "[workload]\n";
        text += &match self.below(8) {
            0 => format!("kind = \"web\"\nobjects = [\"{size} kB\", \"2 kB\", \"30 kB\"]\nconnections = 2\n"),
            1 => "kind = \"cbr\"\nframe = \"4 kB\"\nrate = \"2 Mbit/s\"\nduration = \"1 s\"\ndeadline \
                  = \"150 ms\"\n"
                .into(),
            2 => "kind = \"bulk\"\nduration = \"700 ms\"\n".into(),
            3 => "kind = \"request-response\"\nresponse = \"20 kB\"\ncount = 5\nthink = \"10 ms\"\n".into(),
            4 => format!("kind = \"flows\"\ncount = 3\nsize = \"{size} kB\"\n"),
            _ => format!("kind = \"flow\"\nsize = \"{size} kB\"\n"),
        };
        text += &self.perhaps(20, |random| {
            let kind = match random.below(3) {
                0 => "kind = \"tcp-saturated\"",
                1 => "kind = \"tcp-flows\"\nsize = \"40 kB\"\npause = \"20 ms\"",
                _ => "kind = \"udp-on-off\"\nrate = \"2 Mbit/s\"\non = \"50 ms\"\noff = \"50 ms\"",
            };
            format!("[[background]]\n{kind}\npath = \"p0\"")
        });
        text += &self.perhaps(50, |random| {
            let host = random.one(&["linux-6.18", "linux-3.14", "ns-3"]);
            let (ecn, checksum, early) = (random.chance(40), random.chance(40), random.chance(50));
            format!("[ends]\nhost = \"{host}\"\necn = {ecn}\nchecksum = {checksum}\nearly-join = {early}")
        });
        text
    }

    /// A text with something changed in it.
    fn spoil(&mut self, text: &str) -> String {
        let mut letters: Vec<char> = text.chars().collect();
        let at = self.below(letters.len());
        match self.below(4) {
            0 => drop(letters.drain(at..(at + self.between(1, 6)).min(text.chars().count()))),
            1 => letters.insert(at, *self.one(&[&'"', &'[', &'=', &'-', &'µ', &'\u{0}', &'9'])),
            2 => letters.truncate(at),
            _ => letters.swap(at, self.0.next_u32() as usize % text.chars().count()),
        }
        letters.into_iter().collect()
    }
}

fn main() {
    if std::env::args().nth(1).as_deref() == Some("time") {
        return time();
    }
    let mut random = Random(Pcg64Mcg::seed_from_u64(43));
    let registries = Registries::builtin();
    let schedulers: Vec<&str> = registries.schedulers.entries().iter().map(|entry| entry.name).collect();
    let congestion: Vec<&str> = registries.congestion.entries().iter().map(|entry| entry.name).collect();
    for number in 0..SCENARIOS {
        // Each scheduler and control in turn.
        let (scheduler, control) =
            (schedulers[number % schedulers.len()], congestion[number % congestion.len()]);
        let mut asked = json!({ "links": random.scenario(), "schedulers": scheduler, "congestion": control,
            "seed": random.below(1_000_000).to_string() });
        if number % 10 == 0 {
            (asked["schedulers"], asked["rule"]) = ("mine".into(), RULE.into());
        }
        tell(&asked, true);
    }
    let lines = "wifi: 50/20 Mbit/s, 30 ms +-6 ms, 0.5 %, queue 120 packets\nlte: 4g, price 2 EUR/GB, \
                 outage 100 ms every 15 s";
    for number in 0..SPOILT {
        let text = if number % 2 == 0 { lines } else { builtins()[number % builtins().len()].text };
        tell(&json!({ "links": random.spoil(text) }), false);
    }
    // What the laboratory's own tests refuse.
    for text in include_str!("../../lab/tests/bad-scenarios.txt").split("---\n") {
        assert!(tell(&json!({ "links": text }), false).contains("\"errors\""), "{text}");
    }
    for (field, text) in [
        ("sizes", "0 B"),
        ("sizes", "1 MiB,,"),
        ("schedulers", "minrtt,minrtt"),
        ("schedulers", "policy:file"),
        ("schedulers", ","),
        ("congestion", "cubik"),
        ("budget", "0 s"),
        ("budget", "soon"),
        ("seed", "-1"),
        ("direction", "sideways"),
        ("links", "a: 1 Mbit/s, 20 ms, trace somewhere.down"),
    ] {
        tell(&json!({ field: text }), false);
    }
}

/// A question, what is said of it, and, with `runs`, two runs of its first candidate.
fn tell(asked: &Value, runs: bool) -> String {
    let mut playground = Playground::default();
    let checked = playground.answer(&json!({ "call": "check", "asked": asked }).to_string());
    let mut line = json!({ "asked": asked, "checked": &checked });
    if runs {
        assert!(!checked.contains("\"errors\""), "{asked}: {checked}");
        playground.answer(&json!({ "call": "prepare", "asked": asked }).to_string());
        let made = playground.answer(r#"{"call":"run","jobs":[[0,0,0],[0,1,0]]}"#);
        // Every number is carried.
        let runs: Vec<ropewalk_lab::compare::Run> = serde_json::from_str(&made).expect("two runs");
        assert_eq!(serde_json::to_string(&runs).ok().as_ref(), Some(&made));
        line["made"] = made.into();
    }
    println!("{line}");
    checked
}

/// Runs of the clean case, ms each.
#[expect(clippy::disallowed_methods, reason = "it measures this machine")]
fn time() {
    let asked = json!({ "links": "[[path]]\nname = \"left\"\nrate = \"100 Mbit/s\"\nrtt = \"20 ms\"\nqueue \
                                  = \"500 packets\"\n\
        [[path]]\nname = \"right\"\nrate = \"100 Mbit/s\"\nrtt = \"20 ms\"\nqueue = \"500 packets\"\n\
        [workload]\nkind = \"bulk\"\nduration = \"10 s\"\n\
        [ends]\nsend-buffer = \"16 MiB\"\nreceive-buffer = \"16 MiB\"\n", "schedulers": "minrtt" });
    let mut playground = Playground::default();
    playground.answer(&json!({ "call": "prepare", "asked": asked }).to_string());
    let mut times = Vec::new();
    for number in 0..5 {
        let began = Instant::now();
        playground.answer(&json!({ "call": "run", "jobs": [[0, number, 0]] }).to_string());
        times.push(began.elapsed().as_secs_f64() * 1e3);
    }
    println!("{}", json!({ "asked": asked, "ms": times }));
}
