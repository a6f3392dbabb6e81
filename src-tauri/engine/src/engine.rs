//! The handle to the engine: requests go in, answers come out, over channels.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use models::{DigestCache, ModelInfo};
use store::{BlockStore, ConversationId, History, MessageId, Passphrase, Secret, VerifyReport};

use crate::control::{Command, Control};
use crate::desk::Desk;
use crate::device::Devices;
use crate::limits::MemoryLimits;
use crate::memory::Released;
use crate::privacy::{PrivacyState, Rewriting};
use crate::process::{EngineProcess, remote};
use crate::request::{Answer, Envelope, Request, TurnEvents};
use crate::turn::Turn;
use crate::worker::Worker;
use crate::{Error, Result};

mod questions;

/// Configuration of the engine.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Folder whose `*.gguf` files are models.
    pub models_folder: PathBuf,
    /// File that keeps content digests of weight files, so that a file is hashed once.
    pub digests: Option<PathBuf>,
    /// What the user decided about memory; on the CPU the pool takes memory only as it is used.
    pub limits: MemoryLimits,
    /// Threads to compute with.
    pub threads: usize,
    /// Unix time in milliseconds.
    pub clock: fn() -> i64,
}

impl EngineConfig {
    /// Threads where nothing else is asked: the physical cores. Two threads on one core share its vector units.
    pub fn default_threads() -> usize {
        kernels::physical_cores()
    }

    /// As `default_threads`, with a core left to a window that draws while the model decodes. The threads meet some six
    /// times a layer, and each time all of them wait for the one whose core is drawing.
    pub fn threads_beside_a_window() -> usize {
        kernels::physical_cores().saturating_sub(1).max(1)
    }
}

/// The engine: one thread that owns the model and the pool, and a writer thread behind it, in this process or in one of its
/// own. Dropping the last handle
/// stops a running reply, saves and waits.
#[derive(Debug)]
pub struct Engine {
    requests: Option<Sender<Envelope>>,
    thread: Option<JoinHandle<()>>,
}

