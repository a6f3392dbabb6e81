//! Turns: what they print, and that nothing is computed twice.

use crate::support::{Folder, counts, long_text, number, string};

#[test]
fn a_turn_prints_its_events_in_order_and_ends_with_all_counts() {
    let folder = Folder::with_model();
    let id = folder.conversation();
    let events = folder.json(&[
        "chat",
        "send",
        &id,
        "hello world",
        "--greedy",
        "--max-tokens",
        "6",
    ]);
    let names: Vec<_> = events.iter().map(|event| string(event, "event")).collect();
    let mut kinds = names.clone();
    kinds.dedup();
    assert_eq!(kinds.first().map(String::as_str), Some("started"));
    assert!(
        kinds.iter().any(|kind| kind == "prefill") && kinds.iter().any(|kind| kind == "token"),
        "{names:?}"
    );
    let finished = events.last().expect("events");
    assert_eq!(names.iter().filter(|name| *name == "finished").count(), 1);
    let [resident, restored, computed] = counts(finished);
    assert_eq!([resident, restored], [0, 0]);
    assert!(computed > 0);
    assert_eq!(number(finished, "completion_tokens"), 6);
    assert!(
        finished["ttft_ms"].as_f64().is_some_and(|ms| ms > 0.0),
        "{finished}"
    );
    assert!(finished["tokens_per_s"].as_f64().is_some(), "{finished}");
    let streamed: String = events
        .iter()
        .filter(|event| event["event"] == "token")
        .map(|event| string(event, "text"))
        .collect();
    assert_eq!(string(finished, "text"), streamed);
    let messages = folder.messages(&id);
    assert_eq!(messages[1]["id"], finished["message"]);
    assert_eq!(messages[1]["text"], finished["text"]);
    assert_eq!(
        messages[0]["num_tokens"], finished["prompt_tokens"],
        "the first message's tokens are the prompt"
    );
}

#[test]
fn the_next_process_restores_instead_of_computing() {
    let folder = Folder::with_model();
    let id = folder.conversation();
    let first = folder.send(&id, &long_text());
    let second = folder.send(&id, "and then");
    let [resident, restored, computed] = counts(&second);
    assert_eq!(resident, 0);
    assert!(restored >= number(&first, "prompt_tokens"), "{second}");
    let messages = folder.messages(&id);
    assert!(
        computed <= number(&messages[2], "num_tokens") + 1,
        "{second}"
    );
}

#[test]
fn resuming_equals_never_having_left() {
    let (left, stayed) = (Folder::with_model(), Folder::with_model());
    let last = [&left, &stayed].map(|folder| {
        let id = folder.conversation();
        folder.send(&id, &long_text());
        if folder.path() == stayed.path() {
            folder.json(&["cache", "clear"]);
        }
        folder.send(&id, "and then")
    });
    assert!(
        counts(&last[0])[1] > 0 && counts(&last[1])[1] == 0,
        "{last:?}"
    );
    assert_eq!(last[0]["text"], last[1]["text"]);
}

#[test]
fn regenerating_computes_one_token() {
    let folder = Folder::with_model();
    let id = folder.conversation();
    let first = folder.send(&id, &long_text());
    let reply = string(&first, "message");
    let flags = ["--greedy", "--max-tokens", "12"];
    let again = folder.last(&[&["chat", "regenerate", &id, &reply][..], &flags].concat());
    assert_eq!(counts(&again)[2], 1);
    assert_eq!(again["text"], first["text"]);
    let messages = folder.messages(&id);
    assert_eq!(messages.len(), 3);
    assert_eq!(messages[1]["parent"], messages[2]["parent"]);
}

#[test]
fn an_edit_computes_from_the_first_changed_token() {
    let folder = Folder::with_model();
    let id = folder.conversation();
    let text = long_text();
    let first = folder.send(&id, &text);
    let message = string(&folder.messages(&id)[0], "id");
    let changed = format!("{}x", text.trim_end());
    let edited = folder.last(&[
        "chat",
        "edit",
        &id,
        &message,
        &changed,
        "--greedy",
        "--max-tokens",
        "4",
    ]);
    let [_, restored, computed] = counts(&edited);
    assert!(restored > number(&first, "prompt_tokens") - 30, "{edited}");
    assert!(computed < 30, "{edited}");
    let messages = folder.messages(&id);
    assert_eq!(messages[2]["edited_from"], messages[0]["id"]);
    assert_eq!(messages[2]["parent"], messages[0]["parent"]);
}

#[test]
fn an_edited_reply_is_stored_and_the_model_does_not_run() {
    let folder = Folder::with_model();
    let id = folder.conversation();
    let reply = string(&folder.send(&id, "hello"), "message");
    let edited = folder.last(&["chat", "edit", &id, &reply, "what I wanted to hear"]);
    assert_eq!(counts(&edited), [0, 0, 0]);
    assert_eq!(edited["text"], "what I wanted to hear");
    assert!(
        folder
            .text(&["chat", "show", &id])
            .contains("what I wanted to hear")
    );
}

#[test]
fn a_parent_makes_a_branch() {
    let folder = Folder::with_model();
    let id = folder.conversation();
    let reply = string(&folder.send(&id, "hello"), "message");
    folder.send(&id, "one way");
    let flags = ["--greedy", "--max-tokens", "4"];
    folder.last(
        &[
            &["chat", "send", &id, "another way", "--parent", &reply][..],
            &flags,
        ]
        .concat(),
    );
    let messages = folder.messages(&id);
    let children: Vec<_> = messages
        .iter()
        .filter(|message| message["parent"] == reply)
        .map(|message| string(message, "text"))
        .collect();
    assert_eq!(children, ["one way", "another way"]);
}

