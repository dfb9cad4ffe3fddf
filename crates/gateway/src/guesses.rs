//! Wrong passwords cost time: after a few from an address, its next ones are looked at one by one, after a
//! delay that doubles.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::log;
use crate::per_address::network_of;

/// So many wrong ones cost nothing: people mistype.
const FREE: u32 = 3;
/// The delay after the first that isn't free, and the longest.
const DELAY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(30));
/// Who would wait longer is refused unheard.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// An address without attempts for so long starts anew.
const FORGOTTEN: Duration = Duration::from_secs(600);
/// Most addresses that are known; the one that was silent for longest goes.
const MOST: usize = 4096;

#[derive(Clone, Copy, Debug)]
struct Guess {
    wrong: u32,
    /// When the next attempt may be looked at.
    next: Instant,
    last: Instant,
}

/// Addresses with wrong passwords.
#[derive(Debug, Default)]
pub(crate) struct Guesses(Mutex<BTreeMap<IpAddr, Guess>>);

fn delay(wrong: u32) -> Duration {
    let doubled = wrong.checked_sub(FREE).map(|more| DELAY.0.saturating_mul(1 << more.min(10)));
    doubled.unwrap_or_default().min(DELAY.1)
}

impl Guesses {
    /// How long an attempt has to wait; `None`: too long.
    fn wait(&self, client: IpAddr, now: Instant) -> Option<Duration> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(guess) = known.get_mut(&network_of(client)) else { return Some(Duration::ZERO) };
        let wait = guess.next.saturating_duration_since(now);
        if wait > LONGEST_WAIT {
            return None;
        }
        // Those that come meanwhile wait for this one, too.
        guess.next = now + wait + delay(guess.wrong);
        Some(wait)
    }

    fn learn(&self, client: IpAddr, is_right: bool, now: Instant) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let client = network_of(client);
        if is_right {
            known.remove(&client);
            return;
        }
        known.retain(|_, guess| now.duration_since(guess.last) < FORGOTTEN);
        if known.len() >= MOST && !known.contains_key(&client) {
            let oldest = known.iter().min_by_key(|(_, guess)| guess.last).map(|(client, _)| *client);
            oldest.map(|oldest| known.remove(&oldest));
        }
        let guess = known.entry(client).or_insert(Guess { wrong: 0, next: now, last: now });
        guess.wrong += 1;
        guess.last = now;
        guess.next = guess.next.max(now + delay(guess.wrong));
    }

    /// Whether what a client gives is right, after the delay that its address has earned. `what` it is, for
    /// the log.
    pub async fn check(&self, client: SocketAddr, what: &str, is_right: impl FnOnce() -> bool) -> bool {
        let Some(wait) = self.wait(client.ip(), Instant::now()) else {
            log::note("refused unheard: too many wrong passwords or tokens from this address", client, what);
            return false;
        };
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        let is_right = is_right();
        self.learn(client.ip(), is_right, Instant::now());
        if !is_right {
            log::note("wrong password or token", client, what);
        }
        is_right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wrong_one_costs_more_and_only_its_own_address() {
        let (guesses, begin) = (Guesses::default(), Instant::now());
        let (one, other) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let (mut now, mut looked_at) = (begin, 0);
        // A guesser who never waits longer than he must.
        while now < begin + Duration::from_secs(3600) {
            match guesses.wait(one, now) {
                Some(wait) => {
                    looked_at += 1;
                    now += wait;
                    guesses.learn(one, false, now);
                }
                None => now += Duration::from_millis(100),
            }
        }
        assert!((100..250).contains(&looked_at), "{looked_at} in an hour");
        assert_eq!(guesses.wait(other, now), Some(Duration::ZERO));
        now += FORGOTTEN;
        guesses.learn(other, false, now);
        assert_eq!(guesses.wait(one, now), Some(Duration::ZERO), "forgotten");
    }

    #[test]
    fn guesses_at_once_wait_for_one_another() {
        let (guesses, now) = (Guesses::default(), Instant::now());
        let client = |host: u16| IpAddr::from([0x2001, 0xdb8, 0, 7, 0, 0, 0, host]);
        (0..6).for_each(|at| guesses.learn(client(at), false, now));
        let later = now + Duration::from_secs(10);
        let waits: Vec<_> = (0..1000).map_while(|at| guesses.wait(client(at), later)).collect();
        // 2 s each by now.
        assert_eq!(waits, [0, 2, 4].map(Duration::from_secs));
    }

    #[test]
    fn a_right_one_makes_up_for_slips_and_memory_is_bounded() {
        let (guesses, now) = (Guesses::default(), Instant::now());
        let client = IpAddr::from([192, 0, 2, 1]);
        (0..9).for_each(|_| guesses.learn(client, false, now));
        guesses.learn(client, true, now);
        assert_eq!(guesses.wait(client, now), Some(Duration::ZERO));
        (0..10_000u32).for_each(|at| guesses.learn(IpAddr::from(at.to_be_bytes()), false, now));
        assert_eq!(guesses.0.lock().unwrap().len(), MOST);
    }
}
