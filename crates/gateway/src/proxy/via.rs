//! An uplink, as the command line and the configuration name it.

use std::net::IpAddr;

use super::usage::Quota;

/// An uplink, as `--via` names it: `wlan0`, `wwan0,metered`.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Via {
    /// The name of the network interface.
    pub interface: String,
    /// Its traffic costs: policies that save metered links avoid it.
    pub metered: bool,
    /// It is used while no other works.
    pub backup: bool,
    /// Its next hop, where the main routing table doesn't tell.
    pub gateway: Option<IpAddr>,
    /// What it costs, in any unit; a metered link without a price costs 1, any other nothing.
    pub price: Option<f64>,
    /// Most that it carries each way, bits per second.
    pub rate: Option<u64>,
    /// Most that it carries in a period.
    pub quota: Option<Quota>,
}

impl Via {
    /// An uplink of which only the interface is said.
    ///
    /// # Errors
    /// If that can't be an interface.
    pub fn new(interface: &str) -> Result<Via, InterfaceError> {
        let is_name = |c: char| c.is_ascii_graphic() && !"/\"\\;{}$,".contains(c);
        if interface.is_empty() || interface.len() > 15 || !interface.chars().all(is_name) {
            return Err(InterfaceError(interface.to_string()));
        }
        Ok(Via { interface: interface.to_string(), ..Via::default() })
    }

    /// What it costs beside others.
    pub fn cost(&self) -> f64 {
        self.price.unwrap_or(if self.metered { 1.0 } else { 0.0 })
    }
}

/// A name that no interface can have.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is no interface's name; expected e.g. `wlan0`")]
pub struct InterfaceError(pub String);

#[cfg(test)]
mod tests {
    use super::Via;

    fn via(text: &str) -> Via {
        text.parse().unwrap()
    }

    #[test]
    fn uplinks_are_read_as_they_are_written() {
        assert_eq!(via("wlan0"), Via { interface: "wlan0".into(), ..Via::default() });
        let lte = via("wwan0.7, metered,backup,gateway=192.0.2.1");
        assert!(lte.metered && lte.backup && lte.gateway == Some([192, 0, 2, 1].into()));
        let sat = via("sat0,price=2.5,rate=20Mbit/s,quota=5GB/monthly@12");
        assert_eq!((sat.cost(), sat.rate), (2.5, Some(20_000_000)));
        assert!(sat.quota.is_some_and(|quota| quota.bytes == 5_000_000_000));
        assert_eq!((via("a").cost(), via("a,metered").cost()), (0.0, 1.0));
        for (text, expected) in [
            ("a,price=-1", "--via:1:9: `price` must be a number from 0"),
            ("a,rate=fast", "--via:1:8: "),
            ("a,quota=5GB", "is no quota"),
            ("", "is no interface's name"),
            ("wlan0\"; drop", "is no interface's name"),
            ("a-name-of-sixteen", "is no interface's name"),
            ("wlan0,fast", "--via:1:7: unknown key `fast` in a `link`"),
            ("wlan0,gateway=here", "--via:1:15: expected an IP address (found `here`)"),
        ] {
            let error = text.parse::<Via>().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
