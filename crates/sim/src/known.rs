//! Where the packets of settled connections go, for [`crate::lookahead`]: exactly, by path and ports, without looking at
//! the connection.

use ropewalk_engine::endpoint::SubflowHandle;

/// Subflows of a connection, at most: one with more goes moment by moment.
const SUBFLOWS: usize = 8;

/// The settled connections of one end.
#[derive(Debug)]
pub(crate) struct Known {
    /// How many of the server's ports there are.
    ports: usize,
    /// By path, the server's port and the client's: [`SubflowHandle::pack`].
    places: Vec<u32>,
    /// By a connection's place.
    connections: Vec<Connection>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Connection {
    /// Where its subflows' places stand; none: it isn't known.
    keys: [u32; SUBFLOWS],
    subflows: u8,
    /// See [`Known::group`].
    group: u32,
    /// The last round that it took part in.
    round: u64,
}

impl Known {
    pub(crate) fn new(paths: usize, ports: usize) -> Self {
        Known { ports, places: vec![0; (paths * ports) << 16], connections: Vec::new() }
    }

    /// A client's port, and a server's counted from the first.
    #[inline]
    fn key(&self, path: u16, (client, server): (u16, u16)) -> Option<usize> {
        let row = usize::from(path) * self.ports + usize::from(server);
        (usize::from(server) < self.ports).then_some(row << 16 | usize::from(client))
    }

    /// Where what arrives over a path between these ports goes, if its connection is settled.
    #[inline]
    pub(crate) fn place(&self, path: u16, ports: (u16, u16)) -> Option<SubflowHandle> {
        SubflowHandle::unpack(*self.places.get(self.key(path, ports)?)?)
    }

    /// Whether the connection there is.
    #[inline]
    pub(crate) fn is_settled(&self, place: SubflowHandle) -> bool {
        self.connections.get(place.of_connection()).is_some_and(|connection| connection.subflows > 0)
    }

    /// The places of a settled connection's subflows.
    #[inline]
    pub(crate) fn subflows(&self, place: SubflowHandle) -> impl Iterator<Item = SubflowHandle> {
        let connection = self.connections[place.of_connection()];
        let keys = connection.keys.into_iter().take(usize::from(connection.subflows));
        keys.filter_map(|key| SubflowHandle::unpack(self.places[key as usize]))
    }

    /// A number that a settled connection has in a round; 0: none yet.
    #[inline]
    pub(crate) fn group(&mut self, place: SubflowHandle) -> &mut u32 {
        &mut self.connections[place.of_connection()].group
    }

    /// Whether a settled connection takes part in this round for the first time; it does from now on.
    #[inline]
    pub(crate) fn joins(&mut self, place: SubflowHandle, round: u64) -> bool {
        let connection = &mut self.connections[place.of_connection()];
        std::mem::replace(&mut connection.round, round) != round
    }

    /// A connection is settled; its subflows with their paths and ports.
    pub(crate) fn learn(
        &mut self,
        connection: usize,
        subflows: impl Iterator<Item = (SubflowHandle, u16, (u16, u16))>,
    ) {
        self.forget(connection);
        let mut new = Connection::default();
        let mut places = [0; SUBFLOWS];
        for (place, path, ports) in subflows {
            let count = usize::from(new.subflows);
            let packed = place.pack();
            let Some(key) = self.key(path, ports).filter(|_| count < SUBFLOWS && packed != 0) else { return };
            (new.keys[count], places[count]) = (key as u32, packed);
            new.subflows += 1;
        }
        if self.connections.len() <= connection {
            self.connections.resize(connection + 1, Connection::default());
        }
        for (key, place) in new.keys.iter().zip(places).take(usize::from(new.subflows)) {
            self.places[*key as usize] = place;
        }
        self.connections[connection] = new;
    }

    /// It isn't any more.
    pub(crate) fn forget(&mut self, connection: usize) {
        let Some(known) = self.connections.get_mut(connection) else { return };
        for key in known.keys.iter().take(usize::from(known.subflows)) {
            self.places[*key as usize] = 0;
        }
        *known = Connection::default();
    }
}
