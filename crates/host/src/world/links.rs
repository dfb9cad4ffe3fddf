//! Packets between the ends: through the middlebox and the links, and into the end that they are for.

use std::io;

use ropewalk_engine::PathId;

use super::{End, Verdict, World};
use crate::frame::{Frame, Piece};

impl World {
    /// Delivers what has come to the end of a link.
    pub(super) fn deliver(&mut self) -> io::Result<bool> {
        let mut busy = false;
        for side in 0..2 {
            // Towards the server a path's own link comes first, towards the client the shared one.
            if side == 1 {
                busy |= self.deliver_shared(side)?;
            }
            for at in 0..self.paths.len() {
                busy |= self.deliver_own(at, side)?;
            }
            if side == 0 {
                busy |= self.deliver_shared(side)?;
            }
        }
        Ok(busy)
    }

    fn deliver_own(&mut self, at: usize, side: usize) -> io::Result<bool> {
        // An engine that was handed something before has answered since: time went on.
        let now = self.clock.now();
        if !self.paths[at].is_due(side, now) {
            return Ok(false);
        }
        let mut busy = false;
        let mut held: Option<Piece> = None;
        while let Some((arrival, piece)) = self.paths[at].take(side, now) {
            busy = true;
            match self.paths[at].bottleneck {
                Some(shared) if side == 0 => self.shared[shared][side].enqueue(now, piece),
                _ => {
                    self.lateness.record(now.saturating_sub(arrival).as_nanos());
                    self.leave(side, &mut held, piece)?;
                }
            }
        }
        self.flush(side, held)?;
        Ok(busy)
    }

    fn deliver_shared(&mut self, side: usize) -> io::Result<bool> {
        let now = self.clock.now();
        let mut busy = false;
        for shared in 0..self.shared.len() {
            let mut held: Option<Piece> = None;
            while let Some((arrival, piece)) = self.shared[shared][side].poll_timed(now) {
                busy = true;
                let path = usize::from(piece.path);
                match self.paths[path].link(side) {
                    Some(link) if side == 1 => link.enqueue(now, piece),
                    _ => {
                        self.lateness.record(now.saturating_sub(arrival).as_nanos());
                        self.leave(side, &mut held, piece)?;
                    }
                }
            }
            self.flush(side, held)?;
        }
        Ok(busy)
    }

    /// Delivers parts of a super-packet that were held back for others.
    fn flush(&mut self, side: usize, held: Option<Piece>) -> io::Result<()> {
        held.map_or(Ok(()), |piece| self.arrive(1 - side, piece))
    }

    /// A packet has come through the links from `side`. Each end receives it by itself, and an engine may
    /// answer before the next, as in the simulator: what has come by the moment would else be acknowledged at
    /// once, and ACKs are the sender's clock.
    fn leave(&mut self, side: usize, held: &mut Option<Piece>, piece: Piece) -> io::Result<()> {
        let to = 1 - side;
        if matches!(self.ends[to], End::Kernel(_)) && self.paths[usize::from(piece.path)].joins(side) {
            return self.merge(side, held, piece);
        }
        if let Some(before) = held.take() {
            self.arrive(to, before)?;
        }
        self.arrive(to, piece)?;
        self.drive_engine(to).map(drop)
    }

    /// Parts of one super-packet that come together go on together.
    fn merge(&mut self, side: usize, held: &mut Option<Piece>, piece: Piece) -> io::Result<()> {
        let next = match held {
            Some(held) => held.absorb(piece),
            None => Some(piece),
        };
        if let Some(next) = next
            && let Some(before) = held.replace(next)
        {
            self.arrive(1 - side, before)?;
        }
        Ok(())
    }

    /// `piece` has come to end `to`.
    pub(super) fn arrive(&mut self, to: usize, piece: Piece) -> io::Result<()> {
        let path = usize::from(piece.path);
        if let Some(tap) = &mut self.tap {
            tap.on_packet(self.clock.now(), to == 1, true, &piece);
        }
        match &mut self.ends[to] {
            End::Kernel(end) => {
                let sent = piece.send(&end.tuns[path]);
                self.on_device(to, path, sent)
            }
            End::Engine(endpoint, _) => {
                let now = self.clock.now();
                match piece.segment() {
                    Ok(segment) => endpoint.on_segment(now, PathId(piece.path), segment),
                    Err(ropewalk_wire::ParseError::Protocol { .. }) => {
                        match ropewalk_wire::parse_icmp_too_big(piece.packet()) {
                            Ok(message) => endpoint.on_too_big(now, &message),
                            Err(_) => self.counters.foreign += 1,
                        }
                    }
                    Err(_) => self.counters.malformed += 1,
                }
                Ok(())
            }
        }
    }

    /// `piece` leaves end `from`.
    pub(super) fn depart(&mut self, from: usize, piece: Piece) -> io::Result<()> {
        let path = usize::from(piece.path);
        if let Some(tap) = &mut self.tap {
            tap.on_packet(self.clock.now(), from == 0, false, &piece);
        }
        let Some(mut middlebox) = self.middlebox.take() else {
            return self.enqueue(from, piece);
        };
        let now = self.clock.now();
        let mut done = Ok(());
        for packet in piece.packets() {
            match middlebox.on_packet(now, from == 0, &packet) {
                Verdict::Pass => done = done.and(self.enqueue(from, packet)),
                Verdict::Drop => {}
                Verdict::Replace(segments) => {
                    for segment in segments {
                        match Frame::of(&segment, &mut self.made) {
                            Ok(frame) => {
                                done = done.and(self.enqueue(from, Piece::whole(frame, path as u16)))
                            }
                            Err(_) => self.counters.unencodable += 1,
                        }
                    }
                }
            }
        }
        self.middlebox = Some(middlebox);
        done
    }

    /// Puts a packet onto its path's first link from `from`; without links it is there at once.
    fn enqueue(&mut self, from: usize, piece: Piece) -> io::Result<()> {
        let path = usize::from(piece.path);
        let now = self.clock.now();
        let path = &mut self.paths[path];
        let bottleneck = path.bottleneck;
        let Some(link) = path.link(from) else {
            return self.arrive(1 - from, piece);
        };
        let link = match bottleneck {
            Some(shared) if from == 1 => &mut self.shared[shared][from],
            _ => link,
        };
        for packet in piece.packets() {
            link.enqueue(now, packet);
        }
        Ok(())
    }
}
