//! The contents of a scenario file, as data. The reader, its error messages and the JSON Schema are all made
//! from it, so they agree.

use ropewalk_settings::schema::{any_of, object, probability, quantity};
use ropewalk_settings::shape::{Field, Kind, Shape, key, required};
use serde_json::{Value, json};

use super::draft::{MOST_PATHS, MTU_RANGE};

/// Most bytes of a workload: 1 TiB.
pub const MOST_BYTES: u64 = 1 << 40;

/// `"100 packets"`, `"64 KiB"`, `"200 ms"`, or a table.
fn queue() -> Value {
    json!({ "$ref": "#/$defs/queue" })
}

/// `"0.5 %"`, `"1 % in bursts of 5"`, or a table.
fn loss() -> Value {
    let text = format!(r"none|{}(\s+in bursts of\s+[0-9.]+(\s*packets)?)?", probability());
    any_of(vec![quantity(&text, "1 % in bursts of 5", true), object(&LOSS, None)])
}

/// A mahimahi file, or a table that generates one.
fn trace() -> Value {
    any_of(vec![json!({ "type": "string", "minLength": 1 }), object(&GENERATOR, None)])
}

const QUEUE: Kind = Kind::Own(queue);
const LOSSES: Kind = Kind::Own(loss);
const TRACE: Kind = Kind::Own(trace);
const MTU: Kind = Kind::Bytes(MTU_RANGE.0, MTU_RANGE.1);
pub(crate) const BUFFER: Kind = Kind::Bytes(4096, 1 << 32);
const FLOW_SIZE: Kind = Kind::Bytes(1, MOST_BYTES);
const REQUEST: Kind = Kind::Bytes(1, 1 << 20);
const TIMES: Kind = Kind::Choice(&["pareto", "exponential"]);
pub(crate) const DIRECTIONS: Kind = Kind::Choice(&["download", "upload"]);

macro_rules! link_fields {
    ($rate:expr; $($before:expr),*) => {
        &[
            $($before,)*
            key("rate", $rate, "How fast packets leave the queue; of a path also down and up in one: `16/1 \
                                Mbit/s`. Either this or `trace`"),
            key("trace", TRACE, "A recorded link (mahimahi format), relative to this file, or a generated \
                                 one"),
            key("delay", Kind::TimeWithSpread, "One-way propagation delay, with its jitter: `10 ms +-2 ms`"),
            key("jitter-shape", Kind::Choice(&["uniform", "normal", "pareto"]), "Distribution of the \
                jitter; `+-` is the half-width of the uniform, the standard deviation of the others. \
                Default: uniform"),
            key("reordering", Kind::Switch, "Whether jitter may reorder packets, as netem's does without a \
                                             rate. Default: false"),
            key("loss", LOSSES, "Random loss. Default: none"),
            key("queue", QUEUE, "The queue before the link, in packets, bytes or time at the link's rate. \
                                 Default: one bandwidth-delay product, at least 64 packets"),
            key("netem-limit", Kind::Switch, "Whether a limit in packets counts all that hasn't arrived \
                                              yet, as netem's `limit` does where it has rate and delay. \
                                              Default: false"),
            key("duplicate", Kind::Probability, "Probability that a packet is delivered twice. Default: 0"),
            key("overhead", Kind::BytesOrNone(1000), "Bytes added to each packet's IP length when the rate \
                                                      is counted (38 for Ethernet with preamble and gap). \
                                                      Default: 0 B"),
            key("changes", Kind::Tables(&CHANGE), "Scheduled changes")
        ]
    };
}

const UP: Field = key("up", Kind::Table(&LINK), "Client to server, where it differs");
const DOWN: Field = key("down", Kind::Table(&LINK), "Server to client, where it differs");
const CONGESTION: Field = key("congestion", Kind::Text, "Its congestion control. Default: reno");

/// One direction of a link.
pub const LINK: Shape = Shape {
    name: "link",
    summary: "One direction; what is not given here is taken from the table above it",
    fields: link_fields!(Kind::Rate;),
};

