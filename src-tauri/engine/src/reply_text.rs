//! The text of a reply, token by token: whole characters only, and no text that could still become a stop string.
//!
//! A cut reply continues as if it had not been cut: the text is derived from its ids, not from the text that was shown.
//! Half a character at a cut is not shown, and a stop string that spans the cut ends the reply.

use models::{Detokenizer, StopStrings};

/// The text so far, and the pending bytes and held text of the ids so far.
pub(crate) struct ReplyText {
    shown: String,
    detokenizer: Detokenizer,
    stops: StopStrings,
    has_stopped: bool,
}

impl ReplyText {
    /// An empty text.
    pub(crate) fn new(detokenizer: Detokenizer, stops: StopStrings) -> Self {
        Self {
            shown: String::new(),
            detokenizer,
            stops,
            has_stopped: false,
        }
    }

    /// Restores the state of a reply that was cut after `ids` and whose shown text was `stored`, after an `opening`
    /// that has no ids. The text may differ from `stored` at the cuts: earlier versions showed U+FFFD for the halves of
    /// a character, and the end may be the beginning of a stop string.
    pub(crate) fn resumed(
        stored: &str,
        opening: &str,
        ids: &[u32],
        detokenizer: Detokenizer,
        stops: StopStrings,
    ) -> Self {
        let mut this = Self::new(detokenizer, stops);
        let said: String = ids.iter().map(|&id| this.detokenizer.push(id)).collect();
        // If the ids decode to another text (they were tokenized from the words, which a template may have changed),
        // they determine how the reply continues, and `stored` stays as its text.
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

    /// Begins with text with which the prompt opened the reply.
    pub(crate) fn open(&mut self, opening: &str) {
        self.shown.push_str(opening);
    }

    /// All text that is shown.
    pub(crate) fn as_str(&self) -> &str {
        &self.shown
    }

    /// Whether a stop string was found.
    pub(crate) fn has_stopped(&self) -> bool {
        self.has_stopped
    }

    /// Takes the next id and returns the text to show for it, which may be empty.
    pub(crate) fn push(&mut self, id: u32) -> String {
        let text = self.detokenizer.push(id);
        self.say(&text)
    }

    /// Ends the reply, which may be continued later if it `was_cut`, and returns the held text that is to be shown.
    pub(crate) fn end(&mut self, was_cut: bool) -> String {
        let mut rest = match was_cut {
            // The rest of a character may follow when the reply continues.
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

/// Number of bytes of `said` that `stored` covers; each run of U+FFFD in `stored` matches any text. `None` if `stored`
/// is another text.
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
    // `stored` ends with a cut character, so all of `said` has been shown.
    Some(if end.is_empty() { said.len() } else { at })
}

#[cfg(test)]
mod tests;
