//! What is known of each open setting after a fit, drawn: the share of each value, or of each tenth of a
//! range, in the prior (outlined) and in the last population (filled).

use std::fmt::Write as _;

use super::open::Fitted;
use super::svg::{escape, letters, wrap};

const WIDTH: f64 = 760.0;
const LEFT: f64 = 200.0;
const BAR: f64 = 40.0;
const FONT: f64 = 11.0;
const SMALL: f64 = 9.0;
/// Above the bars: their shares; below: between one setting and the next.
const ABOVE: f64 = 14.0;
const BELOW: f64 = 12.0;
const LINE: f64 = 11.0;

/// The picture; empty if the fit kept no shares.
pub(super) fn svg(fit: &Fitted) -> String {
    let drawn: Vec<_> = fit.values.iter().filter(|value| !value.marginal.is_empty()).collect();
    if drawn.is_empty() {
        return String::new();
    }
    let mut text = String::new();
    let mut top = 34.0;
    for value in drawn {
        let base = top + ABOVE + BAR;
        let step = (WIDTH - LEFT - 16.0) / value.marginal.len() as f64;
        let most = value.marginal.iter().flat_map(|(_, prior, share)| [*prior, *share]).fold(1e-9, f64::max);
        let name = wrap(&value.name, letters(LEFT - 16.0, FONT));
        for (line, words) in name.iter().enumerate() {
            let at = base - BAR / 2.0 + 13.0 * (line as f64 - (name.len() as f64 - 1.0) / 2.0) + 4.0;
            let _ = writeln!(text, "<text x=\"8\" y=\"{at:.1}\">{}</text>", escape(words));
        }
        let mut deepest = 0;
        for (bin, (label, prior, share)) in value.marginal.iter().enumerate() {
            let (x, width) = (LEFT + step * bin as f64 + 2.0, step - 4.0);
            let (outer, inner) = (BAR * prior / most, BAR * share / most);
            let middle = x + width / 2.0;
            let small = format!("font-size=\"{SMALL}\" text-anchor=\"middle\"");
            let _ = writeln!(
                text,
                "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{inner:.1}\" \
                 fill=\"#2b6cb0\"/><rect x=\"{x:.1}\" \
                 y=\"{:.1}\" width=\"{width:.1}\" height=\"{outer:.1}\" fill=\"none\" \
                 stroke=\"#dd6b20\"/><text x=\"{middle:.1}\" \
                 y=\"{:.1}\" {small}>{:.0} %</text>",
                base - inner,
                base - outer,
                base - inner.max(outer) - 3.0,
                // A share of none may be negative zero.
                libm::round(share * 100.0) + 0.0
            );
            let lines = wrap(label, letters(step - 6.0, SMALL));
            for (line, words) in lines.iter().enumerate() {
                let at = base + LINE * (line as f64 + 1.0);
                let _ =
                    writeln!(text, "<text x=\"{middle:.1}\" y=\"{at:.1}\" {small}>{}</text>", escape(words));
            }
            deepest = deepest.max(lines.len());
        }
        top = base + LINE * deepest as f64 + BELOW;
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {top}\" font-family=\"sans-serif\" \
         font-size=\"{FONT}\" \
         fill=\"#718096\"><title>Open settings: prior and last population</title>\n<text x=\"8\" y=\"18\" \
         font-size=\"14\">Open \
         settings: prior (outlined) and last population (filled, with its share)</text>\n{text}</svg>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::open::Value;
    use crate::reproduce::{NAMES, load};

    #[test]
    fn every_value_has_its_two_bars() {
        let marginal = vec![("a <b>".into(), 0.5, 0.9), ("c".into(), 0.5, 0.1)];
        let value = Value { name: "queue".into(), marginal, ..Value::default() };
        let picture = svg(&Fitted { values: vec![value, Value::default()], ..Fitted::default() });
        assert_eq!(picture.matches("<rect").count(), 4);
        assert!(
            picture.contains("a &lt;b&gt;") && picture.ends_with("</svg>\n") && picture.contains(">90 %<")
        );
        assert_eq!(svg(&Fitted::default()), "");
    }

    /// Names end before the bars begin, and a bar's label before the next one's begins.
    #[test]
    fn labels_of_the_papers_fits_are_whole_and_beside_each_other() {
        let mut seen = 0;
        for name in NAMES {
            let Some(fit) = load(name).unwrap().unwrap().fitted else { continue };
            let picture = svg(&fit);
            assert!(!picture.contains('\u{2026}'), "{name}: a label is cut off");
            for value in &fit.values {
                let step = (WIDTH - LEFT - 16.0) / value.marginal.len().max(1) as f64;
                for line in wrap(&value.name, letters(LEFT - 16.0, FONT)) {
                    assert!(8.0 + 0.56 * FONT * line.chars().count() as f64 <= LEFT, "{line}");
                }
                for line in value.marginal.iter().flat_map(|bin| wrap(&bin.0, letters(step - 6.0, SMALL))) {
                    assert!(0.62 * SMALL * line.chars().count() as f64 <= step, "{line}");
                    seen += 1;
                }
            }
        }
        assert!(seen > 50);
    }
}
