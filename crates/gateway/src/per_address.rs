//! Most connections of one address: nobody takes all places.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

/// Who has one IPv6 address has its network's.
pub(crate) fn network_of(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V4(v4) => v4.into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
    }
}

/// Connections by address.
#[derive(Debug, Default)]
pub(crate) struct PerAddress(Mutex<BTreeMap<IpAddr, usize>>);

impl PerAddress {
    /// A place for a client, of which its address has `most`; `None` if they are taken. This host's own
    /// programs have as many as there are.
    pub fn enter(self: &Arc<PerAddress>, client: IpAddr, most: usize) -> Option<Place> {
        let network = network_of(client);
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(network).or_default();
        if *count >= most && !network.is_loopback() {
            return None;
        }
        *count += 1;
        Some(Place { all: Arc::clone(self), network })
    }
}

/// A place; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Place {
    all: Arc<PerAddress>,
    network: IpAddr,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.network) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_its_share_and_leaves_nothing() {
        let all = Arc::new(PerAddress::default());
        let enter = |client: &str| all.enter(client.parse().unwrap(), 2);
        let held =
            [enter("192.0.2.1"), enter("::ffff:192.0.2.1"), enter("2001:db8::1"), enter("2001:db8::2")];
        assert!(held.iter().all(Option::is_some));
        assert!(enter("192.0.2.1").is_none() && enter("2001:db8::3").is_none());
        assert!(enter("192.0.2.2").is_some() && enter("2001:db8:0:1::1").is_some());
        let own: Vec<_> = (0..9).map(|_| enter("127.0.0.1")).collect();
        assert!(own.iter().all(Option::is_some));
        drop((held, own));
        assert!(enter("192.0.2.1").is_some());
        assert!(all.0.lock().unwrap().is_empty());
    }
}
