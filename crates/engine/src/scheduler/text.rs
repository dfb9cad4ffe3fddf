//! Texts of reasons: units, and the two decisions that all schedulers share.

use std::fmt;

use super::{Decision, Rationale, View};
use crate::{Span, SubflowId};

/// A subflow in a reason; [`with_names`] replaces it by the path's name.
#[derive(Clone, Copy, Debug)]
pub struct Subflow(
    /// Which.
    pub SubflowId,
);

impl fmt::Display for Subflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{subflow {}}}", self.0.0)
    }
}

/// A time in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Ms(
    /// Nanoseconds.
    pub Span,
);

impl fmt::Display for Ms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} ms", self.0.as_nanos() as f64 / 1e6)
    }
}

/// Bytes, in KiB.
#[derive(Clone, Copy, Debug)]
pub struct Kib(
    /// Bytes.
    pub u64,
);

impl fmt::Display for Kib {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0..1024 => write!(f, "{} B", self.0),
            1024..102_400 => write!(f, "{:.1} KiB", self.0 as f64 / 1024.0),
            _ => write!(f, "{:.0} KiB", self.0 as f64 / 1024.0),
        }
    }
}

/// Waits, because there is no unsent data or the connection-level window is full.
#[cold]
pub fn nothing_to_send(view: &View<'_>, rationale: &mut Rationale) -> Decision {
    rationale.say(|| {
        if view.unsent == 0 {
            format!("nothing unsent, {} chunks in flight", view.in_flight.len())
        } else {
            format!("{} unsent; the send window of {} is full", Kib(view.unsent), Kib(view.send_window))
        }
    });
    Decision::Wait { until: None }
}

/// Waits, because no usable subflow's window has room.
#[cold]
pub fn no_room(view: &View<'_>, rationale: &mut Rationale) -> Decision {
    rationale.say(|| format!("none of {} usable subflows has room", view.usable().count()));
    Decision::Wait { until: None }
}

/// A scheduler's reason for a decision: a text that speaks of subflows. As a string they are written
/// `{subflow 0}`.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct Reason(String);

/// A part of a [`Reason`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReasonPart<'a> {
    /// Text.
    Text(&'a str),
    /// A subflow, which whoever shows the reason may name.
    Subflow(SubflowId),
}

impl Reason {
    /// Its parts, in order.
    pub fn parts(&self) -> impl Iterator<Item = ReasonPart<'_>> {
        parts(&self.0)
    }

    /// The text with names for subflows; one without a name stays as it is.
    pub fn with_names<'a>(&self, name: impl Fn(SubflowId) -> Option<&'a str>) -> String {
        with_names(&self.0, |index| name(SubflowId(index)))
    }
}

impl From<String> for Reason {
    fn from(text: String) -> Reason {
        Reason(text)
    }
}

impl std::ops::Deref for Reason {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The parts of a reason's text.
fn parts(mut rest: &str) -> impl Iterator<Item = ReasonPart<'_>> {
    const BEGIN: &str = "{subflow ";
    /// Where the first subflow is, and which.
    fn subflow(text: &str) -> Option<(usize, usize, SubflowId)> {
        text.match_indices(BEGIN).find_map(|(start, _)| {
            let number = start + BEGIN.len();
            let len = text[number..].find('}')?;
            Some((start, number + len + 1, SubflowId(text[number..number + len].parse().ok()?)))
        })
    }
    std::iter::from_fn(move || match subflow(rest) {
        Some((0, end, id)) => {
            rest = &rest[end..];
            Some(ReasonPart::Subflow(id))
        }
        found => {
            let (text, left) = rest.split_at(found.map_or(rest.len(), |(start, ..)| start));
            rest = left;
            (!text.is_empty()).then_some(ReasonPart::Text(text))
        }
    })
}

/// Replaces `{subflow 0}` in a reason by the subflow's name; a subflow without a name stays as it is.
pub fn with_names<'a>(reason: &str, name: impl Fn(u8) -> Option<&'a str>) -> String {
    let mut text = String::with_capacity(reason.len());
    for part in parts(reason) {
        match part {
            ReasonPart::Text(part) => text.push_str(part),
            ReasonPart::Subflow(id) => match name(id.0) {
                Some(name) => text.push_str(name),
                None => text.push_str(&Subflow(id).to_string()),
            },
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_for_people() {
        assert_eq!(Ms(Span::from_micros(41230)).to_string(), "41.2 ms");
        let kib = [0, 999, 1024, 17_440, 102_399, 102_400, 1_234_567].map(|bytes| Kib(bytes).to_string());
        assert_eq!(kib, ["0 B", "999 B", "1.0 KiB", "17.0 KiB", "100.0 KiB", "100 KiB", "1206 KiB"]);
        assert_eq!(Subflow(SubflowId(3)).to_string(), "{subflow 3}");
    }

    #[test]
    fn reasons_get_path_names() {
        let name = |index| ["wifi", "lte"].get(usize::from(index)).copied();
        let text = with_names("{subflow 1} would hold 17 KiB, {subflow 0} not; {subflow 9}, {x", name);
        assert_eq!(text, "lte would hold 17 KiB, wifi not; {subflow 9}, {x");
        let reason = Reason::from("{subflow x} {subflow 300}{subflow 2}: 5 KiB, {subflow 1".to_string());
        let parts: Vec<_> = reason.parts().collect();
        let text = ReasonPart::Text;
        assert_eq!(
            parts,
            [
                text("{subflow x} {subflow 300}"),
                ReasonPart::Subflow(SubflowId(2)),
                text(": 5 KiB, {subflow 1")
            ]
        );
        let named = reason.with_names(|id| (id == SubflowId(2)).then_some("wifi"));
        assert_eq!(named, "{subflow x} {subflow 300}wifi: 5 KiB, {subflow 1");
        assert_eq!(Reason::default().parts().count(), 0);
    }
}