/// `[[path]]`.
pub const PATH: Shape = Shape {
    name: "path",
    summary: "A network of the client; keys of a link hold for both directions, `up` and `down` override \
              them",
    fields: link_fields!(
        Kind::Rates;
        required("name", Kind::Name, "Its name: letters, digits, `-`, `_`, `.`"),
        key(
            "preset",
            Kind::Choice(&["dsl", "vdsl", "cable", "4g", "5g", "starlink", "geo", "wifi"]),
            "A kind of link; other keys replace its parts. docs/links.md has their numbers"
        ),
        key(
            "rtt",
            Kind::TimeWithSpread,
            "Round-trip time, split evenly over the two directions, jitter too. Instead of `delay`"
        ),
        UP,
        DOWN,
        key("mtu", MTU, "Largest IP packet, 576 B to 65535 B. Default: 1500 B"),
        key("backup", Kind::Switch, "Whether it is used only when no other path works. Default: false"),
        key("bottleneck", Kind::Text, "Name of the shared link that it runs through"),
        key("metered", Kind::Switch, "Whether its bytes cost something. Default: only with a `price`"),
        key("price", Kind::Price, "What 10^9 bytes cost, such as `2 EUR/GB`")
    ),
};

/// `[[bottleneck]]`.
pub const BOTTLENECK: Shape = Shape {
    name: "bottleneck",
    summary: "A link that several paths share, behind their own",
    fields: link_fields!(
        Kind::Rates;
        required("name", Kind::Name, "Its name"),
        key("rtt", Kind::TimeWithSpread, "What it adds to the round-trip time, split evenly. Default: 0"),
        UP,
        DOWN
    ),
};

/// An entry of `changes`.
pub const CHANGE: Shape = Shape {
    name: "change",
    summary: "A scheduled change: when, and exactly one thing",
    fields: &[
        required("at", Kind::Time, "When, from the start of the run"),
        key("every", Kind::Time, "Again and again, so long after the last time. Default: once"),
        key("for", Kind::Time, "Of a link that goes down: how long. Default: until a change brings it back"),
        key("rate", Kind::Rate, "The new rate"),
        key("trace", TRACE, "The new trace"),
        key("delay", Kind::Time, "The new one-way delay"),
        key("loss", LOSSES, "The new loss"),
        key(
            "link",
            Kind::Choice(&["down", "up"]),
            "The link goes down (everything is lost, queue included) or comes back",
        ),
    ],
};

/// A loss table.
pub const LOSS: Shape = Shape {
    name: "loss",
    summary: "Gilbert-Elliott: a two-state chain, stepped per packet",
    fields: &[
        required("to-bad", Kind::Probability, "P(good -> bad)"),
        required("to-good", Kind::Probability, "P(bad -> good)"),
        key("loss-good", Kind::Probability, "Loss in the good state. Default: 0 %"),
        key("loss-bad", Kind::Probability, "Loss in the bad state. Default: 100 %"),
    ],
};

/// The tables that a queue may be.
pub const QUEUES: &[Shape] = &[
    Shape {
        name: "drop-tail",
        summary: "Drops what doesn't fit",
        fields: &[
            required("limit", QUEUE, "Its limit, in packets, bytes or time"),
            key("ecn-threshold", QUEUE, "Marks ECN-capable packets from this fill on (in the limit's unit)"),
        ],
    },
    Shape {
        name: "codel",
        summary: "CoDel (RFC 8289)",
        fields: &[
            key("limit", QUEUE, "Hard limit in packets. Default: 1000 packets"),
            key("target", Kind::Time, "Target sojourn time. Default: 5 ms"),
            key("interval", Kind::Time, "Interval. Default: 100 ms"),
            key("ecn", Kind::Switch, "Mark ECN-capable packets instead of dropping. Default: false"),
        ],
    },
];

