//! The script language: text to statements. `docs/packet-scripts.md` describes it.

use std::collections::BTreeMap;

use ropewalk_engine::{Span, Time};

/// One virtual second.
const SECOND: f64 = 1e9;

/// What is wrong with a script, and in which line.
#[derive(Clone, PartialEq, Debug)]
pub struct Mistake {
    pub line: usize,
    pub text: String,
}

impl Mistake {
    pub fn new(line: usize, text: impl Into<String>) -> Self {
        Mistake { line, text: text.into() }
    }
}

/// A whole script.
#[derive(Debug, Default)]
pub struct Script {
    pub options: BTreeMap<String, String>,
    pub statements: Vec<Statement>,
}

/// One line.
#[derive(Clone, Debug)]
pub struct Statement {
    pub line: usize,
    pub when: When,
    pub action: Action,
}

/// When a statement happens: between these.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum When {
    /// From the start of the script.
    At(Time, Time),
    /// From the statement before.
    After(Span, Span),
    /// Any time.
    Any,
}

#[derive(Clone, Debug)]
pub enum Action {
    /// A segment of the peer's.
    Inject(Pattern),
    /// A segment that the engine has to send.
    Expect(Pattern),
    /// Anything else: a verb and its words.
    Call(Vec<String>),
}

/// A segment as it is written.
#[derive(Clone, PartialEq, Debug)]
pub struct Pattern {
    pub subflow: usize,
    /// Letters as in packetdrill, `.` for ACK.
    pub flags: String,
    /// `ect0`, `ect1`, `ce` or `noecn`, where it is given.
    pub ecn: Option<String>,
    /// First and last sequence number and length; `None`: any.
    pub sequence: Option<(i64, i64, u32)>,
    pub ack: Option<i64>,
    pub window: Option<u16>,
    pub urgent: Option<u16>,
    pub options: Vec<String>,
    /// `<...>`: further options don't matter.
    pub open: bool,
    /// The payload is altered on the way.
    pub corrupt: bool,
}

fn seconds(text: &str) -> Option<Span> {
    let nanos = |value: f64| Span::from_nanos((value * SECOND).round() as u64);
    text.parse::<f64>().ok().filter(|value| *value >= 0.0).map(nanos)
}

fn parse_when(text: &str) -> Option<When> {
    if text == "*" || text == "+*" {
        return Some(When::Any);
    }
    let (relative, text) = text.strip_prefix('+').map_or((false, text), |rest| (true, rest));
    let (from, to) = match text.split_once('~') {
        Some((from, to)) => (seconds(from)?, seconds(to.trim_start_matches('+'))?),
        None => (seconds(text)?, seconds(text)?),
    };
    Some(if relative { When::After(from, to) } else { When::At(Time::ZERO + from, Time::ZERO + to) })
}

