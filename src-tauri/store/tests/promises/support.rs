//! What the tests share.

use std::path::PathBuf;

use store::{
    Conversation, History, Message, MessageId, MessageState, NewConversation, NewMessage, Role,
};

/// The digest of a tokenizer that does not exist.
pub const TOKENIZER: [u8; 32] = [7; 32];

/// A history in a folder that goes with it.
pub struct Scene {
    pub folder: tempfile::TempDir,
    pub history: Option<History>,
    now_ms: i64,
}

impl Scene {
    pub fn new() -> Scene {
        let folder = tempfile::tempdir().unwrap();
        let mut scene = Scene {
            folder,
            history: None,
            now_ms: 1_700_000_000_000,
        };
        scene.reopen();
        scene
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("history.db")
    }

    pub fn reopen(&mut self) {
        self.history = None;
        self.history = Some(History::open(&self.path()).unwrap());
    }

    pub fn reopen_with(&mut self, passphrase: &str) {
        self.history = None;
        let passphrase = passphrase.to_owned().into();
        self.history = Some(History::unlock(&self.path(), Some(&passphrase)).unwrap());
    }

    pub fn history(&mut self) -> &mut History {
        self.history.as_mut().unwrap()
    }

    /// The history, opened for reading, with no message indexed.
    pub fn without_index(scene: &mut Scene) -> History {
        scene.history = None;
        let raw = rusqlite::Connection::open(scene.path()).unwrap();
        raw.execute_batch(
            "DELETE FROM message_terms; INSERT INTO message_unindexed SELECT seq FROM message",
        )
        .unwrap();
        drop(raw);
        History::read(&scene.path(), None).unwrap()
    }

    pub fn now(&mut self) -> i64 {
        self.now_ms += 1000;
        self.now_ms
    }

    pub fn conversation(&mut self, title: &str) -> Conversation {
        let now = self.now();
        self.history()
            .create_conversation(
                NewConversation {
                    title: title.into(),
                    ..Default::default()
                },
                now,
            )
            .unwrap()
    }

    pub fn say(
        &mut self,
        conversation: &Conversation,
        parent: Option<&MessageId>,
        role: Role,
        text: &str,
    ) -> Message {
        let now = self.now();
        self.history()
            .append_message(message(conversation, parent, role, text), now)
            .unwrap()
    }

    pub fn user(
        &mut self,
        conversation: &Conversation,
        parent: Option<&MessageId>,
        text: &str,
    ) -> Message {
        self.say(conversation, parent, Role::User, text)
    }
}

pub fn message(
    conversation: &Conversation,
    parent: Option<&MessageId>,
    role: Role,
    text: &str,
) -> NewMessage {
    NewMessage {
        conversation: conversation.id.clone(),
        parent: parent.cloned(),
        role,
        text: text.into(),
        state: MessageState::Complete,
        model: None,
        edited_from: None,
    }
}

/// The permission bits of a path.
#[cfg(unix)]
pub fn mode(path: &std::path::Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}
