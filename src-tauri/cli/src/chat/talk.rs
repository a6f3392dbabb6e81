//! `chat` without a command on a terminal: the interactive chat.
//!
//! The line editor recalls the messages of this and earlier conversations. It reads them from the history, so that
//! there is no second copy, and encryption and deletion apply to them.

mod command;
mod editor;

use engine::{Shorten, Turn, TurnOptions, catalog};
use store::{Conversation, ConversationId, MessageId, NewConversation, Role};

use self::command::Command;
use self::editor::{Editor, Typed};
use super::{options, show, turn};
use crate::app::{App, now_ms};
use crate::arguments::TalkFlags;
use crate::error::{Error, Result};
use crate::output::Output;

/// Most conversations that `/list` shows.
const MOST_LISTED: usize = 20;

/// An interactive chat.
struct Talk<'a> {
    app: &'a App,
    output: &'a Output,
    options: TurnOptions,
    /// Created when the first message is sent.
    conversation: Option<ConversationId>,
    /// System prompt of a conversation that is not created yet.
    system: String,
    model: Option<String>,
    /// The conversations of the last `/list`, for `/open 2`.
    listed: Vec<ConversationId>,
}

/// Whether the chat continues.
enum Next {
    Line,
    Leave,
}

pub(super) fn run(app: &App, flags: TalkFlags, output: &Output) -> Result<()> {
    let mut talk = Talk {
        app,
        output,
        options: options(&flags.turn),
        conversation: None,
        system: flags.system.unwrap_or_default(),
        model: None,
        listed: Vec::new(),
    };
    if let Some(id) = flags.conversation {
        talk.open(id.into())?;
    }
    if let Some(model) = flags.model {
        talk.choose(&model)?;
    }
    // Fails before anything is typed if there is no model; a missing model is replaced by the default one.
    app.model_path(None)?;
    let mut editor = Editor::new(talk.said_before()?)?;
    output.quiet("/help says what can be typed; Ctrl-D leaves")?;
    let left = talk.converse(&mut editor);
    app.engine()?.shutdown();
    left
}

