//! Finds places to cut a text so that the token ids of the pieces, concatenated, are those of the whole text.
//!
//! Merges never cross a cut of the pre-tokenizer. Every pre-tokenizer here cuts between a letter or digit and a
//! character that is neither (except a combining mark, which may still change the letter before it), and between a
//! punctuation sign and a space: no pattern matches across these places, and none looks back. So the text after such a
//! place cannot change the ids before it.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use regex::Regex;

/// Least bytes of a piece. Its end depends on the text around it only, so that an insertion moves only the cuts near
/// it.
const LEAST_BYTES: usize = 1 << 10;
const MOST_BYTES: usize = 4 << 10;
/// Most token ids that are cached.
const MOST_IDS: usize = 1 << 20;

/// Matches two characters between which every pre-tokenizer cuts.
static CUT: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"[\p{L}\p{N}][^\p{L}\p{N}\p{M}]|[^\s\p{L}\p{N}] ").ok());

/// The first place at `from` or later where every pre-tokenizer cuts; `from` is a character boundary.
fn next_cut(text: &str, from: usize) -> Option<usize> {
    let found = CUT.as_ref()?.find_at(text, from)?;
    let first = text[found.start()..].chars().next()?;
    Some(found.start() + first.len_utf8())
}

/// The last place where every pre-tokenizer cuts.
pub(crate) fn last_cut(text: &str) -> Option<usize> {
    // Searches windows from the end of the text; the first one nearly always holds a cut.
    let mut from = text.len();
    while from > 0 {
        from = floor_boundary(text, from.saturating_sub(256));
        let mut last = None;
        let mut at = from;
        while let Some(cut) = next_cut(text, at) {
            last = Some(cut);
            at = cut;
        }
        if last.is_some() {
            return last;
        }
    }
    None
}

/// The end of the piece that begins at `start`.
pub(crate) fn piece_end(text: &str, start: usize) -> usize {
    let rest = text.len() - start;
    if rest <= LEAST_BYTES {
        return text.len();
    }
    let mut at = ceil_boundary(text, start + LEAST_BYTES);
    while let Some(cut) = next_cut(text, at) {
        let around = &text.as_bytes()[cut.saturating_sub(8)..cut];
        let chosen = around.iter().fold(0u32, |sum, byte| {
            (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
        });
        if chosen % 16 == 0 || cut - start >= MOST_BYTES {
            return cut;
        }
        at = cut;
    }
    text.len()
}

pub(crate) fn floor_boundary(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

fn ceil_boundary(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at += 1;
    }
    at
}

/// Cache of the token ids of pieces, by the digest of their text, so that only the changed pieces of a growing draft
/// are tokenized.
#[derive(Default)]
pub(crate) struct Pieces {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    ids: HashMap<[u8; 32], Arc<[u32]>>,
    num_ids: usize,
}

impl Pieces {
    /// The token ids of a piece; `encode` computes them on a cache miss.
    pub(crate) fn ids(&self, piece: &str, encode: impl FnOnce() -> Vec<u32>) -> Arc<[u32]> {
        let key = *blake3::hash(piece.as_bytes()).as_bytes();
        let lock = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ids) = lock().ids.get(&key) {
            return Arc::clone(ids);
        }
        let ids: Arc<[u32]> = encode().into();
        let mut known = lock();
        if known.num_ids + ids.len() > MOST_IDS {
            *known = Known::default();
        }
        known.num_ids += ids.len();
        known.ids.insert(key, Arc::clone(&ids));
        ids
    }
}

#[cfg(test)]
mod tests {
    use super::{last_cut, next_cut, piece_end};

    #[test]
    fn a_text_is_cut_behind_words_and_numbers_and_before_spaces_only() {
        let cuts = |text: &str| {
            let mut at = 0;
            let mut cuts = Vec::new();
            while let Some(cut) = next_cut(text, at) {
                cuts.push(cut);
                at = cut;
            }
            cuts
        };
        assert_eq!(cuts("one two"), [3]);
        assert_eq!(cuts("x1y"), [] as [usize; 0]);
        assert_eq!(cuts("a... b"), [1, 4]);
        assert_eq!(cuts("a.\n\n b"), [1]);
        assert_eq!(cuts("国，我"), [3]);
        assert_eq!(cuts("e\u{301} a"), [3], "a mark belongs to its letter");
        assert_eq!(cuts("12,5"), [2]);
    }

    #[test]
    fn the_last_cut_is_found_however_far_it_is_from_the_end() {
        assert_eq!(last_cut("one two"), Some(3));
        assert_eq!(last_cut(&format!("one {}", "语".repeat(999))), Some(3));
        assert_eq!(last_cut("语语"), None);
        assert_eq!(last_cut(""), None);
    }

    #[test]
    fn an_insertion_moves_the_cuts_near_it_only() {
        let text: String = (0..20_000)
            .map(|n| format!("w{} ", n * 7919 % 9973))
            .collect();
        let pieces = |text: &str| {
            let mut at = 0;
            let mut pieces = Vec::new();
            while at < text.len() {
                let end = piece_end(text, at);
                pieces.push(text[at..end].to_owned());
                at = end;
            }
            pieces
        };
        let before = pieces(&text);
        let mut longer = text.clone();
        longer.insert_str(text.len() / 2, " some words more");
        let after = pieces(&longer);
        let new = after.iter().filter(|piece| !before.contains(piece)).count();
        assert!(before.len() > 30 && new <= 6, "{new} of {}", after.len());
    }
}
