//! What `[proxy]`, `[[link]]` and `[[rule]]` may hold.

use ropewalk_engine::congestion::DEFAULT_NAME;
use ropewalk_settings::shape::{Files, Kind, Shape, key, required, words};

use crate::config::{DRAIN, MEMORY, METRICS, PAGE, PAGE_TOKEN, STALLED};
use crate::proxy::{Datagrams, GatewayFallback, Join, MOST_READY, Names, OpeningLink};

/// The words of `open-on`.
pub(super) const OPEN_ON: [(&str, OpeningLink); 3] =
    [("nearest", OpeningLink::Nearest), ("remember", OpeningLink::Remember), ("race", OpeningLink::Race)];
/// The words of `join`.
pub(super) const JOIN: [(&str, Join); 2] = [("early", Join::Early), ("late", Join::Late)];
/// The words of `names`.
pub(super) const NAMES: [(&str, Names); 2] = [("links", Names::Links), ("system", Names::System)];
/// The words of `datagrams`.
pub(super) const DATAGRAMS: [(&str, Datagrams); 2] =
    [("gateway", Datagrams::Gateway), ("system", Datagrams::System)];
/// The words of `gateway-fallback`.
pub(super) const GATEWAY_FALLBACK: [(&str, GatewayFallback); 2] =
    [("none", GatewayFallback::None), ("direct", GatewayFallback::Direct)];

pub(in crate::config) const PROXY: Shape = Shape {
    name: "proxy",
    summary: "The proxy as a whole",
    fields: &[
        key("listen", Kind::Socket, "Where programs connect").default("127.0.0.1:1080").restart(),
        key("users", Kind::File, "A file with one NAME:PASSWORD a line. Default: clients need no password")
            .files(Files::Read)
            .reload(),
        key("allow", Kind::Texts, "Networks and addresses that clients may come from")
            .value("NETWORK")
            .reload(),
        key(
            "policy",
            Kind::Text,
            "How connections use the links where no rule fits: fastest, redundant, save-metered, \
             active-standby, smallest-delay, priority, `load-balance 70:30` (a share for each link), or a \
             scheduler's name; past the gateway with `direct` before it; perhaps limited, as in `redundant \
             over wlan0,wwan0`",
        )
        .default("fastest")
        .value("POLICY")
        .reload(),
        key("congestion", Kind::Text, "Congestion control of what is sent")
            .default(DEFAULT_NAME)
            .value("NAME")
            .reload(),
        key(
            "open-on",
            Kind::Choice(&words(&OPEN_ON)),
            "The link on which a connection opens, where the policy doesn't order them",
        )
        .default("remember")
        .reload(),
        key(
            "join",
            Kind::Choice(&words(&JOIN)),
            "When subflows on the other links are opened: with the third ACK, or after the first DSS",
        )
        .default("early")
        .reload(),
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
            "The port to which they are redirected, and queries of names with them",
        )
        .default("1081")
        .restart(),
        key(
            "names",
            Kind::Choice(&words(&NAMES)),
            "How queries of the DNS travel that would leave by a link: over any that works, or by the \
             kernel's routes",
        )
        .default("links")
        .restart(),
        key(
            "datagrams",
            Kind::Choice(&words(&DATAGRAMS)),
            "How what comes in by `transparent` interfaces and isn't TCP travels: through the gateway over \
             all links, if it takes it (`udp`), or by the kernel's routes",
        )
        .default("gateway")
        .restart(),
        key(
            "inbound",
            Kind::Texts,
            "With `transparent` and a gateway with keys: ports that it gives this proxy (its `inbound`), and \
             the hosts that they lead to: `tcp/8022 to 192.168.1.10:22`, `udp/5000-5100 to 192.168.1.11`",
        )
        .value("PORTS to HOST")
        .reload(),
        key(
            "mtu",
            Kind::Integer(576, 65_535),
            "Largest IP packet on every link, bytes. Default: what each interface takes",
        )
        .reload(),
        key("connections", Kind::Integer(1, 1_000_000), "Most connections at a time")
            .default("4096")
            .restart(),
        key(
            "connections-per-address",
            Kind::Integer(1, 1_000_000),
            "Most connections of one address (an IPv6 /64). Default: half of `connections`, 100 at least; \
             this host's own programs may have all",
        )
        .reload(),
        MEMORY,
        STALLED,
        key("connect-timeout", Kind::Time, "How long opening a connection may take").default("15 s").reload(),
        DRAIN,
        key(
            "probe",
            Kind::Socket,
            "Where links are probed: an address and port that answer TCP. Default: the last that answered",
        )
        .reload(),
        key("probe-budget", Kind::Bytes(1, 1 << 40), "What probes may cost on each link, per hour")
            .default("1 MiB")
            .reload(),
        key(
            "captive-check",
            Kind::Text,
            "A page that answers 204: a link over which anything else answers is behind a captive portal",
        )
        .value("URL")
        .reload(),
        key(
            "gateway",
            Kind::Texts,
            "Gateways that connect to servers for the proxy (RFC 8803), by address or name, with port: \
             everything goes to the first that works",
        )
        .value("HOST:PORT")
        .reload(),
        key(
            "gateway-fallback",
            Kind::Choice(&words(&GATEWAY_FALLBACK)),
            "Where connections go while no gateway can be reached: nowhere, or to their servers, over one \
             link each where these have no Multipath TCP",
        )
        .default("none")
        .reload(),
        key(
            "gateway-cookie",
            Kind::File,
            "A file with what the gateway has to be shown, mode 0600 (`ropewalkd keys cookie`)",
        )
        .files(Files::Read)
        .reload(),
        key(
            "gateway-key",
            Kind::File,
            "This proxy's key for TLS with the gateway, mode 0600 (`ropewalkd keys pair`)",
        )
        .files(Files::Read)
        .reload(),
        key(
            "gateway-certificate",
            Kind::Texts,
            "With `gateway-key`: the gateway's certificate, or one for each gateway",
        )
        .value("FILE")
        .files(Files::Read)
        .reload(),
        key(
            "gateway-ready",
            Kind::Integer(0, MOST_READY),
            "Connections to the gateway that are kept ready for clients",
        )
        .default("0")
        .reload(),
        key(
            "gateway-early",
            Kind::Switch,
            "Tell clients that they are connected before the server has answered",
        )
        .default("false")
        .reload(),
        key("usage", Kind::File, "Where the use of quotas is kept")
            .default("/var/lib/ropewalk/usage.json")
            .files(Files::Written)
            .restart(),
        key("status", Kind::Text, "The Unix socket that `ropewalkd status` asks, or `none`")
            .otherwise(ropewalk_status::OF_PROXY)
            .value("PATH")
            .restart(),
        METRICS,
        PAGE,
        PAGE_TOKEN,
    ],
};