impl Talk<'_> {
    fn converse(&mut self, editor: &mut Editor) -> Result<()> {
        let mut num_interrupts = 0;
        loop {
            match editor.read()? {
                Typed::Left => return Ok(()),
                Typed::Interrupted { was_empty: false } => num_interrupts = 0,
                Typed::Interrupted { was_empty: true } => {
                    num_interrupts += 1;
                    if num_interrupts > 1 {
                        return Ok(());
                    }
                    self.output.quiet("once more, or Ctrl-D, to leave")?;
                }
                Typed::Text(text) => {
                    num_interrupts = 0;
                    match self.take(&text) {
                        Ok(Next::Line) => {}
                        Ok(Next::Leave) => return Ok(()),
                        // Standard output is closed.
                        Err(Error::Output(error)) => return Err(Error::Output(error)),
                        Err(Error::Interrupted) => num_interrupts = 1,
                        Err(error) => self.output.error(&error),
                    }
                }
            }
        }
    }

    fn take(&mut self, text: &str) -> Result<Next> {
        match Command::read(text)? {
            Command::Say(text) if text.trim().is_empty() => {}
            Command::Say(text) => self.say(text)?,
            Command::Help => self.output.text(command::HELP)?,
            Command::New => {
                self.conversation = None;
                self.output.quiet("a new conversation")?;
            }
            Command::List => self.list()?,
            Command::Open(which) => self.open(self.listed_as(which))?,
            Command::Model(None) => self.models()?,
            Command::Model(Some(name)) => {
                self.choose(name)?;
                self.output.quiet(&format!("{name} answers"))?;
            }
            Command::System(text) => self.set_system(text)?,
            Command::Title(title) => {
                let id = self.current()?;
                super::rename(self.app, &id, title, self.output)?;
            }
            Command::Regenerate => {
                let (conversation, message) = self.leaf()?;
                let options = self.options.clone();
                self.turn(Turn::Regenerate {
                    conversation,
                    message,
                    options,
                })?;
            }
            Command::Continue => {
                let (conversation, message) = self.leaf()?;
                let options = self.options.clone();
                self.turn(Turn::Continue {
                    conversation,
                    message,
                    options,
                })?;
            }
            Command::Compact => self.shorten(Shorten::Compact)?,
            Command::DropOldest => self.shorten(Shorten::DropOldest)?,
            Command::Quit => return Ok(Next::Leave),
        }
        Ok(Next::Line)
    }

    fn say(&mut self, text: &str) -> Result<()> {
        let conversation = match &self.conversation {
            Some(id) => id.clone(),
            None => self.begin()?,
        };
        self.turn(Turn::Send {
            conversation,
            parent: None,
            text: text.to_owned(),
            options: self.options.clone(),
        })
    }

    fn begin(&mut self) -> Result<ConversationId> {
        let new = NewConversation {
            system_prompt: self.system.clone(),
            model: self.model.clone(),
            ..NewConversation::default()
        };
        let id = self.app.history().create_conversation(new, now_ms())?.id;
        self.conversation = Some(id.clone());
        Ok(id)
    }

    fn shorten(&self, how: Shorten) -> Result<()> {
        self.turn(Turn::Shorten {
            conversation: self.current()?,
            how,
            options: self.options.clone(),
        })
    }

    fn turn(&self, turn: Turn) -> Result<()> {
        match turn::one_of_many(self.app, turn, self.output)? {
            true => Err(Error::Interrupted),
            false => Ok(()),
        }
    }

    /// Opens a conversation and prints its last messages.
    fn open(&mut self, id: ConversationId) -> Result<()> {
        let conversation = self.app.history().conversation(&id)?;
        let title = show::title(&conversation);
        self.output.quiet(title)?;
        if let Some(leaf) = &conversation.active_leaf {
            let branch = self.app.history().branch(leaf)?;
            // The last user message and its reply.
            let last = branch.iter().rposition(|it| it.role == Role::User);
            for message in &branch[last.unwrap_or(0)..] {
                let mark = match message.role {
                    Role::User => editor::PROMPT,
                    _ => "",
                };
                self.output
                    .text(&format!("{mark}{}\n", message.text.trim_end()))?;
            }
        }
        self.conversation = Some(id);
        Ok(())
    }

    fn list(&mut self) -> Result<()> {
        let conversations: Vec<Conversation> = self.app.history().conversations()?;
        self.listed.clear();
        for conversation in conversations.into_iter().take(MOST_LISTED) {
            let number = self.listed.len() + 1;
            self.output
                .text(&format!("{number:>3}  {}\n", show::title(&conversation)))?;
            self.listed.push(conversation.id);
        }
        self.output.quiet("/open NUMBER goes on in one")
    }

    /// Resolves a number of the last list, or an id.
    fn listed_as(&self, which: &str) -> ConversationId {
        let number = which.parse::<usize>().ok();
        let listed = number.and_then(|number| self.listed.get(number.checked_sub(1)?));
        listed.cloned().unwrap_or_else(|| which.to_owned().into())
    }

    fn models(&self) -> Result<()> {
        let chosen = self.model_name()?;
        let models = catalog::list(&self.app.history(), &self.app.models_folder(), None)?;
        for model in models {
            let mark = match chosen.as_ref() == Some(&model.name) {
                true => "*",
                false => " ",
            };
            self.output.text(&format!("{mark} {}\n", model.name))?;
        }
        self.output.quiet("/model NAME chooses one")
    }

    /// The name of this conversation's model, if one was chosen.
    fn model_name(&self) -> Result<Option<String>> {
        match &self.conversation {
            Some(id) => Ok(self.app.history().conversation(id)?.model),
            None => Ok(self.model.clone()),
        }
    }

    /// Sets the model of this conversation and of new conversations in this chat.
    fn choose(&mut self, name: &str) -> Result<()> {
        self.app.require_model(name)?;
        if let Some(id) = &self.conversation {
            self.app.history().set_model(id, Some(name))?;
        }
        self.model = Some(name.to_owned());
        Ok(())
    }

    fn set_system(&mut self, text: &str) -> Result<()> {
        if let Some(id) = &self.conversation {
            self.app.history().set_system_prompt(id, text)?;
        }
        self.system = text.to_owned();
        self.output.quiet(match text.is_empty() {
            true => "no system prompt",
            false => "the system prompt is set",
        })
    }

    fn current(&self) -> Result<ConversationId> {
        let nothing = || Error::InvalidArgument("nothing has been said yet; say something".into());
        self.conversation.clone().ok_or_else(nothing)
    }

    fn leaf(&self) -> Result<(ConversationId, MessageId)> {
        let id = self.current()?;
        let leaf = super::leaf(self.app, &id)?;
        Ok((id, leaf))
    }

    /// The user messages of the latest conversations, the oldest first.
    fn said_before(&self) -> Result<Vec<String>> {
        let history = self.app.history();
        let mut conversations = history.conversations()?;
        conversations.truncate(MOST_LISTED);
        // This conversation sorts first, so that its messages are the most recent lines of the editor.
        conversations.sort_by_key(|it| Some(&it.id) != self.conversation.as_ref());
        let mut said = Vec::new();
        for conversation in conversations.iter().rev() {
            let messages = history.messages(&conversation.id)?;
            let typed = messages.into_iter().filter(|it| it.role == Role::User);
            said.extend(typed.map(|it| it.text));
        }
        Ok(said)
    }
}
