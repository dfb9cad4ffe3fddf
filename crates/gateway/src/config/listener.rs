//! `[[listener]]`.

use std::net::{IpAddr, SocketAddr};

use ropewalk_algorithms::Registries;
use ropewalk_engine::congestion::DEFAULT_NAME;
use ropewalk_engine::registry::SpecError;
use ropewalk_engine::scheduler::PRODUCT_DEFAULT;
use ropewalk_engine::{SECOND, Span};
use ropewalk_settings::read::{Reader, Table, Value};
use ropewalk_settings::shape::{Files, Kind, Shape, key, required, words};
use ropewalk_tokio::{BufferConfig, ConnectionConfig, default_config};

use super::values::{chosen, loaded, parsed};
use super::{per_address, socket};
use crate::convert::{Converter, Cookie, Destination, Destinations};
use crate::gateway::{Listener, ProxyProtocol, Service};
use crate::target::Target;
use crate::tls::Acceptor;

/// How often a silent client is probed before its subflow is closed.
const KEEP_ALIVE_PROBES: u32 = 6;
/// How long the ACK of a client's first request waits for the server's answer.
const ANSWER_TIME: Span = Span::from_millis(5);
/// Most bytes of a buffer.
const LARGEST_BUFFER: u64 = 1 << 30;

/// The words of `proxy-protocol`.
const PROXY_PROTOCOL: [(&str, Option<ProxyProtocol>); 3] =
    [("none", None), ("v1", Some(ProxyProtocol::V1)), ("v2", Some(ProxyProtocol::V2))];

pub(super) const LISTENER: Shape = Shape {
    name: "listener",
    summary: "Where clients connect, and where they are forwarded",
    fields: &[
        required("listen", Kind::Socket, "Address of this host, and port: `192.0.2.1:443`").reload(),
        key(
            "to",
            Kind::Text,
            "Address or name, and port, of the TCP server: \
                               `127.0.0.1:8443`",
        )
        .value("HOST:PORT")
        .reload(),
        key(
            "convert",
            Kind::Texts,
            "Instead of `to`: clients name their servers (RFC 8803), within this: `internet 80,443`, \
             `10.0.0.0/8`",
        )
        .value("NETWORK [PORTS]")
        .reload(),
        key(
            "udp",
            Kind::Texts,
            "With `convert`: where clients may send datagrams (SOCKS5's UDP ASSOCIATE), as in `internet \
             53,443`",
        )
        .value("NETWORK [PORTS]")
        .reload(),
        key(
            "key",
            Kind::File,
            "With `convert` and `proxies`: this gateway's key for TLS, mode 0600 (`ropewalkd keys pair`)",
        )
        .files(Files::Read)
        .reload(),
        key(
            "proxies",
            Kind::Texts,
            "With `key`: the certificates of the proxies that are \
                                     accepted",
        )
        .option("proxy")
        .value("FILE")
        .files(Files::Read)
        .reload(),
        key(
            "cookie",
            Kind::File,
            "With `convert`: a file with what clients have to show, 16 to 128 bytes as hexadecimal digits, \
             mode 0600",
        )
        .files(Files::Read)
        .reload(),
        key(
            "inbound",
            Kind::Texts,
            "With `udp`, `key` and `proxies`: ports of its addresses that lead to a host behind a proxy, if \
             that wants them: `keys/van.pub tcp/8022,udp/5000-5100`",
        )
        .value("FILE PORTS")
        .files(Files::ReadBeforeWord)
        .reload(),
        key("name", Kind::Text, "Its name in logs and metrics. Default: what `listen` says")
            .value("NAME")
            .reload(),
        key(
            "addresses",
            Kind::Texts,
            "Further addresses of this host for the same \
                                       port",
        )
        .option("address")
        .value("ADDRESS")
        .reload(),
        key("announce", Kind::Switch, "Whether clients are told the other addresses (ADD_ADDR)")
            .default("true")
            .reload(),
        key(
            "scheduler",
            Kind::Text,
            "Packet scheduler, `ropewalk list` names \
                                      them",
        )
        .default(PRODUCT_DEFAULT)
        .value("NAME")
        .reload(),
        key("congestion", Kind::Text, "Congestion control").default(DEFAULT_NAME).value("NAME").reload(),
        key("multipath", Kind::Switch, "Multipath TCP, or plain TCP only").default("true").reload(),
        key("checksum", Kind::Switch, "Whether DSS checksums are required of clients")
            .default("false")
            .reload(),
        key(
            "send-buffer",
            Kind::Bytes(4 << 10, LARGEST_BUFFER),
            "To which the send buffer may \
            grow",
        )
        .default("4 MiB")
        .reload(),
        key(
            "receive-buffer",
            Kind::Bytes(4 << 10, LARGEST_BUFFER),
            "To which the receive buffer may \
            grow",
        )
        .default("6 MiB")
        .reload(),
        key("subflows", Kind::Integer(0, 8), "Most joins of a connection").default("8").reload(),
        key("connections", Kind::Integer(1, 1_000_000), "Most connections; what comes then is reset")
            .default("10000")
            .reload(),
        key(
            "connections-per-address",
            Kind::Integer(1, 1_000_000),
            "Most connections of one address (an IPv6 /64). Default: half of `connections`, 100 at least",
        )
        .reload(),
        key("backlog", Kind::Integer(1, 65_535), "Most connections that wait to be accepted")
            .default("1024")
            .reload(),
        key("connect-timeout", Kind::Time, "How long connecting to the server may take")
            .default("5 s")
            .reload(),
        key(
            "retries",
            Kind::Integer(0, 10),
            "How often a server that refuses is tried again, after a second each",
        )
        .default("0")
        .reload(),
        key(
            "keep-alive",
            Kind::TimeWithin(SECOND, Span::from_secs(24 * 3600)),
            "How long a client may be silent before it is probed; without an answer for as long its \
             subflows are closed, and for as long again it may open others",
        )
        .default("60 s")
        .reload(),
        key(
            "user-timeout",
            Kind::Time,
            "How long data may stay unacknowledged, also by a client that reads nothing, before the \
             connection is reset. Default: 15 timeouts of the retransmission",
        )
        .reload(),
        key("proxy-protocol", Kind::Choice(&words(&PROXY_PROTOCOL)), "Tells the server who the client is")
            .default("none")
            .reload(),
    ],
};

