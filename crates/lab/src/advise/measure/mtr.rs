//! `mtr -r`, as text, JSON, CSV and XML: the last hop is the path's end. Loss on the way is what routers
//! don't answer, not what they lose.

use serde_json::Value;

use super::{Counted, Input, Measured, MeasurementError, RoundTrip, number, positive};

/// One hop: its share of losses, probes, and times in milliseconds.
struct Hop {
    name: String,
    loss: f64,
    sent: f64,
    mean: f64,
    best: f64,
    worst: f64,
    sd: f64,
}

pub(super) fn read(input: &Input<'_>) -> Option<Result<Measured, MeasurementError>> {
    if input.text.contains("<MTR ") {
        return Some(found(input.text.split("<HUB ").skip(1).filter_map(hub).collect()));
    }
    let is_ours = input.text.lines().any(|line| line.contains("Loss%") && line.contains("Snt"));
    is_ours.then(|| found(input.text.lines().filter_map(hop).collect()))
}

/// `  8.|-- 192.0.2.1     2.0%   100   20.1  20.3  19.8  38.0   1.2`; of `--csv` what stands between its
/// commas.
fn hop(line: &str) -> Option<Hop> {
    if line.starts_with("MTR.") {
        let cells: Vec<&str> = line.split(',').collect();
        let at = |place: usize| positive(cells.get(place)?.trim());
        let name = (*cells.get(5)?).to_string();
        return Some(Hop {
            name,
            loss: at(6)? / 100.0,
            sent: at(7)?,
            mean: at(10)?,
            best: at(11)?,
            worst: at(12)?,
            sd: at(13)?,
        });
    }
    let (_, rest) = line.split_once(".|--").or_else(|| line.trim_start().split_once(". "))?;
    let words: Vec<&str> = rest.split_whitespace().collect();
    let loss = words.iter().position(|word| word.ends_with('%'))?;
    let at = |place: usize| positive(words.get(loss + place)?);
    Some(Hop {
        name: words[..loss].join(" "),
        loss: positive(words[loss].trim_end_matches('%'))? / 100.0,
        sent: at(1)?,
        mean: at(3)?,
        best: at(4)?,
        worst: at(5)?,
        sd: at(6)?,
    })
}

/// `<HUB COUNT="1" HOST="192.0.2.1"><Loss>1.0%</Loss><Snt>100</Snt>...</HUB>`, behind its first word.
fn hub(text: &str) -> Option<Hop> {
    let at = |name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        positive(rest.split('<').next()?.trim().trim_end_matches('%'))
    };
    let name = text.split_once("HOST=\"").and_then(|(_, rest)| rest.split('"').next());
    Some(Hop {
        name: name.unwrap_or_default().to_string(),
        loss: at("Loss")? / 100.0,
        sent: at("Snt")?,
        mean: at("Avg")?,
        best: at("Best")?,
        worst: at("Wrst")?,
        sd: at("StDev")?,
    })
}

pub(super) fn read_json(input: &Input<'_>) -> Option<Result<Measured, MeasurementError>> {
    let [report] = input.json else { return None };
    let hubs = report["report"]["hubs"].as_array()?;
    let hop = |hub: &Value| {
        let at = |key: &str| number(&hub[key]).or_else(|| hub[key].as_str().and_then(positive));
        Some(Hop {
            name: hub["host"].as_str().unwrap_or_default().to_string(),
            loss: at("Loss%")? / 100.0,
            sent: at("Snt")?,
            mean: at("Avg")?,
            best: at("Best")?,
            worst: at("Wrst")?,
            sd: at("StDev")?,
        })
    };
    Some(found(hubs.iter().filter_map(hop).collect()))
}

