//! The proxy's file: `[proxy]`, `[[link]]`, `[[rule]]`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use ropewalk_settings::diagnostic::{InputError, Source};
use ropewalk_settings::read::{Reader, Table, Value, document};
use ropewalk_settings::schema::schema_of;
use ropewalk_settings::shape::{Kind, Shape, key, required};
use ropewalk_settings::written::Written;
use toml::de::DeTable;

use super::{
    DRAIN, MEMORY, METRICS, PAGE, PAGE_TOKEN, STALLED, duration, folders_read, inbound, loopback, open, page,
    per_address, socket, status,
};
use crate::confine::folder_of;
use crate::convert::Cookie;
use crate::proxy::policy::{Policies, Policy, PolicyError, Rule};
use crate::proxy::{Access, Gateway, IpNet, MOST_READY, OpeningLink, Rates, Settings, Via, captive, users};
use crate::tls::Connector;

/// Most rules.
const MOST_RULES: usize = 1000;

pub(super) const PROXY: Shape = Shape {
    name: "proxy",
    summary: "The proxy as a whole",
    fields: &[
        key("listen", Kind::Socket, "Where programs connect").default("127.0.0.1:1080").restart(),
        key("users", Kind::File, "A file with one NAME:PASSWORD a line. Default: nobody is asked"),
        key("allow", Kind::Texts, "Networks and addresses that clients may come from").value("NETWORK"),
        key(
            "policy",
            Kind::Text,
            "How connections use the links where no rule fits: fastest, redundant, save-metered, \
             active-standby, smallest-delay, priority, `load-balance 70:30` (a share for each link), or a \
             scheduler's name; past the gateway with `direct` before it; perhaps limited, as in `redundant \
             over wlan0,wwan0`",
        )
        .default("fastest")
        .value("POLICY"),
        key("congestion", Kind::Text, "Congestion control of what is sent").default("cubic").value("NAME"),
        key(
            "open-on",
            Kind::Choice(&["nearest", "remember", "race"]),
            "The link on which a connection opens, where the policy doesn't order them",
        )
        .default("remember"),
        key(
            "join",
            Kind::Choice(&["early", "late"]),
            "When subflows on the other links are opened: with the third ACK, or after the first DSS",
        )
        .default("early"),
        key(
            "transparent",
            Kind::Texts,
            "Take all TCP connections that come in by these interfaces, as a router does",
        )
        .value("INTERFACE")
        .restart(),
        key(
            "transparent-port",
            Kind::Integer(1, 65_535),
            "The port to which they are redirected, and \
                                                           queries of names with them",
        )
        .default("1081")
        .restart(),
        key(
            "names",
            Kind::Choice(&["links", "system"]),
            "How queries of the DNS travel that would leave by a link: over any that works, or by the \
             kernel's routes",
        )
        .default("links")
        .restart(),
        key(
            "datagrams",
            Kind::Choice(&["gateway", "system"]),
            "How what comes in by `transparent` interfaces and isn't TCP travels: through the gateway over all \
             links, if it takes it (`udp`), or by the kernel's routes",
        )
        .default("gateway")
        .restart(),
        key(
            "inbound",
            Kind::Texts,
            "With `transparent` and a gateway with keys: ports that it gives this proxy (its `inbound`), and \
             the hosts that they lead to: `tcp/8022 to 192.168.1.10:22`, `udp/5000-5100 to 192.168.1.11`",
        )
        .value("PORTS to HOST"),
        key(
            "mtu",
            Kind::Integer(576, 65_535),
            "Largest IP packet on every link, bytes. Default: what each interface takes",
        ),
        key("connections", Kind::Integer(1, 1_000_000), "Most connections at a time")
            .default("4096")
            .restart(),
        key(
            "connections-per-address",
            Kind::Integer(1, 1_000_000),
            "Most connections of one address (an IPv6 /64). Default: half of `connections`, 100 at least; \
             this host's own programs may have all",
        ),
        MEMORY,
        STALLED,
        key("connect-timeout", Kind::Time, "How long opening a connection may take").default("15 s"),
        DRAIN,
        key(
            "probe",
            Kind::Socket,
            "Where links are probed: an address and port that answer TCP. Default: the last that answered",
        ),
        key("probe-budget", Kind::Bytes(1, 1 << 40), "What probes may cost on each link, per hour")
            .default("1 MiB"),
        key(
            "captive-check",
            Kind::Text,
            "A page that answers 204: a link over which anything else answers is behind a captive portal",
        )
        .value("URL"),
        key(
            "gateway",
            Kind::Texts,
            "Gateways that connect to servers for the proxy (RFC 8803), by address or name, with port: \
             everything goes to the first that works",
        )
        .value("HOST:PORT"),
        key(
            "gateway-fallback",
            Kind::Choice(&["none", "direct"]),
            "Where connections go while no gateway can be reached: nowhere, or to their servers, over one \
             link each where these have no Multipath TCP",
        )
        .default("none"),
        key(
            "gateway-cookie",
            Kind::File,
            "A file with what the gateway has to be shown, mode 0600 (`ropewalkd keys cookie`)",
        ),
        key(
            "gateway-key",
            Kind::File,
            "This proxy's key for TLS with the gateway, mode 0600 (`ropewalkd keys pair`)",
        ),
        key(
            "gateway-certificate",
            Kind::Texts,
            "With `gateway-key`: the gateway's certificate, or one for each gateway",
        )
        .value("FILE"),
        key(
            "gateway-ready",
            Kind::Integer(0, MOST_READY),
            "Connections to the gateway that are kept ready for clients",
        )
        .default("0"),
        key(
            "gateway-early",
            Kind::Switch,
            "Tell clients that they are connected before the server has answered",
        )
        .default("false"),
        key("usage", Kind::File, "Where the use of quotas is kept")
            .default("/var/lib/ropewalk/usage.json")
            .restart(),
        key(
            "status",
            Kind::Text,
            "The Unix socket that `ropewalkd status` asks, or `none`. Default: /run/ropewalk/proxy.sock",
        )
        .value("PATH")
        .restart(),
        METRICS,
        PAGE,
        PAGE_TOKEN,
    ],
};

