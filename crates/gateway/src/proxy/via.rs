//! An uplink, as the command line and the configuration name it.

use std::net::IpAddr;

use ropewalk_settings::units::{self, UnitError};

use super::usage::{Quota, QuotaError};

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
    pub fn new(interface: &str) -> Result<Via, ViaProblem> {
        let is_name = |c: char| c.is_ascii_graphic() && !"/\"\\;{}$,".contains(c);
        if interface.is_empty() || interface.len() > 15 || !interface.chars().all(is_name) {
            return Err(ViaProblem::Interface(interface.to_string()));
        }
        Ok(Via { interface: interface.to_string(), ..Via::default() })
    }

    /// What it costs beside others.
    pub fn cost(&self) -> f64 {
        self.price.unwrap_or(if self.metered { 1.0 } else { 0.0 })
    }
}

/// An uplink that can't be used as it is written.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("--via `{text}`: {reason}")]
pub struct ViaError {
    /// What was written.
    pub text: String,
    /// What is wrong with it.
    pub reason: ViaProblem,
}

/// What is wrong with an uplink.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ViaProblem {
    /// Not an interface.
    #[error("`{0}` is no interface's name; expected e.g. `wlan0`")]
    Interface(String),
    /// Not a next hop.
    #[error("`{0}` is no IP address")]
    Gateway(String),
    /// Not a price.
    #[error("`{0}` is no price")]
    Price(String),
    /// Not a rate.
    #[error("{}; {}", .0.message, .0.help)]
    Rate(UnitError),
    /// Not a quota.
    #[error(transparent)]
    Quota(#[from] QuotaError),
    /// A word that there isn't.
    #[error("`{0}` is unknown; expected metered, backup, gateway=, price=, rate= or quota=")]
    Word(String),
}

impl std::str::FromStr for Via {
    type Err = ViaError;

    fn from_str(text: &str) -> Result<Via, ViaError> {
        let wrong = |reason| ViaError { text: text.to_string(), reason };
        let mut words = text.split(',').map(str::trim);
        let mut via = Via::new(words.next().unwrap_or_default()).map_err(wrong)?;
        for word in words {
            match word.split_once('=') {
                None if word == "metered" => via.metered = true,
                None if word == "backup" => via.backup = true,
                Some(("gateway", value)) => {
                    let parsed = value.parse().map_err(|_| wrong(ViaProblem::Gateway(value.to_string())))?;
                    via.gateway = Some(parsed);
                }
                Some(("price", value)) => {
                    let price = value.parse().ok().filter(|price: &f64| price.is_finite() && *price >= 0.0);
                    via.price = Some(price.ok_or_else(|| wrong(ViaProblem::Price(value.to_string())))?);
                }
                Some(("rate", value)) => {
                    via.rate = Some(units::rate(value).map_err(|error| wrong(ViaProblem::Rate(error)))?);
                }
                Some(("quota", value)) => {
                    let quota = value.parse::<Quota>();
                    via.quota = Some(quota.map_err(|error| wrong(error.into()))?);
                }
                _ => return Err(wrong(ViaProblem::Word(word.to_string()))),
            }
        }
        Ok(via)
    }
}

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
            ("a,price=-1", "`-1` is no price"),
            ("a,rate=fast", "--via `a,rate=fast`"),
            ("a,quota=5GB", "is no quota"),
            ("", "is no interface's name"),
            ("wlan0\"; drop", "is no interface's name"),
            ("a-name-of-sixteen", "is no interface's name"),
            ("wlan0,fast", "`fast` is unknown; expected metered"),
            ("wlan0,gateway=here", "`here` is no IP address"),
        ] {
            let error = text.parse::<Via>().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