fn found(hops: Vec<Hop>) -> Result<Measured, MeasurementError> {
    let mut notes = Vec::new();
    let answers = |hop: &Hop| hop.loss < 1.0 && hop.sent >= 1.0;
    let last = hops.last().ok_or(MeasurementError::NoAnswer)?;
    let end = hops.iter().rev().find(|hop| answers(hop)).ok_or(MeasurementError::NoAnswer)?;
    let is_end = answers(last);
    if !is_end {
        notes.push(format!(
            "the end didn't answer: round trips are to {}, which isn't the end; loss unknown",
            end.name
        ));
    }
    let sent = end.sent.round();
    let count = (sent * (1.0 - end.loss)).round();
    let rtt = RoundTrip {
        min: end.best.max(0.001),
        mean: end.mean.max(0.001),
        sd: end.sd,
        max: end.worst.max(end.best),
        count: Some(count as u64),
        loaded: false,
        smoothed: false,
    };
    let loss = Counted { lost: (sent * end.loss).round() as u64, sent: sent as u64, round_trip: true };
    Ok(Measured { rtt: Some(rtt), loss: is_end.then_some(loss), notes, ..Measured::default() })
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    const TEXT: &str = "Start: 2026-03-01T10:42:03+0000
HOST: laptop                      Loss%   Snt   Last   Avg  Best  Wrst StDev
  1.|-- 192.168.1.1                0.0%   100    0.5   0.6   0.4   2.6   0.1
  2.|-- ???                       100.0   100    0.0   0.0   0.0   0.0   0.0
  3.|-- 10.1.1.1                  60.0%   100    9.5   9.6   9.4  12.6   0.4
  4.|-- example.net                2.0%   100   20.1  20.6  19.8  38.0   1.2
";

    #[test]
    fn the_last_hop_counts() {
        let found = parse("f", TEXT).unwrap();
        let rtt = found.rtt.unwrap();
        assert_eq!((rtt.min, rtt.mean, rtt.sd, rtt.max, rtt.count), (19.8, 20.6, 1.2, 38.0, Some(98)));
        assert_eq!(found.loss, Some(Counted { lost: 2, sent: 100, round_trip: true }));
        let silent = TEXT.replace(
            "  2.0%   100   20.1  20.6  19.8  38.0   1.2",
            "100.0%   100    0.0   0.0   0.0   0.0   0.0",
        );
        let found = parse("f", &silent).unwrap();
        assert!(found.loss.is_none() && found.notes[0].contains("10.1.1.1"), "{found:?}");
        let json = r#"{"report":{"mtr":{"dst":"192.0.2.1","tests":10},"hubs":[
            {"count":1,"host":"192.168.1.1","Loss%":0.0,"Snt":10,"Last":1.0,"Avg":1.0,"Best":1.0,"Wrst":1.0,
                "StDev":0.0},
            {"count":"2","host":"192.0.2.1","Loss%":10.0,"Snt":10,"Last":21.0,"Avg":20.6,"Best":19.8,
                "Wrst":38.0,"StDev":1.2}]}}"#;
        let found = parse("f", json).unwrap();
        assert_eq!(found.loss, Some(Counted { lost: 1, sent: 10, round_trip: true }));
        let xml = "<?xml version=\"1.0\"?>\n<MTR SRC=\"a\" DST=\"192.0.2.1\" TESTS=\"100\">\n<HUB \
                   COUNT=\"1\" HOST=\"192.0.2.1\">
            <Loss>  1.0%</Loss>\n<Snt>   100</Snt>\n<Last>  20.1</Last>\n<Avg>  20.6</Avg>\n\
             <Best>  19.8</Best>
            <Wrst>  38.0</Wrst>\n<StDev>   1.2</StDev>\n</HUB>\n</MTR>\n";
        let found = parse("f", xml).unwrap();
        assert_eq!((found.rtt.unwrap().mean, found.loss.unwrap().lost), (20.6, 1));
        let csv = "Mtr_Version,Start_Time,Status,Host,Hop,Ip,Loss%,Snt, ,Last,Avg,Best,Wrst,StDev,
MTR.0.95,1795776144,OK,192.0.2.1,1,192.0.2.1,10.00,10,1,20.03,20.60,19.80,38.04,1.20\n";
        let found = parse("f", csv).unwrap();
        assert_eq!((found.rtt.unwrap().mean, found.loss.unwrap().lost), (20.6, 1));
    }
}
