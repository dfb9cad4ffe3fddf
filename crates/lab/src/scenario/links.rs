//! Reads paths, bottlenecks and their links from a scenario file.

use std::ops::Range;
use std::sync::Arc;

use ropewalk_engine::{NANOSECOND, Span, Time};
use ropewalk_link::{Change, ChangeAction, LinkSpec, Loss, Rate, RateTrace};
use ropewalk_settings::diagnostic::did_you_mean;
use ropewalk_settings::name::bad_name;
use ropewalk_settings::read::{Table, Value};
use ropewalk_settings::units;
use ropewalk_sim::{Bottleneck, Metered, PathSpec};

use super::ScenarioReader;
use super::draft::{CODEL, LinkDraft, MOST_PATHS, QueueDraft, link_state};
use super::inline::drafts_of;
use super::phrase::{self, LEAST_PERIOD};
use super::preset::PRESETS;
use super::shape::{BOTTLENECK, CHANGE, GENERATOR, LINK, LOSS, PATH, QUEUES};
use super::trace::{self, Cellular};

impl ScenarioReader {
    /// All `[[bottleneck]]`s.
    pub fn bottlenecks(&mut self, file: &Table<'_>) -> Vec<Bottleneck> {
        let mut found: Vec<Bottleneck> = Vec::new();
        for value in self.array(file, "bottleneck") {
            let Some(table) = self.table(&BOTTLENECK, value) else { continue };
            let name = self.name(&table, found.iter().map(|known| known.name.as_str()));
            let (up, down) = self.directions(&table, 1500, true);
            found.push(Bottleneck { name, up, down });
        }
        found
    }

    /// All `[[path]]`s.
    pub fn paths(&mut self, file: &Table<'_>, bottlenecks: &[Bottleneck]) -> Vec<PathSpec> {
        let mut found: Vec<PathSpec> = Vec::new();
        let values = self.array(file, "path");
        if values.len() > MOST_PATHS {
            let span = values[MOST_PATHS].span();
            self.wrong(
                span,
                format!("more than {MOST_PATHS} paths"),
                format!("this is path {}", MOST_PATHS + 1),
                "",
            );
        }
        if values.is_empty() && file.get("path").is_some() {
            self.wrong(
                file.place("path"),
                "a scenario needs at least one path",
                "there is none",
                "add a `[[path]]`",
            );
        }
        for value in values.iter().take(MOST_PATHS) {
            let Some(table) = self.table(&PATH, value) else { continue };
            let name = self.name(&table, found.iter().map(|known| known.name.as_str()));
            let mtu = self.bytes(&table, "mtu").unwrap_or(1500) as u32;
            let (up, down) = self.directions(&table, mtu, false);
            let backup = self.switch(&table, "backup").unwrap_or(false);
            let bottleneck = self.bottleneck_of(&table, bottlenecks);
            let price = table.get("price").and_then(|value| self.quantity(value, "2 EUR/GB", phrase::price));
            let metered = self.switch(&table, "metered").unwrap_or(price.is_some());
            let metered = metered.then_some(Metered { price });
            found.push(PathSpec { name, up, down, mtu, backup, bottleneck, metered });
        }
        found
    }