/// The table that a trace may be.
pub const GENERATOR: Shape = Shape {
    name: "trace",
    summary: "A cellular-like trace from a seeded generator: the rate is a bounded random walk in its \
              logarithm, with outages",
    fields: &[
        required("mean", Kind::Rate, "Mean rate outside outages"),
        key(
            "variation",
            Kind::Number(0.0, 2.0),
            "Standard deviation of the natural logarithm of the rate. Default: 0.5",
        ),
        key("memory", Kind::Time, "Time over which the rate forgets (correlation time). Default: 1 s"),
        key("outage-every", Kind::Time, "Mean time between outages. Default: none"),
        key("outage", Kind::Time, "Mean length of an outage. Default: 500 ms"),
        key("length", Kind::Time, "Length, after which it repeats. Default: 60 s"),
        key("seed", Kind::Integer(0, u64::MAX), "Its seed. Default: 1"),
    ],
};

/// A workload's `key-frames`.
pub const KEY_FRAMES: Shape = Shape {
    name: "key-frames",
    summary: "A video's key frames, which are coded without the frames before them",
    fields: &[
        required("frame", Kind::Bytes(1, 1 << 30), "Bytes of a key frame"),
        required("every", Kind::Integer(1, u32::MAX as u64), "Every so many frames one is; the first too"),
    ],
};

/// `[workload]`.
pub const WORKLOADS: &[Shape] = &[
    Shape {
        name: "flow",
        summary: "One flow; the metric is its completion time",
        fields: &[required("size", FLOW_SIZE, "Its size")],
    },
    Shape {
        name: "flows",
        summary: "Several flows at once, each on a connection of its own",
        fields: &[
            required("count", Kind::Integer(1, 100_000), "How many"),
            required("size", FLOW_SIZE, "Size of each"),
        ],
    },
    Shape {
        name: "web",
        summary: "A web page: objects over a number of connections, request and response",
        fields: &[
            required(
                "objects",
                Kind::Sizes,
                "Sizes of the objects, in the order in which they are asked for",
            ),
            key("connections", Kind::Integer(1, 1000), "Connections. Default: 6"),
            key("request", REQUEST, "Bytes of a request. Default: 400 B"),
            key(
                "persistent",
                Kind::Switch,
                "Whether a connection carries one object after another; `false`: each object has a \
                 connection of its own. Default: true",
            ),
        ],
    },
    Shape {
        name: "cbr",
        summary: "Frames at a constant rate; the metric is each frame's delay",
        fields: &[
            required("frame", Kind::Bytes(1, 1 << 30), "Bytes per frame"),
            required(
                "rate",
                Kind::Rate,
                "Application rate without key frames: a frame every 8 x `frame` / `rate`",
            ),
            key("key-frames", Kind::Table(&KEY_FRAMES), "Larger frames among them. Default: none"),
            required("duration", Kind::Time, "How long"),
            key(
                "deadline",
                Kind::Time,
                "How long a frame is of use, for schedulers that ask. Default: they see no frames",
            ),
        ],
    },
    Shape {
        name: "bulk",
        summary: "As much as possible for a time; the metric is goodput",
        fields: &[required("duration", Kind::Time, "How long")],
    },
    Shape {
        name: "request-response",
        summary: "Exchanges one after another on one connection; the metric is each one's time",
        fields: &[
            key("request", REQUEST, "Bytes of a request. Default: 400 B"),
            required("response", FLOW_SIZE, "Bytes of a response"),
            required("count", Kind::Integer(1, 1_000_000), "How many"),
            key("think", Kind::Time, "Pause between them. Default: 0 s"),
        ],
    },
    Shape {
        name: DATAGRAMS,
        summary: "What a tunnel for datagrams carries, as `ropewalkd proxy --transparent` has one; the \
                  metric is the share of packets that are lost or late",
        fields: &[
            required("flows", Kind::Own(flow_kinds), "Kinds of its flows: voice, video, game, download"),
            required("duration", Kind::Time, "How long each sends"),
            key("deadline", Kind::Time, "A packet that takes longer is late. Default: 150 ms"),
        ],
    },
];

