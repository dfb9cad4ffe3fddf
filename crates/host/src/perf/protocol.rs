//! What the two ends of a measurement say to each other: a hello at the start of each flow, an answer, and,
//! as the last bytes of the server's stream, a trailer with what it counted. Numbers are big-endian.
//!
//! | hello | | answer | | trailer | |
//! |---|---|---|---|---|---|
//! | 0 | `rwpf` | 0 | `rwpf` | 0 | `rwpe` |
//! | 4 | version, 1 | 4 | version, 1 | 4 | bytes received, 64 bits |
//! | 5 | way: 0 up, 1 down, 2 both, 3 echo | 5 | 0 yes, 1 no | 12 | bytes sent, 64 |
//! | 6 | number of this flow, 16 | 6 | 1 if the engine answers | 20 | time of receiving, ns, 64 |
//! | 8 | flows of the session, 16 | 7 | 0 | 28 | segments sent again, 64 |
//! | 10 | 0, 16 | 8 | length of the text, 16 | 36 | smoothed RTT, us, 32 |
//! | 12 | milliseconds, 32; 0: by size | 10 | text: why not | 40 | subflows, 8 |
//! | 16 | bytes each way, 64; 0: by time | | | 41 | 1 if Multipath TCP, 8 |
//! | 24 | session, 64 | | | 42 | zeros |
//! | 32 | bytes of an echo, 32 | | | | |
//! | 36 | length of the scheduler's name, 16 | | | | |
//! | 38 | length of the congestion control's, 16 | | | | |
//! | 40 | the two names | | | | |

use ropewalk_engine::Span;

/// The version that this program speaks.
pub const VERSION: u8 = 1;
/// A hello without its names.
pub const HELLO: usize = 40;
/// An answer without its text.
pub const ANSWER: usize = 10;
/// A trailer.
pub const TRAILER: usize = 64;
/// Longest measurement: a day.
pub const MOST_MILLISECONDS: u32 = 86_400_000;
/// Most flows of a session.
pub const MOST_FLOWS: u16 = 128;
/// Largest echo.
pub const MOST_ECHO: u32 = 65_536;
/// Longest name with parameters, and longest text of a refusal.
pub const MOST_TEXT: usize = 512;

const MAGIC: &[u8; 4] = b"rwpf";
const END: &[u8; 4] = b"rwpe";

/// Which way the bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// From the client.
    Up,
    /// To the client.
    Down,
    /// Both ways at once.
    Both,
    /// Small messages and their echo, one at a time.
    Echo,
}

impl Mode {
    /// Whether this side sends bulk.
    pub fn sends(self, client: bool) -> bool {
        matches!((self, client), (Mode::Up, true) | (Mode::Down, false) | (Mode::Both, _))
    }
}

/// What a client wants of a flow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    /// Which way.
    pub mode: Mode,
    /// This flow's number.
    pub flow: u16,
    /// How many flows the session has.
    pub flows: u16,
    /// For so long, milliseconds; 0: by `bytes`.
    pub milliseconds: u32,
    /// So many bytes each way; 0: by time.
    pub bytes: u64,
    /// Names the session.
    pub session: u64,
    /// Bytes of an echo; 0 unless the way is [`Mode::Echo`].
    pub echo: u32,
    /// Scheduler for what the server sends; empty: its own choice.
    pub scheduler: String,
    /// Congestion control for what the server sends; empty: its own choice.
    pub congestion: String,
}

/// The server's answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Whether the engine answers, or else a kernel.
    pub engine: bool,
    /// Why not, if it doesn't.
    pub refusal: Option<String>,
}

/// What the server counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Trailer {
    /// Bulk bytes that it received.
    pub received: u64,
    /// Bulk bytes that it sent.
    pub sent: u64,
    /// From its answer to the last byte received.
    pub receiving: Span,
    /// Segments that it sent again.
    pub retransmitted: u64,
    /// Its smoothed round-trip time, microseconds.
    pub srtt_us: u32,
    /// Subflows.
    pub subflows: u8,
    /// Whether it was Multipath TCP to the end.
    pub multipath: bool,
}

