//! What the page asks, and the answers.

use ropewalk_algorithms::Registries;
use ropewalk_lab::compare::{Job, Live, Request, Run};
use ropewalk_lab::report::comparison;
use ropewalk_lab::report::rope::{self, Budget};
use ropewalk_lab::scenario;
use ropewalk_settings::diagnostic::InputError;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::fields::open_attached;
use crate::{Fields, links};

/// Segments of all traced runs together; the first two of each workload are traced whatever it is.
const TRACED: Budget = Budget { segments: 0 };

/// What can be asked.
#[derive(Debug, Deserialize)]
#[serde(tag = "call", rename_all = "lowercase")]
enum Call {
    /// What there is to choose from.
    About,
    /// Whether this can be compared, and how it is said on a command line.
    Check { asked: Fields },
    /// The question as a scenario file.
    File { asked: Fields },
    /// Begins a comparison, whose runs others make.
    Begin { asked: Fields },
    /// The runs to be made now, each `[workload, number, candidate]`.
    Jobs,
    /// Takes the runs that follow the question's line, as a worker gave them: their places among the jobs.
    Take { places: Vec<usize> },
    /// The answer as it is now: the report's document.
    Look,
    /// The answer with traced runs.
    Trace,
    /// Gets ready to make runs of this.
    Prepare { asked: Fields },
    /// A line with another clause, or with these changes over time instead of its own.
    Reword { line: String, clause: Option<String>, changes: Option<Vec<String>> },
    /// A line with what a measurement says.
    Measured { line: String, name: String, text: String },
    /// Makes runs; null where there is no such candidate or workload.
    Run { jobs: Vec<(usize, u32, usize)> },
}

/// One worker's side of the laboratory.
#[derive(Debug)]
pub struct Playground {
    registries: Registries,
    asked: Fields,
    request: Option<Request>,
    live: Option<Live>,
}

impl Default for Playground {
    fn default() -> Self {
        Playground { registries: Registries::builtin(), asked: Fields::default(), request: None, live: None }
    }
}

impl Playground {
    /// Answers a question, a line of JSON, with JSON: `{"errors": [...]}` where the question isn't allowed.
    pub fn answer(&mut self, question: &str) -> String {
        let (question, attached) = question.split_once('\n').unwrap_or((question, ""));
        let call = match serde_json::from_str::<Call>(question) {
            Ok(call) => call,
            Err(error) => {
                let text = error.to_string();
                return json!({ "errors": [{ "message": text, "text": text }] }).to_string();
            }
        };
        self.call(call, attached).unwrap_or_else(|error| {
            let mut errors = error.json();
            let list = errors.as_array_mut().into_iter().flatten();
            for (one, diagnostic) in list.zip(&error.diagnostics) {
                let alone = InputError::from(diagnostic.clone());
                one["text"] = alone.render(false).into();
            }
            json!({ "errors": errors }).to_string()
        })
    }

    fn call(&mut self, call: Call, attached: &str) -> Result<String, InputError> {
        let answer = match call {
            Call::About => self.about(),
            Call::Check { asked } => self.summary(&asked, &asked.request()?),
            Call::File { asked } => json!({ "text": asked.file()? }),
            Call::Begin { asked } => {
                let request = asked.request()?;
                let summary = self.summary(&asked, &request);
                self.live = Some(Live::new(request));
                self.asked = asked;
                summary
            }
            Call::Jobs => {
                let jobs = self.live.as_ref().map(Live::jobs).unwrap_or_default();
                json!(jobs.iter().map(|job| (job.workload, job.number, job.who)).collect::<Vec<_>>())
            }
            Call::Take { places } => {
                let Some(live) = &mut self.live else { return Ok("null".into()) };
                let runs: Vec<Option<Run>> = serde_json::from_str(attached).unwrap_or_default();
                let mut next = false;
                for (place, run) in places.into_iter().zip(runs) {
                    next |= run.is_some_and(|run| live.take(place, run));
                }
                json!({ "next": next, "ended": live.has_ended(), "share": live.share() })
            }
            Call::Look => self.look(false),
            Call::Trace => self.look(true),
            Call::Prepare { asked } => {
                self.request = Some(asked.request()?);
                Value::Null
            }
            Call::Reword { mut line, clause, changes } => {
                if let Some(clause) = clause {
                    line = scenario::with_clause(&line, &clause);
                }
                if let Some(changes) = changes {
                    line = scenario::with_changes(&line, &changes);
                }
                json!({ "line": line })
            }
            Call::Measured { line, name, text } => links::measured(&line, &name, &text, open_attached)?,
            // As text at once: there are many.
            Call::Run { jobs } => return Ok(self.make(jobs)),
        };
        Ok(answer.to_string())
    }

