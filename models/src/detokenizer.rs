//! Ids to text, whole characters only.

use std::sync::Arc;

use crate::vocabulary::Vocabulary;

/// Turns a stream of ids into text. A character whose bytes are spread over several tokens appears with its last byte;
/// bytes that can never become a character appear as U+FFFD, as in a lossy decode of the whole.
#[derive(Debug, Clone)]
pub struct Detokenizer {
    vocabulary: Arc<Vocabulary>,
    /// The bytes of a character that is not complete yet.
    pending: Vec<u8>,
}

impl Detokenizer {
    pub(crate) fn new(vocabulary: Arc<Vocabulary>) -> Detokenizer {
        Detokenizer {
            vocabulary,
            pending: Vec::new(),
        }
    }

    /// The text that `id` completes, maybe none. Control tokens have no text.
    pub fn push(&mut self, id: u32) -> String {
        self.pending.extend_from_slice(self.vocabulary.shown(id));
        let mut text = String::new();
        loop {
            match std::str::from_utf8(&self.pending) {
                Ok(whole) => {
                    text.push_str(whole);
                    self.pending.clear();
                    return text;
                }
                Err(error) => {
                    let (valid, rest) = self.pending.split_at(error.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(valid));
                    match error.error_len() {
                        Some(bad) => {
                            text.push('\u{fffd}');
                            self.pending = rest[bad..].to_vec();
                        }
                        None => {
                            self.pending = rest.to_vec();
                            return text;
                        }
                    }
                }
            }
        }
    }

    /// What an unfinished character leaves: U+FFFD, or nothing.
    pub fn finish(&mut self) -> String {
        let text = String::from_utf8_lossy(&self.pending).into_owned();
        self.pending.clear();
        text
    }
}