pub(super) const LINK: Shape = Shape {
    name: "link",
    summary: "An uplink; the first is preferred where the order counts",
    fields: &[
        required("interface", Kind::Text, "The interface: `wlan0`"),
        key("name", Kind::Text, "What policies, log and status call it. Default: the interface's name"),
        key("metered", Kind::Switch, "Its traffic costs: policies that save metered links avoid it")
            .default("false"),
        key("backup", Kind::Switch, "It is used while no other works").default("false"),
        key("gateway", Kind::Address, "Its next hop. Default: that of the interface's default route"),
        key(
            "price",
            Kind::Number(0.0, 1e12),
            "Its cost compared with other links, in any unit. Default: 1 if metered, else 0",
        ),
        key(
            "rate",
            Kind::Rates,
            "Most that it carries each way, `20 Mbit/s`, or down and up, `16/1 Mbit/s`. Default: no limit",
        ),
        key(
            "quota",
            Kind::Text,
            "Most that it carries in a period: `5GB/monthly@12`, `2GB/weekly@mon`, `500MB/daily`. Default: \
             none",
        ),
        key(
            "throttle",
            Kind::Rates,
            "With `quota`: most that it carries each way once that is used up, as in `1 Mbit/s`; it stands \
             by for other links then. Default: it isn't used",
        ),
    ],
};

