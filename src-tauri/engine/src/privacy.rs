//! Encryption at rest: the history changes at once, the blocks follow a few at a time while nobody asks for anything.

use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use store::{BlockStore, History, Passphrase, Privacy, Secret, Unlocks};
use ts_rs::TS;

use crate::Result;
use crate::worker::Worker;
use crate::writer::lock;

/// Whether conversations are encrypted on disk, and how far a change of that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct PrivacyState {
    /// Whether they are.
    pub privacy: Privacy,
    /// What unlocks them; none while they are not encrypted.
    pub unlocks: Option<Unlocks>,
    /// Blocks that are still to be rewritten while it is being turned on or off.
    #[ts(type = "number")]
    pub blocks_left: u64,
}

impl PrivacyState {
    /// What it is now.
    pub fn of(history: &History, store: &BlockStore) -> Self {
        let privacy = history.privacy();
        let blocks_left = match privacy {
            Privacy::TurningOn | Privacy::TurningOff => store.num_to_rewrite(),
            Privacy::On | Privacy::Off => 0,
        };
        Self {
            privacy,
            unlocks: history.unlocks(),
            blocks_left,
        }
    }
}

/// Brings the blocks of a store after the history that they belong to.
#[derive(Debug)]
pub(crate) struct Rewriting {
    history: Arc<Mutex<History>>,
    store: Arc<Mutex<BlockStore>>,
    is_due: bool,
}

impl Rewriting {
    /// Goes on with what an earlier process left.
    pub(crate) fn new(history: Arc<Mutex<History>>, store: Arc<Mutex<BlockStore>>) -> Self {
        Self {
            history,
            store,
            is_due: true,
        }
    }

    /// Rewrites some blocks. True while something is left to do.
    pub(crate) fn step(&mut self) -> bool {
        if self.is_due {
            self.is_due = match rewrite_some(&self.history, &mut lock(&self.store)) {
                Ok(left) => left.is_some(),
                Err(error) => {
                    tracing::warn!(%error, "the change of encryption goes on with the next start");
                    false
                }
            };
        }
        self.is_due
    }
}

/// One step of a change of encryption: the blocks that are left, or nothing when no change is going on any more.
///
/// # Errors
/// When the end of the change cannot be noted; it then ends another time.
pub fn rewrite_some(history: &Mutex<History>, store: &mut BlockStore) -> Result<Option<u64>> {
    let locked = || history.lock().unwrap_or_else(PoisonError::into_inner);
    if matches!(locked().privacy(), Privacy::On | Privacy::Off) {
        return Ok(None);
    }
    // Without the history: turns go on beside it.
    let left = store.rewrite_some();
    if left > 0 {
        return Ok(Some(left));
    }
    let mut history = locked();
    history.finish_privacy()?;
    store.set_seal(history.seal());
    Ok(None)
}

impl Worker {
    pub(crate) fn privacy(&self) -> PrivacyState {
        PrivacyState::of(&self.desk.history(), &lock(&self.store))
    }

    /// Encrypts the conversations, or decrypts them without a secret. The history is changed when this returns.
    pub(crate) fn set_privacy(&mut self, secret: Option<&Secret>) -> Result<PrivacyState> {
        if let Some(cache) = &mut self.cache {
            cache.flush();
        }
        let changed = match secret {
            Some(secret) => self.desk.history().protect(secret),
            None => self.desk.history().unprotect(),
        };
        // Also after a failure: the key may have come or gone.
        let seal = self.desk.history().seal();
        lock(&self.store).set_seal(seal);
        self.refresh();
        changed?;
        self.rewriting.is_due = true;
        Ok(self.privacy())
    }

    pub(crate) fn change_secret(
        &mut self,
        current: Option<&Passphrase>,
        secret: &Secret,
    ) -> Result<PrivacyState> {
        self.desk.history().change_secret(current, secret)?;
        Ok(self.privacy())
    }
}
