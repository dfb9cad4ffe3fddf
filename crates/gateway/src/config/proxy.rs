//! The proxy's file: `[proxy]`, `[[link]]`, `[[rule]]`.

pub(super) mod shape;

use std::net::IpAddr;
use std::ops::Range;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use ropewalk_settings::diagnostic::{InputError, Source};
use ropewalk_settings::read::{Reader, Table, Value, document};
use ropewalk_settings::schema::schema_of;
use ropewalk_settings::shape::{Kind, Shape, key};
use ropewalk_settings::written::Written;
use toml::de::DeTable;

use self::shape::{DATAGRAMS, GATEWAY_FALLBACK, JOIN, LINK, NAMES, OPEN_ON, PROXY, RULE};
use super::values::{chosen, loaded, parsed, texts};
use super::{folders_read, inbound, loopback, open, page, per_address, socket, status};
use crate::confine::folder_of;
use crate::convert::Cookie;
use crate::proxy::policy::{Policies, Policy, PolicyError, Rule};
use crate::proxy::{Access, Gateway, IpNet, LinkSettings, Rates, Settings, check_url, users};
use crate::tls::Connector;

/// Most rules.
const MOST_RULES: usize = 1000;

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
    document(source, folder, settings)
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
    options.read(settings)
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

impl FromStr for LinkSettings {
    type Err = InputError;

