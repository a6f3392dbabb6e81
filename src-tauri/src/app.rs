//! What the commands work on: the data folder, the history, the engine.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use engine::control::Control;
use engine::{Engine, EngineConfig, EngineProcess};
use store::{DataFolder, History};
use tauri::ipc::{CommandArg, CommandItem, InvokeError};
use tauri::{Manager, Runtime};

use crate::api_error::ApiError;

/// The open application. The folder's lock is held for as long as this lives. The fields are dropped in this order: the
/// engine saves and ends, then the history closes, then the folder is free.
pub(crate) struct App {
    pub(crate) engine: Engine,
    /// Lets `reprise-cli engine` ask for memory; without it, nobody can. After the engine: who waits for an answer then
    /// gets one, and this does not wait for them.
    _control: Option<Control>,
    history: Mutex<History>,
    pub(crate) data: DataFolder,
}

impl App {
    /// Takes the data folder and starts the engine on it. A missing model is no error: turns will say so.
    pub(crate) fn open(data_dir: Option<PathBuf>) -> Result<Self, ApiError> {
        let data = DataFolder::open(data_dir)?;
        let history = Mutex::new(History::open(&data.history_path())?);
        let threads = EngineConfig::threads_beside_a_window();
        let engine = Engine::spawn(EngineProcess::beside(data.path().to_owned(), threads)?)?;
        let control = engine
            .listen(data.path())
            .inspect_err(|error| tracing::warn!(%error, "memory cannot be asked for from outside"))
            .ok();
        let app = Self {
            engine,
            _control: control,
            history,
            data,
        };
        app.empty_trash();
        Ok(app)
    }

    /// The history, for the length of one call.
    pub(crate) fn history(&self) -> MutexGuard<'_, History> {
        lock(&self.history)
    }

    /// Loads the default model, so that it is there before the first word. Without one, turns will say so.
    pub(crate) fn load_default_model(&self) {
        if let Err(error) = self.engine.load(None) {
            tracing::warn!(%error, "no model is loaded");
        }
    }

    /// A deletion can be undone until the application starts again. Not at the end: the engine may be writing a reply,
    /// and closing must not wait for it.
    fn empty_trash(&self) {
        let purged = self
            .history()
            .purge_deleted(now_ms())
            .map_err(engine::Error::from);
        if let Err(error) = purged.and_then(|leaves| self.engine.forget(leaves)) {
            tracing::warn!(%error, "deleted conversations are kept");
        }
    }
}

/// The application for as long as it is open. Tauri never drops what it manages, and what is not dropped is not saved:
/// so that this is what it manages, and closing takes the application out.
pub(crate) struct Running(Mutex<Option<Arc<App>>>);

impl Running {
    pub(crate) fn new(app: App) -> Self {
        Self(Mutex::new(Some(Arc::new(app))))
    }

    /// The application, unless it is closing.
    pub(crate) fn app(&self) -> Option<OpenApp> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
            .map(OpenApp)
    }

    /// Saves what is not on disk yet and closes the history.
    pub(crate) fn close(&self) {
        let app = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(app) = app {
            // A command on another thread may hold the application for a moment longer; the engine need not wait for it.
            app.engine.shutdown();
        }
    }
}

/// What a command gets: the open application, or a refusal in its place.
pub(crate) struct OpenApp(Arc<App>);

impl Deref for OpenApp {
    type Target = App;

    fn deref(&self) -> &App {
        &self.0
    }
}

impl<'de, R: Runtime> CommandArg<'de, R> for OpenApp {
    fn from_command(command: CommandItem<'de, R>) -> Result<Self, InvokeError> {
        let app = command.message.webview_ref().state::<Running>().app();
        app.ok_or_else(|| InvokeError::from(ApiError::new("internal", "Reprise is closing")))
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
