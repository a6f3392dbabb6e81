//! Progress of a turn before its first token (loading, prefill), on one line of standard error that is erased when the
//! token comes.

use std::io::{IsTerminal, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use engine::TurnEvent;

use crate::output::grouped;

/// Steps shorter than this are not shown.
const PATIENCE: Duration = Duration::from_millis(500);
/// Time between two updates of the line.
const PACE: Duration = Duration::from_millis(100);

/// A progress line on a terminal.
pub(super) struct Progress {
    line: Option<(Arc<Line>, JoinHandle<()>)>,
}

struct Line {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// The text of the line; `None` while the reply streams.
    words: Option<String>,
    since: Instant,
    /// Number of characters on the screen.
    num_shown: usize,
    has_ended: bool,
}

impl Progress {
    /// The line is shown only if standard error is a terminal and the output is not JSON.
    pub(super) fn new(json: bool) -> Self {
        if json || !std::io::stderr().is_terminal() {
            return Self { line: None };
        }
        let line = Arc::new(Line {
            state: Mutex::new(State {
                words: Some("loading the model".to_owned()),
                since: Instant::now(),
                num_shown: 0,
                has_ended: false,
            }),
            changed: Condvar::new(),
        });
        let drawn = Arc::clone(&line);
        let drawing = std::thread::spawn(move || drawn.draw());
        Self {
            line: Some((line, drawing)),
        }
    }

    /// Updates the line for an event. When this returns, the line is erased if reply text follows.
    pub(super) fn see(&self, event: &TurnEvent) {
        let Some((line, _)) = &self.line else { return };
        let mut state = line.lock();
        match event {
            TurnEvent::Started { reply: None, .. } | TurnEvent::Shortening { .. } => {}
            TurnEvent::Started { reply: Some(_), .. } => state.say("reading".to_owned()),
            TurnEvent::Prefill { done, total, .. } => state.say(read(*done, *total)),
            _ => state.hush(),
        }
        line.changed.notify_all();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((line, drawing)) = self.line.take() {
            let mut state = line.lock();
            state.hush();
            state.has_ended = true;
            line.changed.notify_all();
            drop(state);
            // The drawing thread has ended or ends at once.
            let _ = drawing.join();
        }
    }
}

impl Line {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn draw(&self) {
        let mut state = self.lock();
        while !state.has_ended {
            if state.since.elapsed() >= PATIENCE {
                state.draw(&mut std::io::stderr());
            }
            state = self
                .changed
                .wait_timeout(state, PACE)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}

impl State {
    fn say(&mut self, words: String) {
        if self.words.is_none() {
            self.since = Instant::now();
        }
        self.words = Some(words);
    }

    fn hush(&mut self) {
        self.words = None;
        self.draw(&mut std::io::stderr());
    }

    /// Overwrites the previous line with spaces and carriage returns, which every terminal supports.
    fn draw(&mut self, terminal: &mut impl Write) {
        let words = self.words.as_deref().unwrap_or_default();
        let num_before = std::mem::replace(&mut self.num_shown, words.len());
        if words.is_empty() && num_before == 0 {
            return;
        }
        let gap = " ".repeat(num_before.saturating_sub(words.len()));
        let back = "\r".repeat(usize::from(words.is_empty()));
        // A failed write is ignored: the line is only informative.
        let _ = write!(terminal, "\r{words}{gap}{back}").and_then(|()| terminal.flush());
    }
}

/// `reading 1 024 of 3 100 tokens`
fn read(done: u32, total: u32) -> String {
    format!(
        "reading {} of {} tokens",
        grouped(done.into()),
        grouped(total.into())
    )
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::{State, read};

    /// The content of a terminal's line after `written`.
    fn on_screen(written: &[u8]) -> String {
        let mut line: Vec<char> = Vec::new();
        let mut at = 0;
        for c in String::from_utf8_lossy(written).chars() {
            if c == '\r' {
                at = 0;
                continue;
            }
            line.resize(line.len().max(at + 1), ' ');
            line[at] = c;
            at += 1;
        }
        line.into_iter().collect::<String>().trim_end().to_owned()
    }

    #[test]
    fn the_line_is_written_over_and_gone_when_the_words_come() {
        let mut state = State {
            words: Some("loading the model".into()),
            since: Instant::now(),
            num_shown: 0,
            has_ended: false,
        };
        let mut terminal = Vec::new();
        state.draw(&mut terminal);
        assert_eq!(on_screen(&terminal), "loading the model");
        state.say(read(1024, 3100));
        state.draw(&mut terminal);
        assert_eq!(on_screen(&terminal), "reading 1 024 of 3 100 tokens");
        state.say("reading".into());
        state.draw(&mut terminal);
        assert_eq!(on_screen(&terminal), "reading");
        state.words = None;
        state.draw(&mut terminal);
        assert_eq!(on_screen(&terminal), "");
        assert_eq!(
            terminal.last(),
            Some(&b'\r'),
            "the words begin where it stood"
        );
        let written = terminal.len();
        state.draw(&mut terminal);
        assert_eq!(terminal.len(), written, "nothing is written for nothing");
    }
}
