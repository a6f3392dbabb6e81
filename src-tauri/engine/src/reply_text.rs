//! The text of a reply, token by token: whole characters only, and nothing that could still become a stop string.
//!
//! A reply that was cut goes on as if it had not been: what its ids say decides, not what was shown of them. Half a character
//! at a cut is not shown, and the second half of a stop string ends the reply as the whole one would have.

use models::{Detokenizer, StopStrings};

/// Text so far, and what the ids so far have begun.
pub(crate) struct ReplyText {
    shown: String,
    detokenizer: Detokenizer,
    stops: StopStrings,
    has_stopped: bool,
}

impl ReplyText {
    /// Nothing yet.
    pub(crate) fn new(detokenizer: Detokenizer, stops: StopStrings) -> Self {
        Self {
            shown: String::new(),
            detokenizer,
            stops,
            has_stopped: false,
        }
    }

    /// Where a reply stands that was cut after `ids`, and of which `stored` was shown, after an `opening` that no id says. Its
    /// text may differ from that at the cuts: earlier versions showed U+FFFD for the halves of a character, and the end may be
    /// the beginning of a stop string.
    pub(crate) fn resumed(
        stored: &str,
        opening: &str,
        ids: &[u32],
        detokenizer: Detokenizer,
        stops: StopStrings,
    ) -> Self {
        let mut this = Self::new(detokenizer, stops);
        let said: String = ids.iter().map(|&id| this.detokenizer.push(id)).collect();
        // Ids of another text (it was tokenised from the words, which a template may have changed) say how to go on, not
        // what was said.
        let (opening, stored) = match stored.strip_prefix(opening) {
            Some(after) if !said.starts_with(opening) => (opening, after),
            _ => ("", stored),
        };
        let (base, rest) = match covered(stored, &said) {
            Some(end) => said.split_at(end),
            None => (stored, ""),
        };
        let num_held = this.stops.resume(base);
        this.open(opening);
        this.shown.push_str(&base[..base.len() - num_held]);
        let (rest, has_stopped) = this.stops.push(rest);
        this.shown.push_str(&rest);
        this.has_stopped = has_stopped;
        this
    }

    /// Begins with words that the prompt had begun the reply with.
    pub(crate) fn open(&mut self, opening: &str) {
        self.shown.push_str(opening);
    }

    /// All that is shown.
    pub(crate) fn as_str(&self) -> &str {
        &self.shown
    }

    /// Whether a stop string was met.
    pub(crate) fn has_stopped(&self) -> bool {
        self.has_stopped
    }

    /// Takes the next id: the text that is to be shown for it, maybe none.
    pub(crate) fn push(&mut self, id: u32) -> String {
        let text = self.detokenizer.push(id);
        self.say(&text)
    }

    /// The reply ends, for good or, where it `was_cut`, for now: what was held back and is to be shown after all.
    pub(crate) fn end(&mut self, was_cut: bool) -> String {
        let mut rest = match was_cut {
            // The other half may come.
            true => String::new(),
            false => {
                let half = self.detokenizer.finish();
                self.say(&half)
            }
        };
        if !self.has_stopped {
            let held = self.stops.finish();
            self.shown.push_str(&held);
            rest.push_str(&held);
        }
        rest
    }

    fn say(&mut self, text: &str) -> String {
        let (text, has_stopped) = self.stops.push(text);
        self.has_stopped |= has_stopped;
        self.shown.push_str(&text);
        text
    }
}

/// How much of `said` was shown as `stored`, where each run of U+FFFD may stand for whatever was cut there. `None` when
/// `stored` is another text.
fn covered(stored: &str, said: &str) -> Option<usize> {
    if said.starts_with(stored) {
        return Some(stored.len());
    }
    let mut pieces = stored.split('\u{fffd}');
    let mut end = pieces.next()?;
    if !said.starts_with(end) {
        return None;
    }
    let mut at = end.len();
    for piece in pieces {
        at += said[at..].find(piece)? + piece.len();
        end = piece;
    }
    // A character was cut at the end: all that the ids say has been shown.
    Some(if end.is_empty() { said.len() } else { at })
}

#[cfg(test)]
mod tests;
