//! Handshakes at connection level: keys (RFC 8684 3.1) and joins (3.2), on a subflow whose segment TCP has accepted.

use ropewalk_wire::{Flags, MpJoin, Payload, RareOptions, Segment};

use super::close_reason::{CloseReason, JoinError};
use super::connection::{Connection, Mode, Role};
use super::crypto::{Key, join_hmac, leftmost_64, leftmost_160};
use super::is_understood;
use super::stats::{Event, FallbackCause};
use super::subflow::Join;
use crate::metrics::SubflowStatus;
use crate::scheduler;
use crate::{Nanos, SubflowId};

impl<P: Payload> Connection<P> {
    /// The SYN/ACK of our SYN; false if the subflow is gone.
    #[cold]
    pub(super) fn on_syn_ack(
        &mut self,
        now: Nanos,
        index: usize,
        rare: Option<&RareOptions>,
        established: bool,
    ) -> bool {
        let Some(subflow) = self.subflows[index].as_mut() else { return false };
        match subflow.join {
            Join::Initial => {
                if self.mode != Mode::Negotiating {
                    return true;
                }
                let capable = rare
                    .and_then(|rare| rare.mp_capable)
                    .filter(|capable| is_understood(capable) && capable.sender_key.is_some());
                match capable {
                    Some(capable) if established => {
                        self.negotiated.remote_key = capable.sender_key.map(Key::new);
                        //= RFC 8684 3.1-22 3.1-23
                        self.negotiated.checksum |= capable.checksum_required;
                        self.negotiated.deny_join = capable.deny_join_initial_address;
                        self.mode = Mode::Multipath;
                        if self.config.path_manager.early_join {
                            self.open_early_joins();
                        }
                    }
                    //= RFC 8684 3.1-26 3.7-1 6-1
                    _ => self.fall_back(now, FallbackCause::NoMpCapable),
                }
                true
            }
            Join::SynSent => {
                let (Some(remote), Some(MpJoin::SynAck { backup, address_id, hmac, nonce })) =
                    (self.negotiated.remote_key, rare.and_then(|rare| rare.mp_join))
                else {
                    //= RFC 8684 3.2-10 3.2-11 3.2-12
                    // The peer or a middlebox doesn't know the option (RFC 8684 3.2: reset).
                    self.refuse(now, index, CloseReason::Join(JoinError::NoOptionOnSynAck));
                    return false;
                };
                let expected =
                    join_hmac(remote.key, self.negotiated.local_key.key, nonce, subflow.local_nonce);
                //= RFC 8684 3.2-8 3.9.3-2
                if leftmost_64(&expected) != hmac {
                    self.stats.join_hmac_failures += 1;
                    self.refuse(now, index, CloseReason::Join(JoinError::HmacOfSynAck));
                    return false;
                }
                subflow.remote_nonce = nonce;
                //= RFC 8684 3.2-1 3.4.1-3
                subflow.remote_id = address_id;
                subflow.backup_remote = backup;
                if self.negotiated.confirmed {
                    self.send_third_ack(now, index);
                } else {
                    subflow.join = Join::Held;
                }
                true
            }
            _ => true,
        }
    }

    /// The third ACK of a connection that we accepted.
    #[cold]
    pub(super) fn on_third_ack(&mut self, now: Nanos, rare: Option<&RareOptions>) {
        let capable = rare.and_then(|rare| rare.mp_capable);
        match capable {
            // Version and flags are those of the handshake (RFC 8684 3.1).
            Some(capable)
                if is_understood(&capable) && capable.receiver_key == Some(self.negotiated.local_key.key) =>
            {
                if let Some(key) = capable.sender_key {
                    self.negotiated.remote_key = Some(Key::new(key));
                    self.mode = Mode::Multipath;
                    self.negotiated.confirmed = true;
                    self.negotiated.checksum |= capable.checksum_required;
                    // No DATA_ACK yet: the answer to the first data tells the client that its keys arrived. Linux no longer falls
                    // back (RFC 8684 3.7) once it got a DSS, and a path may strip the options of data only.
                }
            }
            //= RFC 8684 3.1-9 3.1-28 3.1-29
            // Without the keys nothing can be verified.
            _ => self.fall_back(now, FallbackCause::NoOptionsInHandshake),
        }
    }

