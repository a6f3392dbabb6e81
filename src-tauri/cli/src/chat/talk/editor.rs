//! The line editor.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustyline::config::Config;
use rustyline::error::ReadlineError;
use rustyline::history::MemHistory;
use rustyline::{
    Cmd, ConditionalEventHandler, Event, EventContext, EventHandler, KeyCode, KeyEvent, Modifiers,
    RepeatCount,
};

use crate::error::{Error, Result};
use crate::visible::visible;

pub(super) const PROMPT: &str = "> ";

/// A typed backslash that continues a line. The invisible word joiner distinguishes it from a pasted one.
const CONTINUED: &str = "\\\u{2060}\n";

/// Most lines in the history of the editor.
const MOST_REMEMBERED: usize = 500;

/// The line editor and its state.
pub(super) struct Editor {
    lines: rustyline::Editor<(), MemHistory>,
    /// Whether the line was empty when Ctrl-C was pressed.
    was_empty: Arc<AtomicBool>,
}

/// The result of reading a line.
pub(super) enum Typed {
    Text(String),
    /// Ctrl-C: the line is discarded.
    Interrupted {
        was_empty: bool,
    },
    /// Ctrl-D, or the terminal was closed.
    Left,
}

impl Editor {
    /// Creates an editor whose history holds `said`, the oldest line first.
    pub(super) fn new(said: Vec<String>) -> Result<Self> {
        let config = Config::builder()
            .max_history_size(MOST_REMEMBERED)
            .map_err(broken)?
            .build();
        let said_before = MemHistory::with_config(&config);
        let mut lines = rustyline::Editor::with_history(config, said_before).map_err(broken)?;
        let was_empty = Arc::new(AtomicBool::new(false));
        lines.bind_sequence(
            KeyEvent(KeyCode::Enter, Modifiers::ALT),
            EventHandler::Simple(Cmd::Newline),
        );
        lines.bind_sequence(
            KeyEvent(KeyCode::Enter, Modifiers::NONE),
            EventHandler::Conditional(Box::new(Backslash)),
        );
        lines.bind_sequence(
            KeyEvent::ctrl('C'),
            EventHandler::Conditional(Box::new(Emptiness(Arc::clone(&was_empty)))),
        );
        for text in said {
            // The editor prints history lines unescaped, so lines with control characters are left out.
            if visible(&text) == text.as_str() {
                lines.add_history_entry(text).map_err(broken)?;
            }
        }
        Ok(Self { lines, was_empty })
    }

    /// Reads the next input, of one or several lines.
    pub(super) fn read(&mut self) -> Result<Typed> {
        match self.lines.readline(PROMPT) {
            Ok(text) => {
                let text = text.replace(CONTINUED, "\n");
                if !text.trim().is_empty() {
                    self.lines
                        .add_history_entry(text.as_str())
                        .map_err(broken)?;
                }
                Ok(Typed::Text(text))
            }
            Err(ReadlineError::Eof) => Ok(Typed::Left),
            Err(ReadlineError::Interrupted) => Ok(Typed::Interrupted {
                was_empty: self.was_empty.load(Ordering::Relaxed),
            }),
            Err(error) => Err(broken(error)),
        }
    }
}

fn broken(error: ReadlineError) -> Error {
    match error {
        ReadlineError::Io(error) => Error::Output(error),
        error => Error::Internal(format!("the terminal cannot be read: {error}")),
    }
}

/// Enter after a backslash inserts a line break, which replaces the backslash in the text.
struct Backslash;

impl ConditionalEventHandler for Backslash {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, line: &EventContext) -> Option<Cmd> {
        let at_end = line.pos() == line.line().len() && line.line().ends_with('\\');
        at_end.then(|| Cmd::Insert(1, CONTINUED[1..].to_owned()))
    }
}

/// Notes whether the line that Ctrl-C discards was empty.
struct Emptiness(Arc<AtomicBool>);

impl ConditionalEventHandler for Emptiness {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, line: &EventContext) -> Option<Cmd> {
        self.0.store(line.line().is_empty(), Ordering::Relaxed);
        None
    }
}
