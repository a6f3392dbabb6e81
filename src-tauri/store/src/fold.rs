//! Folds text for search, so that letters which look alike to a reader compare equal. Case, diacritics, composed and
//! decomposed forms, full and half width, and invisible characters make no difference. `ui/src/words/fold.ts` does the
//! same in the page; both are tested with `tests/fixtures/search.json`.

use std::ops::Range;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;
use unicode_segmentation::UnicodeSegmentation;

/// Folds a text.
pub(crate) fn fold(text: &str) -> String {
    let mut folded = String::with_capacity(text.len());
    each_cluster(text, |_, cluster| folded.push_str(cluster));
    folded
}

/// A folded text that maps each of its bytes to the original text.
pub(crate) struct Folded {
    pub(crate) text: String,
    /// For each grapheme cluster, its start in the folded text and its range in the original.
    clusters: Vec<(usize, Range<usize>)>,
}

impl Folded {
    pub(crate) fn new(original: &str) -> Self {
        let mut text = String::with_capacity(original.len());
        let mut clusters = Vec::with_capacity(original.len());
        each_cluster(original, |from, cluster| {
            if !cluster.is_empty() {
                clusters.push((text.len(), from));
                text.push_str(cluster);
            }
        });
        Self { text, clusters }
    }

    /// The range of whole graphemes of the original that a range of the folded text comes from.
    pub(crate) fn original(&self, range: &Range<usize>) -> Range<usize> {
        let at = |byte: usize| {
            let after = self.clusters.partition_point(|(start, _)| *start <= byte);
            self.clusters
                .get(after.saturating_sub(1))
                .map_or(0..0, |(_, from)| from.clone())
        };
        at(range.start).start..at(range.end.max(1) - 1).end
    }
}

/// Calls `each` with the range and the folded text of each grapheme cluster.
fn each_cluster(text: &str, mut each: impl FnMut(Range<usize>, &str)) {
    let bytes = text.as_bytes();
    let mut folded = String::new();
    let mut at = 0;
    while at < bytes.len() {
        // A fast path for ASCII: a byte is a grapheme unless a combining mark follows it.
        if bytes[at].is_ascii() && bytes.get(at + 1).is_none_or(u8::is_ascii) {
            let char = match bytes[at] {
                control if control.is_ascii_control() => b' ',
                byte => byte.to_ascii_lowercase(),
            };
            each(at..at + 1, char::from(char).encode_utf8(&mut [0; 4]));
            at += 1;
            continue;
        }
        let rest = &bytes[at + 1..];
        let end = at + 1 + rest.iter().position(u8::is_ascii).unwrap_or(rest.len());
        for (offset, cluster) in text[at..end].grapheme_indices(true) {
            folded.clear();
            fold_cluster(cluster, &mut folded);
            let start = at + offset;
            each(start..start + cluster.len(), &folded);
        }
        at = end;
    }
}

fn fold_cluster(cluster: &str, folded: &mut String) {
    let mut chars = cluster.chars();
    if let (Some(char), None) = (chars.next(), chars.next())
        && is_itself(char)
    {
        return folded.push(char);
    }
    let mut base = ' ';
    let kept = cluster
        .nfkd()
        .flat_map(char::to_lowercase)
        .filter(move |&char| {
            if !is_combining_mark(char) {
                base = char;
            }
            !is_unseen(char) && !is_dropped(char, base)
        });
    folded.extend(kept.map(alike).nfc());
    if folded.contains('ß') {
        *folded = folded.replace('ß', "ss");
    }
}

/// Whether the character is an ideograph, kana or Hangul syllable, which fold to themselves.
fn is_itself(char: char) -> bool {
    matches!(u32::from(char), 0x3041..=0x3096 | 0x30A1..=0x30FA | 0x4E00..=0x9FFF | 0xAC00..=0xD7A3)
}

/// Maps punctuation signs that are typed for one another to one sign.
fn alike(char: char) -> char {
    match char {
        'ς' => 'σ',
        'ı' => 'i',
        '‘' | '’' | '‛' | 'ʼ' => '\'',
        '“' | '”' | '„' | '‟' => '"',
        '‐' | '‑' => '-',
        char if char.is_control() => ' ',
        char => char,
    }
}

/// Whether the character is a joiner, a variation selector or a directional mark.
fn is_unseen(char: char) -> bool {
    matches!(u32::from(char), 0xAD | 0x61C | 0x180B..=0x180F | 0x200B..=0x200F | 0x202A..=0x202E | 0x2060..=0x206F
        | 0xFE00..=0xFE0F | 0xFEFF | 0xE0000..=0xE0FFF)
}

/// Whether a combining mark is ignored because writers often omit it: accents, Hebrew points, Arabic vowel signs. The
/// breve is kept in Cyrillic, where it makes another letter.
fn is_dropped(char: char, base: char) -> bool {
    let is_cyrillic = matches!(u32::from(base), 0x400..=0x52F);
    match u32::from(char) {
        0x306 => !is_cyrillic,
        0x300..=0x36F | 0x591..=0x5BD | 0x5BF..=0x5C7 | 0x640 | 0x64B..=0x65F | 0x670 => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_read_alike_fold_alike() {
        for (one, other) in [
            ("Crème BRÛLÉE", "creme bru\u{302}le\u{301}e"),
            ("Straße", "STRASSE"),
            ("ΣΊΣΥΦΟΣ", "σισυφος"),
            ("İstanbul ılık", "istanbul ilik"),
            ("한국어", "\u{1112}\u{1161}\u{11ab}국\u{110b}\u{1165}"),
            ("ガギ", "カ\u{3099}ｷﾞ"),
            ("Ｐｙｔｈｏｎ　３", "python 3"),
            ("Й", "и\u{306}"),
            ("كِتَابٌ", "كتاب"),
            ("សួ\u{200b}ស្តី", "សួស្តី"),
            ("don’t", "don't"),
            ("ﬁne", "fine"),
        ] {
            assert_eq!(fold(one), fold(other), "{one} {other}");
        }
        assert_ne!(fold("й"), fold("и"));
        assert_ne!(fold("が"), fold("か"));
    }

    #[test]
    fn a_range_of_the_folded_text_is_whole_characters_of_the_original() {
        let original = "Cre\u{300}me ﬁx 👩‍🚀!";
        let folded = Folded::new(original);
        let of = |found: &str| {
            let at = folded.text.find(found).unwrap();
            &original[folded.original(&(at..at + found.len()))]
        };
        assert_eq!(of("creme"), "Cre\u{300}me");
        assert_eq!((of("re"), of("i"), of("x")), ("re\u{300}", "ﬁ", "x"));
        assert_eq!(of("!"), "!");
        assert_eq!(of("👩"), "👩‍🚀");
        assert_eq!(folded.original(&(0..folded.text.len())), 0..original.len());
    }
}
