//! The configuration: one TOML file. Errors have the file, the line and the column, what was found and what
//! is allowed.

#[cfg(test)]
mod heard;
mod inbound;
mod listener;
pub mod proxy;
#[cfg(test)]
mod settings_page;
mod values;

use std::io::Read;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ropewalk_algorithms::Registries;
use ropewalk_engine::{SECOND, Span};
use ropewalk_settings::diagnostic::{Diagnostic, InputError, Source, system_reason};
use ropewalk_settings::read::{Reader, Table, Value, document};
use ropewalk_settings::schema::schema_of;
use ropewalk_settings::shape::{Field, Files, Kind, Shape, key};
use ropewalk_settings::written::Written;
use ropewalk_tokio::EndpointConfig;
use toml::de::DeTable;

use crate::confine::folder_of;
use crate::gateway::{Listener, Settings};
use crate::metrics;
use crate::page::Page;
use crate::status::Location;
use crate::tunnel::ports::PortGrant;

/// Most bytes of a file.
const LARGEST_FILE: u64 = 1 << 20;
/// Most listeners.
const MOST_LISTENERS: usize = 256;

// What gateway and proxy have alike.
const MEMORY: Field = key(
    "memory",
    Kind::Bytes(1 << 20, 1 << 40),
    "From half of it on connections that make no progress are reset; beyond it new ones",
)
.default("1 GiB")
.restart();
const STALLED: Field = key(
    "stalled",
    Kind::TimeWithin(SECOND, Span::from_secs(24 * 3600)),
    "A connection is reset whose far end takes nothing of what waits for it for so long",
)
.default("15 min")
.restart();
const DRAIN: Field =
    key("drain", Kind::Time, "How long connections may go on after SIGTERM").default("30 s").reload();
const METRICS: Field = key("metrics", Kind::Socket, "Address and port for Prometheus, on loopback").restart();
const PAGE: Field =
    key("page", Kind::Socket, "Address and port of the status page: `127.0.0.1:9466`").restart();
const PAGE_TOKEN: Field = key(
    "page-token",
    Kind::File,
    "A file with what `?token=` of its address has to be, mode 0600 (`ropewalkd keys cookie`); needed \
     beyond loopback",
)
.files(Files::Read)
.restart();

const GATEWAY: Shape = Shape {
    name: "gateway",
    summary: "The gateway as a whole",
    fields: &[
        key("cores", Kind::Integer(1, 64), "Queues of each device, and drivers of the engine")
            .default("1")
            .restart(),
        DRAIN,
        key("connections", Kind::Integer(1, 1_000_000), "Most connections of all listeners")
            .default("20000")
            .only_in_files()
            .restart(),
        key(
            "half-open",
            Kind::Integer(1, 1_000_000),
            "Most handshakes at a time; beyond it SYN cookies are used",
        )
        .default("1024")
        .restart(),
        MEMORY,
        STALLED,
        key("status", Kind::Text, "The Unix socket that `ropewalkd status` asks, or `none`")
            .otherwise(ropewalk_status::OF_GATEWAY)
            .value("PATH")
            .restart(),
        METRICS,
        PAGE,
        PAGE_TOKEN,
    ],
};

const FILE: Shape = Shape {
    name: "configuration",
    summary: "The configuration of `ropewalkd gateway`",
    fields: &[
        key("gateway", Kind::Table(&GATEWAY), "The gateway as a whole"),
        key(
            "listener",
            Kind::Tables(&listener::LISTENER),
            "Where clients connect, and where they are forwarded",
        ),
    ],
};

/// The tables whose keys a command line may have: it has one listener.
pub const TABLES: &[(&str, &Shape)] = &[("[[listener]]", &listener::LISTENER), ("[gateway]", &GATEWAY)];

/// The JSON Schema of the file (draft 2020-12).
pub fn schema() -> serde_json::Value {
    schema_of(&FILE, "Ropewalk gateway")
}

/// Reads a configuration.
///
/// # Errors
/// A file that can't be read, or mistakes in it: all of them.
pub fn load(path: &Path, registries: &Registries) -> Result<Settings, InputError> {
    parse(&open(path)?, &folder_of(path), registries)
}