/// The name of the workload that no TCP carries.
pub(super) const DATAGRAMS: &str = "datagrams";

fn flow_kinds() -> serde_json::Value {
    let names: Vec<&str> = ropewalk_sim::datagrams::Kind::ALL.iter().map(|(name, _)| *name).collect();
    serde_json::json!({ "type": "array", "items": { "enum": names }, "minItems": 1, "maxItems": MOST_FLOWS })
}

/// Most flows of datagrams.
pub(super) const MOST_FLOWS: usize = 100;

macro_rules! background_fields {
    ($($own:expr),*) => {
        &[
            $($own,)*
            required("path", Kind::Text, "The path whose links it takes"),
            key("direction", DIRECTIONS, "Which way its data flows. Default: the scenario's direction"),
            key("extra-delay", Kind::Time, "One-way delay that only this traffic sees. Default: 0 s"),
            key("start", Kind::Time, "When it starts, from the start of the run. Default: 0 s"),
            key("stop", Kind::Time, "When it stops. Default: never"),
            key("count", Kind::Integer(1, 1000), "How many like it. Default: 1")
        ]
    };
}

/// `[[background]]`.
pub const BACKGROUNDS: &[Shape] = &[
    Shape {
        name: "tcp-saturated",
        summary: "A TCP flow that always has data",
        fields: background_fields!(CONGESTION),
    },
    Shape {
        name: "mptcp-saturated",
        summary: "A Multipath TCP connection over all paths that always has data; it opens on `path`",
        fields: background_fields!(
            CONGESTION,
            key("scheduler", Kind::Text, "Its scheduler, a built-in one. Default: ropewalk")
        ),
    },
    Shape {
        name: "tcp-limited",
        summary: "A TCP flow whose application writes one packet at a time, exponentially spaced",
        fields: background_fields!(
            CONGESTION,
            required("packets-per-second", Kind::Number(0.001, 1e6), "Mean packets per second"),
            key("packet", Kind::Bytes(1, 65_535), "Bytes per packet. Default: 1000 B")
        ),
    },
    Shape {
        name: "tcp-flows",
        summary: "TCP flows of a size, one after another",
        fields: background_fields!(
            CONGESTION,
            required("size", FLOW_SIZE, "Bytes per flow"),
            key("pause", Kind::Time, "Idle time between flows. Default: 0 s"),
            key(
                "times",
                Kind::Integer(0, 1_000_000),
                "How many, one after another; a run waits for them. Default: 0, without end"
            ),
            key(
                "receive-buffer",
                BUFFER,
                "Fixed receive buffer of its hosts, 4096 B at least. Default: growing, as the system has it"
            )
        ),
    },
    Shape {
        name: "udp-on-off",
        summary: "UDP on/off",
        fields: background_fields!(
            required("rate", Kind::Rate, "Rate while on"),
            key("packet", Kind::Bytes(64, 65_535), "Mean packet. Default: 1000 B"),
            required("on", Kind::Time, "Mean on time"),
            key("on-shape", TIMES, "Their distribution; Pareto has shape 1.5. Default: pareto"),
            required("off", Kind::Time, "Mean off time"),
            key("off-shape", TIMES, "Their distribution. Default: exponential")
        ),
    },
];

