//! The route table of [`crate::world::lookahead`]: from a path and ports to the subflow, for connections that
//! affect no other. An entry is removed before it becomes wrong, so that a packet's subflow is known without
//! reading the connection.

use ropewalk_engine::endpoint::SubflowHandle;

/// Subflows per connection, at most: one with more is processed in order of time.
const MAX_SUBFLOWS: usize = 8;

/// One end's routes.
#[derive(Debug)]
pub(crate) struct RouteTable {
    /// How many ports the server listens on.
    server_ports: usize,
    /// By path, server port and client port: [`SubflowHandle::pack`].
    subflows: Vec<u32>,
    /// By a connection's slot.
    connections: Vec<Connection>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Connection {
    /// Indices of its subflows in [`RouteTable::subflows`].
    keys: [u32; MAX_SUBFLOWS],
    /// How many; 0: the connection has no routes.
    count: u8,
    /// See [`RouteTable::group_mut`].
    group: u32,
    /// The last batch in which it received data.
    batch: u64,
}

impl RouteTable {
    pub(crate) fn new(paths: usize, server_ports: usize) -> Self {
        RouteTable { server_ports, subflows: vec![0; (paths * server_ports) << 16], connections: Vec::new() }
    }

    /// A client's port, and a server's counted from the first.
    #[inline]
    fn key(&self, path: u16, (client, server): (u16, u16)) -> Option<usize> {
        let row = usize::from(path) * self.server_ports + usize::from(server);
        (usize::from(server) < self.server_ports).then_some(row << 16 | usize::from(client))
    }

    /// The subflow that receives what arrives over a path between these ports.
    #[inline]
    pub(crate) fn lookup(&self, path: u16, ports: (u16, u16)) -> Option<SubflowHandle> {
        SubflowHandle::unpack(*self.subflows.get(self.key(path, ports)?)?)
    }

    /// Whether the subflow's connection has routes.
    #[inline]
    pub(crate) fn contains(&self, subflow: SubflowHandle) -> bool {
        self.connections.get(subflow.connection_slot()).is_some_and(|connection| connection.count > 0)
    }

    /// A number that a connection with routes has within a batch; 0: none yet.
    #[inline]
    pub(crate) fn group_mut(&mut self, subflow: SubflowHandle) -> &mut u32 {
        &mut self.connections[subflow.connection_slot()].group
    }

    /// Marks a connection with routes as part of this batch; returns whether it wasn't yet.
    #[inline]
    pub(crate) fn enter_batch(&mut self, subflow: SubflowHandle, batch: u64) -> bool {
        let connection = &mut self.connections[subflow.connection_slot()];
        std::mem::replace(&mut connection.batch, batch) != batch
    }

    /// Adds a connection: its subflows with their paths and ports.
    pub(crate) fn insert(
        &mut self,
        slot: usize,
        subflows: impl Iterator<Item = (SubflowHandle, u16, (u16, u16))>,
    ) {
        self.remove(slot);
        let mut new = Connection::default();
        let mut values = [0; MAX_SUBFLOWS];
        for (subflow, path, ports) in subflows {
            let count = usize::from(new.count);
            let packed = subflow.pack();
            let Some(key) = self.key(path, ports).filter(|_| count < MAX_SUBFLOWS && packed != 0) else {
                return;
            };
            (new.keys[count], values[count]) = (key as u32, packed);
            new.count += 1;
        }
        if self.connections.len() <= slot {
            self.connections.resize(slot + 1, Connection::default());
        }
        for (key, value) in new.keys.iter().zip(values).take(usize::from(new.count)) {
            self.subflows[*key as usize] = value;
        }
        self.connections[slot] = new;
    }

    /// Removes the connection in this slot, if it has routes.
    pub(crate) fn remove(&mut self, slot: usize) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        for key in connection.keys.iter().take(usize::from(connection.count)) {
            self.subflows[*key as usize] = 0;
        }
        *connection = Connection::default();
    }
}
