//! Files that people take for measurements and that aren't: each is named as what it is, with what to do
//! instead.

/// What the file is, if it is one of these.
pub(super) fn named(name: &str, text: &str) -> Option<String> {
    let start: String = text.chars().take(4000).collect();
    let begins = |with: &[&str]| with.iter().any(|with| start.starts_with(with));
    let lower = name.to_lowercase();
    let ends = |with: &[&str]| with.iter().any(|with| lower.ends_with(with));
    let has = |all: &[&str]| all.iter().all(|word| start.contains(word));
    let head = start.trim_start();
    let counters = "counts what a host sent and received, which isn't what its links can carry: \
                    `iperf3 -R -P 8 -c HOST` fills them";
    let what = match () {
        () if text.trim().is_empty() => "is empty",
        () if begins(&[
            "\u{1f}\u{fffd}",
            "BZh",
            "(\u{fffd}/\u{fffd}",
            "(\u{b5}/\u{fd}",
            "\u{fffd}7zXZ",
            "\u{4}\"M\u{18}",
        ]) || ends(&[".gz", ".bz2", ".xz", ".zst", ".lz4"]) =>
        {
            "is compressed: unpack it first (`gunzip`, `bunzip2`, `unxz`, `unzstd`)"
        }
        () if begins(&["PK\u{3}\u{4}"]) => {
            "is an archive or a spreadsheet: unpack it, or save the sheet as CSV"
        }
        () if begins(&[
            "\u{fffd}\u{f2}\u{fffd}\u{2}",
            "\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{0}\u{2}",
            "M<\u{fffd}\u{fffd}\u{2}",
            "\n\r\r\n",
        ]) || ends(&[".pcap", ".pcapng"]) =>
        {
            "is a packet capture: `tshark -r FILE -q -z io,stat,1` tells its rate over time, and `ping`, \
             `iperf3` the link"
        }
        () if begins(&["%PDF", "\u{fffd}PNG", "\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{0}\u{10}JFIF", "GIF8"])
            || head.to_lowercase().starts_with("<!doctype html")
            || head.to_lowercase().starts_with("<html") =>
        {
            "is a page or a picture: save what the program printed, or its JSON"
        }
        () if has(&["% Total", "% Received", "Dload"]) => {
            "is curl's progress, of which nothing is left to read: use `curl -o FILE -w '%{json}' URL`"
        }
        () if has(&["IFACE", "rxkB/s"]) => return Some(format!("is of `sar -n DEV`: it {counters}")),
        () if has(&["KB/s in", "KB/s out"]) => return Some(format!("is of `ifstat`: it {counters}")),
        () if has(&["RX:", "TX:", "link/"]) || has(&["RX packets", "TX packets"]) => {
            return Some(format!("is of `ip -s link` or `ifconfig`: it {counters}"));
        }
        () if has(&["vnstat"]) || has(&["\"vnstatversion\""]) => {
            return Some(format!("is of `vnstat`: it {counters}"));
        }
        () if has(&["qdisc ", "Sent ", "backlog "]) => {
            "is of `tc -s qdisc`, the state of a queue: `ping` during `iperf3` tells how long it gets"
        }
        () => return None,
    };
    Some(what.into())
}

#[cfg(test)]
mod tests {
    use super::super::{decode, parse};

    #[test]
    fn each_is_named_as_what_it_is() {
        for (name, bytes, word) in [
            ("a.zst", &b"\x28\xb5\x2f\xfd\x04\x00"[..], "compressed"),
            ("a", b"\xfd7zXZ\x00\x00", "compressed"),
            ("a", b"\x1f\x8b\x08\x00", "compressed"),
            ("a.xlsx", b"PK\x03\x04\x14\x00", "spreadsheet"),
            ("a", b"\xd4\xc3\xb2\xa1\x02\x00\x04\x00\x00\x00", "packet capture"),
            ("a", b"\x0a\x0d\x0d\x0a\x1c\x00\x00\x00\x4d\x3c\x2b\x1a", "packet capture"),
            ("a", b"<!DOCTYPE html>\n<html><body>speed test</body></html>", "a page"),
            ("a", b"\x89PNG\r\n\x1a\n", "picture"),
            (
                "a",
                b"  % Total    % Received % Xferd  Average \
                    Speed   Time\n    Dload  Upload\n100  100M",
                "curl's progress",
            ),
            (
                "a",
                b"12:00:00        IFACE   rxpck/s   txpck/s    rxkB/s    txkB/s\n12:00:01 eth0 1 1 1 \
                    1\n",
                "sar -n DEV",
            ),
            ("a", b"       eth0       \n KB/s in  KB/s out\n 2500.00    625.00\n", "ifstat"),
            (
                "a",
                b"2: eth0: <UP> mtu 1500\n    link/ether 02:00\n    RX:  bytes packets\n    1 \
                    2\n    TX:  bytes\n",
                "ip -s link",
            ),
            (
                "a",
                b"qdisc fq_codel 0: dev eth0 root\n Sent 123 bytes 4 pkt\n backlog 0b 0p requeues \
                    0\n",
                "tc -s qdisc",
            ),
        ] {
            let error = parse(name, &decode(bytes.to_vec())).unwrap_err();
            assert!(error.message.contains(word), "{word}: {}", error.message);
        }
    }
}
