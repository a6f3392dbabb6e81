//! Errors: one line on standard error, a status, and a code with `--json`.

use std::io::{BufRead, BufReader};
use std::process::Output;

use serde_json::Value;

use crate::support::{Folder, lines};

/// The error as both outputs tell it.
fn failed(output: &Output, status: i32) -> Value {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.starts_with("error: "), "{errors}");
    let last = lines(&String::from_utf8_lossy(&output.stdout))
        .pop()
        .expect("an error line");
    assert_eq!(last["event"], "error");
    assert!(!last["message"].as_str().expect("message").is_empty());
    last
}

#[test]
fn every_error_has_a_code_a_line_and_a_status() {
    let folder = Folder::with_model();
    let id = folder.conversation();
    let fails = |arguments: &[&str]| {
        failed(&folder.run(&[&["--json"], arguments].concat()), 1)["code"].clone()
    };
    assert_eq!(
        fails(&["chat", "send", "nowhere", "hello"]),
        "conversation_missing"
    );
    assert_eq!(fails(&["chat", "show", "nowhere"]), "conversation_missing");
    assert_eq!(
        fails(&["chat", "delete", "nowhere"]),
        "conversation_missing"
    );
    assert_eq!(
        fails(&["chat", "export", "nowhere"]),
        "conversation_missing"
    );
    assert_eq!(
        fails(&["chat", "regenerate", &id, "nothing"]),
        "message_missing"
    );
    assert_eq!(
        fails(&["chat", "edit", &id, "nothing", "text"]),
        "message_missing"
    );
    assert_eq!(
        fails(&["chat", "send", &id, "hello", "--parent", "nothing"]),
        "message_missing"
    );
    assert_eq!(fails(&["chat", "send", &id, "  "]), "invalid_argument");
    assert_eq!(fails(&["chat", "new", "--model", "none"]), "model_missing");
    assert_eq!(fails(&["models", "inspect", "none"]), "model_missing");
    assert!(folder.messages(&id).is_empty());
}

#[test]
fn without_a_model_the_words_are_kept_and_the_error_says_what_to_do() {
    let folder = Folder::empty();
    let id = folder.conversation();
    let error = failed(&folder.run(&["--json", "chat", "send", &id, "hello"]), 1);
    assert_eq!(error["code"], "model_missing");
    assert_eq!(folder.messages(&id)[0]["text"], "hello");
}

#[test]
fn a_broken_model_file_is_named() {
    let folder = Folder::empty();
    let path = folder.path().join("broken.gguf");
    std::fs::write(&path, "GGUF and nothing else").expect("written");
    let error = failed(
        &folder.run(&["--json", "models", "add", path.to_str().expect("UTF-8")]),
        1,
    );
    assert_eq!(error["code"], "model_broken");
    assert!(
        error["message"]
            .as_str()
            .is_some_and(|message| message.contains("broken.gguf")),
        "{error}"
    );
}

#[test]
fn a_conversation_that_does_not_fit_says_so() {
    let folder = Folder::with_model();
    let id = folder.conversation();
    let output = folder.run(&["--json", "chat", "send", &id, &"hello world ".repeat(4000)]);
    let error = failed(&output, 1);
    assert_eq!(error["code"], "context_full");
    let events = lines(&String::from_utf8_lossy(&output.stdout));
    let full = events
        .iter()
        .find(|event| event["event"] == "context_full")
        .expect("the event");
    assert!(
        full["needed_tokens"].as_u64() > full["limit_tokens"].as_u64(),
        "{full}"
    );
    assert!(
        full["choices"]
            .as_array()
            .is_some_and(|choices| !choices.is_empty())
    );
}

#[test]
fn a_wrong_command_line_has_status_2() {
    let folder = Folder::empty();
    let wrong: [&[&str]; 6] = [
        &["chat", "send"],
        &["chat", "sing", "x"],
        &["--json", "chat", "send", "c", "t", "--seed", "x"],
        &["chat", "send", "c", "t", "--max-tokens", "0"],
        &["bench", "decode", "--runs", "0"],
        &["cache"],
    ];
    for arguments in wrong {
        assert_eq!(
            folder.run(arguments).status.code(),
            Some(2),
            "{arguments:?}"
        );
    }
    failed(&folder.run(wrong[2]), 2);
    assert_eq!(folder.run(&["--help"]).status.code(), Some(0));
    assert_eq!(folder.run(&["--version"]).status.code(), Some(0));
}

#[test]
fn one_process_at_a_time_holds_a_data_folder() {
    let folder = Folder::with_model();
    let id = folder.conversation();
    let mut child = folder.start(&["--json", "chat", "send", &id, "hello", "--greedy"]);
    let mut events = BufReader::new(child.stdout.take().expect("piped")).lines();
    events.next().expect("an event").expect("a line");
    let error = failed(&folder.run(&["--json", "cache", "stats"]), 1);
    assert_eq!(error["code"], "busy");
    let message = error["message"].as_str().expect("message");
    assert!(
        message.contains(folder.path().to_str().expect("UTF-8")),
        "{message}"
    );
    child.kill().expect("killed");
    child.wait().expect("ended");
    // The lock goes with the process, and what was shown is kept.
    assert_eq!(folder.messages(&id)[0]["text"], "hello");
}