/// Reads a listener; `None` if what it can't do without is wrong.
pub(super) fn read(reader: &mut Reader, table: &Table<'_>, registries: &Registries) -> Option<Listener> {
    let listen = table.get("listen").and_then(|value| socket(reader, value));
    let service = service(reader, table);
    let addresses = table.get("addresses").map_or(Vec::new(), |value| addresses(reader, value));
    let name = table.get("name").and_then(|value| reader.text(value));
    let (listen, service) = (listen?, service?);
    let connections = reader.with_default(table, "connections", Reader::integer);
    let listener = Listener {
        name: name.map_or_else(|| listen.to_string(), String::from),
        listen,
        addresses,
        service,
        connection: connection(reader, table, registries),
        max_connections: connections as usize,
        max_per_address: per_address(reader, table, connections),
        backlog: reader.with_default(table, "backlog", Reader::integer) as usize,
        connect_timeout: reader.with_default(table, "connect-timeout", Reader::time).into(),
        retries: reader.with_default(table, "retries", Reader::integer) as u32,
        announce: reader.with_default(table, "announce", Reader::switch),
        proxy_protocol: chosen(reader, table, "proxy-protocol", &PROXY_PROTOCOL),
    };
    let is_own = |to: SocketAddr| listener.sockets().any(|socket| socket == to);
    if matches!(listener.service, Service::Forward(Target::Address(to)) if is_own(to)) {
        reader.wrong(table.place("to"), "a listener can't forward to itself", "its own address", "");
    }
    if listener.proxy_protocol.is_some() && matches!(listener.service, Service::Convert(_)) {
        let message = "servers that clients name aren't told the client";
        reader.wrong(table.place("proxy-protocol"), message, "it goes with `to` alone", "");
    }
    Some(listener)
}

/// The engine's settings: those of [`default_config`], and what the table says.
fn connection(reader: &mut Reader, table: &Table<'_>, registries: &Registries) -> ConnectionConfig {
    let mut connection = default_config();
    connection.tcp.black_hole_detection = true;
    connection.gather_writes = true;
    // Clients ask first.
    connection.tcp.answer_time = Some(ANSWER_TIME);
    connection.scheduler = reader.with_default(table, "scheduler", |reader, table, key| {
        algorithm(reader, table.get(key)?, |text| registries.scheduler(text, 1))
    });
    connection.congestion = reader.with_default(table, "congestion", |reader, table, key| {
        algorithm(reader, table.get(key)?, |text| registries.congestion.parse(text))
    });
    connection.multipath = reader.with_default(table, "multipath", Reader::switch);
    connection.checksum = reader.with_default(table, "checksum", Reader::switch);
    for (key, buffer) in
        [("send-buffer", &mut connection.send_buffer), ("receive-buffer", &mut connection.receive_buffer)]
    {
        let max = reader.with_default(table, key, Reader::bytes);
        *buffer = BufferConfig { initial: buffer.initial.min(max), max };
    }
    connection.path_manager.subflows = reader.with_default(table, "subflows", Reader::integer) as u8;
    let silence = reader.with_default(table, "keep-alive", Reader::time);
    let keep_alive = &mut connection.tcp.keep_alive;
    (keep_alive.idle, keep_alive.probes) = (Some(silence), KEEP_ALIVE_PROBES);
    keep_alive.interval = silence / u64::from(KEEP_ALIVE_PROBES);
    connection.path_manager.close_timeout = silence;
    connection.tcp.user_timeout = reader.time(table, "user-timeout");
    connection
}

