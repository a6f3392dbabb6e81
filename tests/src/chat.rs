//! One conversation in a real engine over a real data folder.

mod privacy;
mod turns;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use engine::{
    Answer, ContextUse, DeviceChoice, EditCost, Engine, EngineConfig, EngineProcess, MemoryLimits,
    Request,
};
use store::{
    BlockStore, Budget, ConversationId, DataFolder, History, Message, MessageId, MessageState,
    NewConversation, Passphrase, Prefill, Role, Sampling,
};
use tempfile::TempDir;

use crate::{Subject, engine_program};

/// What a turn ended with.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The reply.
    pub message: MessageId,
    /// Its text.
    pub text: String,
    /// Its token ids.
    pub ids: Vec<u32>,
    /// Why it ended.
    pub state: MessageState,
    /// Counts.
    pub prefill: Prefill,
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
}

/// A person with one conversation open. Replies are greedy and at most `max_tokens` long.
pub struct Chat {
    home: Home,
    subject: Subject,
    pool_bytes: u64,
    /// What is to compute.
    device: DeviceChoice,
    /// The engine runs in a process of its own, of this program.
    apart: Option<PathBuf>,
    passphrase: Option<Passphrase>,
    open: Option<Open>,
    /// The conversation that is open.
    pub conversation: ConversationId,
    /// Most tokens of a reply.
    pub max_tokens: u32,
}

struct Open {
    engine: Engine,
    history: Arc<Mutex<History>>,
    _folder: DataFolder,
}

/// A data folder: the test's own, or one that a killed process left.
enum Home {
    Own(TempDir),
    Borrowed(PathBuf),
}

impl Home {
    fn path(&self) -> &Path {
        match self {
            Self::Own(folder) => folder.path(),
            Self::Borrowed(path) => path,
        }
    }
}

impl Chat {
    /// A new conversation in a new data folder.
    pub fn new(subject: Subject) -> Self {
        Self::with_system(subject, "")
    }

    /// A new conversation with a system prompt in a new data folder.
    pub fn with_system(subject: Subject, system: &str) -> Self {
        let home = tempfile::tempdir().expect("data folder");
        subject.install(&home.path().join("models"));
        let mut chat = Self {
            home: Home::Own(home),
            subject,
            pool_bytes: 256 << 20,
            device: DeviceChoice::Auto,
            apart: None,
            passphrase: None,
            open: None,
            conversation: ConversationId::from(String::new()),
            max_tokens: 8,
        };
        chat.start();
        chat.conversation = chat.new_conversation(system);
        chat
    }

    /// Opens a conversation that is already in a data folder.
    pub fn resume(subject: Subject, home: &Path, conversation: &str) -> Self {
        let mut chat = Self {
            home: Home::Borrowed(home.to_owned()),
            subject,
            pool_bytes: 256 << 20,
            device: DeviceChoice::Auto,
            apart: None,
            passphrase: None,
            open: None,
            conversation: ConversationId::from(conversation.to_owned()),
            max_tokens: 8,
        };
        chat.start();
        chat
    }

    /// The same history in a new data folder that has no KV cache: what a cold run computes.
    pub fn without_cache(&mut self) -> Self {
        self.stop();
        let home = tempfile::tempdir().expect("data folder");
        self.subject.install(&home.path().join("models"));
        for file in std::fs::read_dir(self.home.path())
            .expect("data folder")
            .flatten()
        {
            let name = file.file_name();
            if name == "key.json" || name.to_string_lossy().starts_with("history") {
                std::fs::copy(file.path(), home.path().join(file.file_name()))
                    .expect("copy of history");
            }
        }
        let mut twin = Self {
            home: Home::Own(home),
            subject: self.subject,
            pool_bytes: self.pool_bytes,
            device: self.device,
            apart: self.apart.clone(),
            passphrase: self.passphrase.clone(),
            open: None,
            conversation: self.conversation.clone(),
            max_tokens: self.max_tokens,
        };
        self.start();
        twin.start();
        twin
    }

    /// Another conversation beside this one.
    pub fn new_conversation(&self, system: &str) -> ConversationId {
        let new = NewConversation {
            title: String::new(),
            system_prompt: system.to_owned(),
            model: None,
            sampling: Sampling::default(),
        };
        self.history()
            .create_conversation(new, 1_700_000_000_000)
            .expect("conversation")
            .id
    }

    /// Ends the engine and starts a new one over the same folder, with empty pools.
    pub fn restart(&mut self) {
        self.stop();
        self.start();
    }

    /// Ends the engine.
    pub fn stop(&mut self) {
        if let Some(open) = self.open.take() {
            open.engine.shutdown();
        }
    }

