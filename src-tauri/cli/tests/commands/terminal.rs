//! Printed messages, titles, names and errors cannot control the terminal.

use crate::support::{Folder, string};

const HOSTILE: &str =
    "\x1b]52;c;ZXZpbA==\x07 \x1b[8mhidden \u{9b}31m \u{202e}gpj.exe a\rb\x7f\u{2066}";

/// Whether a terminal would do more than print the character.
fn steers(c: char) -> bool {
    let turns = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || (c.is_control() && c != '\n' && c != '\t')
}

/// A conversation whose message, title and system prompt hold hostile control characters.
fn hostile() -> (Folder, String) {
    let folder = Folder::with_model();
    let new = folder.last(&["chat", "new", "--system", HOSTILE]);
    let id = string(&new, "conversation");
    folder.send(&id, HOSTILE);
    (folder, id)
}

#[test]
fn what_a_message_says_is_shown_and_not_sent() {
    let (folder, id) = hostile();
    for arguments in [
        &["chat", "show", &id][..],
        &["chat", "list"],
        &["chat", "search", "hidden"],
        &["chat", "export", &id],
        &["chat", "export", &id, "--format", "json"],
        &["chat", "rename", &id, HOSTILE],
        &[
            "chat",
            "send",
            &id,
            "hello",
            "--greedy",
            "--max-tokens",
            "30",
        ],
    ] {
        let shown = folder.text(arguments);
        // JSON has its own escapes, which a parser decodes.
        if !arguments.contains(&"json") {
            assert!(!shown.contains(steers), "{arguments:?}: {shown:?}");
        }
    }
    let shown = folder.text(&["chat", "show", &id]);
    assert!(
        shown.contains("\\x1b]52;c;ZXZpbA==\\x07 \\x1b[8mhidden"),
        "{shown}"
    );
    assert!(shown.contains("\\u{202e}gpj.exe"), "{shown}");
}

#[test]
fn raw_sends_text_as_it_is_to_a_pipe() {
    let (folder, id) = hostile();
    let shown = folder.text(&["--raw", "chat", "show", &id]);
    assert!(shown.contains(HOSTILE), "{shown:?}");
    assert_eq!(string(&folder.messages(&id)[0], "text"), HOSTILE);
}

#[test]
fn an_error_shows_what_it_names() {
    let folder = Folder::with_model();
    for arguments in [
        &["chat", "show", HOSTILE][..],
        &["chat", "new", "--model", HOSTILE],
        &["models", "inspect", HOSTILE],
        &["models", "add", "/no/\x1b[2Jfile.gguf"],
        &["models", "list", "\x1b[2J"],
    ] {
        let output = folder.run(arguments);
        assert!(!output.status.success(), "{arguments:?}");
        let said = String::from_utf8(output.stderr).expect("UTF-8");
        assert!(!said.is_empty() && !said.contains(steers), "{said:?}");
    }
}

#[cfg(unix)]
#[test]
fn the_name_of_a_model_file_is_shown_and_not_sent() {
    let folder = Folder::with_model();
    let models = folder.path().join("models");
    std::fs::copy(models.join("tiny.gguf"), models.join("\x1b[8mevil.gguf")).expect("a copy");
    let shown = folder.text(&["models", "list"]);
    assert!(
        shown.contains("\\x1b[8mevil") && !shown.contains(steers),
        "{shown:?}"
    );
}

#[cfg(target_os = "linux")]
#[test]
fn nothing_that_steers_reaches_a_terminal_raw_or_as_json() {
    use crate::pseudo_terminal::PseudoTerminal;

    let (folder, id) = hostile();
    for flags in [&["--raw"][..], &["--json"], &["--json", "--raw"]] {
        let arguments = [flags, &["chat", "show", &id]].concat();
        let (status, shown) = PseudoTerminal::start(folder.command(&arguments)).end();
        assert!(status.success() && shown.contains("hidden"), "{shown:?}");
        // The terminal itself turns LF into CR LF.
        assert!(!shown.replace("\r\n", "\n").contains(steers), "{shown:?}");
    }
}
