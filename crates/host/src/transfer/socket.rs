//! The transfers' program on a socket of the kernel's.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use ropewalk_engine::Time;
use socket2::Socket;

use super::{Direction, JOIN_PATIENCE, Outcome, PERIOD, REQUEST, Request, TransferError, check, pattern};
use crate::clock::Clock;
use crate::kernel;

/// How a side of a transfer behaves on its socket.
#[derive(Clone, Copy, Debug)]
pub struct SocketTransfer {
    /// Tells the times of an outcome.
    pub clock: Clock,
    /// A sender waits for so many subflows (a second at most) before its bulk.
    pub subflows: usize,
    /// A receiver stops reading after so many bytes of the stream: closing the socket then aborts the
    /// connection.
    pub abort_after: Option<u64>,
}

impl SocketTransfer {
    /// The client's side; `started` is when it began to connect.
    pub fn client(self, socket: &Socket, request: Request, started: Time) -> Outcome {
        let mut outcome = Outcome { started, ..Outcome::default() };
        let mut run = || {
            (&*socket).write_all(&request.encode())?;
            self.carry(socket, request, request.direction == Direction::Upload, &mut outcome)
        };
        outcome.error = run().err();
        outcome
    }

    /// The server's side, on an accepted socket.
    pub fn server(self, socket: &Socket) -> Outcome {
        let mut outcome = Outcome { started: self.clock.now(), ..Outcome::default() };
        let mut run = || {
            let mut head = [0; REQUEST];
            (&*socket).read_exact(&mut head)?;
            let request = Request::parse(&head).ok_or(TransferError::NoRequest)?;
            self.carry(socket, request, request.direction == Direction::Download, &mut outcome)
        };
        outcome.error = run().err();
        outcome
    }

    /// Sends or receives the stream, and closes.
    fn carry(
        self,
        socket: &Socket,
        request: Request,
        sends: bool,
        outcome: &mut Outcome,
    ) -> Result<(), TransferError> {
        if sends {
            wait_for_subflows(socket, self.subflows, self.clock)?;
            send_stream(socket, request.bytes)?;
            note(socket, outcome)?;
            socket.shutdown(Shutdown::Write)?;
            wait_for_end(socket)?;
            outcome.finished = Some(self.clock.now());
            return Ok(());
        }
        if let Some(most) = self.abort_after {
            receive_stream(socket, request.bytes.min(most), outcome)?;
            note(socket, outcome)?;
            return Err(TransferError::Aborted);
        }
        receive_stream(socket, request.bytes, outcome)?;
        outcome.finished = Some(self.clock.now());
        note(socket, outcome)?;
        wait_for_end(socket)?;
        Ok(socket.shutdown(Shutdown::Write)?)
    }
}

fn wait_for_subflows(socket: &Socket, subflows: usize, clock: Clock) -> io::Result<()> {
    let patience = clock.now() + JOIN_PATIENCE;
    while subflows > 1 && clock.now() < patience {
        match kernel::info(socket)? {
            Some(info) if !info.fallback && usize::from(info.extra_subflows) + 1 < subflows => {
                std::thread::sleep(Duration::from_millis(1));
            }
            _ => break,
        }
    }
    Ok(())
}

fn send_stream(socket: &Socket, total: u64) -> io::Result<()> {
    let pattern = pattern();
    let mut written = 0;
    while written < total {
        let start = (written % PERIOD as u64) as usize;
        let len = (total - written).min(PERIOD as u64) as usize;
        (&*socket).write_all(&pattern[start..start + len])?;
        written += len as u64;
    }
    Ok(())
}

fn receive_stream(socket: &Socket, total: u64, outcome: &mut Outcome) -> Result<(), TransferError> {
    let pattern = pattern();
    let mut buffer = vec![0; PERIOD];
    while outcome.received < total {
        let most = (total - outcome.received).min(PERIOD as u64) as usize;
        let len = (&*socket).read(&mut buffer[..most])?;
        if len == 0 {
            return Err(TransferError::Short { received: outcome.received, total });
        }
        check(&pattern, outcome.received, &buffer[..len])?;
        outcome.received += len as u64;
    }
    Ok(())
}

/// Notes what the kernel says of the connection, which it forgets at the close.
fn note(socket: &Socket, outcome: &mut Outcome) -> io::Result<()> {
    outcome.info = kernel::info(socket)?;
    outcome.multipath = outcome.info.is_some_and(|info| !info.fallback);
    outcome.subflows = outcome.info.map_or(1, |info| usize::from(info.extra_subflows) + 1);
    Ok(())
}

fn wait_for_end(socket: &Socket) -> Result<(), TransferError> {
    let mut rest = [0; 16];
    match (&*socket).read(&mut rest)? {
        0 => Ok(()),
        _ => Err(TransferError::TooLong),
    }
}
