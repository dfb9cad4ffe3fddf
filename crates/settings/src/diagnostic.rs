//! Errors in input: where, what was found, what is allowed.
//!
//! A [`Diagnostic`] points into a [`Source`] (a file, or a command-line argument) by byte range. An
//! [`InputError`] is one or more of them: all errors of a file are reported at once. `annotate-snippets`,
//! rustc's renderer, draws them.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use annotate_snippets::{Annotation, AnnotationKind, Level, Renderer, Snippet};
use serde_json::{Value, json};

/// An input text, and its name in messages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    /// A path, or `--path`.
    pub name: String,
    /// All of it, or the part that is shown.
    pub text: String,
    /// The number of its first line.
    pub first_line: usize,
}

impl Source {
    /// A new source, shared by its diagnostics.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Arc<Source> {
        Source::from_line(name, text, 1)
    }

    /// A part of a long text, from this line on.
    pub fn from_line(name: impl Into<String>, text: impl Into<String>, first_line: usize) -> Arc<Source> {
        Arc::new(Source { name: name.into(), text: text.into(), first_line })
    }

    /// Line and column of a byte offset, both from 1; the column counts characters.
    pub fn line_and_column(&self, offset: usize) -> (usize, usize) {
        let mut offset = offset.min(self.text.len());
        while !self.text.is_char_boundary(offset) {
            offset -= 1;
        }
        let before = &self.text[..offset];
        let line_start = before.rfind('\n').map_or(0, |i| i + 1);
        (before.matches('\n').count() + self.first_line, before[line_start..].chars().count() + 1)
    }
}

/// One error.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Diagnostic {
    /// What is wrong, in one line.
    pub message: String,
    /// The source and byte range; `None` if there is none (a missing file).
    pub place: Option<(Arc<Source>, Range<usize>)>,
    /// The label beside the caret.
    pub label: String,
    /// Another related range of the same source, and its label.
    pub other: Option<Box<(Range<usize>, String)>>,
    /// What is allowed, or what to do.
    pub help: Vec<String>,
}

impl Diagnostic {
    /// An error without a place.
    pub fn new(message: impl Into<String>) -> Self {
        Diagnostic {
            message: message.into(),
            place: None,
            label: String::new(),
            other: None,
            help: Vec::new(),
        }
    }

    /// Points at bytes `span` of `source`.
    pub fn at(mut self, source: &Arc<Source>, span: Range<usize>) -> Self {
        let end = source.text.len();
        let start = span.start.min(end);
        self.place = Some((source.clone(), start..span.end.clamp(start, end)));
        self
    }

    /// The label beside the caret.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// Also shows another range of the same source.
    pub fn other(mut self, span: Range<usize>, label: impl Into<String>) -> Self {
        self.other = Some(Box::new((span, label.into())));
        self
    }

    /// What is allowed, or what to do; an empty text adds nothing.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        let help = help.into();
        if !help.is_empty() {
            self.help.push(help);
        }
        self
    }

    fn render(&self, renderer: &Renderer) -> String {
        let mut group =
            Level::ERROR.primary_title(self.message.as_str()).elements(None::<Snippet<'_, Annotation<'_>>>);
        if let Some((source, span)) = &self.place {
            let mut mark = AnnotationKind::Primary.span(span.clone());
            if !self.label.is_empty() {
                mark = mark.label(self.label.as_str());
            }
            let mut snippet = Snippet::source(source.text.as_str())
                .line_start(source.first_line)
                .path(source.name.as_str())
                .annotation(mark);
            if let Some((span, label)) = self.other.as_deref() {
                snippet =
                    snippet.annotation(AnnotationKind::Context.span(span.clone()).label(label.as_str()));
            }
            group = group.element(snippet);
        }
        for help in &self.help {
            group = group.element(Level::HELP.message(help.as_str()));
        }
        renderer.render(&[group])
    }
}

/// All errors of an input.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct InputError {
    /// The errors, in the order in which they were found; at least one.
    pub diagnostics: Vec<Diagnostic>,
}

impl InputError {
    /// Attaches errors without a place to this argument, which names what can't be found or read.
    pub fn of_argument(mut self, option: &str, text: &str) -> Self {
        for diagnostic in self.diagnostics.iter_mut().filter(|diagnostic| diagnostic.place.is_none()) {
            diagnostic.place = Some((Source::new(option, text), 0..text.len()));
            diagnostic.label = "named here".into();
        }
        self
    }

