//! Tags around a reasoning model's thought, and prompts that end with the opening tag.
//!
//! A reply to such a prompt begins inside the thought: its tokens lack the opening tag, but its text has it, so that
//! readers of the text see the thought.

/// Substrings of the names of thought tags: `<think>`, `<thinking>`, `<seed:think>`, `<thought>`, `<reasoning>`.
const NAMES: [&str; 3] = ["think", "thought", "reason"];

/// The opening tag at the end of a prompt, with the white space after it: `<think>\n`. The text before the tag is
/// ignored.
pub(crate) fn opening(prompt: &str) -> Option<&str> {
    let end = prompt.trim_end();
    let start = end.rfind('<')?;
    let is_opening = is_tag(&end[start..]) && !end[start..].starts_with("</");
    is_opening.then(|| &prompt[start..])
}

/// The closing tag for an opening tag: `<think>\n` → `</think>`.
pub(crate) fn closing(opening: &str) -> String {
    format!("</{}", &opening.trim_end()[1..])
}

/// The part of a text after the thought that it begins with: all of the text if it begins with no thought, empty if the
/// thought is not closed.
pub fn answer(text: &str) -> &str {
    let start = text.trim_start();
    let Some(end) = start.find('>').map(|at| at + 1) else {
        return text;
    };
    let tag = &start[..end];
    if !is_tag(tag) || tag.starts_with("</") {
        return text;
    }
    let close = closing(tag);
    start
        .split_once(close.as_str())
        .map_or("", |(_, answer)| answer.trim_start())
}

/// Whether a token is a thought tag. Such a token is shown even if the vocabulary marks it as a control token.
pub(crate) fn is_tag(token: &str) -> bool {
    let inner = token
        .strip_prefix('<')
        .and_then(|rest| rest.strip_suffix('>'));
    let Some(name) = inner.map(|inner| inner.strip_prefix('/').unwrap_or(inner)) else {
        return false;
    };
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let name = name.to_ascii_lowercase();
    name.chars().all(is_word) && NAMES.iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_opens_a_thought_only_with_its_last_words() {
        assert_eq!(
            opening("<|im_start|>assistant\n<think>\n"),
            Some("<think>\n")
        );
        assert_eq!(
            opening("<\u{ff5c}Assistant\u{ff5c}><think>"),
            Some("<think>")
        );
        assert_eq!(opening("assistant\n<seed:think>"), Some("<seed:think>"));
        assert_eq!(opening("<think>\n\n</think>\n\n"), None);
        assert_eq!(opening("<|im_start|>assistant\n"), None);
        assert_eq!(opening("<assistant>"), None);
        assert_eq!(opening("a < b"), None);
        assert_eq!(closing("<think>\n"), "</think>");
    }

    #[test]
    fn an_answer_stands_behind_its_thought() {
        assert_eq!(answer("<think>\nhm\n</think>\n\nParis."), "Paris.");
        assert_eq!(answer("Paris."), "Paris.");
        assert_eq!(answer("a > b"), "a > b");
        assert_eq!(answer("<think>\nhm"), "");
    }
}
