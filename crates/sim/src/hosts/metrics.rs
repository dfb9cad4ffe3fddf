//! What is measured of the workload's connections at their endpoints.

use ropewalk_engine::endpoint::ConnectionId;
use ropewalk_engine::mptcp::Event;
use ropewalk_engine::{ConnectionStats, PathCache, Span, SubflowId, Time};

use super::Hosts;
use crate::app::Conn;
use crate::recorder::Recorder;
use crate::result::{OfoResult, Sample, SubflowSample, Totals};
use crate::{Side, topology};

impl Hosts {
    /// Bytes that the workload's applications have received at this side.
    pub(crate) fn delivered(&self, side: Side) -> u64 {
        self.groups[0].conns.iter().map(|state| state.received[side as usize]).sum()
    }

    /// What the workload's client has found out of the paths to its server.
    pub(crate) fn path_cache(&self, now: Time) -> PathCache {
        let mut cache = PathCache::default();
        for (_, id) in self.workload(Side::Client) {
            if let Some(connection) = self.ends[Side::Client as usize].connection(id) {
                cache.learn(now, topology::server_address(), connection);
            }
        }
        cache
    }

    /// Records an event.
    #[inline(never)]
    pub(super) fn record(
        &self,
        recorder: &mut Recorder,
        conn: Conn,
        side: Side,
        id: ConnectionId,
        event: Event,
    ) {
        match event {
            Event::SubflowAdded { tuple, .. } => recorder.subflow(conn, tuple),
            Event::Decision(record) if side == recorder.data_from => {
                let flows =
                    self.ends[side as usize].connection(id).map_or(&[][..], |known| known.subflow_metrics());
                let path_of = |subflow: SubflowId| flows.get(subflow.index()).map(|flow| flow.path);
                recorder.decision(conn, &record, path_of, &self.names);
            }
            _ => {}
        }
    }

    fn workload(&self, side: Side) -> impl Iterator<Item = (u32, ConnectionId)> {
        let conns = self.groups[0].conns.iter().enumerate();
        conns.filter_map(move |(conn, state)| Some((conn as u32, state.ids[side as usize]?)))
    }

    /// Bytes in the out-of-order queues of the workload's connections at this side.
    pub(crate) fn ofo_bytes(&self, side: Side) -> u64 {
        let end = &self.ends[side as usize];
        debug_assert_eq!(
            end.ofo_bytes(),
            self.workload(side)
                .filter_map(|(_, id)| end.connection(id))
                .map(|connection| connection.ofo_bytes())
                .sum::<u64>()
        );
        end.ofo_bytes()
    }

    /// The same without the check: for every segment that arrives.
    #[inline]
    pub(crate) fn end_ofo_bytes(&self, end: usize) -> u64 {
        self.ends[end].ofo_bytes()
    }

    /// Bytes that the schedulers of this side's connections of the workload had repeated so far.
    pub(crate) fn scheduler_repeated_bytes(&self, now: Time, side: Side) -> u64 {
        self.stats(now, side).map(|stats| stats.opportunistic_bytes + stats.duplicated_bytes).sum()
    }

    /// One sample per connection of the workload.
    pub(crate) fn sample(&self, at: Time, data_from: Side, samples: &mut Vec<Sample>) {
        let to = data_from.other();
        for (conn, id) in self.workload(data_from) {
            let Some(sender) = self.ends[data_from as usize].connection(id) else { continue };
            let state = &self.groups[0].conns[conn as usize];
            let receiver = state.ids[to as usize].and_then(|id| self.ends[to as usize].connection(id));
            samples.push(Sample {
                at,
                connection: conn,
                delivered: state.received[to as usize],
                ofo: receiver.map_or(0, |connection| connection.ofo_bytes()),
                window_left: sender.window_left(),
                subflows: sender
                    .subflow_metrics()
                    .iter()
                    .map(|flow| SubflowSample {
                        path: flow.path.0,
                        cwnd: flow.cwnd(),
                        ssthresh: flow.ssthresh(),
                        in_flight: flow.in_flight(),
                        srtt: flow.rtt.smoothed,
                    })
                    .collect(),
                scheduler: sender.scheduler_metrics(),
            });
        }
    }

    /// Every counter of the workload's endpoint on this side.
    pub(crate) fn counters(&self, side: Side) -> Vec<(String, u64)> {
        self.ends[side as usize].mib()
    }

    /// Bytes that the workload's connections on this side sent a second time, by path.
    pub(crate) fn repeated(&self, now: Time, side: Side, paths: usize) -> Vec<u64> {
        let mut repeated = vec![0; paths];
        for (path, bytes) in self.stats(now, side).flat_map(|stats| stats.repeated_by_path) {
            if let Some(total) = repeated.get_mut(usize::from(path.0)) {
                *total += bytes;
            }
        }
        repeated
    }

    /// Sums over the workload's connections.
    pub(crate) fn totals(&self, now: Time, data_from: Side) -> Totals {
        let mut totals = Totals::default();
        self.stats(now, data_from).for_each(|stats| totals.add_sender(&stats));
        self.stats(now, data_from.other()).for_each(|stats| totals.add_receiver(&stats));
        totals
    }

    /// The out-of-order queues of this side's connections, over the run.
    pub(crate) fn ofo(&self, now: Time, side: Side, duration: Span) -> OfoResult {
        OfoResult::over(duration, self.stats(now, side).map(|stats| stats.ofo))
    }

    fn stats(&self, now: Time, side: Side) -> impl Iterator<Item = ConnectionStats> {
        let end = &self.ends[side as usize];
        self.workload(side).filter_map(move |(_, id)| Some(end.connection(id)?.stats(now)))
    }
}
