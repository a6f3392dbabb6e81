//! Shorter branches from the command line, and what a refused message is told.

use crate::support::{Folder, long_text, string};

#[test]
fn a_refused_message_is_told_which_commands_go_on() {
    let folder = Folder::with_model();
    let id = folder.conversation();
    folder.send(&id, &long_text().repeat(10));
    let refused = |text: &str| {
        let output = folder.run(&["chat", "send", &id, text]);
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let told = refused(&long_text().repeat(10));
    for command in ["compact", "drop-oldest"] {
        assert!(told.contains(&format!("`chat {command} {id}`")), "{told}");
    }
    // No shorter branch has room for a message that alone does not fit.
    let told = refused(&long_text().repeat(40));
    assert!(
        !told.contains("compact") && told.contains("`chat new`"),
        "{told}"
    );
}

#[test]
fn the_oldest_turns_are_dropped_or_summarised_into_a_new_branch() {
    for (command, flag) in [("drop-oldest", "--greedy"), ("compact", "--greedy")] {
        let folder = Folder::with_model();
        let id = folder.conversation();
        folder.send(&id, "hello world");
        folder.send(&id, "and then");
        let before = folder.messages(&id);
        let events = folder.json(&["chat", command, &id, flag]);
        let shortened = events
            .iter()
            .find(|event| event["event"] == "shortened")
            .expect("a shorter branch");
        assert_eq!(shortened["turns"], 1);
        let after = folder.messages(&id);
        assert_eq!(after[..before.len()], before[..], "the full branch stays");
        let first = &after[before.len()];
        assert_eq!(first["parent"], serde_json::Value::Null);
        match command {
            "compact" => assert_eq!(first["kind"], "summary"),
            _ => assert_eq!(string(first, "text"), "and then"),
        }
        assert_eq!(
            string(after.last().expect("leaf"), "text"),
            string(&before[3], "text")
        );
    }
}