impl Engine {
    /// Starts the engine thread. No model is loaded yet.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(
        config: EngineConfig,
        history: Arc<Mutex<History>>,
        store: BlockStore,
    ) -> Result<Self> {
        let (requests, inbox) = channel();
        let store = Arc::new(Mutex::new(store));
        let worker = Worker {
            rewriting: Rewriting::new(Arc::clone(&history), Arc::clone(&store)),
            desk: Desk::open(requests.clone(), inbox, history, config.clock)?,
            store,
            models_folder: config.models_folder,
            digests: DigestCache::new(config.digests),
            limits: config.limits,
            threads: config.threads,
            cache: None,
            devices: Devices::default(),
            last_used_ms: (config.clock)(),
            draft: None,
            open: None,
        };
        let thread = std::thread::Builder::new()
            .name("engine".into())
            .spawn(move || worker.run())
            .map_err(|_| Error::Stopped)?;
        Ok(Self {
            requests: Some(requests),
            thread: Some(thread),
        })
    }

    /// Starts the engine in a process of its own and waits until it is ready. When it ends unasked it is started again, and
    /// turns under way end with [`Error::Restarted`].
    ///
    /// # Errors
    /// When the process cannot be started, or cannot open its data folder.
    pub fn spawn(process: EngineProcess) -> Result<Self> {
        let (requests, inbox) = channel();
        Ok(Self {
            thread: Some(remote::spawn(process, inbox)?),
            requests: Some(requests),
        })
    }

    /// Starts a turn; its events follow. The user's words are durable when the first one arrives.
    pub fn submit(&self, turn: Turn) -> TurnEvents {
        let (answers, events) = channel();
        if self.send(Request::Turn { turn }, answers.clone()).is_err() {
            // The receiver is in this function's hands.
            let _ = answers.send(Answer::from(&Error::Stopped));
        }
        TurnEvents(events)
    }

    /// Asks one thing and waits for the answer.
    ///
    /// # Errors
    /// What the engine answers; [`Error::Stopped`] when it has ended.
    pub fn ask(&self, request: Request) -> Result<Answer> {
        let (answers, answer) = channel();
        self.send(request, answers)?;
        match answer.recv() {
            Ok(Answer::Error { code, message }) => Err(Error::Remote { code, message }),
            Ok(answer) => Ok(answer),
            Err(_) => Err(Error::Stopped),
        }
    }

    /// Stops the turn of a conversation; what was shown is kept.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn cancel(&self, conversation: ConversationId) -> Result<()> {
        self.ask(Request::Cancel { conversation }).map(drop)
    }

    /// From now on somebody looks at this conversation, or at none: its blocks are brought into the pool, and stay there while
    /// anything else can go. Does not wait.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn open(&self, conversation: Option<ConversationId>) -> Result<()> {
        let (answers, _) = channel();
        self.send(Request::Open { conversation }, answers)
    }

    /// Begins to bring a conversation's blocks into the pool in case that it is opened; nothing that is pinned makes way.
    /// Does not wait.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn warm(&self, conversation: ConversationId) -> Result<()> {
        let (answers, _) = channel();
        self.send(Request::Warm { conversation }, answers)
    }

    /// Begins to read ahead what is being typed instead of `message`, or after the active leaf, in place of the draft before;
    /// an empty text discards it. Does not wait.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn draft(
        &self,
        conversation: ConversationId,
        message: Option<MessageId>,
        text: String,
    ) -> Result<()> {
        let (answers, _) = channel();
        self.send(
            Request::Draft {
                conversation,
                message,
                text,
            },
            answers,
        )
    }

    /// Gives the pool the memory for as long a context as the loaded model can hold. What is cached stays, on disk.
    ///
    /// # Errors
    /// When no model is loaded, the pool is not what limits it, or the memory cannot be had.
    pub fn raise_context(&self) -> Result<()> {
        self.ask(Request::RaiseContext).map(drop)
    }

    /// Loads a model by name, or the default one when none is loaded, and waits for it.
    ///
    /// # Errors
    /// When there is no such model or it cannot be used.
    pub fn load(&self, name: Option<String>) -> Result<Option<ModelInfo>> {
        self.model(Request::Load { name })
    }

    /// Saves everything and gives back the pool and the weights; waits for a running reply. The next turn loads again.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn release(&self) -> Result<Released> {
        match self.ask(Request::Release)? {
            Answer::Released(released) => Ok(released),
            other => Err(Error::wrong_answer("release", &other)),
        }
    }

    /// Decides whether the pool of a model takes a whole context when the model is loaded, or memory as it is used. The one
    /// that is loaded comes again as decided.
    ///
    /// # Errors
    /// When that does not fit, with the numbers: nothing is decided then. When history cannot be written.
    pub fn reserve(&self, model: String, whole_context: bool) -> Result<()> {
        let request = Request::Reserve {
            model,
            whole_context,
        };
        self.ask(request).map(drop)
    }

    /// Takes new limits. A pool of another size is made when the model is loaded next.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn limit(&self, limits: MemoryLimits) -> Result<()> {
        self.ask(Request::Limit { limits }).map(drop)
    }

    /// Lets other processes of the user ask for memory, through a file in `folder`, for as long as the value lives.
    ///
    /// # Errors
    /// [`Error::Control`] when no port can be had or the file cannot be written; [`Error::Stopped`].
    pub fn listen(&self, folder: &Path) -> Result<Control> {
        let requests = self.requests.clone().ok_or(Error::Stopped)?;
        let take =
            move |command: Command, answers: Sender<Answer>| pass(&requests, command, answers);
        Control::listen(folder, take)
            .map_err(|error| Error::Control(format!("no control channel: {error}")))
    }

    /// Passes the command of another process to the engine. A command for the window is the shell's to answer.
    pub fn take(&self, command: Command, answers: Sender<Answer>) {
        match &self.requests {
            Some(requests) => pass(requests, command, answers),
            None => drop(answers.send(Answer::from(&Error::Stopped))),
        }
    }

    /// Drops the refs of messages that are gone for good, and the blocks that nothing else refers to.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn forget(&self, messages: Vec<MessageId>) -> Result<()> {
        self.ask(Request::Forget { messages }).map(drop)
    }

    /// Reads and checks every block on disk.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn cache_verify(&self) -> Result<VerifyReport> {
        match self.ask(Request::CacheVerify)? {
            Answer::Verify(report) => Ok(report),
            other => Err(Error::wrong_answer("cache_verify", &other)),
        }
    }

    /// Empties the block store; no word of the history is lost.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn cache_clear(&self) -> Result<()> {
        self.ask(Request::CacheClear).map(drop)
    }

    /// Encrypts them, once a running reply has ended. The history is encrypted when this returns; blocks follow in the
    /// background, while nothing else is asked for.
    ///
    /// # Errors
    /// When they are encrypted already, the secret cannot be used, or the disk fails; then nothing has changed.
    pub fn protect(&self, secret: Secret) -> Result<PrivacyState> {
        self.ask_privacy(Request::Protect { secret })
    }

    /// Keeps them as they are again. The history is plain when this returns; blocks follow in the background.
    ///
    /// # Errors
    /// When they are not encrypted, or the disk fails; then nothing has changed.
    pub fn unprotect(&self) -> Result<PrivacyState> {
        self.ask_privacy(Request::Unprotect)
    }

    /// Has them unlocked by another secret; the passphrase until now is asked for once more, if it is one.
    ///
    /// # Errors
    /// When they are not encrypted, the passphrase is wrong or the new secret cannot be used.
    pub fn change_secret(
        &self,
        current: Option<Passphrase>,
        secret: Secret,
    ) -> Result<PrivacyState> {
        self.ask_privacy(Request::ChangeSecret { current, secret })
    }

    fn ask_privacy(&self, request: Request) -> Result<PrivacyState> {
        match self.ask(request)? {
            Answer::Privacy(state) => Ok(state),
            other => Err(Error::wrong_answer("ask_privacy", &other)),
        }
    }

    /// Stops what runs, saves, and waits until all is on disk. Requests after it fail.
    pub fn shutdown(&self) {
        // When it has already ended there is nothing to wait for.
        let _ = self.ask(Request::Shutdown);
    }

    fn model(&self, request: Request) -> Result<Option<ModelInfo>> {
        match self.ask(request)? {
            Answer::Model { info } => Ok(info),
            other => Err(Error::wrong_answer("model", &other)),
        }
    }

    pub(crate) fn send(&self, request: Request, answers: Sender<Answer>) -> Result<()> {
        let requests = self.requests.as_ref().ok_or(Error::Stopped)?;
        requests
            .send(Envelope { request, answers })
            .map_err(|_| Error::Stopped)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shutdown();
        drop(self.requests.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Asks the engine for what a command wants. A sender that cannot be used is dropped, and its reader told so.
fn pass(requests: &Sender<Envelope>, command: Command, answers: Sender<Answer>) {
    let Some(request) = command.request() else {
        let none = Error::InvalidArgument("this process has no window".into());
        return drop(answers.send(Answer::from(&none)));
    };
    drop(requests.send(Envelope { request, answers }));
}
