//! Conversations without a model running: list, show, search, export, delete.

use crate::support::{Folder, number, string};

#[test]
fn a_conversation_is_listed_shown_found_exported_and_deleted() {
    let folder = Folder::with_model();
    let id = folder.conversation();
    let other = folder.conversation();
    folder.send(&id, "where is the lighthouse");

    let listed = folder.json(&["chat", "list"]);
    let ids: Vec<_> = listed
        .iter()
        .map(|line| string(line, "conversation"))
        .collect();
    assert_eq!(ids, [id.clone(), other.clone()], "the latest first");
    assert_eq!(listed[0]["title"], "where is the lighthouse");

    let messages = folder.messages(&id);
    let roles: Vec<_> = messages
        .iter()
        .map(|message| string(message, "role"))
        .collect();
    assert_eq!(roles, ["user", "assistant"]);
    assert!(messages[0]["parent"].is_null());
    assert_eq!(messages[1]["parent"], messages[0]["id"]);
    assert!(
        messages
            .iter()
            .all(|message| number(message, "num_tokens") > 0)
    );
    // The flag works behind the command too.
    assert!(
        folder
            .text(&["chat", "show", &id, "--json"])
            .starts_with("{\"conversation\"")
    );
    assert!(
        folder
            .text(&["chat", "show", &id])
            .contains("where is the lighthouse")
    );

    let found = folder.last(&["chat", "search", "lightho"]);
    assert_eq!(found["conversation"], id);
    assert_eq!(found["message"], messages[0]["id"]);

    assert!(
        folder
            .text(&["chat", "export", &id])
            .contains("## You\n\nwhere is the lighthouse\n")
    );
    let whole: serde_json::Value =
        serde_json::from_str(&folder.text(&["chat", "export", &id, "--format", "json"]))
            .expect("JSON");
    assert_eq!(whole["messages"].as_array().map(Vec::len), Some(2));
    assert_eq!(
        folder.last(&["chat", "export", &id]),
        whole,
        "one line with --json"
    );

    assert!(number(&folder.last(&["cache", "stats"]), "num_blocks") > 0);
    assert_eq!(folder.last(&["chat", "delete", &id])["deleted"], true);
    assert_eq!(folder.json(&["chat", "list"]).len(), 1);
    assert!(folder.json(&["chat", "search", "lighthouse"]).is_empty());
    assert_eq!(
        number(&folder.last(&["cache", "stats"]), "num_blocks"),
        0,
        "its blocks are gone"
    );
}

#[test]
fn a_deleted_conversation_leaves_the_blocks_of_others() {
    let folder = Folder::with_model();
    let [one, two] = [folder.conversation(), folder.conversation()];
    let text = crate::support::long_text();
    folder.send(&one, &text);
    folder.send(&two, &text);
    folder.last(&["chat", "delete", &one]);
    let next = folder.send(&two, "and then");
    assert!(crate::support::counts(&next)[1] > 200, "{next}");
}

#[test]
fn a_system_prompt_is_kept_and_shared() {
    let folder = Folder::with_model();
    let system = crate::support::long_text();
    let [one, two] = [0, 1].map(|_| {
        string(
            &folder.last(&["chat", "new", "--system", &system]),
            "conversation",
        )
    });
    folder.send(&one, "hello");
    let second = folder.send(&two, "world");
    assert!(
        crate::support::counts(&second)[1] > 200,
        "one system prompt is one set of blocks: {second}"
    );
    assert_eq!(
        folder.last(&["chat", "show", &two])["system_prompt"],
        system.as_str()
    );
}

#[test]
fn models_are_added_listed_and_inspected() {
    let folder = Folder::with_model();
    let elsewhere = folder.path().join("other.gguf");
    std::fs::copy(folder.path().join("models/tiny.gguf"), &elsewhere).expect("copied");
    let path = elsewhere.to_str().expect("UTF-8");
    assert_eq!(folder.last(&["models", "add", path])["name"], "other");
    let listed = folder.json(&["models", "list"]);
    let names: Vec<_> = listed.iter().map(|line| string(line, "name")).collect();
    assert_eq!(names, ["other", crate::support::MODEL]);
    assert!(
        listed.iter().all(|line| line["architecture"] == "llama"),
        "{listed:?}"
    );
    assert_eq!(listed[0]["path"], path);
    assert_eq!(
        folder.last(&["models", "inspect", "other"])["num_layers"],
        2
    );
    let chosen = string(
        &folder.last(&["chat", "new", "--model", "other"]),
        "conversation",
    );
    folder.send(&chosen, "hello");
    assert_eq!(folder.messages(&chosen)[1]["model"], "other");
}

#[test]
fn what_a_conversation_does_when_it_is_full_can_be_set() {
    let folder = Folder::with_model();
    let id = folder.conversation();
    for what in ["compact", "drop-oldest", "stop", "ask"] {
        let told = folder.last(&["chat", "when-full", &id, what]);
        assert_eq!(told["when_full"], what.replace('-', "_"));
        let text = folder.text(&["chat", "export", &id, "--format", "json"]);
        let exported: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(exported["conversation"]["when_full"], told["when_full"]);
    }
    assert!(
        !folder
            .run(&["chat", "when-full", "nobody", "stop"])
            .status
            .success()
    );
    assert!(
        !folder
            .run(&["chat", "when-full", &id, "explode"])
            .status
            .success()
    );
}

#[test]
fn a_search_prints_a_message_or_a_title_a_line() {
    let folder = Folder::with_model();
    let id = folder.conversation();
    folder.send(&id, "北京的天气很好 C++ and Crème");
    let message = string(&folder.messages(&id)[0], "id");
    for query in ["天气 北京", "c++", "creme 北"] {
        let found = folder.json(&["chat", "search", query]);
        let hit = found.iter().find(|hit| hit["message"] == message);
        assert_eq!(
            hit.map(|hit| string(hit, "kind")),
            Some("message".into()),
            "{query}: {found:?}"
        );
    }
    let path = folder.path().join("history.db");
    let mut history = store::History::open(&path).expect("history");
    history
        .rename(&id.clone().into(), "Taxes 2026")
        .expect("title");
    drop(history);
    let found = folder.json(&["chat", "search", "TAXES"]);
    assert_eq!(found.len(), 1);
    assert_eq!(
        (&found[0]["kind"], &found[0]["conversation"]),
        (&"title".into(), &id.as_str().into())
    );
    assert!(found[0]["message"].is_null());
    assert!(
        folder
            .text(&["chat", "search", "taxes"])
            .contains("Taxes 2026")
    );
}
