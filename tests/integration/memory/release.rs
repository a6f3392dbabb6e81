//! Giving memory back: asked for, from outside, and after a while; and that it costs no token.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use engine::{Engine, EngineConfig, MemoryLimits};
use models::Architecture;
use store::{BlockStore, Budget, DataFolder, History};
use tests::{Chat, Cli, Outcome, Subject, prose};

/// The last of three greedy replies; memory is given back before it, or not.
fn last_reply(subject: Subject, release: bool) -> Outcome {
    let mut chat = Chat::new(subject);
    chat.say(&prose(0, 120));
    chat.say(&prose(1, 60));
    if release {
        let released = chat.engine().release().expect("release");
        assert!(released.was_loaded);
        assert_eq!(chat.engine().loaded().expect("engine"), None);
    }
    chat.say("And then?")
}

#[test]
fn a_release_in_the_middle_changes_no_token_and_reads_nothing_again() {
    for subject in [
        Subject::Real,
        Subject::Tiny(Architecture::Llama, 3),
        Subject::Tiny(Architecture::Qwen3, 3),
    ] {
        let (kept, released) = (last_reply(subject, false), last_reply(subject, true));
        assert_eq!(released.ids, kept.ids, "{subject:?}");
        assert_eq!(released.text, kept.text, "{subject:?}");
        assert_eq!(
            released.prefill.computed, kept.prefill.computed,
            "{subject:?}"
        );
        assert_eq!(
            released.prefill.restored, kept.prefill.resident,
            "{subject:?}"
        );
    }
}

#[test]
fn nothing_loaded_is_nothing_given_back() {
    let chat = Chat::new(Subject::TINY);
    let released = chat.engine().release().expect("release");
    assert!(
        !released.was_loaded && released.freed_bytes == 0,
        "{released:?}"
    );
}

#[test]
fn the_command_line_reaches_a_running_engine_and_says_when_there_is_none() {
    let mut chat = Chat::new(Subject::TINY);
    let cli = Cli::new(chat.home());
    let last = |words: &[&str]| cli.run(words).pop().expect("a line");
    assert_eq!(last(&["engine", "release"])["running"], false);

    let control = chat.engine().listen(chat.home()).expect("listens");
    chat.say(&prose(0, 100));
    let memory = last(&["engine", "memory"]);
    assert!(
        memory["model"].is_string() && memory["pool"]["cached_bytes"].as_u64() > Some(0),
        "{memory}"
    );
    let released = last(&["engine", "release"]);
    assert_eq!(
        (&released["running"], &released["was_loaded"]),
        (&true.into(), &true.into())
    );
    assert!(released["freed_bytes"].is_u64(), "{released}");
    assert_eq!(chat.engine().loaded().expect("engine"), None);
    assert!(last(&["engine", "memory"])["model"].is_null());

    drop(control);
    assert_eq!(last(&["engine", "memory"])["running"], false);
    let next = chat.say("And then?");
    assert!(next.prefill.restored > 100, "{next:?}");
}

/// The clock of the engine below, in Unix milliseconds.
static NOW_MS: AtomicI64 = AtomicI64::new(1_700_000_000_000);

#[test]
fn an_idle_model_is_given_back_and_looking_at_memory_is_no_use_of_it() {
    let home = tempfile::tempdir().expect("folder");
    Subject::TINY.install(&home.path().join("models"));
    let folder = DataFolder::open(Some(home.path().to_owned())).expect("data folder");
    let history = History::open(&folder.history_path()).expect("history");
    let limits = |idle_minutes| MemoryLimits {
        idle_minutes,
        ..MemoryLimits::pool(64 << 20)
    };
    let config = EngineConfig {
        models_folder: folder.models_path(),
        digests: None,
        limits: limits(Some(15)),
        threads: 1,
        clock: || NOW_MS.load(Ordering::SeqCst),
    };
    let store = BlockStore::open(&folder.kv_path(), Budget::Bytes(1 << 30));
    let engine = Engine::start(config, Arc::new(Mutex::new(history)), store).expect("engine");
    let is_loaded_after = |minutes: i64| {
        NOW_MS.fetch_add(minutes * 60_000, Ordering::SeqCst);
        engine.memory().expect("memory").model.is_some()
    };
    engine.load(None).expect("model");
    assert!(is_loaded_after(0));
    assert!(is_loaded_after(14));
    assert!(!is_loaded_after(1), "looking did not keep it");

    engine.load(None).expect("model");
    assert!(is_loaded_after(14));
    engine.load(None).expect("model");
    assert!(is_loaded_after(14), "a use did");

    engine.limit(limits(None)).expect("limits");
    assert!(is_loaded_after(1_000_000), "never means never");
}
