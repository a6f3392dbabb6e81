//! What is looked for, and where it stands in a text.

use std::ops::Range;

use super::terms::{self, Part, part};
use crate::fold::{Folded, fold};

/// Most words that the index is asked for; a text has to hold the others as well.
const MOST_TERMS: usize = 32;
/// Most places that are noted in a text.
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

    /// What the index is asked for: a superset of what [`find`](Self::find) finds. None if it knows nothing of these words.
    pub(super) fn terms(&self) -> Option<String> {
        let last = self.words.len().checked_sub(1)?;
        let phrases: Vec<String> = self
            .words
            .iter()
            .enumerate()
            // The last one narrows the most while it is typed.
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

    /// Where in `text` the words stand, in order, as (word, place); none if one of them is missing.
    pub(super) fn find(&self, text: &str) -> Option<Vec<(usize, Range<usize>)>> {
        let last = self.words.len() - 1;
        let next_of = |folded: &str, index: usize, from: usize| {
            next(folded, &self.words[index], index == last, from)
        };
        // Most candidates fall here, and need not know where their letters come from.
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

/// The next place of a word in a folded text. A letter of a script that writes words apart begins and ends at the end of a
/// word; the end of the last word of a query is free.
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
