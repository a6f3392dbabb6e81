//! What the pool lets go last: the open conversation, and the system prompts that several conversations begin with.
//!
//! Pins order who makes way, nothing more: least recently used and leaf first stays the rule among equals. A turn may push
//! out what is pinned and idle rather than fail, system prompts before the open conversation; what is brought in ahead of
//! its use may not. What a session holds never goes, so that a chain being loaded stays whole.

use std::collections::{HashMap, HashSet};

use store::BlockId;

/// How firmly a block stays; what is less goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pin {
    /// Not pinned.
    No,
    /// Of a system prompt with which several conversations begin.
    System,
    /// Of the conversation that somebody looks at.
    Open,
}

/// What may be pushed out for a new block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evict {
    /// What is not pinned: for work that nobody has asked for yet.
    Unpinned,
    /// Whatever no session holds, the pinned last: for a turn, and the conversation that is opened.
    Any,
}

/// The pinned blocks. A block that is pinned has all its ancestors pinned at least as firmly, so that going leaf first never
/// asks for a pinned block while another could go.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    open: HashSet<BlockId>,
    /// Blocks of system prompts, and the conversations that were seen to begin with them.
    systems: HashMap<BlockId, HashSet<String>>,
}

impl Pins {
    /// The blocks of the open conversation, instead of those before.
    pub(crate) fn open(&mut self, chain: impl Iterator<Item = BlockId>) {
        self.open = chain.collect();
    }

    /// Notes that a conversation begins with these blocks.
    pub(crate) fn begins_with(&mut self, conversation: &str, chain: impl Iterator<Item = BlockId>) {
        for id in chain {
            let conversations = self.systems.entry(id).or_default();
            if !conversations.contains(conversation) {
                conversations.insert(conversation.to_owned());
            }
        }
    }

    /// How firmly a block stays.
    pub(crate) fn of(&self, id: &BlockId) -> Pin {
        if self.open.contains(id) {
            return Pin::Open;
        }
        match self.systems.get(id) {
            Some(conversations) if conversations.len() > 1 => Pin::System,
            _ => Pin::No,
        }
    }
}

impl Evict {
    /// Whether a block that is pinned so may be pushed out.
    pub(crate) fn allows(self, pin: Pin) -> bool {
        self == Self::Any || pin == Pin::No
    }
}

#[cfg(test)]
mod tests {
    use super::{Evict, Pin, Pins};
    use store::BlockId;

    const A: BlockId = BlockId([1; 32]);
    const B: BlockId = BlockId([2; 32]);

    #[test]
    fn a_system_prompt_is_pinned_when_a_second_conversation_begins_with_it() {
        let mut pins = Pins::default();
        pins.begins_with("one", [A].into_iter());
        pins.begins_with("one", [A].into_iter());
        assert_eq!(pins.of(&A), Pin::No, "the same conversation twice");
        pins.begins_with("two", [A, B].into_iter());
        assert_eq!((pins.of(&A), pins.of(&B)), (Pin::System, Pin::No));
    }

    #[test]
    fn the_open_conversation_is_the_last_to_go_and_one_at_a_time() {
        let mut pins = Pins::default();
        for name in ["one", "two"] {
            pins.begins_with(name, [A].into_iter());
        }
        pins.open([A].into_iter());
        assert!(pins.of(&A) > Pin::System && Pin::System > Pin::No);
        pins.open([B].into_iter());
        assert_eq!((pins.of(&A), pins.of(&B)), (Pin::System, Pin::Open));
        assert!(Evict::Any.allows(Pin::Open) && Evict::Unpinned.allows(Pin::No));
        assert!(!Evict::Unpinned.allows(Pin::System));
    }
}
