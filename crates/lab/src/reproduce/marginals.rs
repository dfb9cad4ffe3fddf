//! What is known of each open setting after a fit, drawn: the share of each value, or of each tenth of a range, in the prior
//! (outlined) and in the last population (filled).

use std::fmt::Write as _;

use super::open::Fitted;

const WIDTH: f64 = 760.0;
const ROW: f64 = 74.0;
const LEFT: f64 = 230.0;
const BAR: f64 = 40.0;

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// As many letters as fit.
fn short(text: &str, width: f64) -> String {
    let most = (width / 5.2) as usize;
    if text.chars().count() <= most {
        return text.into();
    }
    text.chars().take(most.saturating_sub(1)).chain(['\u{2026}']).collect()
}

/// The picture; empty if the fit kept no shares.
pub(super) fn svg(fit: &Fitted) -> String {
    let drawn: Vec<_> = fit.values.iter().filter(|value| !value.marginal.is_empty()).collect();
    if drawn.is_empty() {
        return String::new();
    }
    let height = 34.0 + ROW * drawn.len() as f64;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"11\" \
         fill=\"#718096\"><title>Open settings: prior and last population</title>\n<text x=\"8\" y=\"18\" font-size=\"14\">Open \
         settings: prior (outlined) and last population (filled)</text>\n"
    );
    for (place, value) in drawn.iter().enumerate() {
        let base = 34.0 + ROW * place as f64 + BAR + 8.0;
        let step = (WIDTH - LEFT - 16.0) / value.marginal.len() as f64;
        let most = value.marginal.iter().flat_map(|(_, prior, share)| [*prior, *share]).fold(1e-9, f64::max);
        let _ = writeln!(
            text,
            "<text x=\"8\" y=\"{:.1}\">{}</text>",
            base - 12.0,
            escape(&short(&value.name, LEFT - 12.0))
        );
        for (bin, (label, prior, share)) in value.marginal.iter().enumerate() {
            let (x, width) = (LEFT + step * bin as f64 + 2.0, step - 4.0);
            let (outer, inner) = (BAR * prior / most, BAR * share / most);
            let _ = writeln!(
                text,
                "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{inner:.1}\" fill=\"#2b6cb0\"/><rect x=\"{x:.1}\" \
                 y=\"{:.1}\" width=\"{width:.1}\" height=\"{outer:.1}\" fill=\"none\" stroke=\"#718096\"/><text x=\"{:.1}\" y=\"{:.1}\" \
                 font-size=\"9\" text-anchor=\"middle\">{}</text>",
                base - inner,
                base - outer,
                x + width / 2.0,
                base + 12.0,
                escape(&short(label, width))
            );
        }
    }
    text + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::open::Value;

    #[test]
    fn every_value_has_its_two_bars() {
        let marginal = vec![("a <b>".into(), 0.5, 0.9), ("c".into(), 0.5, 0.1)];
        let value = Value { name: "queue".into(), marginal, ..Value::default() };
        let picture = svg(&Fitted { values: vec![value, Value::default()], ..Fitted::default() });
        assert_eq!(picture.matches("<rect").count(), 4);
        assert!(picture.contains("a &lt;b&gt;") && picture.ends_with("</svg>\n"));
        assert_eq!(svg(&Fitted::default()), "");
    }
}
