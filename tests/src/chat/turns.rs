//! What a person has the engine do: whole turns, and what they end with.

use engine::{Shorten, Turn, TurnEvent, TurnOptions};
use store::{ConversationId, MessageId};

use super::{Chat, Outcome};

impl Chat {
    /// Sends a message after the active leaf.
    pub fn say(&mut self, text: &str) -> Outcome {
        let conversation = self.conversation.clone();
        self.say_in(&conversation, text)
    }

    /// Sends a message in another conversation.
    pub fn say_in(&mut self, conversation: &ConversationId, text: &str) -> Outcome {
        self.turn(Turn::Send {
            conversation: conversation.clone(),
            parent: None,
            text: text.to_owned(),
            options: self.options(),
        })
    }

    /// Sends a message after `parent`.
    pub fn say_after(&mut self, parent: &MessageId, text: &str) -> Outcome {
        self.turn(Turn::Send {
            conversation: self.conversation.clone(),
            parent: Some(parent.clone()),
            text: text.to_owned(),
            options: self.options(),
        })
    }

    /// Edits a message.
    pub fn edit(&mut self, message: &MessageId, text: &str) -> Outcome {
        self.turn(Turn::Edit {
            conversation: self.conversation.clone(),
            message: message.clone(),
            text: text.to_owned(),
            options: self.options(),
        })
    }

    /// Has a reply written again.
    pub fn regenerate(&mut self, message: &MessageId) -> Outcome {
        self.turn(Turn::Regenerate {
            conversation: self.conversation.clone(),
            message: message.clone(),
            options: self.options(),
        })
    }

    /// Has a reply go on.
    pub fn go_on(&mut self, message: &MessageId) -> Outcome {
        let events = self.try_to_go_on(message);
        self.outcome(&events)
    }

    /// Continues a reply and returns all events.
    pub fn try_to_go_on(&mut self, message: &MessageId) -> Vec<TurnEvent> {
        let turn = Turn::Continue {
            conversation: self.conversation.clone(),
            message: message.clone(),
            options: self.options(),
        };
        self.engine().submit(turn).collect()
    }

    /// Goes on in a shorter branch; everything that happened.
    pub fn shorten(&mut self, how: Shorten) -> Vec<TurnEvent> {
        let turn = Turn::Shorten {
            conversation: self.conversation.clone(),
            how,
            options: self.options(),
        };
        self.engine().submit(turn).collect()
    }

    /// Sends a message after the active leaf; everything that happened.
    pub fn try_to_say(&mut self, text: &str) -> Vec<TurnEvent> {
        let turn = Turn::Send {
            conversation: self.conversation.clone(),
            parent: None,
            text: text.to_owned(),
            options: self.options(),
        };
        self.engine().submit(turn).collect()
    }

    /// Runs a turn to its end; it must finish.
    pub fn turn(&mut self, turn: Turn) -> Outcome {
        let events: Vec<TurnEvent> = self.engine().submit(turn).collect();
        self.outcome(&events)
    }

    /// What the last of `events` says; it must be `Finished`, and agree with what is stored.
    pub fn outcome(&self, events: &[TurnEvent]) -> Outcome {
        let Some(TurnEvent::Finished {
            message,
            text,
            state,
            prefill,
            prompt_tokens,
            ..
        }) = events.last()
        else {
            panic!("the turn did not finish: {events:?}");
        };
        let stored = self.history().message(message).expect("reply");
        assert_eq!(&stored.text, text, "what was reported is what is stored");
        let ids = self.tokens(message);
        Outcome {
            message: message.clone(),
            text: text.clone(),
            ids,
            state: *state,
            prefill: *prefill,
            prompt_tokens: *prompt_tokens,
        }
    }

    fn options(&self) -> TurnOptions {
        TurnOptions {
            greedy: true,
            seed: None,
            max_tokens: Some(self.max_tokens),
            ..TurnOptions::default()
        }
    }
}