#[test]
fn equal_seeds_give_equal_replies() {
    let folder = Folder::with_model();
    let said = ["7", "7", "8"].map(|seed| {
        let id = folder.conversation();
        string(
            &folder.last(&[
                "chat",
                "send",
                &id,
                "hello",
                "--seed",
                seed,
                "--max-tokens",
                "16",
            ]),
            "text",
        )
    });
    assert_eq!(said[0], said[1]);
    assert_ne!(said[0], said[2]);
}

#[test]
fn the_number_of_threads_changes_no_word() {
    let folder = Folder::with_model();
    let said = ["1", "2", "3"].map(|threads| {
        let id = folder.conversation();
        folder.json(&["cache", "clear"]);
        let flags = ["--greedy", "--max-tokens", "16", "--threads", threads];
        string(
            &folder.last(&[&["chat", "send", &id, &long_text()][..], &flags].concat()),
            "text",
        )
    });
    assert_eq!(said[0], said[1]);
    assert_eq!(said[0], said[2]);
}

#[test]
fn a_message_may_come_from_standard_input() {
    use std::io::Write;
    use std::process::Stdio;

    let folder = Folder::with_model();
    let id = folder.conversation();
    let mut child = folder
        .command(&["--json", "chat", "send", &id, "-", "--max-tokens", "2"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("reprise-cli starts");
    child
        .stdin
        .take()
        .expect("piped")
        .write_all(b"first line\n\nlast line\n")
        .expect("written");
    assert!(child.wait().expect("ended").success());
    assert_eq!(folder.messages(&id)[0]["text"], "first line\n\nlast line");
}

#[test]
fn to_a_person_a_turn_is_text_and_one_quiet_line() {
    let folder = Folder::with_model();
    let id = folder.conversation();
    let shown = folder.text(&[
        "chat",
        "send",
        &id,
        &long_text(),
        "--greedy",
        "--max-tokens",
        "4",
    ]);
    let reply = string(&folder.messages(&id)[1], "text");
    let quiet = shown
        .strip_prefix(&reply)
        .expect("the text comes first")
        .trim();
    assert!(
        quiet.starts_with("computed ")
            && quiet.contains("first token after")
            && quiet.lines().count() == 1,
        "{shown}"
    );
}

/// A stopped reply keeps what was shown.
#[cfg(unix)]
#[test]
fn ctrl_c_stops_the_reply_and_keeps_what_was_shown() {
    use std::io::{BufRead, BufReader};
    use std::process::Command;

    let folder = Folder::with_model();
    let id = folder.conversation();
    let mut child = folder.start(&["--json", "chat", "send", &id, "hello", "--greedy"]);
    let mut events = BufReader::new(child.stdout.take().expect("piped"))
        .lines()
        .map(|line| line.expect("a line"));
    let mut shown = 0;
    let mut last = String::new();
    for line in events.by_ref() {
        shown += usize::from(line.contains("\"token\""));
        if shown == 3 {
            let kill = Command::new("kill")
                .args(["-INT", &child.id().to_string()])
                .status();
            assert!(kill.expect("kill starts").success());
            break;
        }
    }
    events.for_each(|line| last = line);
    assert_eq!(child.wait().expect("ended").code(), Some(130));
    let finished: serde_json::Value = serde_json::from_str(&last).expect("the finished line");
    assert_eq!(finished["state"], "stopped", "{finished}");
    let reply = &folder.messages(&id)[1];
    assert_eq!(reply["state"], "stopped");
    assert_eq!(reply["text"], finished["text"]);
    // The conversation goes on from there.
    let next = folder.send(&id, "go on");
    assert!(counts(&next)[1] > 0, "{next}");
}

#[test]
fn sampling_flags_hold_for_their_turn() {
    let folder = Folder::with_model();
    let say = |flags: &[&str]| {
        let id = folder.conversation();
        let words = ["chat", "send", &id, "hello world", "--max-tokens", "12"];
        folder.last(&[&words[..], flags].concat())
    };
    let greedy = string(&say(&["--greedy"]), "text");
    for alike in [
        &["--temperature", "0"][..],
        &["--top-k", "1", "--seed", "7"],
        &[
            "--temperature",
            "0",
            "--top-k",
            "-1",
            "--repeat-penalty",
            "0",
        ],
    ] {
        assert_eq!(string(&say(alike), "text"), greedy, "{alike:?}");
    }
    // The reply ends before the stop string, and before the first of several.
    let chars: Vec<char> = greedy.chars().collect();
    let (at, stop) = (4.min(chars.len() - 1), chars[4.min(chars.len() - 1)]);
    let first = chars.iter().position(|c| *c == stop).unwrap_or(at);
    let escaped = match stop {
        '\n' => "\\n".to_owned(),
        '\\' => "\\\\".to_owned(),
        other => other.to_string(),
    };
    let stopped = say(&["--greedy", "--stop", "never said", "--stop", &escaped]);
    assert_eq!(string(&stopped, "state"), "complete");
    let before: String = chars[..first].iter().collect();
    assert_eq!(string(&stopped, "text"), before);
}
