//! How much far ends may send ahead of who reads it. While memory is free a receive buffer may grow to its
//! setting. All of them together would hold many times the limit where dozens of far ends send to programs
//! that read nothing: so each may grow to a share of what is free at most, which is less the more is held
//! (dynamic thresholds, Choudhury and Hahne 1998). A window that was offered isn't taken back.

use std::sync::atomic::{AtomicU64, Ordering};

use ropewalk_tokio::{BufferConfig, MptcpStream};

/// What one connection may hold of the memory that is free.
const SHARE: u64 = 16;
/// What it may hold at least, bytes: TCP's window without scaling.
const LEAST: u64 = 64 << 10;

/// A power of two: it changes seldom.
fn share(free: u64) -> u64 {
    1 << (free / SHARE).max(LEAST).ilog2()
}

fn at_most(buffer: BufferConfig, most: u64) -> BufferConfig {
    let max = buffer.max.min(most);
    BufferConfig { initial: buffer.initial.min(max), max }
}

/// What receive buffers may grow to now.
#[derive(Debug)]
pub(crate) struct Windows {
    /// With half of the limit free: more is never offered.
    most: u64,
    now: AtomicU64,
}

/// What one connection's receive buffer may grow to.
#[derive(Debug)]
pub(crate) struct Window {
    configured: BufferConfig,
    /// It has this size at most now.
    max: AtomicU64,
}

impl Windows {
    /// `limit`: of all memory.
    pub fn new(limit: u64) -> Windows {
        let most = share(limit / 2);
        Windows { most, now: AtomicU64::new(most) }
    }

    /// A receive buffer's setting, within what a connection may have while much is free.
    pub fn within(&self, buffer: BufferConfig) -> BufferConfig {
        at_most(buffer, self.most)
    }

    /// What a connection has that was opened with this setting, within that.
    pub fn of(&self, configured: BufferConfig) -> Window {
        Window { configured, max: AtomicU64::new(configured.max.min(self.most)) }
    }

    /// So many bytes are free.
    pub fn look(&self, free: u64) {
        self.now.store(share(free).min(self.most), Ordering::Relaxed);
    }

    /// Lets a connection's receive buffer grow to what it may now, and no further. One without data is left
    /// alone until it has some.
    pub fn limit(&self, stream: &MptcpStream, window: &Window, has_data: bool) {
        let buffer = at_most(window.configured, self.now.load(Ordering::Relaxed));
        let before = window.max.load(Ordering::Relaxed);
        if buffer.max > before || buffer.max < before && has_data {
            window.max.store(buffer.max, Ordering::Relaxed);
            // It is gone at worst.
            let _ = stream.set_receive_buffer(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_a_share_of_what_is_free() {
        const MIB: u64 = 1 << 20;
        let config = BufferConfig { initial: 128 << 10, max: 6 * MIB };
        let windows = Windows::new(64 * MIB);
        assert_eq!(windows.within(config), BufferConfig { initial: 128 << 10, max: 2 * MIB });
        for (free, max) in [(64, 2 * MIB), (40, 2 * MIB), (31, MIB), (20, MIB), (9, MIB / 2), (0, LEAST)] {
            windows.look(free * MIB);
            assert_eq!(windows.now.load(Ordering::Relaxed), max, "{free} MiB");
        }
        assert_eq!(Windows::new(1024 * MIB).within(config), config);
        assert_eq!(Windows::new(MIB).within(config), BufferConfig::fixed(LEAST));
        assert_eq!(Windows::new(i64::MAX as u64).within(config), config);
    }
}