pub(super) const RULE: Shape = Shape {
    name: "rule",
    summary: "A policy for the connections that fit all of its conditions; the first rule that fits decides",
    fields: &[
        required(
            "policy",
            Kind::Text,
            "What follows: `redundant`, `save-metered over wlan0,wwan0`. On a command line `port=22 then \
             redundant`",
        ),
        key("to", Kind::Texts, "Destinations: addresses, networks, names, `*.example.org`. Default: all"),
        key("port", Kind::Texts, "Ports: `22`, `5060-5061`. Default: all"),
        key(
            "size",
            Kind::Bytes(1, 1 << 50),
            "From so many bytes on that the connection has carried. Default: from the start",
        ),
        key("dscp", Kind::Texts, "DSCP of the client's SYN: `ef`, `af41`, `46`. Default: any"),
    ],
};

const FILE: Shape = Shape {
    name: "configuration",
    summary: "The configuration of `ropewalkd proxy`",
    fields: &[
        key("proxy", Kind::Table(&PROXY), "The proxy as a whole"),
        key("link", Kind::Tables(&LINK), "The uplinks"),
        key("rule", Kind::Tables(&RULE), "Policies for some connections"),
    ],
};

/// The table whose keys a command line may have; links and rules are options of their own.
pub const TABLES: &[(&str, &Shape)] = &[("[proxy]", &PROXY)];

/// The tables of which a file may have many.
pub const REPEATED: &[(&str, &Shape)] = &[("[[link]]", &LINK), ("[[rule]]", &RULE)];

/// The JSON Schema of the file (draft 2020-12).
pub fn schema() -> serde_json::Value {
    schema_of(&FILE, "Ropewalk proxy")
}

/// Reads a configuration.
///
/// # Errors
/// A file that can't be read, or mistakes in it: all of them.
pub fn load(path: &Path) -> Result<Settings, InputError> {
    parse(&open(path)?, &folder_of(path))
}

/// Parses a configuration. Relative names of files are relative to `folder`.
///
/// # Errors
/// All mistakes in it.
pub fn parse(source: &Arc<Source>, folder: &Path) -> Result<Settings, InputError> {
    document(source, folder, config)
}

/// Reads what a command line says: options by the names of their keys, each link with what belongs to it, and
/// rules.
///
/// # Errors
/// All mistakes in it.
pub fn of_options(
    mut options: Written,
    links: &[Arc<Source>],
    rules: &[Arc<Source>],
) -> Result<Settings, InputError> {
    links.iter().for_each(|link| write_link(&mut options, link));
    rules.iter().for_each(|rule| write_rule(&mut options, rule));
    options.read(config)
}

/// `wlan0,metered,price=2.5`.
fn write_link(written: &mut Written, link: &Arc<Source>) {
    written.inline("[[link]]", &LINK, "interface", link);
}

/// `port=22,5060-5061 then redundant`.
fn write_rule(written: &mut Written, rule: &Arc<Source>) {
    written.rule("[[rule]]", &RULE, "policy", rule);
}