    /// For programs: each error's file, line and column (from 1), message, label and help.
    pub fn json(&self) -> Value {
        let one = |diagnostic: &Diagnostic| {
            let at =
                diagnostic.place.as_ref().map(|(source, span)| (source, source.line_and_column(span.start)));
            json!({
                "file": at.map(|(source, _)| source.name.as_str()),
                "line": at.map(|(_, (line, _))| line),
                "column": at.map(|(_, (_, column))| column),
                "message": diagnostic.message,
                "found": Some(diagnostic.label.trim_start_matches("found "))
                    .filter(|label| !label.is_empty()),
                "expected": Some(diagnostic.help.join("; ")).filter(|help| !help.is_empty()),
            })
        };
        json!(self.diagnostics.iter().map(one).collect::<Vec<_>>())
    }

    /// For a terminal: each error with its line. `styled`: with ANSI colours.
    pub fn render(&self, styled: bool) -> String {
        let renderer = if styled { Renderer::styled() } else { Renderer::plain() };
        let parts: Vec<_> = self.diagnostics.iter().map(|d| d.render(&renderer)).collect();
        parts.join("\n\n")
    }
}

impl From<Diagnostic> for InputError {
    fn from(diagnostic: Diagnostic) -> Self {
        InputError { diagnostics: vec![diagnostic] }
    }
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, d) in self.diagnostics.iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            if let Some((source, span)) = &d.place {
                let (line, column) = source.line_and_column(span.start);
                write!(f, "{}:{line}:{column}: ", source.name)?;
            }
            write!(f, "{}", d.message)?;
            if !d.label.is_empty() {
                write!(f, " ({})", d.label)?;
            }
            if let (Some((source, _)), Some((span, label))) = (&d.place, d.other.as_deref()) {
                let (line, column) = source.line_and_column(span.start);
                write!(f, "; {label} at {line}:{column}")?;
            }
            for help in &d.help {
                write!(f, "; {help}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for InputError {}

/// The system's error message without its number.
pub fn system_reason(error: &std::io::Error) -> String {
    use std::io::ErrorKind;
    match error.kind() {
        ErrorKind::NotFound => "there is no such file".into(),
        ErrorKind::PermissionDenied => "permission denied".into(),
        ErrorKind::InvalidData => "it is not text".into(),
        ErrorKind::IsADirectory => "it is a folder".into(),
        ErrorKind::NotADirectory => "a part of the path is not a folder".into(),
        ErrorKind::StorageFull => "no space left on the disk".into(),
        ErrorKind::QuotaExceeded => "the disk quota is used up".into(),
        ErrorKind::FileTooLarge => "the file may not grow any larger".into(),
        ErrorKind::ReadOnlyFilesystem => "the file system is read-only".into(),
        _ => {
            let text = error.to_string();
            text.split_once(" (os error").map_or(text.clone(), |(reason, _)| reason.to_string())
        }
    }
}

/// The word of `known` nearest to `word`, if one is similar enough.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    known
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(&word, &candidate.to_lowercase()), candidate))
        .filter(|(score, _)| *score > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// "did you mean `x`?", or an empty text.
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, known).map_or(String::new(), |found| format!("did you mean `{found}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_and_column_count_from_one_and_in_characters() {
        let source = Source::new("f", "a\nµs 5\n");
        assert_eq!(source.line_and_column(0), (1, 1));
        let five = source.text.find('5').unwrap();
        assert_eq!(source.line_and_column(five), (2, 4));
        assert_eq!(source.line_and_column(1000), (3, 1));
    }

    #[test]
    fn a_part_has_the_lines_of_the_whole() {
        let source = Source::from_line("t.down", "x", 7);
        let error = InputError::from(Diagnostic::new("odd").at(&source, 0..1));
        assert!(error.to_string().starts_with("t.down:7:1: odd"), "{error}");
        assert!(error.render(false).contains("t.down:7:1"), "{}", error.render(false));
    }

    #[test]
    fn a_span_past_the_end_is_drawn_at_the_end() {
        let source = Source::new("f", "abc");
        let text = InputError::from(Diagnostic::new("odd").at(&source, 10..20)).render(false);
        assert!(text.contains("odd"), "{text}");
    }

    #[test]
    fn suggestions_need_likeness() {
        assert_eq!(nearest("dealy", ["delay", "rate"]), Some("delay"));
        assert_eq!(nearest("xyzzy", ["delay", "rate"]), None);
    }
}
