//! Keep-alive of the proxy's connections: as they were opened with it, but sooner while the far end is asked
//! whether it is still there. Nothing else sets it.

use std::sync::Arc;
use std::time::Duration;

use ropewalk_tokio::{ConnectionConfig, MptcpStream};
use tokio::time::sleep;

/// A subflow on which nothing has arrived for so long is probed at once, another as soon as that is so.
const ASK_AFTER: Duration = Duration::from_secs(1);
/// The same where data has stopped on a link that works.
const ASK_SOON: Duration = Duration::from_millis(300);
/// Seconds for which a far end is probed: by then it has answered, or is lost.
const ASKING: u32 = 3;
/// How often a gateway that hasn't answered is asked whether it still knows the connection.
const ASK_EVERY: Duration = Duration::from_secs(2);

/// How long nothing may arrive from the peer before it is probed; `None`: for ever.
type Idle = Option<Duration>;

/// The keep-alive that a connection was opened with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Configured(Idle);

impl Configured {
    pub fn of(config: &ConnectionConfig) -> Configured {
        Configured(config.tcp.keep_alive.idle.map(Duration::from))
    }

    /// Asks now and then whether the gateway still knows the connection, until it is cancelled. One that was
    /// restarted, or whose reset was lost, answers with a reset; without a question it would never.
    pub async fn keep_asking(self, stream: &Arc<MptcpStream>) {
        sleep(ASK_EVERY).await;
        let asked = Asked { stream: Arc::clone(stream), configured: self };
        loop {
            // Each time a subflow that has been silent for so long is asked at once.
            set(&asked.stream, Some(ASK_EVERY / 2));
            sleep(ASK_EVERY).await;
        }
    }
}

/// A connection that is gone needs no keep-alive.
fn set(stream: &MptcpStream, idle: Idle) {
    let _ = stream.set_keep_alive(idle);
}

/// A connection that is asked for a while. Its own keep-alive returns at the end.
struct Asked {
    stream: Arc<MptcpStream>,
    configured: Configured,
}

impl Drop for Asked {
    fn drop(&mut self) {
        set(&self.stream, self.configured.0);
    }
}

/// Keep-alive of a connection that carries data.
#[derive(Debug)]
pub(super) struct KeepAlive {
    configured: Configured,
    /// Bytes from the server, at the last look.
    received: u64,
    /// For how many looks, one a second, no more has come.
    quiet: u32,
    /// For how many more looks the far end is probed.
    asking: u32,
}

impl KeepAlive {
    pub fn new(configured: Configured) -> KeepAlive {
        KeepAlive { configured, received: 0, quiet: 0, asking: 0 }
    }

    /// Asks the far end whether it is still there: one that has forgotten the connection, since it was
    /// restarted, answers with a reset. Who only receives would never learn of it. `soon`: where data has
    /// stopped on a link that works.
    pub fn ask(&mut self, stream: &MptcpStream, soon: bool) {
        set(stream, self.asked(if soon { ASK_SOON } else { ASK_AFTER }));
    }

    /// Once a second: asks when data has stopped coming, once.
    pub fn look(&mut self, stream: &MptcpStream, received: u64) {
        if let Some(idle) = self.looked(received) {
            set(stream, idle);
        }
    }

    fn asked(&mut self, silence: Duration) -> Idle {
        self.asking = ASKING;
        // The configured one may be sooner still.
        Some(self.configured.0.map_or(silence, |configured| configured.min(silence)))
    }

    /// What is to be set now, if it changes.
    fn looked(&mut self, received: u64) -> Option<Idle> {
        self.quiet = if received == self.received { self.quiet.saturating_add(1) } else { 0 };
        self.received = received;
        if self.quiet == 1 {
            return Some(self.asked(ASK_AFTER));
        }
        let was_asking = self.asking > 0;
        self.asking = self.asking.saturating_sub(1);
        (was_asking && self.asking == 0).then_some(self.configured.0)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ropewalk_engine::Span;
    use ropewalk_tokio::default_config;

    use super::*;

    #[test]
    fn a_connections_own_keep_alive_returns_after_a_question() {
        for idle in [None, Some(Span::from_secs(60)), Some(Span::from_millis(100))] {
            let mut config = default_config();
            config.tcp.keep_alive.idle = idle;
            let own = idle.map(Duration::from);
            let mut keep_alive = KeepAlive::new(Configured::of(&config));
            assert_eq!(keep_alive.looked(1000), None, "data comes");
            let asked = keep_alive.looked(1000);
            assert_eq!(asked, Some(Some(own.map_or(ASK_AFTER, |own| own.min(ASK_AFTER)))));
            let rest: Vec<_> = (0..6).map(|_| keep_alive.looked(1000)).collect();
            assert_eq!(rest, [None, None, Some(own), None, None, None]);
            keep_alive.asked(ASK_SOON);
            let rest: Vec<_> = (2..6).map(|more| keep_alive.looked(more * 1000)).collect();
            assert_eq!(rest, [None, None, Some(own), None]);
        }
    }

    /// What sets a connection's keep-alive elsewhere would undo the configured one.
    #[test]
    fn nothing_else_sets_keep_alive() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/proxy");
        let (mut folders, mut setters) = (vec![folder], Vec::new());
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if std::fs::read_to_string(&path).unwrap().contains(".set_keep_alive(") {
                    setters.push(path.file_name().unwrap().to_owned());
                }
            }
        }
        assert_eq!(setters, ["keep_alive.rs"]);
    }
}