/// What a listener does: `to`, or `convert` with what belongs to it.
fn service(reader: &mut Reader, table: &Table<'_>) -> Option<Service> {
    let Some(list) = table.get("convert") else {
        let Some(to) = table.get("to") else {
            let help = "as in to = \"127.0.0.1:8443\", or convert = [\"internet 80,443\"]";
            reader.wrong(
                table.place("listen"),
                "a listener needs `to` or `convert`",
                "this one has neither",
                help,
            );
            return None;
        };
        for key in ["cookie", "udp", "key", "proxies", "inbound"].into_iter().filter(|key| table.has(key)) {
            let message = format!("`{key}` goes with `convert`");
            reader.wrong(table.place(key), message, "this listener has `to`", "");
        }
        return parsed(reader, to, str::parse).map(Service::Forward);
    };
    if table.has("to") {
        reader.wrong(table.place("to"), "a listener has `to` or `convert`", "not both", "");
    }
    let datagrams = table.get("udp").map(|list| destinations(reader, list)).unwrap_or_default();
    let destinations = destinations(reader, list);
    let cookie = match table.get("cookie") {
        Some(value) => loaded(reader, value, Cookie::load),
        None if table.has("key") => None,
        None => {
            let message =
                "clients that name their servers have to show who they are: this would be an open proxy";
            let help =
                "cookie = \"FILE\" (`ropewalkd keys cookie`), or `key` and `proxies` (`ropewalkd keys pair`)";
            reader.wrong(table.place("convert"), message, "neither `cookie` nor `key` is given", help);
            None
        }
    };
    let tls = acceptor(reader, table);
    Some(Service::Convert(Converter {
        destinations,
        datagrams,
        cookie,
        tls,
        connect_timeout: reader.with_default(table, "connect-timeout", Reader::time).into(),
    }))
}

/// TLS: `key` with `proxies`.
fn acceptor(reader: &mut Reader, table: &Table<'_>) -> Option<Acceptor> {
    let (Some(key), Some(list)) = (table.get("key"), table.get("proxies")) else {
        for key in ["key", "proxies"].into_iter().filter(|key| table.has(key)) {
            let help = "`ropewalkd keys pair` makes what both need";
            reader.wrong(table.place(key), "`key` and `proxies` go together", "alone here", help);
        }
        return None;
    };
    let mut proxies = Vec::new();
    for value in list.get_ref().as_array().into_iter().flatten() {
        proxies.extend(reader.text(value).map(|name| reader.file(name)));
    }
    if proxies.is_empty() {
        let help = "as in [\"proxy.pub\"]";
        reader.wrong(list.span(), "expected a list of certificates' files", "none here", help);
        return None;
    }
    let name = reader.text(key)?;
    match Acceptor::load(&reader.file(name), &proxies) {
        Ok(acceptor) => Some(acceptor),
        Err(error) => {
            reader.wrong(key.span(), error.to_string(), "TLS can't be set up", "");
            None
        }
    }
}

fn destinations(reader: &mut Reader, value: &Value<'_>) -> Destinations {
    let help = "as in [\"internet 80,443\", \"10.0.0.0/8\"]";
    let Some(list) = value.get_ref().as_array() else {
        reader.wrong(value.span(), "expected a list of destinations", "not a list", help);
        return Destinations::default();
    };
    if list.is_empty() {
        reader.wrong(value.span(), "clients can't connect to any server", "an empty list", help);
    }
    let mut found = Vec::new();
    for value in list {
        let Some(text) = reader.text(value) else { continue };
        match text.parse::<Destination>() {
            Ok(destination) => found.push(destination),
            Err(error) => reader.wrong(value.span(), error.to_string(), format!("found `{text}`"), help),
        }
    }
    Destinations(found)
}

fn algorithm<T>(
    reader: &mut Reader,
    value: &Value<'_>,
    parse: impl FnOnce(&str) -> Result<T, SpecError>,
) -> Option<T> {
    let text = reader.text(value)?;
    match parse(text) {
        Ok(found) => Some(found),
        Err(error) => {
            let place = reader.inside(value.span(), text, error.span.0..error.span.1);
            reader.wrong(place, error.message, format!("found `{text}`"), "`ropewalk list` names them all");
            None
        }
    }
}

fn addresses(reader: &mut Reader, value: &Value<'_>) -> Vec<IpAddr> {
    let Some(list) = value.get_ref().as_array() else {
        reader.wrong(value.span(), "expected a list of addresses", "not a list", "as in [\"198.51.100.1\"]");
        return Vec::new();
    };
    let mut found = Vec::new();
    for value in list {
        let Some(text) = reader.text(value) else { continue };
        match text.trim().parse() {
            Ok(address) => found.push(address),
            Err(_) => {
                let help = "such as \"198.51.100.1\", without a port";
                reader.wrong(value.span(), "expected an address", format!("found `{text}`"), help);
            }
        }
    }
    found
}
