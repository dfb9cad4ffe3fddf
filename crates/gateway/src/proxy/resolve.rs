//! Addresses of what clients name, and of gateways.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ropewalk_os::entropy::random;
use tokio::time::timeout;

use super::dns;
use super::link::Link;
use super::remote::{Found, Gateway};
use super::resolvers::{PATIENCE, of_host, try_all};
use super::serve::Server;
use super::settings::Names;
use crate::target::Target;

/// How long the age of a name's addresses is waited for.
const AGE_PATIENCE: Duration = Duration::from_secs(1);

impl Server {
    /// Asks a resolver, over whichever link it answers; if it doesn't, the others of this host.
    pub(super) async fn ask_resolver(&self, resolver: SocketAddr, query: Bytes) -> io::Result<Vec<u8>> {
        let attempts = self.resolvers.attempts(Some(resolver), &of_host(), &self.links());
        try_all(&self.resolvers, &self.network, query, attempts).await
    }

    /// A name's addresses, and for how long they hold, as this host's resolvers tell over these links.
    pub(super) async fn addresses_over(
        &self,
        name: &str,
        links: &[Arc<Link>],
    ) -> io::Result<(Vec<IpAddr>, Duration)> {
        let ask = async |v6: bool| {
            let query = dns::question(random() as u16, name, v6).ok_or(io::ErrorKind::InvalidInput)?;
            let attempts = self.resolvers.attempts(None, &of_host(), links);
            let message = try_all(&self.resolvers, &self.network, query.into(), attempts).await?;
            Ok::<_, io::Error>(dns::addresses(&message).unwrap_or_default())
        };
        let both = async { tokio::join!(ask(false), ask(true)) };
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "no resolver answered");
        let (v4, v6) = timeout(PATIENCE, both).await.map_err(late)?;
        let both = match (v4, v6) {
            (Ok(v4), v6) => [v4, v6.unwrap_or_default()],
            (Err(_), Ok(v6)) => [Default::default(), v6],
            (Err(error), Err(_)) => return Err(error),
        };
        let with_addresses = both.iter().filter(|(addresses, _)| !addresses.is_empty());
        match with_addresses.map(|(_, age)| *age).min() {
            Some(age) => Ok((both.into_iter().flat_map(|(addresses, _)| addresses).collect(), age)),
            None => Err(io::Error::new(io::ErrorKind::NotFound, format!("`{name}` has no address"))),
        }
    }

    /// A target's addresses. Where the system's resolver has none, as without a default route of the
    /// kernel's, the links are asked.
    pub(super) async fn resolve(&self, target: &Target) -> io::Result<Vec<SocketAddr>> {
        let error = match (target.resolve().await, target) {
            (Err(error), Target::Name(..)) if self.settings().names == Names::Links => error,
            (found, _) => return found,
        };
        match target {
            Target::Name(name, port) => match self.addresses_over(name, &self.links()).await {
                Ok((found, _)) => {
                    Ok(found.into_iter().map(|address| SocketAddr::new(address, *port)).collect())
                }
                Err(_) => Err(error),
            },
            Target::Address(_) => Err(error),
        }
    }

    /// A target's addresses, and for how long they hold, if that is known. The system's resolver doesn't
    /// tell: the same is asked over the links.
    pub(super) async fn resolve_with_age(&self, target: &Target) -> io::Result<Found> {
        let links = self.links();
        let age = async {
            let Target::Name(name, _) = target else { return None };
            let asking = async { self.addresses_over(name, &links).await };
            if self.settings().names == Names::Links {
                timeout(AGE_PATIENCE, asking).await.ok()?.ok()
            } else {
                None
            }
        };
        let (found, told) = tokio::join!(self.resolve(target), age);
        let found = found?;
        // A name of /etc/hosts has no age.
        let is_known = |told: &IpAddr| found.iter().any(|address| address.ip() == *told);
        let age = told.filter(|(told, _)| told.iter().any(is_known)).map(|(_, age)| age);
        Ok((found, age))
    }

    /// A gateway's addresses, one at least: a name is looked up again when its records have aged.
    pub(super) async fn addresses_of(&self, gateway: &Gateway) -> io::Result<Vec<SocketAddr>> {
        match gateway.known_addresses() {
            Some(known) => Ok(known),
            None => gateway.looked_up(self.resolve_with_age(&gateway.target).await),
        }
    }
}
