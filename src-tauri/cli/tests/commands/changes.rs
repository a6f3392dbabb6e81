//! Titles, system prompts and continued replies.

use std::io::Write;
use std::process::Stdio;

use crate::support::{Folder, number, string};

#[test]
fn a_conversation_is_renamed() {
    let folder = Folder::with_model();
    let id = folder.conversation();
    let renamed = folder.last(&["chat", "rename", &id, " Taxes 2026 "]);
    assert_eq!(
        renamed,
        serde_json::json!({ "conversation": id, "title": "Taxes 2026" })
    );
    assert_eq!(folder.last(&["chat", "list"])["title"], "Taxes 2026");
    // The first message does not replace the title.
    folder.send(&id, "hello");
    assert_eq!(folder.last(&["chat", "list"])["title"], "Taxes 2026");
}

#[test]
fn a_system_prompt_is_changed_and_taken_away() {
    let folder = Folder::with_model();
    let id = folder.conversation();
    let set = folder.last(&["chat", "system", &id, "Be brief."]);
    assert_eq!(
        set,
        serde_json::json!({ "conversation": id, "system_prompt": "Be brief." })
    );
    let mut child = folder
        .command(&["chat", "system", &id, "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("reprise-cli starts");
    let mut input = child.stdin.take().expect("piped");
    input
        .write_all(b"Be kind.\n\nBe brief.\n")
        .expect("written");
    drop(input);
    assert!(child.wait().expect("ended").success());
    let shown = || folder.last(&["chat", "show", &id]);
    assert_eq!(shown()["system_prompt"], "Be kind.\n\nBe brief.");
    folder.last(&["chat", "system", &id, ""]);
    assert_eq!(shown()["system_prompt"], "");
}

#[test]
fn a_cut_reply_goes_on_as_if_it_had_not_been_cut() {
    let folder = Folder::with_model();
    let id = folder.conversation();
    let whole = folder.send(&id, "hello world");
    let user = string(&folder.messages(&id)[0], "id");
    let flags = |most: &'static str| ["--greedy", "--max-tokens", most];
    let cut = folder.last(&[&["chat", "regenerate", &id, &user][..], &flags("5")].concat());
    assert_eq!(cut["state"], "length");
    // The leaf of the branch that was used last, then the same reply by its id.
    let more = folder.last(&[&["chat", "continue", &id][..], &flags("3")].concat());
    assert_eq!(more["message"], cut["message"]);
    assert_eq!(number(&more, "completion_tokens"), 3);
    let reply = string(&cut, "message");
    let shown = folder.text(&[&["chat", "continue", &id, &reply][..], &flags("4")].concat());
    let messages = folder.messages(&id);
    assert_eq!(messages.len(), 3, "no message more");
    assert_eq!(messages[2]["text"], whole["text"]);
    assert_eq!(messages[2]["num_tokens"], messages[1]["num_tokens"]);
    // Text output prints the whole reply.
    assert!(
        shown.lines().last().expect("a line").contains("4 tokens"),
        "{shown}"
    );
    assert!(shown.chars().count() > string(&cut, "text").chars().count());
}

#[test]
fn what_cannot_be_changed_is_refused_with_the_same_codes() {
    let folder = Folder::with_model();
    let id = folder.conversation();
    let refused = |arguments: &[&str]| {
        let output = folder.run(&[&["--json"], arguments].concat());
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let line: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        string(&line, "code")
    };
    assert_eq!(refused(&["chat", "rename", &id, "  "]), "invalid_argument");
    assert_eq!(refused(&["chat", "continue", &id]), "invalid_argument");
    folder.send(&id, "hello");
    let user = string(&folder.messages(&id)[0], "id");
    assert_eq!(
        refused(&["chat", "continue", &id, &user]),
        "invalid_argument"
    );
    for arguments in [
        &["chat", "rename", "nothing", "a title"][..],
        &["chat", "system", "nothing", "Be brief."],
        &["chat", "continue", "nothing"],
        &["chat", "continue", "nothing", &user],
    ] {
        assert_eq!(refused(arguments), "conversation_missing", "{arguments:?}");
    }
    assert_eq!(
        refused(&["chat", "continue", &id, "nothing"]),
        "message_missing"
    );
}

#[test]
fn nothing_but_the_reply_and_its_counts_is_written_where_no_terminal_is() {
    let folder = Folder::with_model();
    let id = folder.conversation();
    for arguments in [
        &["chat", "send", &id, "hello", "--max-tokens", "2"][..],
        &["--json", "chat", "continue", &id, "--max-tokens", "2"],
    ] {
        let output = folder.run(arguments);
        assert!(output.status.success());
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        assert!(!output.stdout.contains(&b'\r'));
    }
}