    fn make(&self, jobs: Vec<(usize, u32, usize)>) -> String {
        let Some(request) = &self.request else { return "null".into() };
        let make = |(workload, number, who)| {
            let known = workload < request.workloads.len() && who < request.candidates.len();
            known.then(|| request.make(Job { workload, number, who }, ropewalk_rule::run))
        };
        let runs: Vec<Option<Run>> = jobs.into_iter().map(make).collect();
        serde_json::to_string(&runs).unwrap_or_else(|_| "null".into())
    }

    fn about(&self) -> Value {
        let schedulers = self.registries.schedulers.entries().iter();
        let congestion = self.registries.congestion.entries().iter();
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "schedulers": schedulers.map(|one| json!([one.name, one.summary])).collect::<Vec<_>>(),
            "congestion": congestion.map(|one| json!([one.name, one.summary])).collect::<Vec<_>>(),
            "kinds": scenario::PRESETS.iter().map(|one| json!([
                one.name, one.link, one.source,
            ])).collect::<Vec<_>>(),
            "scenarios": scenario::builtins().iter().map(|one| {
                let loaded = one.load(&self.registries);
                let summary = loaded.map(|loaded| loaded.scenario.summary).unwrap_or_default();
                json!([one.name, summary, one.text])
            }).collect::<Vec<_>>(),
        })
    }

    fn summary(&self, asked: &Fields, request: &Request) -> Value {
        let lines = asked.path_lines();
        let numbers = lines.iter().zip(&request.scenario.paths).map(
            |((place, line), path)| json!({ "place": place, "line": line, "numbers": links::numbers(path) }),
        );
        json!({
            "links": numbers.collect::<Vec<_>>(),
            "command": asked.command().command,
            "candidates": request.candidates.iter().map(|one| one.label.as_str()).collect::<Vec<_>>(),
            "workloads": request.workloads.iter().map(ropewalk_lab::compare::describe).collect::<Vec<_>>(),
        })
    }

    fn look(&self, traced: bool) -> Value {
        let Some(live) = &self.live else { return Value::Null };
        let comparison = live.comparison();
        let mut ropes = Vec::new();
        if traced {
            rope::trace(live.request(), &comparison, TRACED, ropewalk_rule::run, |place, paths, result| {
                ropes.push(rope::to_json(place, paths, result));
            });
        }
        comparison::document(&self.asked.command(), &live.request().scenario, &comparison, ropes)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use ropewalk_lab::compare::compare;

    use super::*;

    /// As the page does it, with one worker.
    fn decided(asked: &Value) -> Value {
        let (mut judge, mut worker) = (Playground::default(), Playground::default());
        let ask = |of: &mut Playground, question: Value| -> Value {
            serde_json::from_str(&of.answer(&question.to_string())).unwrap()
        };
        let begun = ask(&mut judge, json!({ "call": "begin", "asked": asked }));
        assert!(begun["command"].is_string(), "{begun}");
        ask(&mut worker, json!({ "call": "prepare", "asked": asked }));
        loop {
            let jobs = ask(&mut judge, json!({ "call": "jobs" }));
            let places: Vec<usize> = (0..jobs.as_array().unwrap().len()).collect();
            let runs = worker.answer(&json!({ "call": "run", "jobs": jobs }).to_string());
            let take = json!({ "call": "take", "places": places });
            let taken: Value = serde_json::from_str(&judge.answer(&format!("{take}\n{runs}"))).unwrap();
            if taken["ended"] == true {
                return ask(&mut judge, json!({ "call": "trace" }));
            }
            assert_eq!(taken["next"], true);
        }
    }

    #[test]
    fn the_page_is_told_what_compare_says() {
        let asked = json!({ "links": "a: 10 Mbit/s, 20 ms, 1 %\nb: 5 Mbit/s, 60 ms", "sizes": "64 KiB",
            "schedulers": "minrtt,redundant", "budget": "30 ms" });
        let page = decided(&asked);
        let request: Fields = serde_json::from_value(asked).unwrap();
        let (origin, request) = (request.command(), request.request().unwrap());
        let told = compare(&request, ropewalk_sim::run, |_| {}, &AtomicBool::new(false));
        let mut ropes = Vec::new();
        rope::trace(&request, &told, TRACED, ropewalk_sim::run, |place, paths, result| {
            ropes.push(rope::to_json(place, paths, result));
        });
        assert_eq!(ropes.len(), 2);
        assert_eq!(
            page.to_string(),
            comparison::document(&origin, &request.scenario, &told, ropes).to_string()
        );
    }

    #[test]
    fn a_rule_that_fails_ends_its_runs_and_no_others() {
        let asked = json!({ "links": "a: 10 Mbit/s, 20 ms\nb: 5 Mbit/s, 60 ms", "sizes": "64 KiB",
            "schedulers": "minrtt", "rule": "let a = 1;\nloop { a += 1; }" });
        let page = decided(&asked);
        let rows = page["rankings"][0]["rows"].as_array().unwrap();
        let row = |name: &str| rows.iter().find(|row| row["scheduler"] == name).unwrap();
        let why = row("mine")["unfinished"].as_str().unwrap();
        assert!(why.contains("failed: line 2 of the rule: more than 10000 operations"), "{why}");
        assert_eq!(
            (row("mine")["finished_runs"].as_u64(), row("minrtt")["unfinished"].as_str()),
            (Some(0), None)
        );
    }

    #[test]
    fn no_question_is_answered_with_a_panic() {
        let mut playground = Playground::default();
        for question in [
            "",
            "{}",
            "null",
            r#"{"call":"no"}"#,
            r#"{"call":"begin"}"#,
            r#"{"call":"begin","asked":{"x":1}}"#,
            r#"{"call":"begin","asked":{"links":"x: ?"}}"#,
            r#"{"call":"check","asked":{"links":"x = ["}}"#,
        ] {
            let answer: Value = serde_json::from_str(&playground.answer(question)).unwrap();
            assert!(answer["errors"][0]["text"].is_string(), "{question}: {answer}");
        }
        for question in [r#"{"call":"jobs"}"#, r#"{"call":"look"}"#, r#"{"call":"run","jobs":[[9,9,9]]}"#] {
            assert!(!playground.answer(question).contains("errors"), "{question}");
        }
        playground.answer(r#"{"call":"prepare","asked":{}}"#);
        assert_eq!(playground.answer(r#"{"call":"run","jobs":[[9,9,9]]}"#), "[null]");
    }

    #[test]
    fn what_there_is_to_choose_from_is_told() {
        let about: Value =
            serde_json::from_str(&Playground::default().answer(r#"{"call":"about"}"#)).unwrap();
        for (what, name) in
            [("schedulers", "blest"), ("congestion", "cubic"), ("kinds", "dsl"), ("scenarios", "wifi-lte")]
        {
            let listed = about[what].as_array().unwrap();
            assert!(listed.iter().any(|one| one[0] == name && one[1] != ""), "{what}");
        }
    }
}
