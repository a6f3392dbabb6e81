//! What the commands work on: the data folder, the history, the engine.

use std::ops::Deref;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use engine::control::Control;
use engine::{Engine, EngineConfig, EngineProcess, PrivacyState};
use store::{DataFolder, History, Passphrase, Unlocks};
use tauri::ipc::{CommandArg, CommandItem, InvokeError};
use tauri::{Manager, Runtime};

use crate::api_error::ApiError;
use crate::commands::view;

/// The open application. The folder's lock is held for as long as this lives. The fields are dropped in this order: the
/// engine saves and ends, then the history closes, then the folder is free.
pub(crate) struct App {
    pub(crate) engine: Engine,
    history: Mutex<History>,
    pub(crate) data: Arc<DataFolder>,
}

/// How long a deletion can be undone: longer than the window offers it.
const UNDO: Duration = Duration::from_secs(12);

impl App {
    /// Starts the engine on a data folder. A missing model is no error: turns will say so.
    fn open(data: Arc<DataFolder>, passphrase: Option<&Passphrase>) -> Result<Self, ApiError> {
        let history = Mutex::new(History::unlock(&data.history_path(), passphrase)?);
        let threads = EngineConfig::threads_beside_a_window();
        let folder = data.path().to_owned();
        let engine = Engine::spawn(EngineProcess::beside(folder, threads, passphrase)?)?;
        let app = Self {
            engine,
            history,
            data,
        };
        // Deletions before this start cannot be undone, so all of them are purged, independent of the clock.
        app.empty_trash(i64::MAX);
        Ok(app)
    }

    /// The history, for the length of one call.
    pub(crate) fn history(&self) -> MutexGuard<'_, History> {
        lock(&self.history)
    }

    /// Has the engine change the encryption of the history, which is the engine's alone meanwhile. `passphrase` unlocks it
    /// afterwards, if that is new.
    pub(crate) fn change_privacy(
        &self,
        passphrase: Option<&Passphrase>,
        ask: impl FnOnce(&Engine) -> engine::Result<PrivacyState>,
    ) -> Result<PrivacyState, ApiError> {
        let mut history = self.history();
        history.set_aside()?;
        let changed = ask(&self.engine);
        history.take_up(passphrase)?;
        Ok(changed?)
    }

    /// Loads a model in advance: that of the conversation that the window opens with, else the default one. If there is
    /// no model, turns report it.
    pub(crate) fn load_first_model(&self) {
        let looked_at = view::looked_at(&self.history()).unwrap_or_default();
        // The conversation may be deleted; then the default model is loaded.
        let opened = looked_at.map(|conversation| self.engine.open(Some(conversation)));
        if let Err(error) = opened.unwrap_or(Ok(())).and(self.engine.load(None)) {
            tracing::warn!(%error, "no model is loaded");
        }
    }

    /// Deletes for good what was deleted before `before_ms`. Not when closing: the engine may be writing a reply, and
    /// closing must not wait for it; then it is done at the next start.
    fn empty_trash(&self, before_ms: i64) {
        let purged = self
            .history()
            .purge_deleted(before_ms)
            .map_err(engine::Error::from);
        if let Err(error) = purged.and_then(|leaves| self.engine.forget(leaves)) {
            tracing::warn!(%error, "deleted conversations are kept");
        }
    }
}

/// The application for as long as it is open. Tauri never drops what it manages, and what is not dropped is not saved:
/// so that this is what it manages, and closing takes the application out.
pub(crate) struct Running {
    state: Mutex<State>,
    /// Serves requests of other processes to release memory and to show the window; absent if it could not be started.
    control: Mutex<Option<Control>>,
    data: Arc<DataFolder>,
}

enum State {
    /// The conversations are encrypted, and nobody has said the passphrase.
    Locked,
    Open(Arc<App>),
    Closed,
}

impl Running {
    /// Opens a data folder that this process has locked. The application stays locked if a passphrase is needed.
    pub(crate) fn open(data: DataFolder) -> Result<Self, ApiError> {
        let data = Arc::new(data);
        let state = match History::unlocked_by(&data.history_path())? {
            Some(Unlocks::Passphrase) => State::Locked,
            _ => State::Open(Arc::new(App::open(Arc::clone(&data), None)?)),
        };
        Ok(Self {
            state: Mutex::new(state),
            control: Mutex::new(None),
            data,
        })
    }

    /// Keeps the listener for other processes until this is dropped.
    pub(crate) fn keep(&self, control: Control) {
        *self.control.lock().unwrap_or_else(PoisonError::into_inner) = Some(control);
    }

    /// The data folder.
    pub(crate) fn folder(&self) -> &Path {
        self.data.path()
    }

    /// The application, unless it is locked or closing.
    pub(crate) fn app(&self) -> Result<OpenApp, ApiError> {
        match &*self.state() {
            State::Open(app) => Ok(OpenApp(Arc::clone(app))),
            State::Locked => Err(ApiError::new(
                "locked",
                "the conversations are encrypted; their passphrase is needed",
            )),
            State::Closed => Err(ApiError::new("internal", "Reprise is closing")),
        }
    }

    /// Opens the application with its passphrase. Nothing if it is open.
    pub(crate) fn unlock(&self, passphrase: &Passphrase) -> Result<OpenApp, ApiError> {
        {
            let mut state = self.state();
            if matches!(*state, State::Locked) {
                let app = App::open(Arc::clone(&self.data), Some(passphrase))?;
                *state = State::Open(Arc::new(app));
            }
        }
        self.app()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Saves what is not on disk yet and closes the history.
    pub(crate) fn close(&self) {
        let state = std::mem::replace(&mut *self.state(), State::Closed);
        if let State::Open(app) = state {
            // A command on another thread may hold the application for a moment longer; the engine need not wait for it.
            app.engine.shutdown();
        }
        // After the engine: all waiting requests are answered by then, so dropping the listener does not wait for them.
        let control = self.control.lock().map(|mut control| control.take());
        drop(control);
    }
}

/// What a command gets: the open application, or a refusal in its place.
pub(crate) struct OpenApp(Arc<App>);

impl OpenApp {
    /// Deletes what is in the trash for good, once it cannot be undone any more; closed before that, at the next start.
    pub(crate) fn empty_trash_later(&self) {
        let app = Arc::downgrade(&self.0);
        std::thread::spawn(move || {
            std::thread::sleep(UNDO);
            if let Some(app) = app.upgrade() {
                app.empty_trash(now_ms() - UNDO.as_millis() as i64 + 1);
            }
        });
    }
}

impl Deref for OpenApp {
    type Target = App;

    fn deref(&self) -> &App {
        &self.0
    }
}

impl<'de, R: Runtime> CommandArg<'de, R> for OpenApp {
    fn from_command(command: CommandItem<'de, R>) -> Result<Self, InvokeError> {
        let app = command.message.webview_ref().state::<Running>().app();
        app.map_err(InvokeError::from)
    }
}

/// A panic elsewhere leaves no half-done statement behind: SQLite rolls back.
fn lock(history: &Mutex<History>) -> MutexGuard<'_, History> {
    history.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The clock of the shell, handed down as a value.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
