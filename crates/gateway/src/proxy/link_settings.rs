//! An uplink, as the command line and the configuration name it.

use std::net::IpAddr;

use ropewalk_settings::units::{self, UnitError};

use super::usage::Quota;

/// Rates both ways, bits per second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rates {
    /// To the clients.
    pub down: u64,
    /// From the clients.
    pub up: u64,
}

impl Rates {
    /// `20 Mbit/s` for both, or `16/1 Mbit/s`: down and up.
    ///
    /// # Errors
    /// If it is no rate.
    pub fn parse(text: &str) -> Result<Rates, UnitError> {
        let unit = text.find(|c: char| c.is_alphabetic()).unwrap_or(text.len());
        match text[..unit].split_once('/') {
            None => units::rate(text).map(|rate| Rates { down: rate, up: rate }),
            Some((down, up)) => {
                let rate = |number: &str| units::rate(&format!("{} {}", number.trim(), &text[unit..]));
                Ok(Rates { down: rate(down)?, up: rate(up)? })
            }
        }
    }
}

/// An uplink, as `--via` names it: `wlan0`, `wwan0,metered`.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct LinkSettings {
    /// The name of the network interface.
    pub interface: String,
    /// What the link is called, if not as the interface.
    pub name: Option<String>,
    /// Its traffic costs: policies that save metered links avoid it.
    pub metered: bool,
    /// It is used while no other works.
    pub backup: bool,
    /// Its next hop, where the main routing table doesn't tell.
    pub gateway: Option<IpAddr>,
    /// What it costs, in any unit; a metered link without a price costs 1, any other nothing.
    pub price: Option<f64>,
    /// Most that it carries each way.
    pub rate: Option<Rates>,
    /// Most that it carries in a period.
    pub quota: Option<Quota>,
    /// Most that it carries each way once its quota is used up; `None`: it isn't used then.
    pub throttle: Option<Rates>,
}

/// Whether a text can be an interface's name, and a link's.
fn is_name(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_graphic() && !"/\"\\;{}$,:".contains(c);
    (1..=15).contains(&text.len()) && text.chars().all(fits)
}

impl LinkSettings {
    /// An uplink of which only the interface is said.
    ///
    /// # Errors
    /// If that can't be an interface.
    pub fn new(interface: &str) -> Result<LinkSettings, InterfaceError> {
        if let Some((device, _)) = interface.split_once(':') {
            return Err(InterfaceError::Label(interface.to_string(), device.to_string()));
        }
        if !is_name(interface) {
            return Err(InterfaceError::Name(interface.to_string()));
        }
        Ok(LinkSettings { interface: interface.to_string(), ..LinkSettings::default() })
    }

    /// What the link is called: policies, log and status name it so.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.interface)
    }

    /// Gives it a name.
    ///
    /// # Errors
    /// If it can't be one.
    pub fn set_name(&mut self, name: &str) -> Result<(), InterfaceError> {
        if !is_name(name) {
            return Err(InterfaceError::Link(name.to_string()));
        }
        self.name = Some(name.to_string());
        Ok(())
    }

    /// What it costs beside others.
    pub fn cost(&self) -> f64 {
        self.price.unwrap_or(if self.metered { 1.0 } else { 0.0 })
    }
}

/// A name that can't be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InterfaceError {
    /// No interface can have it.
    #[error("`{0}` is no interface's name; expected e.g. `wlan0`")]
    Name(String),
    /// It is the label of an address.
    #[error("`{0}` is the label of an address; expected its interface, `{1}`")]
    Label(String, String),
    /// No link can have it.
    #[error("`{0}` is no name of a link; expected at most 15 letters, digits, `-` or `_`")]
    Link(String),
}

#[cfg(test)]
mod tests {
    use super::{LinkSettings, Rates};

    fn link(text: &str) -> LinkSettings {
        text.parse().unwrap()
    }

    #[test]
    fn uplinks_are_read_as_they_are_written() {
        assert_eq!(link("wlan0"), LinkSettings { interface: "wlan0".into(), ..LinkSettings::default() });
        let lte = link("wwan0.7, metered,backup,gateway=192.0.2.1");
        assert!(lte.metered && lte.backup && lte.gateway == Some([192, 0, 2, 1].into()));
        let sat = link("sat0,price=2.5,rate=20Mbit/s,quota=5GB/monthly@12");
        assert_eq!((sat.cost(), sat.rate), (2.5, Some(Rates { down: 20_000_000, up: 20_000_000 })));
        assert_eq!(link("a,rate=16/1.5Mbit/s").rate, Some(Rates { down: 16_000_000, up: 1_500_000 }));
        assert!("a,rate=16/ Mbit/s".parse::<LinkSettings>().is_err());
        assert!(sat.quota.is_some_and(|quota| quota.bytes == 5_000_000_000));
        assert_eq!((link("a").cost(), link("a,metered").cost()), (0.0, 1.0));
        for (text, expected) in [
            ("a,price=-1", "--via:1:9: `price` must be a number from 0"),
            ("a,rate=fast", "--via:1:8: "),
            ("a,quota=5GB", "is no quota"),
            ("", "is no interface's name"),
            ("wlan0\"; drop", "is no interface's name"),
            ("a-name-of-sixteen", "is no interface's name"),
            ("eth2:1", "`eth2:1` is the label of an address; expected its interface, `eth2`"),
            ("a,name=b c", "`b c` is no name of a link"),
            ("wlan0,fast", "--via:1:7: unknown key `fast` in a `link`"),
            ("wlan0,gateway=here", "--via:1:15: expected an IP address (found `here`)"),
        ] {
            let error = text.parse::<LinkSettings>().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