    /// A table's `name`, which must differ from those taken.
    fn name<'k>(&mut self, table: &Table<'_>, mut taken: impl Iterator<Item = &'k str>) -> String {
        let Some(value) = table.get("name") else { return String::new() };
        let Some(name) = self.text(value) else { return String::new() };
        if let Some(reason) = bad_name(name) {
            self.wrong(value.span(), "this name can't be used", format!("found `{name}`"), reason);
        }
        if taken.any(|other| other == name) {
            self.wrong(
                value.span(),
                format!("there are two {}s `{name}`", table.shape.name),
                "the second",
                "give each its own name",
            );
        }
        name.to_string()
    }

    fn bottleneck_of(&mut self, table: &Table<'_>, bottlenecks: &[Bottleneck]) -> Option<usize> {
        let value = table.get("bottleneck")?;
        let name = self.text(value)?;
        let found = bottlenecks.iter().position(|known| known.name == name);
        if found.is_none() {
            let names = || bottlenecks.iter().map(|known| known.name.as_str());
            let help = unknown_help(name, names(), "add a `[[bottleneck]]` with this name");
            self.wrong(
                value.span(),
                format!("there is no bottleneck `{name}`"),
                format!("found `{name}`"),
                help,
            );
        }
        found
    }

    /// Both directions of a path or bottleneck.
    fn directions(&mut self, table: &Table<'_>, mtu: u32, bottleneck: bool) -> (LinkSpec, LinkSpec) {
        let before = self.errors.len();
        let mut both = self.link(table);
        if let Some(value) = table.get("rtt") {
            if table.get("delay").is_some() {
                self.wrong(
                    table.place("delay"),
                    "both `rtt` and `delay`",
                    "the second",
                    "give the round-trip time or the one-way delay",
                );
            }
            if let Some((rtt, spread)) = self.quantity(value, "20 ms +-5 ms", units::duration_with_spread) {
                both.delay = Some(rtt / 2);
                both.spread = spread.map(|spread| spread / 2);
            }
        }
        // `16/1 Mbit/s`: down and up.
        let rates = table.get("rate").and_then(|value| value.get_ref().as_str()).map(phrase::rates);
        let up_rate = rates.and_then(Result::ok).map(|(_, up)| Rate::Constant(up));
        let kinds: Vec<_> = PRESETS.iter().map(|one| (one.name, one)).collect();
        let preset = if bottleneck { None } else { self.choice(table, "preset", &kinds) };
        let mut direction = |key, rate: Option<Rate>| {
            let both = LinkDraft { rate: rate.or_else(|| both.rate.clone()), ..both.clone() };
            match table.get(key).and_then(|value| self.table(&LINK, value)) {
                Some(own) => (self.link(&own).or(&both), jitter_key(&own)),
                None => (LinkDraft::default().or(&both), None),
            }
        };
        let ((mut up, shapes_up), (mut down, shapes_down)) =
            (direction("up", up_rate), direction("down", None));
        if let Some(preset) = preset {
            let (preset_up, preset_down) = drafts_of(preset);
            (up, down) = (up.or(&preset_up), down.or(&preset_down));
        }
        let either = up.spread.or(down.spread);
        for (found, spread) in
            [(jitter_key(table), either), (shapes_up, up.spread), (shapes_down, down.spread)]
        {
            if let Some((key, place)) = found.filter(|_| spread.is_none() && self.errors.len() == before) {
                self.wrong(
                    place,
                    format!("`{key}` says how delays spread, and these don't"),
                    "here",
                    "give the delay a spread: \"20 ms +-5 ms\"",
                );
            }
        }
        // Don't report a wrong value as missing too.
        if self.errors.len() == before {
            let complete = up.rate.is_some() && down.rate.is_some();
            if !complete {
                let of = format!("this {} has no `rate` and no `trace`", table.shape.name);
                self.wrong(
                    table.span.clone(),
                    of,
                    "neither is here, nor in both `up` and `down`",
                    "rate = \"50 Mbit/s\"",
                );
            }
            if !bottleneck && (up.delay.is_none() || down.delay.is_none()) {
                self.wrong(
                    table.span.clone(),
                    "this path has no `rtt` and no `delay`",
                    "neither is here, nor in both `up` and `down`",
                    "rtt = \"20 ms\"",
                );
            }
        }
        let rtt = up.delay.unwrap_or_default() + down.delay.unwrap_or_default();
        (up.finish(rtt, mtu), down.finish(rtt, mtu))
    }

    /// Reports bottlenecks that no path uses: they would have no effect.
    pub fn unused(&mut self, file: &Table<'_>, bottlenecks: &[Bottleneck], paths: &[PathSpec]) {
        let values = self.array(file, "bottleneck");
        for (index, (bottleneck, value)) in bottlenecks.iter().zip(values).enumerate() {
            if paths.iter().any(|path| path.bottleneck == Some(index)) {
                continue;
            }
            let name = value.get_ref().as_table().and_then(|table| table.get("name"));
            self.wrong(
                name.map_or(value.span(), |name| name.span()),
                format!("no path runs through the bottleneck `{}`", bottleneck.name),
                "this one",
                format!("in a `[[path]]`: bottleneck = \"{}\"", bottleneck.name),
            );
        }
    }

    /// The link properties of a table.
    fn link(&mut self, table: &Table<'_>) -> LinkDraft {
        let mut draft = LinkDraft { rate: self.rate_or_trace(table), ..LinkDraft::default() };
        if let Some(value) = table.get("delay")
            && let Some((delay, spread)) = self.quantity(value, "10 ms +-2 ms", units::duration_with_spread)
        {
            draft.delay = Some(delay);
            draft.spread = spread;
        }
        draft.shape = self.choice(table, "jitter-shape", phrase::JITTER_SHAPES);
        draft.reordering = self.switch(table, "reordering");
        draft.loss = table.get("loss").and_then(|value| self.loss(value));
        draft.queue = table.get("queue").and_then(|value| self.queue(value));
        draft.duplicate = self.probability(table, "duplicate");
        draft.overhead = self.bytes(table, "overhead").map(|bytes| bytes as u32);
        draft.netem_limit = self.switch(table, "netem-limit");
        if table.get("changes").is_some() {
            let changes = self.array(table, "changes").iter().flat_map(|value| self.change(value));
            draft.changes = Some(changes.collect());
        }
        draft
    }

    fn rate_or_trace(&mut self, table: &Table<'_>) -> Option<Rate> {
        if table.get("rate").is_some() && table.get("trace").is_some() {
            self.wrong(
                table.place("trace"),
                "both `rate` and `trace`",
                "the second",
                "a link has one or the other",
            );
        }
        if let Some(value) = table.get("rate") {
            if [PATH.name, BOTTLENECK.name].contains(&table.shape.name) {
                let found = self.quantity(value, "50 Mbit/s", phrase::rates);
                return found.map(|(down, _)| Rate::Constant(down));
            }
            return self.quantity(value, "50 Mbit/s", phrase::rate).map(Rate::Constant);
        }
        table.get("trace").and_then(|value| self.trace(value)).map(Rate::Trace)
    }

    fn trace(&mut self, value: &Value<'_>) -> Option<Arc<RateTrace>> {
        if value.get_ref().as_table().is_some() {
            return self.generator(value);
        }
        let name = self.text(value)?;
        match trace::read(&self.folder.join(name), self.open_file) {
            Ok(trace) => Some(trace),
            Err(mut error) => {
                // An unreadable file is reported where it is named, a bad line in the trace.
                if error.place.is_none() {
                    error = error.at(&self.source, value.span()).label("named here");
                    error = error.help("a trace's path is relative to the scenario's file");
                }
                self.errors.push(error);
                None
            }
        }
    }

    fn generator(&mut self, value: &Value<'_>) -> Option<Arc<RateTrace>> {
        let table = self.table(&GENERATOR, value)?;
        let mean = self.quantity(table.get("mean")?, "12 Mbit/s", units::rate)?;
        let mut plan = Cellular::new(mean);
        if let Some(variation) = self.number(&table, "variation") {
            plan.variation = variation;
        }
        if let Some(memory) = self.time(&table, "memory") {
            plan.memory = memory;
        }
        plan.outage_every = self.time(&table, "outage-every").filter(|time| !time.is_zero());
        if let Some(outage) = self.time(&table, "outage") {
            plan.outage = outage;
        }
        if let Some(length) = self.time(&table, "length") {
            plan.length = length;
        }
        if let Some(seed) = self.integer(&table, "seed") {
            plan.seed = seed;
        }
        let packets = u128::from(mean) * u128::from(plan.length.as_nanos()) / 12_000_000_000_000;
        if packets > 20_000_000 {
            self.wrong(
                value.span(),
                "this trace would have more than 20 million entries",
                "here",
                "make it shorter or slower",
            );
            return None;
        }
        Some(Arc::new(plan.generate()))
    }

    fn loss(&mut self, value: &Value<'_>) -> Option<Loss> {
        if value.get_ref().as_table().is_none() {
            return self.quantity(value, "0.5 %", phrase::loss);
        }
        let table = self.table(&LOSS, value)?;
        Some(Loss::GilbertElliott {
            to_bad: self.probability(&table, "to-bad")?,
            to_good: self.probability(&table, "to-good")?,
            loss_good: self.probability(&table, "loss-good").unwrap_or(0.0),
            loss_bad: self.probability(&table, "loss-bad").unwrap_or(1.0),
        })
    }

    fn queue(&mut self, value: &Value<'_>) -> Option<QueueDraft> {
        if value.get_ref().as_table().is_none() {
            return self.quantity(value, "100 packets", phrase::queue);
        }
        let table = self.tagged(QUEUES, "queue", value)?;
        if table.shape.name == "codel" {
            return self.codel(&table);
        }
        let limit = self.quantity(table.get("limit")?, "100 packets", phrase::queue)?;
        let Some(threshold) = table.get("ecn-threshold") else { return Some(limit) };
        let threshold_draft = self.quantity(threshold, "20 packets", phrase::queue)?;
        use QueueDraft::{Bytes, Packets, Time};
        match (limit, threshold_draft) {
            (Packets { limit, .. }, Packets { limit: mark, .. }) => {
                Some(Packets { limit, ecn_threshold: Some(mark) })
            }
            (Bytes { limit, .. }, Bytes { limit: mark, .. }) => {
                Some(Bytes { limit, ecn_threshold: Some(mark) })
            }
            (Time { limit, .. }, Time { limit: mark, .. }) => Some(Time { limit, ecn_threshold: Some(mark) }),
            _ => {
                self.wrong(
                    threshold.span(),
                    "`ecn-threshold` must be in the limit's unit",
                    "in another unit",
                    "",
                );
                None
            }
        }
    }

    fn codel(&mut self, table: &Table<'_>) -> Option<QueueDraft> {
        let QueueDraft::CoDel { mut limit, target, interval, ecn } = CODEL else { return None };
        if let Some(value) = table.get("limit") {
            limit = self.quantity(value, "1000 packets", units::packets)?.max(1);
        }
        Some(QueueDraft::CoDel {
            limit,
            target: self.time(table, "target").unwrap_or(target),
            interval: self.time(table, "interval").unwrap_or(interval).max(NANOSECOND),
            ecn: self.switch(table, "ecn").unwrap_or(ecn),
        })
    }

    /// A change; of a link that goes down for some time, two.
    fn change(&mut self, value: &Value<'_>) -> Vec<Change> {
        let Some(table) = self.table(&CHANGE, value) else { return Vec::new() };
        let every = self.time(&table, "every");
        let Some(first) = self.one_change(value, &table, every) else { return Vec::new() };
        let mut found = vec![first];
        let lasts = self.time(&table, "for");
        if every.is_some_and(|every| every < LEAST_PERIOD || lasts.is_some_and(|lasts| lasts >= every)) {
            let help = format!("more than `for`, at least {}", units::write_duration(LEAST_PERIOD));
            self.wrong(table.place("every"), "this change repeats too soon", "here", help);
        }
        match lasts {
            Some(_) if found[0].action != ChangeAction::Down => {
                let help = "for another rate or delay: a change that sets it, and one that sets it back";
                self.wrong(table.place("for"), "`for` says how long a link is down", "here", help);
            }
            Some(lasts) => {
                let back = link_state(found[0].at.saturating_add(lasts), true);
                found.push(Change { every, ..back });
            }
            None => {}
        }
        found
    }

    fn one_change(&mut self, value: &Value<'_>, table: &Table<'_>, every: Option<Span>) -> Option<Change> {
        let at = Time::ZERO + self.time(table, "at")?;
        let when = ["at", "every", "for"];
        let things: Vec<_> =
            table.entries.iter().filter(|(key, _)| !when.contains(&key.get_ref().as_ref())).collect();
        if things.len() != 1 {
            let help = "one of: rate, trace, delay, loss, link";
            self.wrong(
                value.span(),
                "a change changes exactly one thing",
                format!("this one has {}", things.len()),
                help,
            );
            return None;
        }
        if let Some(up) = self.choice(table, "link", &[("down", false), ("up", true)]) {
            return Some(Change { every, ..link_state(at, up) });
        }
        let action = if let Some(delay) = self.time(table, "delay") {
            ChangeAction::Delay(delay)
        } else if let Some(value) = table.get("loss") {
            ChangeAction::Loss(self.loss(value)?)
        } else {
            ChangeAction::Rate(self.rate_or_trace(table)?)
        };
        Some(Change { at, action, every })
    }
}

/// The key of a table that describes the jitter's distribution, with its span.
fn jitter_key(table: &Table<'_>) -> Option<(&'static str, Range<usize>)> {
    let is_set = |key| match key {
        "reordering" => table.get(key).is_some_and(|value| value.get_ref().as_bool() == Some(true)),
        _ => table.get(key).is_some(),
    };
    ["jitter-shape", "reordering"].into_iter().find(|key| is_set(*key)).map(|key| (key, table.place(key)))
}

/// "did you mean ...?" and the list of what there is.
pub(super) fn unknown_help<'a>(
    name: &str,
    known: impl Iterator<Item = &'a str> + Clone,
    otherwise: &str,
) -> String {
    let list: Vec<_> = known.clone().collect();
    if list.is_empty() {
        return otherwise.to_string();
    }
    format!("{} known: {}", did_you_mean(name, known), list.join(", ")).trim().to_string()
}