    /// The MP_JOIN handshake beyond its SYN/ACK; false if the subflow is gone.
    #[cold]
    pub(super) fn on_join_progress(
        &mut self,
        now: Nanos,
        index: usize,
        segment: &Segment<P>,
        rare: Option<&RareOptions>,
    ) -> bool {
        let Some(subflow) = self.subflows[index].as_mut() else { return false };
        match subflow.join {
            Join::SynReceived => {
                let Some(remote) = self.negotiated.remote_key else { return false };
                let Some(MpJoin::Ack { hmac }) = rare.and_then(|rare| rare.mp_join) else {
                    //= RFC 8684 3.2-10 3.2-11 3.2-12
                    self.refuse(now, index, CloseReason::Join(JoinError::NoOptionOnThirdAck));
                    return false;
                };
                let expected = join_hmac(
                    remote.key,
                    self.negotiated.local_key.key,
                    subflow.remote_nonce,
                    subflow.local_nonce,
                );
                //= RFC 8684 3.2-10 3.9.3-2
                if leftmost_160(&expected) != hmac {
                    self.stats.join_hmac_failures += 1;
                    self.refuse(now, index, CloseReason::Join(JoinError::HmacOfThirdAck));
                    return false;
                }
                //= RFC 8684 3.2-4
                subflow.tcp.request_ack();
                if !self.may_join() {
                    // Others were faster.
                    self.refuse(now, index, CloseReason::Join(JoinError::Limit));
                    return false;
                }
                self.make_usable(now, index);
                true
            }
            Join::AckSent if !segment.flags.contains(Flags::SYN) => {
                self.make_usable(now, index);
                true
            }
            _ => true,
        }
    }

    /// The handshake of a subflow is complete at TCP level.
    #[cold]
    pub(super) fn on_established(&mut self, now: Nanos, index: usize) {
        let Some(subflow) = self.subflows[index].as_ref() else { return };
        if subflow.join != Join::Initial {
            return;
        }
        let tuple = subflow.tcp.tuple();
        self.send.progress(now);
        self.make_usable(now, index);
        let multipath = self.mode == Mode::Multipath;
        self.events.push_back(match self.role {
            Role::Client => Event::Connected { multipath },
            Role::Server => Event::Accepted { tuple, multipath },
        });
        if self.mode == Mode::Plain {
            let window = self.subflows[index].as_ref().map(|subflow| subflow.tcp.peer_window());
            self.on_plain_tcp_ack(now, index, window);
            self.check_closed(now);
        } else {
            // Until the first DATA_ACK, the window of the handshake counts.
            self.send
                .start_window(self.subflows[index].as_ref().map_or(0, |subflow| subflow.tcp.peer_window()));
            self.judge_window();
            if self.role == Role::Server {
                self.announce(now);
            }
        }
    }

    /// The subflow may carry data from now on.
    #[cold]
    pub(crate) fn make_usable(&mut self, now: Nanos, index: usize) {
        self.metrics[index].state = SubflowStatus::Usable;
        self.resume();
        self.congestion.subflow_added(&mut self.metrics, index, now);
        self.notify(now, scheduler::Event::SubflowAdded(SubflowId(index as u8)));
        let path = self.metrics[index].path;
        self.close_replaced_subflows(now, index);
        if let Some(subflow) = self.subflows[index].as_mut() {
            // Either side's wish makes it a backup (RFC 8684 3.3.8).
            self.metrics[index].backup = subflow.backup_local || subflow.backup_remote;
            let tuple = subflow.tcp.tuple();
            if subflow.join != Join::Initial {
                subflow.join = Join::Joined;
                self.receive.add_subflow(self.config.receive_buffer.initial, &subflow.autotuning);
                self.life.had_join = true;
                self.events.push_back(Event::SubflowAdded { subflow: SubflowId(index as u8), path, tuple });
            }
        }
        self.wake();
    }

    //= RFC 8684 3.1-10
    /// The peer showed with a DATA_ACK or ADD_ADDR that it has both keys.
    #[cold]
    pub(super) fn on_confirmed(&mut self, now: Nanos) {
        self.negotiated.confirmed = true;
        if self.role == Role::Client {
            self.join_confirmed(now);
        }
        self.announce(now);
        if self.send.closed() && self.send.unsent() == 0 {
            // The handshake's third ACK, or the first data, had no room for the DATA_FIN.
            self.ack_on_best();
        }
    }
}