/// Splits at commas that aren't in brackets.
pub fn split_options(text: &str) -> Vec<String> {
    let (mut parts, mut depth, mut part) = (Vec::new(), 0, String::new());
    for letter in text.chars() {
        match letter {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        if letter == ',' && depth == 0 {
            parts.push(std::mem::take(&mut part));
        } else {
            part.push(letter);
        }
    }
    parts.push(part);
    let words = parts.iter().map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "));
    words.filter(|part| !part.is_empty() && part != "nop" && part != "eol").collect()
}

/// `1:1001(1000)`.
fn sequence(text: &str) -> Option<(i64, i64, u32)> {
    let (from, rest) = text.split_once(':')?;
    let (to, len) = rest.strip_suffix(')')?.split_once('(')?;
    Some((from.parse().ok()?, to.parse().ok()?, len.parse().ok()?))
}

pub fn pattern(line: usize, text: &str) -> Result<Pattern, Mistake> {
    let wrong = |what: &str| Err(Mistake::new(line, format!("`{text}`: {what}")));
    let (head, tail) = match text.split_once('<') {
        Some((head, rest)) => match rest.rsplit_once('>') {
            Some((options, tail)) => (format!("{head} {tail}"), Some(options)),
            None => return wrong("`<` without `>`"),
        },
        None => (text.to_string(), None),
    };
    let mut words = head.split_whitespace().peekable();
    let mut found = Pattern {
        subflow: 0,
        flags: String::new(),
        ecn: None,
        sequence: None,
        ack: None,
        window: None,
        urgent: None,
        options: Vec::new(),
        open: false,
        corrupt: false,
    };
    if let Some(number) = words.peek().and_then(|word| word.strip_prefix('@')) {
        let Ok(number) = number.parse() else { return wrong("a subflow is `@0`, `@1`, ...") };
        found.subflow = number;
        words.next();
    }
    if let Some(ecn) = words.peek().and_then(|word| word.strip_prefix('[')) {
        found.ecn = Some(ecn.trim_end_matches(']').to_string());
        words.next();
    }
    let Some(flags) = words.next() else { return wrong("the flags are missing") };
    if flags.is_empty() || !flags.chars().all(|letter| "SFRP.EWU-".contains(letter)) {
        return wrong("flags are letters of `SFRP.EWU`, or `-` for none");
    }
    found.flags = flags.to_string();
    let Some(range) = words.next() else { return wrong("the sequence numbers are missing") };
    if range != "*" {
        let Some(range) = sequence(range) else {
            return wrong("sequence numbers are `first:end(length)`, or `*`");
        };
        if range.1 - range.0 != i64::from(range.2) {
            return wrong("the length isn't the end less the first number");
        }
        found.sequence = Some(range);
    }
    while let Some(word) = words.next() {
        let number = match word {
            "corrupt" => {
                found.corrupt = true;
                continue;
            }
            "ack" | "win" | "urg" => words.next().and_then(|number| number.parse::<i64>().ok()),
            _ => return wrong(&format!("`{word}` isn't `ack`, `win`, `urg` or `corrupt`")),
        };
        let Some(number) = number else { return wrong(&format!("`{word}` needs a number")) };
        match word {
            "ack" => found.ack = Some(number),
            "win" => found.window = u16::try_from(number).ok(),
            _ => found.urgent = u16::try_from(number).ok(),
        }
    }
    for option in tail.map(split_options).unwrap_or_default() {
        if option == "..." {
            found.open = true;
        } else {
            found.options.push(option);
        }
    }
    Ok(found)
}

/// Parses a script.
pub fn parse(text: &str) -> Result<Script, Mistake> {
    let mut script = Script::default();
    for (at, whole) in text.lines().enumerate() {
        let line = at + 1;
        let text = whole.split("//").next().unwrap_or_default();
        let text = if text.trim_start().starts_with('#') { "" } else { text.trim() };
        if text.is_empty() {
            continue;
        }
        if let Some(options) = text.strip_prefix("option ") {
            for option in options.split_whitespace() {
                let Some((name, value)) = option.split_once('=') else {
                    return Err(Mistake::new(line, format!("`{option}`: an option is `name=value`")));
                };
                script.options.insert(name.to_string(), value.to_string());
            }
            continue;
        }
        let Some((when, rest)) = text.split_once(char::is_whitespace) else {
            return Err(Mistake::new(line, format!("`{text}`: a time and what happens then")));
        };
        let Some(time) = parse_when(when) else {
            return Err(Mistake::new(
                line,
                format!("`{when}`: a time is `0.1`, `+0.1`, `+0.1~0.2` or `*`, in seconds"),
            ));
        };
        let rest = rest.trim();
        let action = if let Some(rest) = rest.strip_prefix("< ") {
            let pattern = pattern(line, rest.trim())?;
            if time == When::Any || pattern.open || pattern.sequence.is_none() {
                return Err(Mistake::new(line, "a segment of the peer's has to be given in full"));
            }
            Action::Inject(pattern)
        } else if let Some(rest) = rest.strip_prefix("> ") {
            Action::Expect(pattern(line, rest.trim())?)
        } else {
            Action::Call(call_words(rest))
        };
        script.statements.push(Statement { line, when: time, action });
    }
    if script.statements.is_empty() {
        return Err(Mistake::new(1, "the script is empty"));
    }
    Ok(script)
}

/// The words of a call; `<...>` is one.
fn call_words(text: &str) -> Vec<String> {
    match text.split_once('<').and_then(|(head, rest)| Some((head, rest.rsplit_once('>')?))) {
        Some((head, (options, tail))) => {
            let mut words: Vec<String> = head.split_whitespace().map(str::to_string).collect();
            words.push(format!("<{options}>"));
            words.extend(tail.split_whitespace().map(str::to_string));
            words
        }
        None => text.split_whitespace().map(str::to_string).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_read_with_times_ranges_and_options() {
        let script = parse(
            "option mptcp=on\n0 < S 0:0(0) win 100 <mss 1000,nop,sackOK> // first\n+0.1~0.2 > @1 [ect0] P. \
             1:11(10) ack 1 <...>\n",
        )
        .expect("a script");
        assert_eq!(script.options["mptcp"], "on");
        let [first, second] = &script.statements[..] else { panic!("{script:?}") };
        assert_eq!((first.line, first.when), (2, When::At(Time::ZERO, Time::ZERO)));
        let Action::Inject(pattern) = &first.action else { panic!() };
        assert_eq!((pattern.sequence, pattern.window), (Some((0, 0, 0)), Some(100)));
        assert_eq!(pattern.options, ["mss 1000", "sackOK"]);
        assert_eq!(second.when, When::After(Span::from_millis(100), Span::from_millis(200)));
        let Action::Expect(pattern) = &second.action else { panic!() };
        assert_eq!((pattern.subflow, pattern.open, &pattern.flags[..]), (1, true, "P."));
        assert_eq!(pattern.ecn.as_deref(), Some("ect0"));
    }

    #[test]
    fn mistakes_name_their_line_and_what_is_allowed() {
        for (text, line, words) in [
            ("\n+x < S 0:0(0)", 2, "a time is `0.1`"),
            ("0 < X 0:0(0)", 1, "letters of `SFRP.EWU`"),
            ("0 < S 0:1(0)", 1, "the length isn't"),
            ("0 < S zero", 1, "first:end(length)"),
            ("0 < S 0:0(0) ack", 1, "`ack` needs a number"),
            ("0 < S 0:0(0) <mss 1", 1, "`<` without `>`"),
            ("* < S 0:0(0)", 1, "in full"),
            ("option a", 1, "name=value"),
            ("// nothing", 1, "empty"),
        ] {
            let mistake = parse(text).expect_err(text);
            assert!(mistake.line == line && mistake.text.contains(words), "{text}: {mistake:?}");
        }
    }
}
