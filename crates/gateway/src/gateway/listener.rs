//! A listener: accepts, connects to the server, forwards.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use ropewalk_engine::config::LocalEndpoint;
use ropewalk_tokio::{ListenOptions, MptcpListener, MptcpStream, PathId};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::{ForwardedConnection, Listener, Service, State, tunnel_server};
use crate::carry::{ByteCounters, Carried, Lost, carry, carry_encrypted};
use crate::convert::server::{ErrorBudget, Granted, HANDSHAKE, Refusal};
use crate::convert::{Converter, Current};
use crate::log;
use crate::memory::{self, BEYOND_WINDOW, Progress};
use crate::per_address::PerAddress;
use crate::per_connection::small;
use crate::setup::gateway::Plan;
use crate::setup::own_addresses;
use crate::target::Target;
use crate::tls::Secure;
use crate::udp;

/// A running listener.
pub(super) struct Running(Vec<JoinHandle<()>>);

impl Running {
    /// Ends listening, and waits until the addresses are free.
    pub async fn stop(self) {
        for task in self.0 {
            task.abort();
            // It was aborted: that is what it says.
            let _ = task.await;
        }
    }
}

/// The addresses that clients of a socket may use, for the path manager: all but the socket's own are
/// announced.
fn endpoints(listener: &Listener, plan: &Plan, own: SocketAddr) -> Vec<LocalEndpoint> {
    let all = listener.sockets().zip(1..).filter_map(|(socket, id)| {
        let path = plan.uplinks.iter().position(|uplink| uplink.public.address == socket.ip())?;
        let address = socket.ip();
        let signal = listener.announce && socket != own;
        Some(LocalEndpoint {
            address,
            port: None,
            path: PathId(path as u16),
            id,
            signal,
            subflow: false,
            backup: false,
        })
    });
    all.collect()
}

/// Starts listening on all addresses of a listener.
pub(super) fn start(state: &Arc<State>, listener: &Listener, plan: &Plan) -> io::Result<Running> {
    let listener = Arc::new(listener.clone());
    let errors = Arc::new(ErrorBudget::default());
    let open = (Arc::new(AtomicUsize::new(0)), Arc::new(PerAddress::default()));
    let list = state.list(&listener);
    let mut tasks = Vec::new();
    for socket in listener.sockets() {
        let mut connection = listener.connection.clone();
        connection.receive_buffer = state.pressure.windows.within(connection.receive_buffer);
        connection.path_manager.endpoints = endpoints(&listener, plan, socket);
        let options = ListenOptions::new().config(connection).backlog(listener.backlog);
        let bound = MptcpListener::bind_with(&state.network, socket, &options)?;
        let shared = (Arc::clone(&listener), list.clone(), Arc::clone(&errors));
        tasks.push(tokio::spawn(accept(Arc::clone(state), shared, bound, open.clone())));
    }
    Ok(Running(tasks))
}

async fn accept(
    state: Arc<State>,
    (listener, list, errors): (Arc<Listener>, Current, Arc<ErrorBudget>),
    bound: MptcpListener,
    (open, by_address): (Arc<AtomicUsize>, Arc<PerAddress>),
) {
    while let Ok((stream, peer)) = bound.accept().await {
        memory::accepted(&*state);
        let is_over = state.pressure.refuses(peer.ip());
        let limit = match is_over {
            true => Err("memory"),
            false if open.load(Ordering::Relaxed) >= listener.max_connections => Err("connections"),
            false => by_address.enter(peer.ip(), listener.max_per_address).ok_or("connections-per-address"),
        };
        let place = match limit {
            Ok(place) => place,
            Err(limit) => {
                state.counters.refused.fetch_add(1, Ordering::Relaxed);
                log::note("refused", peer, format_args!("listener {}: the limit `{limit}`", listener.name));
                stream.abort();
                continue;
            }
        };
        // It is gone at worst.
        let _ = stream.set_unsent_beyond_window(Some(BEYOND_WINDOW));
        open.fetch_add(1, Ordering::Relaxed);
        state.counters.accepted.fetch_add(1, Ordering::Relaxed);
        let (state, listener, open) = (Arc::clone(&state), Arc::clone(&listener), Arc::clone(&open));
        let (errors, list) = (Arc::clone(&errors), list.clone());
        tokio::spawn(small(async move {
            let _open = (Open(open), place);
            match &listener.service {
                Service::Forward(to) => forward(&state, &listener, stream, to).await,
                Service::Convert(converter) => {
                    convert(&state, &listener, (converter, &list), stream, &errors).await;
                }
            }
        }));
    }
}

