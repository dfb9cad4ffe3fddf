//! Messages of the DNS (RFC 1035): as much of them as asking for addresses needs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// Bytes of a message's header.
const HEADER: usize = 12;
/// Answered, and not whole (RFC 1035 4.1.1): QR and TC.
const ANSWER: u8 = 0x80;
const TRUNCATED: u8 = 0x02;
/// The class of the Internet.
const INTERNET: u16 = 1;
/// Types of records.
const A: u16 = 1;
const AAAA: u16 = 28;
const CNAME: u16 = 5;

/// What a server found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// An answer: that there is no such name is one, too.
    Answer,
    /// The server failed, or refuses to tell: another one may.
    Nothing,
}

/// A question for a name's addresses; `None` if it can't be a name.
pub(super) fn question(id: u16, name: &str, v6: bool) -> Option<Vec<u8>> {
    let name = name.strip_suffix('.').unwrap_or(name);
    // One question, recursion desired.
    let mut message = [&id.to_be_bytes()[..], &[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]].concat();
    for label in name.split('.') {
        let len = u8::try_from(label.len()).ok().filter(|len| (1..64).contains(len))?;
        message.push(len);
        message.extend(label.bytes());
    }
    message.push(0);
    message.extend(if v6 { AAAA } else { A }.to_be_bytes());
    message.extend(INTERNET.to_be_bytes());
    (message.len() <= HEADER + 255 + 4).then_some(message)
}

fn number(message: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*message.get(at..)?.first_chunk()?))
}

/// Where a name ends that begins at `at`.
fn end_of_name(message: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *message.get(at)? {
            0 => return Some(at + 1),
            // A pointer ends it.
            len if len >= 0xc0 => return Some(at + 2),
            len => at += 1 + usize::from(len),
        }
    }
}

/// The one question of a message: its bytes without the header.
fn asked(message: &[u8]) -> Option<&[u8]> {
    (number(message, 4)? == 1).then_some(())?;
    message.get(HEADER..end_of_name(message, HEADER)? + 4)
}

/// What a message is as an answer to a query; `None` if it is none.
pub(super) fn answers(query: &[u8], message: &[u8]) -> Option<Found> {
    let is_answer = message.get(..2)? == query.get(..2)? && message.get(2)? & ANSWER != 0;
    let code = message.get(3)? & 0x0f;
    let is_same = match (asked(message), asked(query)) {
        (Some(one), Some(other)) => one.eq_ignore_ascii_case(other),
        // Who doesn't understand a question may leave it out.
        (None, _) => code != 0,
        (Some(_), None) => false,
    };
    // SERVFAIL, NOTIMP, REFUSED.
    let found = if [2, 4, 5].contains(&code) { Found::Nothing } else { Found::Answer };
    (is_answer && is_same).then_some(found)
}

/// The addresses in an answer, and for how long they hold.
pub(super) fn addresses(message: &[u8]) -> Option<(Vec<IpAddr>, Duration)> {
    let mut at = HEADER + asked(message)?.len();
    let (mut found, mut age) = (Vec::new(), u32::MAX);
    for _ in 0..number(message, 6)? {
        at = end_of_name(message, at)?;
        let kind = number(message, at)?;
        let seconds = u32::from_be_bytes(*message.get(at + 4..)?.first_chunk()?);
        let data = message.get(at + 10..)?.get(..usize::from(number(message, at + 8)?))?;
        at += 10 + data.len();
        match kind {
            A => found.push(Ipv4Addr::from(<[u8; 4]>::try_from(data).ok()?).into()),
            AAAA => found.push(Ipv6Addr::from(<[u8; 16]>::try_from(data).ok()?).into()),
            CNAME => {}
            _ => continue,
        }
        age = age.min(seconds);
    }
    Some((found, Duration::from_secs(age.into())))
}

/// An answer that says that it doesn't fit a datagram: the client asks by TCP.
pub(super) fn truncated(query: &[u8]) -> Option<Vec<u8>> {
    let end = HEADER + asked(query)?.len();
    let mut message = query.get(..end)?.to_vec();
    message[2] |= ANSWER | TRUNCATED;
    // Only the question is in it.
    message[6..HEADER].fill(0);
    Some(message)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The answer of a server to a question, with the addresses that fit its type.
    fn answer(query: &[u8], code: u8, addresses: &[IpAddr]) -> Vec<u8> {
        let question = asked(query).unwrap();
        let v6 = question[question.len() - 3] == AAAA as u8;
        let fitting: Vec<_> = addresses.iter().filter(|address| address.is_ipv6() == v6).collect();
        let mut message =
            [&query[..2], &[0x81, 0x80 | code, 0, 1, 0, fitting.len() as u8 + 1, 0, 0, 0, 0]].concat();
        message.extend(question);
        // An alias first, with a pointer as its name.
        message.extend([0xc0, 12, 0, 5, 0, 1, 0, 0, 1, 0, 0, 4, 1, b'x', 0xc0, 12]);
        for address in fitting {
            let octets = match address {
                IpAddr::V4(v4) => v4.octets().to_vec(),
                IpAddr::V6(v6) => v6.octets().to_vec(),
            };
            message.extend(
                [&[0xc0, 12, 0, if v6 { 28 } else { 1 }, 0, 1, 0, 0, 0, 60, 0, octets.len() as u8], &*octets]
                    .concat(),
            );
        }
        message
    }

    #[test]
    fn addresses_are_asked_for_and_read() {
        let query = question(7, "www.Example.org.", false).unwrap();
        assert_eq!(query[..2], [0, 7]);
        assert_eq!(query[12..], *b"\x03www\x07Example\x03org\0\0\x01\0\x01");
        let list: [IpAddr; 3] = ["192.0.2.1", "192.0.2.2", "2001:db8::1"].map(|one| one.parse().unwrap());
        let message = answer(&query, 0, &list);
        assert_eq!(answers(&query, &message), Some(Found::Answer));
        assert_eq!(addresses(&message), Some((list[..2].to_vec(), Duration::from_secs(60))));
        let six = question(7, "www.example.org", true).unwrap();
        assert_eq!(addresses(&answer(&six, 0, &list)).unwrap().0, list[2..]);
        // Another question's, another number's, and the query itself.
        assert_eq!(answers(&six, &message), None);
        assert_eq!(answers(&question(8, "www.example.org", false).unwrap(), &message), None);
        assert_eq!(answers(&query, &query), None);
        for (code, found) in [(2, Found::Nothing), (3, Found::Answer), (5, Found::Nothing)] {
            assert_eq!(answers(&query, &answer(&query, code, &[])), Some(found), "{code}");
        }
        let short = truncated(&query).unwrap();
        assert_eq!((answers(&query, &short), short[2] & TRUNCATED), (Some(Found::Answer), TRUNCATED));
        for no_name in ["", "a..b", &"a".repeat(64), &["a"; 140].join(".")] {
            assert_eq!(question(1, no_name, false), None, "{no_name}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(
            query in proptest::collection::vec(any::<u8>(), 0..60),
            message in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let _ = (answers(&query, &message), addresses(&message), truncated(&message));
            let _ = answers(&message, &message);
        }

        #[test]
        fn a_damaged_answer_is_read_without_a_panic(at in 0..60usize, byte: u8) {
            let query = question(1, "a.example", false).unwrap();
            let mut message = answer(&query, 0, &["192.0.2.1".parse().unwrap()]);
            if let Some(one) = message.get_mut(at) {
                *one = byte;
            }
            let _ = (answers(&query, &message), addresses(&message), truncated(&message));
        }
    }
}
