//! The two applications: what they read and write, and the operations that the case has them perform.

use ropewalk_engine::mptcp::CloseReason;

use super::*;

/// One end's application.
#[derive(Default)]
pub(super) struct App {
    pub(super) backlog: u64,
    pub(super) written: u64,
    pub(super) read: u64,
    pub(super) closing: bool,
    pub(super) shut: bool,
    pub(super) eof: bool,
    pub(super) peer_closed: bool,
    /// It closed or aborted, and gets no further events.
    pub(super) deaf: bool,
    pub(super) next_read: Time,
    pub(super) closed: bool,
    pub(super) reset: Option<CloseReason>,
    pub(super) fell_back: bool,
    pub(super) connected: Option<bool>,
    /// Paths on which a subflow was usable.
    pub(super) established: Vec<bool>,
}

impl World<'_> {
    /// Takes the events of both endpoints.
    pub(super) fn dispatch_events(&mut self) {
        for end in 0..2 {
            while let Some((id, event)) = self.ends[end].poll_event() {
                if matches!(event, Event::Accepted { .. }) && self.ids[end].is_none() {
                    self.ids[end] = Some(id);
                }
                self.say(|| format!("{end}: {event:?}"));
                let code = match &event {
                    Event::Connected { multipath } => 1 + u64::from(*multipath),
                    Event::Accepted { multipath, .. } => 3 + u64::from(*multipath),
                    Event::Readable => 5,
                    Event::Writable => 6,
                    Event::PeerClosed => 7,
                    Event::Closed => 8,
                    Event::Reset { .. } => 9,
                    Event::SubflowAdded { subflow, .. } => 16 + subflow.index() as u64,
                    Event::SubflowRemoved { subflow, .. } => 64 + subflow.index() as u64,
                    Event::Fallback(cause) => 128 + *cause as u64,
                    _ => 10,
                };
                mix(&mut self.digest, [self.now.as_nanos(), code << 8 | end as u64]);
                if self.ids[end] != Some(id) {
                    continue;
                }
                let app = &mut self.apps[end];
                match event {
                    Event::Connected { multipath } | Event::Accepted { multipath, .. } => {
                        app.connected = Some(multipath);
                    }
                    Event::PeerClosed => app.peer_closed = true,
                    Event::Closed => app.closed = true,
                    Event::Reset { reason } => app.reset = Some(reason),
                    Event::Fallback(_) => app.fell_back = true,
                    _ => {}
                }
            }
        }
    }

    /// Lets both applications read and write.
    pub(super) fn run_applications(&mut self) -> Result<(), Verdict> {
        for end in 0..2 {
            let Some(id) = self.ids[end] else { continue };
            let before = self.apps[end].read;
            self.read(end, id)?;
            let app = &mut self.apps[end];
            if app.read > before {
                mix(&mut self.digest, [self.now.as_nanos(), app.read]);
            }
            while app.backlog > 0 && !app.shut {
                let data = stream(end, app.written, app.backlog.min(20_000));
                match self.ends[end].write(self.now, id, data) {
                    Ok(0) | Err(_) => break,
                    Ok(taken) => {
                        app.backlog -= taken as u64;
                        app.written += taken as u64;
                    }
                }
            }
            if app.backlog == 0 && app.closing && !app.shut {
                app.shut = true;
                self.ends[end].shutdown(self.now, id);
            }
        }
        Ok(())
    }

    fn read(&mut self, end: usize, id: ConnectionId) -> Result<(), Verdict> {
        let written = self.apps[1 - end].written;
        let app = &mut self.apps[end];
        let elapsed = self.now - self.start;
        if app.eof || app.deaf {
            app.next_read = Time::ZERO;
            return Ok(());
        }
        let most = match self.case.sides[end].reading {
            Reading::Eager => 100_000,
            Reading::Slow { size, every } => {
                if self.now < app.next_read {
                    return Ok(());
                }
                app.next_read = self.now + every;
                size
            }
            Reading::Pause { from, until } => {
                if (from..until).contains(&elapsed) {
                    app.next_read = self.start + until;
                    return Ok(());
                }
                100_000
            }
        };
        loop {
            match self.ends[end].read(self.now, id, most) {
                Ok(Some(data)) if data.is_empty() => {
                    app.eof = true;
                    if app.read != written {
                        let detail = format!("end {end} has {} of {written}", app.read);
                        return Err(verdict(Judge::Truncated, detail));
                    }
                    break;
                }
                Ok(Some(data)) => {
                    self.judges.on_read(end, app.read, &data, &self.flips, app.fell_back)?;
                    app.read += data.len() as u64;
                    if most < 100_000 {
                        break;
                    }
                }
                Ok(None) => {
                    // Nothing to wait for: the next segment comes with an event of its own.
                    app.next_read = Time::ZERO;
                    break;
                }
                Err(_) => {
                    // It is forgotten: with everything read, or its end was a reset.
                    app.eof = app.peer_closed && app.read == written;
                    app.next_read = Time::ZERO;
                    break;
                }
            }
        }
        Ok(())
    }

    /// Performs an operation of the case.
    pub(super) fn perform(&mut self, op: Op) {
        self.say(|| format!("{op:?}"));
        let now = self.now;
        match op {
            Op::Write { end, len } => {
                if !self.apps[end].closing {
                    self.apps[end].backlog += len;
                }
            }
            Op::Shutdown { end } => self.apps[end].closing = true,
            Op::Close { end } | Op::Abort { end } => {
                let Some(id) = self.ids[end] else { return };
                let app = &mut self.apps[end];
                self.broken |= !app.eof || app.backlog > 0 || matches!(op, Op::Abort { .. });
                (app.deaf, app.closing, app.shut, app.backlog) = (true, true, true, 0);
                if matches!(op, Op::Abort { .. }) {
                    self.ends[end].abort(now, id);
                } else {
                    self.ends[end].close(now, id);
                }
            }
            Op::Down { path } => self.paths[path].up = false,
            Op::Up { path } => self.paths[path].up = true,
            Op::AddPath { path } => {
                let local = SocketAddr::new(client_address(self.case, path), 0);
                if let Some(id) = self.ids[0] {
                    self.ends[0].add_path(now, id, PathId(path as u16), local, None, path as u8 + 1);
                    self.removed[path] = false;
                    self.apps.iter_mut().for_each(|app| app.established[path] = false);
                }
            }
            Op::RemovePath { end, path } => {
                if let Some(id) = self.ids[end] {
                    self.removed[path] = true;
                    self.broken |= !(0..self.paths.len()).any(|other| {
                        !self.removed[other] && self.apps.iter().all(|app| app.established[other])
                    });
                    self.ends[end].remove_path(now, id, PathId(path as u16));
                }
            }
            Op::Backup { end, path, on } => {
                if let Some(id) = self.ids[end] {
                    self.ends[end].set_backup(now, id, PathId(path as u16), on);
                }
            }
        }
    }
}
