//! `--pcap` and `--qlog` of runs in real time.

use std::path::PathBuf;

#[cfg(target_os = "linux")]
pub(crate) use files::Pending;

/// Recordings of a run, as seen from one end.
#[derive(Debug, Default, clap::Args)]
#[group(skip)]
pub(crate) struct Options {
    /// Also write the packets at one end as a capture, with the scheduler's reasons as comments (pcapng, for
    /// Wireshark)
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
    /// Also write the log of one end (qlog 0.3, for qvis)
    #[arg(long, value_name = "FILE")]
    pub(crate) qlog: Option<PathBuf>,
}

impl Options {
    /// Whether anything is to be written.
    pub(crate) fn any(&self) -> bool {
        self.pcap.is_some() || self.qlog.is_some()
    }

    /// The output files with their options.
    pub(crate) fn files(&self) -> [(&'static str, Option<&PathBuf>); 2] {
        [("--pcap", self.pcap.as_ref()), ("--qlog", self.qlog.as_ref())]
    }
}

#[cfg(target_os = "linux")]
mod files {
    //! The files that are being written.

    use std::fs::File;
    use std::io::BufWriter;

    use ropewalk_command_line::{Failure, output};
    use ropewalk_host::capture::{Capture, CaptureError, Files, Path};
    use ropewalk_host::network::Side;
    use ropewalk_host::world::Tap;

    use super::Options;

    /// Capture files that are being written. They appear when they are complete.
    #[derive(Debug)]
    pub(crate) struct Pending {
        capture: Capture<BufWriter<File>>,
        pcap: Option<output::Pending>,
        qlog: Option<output::Pending>,
    }

    impl Options {
        /// Begins the requested files, as seen from `side`.
        pub(crate) fn begin(
            &self,
            side: Side,
            paths: &[Path],
            title: &str,
        ) -> Result<Option<Pending>, Failure> {
            if !self.any() {
                return Ok(None);
            }
            output::can_write(&self.files())?;
            let pcap = self.pcap.as_deref().map(output::begin).transpose()?;
            let qlog = self.qlog.as_deref().map(output::begin).transpose()?;
            let writer = |file: &output::Pending| file.writer().map(BufWriter::new);
            let files = Files {
                pcap: pcap.as_ref().map(writer).transpose()?,
                qlog: qlog.as_ref().map(writer).transpose()?.map(|out| (out, title.to_string())),
            };
            let capture = Capture::new(files, side, paths)
                .map_err(|error| Failure::Other(format!("the capture: {error}")))?;
            Ok(Some(Pending { capture, pcap, qlog }))
        }
    }

    impl Pending {
        /// The tap that records the packets.
        pub(crate) fn tap(&self) -> Box<dyn Tap> {
            Box::new(self.capture.clone())
        }

        /// Completes the files. One that couldn't be written is left out; the other is there.
        pub(crate) fn finish(self) -> Result<(), Failure> {
            let Pending { capture, mut pcap, mut qlog } = self;
            let failed = match capture.finish() {
                Ok(()) => None,
                Err(CaptureError::Pcap(error)) => pcap.take().map(|file| file.failed(&error)),
                Err(CaptureError::Qlog(error)) => qlog.take().map(|file| file.failed(&error)),
                Err(error) => Some(Failure::other(error)),
            };
            let finished = pcap.into_iter().chain(qlog).try_for_each(output::Pending::finish);
            failed.map_or(finished, Err)
        }
    }
}
