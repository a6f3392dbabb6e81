//! The index terms of a folded text: a word in scripts with spaces between words; a single character in scripts without
//! spaces and for signs other than ASCII punctuation. A run of single characters is searched as a phrase.

/// Role of a character in a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Part of a word in a script with spaces between words.
    Letter,
    /// A term of its own.
    Single,
    /// Not part of a term: white space and ASCII punctuation.
    Between,
}

/// Longest term in code points; a longer word is cut to this length.
const LONGEST: usize = 64;

/// The terms, separated by spaces. Their only ASCII characters are letters and digits, which the index's tokenizer
/// keeps together.
pub(super) fn of(folded: &str) -> String {
    let mut terms = String::with_capacity(folded.len() + folded.len() / 2);
    let mut length = 0;
    for char in folded.chars() {
        match part(char) {
            Part::Letter if length == LONGEST => continue,
            Part::Letter => {
                if length == 0 {
                    begin(&mut terms);
                }
                terms.push(char);
                length += 1;
                continue;
            }
            Part::Single => {
                begin(&mut terms);
                terms.push(char);
            }
            Part::Between => {}
        }
        length = 0;
    }
    terms
}

fn begin(terms: &mut String) {
    if !terms.is_empty() {
        terms.push(' ');
    }
}

pub(super) fn part(char: char) -> Part {
    match char {
        char if char.is_ascii_alphanumeric() => Part::Letter,
        char if char.is_ascii() || char.is_whitespace() || char.is_control() => Part::Between,
        char if is_unspaced(char) => Part::Single,
        char if char.is_alphanumeric() || unicode_normalization::char::is_combining_mark(char) => {
            Part::Letter
        }
        _ => Part::Single,
    }
}

/// Whether the character belongs to an East or South-East Asian script without spaces between words, or to Hangul,
/// whose words carry their particles.
fn is_unspaced(char: char) -> bool {
    matches!(u32::from(char), 0x0E00..=0x109F | 0x1100..=0x11FF | 0x1780..=0x17FF | 0x1950..=0x19FF | 0x1A20..=0x1AAF
        | 0x1B00..=0x1B7F | 0x2E80..=0xA4CF | 0xA960..=0xA97F | 0xA980..=0xA9FF | 0xAA60..=0xAA7F | 0xAA80..=0xAADF
        | 0xAC00..=0xD7FF | 0xF900..=0xFAFF | 0x20000..=0x3FFFF)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fold::fold;

    #[test]
    fn words_are_terms_and_so_is_every_character_of_a_script_without_spaces() {
        assert_eq!(of(&fold("Python教程, C++ (v2)!")), "python 教 程 c v2");
        assert_eq!(of(&fold("東京タワー　大阪")), "東 京 タ ワ ー 大 阪");
        assert_eq!(of(&fold("naïve 🙂ok")), "naive 🙂 ok");
        assert_eq!(of(&fold("हिन्दी")), fold("हिन्दी"));
        assert_eq!(of(&"x".repeat(99)), "x".repeat(64));
        assert_eq!(of(" \n+-"), "");
    }
}
