//! Models: adding, removing, choosing one for a conversation, and the fallback when one is missing.

use std::path::{Path, PathBuf};

use models::Architecture;
use models::tiny::{self, TinyModel};
use serde_json::Value;

use crate::support::{Folder, MODEL, counts, lines, string};

/// A second model, with other weights than the folder's own.
fn other(folder: &Folder, place: &str) -> PathBuf {
    let path = folder.path().join(place);
    std::fs::create_dir_all(path.parent().expect("folder")).expect("folder");
    tiny::write(&path, &TinyModel::new(Architecture::Llama, 2)).expect("tiny model");
    path
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// All events of a short reply, which must succeed.
fn events(folder: &Folder, conversation: &str, message: &str) -> Vec<Value> {
    folder.json(&[
        "chat",
        "send",
        conversation,
        message,
        "--greedy",
        "--max-tokens",
        "4",
    ])
}

fn code(folder: &Folder, arguments: &[&str]) -> String {
    let output = folder.run(&[&["--json"], arguments].concat());
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    let last = lines(&String::from_utf8_lossy(&output.stdout)).pop();
    string(&last.expect("an error"), "code")
}

#[test]
fn a_conversation_has_a_model_that_can_be_changed() {
    let folder = Folder::with_model();
    other(&folder, "models/zother.gguf");
    let id = folder.conversation();
    assert_eq!(folder.send(&id, "hello")["model"], MODEL);
    let told = folder.last(&["chat", "model", &id, "zother"]);
    assert_eq!(
        (told["conversation"].clone(), told["model"].clone()),
        (id.clone().into(), "zother".into())
    );
    assert_eq!(folder.send(&id, "and you?")["model"], "zother");
    folder.last(&["chat", "model", &id, MODEL]);
    let back = folder.send(&id, "again?");
    assert_eq!(back["model"], MODEL);
    assert!(
        counts(&back)[1] > 0,
        "its own blocks serve it again: {back}"
    );
    let wrote: Vec<_> = folder
        .messages(&id)
        .iter()
        .filter(|message| message["role"] == "assistant")
        .map(|message| string(message, "model"))
        .collect();
    assert_eq!(wrote, [MODEL, "zother", MODEL]);
    assert_eq!(folder.last(&["chat", "show", &id])["model"], MODEL);
    assert!(folder.text(&["chat", "show", &id]).contains("  zother"));
    assert_eq!(
        code(&folder, &["chat", "model", &id, "none"]),
        "model_missing"
    );
    assert_eq!(
        code(&folder, &["chat", "model", "nowhere", MODEL]),
        "conversation_missing"
    );
}

#[test]
fn a_conversation_whose_model_is_gone_or_renamed_goes_on_and_says_so() {
    let folder = Folder::with_model();
    let mine = other(&folder, "models/Mine.gguf");
    let id = string(
        &folder.last(&["chat", "new", "--model", "Mine"]),
        "conversation",
    );
    let first = folder.send(&id, "hello");
    std::fs::rename(&mine, folder.path().join("models/Better.gguf")).expect("renamed");
    let told = events(&folder, &id, "again");
    let fallback = told
        .iter()
        .find(|event| event["event"] == "model_fallback")
        .expect("it is said");
    assert_eq!(fallback["wanted"], "Mine");
    assert_eq!(fallback["code"], "model_missing");
    let last = told.last().expect("an end");
    assert_eq!(last["event"], "finished");
    assert_eq!(last["model"], fallback["model"]);
    assert_eq!(folder.messages(&id)[1]["text"], first["text"]);
    let told = events(&folder, &id, "once more");
    assert!(told.iter().all(|event| event["event"] != "model_fallback"));
    // Text output has one line about it.
    let gone = string(
        &folder.last(&["chat", "new", "--model", "Better"]),
        "conversation",
    );
    std::fs::remove_file(folder.path().join("models/Better.gguf")).expect("removed");
    let output = folder.run(&["chat", "send", &gone, "hello", "--max-tokens", "2"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    assert!(
        said.contains("Better cannot answer") && said.contains("chat model"),
        "{said}"
    );
}

#[test]
fn unusable_files_stop_no_conversation_and_are_listed_as_such() {
    let folder = Folder::with_model();
    let models = folder.path().join("models");
    let whole = std::fs::read(models.join("tiny.gguf")).expect("model");
    std::fs::write(models.join("a-partial.gguf"), &whole[..whole.len() / 3]).expect("partial");
    std::fs::write(models.join("b-empty.gguf"), "").expect("empty");
    std::fs::create_dir(models.join("c-folder.gguf")).expect("folder");
    #[cfg(unix)]
    std::os::unix::fs::symlink("/nowhere/x.gguf", models.join("d-dangling.gguf")).expect("link");
    let id = folder.conversation();
    assert_eq!(folder.send(&id, "hello")["model"], MODEL);
    for model in folder.json(&["models", "list"]) {
        let usable = model["name"] == MODEL;
        assert_eq!(model["usable"], usable, "{model}");
        assert_eq!(model["problem"].is_null(), usable, "{model}");
    }
}

#[test]
fn adding_a_model_changes_none_of_the_conversations() {
    let folder = Folder::with_model();
    let id = folder.conversation();
    folder.send(&id, "hello");
    let first = other(&folder, "elsewhere/Abc.gguf");
    assert_eq!(folder.last(&["models", "add", text(&first)])["added"], true);
    let second = folder.send(&id, "and you?");
    assert_eq!(second["model"], MODEL);
    assert!(counts(&second)[1] > 0, "nothing is computed anew: {second}");
    let new = folder.conversation();
    assert_eq!(folder.send(&new, "hello")["model"], MODEL);
    std::fs::remove_file(first).expect("removed");
    assert_eq!(folder.send(&new, "and you?")["model"], MODEL);
}

#[test]
fn a_model_is_removed_found_where_it_moved_and_added_by_any_spelling() {
    let folder = Folder::with_model();
    let old = other(&folder, "one/My Model.gguf");
    folder.last(&["models", "add", text(&old)]);
    let new = folder.path().join("two").join("My Model.gguf");
    std::fs::create_dir(folder.path().join("two")).expect("folder");
    std::fs::rename(&old, &new).expect("moved");
    let address = format!("file://{}", text(&new).replace(' ', "%20"));
    for spelling in [
        text(&new),
        &address,
        &format!(
            "{}/../two/My Model.gguf",
            text(folder.path().join("one").as_path())
        ),
    ] {
        let entry = folder.last(&["models", "add", spelling]);
        assert_eq!(
            (&entry["name"], &entry["path"]),
            (&"My Model".into(), &text(&new).into())
        );
    }
    assert_eq!(folder.json(&["models", "list"]).len(), 2);
    let home = folder
        .command(&["--json", "models", "add", "~/two/My Model.gguf"])
        .env("HOME", folder.path())
        .output()
        .expect("reprise-cli starts");
    if cfg!(unix) {
        assert!(
            home.status.success(),
            "{}",
            String::from_utf8_lossy(&home.stderr)
        );
    }

    assert_eq!(
        folder.last(&["models", "remove", "My Model"])["deleted"],
        false
    );
    assert!(new.exists(), "the file stays");
    assert_eq!(folder.json(&["models", "list"]).len(), 1);
    assert_eq!(
        code(&folder, &["models", "remove", "My Model"]),
        "model_missing"
    );
    assert_eq!(
        code(&folder, &["models", "remove", MODEL]),
        "invalid_argument"
    );
    assert!(folder.path().join("models/tiny.gguf").exists());
    let removed = folder.last(&["models", "remove", MODEL, "--delete-file"]);
    assert_eq!(removed["deleted"], true);
    assert!(!folder.path().join("models/tiny.gguf").exists());
}

#[test]
fn more_memory_than_there_is_can_be_allowed() {
    let folder = Folder::with_model();
    let id = folder.conversation();
    let most = u64::MAX.to_string();
    let finished = folder.last(&[
        "chat",
        "send",
        &id,
        "hello",
        "--greedy",
        "--max-tokens",
        "2",
        "--pool-bytes",
        &most,
    ]);
    assert_eq!(finished["event"], "finished");
}
