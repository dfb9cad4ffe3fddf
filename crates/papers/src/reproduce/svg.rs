//! What the drawings share: text that has to fit.

/// Text in an SVG element.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Letters that fit into so many units. A viewer may have any sans-serif font: this is the width of a wide
/// one.
pub(super) fn letters(width: f64, font_size: f64) -> usize {
    (width / (font_size * 0.56)) as usize
}

/// Breaks text between words into lines of at most so many letters. A word that is longer is cut, and ends
/// with an ellipsis.
pub(super) fn wrap(text: &str, most: usize) -> Vec<String> {
    let most = most.max(1);
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let count = word.chars().count();
        let word: String = if count <= most {
            word.into()
        } else {
            word.chars().take(most - 1).chain(['\u{2026}']).collect()
        };
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= most => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_between_words() {
        assert_eq!(wrap("6.55 Mbit/s", 7), ["6.55", "Mbit/s"]);
        assert_eq!(wrap("a b c", 3), ["a b", "c"]);
        assert_eq!(wrap("abcdef g", 4), ["abc\u{2026}", "g"]);
        assert!(wrap("", 4).is_empty());
    }

    #[test]
    fn markup_is_text() {
        assert_eq!(escape("a < b & c"), "a &lt; b &amp; c");
    }
}