/// Reads one link or rule.
fn one<T>(
    written: &Written,
    key: &str,
    shape: &'static Shape,
    read: impl FnOnce(&mut Reader, &Table<'_>) -> Option<T>,
) -> Result<T, InputError> {
    let found = written.read(|reader, document, _| {
        let value = document.get(key)?.get_ref().as_array()?.first()?;
        let table = reader.table(shape, value)?;
        read(reader, &table)
    });
    found.map(|found| found.expect("without an error it was read"))
}

impl FromStr for Via {
    type Err = InputError;

    fn from_str(text: &str) -> Result<Via, InputError> {
        let mut written = Written::default();
        write_link(&mut written, &Source::new("--via", text));
        one(&written, "link", &LINK, link)
    }
}

impl FromStr for Rule {
    type Err = InputError;

    fn from_str(text: &str) -> Result<Rule, InputError> {
        let mut written = Written::default();
        write_rule(&mut written, &Source::new("--rule", text));
        one(&written, "rule", &RULE, |reader, table| rule(reader, table, None))
    }
}

impl Default for Settings {
    /// That of a file which says nothing, not even a link.
    fn default() -> Settings {
        Written::default()
            .read(|reader, document, _| table(reader, document, Vec::new()))
            .expect("defaults can be used")
    }
}

/// The table `[proxy]`.
fn table(reader: &mut Reader, file: &DeTable<'_>, links: Vec<Via>) -> Settings {
    let none = DeTable::new();
    let table = file.get("proxy").and_then(|value| reader.table(&PROXY, value));
    proxy(reader, &table.unwrap_or_else(|| Table::new(&PROXY, &none, 0..0)), links)
}

fn config(reader: &mut Reader, entries: &DeTable<'_>, first_line: Range<usize>) -> Settings {
    let file = reader.check(&FILE, entries, first_line.clone(), None);
    let mut links: Vec<Via> = Vec::new();
    for value in reader.array(&file, "link") {
        let Some(table) = reader.table(&LINK, value) else { continue };
        let Some(via) = link(reader, &table) else { continue };
        if links.iter().any(|known| known.name() == via.name()) {
            let message = format!("two links have the name `{}`", via.name());
            let help = "links of one interface need a `name` and a `gateway`, each its own";
            let key = if via.name.is_some() { "name" } else { "interface" };
            reader.wrong(table.place(key), message, "again here", help);
        }
        links.push(via);
    }
    if reader.array(&file, "link").is_empty() {
        let help = "as in:\n[[link]]\ninterface = \"wlan0\"\nor --via wlan0";
        reader.wrong(first_line, "a proxy needs a link", "no `[[link]]` in this file", help);
    }
    let mut config = table(reader, entries, links);
    let rules = reader.array(&file, "rule");
    for value in rules.iter().take(MOST_RULES) {
        let Some(table) = reader.table(&RULE, value) else { continue };
        config.policies.rules.extend(rule(reader, &table, Some(&config.via)));
    }
    if let Some(value) = rules.get(MOST_RULES) {
        let message = format!("{} rules: at most {MOST_RULES} are allowed", rules.len());
        reader.wrong(value.span(), message, "the first too many", "");
    }
    // What concerns several keys.
    if reader.errors.is_empty()
        && let Err(error) = config.check()
    {
        let key = error.key().zip(file.get(error.table()));
        let of_key = key.and_then(|(key, table)| Some(reader.table(&PROXY, table)?.place(key)));
        let place = of_key.unwrap_or_else(|| file.place(error.table()));
        reader.wrong(place, error.to_string(), "here", "");
    }
    config.reads = folders_read(reader);
    config
}

/// A text that something else parses; its mistakes are placed at the text.
pub(super) fn parsed<T, E: ToString>(
    reader: &mut Reader,
    value: &Value<'_>,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Option<T> {
    let text = reader.text(value)?;
    match parse(text) {
        Ok(found) => Some(found),
        Err(error) => {
            reader.wrong(value.span(), error.to_string(), format!("found `{text}`"), "");
            None
        }
    }
}

/// What is read from the file that a text names.
pub(super) fn loaded<T, E: ToString>(
    reader: &mut Reader,
    value: &Value<'_>,
    load: impl FnOnce(&Path) -> Result<T, E>,
) -> Option<T> {
    let name = reader.text(value)?;
    let path = reader.file(name);
    parsed(reader, value, |_| load(&path))
}

/// A list of texts.
pub(super) fn texts<'a>(reader: &mut Reader, table: &'a Table<'_>, key: &str) -> Vec<&'a Value<'a>> {
    let Some(value) = table.get(key) else { return Vec::new() };
    match value.get_ref().as_array() {
        Some(list) => list.iter().collect(),
        None => {
            let help = format!("as in {key} = [\"...\", \"...\"]");
            reader.wrong(value.span(), "expected a list of texts", "not a list", help);
            Vec::new()
        }
    }
}

