//! Exports a branch as one Markdown page. Only turns have headings of the second level: headings inside messages are
//! lowered by two levels, and a fence or comment that a message leaves open is closed at its end.

use std::fmt::Write;
use std::ops::Range;

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag};

use crate::history::{Message, MessageKind, Role};
use crate::title::{title_of, without_marks};

/// Heading level of a turn.
const TURN: usize = 2;
/// Deepest heading level of Markdown.
const DEEPEST: usize = 6;
/// Is appended to a message to test whether a heading after it is still parsed as one.
const PROBE: &str = "\n\n## probe\n";

pub(super) fn page(title: &str, system_prompt: &str, branch: &[Message]) -> String {
    let title = title_of(title);
    let title = match without_marks(&title) {
        "" => "Conversation",
        title => title,
    };
    let mut text = format!("# {title}\n");
    if !system_prompt.is_empty() {
        section(&mut text, "System", system_prompt);
    }
    for message in branch {
        let heading = match (message.role, &message.model) {
            (Role::System, _) => "System".to_owned(),
            (Role::User, _) if message.kind == MessageKind::Summary => "Summary".to_owned(),
            (Role::User, _) => "You".to_owned(),
            (Role::Assistant, None) => "Assistant".to_owned(),
            (Role::Assistant, Some(model)) => format!("Assistant ({model})"),
        };
        section(&mut text, &heading, &message.text);
    }
    text
}

fn section(text: &mut String, heading: &str, body: &str) {
    let body = closed(lowered(body.trim_end()));
    // Writing to a String cannot fail.
    let _ = write!(text, "\n## {heading}\n\n{body}\n");
}

fn events(body: &str) -> impl Iterator<Item = (Event<'_>, Range<usize>)> {
    Parser::new_ext(body, Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH).into_offset_iter()
}

/// Lowers the headings of a message below those of turns. Headings inside block quotes and lists are unchanged.
fn lowered(body: &str) -> String {
    let mut text = String::with_capacity(body.len());
    let (mut done, mut depth) = (0, 0);
    for (event, range) in events(body) {
        match event {
            Event::Start(Tag::Heading { level, .. }) if depth == 0 => {
                text.push_str(&body[done..range.start]);
                text.push_str(&heading(&body[range.clone()], level));
                done = range.end;
                depth += 1;
            }
            Event::Start(_) => depth += 1,
            Event::End(_) => depth -= 1,
            _ => {}
        }
    }
    text.push_str(&body[done..]);
    text
}

/// A heading two levels lower, from its ATX (`#`) or setext (underlined) source.
fn heading(source: &str, level: HeadingLevel) -> String {
    let level = (level as usize + TURN).min(DEEPEST);
    let marks = "#".repeat(level);
    if let Some(rest) = source.strip_prefix('#') {
        return format!("{marks}{}", rest.trim_start_matches('#'));
    }
    let end = if source.ends_with('\n') { "\n" } else { "" };
    let lines: Vec<&str> = source.trim_end().lines().map(str::trim).collect();
    let words = lines[..lines.len().saturating_sub(1)].join(" ");
    // A `#` at the end would be parsed as a closing sequence.
    match words.strip_suffix('#') {
        Some(rest) => format!("{marks} {rest}\\#{end}"),
        None => format!("{marks} {words}{end}"),
    }
}

/// Closes the fence or comment that a message leaves open, so that the next turn's heading is parsed as one.
fn closed(body: String) -> String {
    if is_closed(&body) {
        return body;
    }
    let fence = open_fence(&body);
    let endings = [
        "-->",
        "</script>",
        "</pre>",
        "</style>",
        "</textarea>",
        "?>",
        "]]>",
        ">",
    ];
    let mut tried = fence.iter().map(String::as_str).chain(endings);
    tried
        .find_map(|ending| {
            let tried = format!("{body}\n{ending}");
            is_closed(&tried).then_some(tried)
        })
        // Another construct is open: the message is indented as a code block, which needs no closing.
        .unwrap_or_else(|| indented(&body))
}

