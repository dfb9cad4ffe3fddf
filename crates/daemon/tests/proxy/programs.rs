//! Ordinary programs behind the proxy: a browser, downloads in parts.

use std::fmt::Write as _;
use std::process::{Command, Stdio};

use ropewalk_host::skip::skipped;

use crate::far::Far;
use crate::stage::{PROXY, SERVER, Stage};
use crate::{MIB, url};

/// Objects of the page, a third of each kind.
const OBJECTS: usize = 54;

/// Writes a page with scripts, style sheets and images of 1 to 60 KiB, which says in its title how many of
/// them it has got.
fn write_page(stage: &Stage) {
    let folder = stage.path().join("www");
    std::fs::create_dir_all(&folder).unwrap();
    let mut page = String::from("<!doctype html><title>empty</title><script>let scripts = 0</script>\n");
    for at in 0..OBJECTS / 3 {
        let filler = "x".repeat(1024 + at * 3500);
        for (name, text) in [
            (format!("{at}.js"), format!("scripts += 1; // {filler}")),
            (format!("{at}.css"), format!(".c{at} {{ color: red }} /* {filler} */")),
            (
                format!("{at}.svg"),
                format!(
                    "<svg xmlns='http://www.w3.org/2000/svg' width='7' height='7'><!-- {filler} --></svg>"
                ),
            ),
        ] {
            std::fs::write(folder.join(name), text).unwrap();
        }
        writeln!(
            page,
            "<script src='{at}.js'></script><link rel=stylesheet href='{at}.css'><img src='{at}.svg'>"
        )
        .unwrap();
    }
    page += "<script>onload = () => {
        const rules = [...document.styleSheets].filter(sheet => sheet.ownerNode.sheet).length;
        const images = [...document.images].filter(image => image.complete && image.naturalWidth == 7).length;
        document.title = `loaded ${scripts} ${rules} ${images}`;
    }</script>";
    std::fs::write(folder.join("page.html"), page).unwrap();
}

#[test]
fn a_browser_loads_a_page_of_54_objects_through_proxy_and_gateway() {
    let Some(stage) = Stage::new() else { return };
    if Command::new("chromium").arg("--version").stdout(Stdio::null()).status().is_err() {
        skipped("chromium isn't installed");
        return;
    }
    write_page(&stage);
    let _server = stage.nginx(false);
    let far = Far::start(&stage, &[&format!("{SERVER} 80")], &[]);
    let gateway = ["--gateway", "10.1.0.1:5124", "--gateway-cookie", &far.cookie];
    let proxy = stage.proxy(&[&["--json", "--verbose"], &gateway[..]].concat());
    let profile = stage.path().join("profile");
    let mut browser = stage.van.command("timeout");
    browser.args(["30", "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]);
    browser.args([
        "--disable-background-networking",
        "--disable-dev-shm-usage",
        "--timeout=20000",
        "--dump-dom",
    ]);
    browser.arg(format!("--user-data-dir={}", profile.display()));
    browser.args([format!("--proxy-server=socks5://{PROXY}"), url("page.html")]);
    let output = browser.output().unwrap();
    let (page, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let each = OBJECTS / 3;
    let expected = format!("<title>loaded {each} {each} {each}</title>");
    assert!(
        page.contains(&expected),
        "no `{expected}`: {} {errors} {}",
        &page[..page.len().min(200)],
        stage.log()
    );
    assert!(stage.log().contains("\"multipath\":true"), "{}", stage.log());
    assert!(proxy.terminate().success() && far.gateway.terminate().success());
}

#[test]
fn parts_of_a_file_are_downloaded_at_once() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", 8 * MIB);
    let _server = stage.nginx(true);
    let _proxy = stage.proxy(&["--json", "--verbose"]);
    let by = format!("socks5h://{PROXY}");
    let start = [stage.received(0), stage.received(1)];
    let part = data.len() / 8;
    let parts: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let (stage, by) = (&stage, &by);
        let running: Vec<_> = (0..8)
            .map(|at| {
                let range = format!("{}-{}", at * part, (at + 1) * part - 1);
                scope.spawn(move || stage.curl(&["--proxy", by, "-r", &range, &url("data")]))
            })
            .collect();
        let ended = running.into_iter().map(|curl| curl.join().unwrap());
        ended
            .map(|(code, received)| {
                assert_eq!(code, 0, "{}", stage.log());
                received
            })
            .collect()
    });
    assert!(parts.concat() == data, "{}", stage.log());
    for (link, start) in start.into_iter().enumerate() {
        assert!(stage.received(link) - start > MIB as u64, "uplink {link}: {}", stage.log());
    }
}
