//! Titles, and file names made from them: one line, without invisible characters, cut at grapheme boundaries.
//! `ui/src/backend/fake/title.ts` does the same; both are tested with `tests/fixtures/titles.json`.

use unicode_segmentation::UnicodeSegmentation;

/// Longest title that is made from a text, in graphemes.
const MADE: usize = 60;
/// Longest title that a person gives, in graphemes.
const GIVEN: usize = 200;
/// Longest file name without its extension, in bytes: file systems allow 255, and some programs append to a name.
const FILE_BYTES: usize = 180;

/// The title of a conversation that begins with `text`: its first line that is not empty, without the Markdown marks of
/// a heading, quote or list.
pub fn title_from(text: &str) -> String {
    let lines = text
        .lines()
        .map(|line| without_marks(&one_line(line)).to_owned());
    let line = lines
        .into_iter()
        .find(|line| !line.is_empty() && !is_fence(line))
        .unwrap_or_default();
    cut(&line, MADE)
}

/// A title as it is stored: one line, without control characters and directional marks.
pub fn title_of(given: &str) -> String {
    cut(&one_line(given), GIVEN)
}

/// A file name without its extension that is valid on every file system.
pub fn file_stem(title: &str) -> String {
    let allowed = |char: char| {
        if r#"\/:*?"<>|"#.contains(char) {
            ' '
        } else {
            char
        }
    };
    let line = one_line(&title.chars().map(allowed).collect::<String>());
    let mut stem = String::new();
    for cluster in line.graphemes(true).take(MADE) {
        if stem.len() + cluster.len() > FILE_BYTES {
            break;
        }
        stem.push_str(cluster);
    }
    let stem = stem.trim_matches(['.', ' ']);
    let device = stem
        .split('.')
        .next()
        .unwrap_or(stem)
        .trim_end()
        .to_ascii_uppercase();
    match stem {
        "" => "conversation".to_owned(),
        // Device names on Windows are reserved with any extension.
        stem if is_device(&device) => format!("{stem}_"),
        stem => stem.to_owned(),
    }
}

/// Replaces runs of white space with one space, and removes invisible characters that are not joiners.
fn one_line(text: &str) -> String {
    let seen = text.chars().filter(|&char| !is_left_out(char));
    let spaced: String = seen
        .map(|char| if char.is_whitespace() { ' ' } else { char })
        .collect();
    spaced
        .split(' ')
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Whether the character is a control or directional character. The joiners of emoji and scripts are kept.
fn is_left_out(char: char) -> bool {
    (char.is_control() && !char.is_whitespace())
        || is_of_direction(char)
        || matches!(char, '\u{200b}' | '\u{2060}' | '\u{feff}')
}

/// Whether the character changes the direction of the text after it.
pub(crate) fn is_of_direction(char: char) -> bool {
    matches!(u32::from(char), 0x61C | 0x200E | 0x200F | 0x202A..=0x202E | 0x2066..=0x2069)
}

/// The line without the Markdown marks of a heading, quote or list item.
pub(crate) fn without_marks(line: &str) -> &str {
    let mut line = line.trim();
    loop {
        let hashes = line.len() - line.trim_start_matches('#').len();
        let rest = match line.as_bytes() {
            [b'#', ..] if hashes <= 6 => &line[hashes..],
            [b'>', ..] => return without_marks(&line[1..]),
            [b'-' | b'*' | b'+', ..] => &line[1..],
            _ => return line,
        };
        if !rest.is_empty() && !rest.starts_with(' ') {
            return line;
        }
        line = rest.trim_start();
    }
}

fn is_fence(line: &str) -> bool {
    line.starts_with("```") || line.starts_with("~~~")
}

/// Cuts the line to `most` graphemes, at a space if there is one in the second half.
fn cut(line: &str, most: usize) -> String {
    let Some((end, _)) = line.grapheme_indices(true).nth(most) else {
        return line.to_owned();
    };
    let head = &line[..end];
    let space = head.rfind(' ').filter(|&at| at > head.len() / 2);
    format!("{}…", head[..space.unwrap_or(end)].trim_end())
}

fn is_device(name: &str) -> bool {
    let numbered = |kind: &str| {
        let rest = name.strip_prefix(kind).unwrap_or_default();
        rest.len() == 1 && rest.as_bytes()[0].is_ascii_digit()
    };
    matches!(name, "CON" | "PRN" | "AUX" | "NUL") || numbered("COM") || numbered("LPT")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_one_line_of_whole_characters_without_marks_and_controls() {
        let cases: serde_json::Value =
            serde_json::from_str(include_str!("../tests/fixtures/titles.json")).unwrap();
        for case in cases.as_array().unwrap() {
            let times = case["times"].as_u64().unwrap_or(1) as usize;
            let text = case["text"].as_str().unwrap().repeat(times);
            assert_eq!(
                title_from(&text),
                case["title"].as_str().unwrap(),
                "{text:?}"
            );
        }
    }

    #[test]
    fn a_given_title_is_kept_but_for_what_cannot_be_seen() {
        assert_eq!(title_of(" Taxes\u{1b}[2J\n2026\u{202e} "), "Taxes[2J 2026");
        assert_eq!(title_of("# Not a heading"), "# Not a heading");
        assert_eq!(
            title_of(&"👩‍👩‍👧".repeat(300)),
            format!("{}…", "👩‍👩‍👧".repeat(200))
        );
    }

    #[test]
    fn a_title_becomes_a_name_that_every_file_system_takes() {
        for (title, stem) in [
            ("What is a/b: c?\n", "What is a b c"),
            ("...", "conversation"),
            ("con", "con_"),
            ("COM1.x", "COM1.x_"),
            ("Console", "Console"),
            ("a\u{202e}b", "ab"),
        ] {
            assert_eq!(file_stem(title), stem);
        }
        assert_eq!(file_stem(&"語".repeat(99)), "語".repeat(60));
        let families = file_stem(&"👩‍👩‍👧‍👦".repeat(99));
        assert!(
            families.len() <= FILE_BYTES && families.ends_with("👩‍👩‍👧‍👦"),
            "{families}"
        );
    }
}