pub(in crate::config) const LINK: Shape = Shape {
    name: "link",
    summary: "An uplink; the first is preferred where the order counts",
    fields: &[
        required("interface", Kind::Text, "The interface: `wlan0`").reload(),
        key(
            "name",
            Kind::Text,
            "What policies, log and status call it; two links of one interface need it and `gateway`. \
             Default: the interface's name",
        )
        .value("NAME")
        .reload(),
        key("metered", Kind::Switch, "Its traffic costs: policies that save metered links avoid it")
            .default("false")
            .reload(),
        key("backup", Kind::Switch, "It is used while no other works").default("false").reload(),
        key("gateway", Kind::Address, "Its next hop. Default: that of the interface's default route")
            .reload(),
        key(
            "price",
            Kind::Number(0.0, 1e12),
            "Its cost compared with other links, in any unit. Default: 1 if metered, else 0",
        )
        .reload(),
        key(
            "rate",
            Kind::Rates,
            "Most that it carries each way, `20 Mbit/s`, or down and up, `16/1 Mbit/s`. Default: no limit",
        )
        .reload(),
        key(
            "quota",
            Kind::Text,
            "Most that it carries in a period: `5GB/monthly@12`, `2GB/weekly@mon`, `500MB/daily`. Default: \
             none",
        )
        .value("QUOTA")
        .reload(),
        key(
            "throttle",
            Kind::Rates,
            "With `quota`: most that it carries each way once that is used up, as in `1 Mbit/s`; it stands \
             by for other links then. Default: it isn't used",
        )
        .reload(),
    ],
};

pub(in crate::config) const RULE: Shape = Shape {
    name: "rule",
    summary: "A policy for the connections that fit all of its conditions; the first rule that fits decides",
    fields: &[
        required("policy", Kind::Text, "What follows: `redundant`, `save-metered over wlan0,wwan0`").reload(),
        key("to", Kind::Texts, "Destinations: addresses, networks, names, `*.example.org`. Default: all")
            .value("DESTINATION")
            .reload(),
        key("port", Kind::Texts, "Ports: `22`, `5060-5061`. Default: all").value("PORTS").reload(),
        key(
            "size",
            Kind::Bytes(1, 1 << 50),
            "From so many bytes on that the connection has carried. Default: from the start",
        )
        .reload(),
        key("dscp", Kind::Texts, "DSCP of the client's SYN: `ef`, `af41`, `46`. Default: any")
            .value("DSCP")
            .reload(),
    ],
};
