//! What the fuzz target of the tunnel's datagrams checks. `cargo test -p ropewalk-datagrams` replays its
//! corpus.

use bytes::{Bytes, BytesMut};
use ropewalk_datagrams::packet::inspect;
use ropewalk_datagrams::{Adaptive, LinkSettings, MILLISECOND, Tunnel, frame, stream};

/// A check.
pub type Check = fn(&[u8]);

/// All of them by name.
pub const CHECKS: [(&str, Check); 2] =
    [("tunnel_datagrams", tunnel_datagrams), ("tunnel_stream", tunnel_stream)];

/// Any bytes as datagrams of a far end, one after another, each behind its length: what is a frame is written
/// again as it was, and a tunnel takes them without a panic and stays within its bounds.
pub fn tunnel_datagrams(data: &[u8]) {
    let mut tunnel = Tunnel::new(Box::new(Adaptive));
    let (mut rest, mut now) = (data, 1_000 * MILLISECOND);
    for link in 0..2 {
        tunnel.set_link(
            now,
            link,
            LinkSettings { largest: 600, is_backup: false, order: link as u8, most: Some(100_000) },
        );
    }
    while let Some((len, more)) = rest.split_first() {
        let (datagram, more) = more.split_at(usize::from(*len).min(more.len()));
        rest = more;
        frame::check(datagram);
        now += u64::from(*len % 16) * MILLISECOND;
        if let Some(summary) = inspect(datagram) {
            tunnel.on_packet(now, Bytes::copy_from_slice(datagram), &summary);
        }
        let _ = tunnel.on_datagram(now, usize::from(*len % 2), Bytes::copy_from_slice(datagram));
        tunnel.on_timeout(now);
        let mut sent = 0;
        while tunnel.poll_transmit(now).is_some() {
            sent += 1;
            assert!(sent < 100, "it never stops");
        }
        while tunnel.poll_deliver(now).is_some() {}
        assert!(tunnel.next_timeout(now).is_some());
    }
}

/// A stream of datagrams, cut into pieces whose length the first byte says: the same datagrams come out as at
/// once, each as it would be written, and what waits for more is shorter than one.
pub fn tunnel_stream(data: &[u8]) {
    let Some((piece, data)) = data.split_first() else { return };
    let (mut all, mut at_once) = (BytesMut::from(data), BytesMut::new());
    let end = loop {
        match stream::take(&mut all) {
            Ok(Some(one)) => stream::put(&mut at_once, &one),
            Ok(None) => break true,
            Err(_) => break false,
        }
    };
    assert!(data.starts_with(&at_once));
    let (mut waiting, mut got, mut is_right) = (BytesMut::new(), BytesMut::new(), true);
    for part in data.chunks(usize::from(*piece).max(1)) {
        waiting.extend_from_slice(part);
        while is_right {
            match stream::take(&mut waiting) {
                Ok(Some(one)) => stream::put(&mut got, &one),
                Ok(None) => break,
                Err(_) => is_right = false,
            }
        }
        if !is_right {
            break;
        }
        assert!(waiting.len() < 2 + stream::LARGEST);
    }
    assert_eq!((got, is_right), (at_once, end));
}
