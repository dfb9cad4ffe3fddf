//! Self-contained HTML pages: a frame of HTML, style, libraries and program from `web/`, and the document
//! between them.
#![forbid(unsafe_code)]

use base64::Engine as _;
use serde_json::{Value, json};

const FRAME: &str = include_str!("../../../web/src/page.html");
const STYLE: &str = include_str!("../../../web/src/style.css");

/// Libraries, as their authors publish them; their licences stand beside them in `web/vendor`.
const LIBRARIES: &[&str] =
    &[include_str!("../../../web/vendor/d3.min.js"), include_str!("../../../web/vendor/plot.umd.min.js")];

/// Our own program, in the order in which its parts build on each other.
const PROGRAM: &[&str] = &[
    include_str!("../../../web/src/numbers.js"),
    include_str!("../../../web/src/base.js"),
    include_str!("../../../web/src/download.js"),
    include_str!("../../../web/src/charts.js"),
    include_str!("../../../web/src/ranking.js"),
    include_str!("../../../web/src/distribution.js"),
    include_str!("../../../web/src/heat.js"),
    include_str!("../../../web/src/svg-context.js"),
    include_str!("../../../web/src/rope-data.js"),
    include_str!("../../../web/src/rope-draw.js"),
    include_str!("../../../web/src/rope-view.js"),
    include_str!("../../../web/src/address.js"),
    include_str!("../../../web/src/sweep.js"),
    include_str!("../../../web/src/reproduction.js"),
    include_str!("../../../web/src/page.js"),
    include_str!("../../../web/src/report.js"),
];

/// What the playground has instead of a report's last part.
const PLAYGROUND: &[&str] = &[
    include_str!("../../../web/src/laboratory.js"),
    include_str!("../../../web/src/timeline.js"),
    include_str!("../../../web/src/sliders.js"),
    include_str!("../../../web/src/rule.js"),
    include_str!("../../../web/src/question.js"),
    include_str!("../../../web/src/playground.js"),
];

/// A worker of the playground.
const WORKER: &str = include_str!("../../../web/src/worker.js");

/// The program of a page that asks a running proxy or gateway for its state.
const LIVE_PROGRAM: &[&str] = &[
    include_str!("../../../web/src/numbers.js"),
    include_str!("../../../web/src/base.js"),
    include_str!("../../../web/src/status.js"),
];

/// What differs between pages.
struct Parts<'a> {
    title: &'a str,
    document: &'a Value,
    libraries: &'a [&'a str],
    program: &'a [&'a str],
    /// More sources that scripts may come from.
    script: &'a str,
    /// Further directives of the page's content security policy.
    allowed: &'a str,
    /// What tells the same without JavaScript.
    instead: &'a str,
    /// What follows the program.
    engine: &'a str,
}

/// One self-contained page about a document.
pub fn page(document: &Value) -> String {
    let title = ["title", "scenario"].iter().find_map(|key| document.get(*key)?.as_str()).unwrap_or("Report");
    assemble(&Parts {
        title,
        document,
        libraries: LIBRARIES,
        program: PROGRAM,
        script: "",
        allowed: "",
        instead: " The numbers are in the page's source, as JSON.",
        engine: "",
    })
}

/// A page that asks for what it shows: `state`, beside it.
pub fn live_page(title: &str) -> String {
    assemble(&Parts {
        title,
        document: &Value::Null,
        libraries: &[],
        program: LIVE_PROGRAM,
        script: "",
        allowed: "; connect-src 'self'",
        instead: " `ropewalkd status` tells the same.",
        engine: "",
    })
}

/// The laboratory in a page. `engine`: its WebAssembly module, packed by gzip; `asked`: what its fields hold
/// at first, by name.
pub fn playground(engine: &[u8], asked: &Value) -> String {
    let shared = PROGRAM.len() - 1;
    let engine = format!(
        "<script type=\"text/plain\" id=\"worker\">{}</script>\n<script type=\"text/plain\" \
         id=\"engine\">{}</script>",
        as_script(WORKER),
        base64::engine::general_purpose::STANDARD.encode(engine)
    );
    assemble(&Parts {
        title: "Playground",
        document: &json!({ "kind": "playground", "asked": asked }),
        libraries: LIBRARIES,
        program: &[&PROGRAM[..shared], PLAYGROUND].concat(),
        script: " 'wasm-unsafe-eval'",
        allowed: "; worker-src blob:",
        instead: " `ropewalk compare` answers the same questions.",
        engine: &engine,
    })
}

fn assemble(parts: &Parts<'_>) -> String {
    let mut page = String::with_capacity(1 << 20);
    let mut rest = FRAME;
    while let Some((before, after)) = rest.split_once("<!--[") {
        page += before;
        let Some((place, after)) = after.split_once("]-->") else { break };
        match place {
            "title" => page += &escaped(parts.title),
            "style" => page += STYLE,
            "script" => page += parts.script,
            "allowed" => page += parts.allowed,
            "instead" => page += parts.instead,
            "libraries" => {
                for library in parts.libraries {
                    page += &format!("<script>{}</script>\n", as_script(library));
                }
            }
            "document" => page += &as_script(&parts.document.to_string()),
            "program" => {
                for part in parts.program {
                    page += &as_script(part);
                }
            }
            "engine" => page += parts.engine,
            _ => {}
        }
        rest = after;
    }
    page + rest
}

/// Text between tags.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Text inside a `script` element must neither end it nor open a comment. Both sequences can only be inside
/// strings (or comments) here, where a backslash before the second character changes nothing.
fn as_script(text: &str) -> String {
    text.replace("</", "<\\/").replace("<!--", "<\\!--")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_cannot_leave_its_element() {
        let hostile = "</script><script>alert(1)</script><!-- &";
        let page = page(&json!({ "scenario": hostile, "kind": "comparison" }));
        assert!(!page.contains("alert(1)</script>"));
        assert!(page.contains("<title>&lt;/script&gt;"));
        assert!(!page.contains("<!--["));
    }

    #[test]
    fn a_live_page_asks_its_own_server_only() {
        let page = live_page("Status");
        assert!(page.contains("connect-src 'self'") && page.len() < 100_000, "{} bytes", page.len());
        assert!(!page.contains("<!--["));
        assert!(!super::page(&json!({ "scenario": "x" })).contains("connect-src"));
    }

    #[test]
    fn pages_need_no_network() {
        let playground = playground(&[0x1f, 0x8b], &json!({ "links": "</script>" }));
        assert!(playground.contains("id=\"engine\">H4s=</script>") && !playground.contains("<!--["));
        for page in [page(&json!({ "scenario": "x" })), playground] {
            needs_no_network(&page);
        }
    }

    fn needs_no_network(page: &str) {
        for outside in ["src=\"http", "href=\"http", "url(http", "@import"] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert!(page.contains("default-src 'none'"));
    }
}