fn link(reader: &mut Reader, table: &Table<'_>) -> Option<Via> {
    let mut via = parsed(reader, table.get("interface")?, Via::new)?;
    if let Some(value) = table.get("name") {
        parsed(reader, value, |text| via.set_name(text));
    }
    via.metered = reader.switch(table, "metered").unwrap_or_default();
    via.backup = reader.switch(table, "backup").unwrap_or_default();
    via.gateway = table
        .get("gateway")
        .and_then(|value| parsed(reader, value, |text| text.parse().map_err(|_| "expected an IP address")));
    via.price = reader.number(table, "price");
    via.rate = table.get("rate").and_then(|value| reader.quantity(value, "20 Mbit/s", Rates::parse));
    via.throttle = table.get("throttle").and_then(|value| reader.quantity(value, "1 Mbit/s", Rates::parse));
    if via.throttle.is_some() && !table.has("quota") {
        let help = "as in quota = \"5GB/monthly\"";
        reader.wrong(table.place("throttle"), "`throttle` goes with `quota`", "no quota is given", help);
    }
    via.quota = table.get("quota").and_then(|value| parsed(reader, value, str::parse));
    Some(via)
}

/// A policy; of links that are known, it names no other.
fn policy(reader: &mut Reader, value: &Value<'_>, links: Option<&[Via]>) -> Option<Policy> {
    parsed(reader, value, |text| {
        let policy: Policy = text.parse()?;
        links.map_or(Ok(()), |links| policy.check(links))?;
        Ok::<_, PolicyError>(policy)
    })
}

fn rule(reader: &mut Reader, table: &Table<'_>, links: Option<&[Via]>) -> Option<Rule> {
    let mut rule = Rule::new(policy(reader, table.get("policy")?, links)?);
    for key in ["to", "port", "dscp"] {
        for value in texts(reader, table, key) {
            parsed(reader, value, |text| rule.add(key, text));
        }
    }
    rule.size = reader.bytes(table, "size").unwrap_or_default();
    Some(rule)
}

/// Without links nothing is asked of the policy.
fn proxy(reader: &mut Reader, table: &Table<'_>, via: Vec<Via>) -> Settings {
    const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
    let mut access = Access::default();
    for value in texts(reader, table, "allow") {
        let network = parsed(reader, value, |text| {
            let one = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
            one.map_err(|_| "expected a network such as 192.168.0.0/16, or an address")
        });
        access.allow.extend(network);
    }
    if let Some(value) = table.get("users") {
        access.users = loaded(reader, value, users::read).unwrap_or_default();
    }
    let links = Some(via.as_slice()).filter(|links| !links.is_empty());
    let other = table.get("policy").and_then(|value| policy(reader, value, links));
    let known = |text: &str| ropewalk_engine::congestion::builtin().parse(text).map(|_| text.to_string());
    let openings =
        [("nearest", OpeningLink::Nearest), ("remember", OpeningLink::Remember), ("race", OpeningLink::Race)];
    let mut transparent = Vec::new();
    let interface = |text: &str| Via::new(text).map(|via| via.interface);
    for value in texts(reader, table, "transparent") {
        transparent.extend(parsed(reader, value, interface));
    }
    let page_of = |text: &str| captive::check_target(text).map(|_| text.to_string());
    Settings {
        listen: table.get("listen").and_then(|value| socket(reader, value)).unwrap_or(NOWHERE),
        access,
        policies: Policies { rules: Vec::new(), other: other.unwrap_or_default() },
        usage: reader
            .folder
            .clone()
            .join(table.get("usage").and_then(|value| reader.text(value)).unwrap_or_default()),
        transparent,
        transparent_port: reader.integer(table, "transparent-port").unwrap_or_default() as u16,
        names_over_links: reader
            .choice(table, "names", &[("links", true), ("system", false)])
            .unwrap_or(true),
        datagrams_through_gateway: reader
            .choice(table, "datagrams", &[("gateway", true), ("system", false)])
            .unwrap_or(true),
        inbound: inbound::asked(reader, table),
        congestion: table
            .get("congestion")
            .and_then(|value| parsed(reader, value, known))
            .unwrap_or_default(),
        open_on: reader.choice(table, "open-on", &openings).unwrap_or_default(),
        early_join: reader.choice(table, "join", &[("early", true), ("late", false)]).unwrap_or_default(),
        mtu: reader.integer(table, "mtu").map(|mtu| mtu as u32),
        most_flows: reader.integer(table, "connections").unwrap_or_default() as usize,
        most_per_address: reader
            .integer(table, "connections-per-address")
            .unwrap_or_else(|| per_address(reader.integer(table, "connections")))
            as usize,
        memory: reader.bytes(table, "memory").unwrap_or_default(),
        stalled: duration(reader, table, "stalled"),
        connect_timeout: duration(reader, table, "connect-timeout"),
        probe: table.get("probe").and_then(|value| socket(reader, value)),
        probe_budget: reader.bytes(table, "probe-budget").unwrap_or_default(),
        captive_check: table.get("captive-check").and_then(|value| parsed(reader, value, page_of)),
        drain: duration(reader, table, "drain"),
        status: status(reader, table, "proxy"),
        metrics: table.get("metrics").and_then(|value| loopback(reader, value)),
        gateways: gateways(reader, table),
        direct_without_gateway: reader
            .choice(table, "gateway-fallback", &[("none", false), ("direct", true)])
            .unwrap_or_default(),
        page: page(reader, table),
        reads: Vec::new(),
        fixed: table.fixed(),
        via,
    }
}

