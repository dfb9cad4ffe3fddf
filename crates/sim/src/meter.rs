//! Counts and samples of a run.

use ropewalk_engine::Span;

use crate::result::{PathResult, Sample};

/// How often the out-of-order queue is sampled.
pub(crate) const OFO_EVERY: Span = Span::from_millis(10);

/// Counts of the workload's data on one path.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PathMeter {
    pub(crate) bytes: u64,
    pub(crate) segments: u64,
    /// Workload packets of any kind in the data's direction, in and out.
    pub(crate) packets_in: u64,
    pub(crate) packets_out: u64,
    pub(crate) queue_delay_max: Span,
    pub(crate) queue_delay_sum: Span,
}

impl PathMeter {
    /// A packet entered a queue with this delay; [`Span::MAX`]: the link is down.
    #[inline]
    pub(crate) fn on_queue_delay(&mut self, delay: Span) {
        if delay < Span::MAX {
            self.queue_delay_max = self.queue_delay_max.max(delay);
            self.queue_delay_sum = self.queue_delay_sum.saturating_add(delay);
        }
    }

    /// Mean queueing delay of the workload's packets.
    pub(crate) fn queue_delay_mean(&self) -> f64 {
        if self.packets_in == 0 {
            0.0
        } else {
            self.queue_delay_sum.as_nanos() as f64 / self.packets_in as f64
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    pub(crate) paths: Vec<PathMeter>,
    pub(crate) ofo_samples: Vec<u32>,
    /// The out-of-order queue's maximum since the last sample, and these maxima.
    pub(crate) ofo_peak: u64,
    pub(crate) ofo_peaks: Vec<u32>,
    pub(crate) samples: Vec<Sample>,
}

impl Meter {
    pub(crate) fn new(paths: usize) -> Self {
        Meter { paths: vec![PathMeter::default(); paths], ..Meter::default() }
    }

    /// A sample of the out-of-order queue, and the maximum since the last one.
    pub(crate) fn sample_ofo(&mut self, bytes: u64) {
        let kept = |bytes: u64| bytes.min(u64::from(u32::MAX)) as u32;
        self.ofo_samples.push(kept(bytes));
        self.ofo_peaks.push(kept(self.ofo_peak.max(bytes)));
        self.ofo_peak = bytes;
    }

    /// A path's result; packets in flight at the end aren't lost.
    pub(crate) fn path(&self, index: usize, name: &str, in_flight: u64, capacity_bytes: u64) -> PathResult {
        let meter = &self.paths[index];
        PathResult {
            name: name.to_string(),
            bytes: meter.bytes,
            repeated: 0,
            segments: meter.segments,
            lost: meter.packets_in.saturating_sub(meter.packets_out + in_flight),
            queue_delay_max: meter.queue_delay_max,
            queue_delay_mean: meter.queue_delay_mean(),
            capacity_bytes,
        }
    }
}