/// `[client]`, `[server]`, `[ends]`.
pub const END: Shape = Shape {
    name: "end",
    summary: "Settings of an end; `ends` sets both, `client` and `server` override it",
    fields: &[
        key(
            "host",
            Kind::Choice(&["linux-6.18", "linux-4.19", "linux-3.14", "ns-3"]),
            "A system: the lines of its profile (docs/hosts.md); other keys replace its parts. Default: \
             linux-6.18",
        ),
        key("send-buffer", BUFFER, "Connection-level send buffer. Default: 4 MiB"),
        key("receive-buffer", BUFFER, "Connection-level receive buffer. Default: 6 MiB"),
        key("autotune", Kind::Switch, "Whether buffers start small and grow as Linux's do. Default: true"),
        key("checksum", Kind::Switch, "DSS checksums. Default: false"),
        key("ecn", Kind::Switch, "ECN. Default: false"),
        key("min-rto", Kind::Time, "Least retransmission timeout. Default: 200 ms"),
        key("initial-window", Kind::Integer(1, 1000), "Initial window, segments. Default: 10"),
        key(
            "early-join",
            Kind::Switch,
            "Joins begin with the third ACK, not after the first DSS as Linux's do. Default: false",
        ),
        key(
            "path-manager",
            Kind::Choice(&["ropewalk", "linux"]),
            "What the client does about a silent link: leaves it after a second and uses it again once it \
             answers, as the proxy; \
             or keeps its subflows until they time out, as Linux. Default: ropewalk",
        ),
        key(
            "initial-threshold",
            Kind::Integer(0, 1_000_000),
            "Slow start threshold of a new connection, segments, as the route's cache keeps it; 0: none. \
             Default: 0",
        ),
        key(
            "loss-detection",
            Kind::Choice(&["rack", "duplicate-acks"]),
            "How losses are found with SACK: by time, or by the duplicate ACK threshold with FACK. Default: \
             rack",
        ),
        key(
            "early-retransmit",
            Kind::Switch,
            "Early retransmit (RFC 5827), with `duplicate-acks` only. Default: false",
        ),
        key(
            "forward-retransmit",
            Kind::Switch,
            "In recovery retransmit holes that aren't marked as lost, once nothing else is left (RFC 6675's \
             NextSeg rule 3), with `duplicate-acks` only. Default: false",
        ),
        key("tail-loss-probe", Kind::Switch, "Tail loss probes (RFC 8985). Default: true"),
        key("undo", Kind::Switch, "F-RTO and undo of spurious retransmissions. Default: true"),
        key("sack", Kind::Switch, "Selective acknowledgements (RFC 2018). Default: true"),
        key("timestamps", Kind::Switch, "Timestamps (RFC 7323). Default: true"),
        key(
            "loss-window",
            Kind::Choice(&["in-flight", "one"]),
            "Window after a timeout: what is in flight and one segment, or one. Default: in-flight",
        ),
        key(
            "prr",
            Kind::Choice(&["conservative", "slow-start"]),
            "Below the threshold PRR grows the window with ACKs that advance without a new loss, or with \
             all. Default: conservative",
        ),
        key(
            "window-limit",
            Kind::Choice(&["per-window", "per-ack", "always"]),
            "The window may grow if it was full in a window of data, or nearly so when the ACK came. \
             Default: per-window",
        ),
        key(
            "ack-counting",
            Kind::Choice(&["segments", "one-in-avoidance", "one"]),
            "What an additive increase counts of an ACK: its segments; one in congestion avoidance; one, in \
             slow start too. Default: segments",
        ),
        key("idle-restart", Kind::Switch, "Restart the window after an idle time. Default: true"),
        key("rtt-tick", Kind::Time, "Tick of the clock for round-trip times. Default: 0 s, exact"),
        key("delayed-ack", Kind::Time, "How long an ACK may wait, at least at first. Default: 40 ms"),
        key(
            "initial-receive-window",
            Kind::Integer(0, 1000),
            "Segments that the receive window offers at first; 0: 64 KiB. Default: 0",
        ),
        key(
            "initial-receive-space",
            Kind::Bytes(1, 1 << 30),
            "How far a growing receive window opens before anything is read. Default: 64 KiB",
        ),
        key("quick-acks", Kind::Integer(0, 1000), "ACKs sent at once at the start. Default: 16"),
        key(
            "acks",
            Kind::Choice(&["linux-6.18", "linux-3.14"]),
            "When ACKs leave: in Linux 3.14 they wait while the window is smaller than the last, and PSH \
             doesn't hasten them. Default: linux-6.18",
        ),
        key(
            "data-ack",
            Kind::Choice(&["with-ack", "first", "first-by-window"]),
            "A DATA_ACK lets data be scheduled with its subflow's acknowledgement, before it, or before it \
             with the subflow's own window as a limit. Default: with-ack",
        ),
        key(
            "whole-segments",
            Kind::Switch,
            "New data needs a whole segment's room in the peer's window. Default: false",
        ),
        key(
            "dsn",
            Kind::Choice(&["64-bit", "32-bit"]),
            "DSNs on data; 32 bits leave 8 bytes to a segment. Default: 64-bit",
        ),
        key(
            "buffers",
            Kind::Choice(&["payload", "memory"]),
            "What the buffers' sizes count: payload, or memory as Linux's truesize. Default: payload",
        ),
        key(
            "receive-tuning",
            Kind::Choice(&["longest", "longest-in-steps", "prompt"]),
            "How a growing receive buffer follows what is read: once in the longest round trip, the same in \
             Linux 3.13's steps, or up to four times in it. Default: longest",
        ),
        key(
            "receive-segment-memory",
            Kind::BytesOrNone(1 << 20),
            "Memory of one full segment in the receive buffer; half of it is taken of the window. Default: \
             0 B, as much as its payload",
        ),
        key(
            "send-tuning",
            Kind::Choice(&["own-window", "longest-round-trip"]),
            "What a growing send buffer of Multipath TCP follows: twice a subflow's window, or what that \
             carries in the longest round trip. Default: own-window",
        ),
        key(
            "send-segment-memory",
            Kind::BytesOrNone(1 << 20),
            "Memory of one full segment in the send buffer, whose size then counts memory, whatever \
             `buffers` says; with checksums in that of Multipath TCP only. Default: 0 B, `buffers` decides",
        ),
        key(
            "cubic",
            Kind::Choice(&["rfc", "linux-3.14", "linux-4.19"]),
            "What `cubic` means here. Default: rfc",
        ),
    ],
};

