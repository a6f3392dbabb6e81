//! How words on the command line are read.

use clap::{CommandFactory, Parser};

use super::{Arguments, ChatCommand, Command};

#[test]
fn the_command_line_is_well_formed() {
    Arguments::command().debug_assert();
}

#[test]
fn a_text_may_begin_with_a_hyphen_and_flags_stay_flags() {
    let sent = |words: &[&str]| {
        let words = ["reprise-cli", "chat", "send", "c"].iter().chain(words);
        match Arguments::try_parse_from(words).map(|arguments| arguments.command) {
            Ok(Command::Chat {
                command: Some(ChatCommand::Send { text, flags, .. }),
                ..
            }) => (text, flags.greedy),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(sent(&["- a list", "--greedy"]), ("- a list".into(), true));
    assert_eq!(sent(&["--greedy", "--dashes"]), ("--dashes".into(), true));
    assert_eq!(sent(&["-"]), ("-".into(), false));
    assert_eq!(sent(&["--", "--greedy"]), ("--greedy".into(), false));
}
