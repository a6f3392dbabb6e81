//! Stand-ins for contents in a rendered template.

/// Private-use characters around the number of a message, which no template holds.
const OPEN: char = '\u{f8f0}';
const CLOSE: char = '\u{f8f1}';

pub(crate) fn marker(index: usize) -> String {
    format!("{OPEN}{index}{CLOSE}")
}

/// A content as the template gets it: the marker, between the content's own outer whitespace, so that a template that
/// trims does so.
pub(crate) fn marked(content: &str, index: usize) -> String {
    let inner = content.trim_start();
    let (lead, trail) = (content.len() - inner.len(), inner.trim_end().len());
    format!("{}{}{}", &content[..lead], marker(index), &inner[trail..])
}

/// The first marker in a text: its start, number and end.
pub(crate) fn next_marker(text: &str) -> Option<(usize, usize, usize)> {
    let start = text.find(OPEN)?;
    let end = start + text[start..].find(CLOSE)?;
    let index = text[start + OPEN.len_utf8()..end].parse().ok()?;
    Some((start, index, end + CLOSE.len_utf8()))
}
