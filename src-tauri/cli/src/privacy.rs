//! `privacy`: encryption of conversations on disk. No model is loaded; what is left to rewrite is rewritten before the
//! command ends.

use std::path::PathBuf;

use ::engine::{PrivacyState, rewrite_some};
use serde_json::json;
use store::{BlockStore, Privacy, Secret, Unlocks};

use crate::app::App;
use crate::arguments::PrivacyCommand;
use crate::error::Result;
use crate::output::{Output, grouped};
use crate::passphrase;

pub(crate) fn run(
    command: PrivacyCommand,
    data_dir: Option<PathBuf>,
    output: &Output,
) -> Result<()> {
    let app = App::open(data_dir, None)?;
    let mut store = app.block_store()?;
    match command {
        PrivacyCommand::Status => return say(&app, &store, output),
        PrivacyCommand::On { keychain } => {
            let secret = secret(keychain, passphrase::first)?;
            app.history().protect(&secret)?;
        }
        PrivacyCommand::Off => app.history().unprotect()?,
        PrivacyCommand::Passphrase { keychain } => {
            let current = match app.history().unlocks() {
                Some(Unlocks::Passphrase) => passphrase::current()?,
                _ => None,
            };
            let secret = secret(keychain, passphrase::new)?;
            app.history().change_secret(current.as_ref(), &secret)?;
            return say(&app, &store, output);
        }
    }
    let seal = app.history().seal();
    store.set_seal(seal);
    let mut told = None;
    while let Some(left) = rewrite_some(app.shared_history(), &mut store)? {
        // A line for every hundred.
        if told.is_none_or(|told| left + 100 <= told) {
            told = Some(left);
            let object = json!({ "event": "rewriting", "blocks_left": left });
            output.line(&object, || format!("{} blocks left", grouped(left)))?;
        }
    }
    say(&app, &store, output)
}

fn secret(
    keychain: bool,
    passphrase: impl FnOnce() -> Result<store::Passphrase>,
) -> Result<Secret> {
    Ok(match keychain {
        true => Secret::Keychain,
        false => Secret::Passphrase {
            passphrase: passphrase()?,
        },
    })
}

fn say(app: &App, store: &BlockStore, output: &Output) -> Result<()> {
    let state = PrivacyState::of(&app.history(), store);
    output.line(&state, || sentence(state))
}

fn sentence(
    PrivacyState {
        privacy,
        unlocks,
        blocks_left,
    }: PrivacyState,
) -> String {
    let by = match unlocks {
        Some(Unlocks::Keychain) => "a key in the system's keychain",
        _ => "a passphrase",
    };
    let left = grouped(blocks_left);
    match privacy {
        Privacy::Off => "conversations are not encrypted".into(),
        Privacy::On => format!("conversations are encrypted; {by} unlocks them"),
        Privacy::TurningOn => format!(
            "conversations are encrypted; {by} unlocks them. Of the cache {left} blocks are still to be encrypted"
        ),
        Privacy::TurningOff => format!(
            "conversations are not encrypted any more. Of the cache {left} blocks still are"
        ),
    }
}