/// `[experiment]`.
pub const EXPERIMENT: Shape = Shape {
    name: "experiment",
    summary: "What `ropewalk compare` does with it unless told otherwise",
    fields: &[
        key("sizes", Kind::Sizes, "Flow sizes. Default: the workload's"),
        key("congestion", Kind::Text, "Congestion control. Default: cubic"),
        key("schedulers", Kind::Texts, "Schedulers. Default: all"),
        key("runs", Kind::Integer(1, 1_000_000), "Seeded runs of each. Default: 30"),
    ],
};

/// The whole file.
pub const FILE: Shape = Shape {
    name: "scenario",
    summary: "A Ropewalk scenario: two ends, the paths between them, and what goes over them",
    fields: &[
        key("name", Kind::Name, "Its name. Default: the file's"),
        key("summary", Kind::Text, "One line"),
        key("direction", DIRECTIONS, "Which end sends the data. Default: download (server to client)"),
        key(
            "warmup",
            Kind::Time,
            "The run starts this long before the workload does, so that background traffic settles. \
             Default: 0 s",
        ),
        key(
            "limit",
            Kind::Time,
            "A run that isn't complete so long after the workload's start ends, and says so. Default: 60 s",
        ),
        required(
            "path",
            Kind::SomeTables(&PATH, MOST_PATHS),
            "The paths; the connection starts on the first",
        ),
        key("bottleneck", Kind::Tables(&BOTTLENECK), "Links that paths share"),
        key("background", Kind::TaggedTables(BACKGROUNDS), "Traffic that competes"),
        key("workload", Kind::Tagged(WORKLOADS), "What is transferred. Default: one flow of 1 MiB"),
        key("ends", Kind::Table(&END), "Settings of both ends"),
        key("client", Kind::Table(&END), "The client, which opens the connection"),
        key("server", Kind::Table(&END), "The server"),
        key("experiment", Kind::Table(&EXPERIMENT), "Defaults of `ropewalk compare`"),
    ],
};
