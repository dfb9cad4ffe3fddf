//! Self-contained HTML pages: a frame of HTML, style, libraries and program from `web/`, and the document between them.
#![forbid(unsafe_code)]

use serde_json::Value;

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
    include_str!("../../../web/src/sweep.js"),
    include_str!("../../../web/src/reproduction.js"),
    include_str!("../../../web/src/page.js"),
];

/// The program of a page that asks a running proxy or gateway for its state.
const LIVE_PROGRAM: &[&str] = &[
    include_str!("../../../web/src/numbers.js"),
    include_str!("../../../web/src/base.js"),
    include_str!("../../../web/src/status.js"),
];

/// One self-contained page about a document.
pub fn page(document: &Value) -> String {
    let title = ["title", "scenario"].iter().find_map(|key| document.get(*key)?.as_str()).unwrap_or("Report");
    assemble(title, document, LIBRARIES, PROGRAM, false)
}

/// A page that asks for what it shows: `state`, beside it.
pub fn live_page(title: &str) -> String {
    assemble(title, &Value::Null, &[], LIVE_PROGRAM, true)
}

fn assemble(title: &str, document: &Value, libraries: &[&str], program: &[&str], is_live: bool) -> String {
    let mut page = String::with_capacity(1 << 20);
    let mut rest = FRAME;
    while let Some((before, after)) = rest.split_once("<!--[") {
        page += before;
        let Some((place, after)) = after.split_once("]-->") else { break };
        match place {
            "title" => page += &escaped(title),
            "style" => page += STYLE,
            "connect" if is_live => page += "; connect-src 'self'",
            "instead" if is_live => page += " `ropewalkd status` tells the same.",
            "instead" => page += " The numbers are in the page's source, as JSON.",
            "libraries" => {
                for library in libraries {
                    page += &format!("<script>{}</script>\n", as_script(library));
                }
            }
            "document" => page += &as_script(&document.to_string()),
            "program" => {
                for part in program {
                    page += &as_script(part);
                }
            }
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

/// Text inside a `script` element must neither end it nor open a comment. Both sequences can only be inside strings
/// (or comments) here, where a backslash before the second character changes nothing.
fn as_script(text: &str) -> String {
    text.replace("</", "<\\/").replace("<!--", "<\\!--")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
    fn a_page_needs_no_network() {
        let page = page(&json!({ "scenario": "x" }));
        for outside in ["src=\"http", "href=\"http", "url(http", "@import"] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert!(page.contains("default-src 'none'"));
    }
}
