//! `inbound`, of a gateway's listener and of a proxy.

use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path;

use ropewalk_settings::read::{Reader, Table};
use ropewalk_settings::shape::Files;
use sha2::{Digest, Sha256};

use super::values::{parsed, texts};
use crate::gateway::Listener;
use crate::tls::keys::{Identity, certificate};
use crate::tunnel::ports::{PortGrant, PortTarget, Ports, PortsError};

/// What proxies are given of a listener's ports.
pub(super) fn grants(reader: &mut Reader, table: &Table<'_>, listener: &Listener) -> Vec<PortGrant> {
    let Some(list) = table.get("inbound") else { return Vec::new() };
    if !listener.has_tunnel() {
        let message = "`inbound` goes with `udp`, `key` and `proxies`";
        reader.wrong(table.place("inbound"), message, "not all of them are given", "");
        return Vec::new();
    }
    let identity = |path: &Path| certificate(path).map(|known| Identity::from(Sha256::digest(known)));
    let mut known = Vec::new();
    for value in table.get("proxies").and_then(|list| list.get_ref().as_array()).into_iter().flatten() {
        let path = reader.text(value).map(|name| reader.file(name));
        known.extend(path.and_then(|path| identity(&path).ok()));
    }
    let mut found: Vec<PortGrant> = Vec::new();
    for value in list.get_ref().as_array().into_iter().flatten() {
        let Some(text) = reader.text(value) else { continue };
        let (name, ports) = Files::ReadBeforeWord.split(text);
        let path = reader.file(name);
        let given = parsed(reader, value, |_| {
            let ports =
                ports.trim().split(',').map(|one| one.parse().map_err(|error: PortsError| error.to_string()));
            let ports = ports.collect::<Result<Vec<Ports>, String>>()?;
            let proxy = identity(&path).map_err(|error| error.to_string())?;
            if !known.contains(&proxy) {
                return Err(format!("`{name}` isn't among `proxies`"));
            }
            let addresses = listener.sockets().map(|socket| socket.ip()).collect();
            Ok(PortGrant { addresses, proxy, ports })
        });
        found.extend(given);
    }
    found
}

/// Ports that lead to proxies are no listener's, and lead to one proxy.
pub(super) fn check(reader: &mut Reader, inbound: &[(Range<usize>, PortGrant)], listeners: &[Listener]) {
    for (at, (place, given)) in inbound.iter().enumerate() {
        let shares = |other: &PortGrant| other.addresses.iter().any(|one| given.addresses.contains(one));
        let before = inbound[..at].iter().filter(|(_, other)| shares(other));
        let taken: Vec<&Ports> = before.flat_map(|(_, other)| &other.ports).collect();
        for ports in &given.ports {
            let is_taken =
                |socket: SocketAddr| given.addresses.contains(&socket.ip()) && ports.has_port(socket.port());
            if listeners.iter().flat_map(Listener::sockets).any(is_taken) {
                reader.wrong(place.clone(), format!("`{ports}` has a listener's port"), "here", "");
            } else if taken.iter().any(|other| other.overlaps(ports)) {
                reader.wrong(place.clone(), format!("`{ports}` is given already"), "again here", "");
            }
        }
    }
}

/// Where ports lead to that a proxy is given.
pub(super) fn targets(reader: &mut Reader, table: &Table<'_>) -> Vec<PortTarget> {
    let mut found: Vec<PortTarget> = Vec::new();
    for value in texts(reader, table, "inbound") {
        let asked = parsed(reader, value, |text| {
            let asked: PortTarget = text.parse().map_err(|error: PortsError| error.to_string())?;
            match found.iter().any(|other| other.ports.overlaps(&asked.ports)) {
                true => Err(format!("`{}` leads to a host already", asked.ports)),
                false => Ok(asked),
            }
        });
        found.extend(asked);
    }
    found
}
