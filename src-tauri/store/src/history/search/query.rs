//! A search query, and its matches in a text.

use std::ops::Range;

use super::terms::{self, Part, part};
use crate::fold::{Folded, fold};

/// Most words that are looked up in the index; a hit must contain the other words as well.
const MOST_TERMS: usize = 32;
/// Most matches that are recorded in a text.
const MOST_PLACES: usize = 200;

/// The words of a query, folded.
pub(super) struct Query {
    words: Vec<String>,
}

impl Query {
    pub(super) fn new(text: &str) -> Self {
        let words = fold(text).split_whitespace().map(str::to_owned).collect();
        Self { words }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The query to the index, which matches a superset of what [`find`](Self::find) accepts. `None` if the words have
    /// no terms.
    pub(super) fn terms(&self) -> Option<String> {
        let last = self.words.len().checked_sub(1)?;
        let phrases: Vec<String> = self
            .words
            .iter()
            .enumerate()
            // The last word is kept first, since it narrows the results the most while it is typed.
            .rev()
            .filter_map(|(index, word)| {
                let terms = terms::of(word);
                let is_unfinished =
                    index == last && word.chars().next_back().map(part) == Some(Part::Letter);
                (!terms.is_empty())
                    .then(|| format!("\"{terms}\"{}", if is_unfinished { " *" } else { "" }))
            })
            .take(MOST_TERMS)
            .collect();
        (!phrases.is_empty()).then(|| phrases.join(" AND "))
    }

    /// The matches in `text`, in order, as (index of the word, byte range); `None` if a word is missing.
    pub(super) fn find(&self, text: &str) -> Option<Vec<(usize, Range<usize>)>> {
        let last = self.words.len() - 1;
        let next_of = |folded: &str, index: usize, from: usize| {
            next(folded, &self.words[index], index == last, from)
        };
        // Most candidates are rejected here, without the mapping to the original text.
        let folded = fold(text);
        if !(0..=last).all(|index| next_of(&folded, index, 0).is_some()) {
            return None;
        }
        let map = Folded::new(text);
        let mut found = Vec::new();
        for index in 0..=last {
            let mut from = 0;
            while let Some(range) =
                next_of(&map.text, index, from).filter(|_| found.len() < MOST_PLACES * (index + 1))
            {
                from = range.end;
                found.push((index, map.original(&range)));
            }
        }
        found.sort_by_key(|(_, range)| (range.start, range.end));
        Some(found)
    }
}

/// The next match of a word in a folded text. In scripts with spaces between words, a match begins and ends at a word
/// boundary; the last word of a query may end anywhere.
fn next(folded: &str, word: &str, is_unfinished: bool, mut from: usize) -> Option<Range<usize>> {
    let is_letter = |char: Option<char>| char.is_some_and(|char| part(char) == Part::Letter);
    let (first, last) = (word.chars().next(), word.chars().next_back());
    loop {
        let start = from + folded[from..].find(word)?;
        let end = start + word.len();
        let begins = !is_letter(first) || !is_letter(folded[..start].chars().next_back());
        let ends = is_unfinished || !is_letter(last) || !is_letter(folded[end..].chars().next());
        if begins && ends {
            return Some(start..end);
        }
        from = start + first.map_or(1, char::len_utf8);
    }
}