    fn from_str(text: &str) -> Result<LinkSettings, InputError> {
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
fn table(reader: &mut Reader, file: &DeTable<'_>, links: Vec<LinkSettings>) -> Settings {
    let none = DeTable::new();
    let table = file.get("proxy").and_then(|value| reader.table(&PROXY, value));
    let table = table.unwrap_or_else(|| reader.check(&PROXY, &none, 0..0, None));
    proxy(reader, &table, links)
}

fn settings(reader: &mut Reader, entries: &DeTable<'_>, first_line: Range<usize>) -> Settings {
    let file = reader.check(&FILE, entries, first_line.clone(), None);
    let mut links: Vec<LinkSettings> = Vec::new();
    for value in reader.array(&file, "link") {
        let Some(table) = reader.table(&LINK, value) else { continue };
        let Some(link) = link(reader, &table) else { continue };
        if links.iter().any(|known| known.name() == link.name()) {
            let message = format!("two links have the name `{}`", link.name());
            let help = "links of one interface need a `name` and a `gateway`, each its own";
            let key = if link.name.is_some() { "name" } else { "interface" };
            reader.wrong(table.place(key), message, "again here", help);
        }
        links.push(link);
    }
    if reader.array(&file, "link").is_empty() {
        let help = "as in:\n[[link]]\ninterface = \"wlan0\"\nor --via wlan0";
        reader.wrong(first_line, "a proxy needs a link", "no `[[link]]` in this file", help);
    }
    let mut settings = table(reader, entries, links);
    let rules = reader.array(&file, "rule");
    for value in rules.iter().take(MOST_RULES) {
        let Some(table) = reader.table(&RULE, value) else { continue };
        settings.policies.rules.extend(rule(reader, &table, Some(&settings.links)));
    }
    if let Some(value) = rules.get(MOST_RULES) {
        let message = format!("{} rules: at most {MOST_RULES} are allowed", rules.len());
        reader.wrong(value.span(), message, "the first too many", "");
    }
    // What concerns several keys.
    if reader.errors.is_empty()
        && let Err(error) = settings.check()
    {
        let key = error.key().zip(file.get(error.table()));
        let of_key = key.and_then(|(key, table)| Some(reader.table(&PROXY, table)?.place(key)));
        let place = of_key.unwrap_or_else(|| file.place(error.table()));
        reader.wrong(place, error.to_string(), "here", "");
    }
    settings.reads = folders_read(reader);
    settings
}

fn link(reader: &mut Reader, table: &Table<'_>) -> Option<LinkSettings> {
    let mut link = parsed(reader, table.get("interface")?, LinkSettings::new)?;
    if let Some(value) = table.get("name") {
        parsed(reader, value, |text| link.set_name(text));
    }
    link.metered = reader.with_default(table, "metered", Reader::switch);
    link.backup = reader.with_default(table, "backup", Reader::switch);
    link.gateway = table
        .get("gateway")
        .and_then(|value| parsed(reader, value, |text| text.parse().map_err(|_| "expected an IP address")));
    link.price = reader.number(table, "price");
    link.rate = table.get("rate").and_then(|value| reader.quantity(value, "20 Mbit/s", Rates::parse));
    link.throttle = table.get("throttle").and_then(|value| reader.quantity(value, "1 Mbit/s", Rates::parse));
    if link.throttle.is_some() && !table.has("quota") {
        let help = "as in quota = \"5GB/monthly\"";
        reader.wrong(table.place("throttle"), "`throttle` goes with `quota`", "no quota is given", help);
    }
    link.quota = table.get("quota").and_then(|value| parsed(reader, value, str::parse));
    Some(link)
}

/// A policy; of links that are known, it names no other.
fn policy(reader: &mut Reader, value: &Value<'_>, links: Option<&[LinkSettings]>) -> Option<Policy> {
    parsed(reader, value, |text| {
        let policy: Policy = text.parse()?;
        links.map_or(Ok(()), |links| policy.check(links))?;
        Ok::<_, PolicyError>(policy)
    })
}

fn rule(reader: &mut Reader, table: &Table<'_>, links: Option<&[LinkSettings]>) -> Option<Rule> {
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
fn proxy(reader: &mut Reader, table: &Table<'_>, links: Vec<LinkSettings>) -> Settings {
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
    let known_links = Some(links.as_slice()).filter(|links| !links.is_empty());
    let other = reader
        .with_default(table, "policy", |reader, table, key| policy(reader, table.get(key)?, known_links));
    let known = |text: &str| ropewalk_engine::congestion::builtin().parse(text).map(|_| text.to_string());
    let mut transparent = Vec::new();
    let interface = |text: &str| LinkSettings::new(text).map(|link| link.interface);
    for value in texts(reader, table, "transparent") {
        transparent.extend(parsed(reader, value, interface));
    }
    let connections = reader.with_default(table, "connections", Reader::integer);
    let page_of = |text: &str| check_url::check_target(text).map(|_| text.to_string());
    Settings {
        listen: reader.with_default(table, "listen", |reader, table, key| socket(reader, table.get(key)?)),
        access,
        policies: Policies { rules: Vec::new(), other },
        usage: reader.with_default(table, "usage", |reader, table, key| {
            let name = reader.text(table.get(key)?)?;
            Some(reader.folder.join(name))
        }),
        transparent,
        transparent_port: reader.with_default(table, "transparent-port", Reader::integer) as u16,
        names: chosen(reader, table, "names", &NAMES),
        datagrams: chosen(reader, table, "datagrams", &DATAGRAMS),
        inbound: inbound::targets(reader, table),
        congestion: reader
            .with_default(table, "congestion", |reader, table, key| parsed(reader, table.get(key)?, known)),
        open_on: chosen(reader, table, "open-on", &OPEN_ON),
        join: chosen(reader, table, "join", &JOIN),
        mtu: reader.integer(table, "mtu").map(|mtu| mtu as u32),
        most_connections: connections as usize,
        most_per_address: per_address(reader, table, connections),
        memory: reader.with_default(table, "memory", Reader::bytes),
        stalled: reader.with_default(table, "stalled", Reader::time).into(),
        connect_timeout: reader.with_default(table, "connect-timeout", Reader::time).into(),
        probe: table.get("probe").and_then(|value| socket(reader, value)),
        probe_budget: reader.with_default(table, "probe-budget", Reader::bytes),
        captive_check: table.get("captive-check").and_then(|value| parsed(reader, value, page_of)),
        drain: reader.with_default(table, "drain", Reader::time).into(),
        status: status(reader, table),
        metrics: table.get("metrics").and_then(|value| loopback(reader, value)),
        gateways: gateways(reader, table),
        gateway_fallback: chosen(reader, table, "gateway-fallback", &GATEWAY_FALLBACK),
        page: page(reader, table),
        reads: Vec::new(),
        fixed: table.fixed(),
        links,
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
    let ready = reader.with_default(table, "gateway-ready", Reader::integer) as usize;
    let early = reader.with_default(table, "gateway-early", Reader::switch);
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