/// Bytes that are no message of this protocol.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// Another program.
    #[error("the peer doesn't speak ropewalk perf's protocol (its first bytes are {0})")]
    Foreign(String),
    /// Another version.
    #[error("the peer speaks version {0} of ropewalk perf's protocol, this program version {VERSION}")]
    Version(u8),
    /// A number out of its range.
    #[error("{what} is {found}: {allowed}")]
    Range {
        /// Which field.
        what: &'static str,
        /// What is in it.
        found: u64,
        /// What may be.
        allowed: &'static str,
    },
    /// A name that is no text.
    #[error("{0} is no UTF-8 text")]
    Text(&'static str),
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> u64 {
    bytes.iter().skip(at).take(N).fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// Judges the magic and the version as soon as they are there.
fn begins(bytes: &[u8], magic: &[u8; 4]) -> Result<(), Malformed> {
    let there = bytes.len().min(4);
    if bytes[..there] != magic[..there] {
        let shown = bytes[..bytes.len().min(8)].escape_ascii().to_string();
        return Err(Malformed::Foreign(format!("`{shown}`")));
    }
    match bytes.get(4) {
        Some(&version) if version != VERSION => Err(Malformed::Version(version)),
        _ => Ok(()),
    }
}

fn within(what: &'static str, found: u64, most: u64, allowed: &'static str) -> Result<u64, Malformed> {
    if found > most { Err(Malformed::Range { what, found, allowed }) } else { Ok(found) }
}

fn text(bytes: &[u8], what: &'static str) -> Result<String, Malformed> {
    String::from_utf8(bytes.to_vec()).map_err(|_| Malformed::Text(what))
}

impl Hello {
    /// As bytes. Names longer than allowed are cut.
    pub fn encode(&self) -> Vec<u8> {
        let cut = |name: &str| name[..name.floor_char_boundary(MOST_TEXT)].to_string();
        let (scheduler, congestion) = (cut(&self.scheduler), cut(&self.congestion));
        let mut bytes = MAGIC.to_vec();
        bytes.push(VERSION);
        bytes.push(match self.mode {
            Mode::Up => 0,
            Mode::Down => 1,
            Mode::Both => 2,
            Mode::Echo => 3,
        });
        bytes.extend(self.flow.to_be_bytes());
        bytes.extend(self.flows.to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend(self.milliseconds.to_be_bytes());
        bytes.extend(self.bytes.to_be_bytes());
        bytes.extend(self.session.to_be_bytes());
        bytes.extend(self.echo.to_be_bytes());
        bytes.extend((scheduler.len() as u16).to_be_bytes());
        bytes.extend((congestion.len() as u16).to_be_bytes());
        bytes.extend(scheduler.bytes().chain(congestion.bytes()));
        bytes
    }

    /// The hello at the start of `bytes` and its length; `None` while more is needed.
    ///
    /// # Errors
    /// What is wrong with it, as soon as that shows.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Hello, usize)>, Malformed> {
        begins(bytes, MAGIC)?;
        if bytes.len() < HELLO {
            return Ok(None);
        }
        let mode = match bytes[5] {
            0 => Mode::Up,
            1 => Mode::Down,
            2 => Mode::Both,
            3 => Mode::Echo,
            other => {
                let (what, allowed) = ("the way", "0 (up), 1 (down), 2 (both) or 3 (echo) is allowed");
                return Err(Malformed::Range { what, found: other.into(), allowed });
            }
        };
        let flows = number::<2>(bytes, 8);
        if flows == 0 {
            let (what, allowed) = ("the number of flows", "1 to 128 are allowed");
            return Err(Malformed::Range { what, found: 0, allowed });
        }
        within("the number of flows", flows, MOST_FLOWS.into(), "1 to 128 are allowed")?;
        let flow =
            within("a flow's number", number::<2>(bytes, 6), flows - 1, "it has to be below their count")?;
        within("the reserved field", number::<2>(bytes, 10), 0, "it has to be 0")?;
        let most = MOST_MILLISECONDS.into();
        let milliseconds =
            within("the time in ms", number::<4>(bytes, 12), most, "a day (86400000) at most is allowed")?;
        let size = number::<8>(bytes, 16);
        let echo = within(
            "the echo's size",
            number::<4>(bytes, 32),
            MOST_ECHO.into(),
            "65536 bytes at most are allowed",
        )?;
        if (milliseconds == 0) == (size == 0) {
            let (what, allowed) = ("the number of bytes", "either a time or a size has to be given");
            return Err(Malformed::Range { what, found: size, allowed });
        }
        if (mode == Mode::Echo) != (echo > 0) {
            let (what, allowed) = ("the echo's size", "it goes with the way `echo`, and only with it");
            return Err(Malformed::Range { what, found: echo, allowed });
        }
        let most = MOST_TEXT as u64;
        let scheduler =
            within("the length of a name", number::<2>(bytes, 36), most, "512 at most is allowed")?;
        let congestion =
            within("the length of a name", number::<2>(bytes, 38), most, "512 at most is allowed")?;
        let (middle, end) = (HELLO + scheduler as usize, HELLO + (scheduler + congestion) as usize);
        if bytes.len() < end {
            return Ok(None);
        }
        let hello = Hello {
            mode,
            flow: flow as u16,
            flows: flows as u16,
            milliseconds: milliseconds as u32,
            bytes: size,
            session: number::<8>(bytes, 24),
            echo: echo as u32,
            scheduler: text(&bytes[HELLO..middle], "the scheduler's name")?,
            congestion: text(&bytes[middle..end], "the congestion control's name")?,
        };
        Ok(Some((hello, end)))
    }
}

impl Answer {
    /// As bytes. A text longer than allowed is cut.
    pub fn encode(&self) -> Vec<u8> {
        let text = self.refusal.as_deref().unwrap_or_default();
        let text = &text[..text.floor_char_boundary(MOST_TEXT)];
        let mut bytes = MAGIC.to_vec();
        bytes.extend([VERSION, self.refusal.is_some().into(), self.engine.into(), 0]);
        bytes.extend((text.len() as u16).to_be_bytes());
        bytes.extend(text.bytes());
        bytes
    }

    /// The answer at the start of `bytes` and its length; `None` while more is needed.
    ///
    /// # Errors
    /// What is wrong with it, as soon as that shows.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Answer, usize)>, Malformed> {
        begins(bytes, MAGIC)?;
        if bytes.len() < ANSWER {
            return Ok(None);
        }
        let refused = within("the answer", bytes[5].into(), 1, "0 (yes) or 1 (no) is allowed")? == 1;
        let engine =
            within("the answering stack", bytes[6].into(), 1, "0 (kernel) or 1 (engine) is allowed")? == 1;
        let most = MOST_TEXT as u64;
        let end = ANSWER
            + within("the length of the text", number::<2>(bytes, 8), most, "512 at most is allowed")?
                as usize;
        if bytes.len() < end {
            return Ok(None);
        }
        let refusal = text(&bytes[ANSWER..end], "the refusal")?;
        Ok(Some((Answer { engine, refusal: refused.then_some(refusal) }, end)))
    }
}

impl Trailer {
    /// As bytes.
    pub fn encode(&self) -> [u8; TRAILER] {
        let mut bytes = [0; TRAILER];
        bytes[..4].copy_from_slice(END);
        bytes[4..12].copy_from_slice(&self.received.to_be_bytes());
        bytes[12..20].copy_from_slice(&self.sent.to_be_bytes());
        bytes[20..28].copy_from_slice(&self.receiving.as_nanos().to_be_bytes());
        bytes[28..36].copy_from_slice(&self.retransmitted.to_be_bytes());
        bytes[36..40].copy_from_slice(&self.srtt_us.to_be_bytes());
        bytes[40] = self.subflows;
        bytes[41] = self.multipath.into();
        bytes
    }

    /// From bytes; `None` if they are none.
    pub fn parse(bytes: &[u8]) -> Option<Trailer> {
        if bytes.len() != TRAILER
            || !bytes.starts_with(END)
            || bytes[41] > 1
            || bytes[42..] != [0; TRAILER - 42]
        {
            return None;
        }
        Some(Trailer {
            received: number::<8>(bytes, 4),
            sent: number::<8>(bytes, 12),
            receiving: Span::from_nanos(number::<8>(bytes, 20)),
            retransmitted: number::<8>(bytes, 28),
            srtt_us: number::<4>(bytes, 36) as u32,
            subflows: bytes[40],
            multipath: bytes[41] == 1,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello {
            mode: Mode::Both,
            flow: 2,
            flows: 3,
            milliseconds: 10_000,
            bytes: 0,
            session: 0x0102_0304_0506_0708,
            echo: 0,
            scheduler: "ecf(beta=0.5)".into(),
            congestion: "cubic".into(),
        }
    }

    #[test]
    fn what_is_written_reads_back_and_what_is_cut_short_waits() {
        let bytes = hello().encode();
        assert_eq!(Hello::parse(&bytes), Ok(Some((hello(), bytes.len()))));
        let more = [&bytes[..], b"bulk"].concat();
        assert_eq!(Hello::parse(&more), Ok(Some((hello(), bytes.len()))));
        for len in 0..bytes.len() {
            assert_eq!(Hello::parse(&bytes[..len]), Ok(None), "{len} bytes");
        }
        for refusal in [None, Some("busy".to_string())] {
            let answer = Answer { engine: true, refusal };
            let bytes = answer.encode();
            assert_eq!(Answer::parse(&bytes), Ok(Some((answer, bytes.len()))));
            assert_eq!(Answer::parse(&bytes[..bytes.len() - 1]), Ok(None));
        }
        let trailer = Trailer {
            received: 1,
            sent: 2,
            receiving: Span::from_nanos(3),
            retransmitted: 4,
            srtt_us: 5,
            subflows: 6,
            multipath: true,
        };
        assert_eq!(Trailer::parse(&trailer.encode()), Some(trailer));
        assert_eq!(Trailer::parse(&[0; TRAILER]), None);
        assert_eq!(Trailer::parse(&trailer.encode()[1..]), None);
    }

    #[test]
    fn what_is_wrong_is_said_with_what_is_allowed() {
        let wrong = |at: usize, value: u8| {
            let mut bytes = hello().encode();
            bytes[at] = value;
            Hello::parse(&bytes).expect_err("out of range").to_string()
        };
        let cases = [
            (0, b'G', "protocol (its first bytes are `GwpF"),
            (4, 9, "version 9 of"),
            (5, 4, "the way is 4: 0 (up)"),
            (8, 1, "the number of flows is 259: 1 to 128"),
            (9, 0, "the number of flows is 0"),
            (9, 2, "a flow's number is 2"),
            (11, 1, "the reserved field is 1"),
            (12, 255, "a day (86400000) at most"),
            (16, 1, "either a time or a size"),
            (33, 1, "it goes with the way `echo`"),
            (32, 1, "65536 bytes at most"),
            (36, 255, "the length of a name is 65293: 512"),
            (40, 0xff, "the scheduler's name is no UTF-8"),
        ];
        for (at, value, expected) in cases {
            let said = wrong(at, value);
            assert!(said.to_lowercase().contains(&expected.to_lowercase()), "byte {at}: {said}");
        }
        let foreign = Answer::parse(b"SSH-2.0-OpenSSH\r\n").expect_err("another program").to_string();
        assert!(foreign.contains("`SSH-2.0-`"), "{foreign}");
        // As soon as the first byte shows it.
        assert!(Hello::parse(b"G").is_err());
    }

    #[test]
    fn any_bytes_are_read_without_a_panic_and_what_is_taken_is_within_the_limits() {
        // A linear congruential generator: enough to reach every branch.
        let mut state = 1u64;
        let mut byte = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        for round in 0..20_000 {
            let mut bytes = hello().encode();
            for _ in 0..1 + round % 4 {
                let at = usize::from(byte()) % bytes.len();
                bytes[at] = byte();
            }
            bytes.truncate(usize::from(byte()));
            if let Ok(Some((hello, len))) = Hello::parse(&bytes) {
                assert!(len <= bytes.len() && hello.flows <= MOST_FLOWS && hello.flow < hello.flows);
                assert!(hello.milliseconds <= MOST_MILLISECONDS && hello.echo <= MOST_ECHO);
            }
            let _ = (Answer::parse(&bytes), Trailer::parse(&bytes));
        }
    }
}
