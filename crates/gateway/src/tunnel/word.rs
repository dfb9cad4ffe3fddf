//! What a proxy tells its gateway of a link: how packets use it, by the rules that hold for them.

use std::io;

use ropewalk_datagrams::{LinkUse, MOST_LANES, SCHEDULERS};
use tokio::io::{AsyncRead, AsyncReadExt};

/// How packets of a lane use a link, and who chooses for them: a place in [`SCHEDULERS`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Use {
    pub how: LinkUse,
    pub scheduler: u8,
}

impl Use {
    /// `scheduler`: a name of [`SCHEDULERS`].
    pub fn new(how: LinkUse, scheduler: &str) -> Use {
        let place = SCHEDULERS.iter().position(|(name, ..)| *name == scheduler).unwrap_or_default();
        Use { how, scheduler: place as u8 }
    }
}

/// What is told: four bytes of the most bytes per second that may be sent (0: no limit), the number of lanes,
/// and two bytes for each (bit 0: it doesn't use the link; 1: as a backup; 2: flows stay on it; bits 3 to 5:
/// the link's order; then the scheduler).
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Word {
    pub most: u32,
    /// First of packets for which no rule holds.
    pub lanes: Vec<Use>,
}

impl Word {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.most.to_be_bytes().to_vec();
        bytes.push(self.lanes.len().min(MOST_LANES) as u8);
        for Use { how: LinkUse { is_shut, is_backup, order, keeps }, scheduler } in
            self.lanes.iter().take(MOST_LANES)
        {
            let flags = u8::from(*is_shut) | u8::from(*is_backup) << 1 | u8::from(*keeps) << 2;
            bytes.extend([flags | (*order).min(7) << 3, *scheduler]);
        }
        bytes
    }

    /// Reads one.
    ///
    /// # Errors
    /// If there is none.
    pub async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Word> {
        let most = from.read_u32().await?;
        let count = usize::from(from.read_u8().await?);
        if count > MOST_LANES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{count} lanes")));
        }
        let mut lanes = Vec::with_capacity(count);
        for _ in 0..count {
            let [flags, scheduler] = [from.read_u8().await?, from.read_u8().await?];
            let has = |bit: u8| flags >> bit & 1 != 0;
            let order = flags >> 3 & 7;
            let how = LinkUse { is_shut: has(0), is_backup: has(1), keeps: has(2), order };
            lanes.push(Use { how, scheduler });
        }
        Ok(Word { most, lanes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_word_says_what_it_was_made_of() {
        let all = [false, true].into_iter().flat_map(|one| [false, true].map(|other| (one, other)));
        let uses = all.flat_map(|(one, other)| {
            [0, 1, 7].map(|order| {
                let how = LinkUse { is_shut: one, is_backup: other, keeps: one != other, order };
                Use::new(how, SCHEDULERS[usize::from(order) % SCHEDULERS.len()].0)
            })
        });
        for lanes in [Vec::new(), uses.collect()] {
            for most in [0, 125_000] {
                let word = Word { most, lanes: lanes.clone() };
                assert_eq!(Word::read(&mut &word.encode()[..]).await.unwrap(), word);
            }
        }
        assert!(Word::read(&mut &[0, 0, 0, 0, 17, 0, 0][..]).await.is_err());
    }
}