/// Reads a file.
fn open(path: &Path) -> Result<Arc<Source>, InputError> {
    let shown = path.display().to_string();
    let unreadable =
        |reason: String| Diagnostic::new(format!("can't read the configuration `{shown}`: {reason}"));
    let mut text = String::new();
    let read =
        std::fs::File::open(path).and_then(|file| file.take(LARGEST_FILE + 1).read_to_string(&mut text));
    read.map_err(|error| unreadable(system_reason(&error)))?;
    if text.len() as u64 > LARGEST_FILE {
        return Err(unreadable("it is larger than 1 MiB".into()).into());
    }
    Ok(Source::new(shown, text))
}

/// Parses a configuration. Relative names of files are relative to `folder`.
///
/// # Errors
/// All mistakes in it.
pub fn parse(source: &Arc<Source>, folder: &Path, registries: &Registries) -> Result<Settings, InputError> {
    document(source, folder, |reader, document, first_line| {
        settings(reader, document, first_line, registries)
    })
}

/// Reads what a command line says: options by the names of their keys.
///
/// # Errors
/// All mistakes in it.
pub fn of_options(written: &Written, registries: &Registries) -> Result<Settings, InputError> {
    written.read(|reader, document, first_line| settings(reader, document, first_line, registries))
}

fn settings(
    reader: &mut Reader,
    document: &DeTable<'_>,
    first_line: Range<usize>,
    registries: &Registries,
) -> Settings {
    let file = reader.check(&FILE, document, first_line.clone(), None);
    let none = DeTable::new();
    let table = file.get("gateway").and_then(|value| reader.table(&GATEWAY, value));
    let table = table.unwrap_or_else(|| reader.check(&GATEWAY, &none, first_line.clone(), None));
    let mut settings = gateway(reader, &table);
    let tables = reader.array(&file, "listener");
    let mut inbound: Vec<(Range<usize>, PortGrant)> = Vec::new();
    for value in tables {
        if let Some(table) = reader.table(&listener::LISTENER, value)
            && let Some(listener) = listener::read(reader, &table, registries)
        {
            check_alone(reader, &table, &listener, &settings.listeners);
            let given = inbound::grants(reader, &table, &listener);
            inbound.extend(given.into_iter().map(|one| (table.place("inbound"), one)));
            settings.listeners.push(listener);
        }
    }
    inbound::check(reader, &inbound, &settings.listeners);
    settings.inbound = inbound.into_iter().map(|(_, given)| given).collect();
    if tables.is_empty() {
        let help = "as in:\n[[listener]]\nlisten = \"192.0.2.1:443\"\nto = \"127.0.0.1:8443\"\nor --listen \
                    192.0.2.1:443 --to 127.0.0.1:8443";
        reader.wrong(first_line, "a gateway needs a listener", "no `[[listener]]` in this file", help);
    } else if tables.len() > MOST_LISTENERS {
        let message = format!("{} listeners: at most {MOST_LISTENERS} are allowed", tables.len());
        reader.wrong(file.place("listener"), message, "here", "");
    }
    settings.reads = folders_read(reader);
    settings
}

/// The folders of what it says: its own, and those of the files that it names.
fn folders_read(reader: &Reader) -> Vec<PathBuf> {
    let named = reader.files.iter().map(|file| folder_of(file));
    // Options on a command line are in no folder.
    Some(&reader.folder)
        .filter(|folder| !folder.as_os_str().is_empty())
        .cloned()
        .into_iter()
        .chain(named)
        .collect()
}

/// Two listeners don't share an address and port, nor a name.
fn check_alone(reader: &mut Reader, table: &Table<'_>, listener: &Listener, others: &[Listener]) {
    for other in others {
        if let Some(socket) = listener.sockets().find(|socket| other.sockets().any(|taken| taken == *socket))
        {
            let label = format!("`{}` has it already", other.name);
            reader.wrong(table.place("listen"), format!("two listeners at {socket}"), label, "");
        } else if listener.name == other.name {
            reader.wrong(
                table.place("name"),
                format!("two listeners are named `{}`", other.name),
                "again here",
                "",
            );
        }
    }
}

