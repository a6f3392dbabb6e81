//! The interactive chat: `chat` without a command on a pseudo-terminal.

use std::process::Stdio;

use crate::pseudo_terminal::PseudoTerminal;
use crate::support::{Folder, string};

const PROMPT: &str = "> ";

fn talk(folder: &Folder, flags: &[&str]) -> PseudoTerminal {
    let arguments = [&["chat"], flags, &["--greedy"]].concat();
    let mut talk = PseudoTerminal::start(folder.command(&arguments));
    talk.wait_for(PROMPT);
    talk
}

/// The id of the only conversation.
fn conversation(folder: &Folder) -> String {
    let all = folder.json(&["chat", "list"]);
    assert_eq!(all.len(), 1, "{all:?}");
    string(&all[0], "conversation")
}

fn said(folder: &Folder) -> Vec<String> {
    let messages = folder.messages(&conversation(folder));
    let user = messages.iter().filter(|message| message["role"] == "user");
    user.map(|message| string(message, "text")).collect()
}

#[test]
fn what_is_typed_is_answered_and_ctrl_d_leaves() {
    let folder = Folder::with_model();
    let mut talk = talk(&folder, &["--max-tokens", "6", "--system", "Be brief."]);
    talk.press("hello world\r");
    talk.wait_for("first token after");
    talk.wait_for(PROMPT);
    talk.press("and then\r");
    talk.wait_for("first token after");
    talk.wait_for(PROMPT);
    talk.press("\x04");
    let (status, seen) = talk.end();
    assert!(status.success(), "{seen}");
    assert_eq!(said(&folder), ["hello world", "and then"]);
    let shown = folder.last(&["chat", "show", &conversation(&folder)]);
    assert_eq!(shown["system_prompt"], "Be brief.");
    let reply = string(&folder.messages(&conversation(&folder))[1], "state");
    assert_eq!(reply, "length");
}

#[test]
fn a_message_may_have_several_lines_typed_or_pasted() {
    let folder = Folder::with_model();
    let mut talk = talk(&folder, &["--max-tokens", "2"]);
    for keys in [
        "one\\\rtwo\r",
        "three\x1b\rfour\r",
        "\x1b[200~five \\\nsix\r\nseven\x1b[201~\r",
        "//slash\r",
    ] {
        talk.press(keys);
        talk.wait_for("first token after");
        talk.wait_for(PROMPT);
    }
    talk.press("/quit\r");
    assert!(talk.end().0.success());
    assert_eq!(
        said(&folder),
        ["one\ntwo", "three\nfour", "five \\\nsix\nseven", "/slash"]
    );
}

#[test]
fn ctrl_c_stops_a_reply_which_keeps_what_was_shown_and_goes_on() {
    let folder = Folder::with_model();
    let mut talk = talk(&folder, &[]);
    talk.press("hello\r");
    // The line was read, and a part of the reply was printed.
    talk.wait_for("\x1b[?2004l");
    talk.wait_for_more(200);
    talk.press("\x03");
    talk.wait_for("stopped");
    talk.wait_for(PROMPT);
    let half = "half a line";
    talk.press(half);
    talk.press("\x03");
    talk.wait_for(PROMPT);
    talk.press("\x03");
    talk.wait_for("Ctrl-D, to leave");
    talk.wait_for(PROMPT);
    talk.press("\x03");
    let (status, seen) = talk.end();
    assert!(status.success(), "{seen}");
    assert_eq!(said(&folder), ["hello"]);
    let reply = &folder.messages(&conversation(&folder))[1];
    assert_eq!(reply["state"], "stopped");
    assert!(!string(reply, "text").is_empty());
}

#[test]
fn a_conversation_is_gone_on_with_and_what_was_said_can_be_had_again() {
    let folder = Folder::with_model();
    let id = folder.conversation();
    folder.send(&id, "the block and the cache");
    let mut talk = talk(&folder, &["--conversation", &id, "--max-tokens", "2"]);
    assert!(
        talk.seen.contains("the block and the cache"),
        "{}",
        talk.seen
    );
    talk.press("\x1b[A\r");
    talk.wait_for("first token after");
    talk.wait_for(PROMPT);
    talk.press("/continue\r");
    talk.wait_for("first token after");
    talk.wait_for(PROMPT);
    talk.press("/title Blocks\r");
    talk.wait_for(PROMPT);
    talk.press("/nothing\r");
    talk.wait_for("there is no /nothing");
    talk.wait_for(PROMPT);
    talk.press("\x04");
    assert!(talk.end().0.success());
    assert_eq!(said(&folder), ["the block and the cache"; 2]);
    let shown = folder.last(&["chat", "show", &id]);
    assert_eq!(shown["title"], "Blocks");
    assert_eq!(shown["messages"][3]["num_tokens"], 4);
    // No other file beside the history holds the typed text.
    let words = "the block and the cache".as_bytes();
    for file in std::fs::read_dir(folder.path()).expect("folder").flatten() {
        let name = file.file_name().to_string_lossy().into_owned();
        if file.path().is_file() && !name.starts_with("history") {
            let bytes = std::fs::read(file.path()).expect("file");
            assert!(!bytes.windows(words.len()).any(|it| it == words), "{name}");
        }
    }
}

#[test]
fn without_a_terminal_chat_says_how_it_is_used() {
    let folder = Folder::with_model();
    let output = folder
        .command(&["chat"])
        .stdout(Stdio::piped())
        .output()
        .expect("reprise-cli starts");
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("Usage:") && said.contains("regenerate"),
        "{said}"
    );
    assert!(output.stdout.is_empty());
}
