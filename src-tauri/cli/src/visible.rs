//! Escapes text for a terminal: characters that would control it are printed as escape sequences of source code.
//! Otherwise a message, a title or a model's name could hide or rewrite the screen's content, or write to the
//! clipboard.

use std::borrow::Cow;
use std::io::Write;

/// `text` with every control character escaped as in source code: `\x1b`, `\u{202e}`. Line feeds and tabs stay, and CR
/// LF becomes LF.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(steers) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\r' if chars.peek() == Some(&'\n') => {}
            c if !steers(c) => shown.push(c),
            c if c.is_ascii() => shown.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => shown.push_str(&format!("\\u{{{:x}}}", u32::from(c))),
        }
    }
    Cow::Owned(shown)
}

/// JSON with every control character in its strings escaped as in JSON. Outside strings there are none.
pub(crate) fn visible_json(json: &str) -> Cow<'_, str> {
    if !json.contains(steers) {
        return Cow::Borrowed(json);
    }
    let mut shown = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if steers(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                shown.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// Whether a terminal does more than print the character: C0 and C1 controls, directional characters, line and
/// paragraph separators, and invisible characters that no text needs. Joiners and marks of scripts and emoji are not
/// escaped.
fn steers(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        // Line and paragraph separator; embeddings and overrides; isolates and deprecated formats; byte order mark;
        // annotations; language tag.
        '\u{2028}'..='\u{202e}'
        | '\u{2066}'..='\u{206f}'
        | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}'
        | '\u{e0001}' => true,
        c => c.is_control(),
    }
}

/// A writer that escapes text with [`visible`]. Each write must be whole text, as log lines are.
pub(crate) struct VisibleWriter<W>(pub(crate) W);

impl<W: Write> Write for VisibleWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        self.0.write_all(visible(&text).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::{steers, visible, visible_json};

    #[test]
    fn what_steers_a_terminal_is_shown_and_not_sent() {
        assert_eq!(
            visible("\x1b]52;c;ZXZpbA==\x07 \x1b[8mhidden"),
            "\\x1b]52;c;ZXZpbA==\\x07 \\x1b[8mhidden"
        );
        assert_eq!(
            visible("a\rb\x08\x7f\u{9b}31m"),
            "a\\x0db\\x08\\x7f\\u{9b}31m"
        );
        assert_eq!(
            visible("\u{202e}gpj\u{2069}\u{feff}"),
            "\\u{202e}gpj\\u{2069}\\u{feff}"
        );
    }

    #[test]
    fn words_of_every_script_stay_as_they_are() {
        for text in [
            "two\tcolumns\n日本語 สวัสดี",
            "👨‍👩‍👧‍👦 می‌خواهم \u{200f}שלום\u{200e} co\u{ad}op e\u{301}",
        ] {
            assert_eq!(visible(text), text);
        }
        assert_eq!(visible("a\r\nb"), "a\nb");
    }

    #[test]
    fn json_stays_the_same_value() {
        let value = serde_json::json!({ "text": "\x1b[8m \u{9b}\u{202e}\u{7f}\u{e0001} 日本\r\n" });
        let written = serde_json::to_string(&value).unwrap();
        let shown = visible_json(&written);
        assert!(!shown.contains(steers), "{shown}");
        let read: serde_json::Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(read, value);
    }
}