fn gateway(reader: &mut Reader, table: &Table<'_>) -> Settings {
    let memory = reader.with_default(table, "memory", Reader::bytes);
    let endpoint = EndpointConfig {
        max_connections: reader.with_default(table, "connections", Reader::integer) as usize,
        max_time_wait: crate::memory::most_in_time_wait(memory),
        backlog: reader.with_default(table, "half-open", Reader::integer) as usize,
        ..EndpointConfig::default()
    };
    Settings {
        listeners: Vec::new(),
        inbound: Vec::new(),
        cores: reader.with_default(table, "cores", Reader::integer) as usize,
        endpoint,
        drain: reader.with_default(table, "drain", Reader::time).into(),
        memory,
        stalled: reader.with_default(table, "stalled", Reader::time).into(),
        status: status(reader, table),
        metrics: table.get("metrics").and_then(|value| loopback(reader, value)),
        page: page(reader, table),
        reads: Vec::new(),
        fixed: table.fixed(),
    }
}

/// Most connections of one address; where the file says nothing: half of all, and at least 100.
fn per_address(reader: &mut Reader, table: &Table<'_>, connections: u64) -> usize {
    reader.integer(table, "connections-per-address").unwrap_or((connections / 2).max(100)) as usize
}

/// Where the status socket is.
fn status(reader: &mut Reader, table: &Table<'_>) -> Location {
    match table.get("status").and_then(|value| reader.text(value)) {
        None => Location::default_of(table.shape.field("status").otherwise),
        Some("none") => Location::None,
        Some(text) => Location::Path(reader.folder.join(text)),
    }
}

/// Where the status page is.
fn page(reader: &mut Reader, table: &Table<'_>) -> Option<Page> {
    let value = table.get("page")?;
    let address = socket(reader, value)?;
    let token = match table.get("page-token") {
        None => None,
        Some(value) => Some(token(reader, value)?),
    };
    let page = Page { address, token };
    if let Err(error) = page.check() {
        let help = "`ropewalkd keys cookie page-token` makes a file for `page-token`";
        reader.wrong(value.span(), error.to_string(), "here", help);
    }
    Some(page)
}

/// The status page's token, from a file that others can't read.
fn token(reader: &mut Reader, value: &Value<'_>) -> Option<String> {
    let name = reader.text(value)?;
    let path = reader.file(name);
    let found = crate::secret::read(&path, 4096).map(|text| text.trim().to_string());
    let wrong = |error| match error {
        crate::secret::ReadError::Unreadable(error) => format!("can't read the page's token: {error}"),
        crate::secret::ReadError::Exposed(mode) => {
            format!(
                "others can read the page's token (mode {mode:o}): `chmod 600` it, and make a new one if \
                 somebody has"
            )
        }
    };
    found.map_err(|error| reader.wrong(value.span(), wrong(error), "this file", "")).ok()
}

/// Where metrics are told.
fn loopback(reader: &mut Reader, value: &Value<'_>) -> Option<SocketAddr> {
    let found = socket(reader, value)?;
    if metrics::check(found).is_err() {
        let help =
            "a loopback address such as 127.0.0.1:9464: metrics tell who connects, and have no password";
        reader.wrong(value.span(), "metrics are for this host only", "not a loopback address", help);
    }
    Some(found)
}

