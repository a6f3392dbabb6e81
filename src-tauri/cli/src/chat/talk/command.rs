//! Slash commands: a line that begins with a slash and a name.

use crate::error::{Error, Result};

pub(super) const HELP: &str = "\
/new             a new conversation
/list            conversations, the latest first
/open WHICH      go on in one: its number in the list, or its id
/title TEXT      give this conversation a title
/model [NAME]    choose who answers, or list the models
/system [TEXT]   set the system prompt, or none
/regenerate      write the last reply again
/continue        have a reply that was cut off go on
/compact         go on with a summary of the earlier turns
/drop-oldest     go on without the oldest turns
/quit            leave
//TEXT           say something that begins with a slash

Alt-Enter, or a backslash at the end, begins another line; pasted text stays as it is until Enter.
Ctrl-C stops a reply, which keeps what was shown; at an empty line, twice, it leaves, as Ctrl-D does.
";

/// A parsed line.
#[derive(Debug, PartialEq)]
pub(super) enum Command<'a> {
    Say(&'a str),
    Help,
    New,
    List,
    Open(&'a str),
    Title(&'a str),
    Model(Option<&'a str>),
    System(&'a str),
    Regenerate,
    Continue,
    Compact,
    DropOldest,
    Quit,
}

impl<'a> Command<'a> {
    /// Parses a line. An unknown command is an error and not sent to the model; a path (`/etc/hosts`) or a slash alone
    /// is sent.
    pub(super) fn read(line: &'a str) -> Result<Self> {
        if let Some(text) = line.strip_prefix("//") {
            return Ok(Self::Say(&line[line.len() - text.len() - 1..]));
        }
        let Some(rest) = line.strip_prefix('/') else {
            return Ok(Self::Say(line));
        };
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        let (name, text) = (&rest[..end], rest[end..].trim());
        let is_name = |c: char| c.is_ascii_lowercase() || c == '-';
        if name.is_empty() || !name.chars().all(is_name) {
            return Ok(Self::Say(line));
        }
        Ok(match (name, text) {
            ("help", _) => Self::Help,
            ("new", _) => Self::New,
            ("list", _) => Self::List,
            ("open", "") => return Err(missing("/open", "a number of the list, or an id")),
            ("open", which) => Self::Open(which),
            ("title", title) => Self::Title(title),
            ("model", "") => Self::Model(None),
            ("model", name) => Self::Model(Some(name)),
            ("system", text) => Self::System(text),
            ("regenerate", _) => Self::Regenerate,
            ("continue", _) => Self::Continue,
            ("compact", _) => Self::Compact,
            ("drop-oldest", _) => Self::DropOldest,
            ("quit" | "exit", _) => Self::Quit,
            _ => {
                return Err(Error::InvalidArgument(format!(
                    "there is no /{name}; /help says what there is, and //{name} is sent as words"
                )));
            }
        })
    }
}

fn missing(name: &str, what: &str) -> Error {
    Error::InvalidArgument(format!("{name} needs {what}"))
}

#[cfg(test)]
mod tests {
    use super::{Command, HELP};

    #[test]
    fn a_line_is_words_or_a_command() {
        let read = |line| Command::read(line).unwrap();
        assert_eq!(read("hello /new"), Command::Say("hello /new"));
        assert_eq!(
            read("/etc/hosts is a file"),
            Command::Say("/etc/hosts is a file")
        );
        assert_eq!(read("//new"), Command::Say("/new"));
        assert_eq!(read("/"), Command::Say("/"));
        assert_eq!(read("/model  tiny "), Command::Model(Some("tiny")));
        assert_eq!(
            read("/system Be brief.\nAnd kind."),
            Command::System("Be brief.\nAnd kind.")
        );
        assert!(Command::read("/nothing").is_err() && Command::read("/open").is_err());
    }

    #[test]
    fn help_names_every_command() {
        for line in HELP
            .lines()
            .filter(|line| line.starts_with('/') && !line.starts_with("//"))
        {
            let name = line.split_whitespace().next().unwrap();
            assert!(Command::read(&format!("{name} 1")).is_ok(), "{line}");
        }
    }
}