fn is_closed(body: &str) -> bool {
    let text = format!("{body}{PROBE}");
    let mut depth = 0;
    let mut is_turn = false;
    for (event, range) in events(&text) {
        match event {
            Event::Start(Tag::Heading {
                level: HeadingLevel::H2,
                ..
            }) => {
                is_turn = depth == 0 && range.start > body.len();
                depth += 1;
            }
            Event::Start(_) => depth += 1,
            Event::End(_) => depth -= 1,
            _ => {}
        }
    }
    is_turn
}

/// The closing fence of the last fence, if it is open.
fn open_fence(body: &str) -> Option<String> {
    let last = events(body).filter(|(event, _)| {
        matches!(
            event,
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(_)))
        )
    });
    let (_, range) = last.last()?;
    let fence = body[range].trim_start();
    let sign = fence.chars().next()?;
    Some(fence.chars().take_while(|&char| char == sign).collect())
}

fn indented(body: &str) -> String {
    body.lines()
        .map(|line| format!("    {line}\n"))
        .collect::<String>()
        .trim_end()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use pulldown_cmark::TagEnd;

    use super::*;

    /// The headings of a page, as a Markdown parser finds them.
    fn headings(page: &str) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        let mut open = false;
        for (event, _) in events(page) {
            match event {
                Event::Start(Tag::Heading { level, .. }) => {
                    found.push((level as usize, String::new()));
                    open = true;
                }
                Event::End(TagEnd::Heading(_)) => open = false,
                Event::Text(text) | Event::Code(text) if open => {
                    found.last_mut().unwrap().1.push_str(&text)
                }
                _ => {}
            }
        }
        found
    }

    fn after(body: &str) -> (String, Vec<(usize, String)>) {
        let mut page = String::new();
        section(&mut page, "You", body);
        section(&mut page, "Assistant", "Thanks");
        let seen = headings(&page);
        (page, seen)
    }

    #[test]
    fn a_turn_is_a_turn_whatever_the_message_before_it_leaves_open() {
        for body in [
            "```python\nprint(1)",
            "~~~~\ncode\n```",
            "````md\n```\n# inside\n```",
            "- item\n\n  ```\n  code",
            "> ```\n> code",
            "<!-- a comment",
            "<script>\nlet x",
            "<pre>\n\nx",
            "<![CDATA[ x",
            "    indented",
            "text\n***",
            "[a]: https://example.org 'title",
            "a | b\n--|--\n1 | 2",
            "Setext?\n-",
        ] {
            let (page, seen) = after(body);
            let turns: Vec<_> = seen
                .iter()
                .filter(|(level, _)| *level == TURN)
                .map(|(_, name)| name.as_str())
                .collect();
            assert_eq!(turns, ["You", "Assistant"], "{page}");
            let code = events(&page)
                .filter(|(event, _)| matches!(event, Event::Start(Tag::CodeBlock(_))))
                .count();
            assert!(code <= 1, "nothing is opened that was not: {page}");
        }
    }

    #[test]
    fn headings_of_a_message_stand_below_the_turns() {
        let (page, seen) = after(
            "# One\n\n## Assistant\n\nTwo\n===\n\nThree #\n---\n\n##### Five\n\n```\n# code\n```\n\n> # quoted",
        );
        let names: Vec<_> = seen
            .iter()
            .map(|(level, name)| (*level, name.as_str()))
            .collect();
        assert_eq!(
            names,
            [
                (2, "You"),
                (3, "One"),
                (4, "Assistant"),
                (3, "Two"),
                (4, "Three #"),
                (6, "Five"),
                (1, "quoted"),
                (2, "Assistant")
            ]
        );
        assert!(page.contains("```\n# code\n```"), "{page}");
    }

    #[test]
    fn a_text_without_headings_and_open_ends_is_exported_as_it_is() {
        let body = "Line one  \nline *two*\n\n```rust\nfn main() {}\n```\n\n1. a\n2. b\n\n#hashtag";
        let mut page = String::new();
        section(&mut page, "You", body);
        assert_eq!(page, format!("\n## You\n\n{body}\n"));
    }

    #[test]
    fn the_title_has_no_marks() {
        for (title, first) in [
            ("## Assistant", "# Assistant"),
            ("", "# Conversation"),
            ("a\nb", "# a b"),
            ("# ", "# Conversation"),
        ] {
            assert_eq!(page(title, "", &[]).lines().next(), Some(first));
        }
    }
}