/// An address and a port.
fn socket(reader: &mut Reader, value: &Value<'_>) -> Option<SocketAddr> {
    let text = reader.text(value)?;
    let found = text.trim().parse::<SocketAddr>().ok().filter(|socket| socket.port() != 0);
    if found.is_none() {
        let help = "such as \"192.0.2.1:443\" or \"[2001:db8::1]:443\"";
        reader.wrong(value.span(), "expected an address and a port", format!("found `{text}`"), help);
    }
    found
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn read(text: &str) -> Result<Settings, String> {
        let source = Source::new("g.toml", text);
        parse(&source, Path::new(""), &Registries::builtin()).map_err(|error| error.to_string())
    }

    const LISTENER: &str = "[[listener]]\nlisten = '192.0.2.1:443'\nto = '127.0.0.1:8443'\n";

    #[test]
    fn a_listener_may_have_destinations_instead_of_a_server() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cookie");
        Cookie::generate(&path).unwrap();
        let text = format!(
            "[[listener]]\nlisten = '192.0.2.1:5124'\nconvert = ['internet 80,443', '10.0.0.0/8']\nudp = \
             ['internet 53']\ncookie = '{}'\n\
             connect-timeout = '2 s'\n",
            path.display()
        );
        let settings = read(&text).unwrap();
        let Service::Convert(converter) = &settings.listeners[0].service else { panic!("{settings:?}") };
        assert_eq!((converter.destinations.0.len(), converter.datagrams.0.len()), (2, 1));
        assert_eq!(converter.connect_timeout, Duration::from_secs(2));
        let pair = ["gateway", "proxy"].map(|name| crate::tls::keys::generate(folder.path(), name).unwrap());
        let key = format!("key = '{}'\n", pair[0][0].display());
        let proxies = format!("proxies = ['{}']\n", pair[1][1].display());
        let secure =
            read(&text.replace("connect-timeout", &format!("{key}{proxies}connect-timeout"))).unwrap();
        let Service::Convert(converter) = &secure.listeners[0].service else { panic!("{secure:?}") };
        assert!(converter.tls.is_some());
        let both = format!("{key}{proxies}");
        let with = |inbound: &str| {
            read(&text.replace("connect-timeout", &format!("{both}inbound = [{inbound}]\nconnect-timeout")))
        };
        let own = pair[1][1].display();
        let settings = with(&format!("'{own} tcp/8022,udp/5000-5100'")).unwrap();
        let [given] = &settings.inbound[..] else { panic!("{settings:?}") };
        assert_eq!((given.ports.len(), given.addresses.len()), (2, 1));
        let other = pair[0][1].display();
        for (inbound, expected) in [
            (format!("'{other} tcp/8022'"), "isn't among `proxies`"),
            (format!("'{own}'"), "expected ports such as tcp/8022"),
            (format!("'{own} udp/5000-6000'"), "`udp/5000-6000` has a listener's port"),
            (format!("'{own} tcp/1-9', '{own} tcp/9'"), "`tcp/9` is given already"),
        ] {
            let error = with(&inbound).unwrap_err();
            assert!(error.contains(expected), "{inbound}: {error}");
        }
        let error = read(&(text.clone() + "inbound = ['proxy.pub tcp/1']\n")).unwrap_err();
        assert!(error.contains("`inbound` goes with `udp`, `key` and `proxies`"), "{error}");
        for (alone, place) in [(&key, "g.toml:6:1"), (&proxies, "g.toml:6:1")] {
            let error = read(&(text.clone() + alone)).unwrap_err();
            assert!(error.contains("`key` and `proxies` go together"), "{place}: {error}");
        }
        // Names of files are relative to the configuration's folder, wherever the gateway was started.
        let relative = "[gateway]\nstatus = 'sock'\n[[listener]]\nlisten = '192.0.2.1:5124'\nconvert = \
                        ['internet']\ncookie = 'cookie'\n\
            key = 'gateway.key'\nproxies = ['proxy.pub']\n";
        let file = folder.path().join("gateway.toml");
        std::fs::write(&file, relative).unwrap();
        let loaded = load(&file, &Registries::builtin()).unwrap();
        assert_eq!(loaded.status, Location::Path(folder.path().join("sock")));
        let Service::Convert(converter) = &loaded.listeners[0].service else { panic!("{loaded:?}") };
        assert!(converter.cookie.is_some() && converter.tls.is_some());
        let error = read(&(text + "proxy-protocol = 'v1'\n")).unwrap_err();
        assert!(error.contains("it goes with `to` alone"), "{error}");
    }

    #[test]
    fn every_key_is_heard() {
        let text = "[gateway]\ncores = 2\ndrain = '5 s'\nconnections = 7\nhalf-open = 8\nmemory = '2 \
                    MiB'\nstalled = '3 min'\n\
            status = '/run/x'\nmetrics = '127.0.0.1:9464'\npage = '127.0.0.1:1'\npage-token = \
            'TOKEN'\n[[listener]]\nname = 'web'\nlisten = '192.0.2.1:443'\n\
            to = '127.0.0.1:8443'\naddresses = ['198.51.100.1']\nannounce = false\nscheduler = \
            'ecf(beta=0.5)'\n\
            congestion = 'olia'\nmultipath = false\nchecksum = true\nsend-buffer = '8 KiB'\nreceive-buffer \
            = '1 MiB'\n\
            subflows = 3\nconnections = 5\nconnections-per-address = 4\nbacklog = 6\nconnect-timeout = '2 \
            s'\nretries = 1\n\
            keep-alive = '6 s'\nuser-timeout = '9 s'\nproxy-protocol = 'v2'\n";
        let folder = tempfile::tempdir().unwrap();
        crate::secret::write(&folder.path().join("TOKEN"), b"0123456789abcdef\n", 0o600).unwrap();
        Cookie::generate(&folder.path().join("cookie")).unwrap();
        let _ = ["gateway", "proxy"].map(|name| crate::tls::keys::generate(folder.path(), name).unwrap());
        let convert = "[[listener]]\nlisten = '192.0.2.1:5124'\nconvert = ['internet']\n\
                       udp = ['internet 53']\n\
                       cookie = 'cookie'\nkey = 'gateway.key'\nproxies = ['proxy.pub']\n\
                       inbound = ['proxy.pub tcp/8022']\n";
        heard::check(folder.path(), heard::OF_GATEWAY, &[text, convert], |reader, document, first_line| {
            super::settings(reader, document, first_line, &Registries::builtin())
        });
        let source = Source::new("g.toml", text);
        let settings = parse(&source, folder.path(), &Registries::builtin()).unwrap();
        let public = folder.path().join("TOKEN");
        std::fs::set_permissions(&public, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        let error = parse(&source, folder.path(), &Registries::builtin()).unwrap_err().to_string();
        assert!(error.contains("others can read the page's token (mode 644)"), "{error}");
        assert_eq!((settings.cores, settings.drain, settings.memory), (2, Duration::from_secs(5), 2 << 20));
        assert_eq!((settings.endpoint.max_connections, settings.endpoint.backlog), (7, 8));
        assert_eq!(
            (settings.status, settings.metrics),
            (Location::Path("/run/x".into()), Some(([127, 0, 0, 1], 9464).into()))
        );
        assert_eq!(settings.page.unwrap().token.as_deref(), Some("0123456789abcdef"));
        let listener = &settings.listeners[0];
        assert_eq!((listener.name.as_str(), listener.announce, listener.retries), ("web", false, 1));
        assert_eq!(listener.sockets().count(), 2);
        let connection = &listener.connection;
        assert_eq!(
            (connection.scheduler.text.as_str(), connection.congestion.text.as_str()),
            ("ecf(beta=0.5)", "olia")
        );
        assert_eq!(
            (connection.multipath, connection.checksum, connection.path_manager.subflows),
            (false, true, 3)
        );
        assert_eq!(
            (connection.send_buffer, connection.receive_buffer.max),
            (BufferConfig::fixed(8 << 10), 1 << 20)
        );
        assert_eq!((listener.max_connections, listener.max_per_address, listener.backlog), (5, 4, 6));
        assert_eq!(settings.stalled, Duration::from_secs(180));
        assert_eq!(listener.connect_timeout, Duration::from_secs(2));
        let tcp = &connection.tcp;
        let keep_alive = (tcp.keep_alive.idle, tcp.keep_alive.interval);
        assert_eq!(keep_alive, (Some(Span::from_secs(6)), Span::from_secs(1)));
        assert_eq!(tcp.user_timeout, Some(Span::from_secs(9)));
        assert_eq!(listener.proxy_protocol, Some(crate::gateway::ProxyProtocol::V2));
    }

    #[test]
    fn each_mistake_has_its_place_and_what_is_allowed() {
        let rows = [
            ("", "g.toml:1:1: a gateway needs a listener"),
            ("[gateway]\ncors = 1\n", "g.toml:2:1: unknown key `cors`"),
            ("[gateway]\ncores = 0\n", "g.toml:2:9: `cores` must be a whole number from 1 to 64"),
            ("[gateway]\ndrain = 30\n", "g.toml:2:9: expected a quantity with its unit"),
            ("[gateway]\nmemory = '1 KiB'\n", "g.toml:2:11: `memory` is out of range"),
            ("[gateway]\nmetrics = '0.0.0.0:9464'\n", "g.toml:2:11: metrics are for this host only"),
            (
                "[gateway]\npage = '0.0.0.0:9466'\n",
                "g.toml:2:8: a status page at 0.0.0.0:9466 can be read by others",
            ),
            ("[gateway]\nstatus = 7\n", "g.toml:2:10: expected a text in quotes"),
            ("gateway = 7\n", "g.toml:1:11: expected a gateway table"),
            ("listener = 7\n", "g.toml:1:12: expected a list of tables"),
            ("[[listener]\n", "g.toml:1:12: unclosed array table"),
            ("[[listener]]\nlisten = '192.0.2.1:443'\n", "g.toml:2:1: a listener needs `to` or `convert`"),
            (&format!("{LISTENER}cookie = 'x'\n"), "g.toml:4:1: `cookie` goes with `convert`"),
            (
                &format!("{LISTENER}convert = ['internet']\ncookie = '/x'\n"),
                "g.toml:3:1: a listener has `to` or `convert`",
            ),
            (
                "[[listener]]\nlisten = '192.0.2.1:443'\nconvert = ['internet']\n",
                "g.toml:3:1: clients that name their servers",
            ),
            (
                "[[listener]]\nlisten = '192.0.2.1:443'\nconvert = ['internet 0']\ncookie = '/nonexistent'\n",
                "g.toml:3:12: `0` is no port",
            ),
            (
                "[[listener]]\nlisten = '192.0.2.1:443'\nconvert = []\ncookie = '/nonexistent'\n",
                "g.toml:4:10: can't read the cookie",
            ),
            (
                "[[listener]]\nlisten = '192.0.2.1'\nto = 'x'\n",
                "g.toml:2:10: expected an address and a port (found `192.0.2.1`)",
            ),
            (
                "[[listener]]\nlisten = '192.0.2.1:0'\nto = '1.2.3.4:5'\n",
                "g.toml:2:10: expected an address and a port",
            ),
            (
                "[[listener]]\nlisten = '1.2.3.4:5'\nto = '1.2.3.4:5'\n",
                "g.toml:3:1: a listener can't forward to itself",
            ),
            (&format!("{LISTENER}scheduler = 'blets'\n"), "g.toml:4:14: "),
            (&format!("{LISTENER}congestion = 'cubik'\n"), "g.toml:4:15: "),
            (&format!("{LISTENER}addresses = '192.0.2.2'\n"), "g.toml:4:13: expected a list of addresses"),
            (&format!("{LISTENER}addresses = ['192.0.2.2:80']\n"), "g.toml:4:14: expected an address (found"),
            (&format!("{LISTENER}checksum = 'yes'\n"), "g.toml:4:12: expected true or false"),
            (&format!("{LISTENER}proxy-protocol = 'v3'\n"), "allowed: \"none\", \"v1\", \"v2\""),
            (&format!("{LISTENER}subflows = 9\n"), "from 0 to 8"),
            (&format!("{LISTENER}send-buffer = '1 B'\n"), "`send-buffer` is out of range"),
            (&format!("{LISTENER}retries = 11\n"), "from 0 to 10"),
            (&format!("{LISTENER}{LISTENER}"), "g.toml:5:1: two listeners at 192.0.2.1:443"),
            (
                &format!(
                    "{LISTENER}name = 'a'\n[[listener]]\nname = 'a'\nlisten = '192.0.2.1:80'\nto = \
                     '127.0.0.1:1'\n"
                ),
                "two listeners are named `a`",
            ),
        ];
        for (text, expected) in rows {
            let error = read(text).unwrap_err();
            assert!(error.contains(expected), "{text}\n{error}");
        }
        assert!(read(LISTENER).is_ok());
        // All of a file's mistakes are told at once.
        let error = read(&format!("[gateway]\ncors = 1\n{LISTENER}retries = 11\n")).unwrap_err();
        assert_eq!(error.lines().count(), 2, "{error}");
    }

    use crate::convert::Cookie;
    use crate::gateway::Service;
    use ropewalk_tokio::BufferConfig;
}