    /// Starts an engine over the folder.
    pub fn start(&mut self) {
        let folder = unlocked(self.home.path());
        let history = History::unlock(&folder.history_path(), self.passphrase.as_ref());
        let mut history = history.expect("history");
        let limits = MemoryLimits {
            device: self.device,
            ..MemoryLimits::pool(self.pool_bytes)
        };
        if let Some(program) = &self.apart {
            // A process of its own reads them there.
            limits.write(&mut history).expect("limits");
            let process = EngineProcess {
                program: program.clone(),
                data_folder: folder.path().to_owned(),
                threads: EngineConfig::default_threads(),
                passphrase: self.passphrase.clone(),
            };
            self.open = Some(Open {
                engine: Engine::spawn(process).expect("engine"),
                history: Arc::new(Mutex::new(history)),
                _folder: folder,
            });
            return;
        }
        let (budget, seal) = (Budget::Bytes(4 << 30), history.seal());
        let store = BlockStore::open_under(&folder.kv_path(), budget, seal);
        let history = Arc::new(Mutex::new(history));
        let config = EngineConfig {
            models_folder: folder.models_path(),
            digests: Some(folder.path().join("digests.json")),
            limits,
            threads: EngineConfig::default_threads(),
            clock: || 1_700_000_000_000,
        };
        let engine = Engine::start(config, Arc::clone(&history), store).expect("engine");
        self.open = Some(Open {
            engine,
            history,
            _folder: folder,
        });
    }

    /// Restarts with the engine in a process of its own.
    pub fn restart_apart(&mut self) {
        self.restart_as(engine_program());
    }

    /// Restarts with the engine in a process of its own, of a program that becomes the engine's.
    pub fn restart_as(&mut self, program: PathBuf) {
        self.stop();
        self.apart = Some(program);
        self.start();
    }

    /// Restarts on another device: `auto`, `cpu`, `cuda:0`.
    pub fn restart_on(&mut self, device: &str) {
        self.device = device.parse().expect("a device");
        self.restart();
    }

    /// Restarts with pools of `pool_bytes`.
    pub fn restart_with_pool(&mut self, pool_bytes: u64) {
        self.pool_bytes = pool_bytes;
        self.restart();
    }

    /// The data folder.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// The folder of the block store.
    pub fn kv(&self) -> PathBuf {
        self.home.path().join("kv")
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.open.as_ref().expect("engine runs").engine
    }

    /// The history.
    pub fn shared_history(&self) -> &Mutex<History> {
        &self.open.as_ref().expect("engine runs").history
    }

    /// Locks the shared history.
    pub fn history(&self) -> MutexGuard<'_, History> {
        self.shared_history().lock().expect("history")
    }

    /// The messages of the branch that is shown, first to last.
    pub fn shown(&self) -> Vec<Message> {
        let history = self.history();
        let conversation = history.conversation(&self.conversation);
        let leaf = conversation.expect("conversation").active_leaf;
        history.branch(&leaf.expect("leaf")).expect("branch")
    }

    /// Shows the branch that ends in `leaf`.
    pub fn show(&self, leaf: &MessageId) {
        self.history()
            .set_active_leaf(&self.conversation, Some(leaf))
            .expect("leaf");
    }

    /// What an edit would cost.
    pub fn preview(&self, message: Option<&MessageId>, text: &str) -> EditCost {
        self.engine()
            .preview(self.conversation.clone(), message.cloned(), text.to_owned())
            .expect("preview")
    }

    /// Has what is being typed read ahead, and waits for it: the tokens that are ready.
    pub fn draft(&self, message: Option<&MessageId>, text: &str) -> u32 {
        let answer = self.engine().ask(Request::Draft {
            conversation: self.conversation.clone(),
            message: message.cloned(),
            text: text.to_owned(),
        });
        match answer.expect("draft") {
            Answer::Drafted { tokens } => tokens,
            other => panic!("{other:?}"),
        }
    }

    /// How full the context is.
    pub fn context(&self) -> ContextUse {
        self.engine()
            .context(self.conversation.clone())
            .expect("context")
    }

    /// Stored token ids of a message.
    pub fn tokens(&self, message: &MessageId) -> Vec<u32> {
        self.history()
            .tokens(message, &self.subject.tokenizer())
            .expect("history")
            .unwrap_or_default()
    }

    /// Decodes token ids to text.
    pub fn decoded(&self, ids: &[u32]) -> String {
        self.subject.decode(ids)
    }

    /// All messages of the conversation, by creation.
    pub fn messages(&self) -> Vec<Message> {
        self.history()
            .messages(&self.conversation)
            .expect("messages")
    }

    /// The user messages of the active branch, first to last.
    pub fn user_messages(&self) -> Vec<MessageId> {
        let leaf = self
            .history()
            .conversation(&self.conversation)
            .expect("conversation")
            .active_leaf
            .expect("leaf");
        let branch = self.history().branch(&leaf).expect("branch");
        branch
            .into_iter()
            .filter(|message| message.role == Role::User)
            .map(|message| message.id)
            .collect()
    }

    /// Tokens of the branch that ends in `leaf`.
    pub fn branch_tokens(&self, leaf: &MessageId) -> Vec<u32> {
        let branch = self.history().branch(leaf).expect("branch");
        branch
            .iter()
            .flat_map(|message| self.tokens(&message.id))
            .collect()
    }
}

impl Drop for Chat {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The data folder. A process that another test is just starting has this one's files, the lock among them, for the moment until it is
/// its own program.
fn unlocked(home: &Path) -> DataFolder {
    for _ in 0..500 {
        match DataFolder::open(Some(home.to_owned())) {
            Err(store::Error::AlreadyRunning { .. }) => {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            folder => return folder.expect("data folder"),
        }
    }
    panic!("{} stays locked", home.display());
}
