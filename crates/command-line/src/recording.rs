//! Where a proxy's recording comes from: the running proxy, or a file.

use std::io::Read;
use std::path::PathBuf;

use ropewalk_settings::diagnostic::{Diagnostic, system_reason};
use ropewalk_status::record::Recording;
use serde_json::Value;

use crate::Failure;
use crate::options::time;

/// Where a recording comes from.
#[derive(Debug, clap::Args)]
pub struct RecordingSource {
    /// The socket that the proxy's `--status` names [default: that in /run/ropewalk]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// A recording that `ropewalkd record --json` wrote, instead of a running proxy's
    #[arg(long, value_name = "FILE", conflicts_with = "socket")]
    recording: Option<PathBuf>,
    /// Only its last part
    #[arg(long, value_name = "TIME")]
    last: Option<String>,
}

/// Most bytes of a recording.
const LARGEST: u64 = 64 << 20;

impl RecordingSource {
    /// Reads the recording.
    ///
    /// # Errors
    /// If no proxy answers, or the file is no recording.
    pub fn read(&self) -> Result<Recording, Failure> {
        let last = self.last.as_deref().map(|text| time("--last", text)).transpose()?;
        let value = match &self.recording {
            Some(path) => {
                let shown = path.display();
                let wrong = |reason: String| Diagnostic::new(format!("can't read `{shown}`: {reason}"));
                let file = std::fs::File::open(path).map_err(|error| wrong(system_reason(&error)))?;
                serde_json::from_reader(std::io::BufReader::new(file.take(LARGEST)))
                    .map_err(|error| wrong(format!("it is no recording: {error}")))?
            }
            None => self.ask()?,
        };
        let recording: Recording = serde_json::from_value(value)
            .map_err(|error| Failure::other(format!("no recording of a proxy: {error}")))?;
        Ok(match last {
            Some(last) => recording.last((last.as_secs() as usize).max(1)),
            None => recording,
        })
    }

    /// The first proxy's.
    fn ask(&self) -> Result<Value, Failure> {
        let mut found = None;
        for socket in sockets(self.socket.as_ref())? {
            let told = ropewalk_status::ask(&socket, "recording").map_err(Failure::other)?;
            if told["links"].is_array() {
                return Ok(told);
            }
            found = Some(socket);
        }
        let socket = found.unwrap_or_default();
        Err(Failure::other(format!("{}: a gateway's; only a proxy records its links", socket.display())))
    }
}

/// The sockets to ask: the one that is named, or those that are there.
///
/// # Errors
/// If there is none.
pub fn sockets(named: Option<&PathBuf>) -> Result<Vec<PathBuf>, Failure> {
    if let Some(named) = named {
        return Ok(vec![named.clone()]);
    }
    let there = ropewalk_status::running();
    if there.is_empty() {
        return Err(Failure::other(format!(
            "no proxy or gateway runs here: nothing listens at {}. One that was started with `--status PATH` \
             is asked with `--socket PATH`",
            ropewalk_status::DEFAULTS.join(", ")
        )));
    }
    Ok(there)
}