/// Counts a connection for as long as it lives.
struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Connects to the listener's server, and tells it who the client is.
async fn connect(listener: &Listener, to: &Target, client: &MptcpStream) -> io::Result<TcpStream> {
    let mut retries = listener.retries;
    loop {
        let connected = match timeout(listener.connect_timeout, to.connect()).await {
            Ok(connected) => connected,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        };
        match connected {
            Ok(mut backend) => {
                if let Some(version) = listener.proxy_protocol {
                    let header = version.header(client.peer_addr(), client.local_addr());
                    backend.write_all(&header).await?;
                }
                return Ok(backend);
            }
            Err(error) if retries == 0 => return Err(error),
            Err(_) => {
                retries -= 1;
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

fn flow(state: &State, listener: &Listener, stream: Arc<MptcpStream>) -> ForwardedConnection {
    ForwardedConnection {
        listener: listener.name.clone(),
        stream,
        to: OnceLock::new(),
        uploaded: AtomicU64::new(0),
        downloaded: AtomicU64::new(0),
        since: Instant::now(),
        progress: Progress::default(),
        window: state.pressure.windows.of(listener.connection.receive_buffer),
    }
}

/// Forwards to the listener's server.
async fn forward(state: &Arc<State>, listener: &Listener, stream: MptcpStream, to: &Target) {
    let peer = stream.peer_addr();
    let entry = state.add(flow(state, listener, Arc::new(stream)));
    let flow = &entry.flow;
    let _ = flow.to.set(Some(to.clone()));
    match Box::pin(connect(listener, to, &flow.stream)).await {
        Ok(backend) => relay(state, flow, None, backend).await,
        Err(error) => {
            state.counters.unreachable.fetch_add(1, Ordering::Relaxed);
            log::note(
                "the server can't be reached",
                peer,
                format_args!("listener {}, {to}: {error}", listener.name),
            );
            flow.stream.reset();
        }
    }
}

/// Does what a client asks for (RFC 8803).
async fn convert(
    state: &Arc<State>,
    listener: &Listener,
    (converter, list): (&Converter, &Current),
    stream: MptcpStream,
    errors: &ErrorBudget,
) {
    let (peer, stream) = (stream.peer_addr(), Arc::new(stream));
    let entry = state.add(flow(state, listener, Arc::clone(&stream)));
    let flow = &entry.flow;
    let own = own_addresses();
    // Boxed, as all that only some connections need, or only at first: an idle one has a small task.
    let asked = Box::pin(async {
        match &converter.tls {
            None => (converter.serve(&mut &*stream, &own, errors).await, None),
            Some(acceptor) => match timeout(HANDSHAKE, acceptor.accept(Arc::clone(&stream))).await {
                Ok(Ok(mut secure)) => (converter.serve(&mut secure, &own, errors).await, Some(secure)),
                Ok(Err(error)) => (Err(Refusal::Lost(error)), None),
                Err(_) => (Err(Refusal::Lost(io::ErrorKind::TimedOut.into())), None),
            },
        }
    });
    let (granted, secure) = asked.await;
    match granted {
        Ok(Granted::Connected(server, to)) => {
            let _ = flow.to.set(Some(Target::Address(to)));
            relay(state, flow, secure, server).await;
        }
        Ok(Granted::Datagrams) => {
            let _ = flow.to.set(None);
            let carried = Carried { from_stream: &flow.uploaded, to_stream: &flow.downloaded };
            let stream = &*flow.stream;
            let done = match secure {
                None => Box::pin(udp::relay::relay(stream, stream, list, &own, carried)).await,
                Some(secure) => {
                    let (reader, writer) = tokio::io::split(secure);
                    Box::pin(udp::relay::relay(reader, writer, list, &own, carried)).await
                }
            };
            if let Err(error) = &done {
                state.counters.client_lost.fetch_add(1, Ordering::Relaxed);
                stream.reset();
                tracing::debug!(target: "ropewalk::gateway", %peer, %error, "datagrams ended");
            }
        }
        Ok(Granted::Tunnel) => {
            let (Some(far), Some(secure)) = (&state.far, secure) else {
                state.counters.denied.fetch_add(1, Ordering::Relaxed);
                log::note(
                    "denied",
                    peer,
                    format_args!("listener {}: datagrams need a restart", listener.name),
                );
                return flow.stream.reset();
            };
            // It has said what it wants.
            let _ = flow.to.set(None);
            let carried = Carried { from_stream: &flow.uploaded, to_stream: &flow.downloaded };
            let serving =
                Box::pin(tunnel_server::serve_stream(far, secure, (listener.listen, list), carried));
            if let Err(error) = serving.await {
                flow.stream.reset();
                tracing::debug!(target: "ropewalk::gateway", %peer, %error, "a tunnel's stream ended");
            }
        }
        Err(refusal) => {
            let counter = match refusal {
                Refusal::Server(..) => &state.counters.unreachable,
                Refusal::Info => return,
                // A probe of the proxy's, or a client that was lost.
                Refusal::Lost(ref error) if error.kind() != io::ErrorKind::InvalidData => {
                    if error.kind() == io::ErrorKind::TimedOut {
                        // A proxy whose link was away hears so, when it is back, that nobody will answer.
                        flow.stream.reset();
                    }
                    let listener = &listener.name;
                    tracing::debug!(target: "ropewalk::gateway", listener, %peer, %error, "ended");
                    return;
                }
                _ => &state.counters.denied,
            };
            counter.fetch_add(1, Ordering::Relaxed);
            log::note("denied", peer, format_args!("listener {}: {refusal}", listener.name));
        }
    }
}

/// Carries both ways until the end.
async fn relay(
    state: &Arc<State>,
    flow: &ForwardedConnection,
    secure: Option<Secure>,
    mut backend: TcpStream,
) {
    let peer = flow.stream.peer_addr();
    // Its segments are few and large; Nagle's algorithm would only delay the last.
    let _ = backend.set_nodelay(true);
    let (from_stream, to_stream) = (&flow.uploaded, &flow.downloaded);
    let counters = ByteCounters { from_stream, to_stream, pressure: &state.pressure };
    let carried = match secure {
        None => carry(&flow.stream, &mut backend, Bytes::new(), counters).await,
        Some(secure) => {
            Box::pin(carry_encrypted(secure, &flow.stream, &mut backend, Bytes::new(), counters)).await
        }
    };
    let end = match carried {
        Ok(()) => "closed".to_string(),
        Err(lost) => {
            let carried = flow.uploaded.load(Ordering::Relaxed) + flow.downloaded.load(Ordering::Relaxed);
            let counter = match lost {
                // A handshake and a reset: a proxy's probe of a link.
                Lost::Stream(_) if carried == 0 => None,
                Lost::Stream(_) => Some(&state.counters.client_lost),
                Lost::Socket(_) => Some(&state.counters.backend_lost),
            };
            if let Some(counter) = counter {
                counter.fetch_add(1, Ordering::Relaxed);
            }
            lost.to_string()
        }
    };
    let (up, down) = (flow.uploaded.load(Ordering::Relaxed), flow.downloaded.load(Ordering::Relaxed));
    let seconds = flow.since.elapsed().as_secs_f64();
    let (listener, to) = (&flow.listener, flow.to.get());
    tracing::debug!(target: "ropewalk::gateway", listener, %peer, ?to, end, up, down, seconds, "ended");
}
