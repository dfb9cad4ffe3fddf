//! TUN devices: those of `ropewalk_os`.

pub use ropewalk_os::tun::*;

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use super::{BUFFER, DeviceError, Offload, Tun, VNET_HEADER};
    use crate::netns::Namespace;

    /// A namespace with a TUN of the given kind, or the reason why there can't be one here.
    fn device(offload: Offload) -> Result<(Namespace, Tun), String> {
        let namespace = Namespace::new("tun").map_err(|error| error.to_string())?;
        let tun = namespace.run(|| Tun::create("rope0", offload)).map_err(|error| error.to_string())?;
        Ok((namespace, tun))
    }

    fn wait_readable(tun: &Tun) {
        let mut fds = [nix::poll::PollFd::new(std::os::fd::AsFd::as_fd(tun), nix::poll::PollFlags::POLLIN)];
        nix::poll::poll(&mut fds, 2000_u16).unwrap();
    }

    #[test]
    fn packets_go_out_of_the_namespace_and_back_in() {
        for offload in [Offload::None, Offload::Segmentation] {
            let (namespace, tun) = match device(offload) {
                Ok(made) => made,
                Err(why) => {
                    crate::skip::skipped(why);
                    return;
                }
            };
            namespace.check("ip", &["address", "add", "192.0.2.1/24", "dev", "rope0"]).unwrap();
            namespace.sysctl("net.ipv6.conf.all.disable_ipv6", "1").unwrap();
            namespace.check("ip", &["link", "set", "rope0", "up"]).unwrap();
            let socket = namespace.run(|| std::net::UdpSocket::bind("192.0.2.1:7000")).unwrap();
            socket.send_to(b"hello!", "192.0.2.2:7001").unwrap();
            let mut buffer = vec![0; BUFFER];
            let header = if offload == Offload::None { 0 } else { VNET_HEADER };
            let packet = loop {
                wait_readable(&tun);
                let len = tun.receive(&mut buffer).expect("the packet within two seconds");
                if buffer[header] >> 4 == 4 {
                    break &mut buffer[header..len];
                }
            };
            assert!(packet.ends_with(b"hello!"));
            // Swap the addresses and ports: with the checksums' sums unchanged, it is a valid answer, unless
            // the UDP checksum was left to us; IPv4 allows none.
            let (source, destination) = (packet[12..16].to_vec(), packet[16..20].to_vec());
            packet[12..16].copy_from_slice(&destination);
            packet[16..20].copy_from_slice(&source);
            let (from, to) = (packet[20..22].to_vec(), packet[22..24].to_vec());
            packet[20..22].copy_from_slice(&to);
            packet[22..24].copy_from_slice(&from);
            packet[26..28].copy_from_slice(&[0, 0]);
            let vnet = [0; VNET_HEADER];
            tun.send(&[IoSlice::new(&vnet[..header]), IoSlice::new(packet)]).unwrap();
            socket.set_read_timeout(Some(std::time::Duration::from_secs(2))).unwrap();
            let mut answer = [0; 16];
            let (len, from) = socket.recv_from(&mut answer).unwrap();
            assert_eq!((&answer[..len], from.to_string()), (&b"hello!"[..], "192.0.2.2:7001".to_string()));
        }
    }

    #[test]
    fn a_name_that_is_too_long_is_refused_with_its_limit() {
        match Tun::create("a-name-of-far-too-many-bytes", Offload::None) {
            Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => {
                assert!(error.to_string().contains("1 to 15 bytes"), "{error}");
            }
            Err(error) => crate::skip::skipped(error),
            Ok(_) => panic!("the name was taken"),
        }
    }

    #[test]
    fn errors_tell_an_interface_that_is_down_from_one_that_was_removed() {
        let (namespace, tun) = match device(Offload::None) {
            Ok(made) => made,
            Err(why) => {
                crate::skip::skipped(why);
                return;
            }
        };
        // A minimal IPv4 header; the rest has no meaning.
        let mut packet = [0; 20];
        packet[0] = 0x45;
        packet[3] = 20;
        let send = || tun.send(&[IoSlice::new(&packet)]).map_err(|error| DeviceError::of(&error));
        assert_eq!(send(), Err(Some(DeviceError::Down)));
        namespace.check("ip", &["link", "set", "rope0", "up"]).unwrap();
        assert_eq!(send(), Ok(20));
        namespace.check("ip", &["link", "set", "rope0", "down"]).unwrap();
        assert_eq!(send(), Err(Some(DeviceError::Down)));
        // The kernel may have sent something of its own, such as a multicast report.
        let empty = loop {
            match tun.receive(&mut [0; 2000]) {
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert_eq!(DeviceError::of(&empty), Some(DeviceError::Full));
        namespace.check("ip", &["link", "delete", "rope0"]).unwrap();
        assert_eq!(send(), Err(Some(DeviceError::Removed)));
        let gone = tun.receive(&mut [0; 100]).expect_err("no device");
        assert_eq!(DeviceError::of(&gone), Some(DeviceError::Removed));
    }
}
