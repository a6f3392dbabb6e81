//! Snippets: the text around a match in one line, with the matches marked.

use std::ops::Range;

use unicode_segmentation::UnicodeSegmentation;

use crate::history::Mark;
use crate::title::is_of_direction;

/// Most graphemes in a snippet, and most of them before the first match.
const LENGTH: usize = 110;
const BEFORE: usize = 28;

/// The part of `text` with the most different words of the query, and the marks of its matches.
pub(super) fn snippet(text: &str, found: &[(usize, Range<usize>)]) -> (String, Vec<Mark>) {
    let best = found.iter().enumerate().max_by_key(|(at, _)| {
        let reach = &found[*at..];
        let end = reach[0].1.start + LENGTH - BEFORE;
        let mut words: Vec<usize> = reach
            .iter()
            .take_while(|(_, range)| range.end <= end)
            .map(|(word, _)| *word)
            .collect();
        words.sort_unstable();
        words.dedup();
        // The first of equally good parts.
        (words.len(), std::cmp::Reverse(*at))
    });
    let first = best.map_or(0, |(_, (_, range))| range.start);
    let begin = beginning(text, first);
    let mut line = Line::default();
    let mut rest = text[begin..].grapheme_indices(true);
    for (offset, cluster) in rest.by_ref() {
        let at = begin + offset;
        line.push(cluster, found.iter().any(|(_, range)| range.contains(&at)));
        if line.clusters == LENGTH {
            break;
        }
    }
    let is_cut = rest.any(|(_, cluster)| !cluster.trim().is_empty());
    line.finish(!text[..begin].trim().is_empty(), is_cut)
}

/// Start of the snippet: a little before the first match, after a space if there is one.
fn beginning(text: &str, first: usize) -> usize {
    let mut before = text[..first].grapheme_indices(true).rev();
    let Some((earliest, _)) = before.nth(BEFORE) else {
        return 0;
    };
    let stretch = &text[earliest..first];
    let space = stretch
        .char_indices()
        .find(|(_, char)| char.is_whitespace());
    earliest + space.map_or(0, |(at, char)| at + char.len_utf8())
}

#[derive(Default)]
struct Line {
    text: String,
    /// Start and end (exclusive) of each mark, in code points of `text`.
    marks: Vec<(u32, u32)>,
    length: u32,
    clusters: usize,
}

impl Line {
    fn push(&mut self, cluster: &str, is_found: bool) {
        let is_blank = cluster
            .chars()
            .all(|char| char.is_whitespace() || char.is_control());
        if is_blank && (self.text.is_empty() || self.text.ends_with(' ')) {
            return;
        }
        let shown = match cluster {
            _ if is_blank => " ",
            unseen if unseen.chars().all(is_of_direction) => return,
            shown => shown,
        };
        let start = self.length;
        self.text.push_str(shown);
        self.length += shown.chars().count() as u32;
        self.clusters += 1;
        if is_found && !is_blank {
            match self.marks.last_mut() {
                Some((_, end)) if *end == start => *end = self.length,
                _ => self.marks.push((start, self.length)),
            }
        }
    }

    fn finish(self, is_cut_before: bool, is_cut_after: bool) -> (String, Vec<Mark>) {
        let before = if is_cut_before { "…" } else { "" };
        let shift = before.chars().count() as u32;
        let text = format!(
            "{before}{}{}",
            self.text.trim_end(),
            if is_cut_after { "…" } else { "" }
        );
        let marks = self.marks.iter().map(|(start, end)| Mark {
            start: start + shift,
            end: end + shift,
        });
        (text, marks.collect())
    }
}
