//! Memory from outside: what a model would take, how much it may take, and a running process that gives it back.

use std::io::BufRead;

use serde_json::Value;

use crate::support::{Folder, MODEL, lines, number};

#[test]
fn inspect_plans_the_memory_of_a_model_without_loading_it() {
    let folder = Folder::with_model();
    let inspected = folder.last(&["models", "inspect", MODEL, "--context", "100"]);
    assert!(inspected["architecture"].is_string(), "{inspected}");
    let plan = &inspected["plan"];
    // In whole blocks of 64 tokens.
    assert_eq!(number(plan, "context_tokens"), 100);
    let per_token = number(&plan["kv"], "bytes_per_token");
    assert_eq!(number(plan, "kv_bytes"), 128 * per_token);
    let parts = [
        "weights_bytes",
        "kv_bytes",
        "scratch_bytes",
        "runtime_bytes",
    ];
    let sum: u64 = parts.iter().map(|part| number(plan, part)).sum();
    assert_eq!(number(plan, "total_bytes"), sum);
    if cfg!(target_os = "linux") {
        assert_eq!(plan["verdict"]["verdict"], "fits", "{plan}");
    }
    let small = folder.last(&["models", "inspect", MODEL, "--pool-bytes", "1"]);
    assert_eq!(
        number(&small["plan"], "longest_context_tokens"),
        0,
        "{small}"
    );
    let text = folder.text(&["models", "inspect", MODEL]);
    for line in [
        "weights",
        "KV cache",
        "together",
        "longest",
        "working pool",
        "disk",
    ] {
        assert!(
            text.lines().any(|found| found.starts_with(line)),
            "{line}: {text}"
        );
    }
}

#[test]
fn a_pool_of_given_size_refuses_what_does_not_fit_with_the_numbers() {
    let folder = Folder::with_model();
    let id = folder.conversation();
    let words = "the cache of a token block ".repeat(40);
    // Three blocks: about 190 tokens, of which one block is for copying.
    let plan = &folder.last(&["models", "inspect", MODEL])["plan"];
    let pool = (3 * 64 * number(&plan["kv"], "bytes_per_token")).to_string();
    let output = folder.run(&["--json", "chat", "send", &id, &words, "--pool-bytes", &pool]);
    assert_eq!(output.status.code(), Some(1));
    let error = lines(&String::from_utf8_lossy(&output.stdout))
        .pop()
        .expect("a line");
    assert_eq!(error["code"], "memory_full", "{error}");
    let message = error["message"].as_str().expect("message");
    assert!(message.contains("MiB are free"), "{message}");
    assert_eq!(folder.messages(&id).len(), 1, "the words are kept");
}

#[test]
fn without_a_running_process_there_is_nothing_to_release_and_that_is_no_failure() {
    let folder = Folder::empty();
    for command in ["release", "memory"] {
        assert_eq!(folder.last(&["engine", command])["running"], false);
    }
    assert!(
        folder
            .text(&["engine", "release"])
            .starts_with("no Reprise is running on ")
    );
    // The lock was not taken and nothing was made.
    assert_eq!(std::fs::read_dir(folder.path()).expect("folder").count(), 0);
}

#[test]
fn a_command_that_is_writing_a_reply_is_reached_and_leaves_no_file() {
    let folder = Folder::with_model();
    let id = folder.conversation();
    let mut child = folder.start(&["--json", "chat", "send", &id, "hello", "--greedy"]);
    let stdout = std::io::BufReader::new(child.stdout.take().expect("piped"));
    let mut events = stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(&line.expect("line")).expect("JSON"));
    events
        .find(|event| event["event"] == "token")
        .expect("a token");
    let memory = folder.last(&["engine", "memory"]);
    // It may have ended in the meantime; then nobody was there.
    assert!(
        memory["model"] == MODEL || memory["running"] == false,
        "{memory}"
    );
    assert!(
        events
            .last()
            .is_some_and(|event| event["event"] == "finished")
    );
    assert!(child.wait().expect("ends").success());
    assert!(!folder.path().join("control.json").exists());
}

#[test]
fn a_model_can_take_its_whole_context_when_it_is_loaded() {
    let folder = Folder::with_model();
    let reserved = |folder: &Folder| {
        let inspected = folder.last(&["models", "inspect", MODEL]);
        number(&inspected["plan"], "reserved_bytes")
    };
    assert_eq!(reserved(&folder), 0);
    let told = folder.last(&["models", "reserve", MODEL, "at-once"]);
    assert_eq!(told["reserves_context"], true);
    let plan = &folder.last(&["models", "inspect", MODEL])["plan"];
    let tokens = number(plan, "model_context_tokens") + 64;
    let per_token = number(&plan["kv"], "bytes_per_token");
    assert_eq!(reserved(&folder), tokens * per_token);
    let id = folder.conversation();
    let pool = (4 * 64 * per_token).to_string();
    let output = folder.run(&[
        "--json",
        "chat",
        "send",
        &id,
        "hello",
        "--pool-bytes",
        &pool,
    ]);
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("it needs"), "{text}");
    folder.last(&["models", "reserve", MODEL, "as-used"]);
    folder.send(&id, "hello");
    assert_eq!(reserved(&folder), 0);
}
