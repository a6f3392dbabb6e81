//! Encryption of conversations on disk: whether, under what, and unlocking at the start.

use engine::{Engine, PrivacyState};
use store::{Passphrase, Secret};
use tauri::State;

use crate::api_error::ApiError;
use crate::app::{OpenApp, Running};

#[tauri::command(async)]
pub(crate) fn privacy_state(app: OpenApp) -> Result<PrivacyState, ApiError> {
    Ok(app.engine.privacy()?)
}

#[tauri::command(async)]
pub(crate) fn protect(app: OpenApp, secret: Secret) -> Result<PrivacyState, ApiError> {
    let passphrase = secret.passphrase().cloned();
    app.change_privacy(passphrase.as_ref(), |engine| engine.protect(secret))
}

#[tauri::command(async)]
pub(crate) fn unprotect(app: OpenApp) -> Result<PrivacyState, ApiError> {
    app.change_privacy(None, Engine::unprotect)
}

#[tauri::command(async)]
pub(crate) fn change_secret(
    app: OpenApp,
    current: Option<Passphrase>,
    secret: Secret,
) -> Result<PrivacyState, ApiError> {
    let passphrase = secret.passphrase().cloned();
    app.change_privacy(passphrase.as_ref(), |engine| {
        engine.change_secret(current, secret)
    })
}

/// The one thing that can be asked for while everything else answers `locked`.
#[tauri::command(async)]
pub(crate) fn unlock(running: State<'_, Running>, passphrase: Passphrase) -> Result<(), ApiError> {
    let app = running.unlock(&passphrase)?;
    std::thread::spawn(move || app.load_first_model());
    Ok(())
}