/// The gateways that connect to servers for the proxy.
fn gateways(reader: &mut Reader, table: &Table<'_>) -> Vec<Gateway> {
    let values = texts(reader, table, "gateway");
    if values.is_empty() {
        let others = PROXY.fields.iter().map(|field| field.name).filter(|name| name.starts_with("gateway-"));
        for key in others.filter(|key| table.has(key)) {
            reader.wrong(table.place(key), format!("`{key}` goes with `gateway`"), "no gateway is named", "");
        }
        return Vec::new();
    }
    let cookie = table.get("gateway-cookie").and_then(|value| loaded(reader, value, Cookie::load));
    let certificates = texts(reader, table, "gateway-certificate");
    let key = table.get("gateway-key").and_then(|value| Some((value, reader.text(value)?)));
    if key.is_some() == certificates.is_empty() {
        let message = "`gateway-key` and `gateway-certificate` go together, and are texts";
        reader.wrong(table.place("gateway"), message, "TLS with this gateway", "");
    } else if ![0, 1, values.len()].contains(&certificates.len()) {
        let (message, count) = ("expected one certificate, or one for each gateway", certificates.len());
        let label = format!("{count} for {} gateways", values.len());
        reader.wrong(table.place("gateway-certificate"), message, label, "");
        return Vec::new();
    }
    let ready = reader.integer(table, "gateway-ready").unwrap_or_default() as usize;
    let early = reader.switch(table, "gateway-early").unwrap_or_default();
    let mut gateways = Vec::new();
    for (at, value) in values.into_iter().enumerate() {
        let certificate = certificates.get(at).or(certificates.first()).and_then(|value| reader.text(value));
        let tls = key.zip(certificate).and_then(|((key, name), certificate)| {
            let (key_file, certificate) = (reader.file(name), reader.file(certificate));
            let loaded = Connector::load(&key_file, &certificate);
            loaded.map_err(|error| reader.wrong(key.span(), error.to_string(), "here", "")).ok()
        });
        let Some(target) = parsed(reader, value, str::parse) else { continue };
        let mut gateway = Gateway::new(target);
        (gateway.cookie, gateway.tls) = (cookie.clone(), tls);
        (gateway.ready, gateway.early) = (ready, early);
        gateways.push(gateway);
    }
    gateways
}

#[cfg(test)]
mod tests;
