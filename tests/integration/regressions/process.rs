//! The engine in a process of its own: the same words, and a fault of it costs a reply its end, never the window or a word.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use engine::{Engine, EngineProcess, Error, Turn, TurnEvent, TurnOptions};
use store::{DataFolder, History, MessageState, NewMessage, Passphrase, Role, Secret};
use tests::{Chat, Subject, engine_program, processes, prose};

const PATIENCE: Duration = Duration::from_secs(60);

fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn signal(signal: &str, pid: u32) {
    let status = Command::new("kill")
        .args([signal, &pid.to_string()])
        .status();
    assert!(
        status.is_ok_and(|status| status.success()),
        "kill {signal} {pid}"
    );
}

fn engine_of(chat: &Chat) -> Option<u32> {
    processes("reprise-engine", chat.home()).first().copied()
}

/// Starts a long reply and kills the engine with `how` when some of it is there: the words shown until then, and the end.
fn break_off(chat: &mut Chat, how: &str) -> (String, TurnEvent) {
    let events = chat.engine().submit(Turn::Send {
        conversation: chat.conversation.clone(),
        parent: None,
        text: "Tell me a very long story.".into(),
        options: TurnOptions {
            greedy: true,
            seed: None,
            max_tokens: Some(2000),
            ..TurnOptions::default()
        },
    });
    let mut shown = String::new();
    let mut last = None;
    for event in events {
        if let TurnEvent::Token { text, .. } = &event {
            shown.push_str(text);
            if shown.len() > 40 && last.is_none() {
                signal(how, engine_of(chat).expect("an engine"));
            }
        }
        if shown.len() > 40 {
            last = Some(event);
        }
    }
    (shown, last.expect("events"))
}

#[test]
fn an_engine_in_its_own_process_says_what_one_in_this_process_says() {
    let mut chat = Chat::new(Subject::Real);
    let text = prose(0, 150);
    let here = chat.say(&text);
    chat.restart_apart();
    let conversation = chat.new_conversation("");
    let there = chat.say_in(&conversation, &text);
    assert_eq!(there.text, here.text);
    assert_eq!(there.prompt_tokens, here.prompt_tokens);
    let prefill = there.prefill;
    assert_eq!(prefill.restored, here.prefill.computed - 1, "{prefill:?}");
    assert!(chat.engine().loaded().unwrap().is_some());
    assert!(chat.engine().memory().unwrap().weights_bytes > 80 << 20);
}

#[test]
fn law_6_an_engine_killed_in_mid_reply_starts_again_and_the_next_turn_restores() {
    let mut chat = Chat::new(Subject::Real);
    chat.restart_apart();
    let first = chat.say(&prose(0, 200));
    // What is new goes to disk when the turn has ended.
    let whole_blocks = u64::from(first.prefill.computed / 64);
    wait_for("the first turn is saved", || {
        chat.engine().cache_stats().unwrap().num_blocks >= whole_blocks
    });
    let before = engine_of(&chat);
    let (shown, end) = break_off(&mut chat, "-KILL");
    assert!(
        matches!(&end, TurnEvent::Error { code, .. } if code == "engine_restarted"),
        "{end:?}"
    );
    let reply = chat.messages().pop().expect("a reply");
    assert_eq!(reply.state, MessageState::Interrupted);
    assert!(reply.text.starts_with(&shown), "{shown:?} {:?}", reply.text);
    assert_ne!(engine_of(&chat), before);

    let next = chat.say("And then?");
    assert!(
        next.prefill.restored >= first.prefill.computed / 64 * 64,
        "{next:?}"
    );
    chat.stop();
    assert_eq!(engine_of(&chat), None);
}

#[test]
fn questions_asked_while_the_engine_is_away_are_answered_when_it_is_back() {
    let mut chat = Chat::new(Subject::TINY);
    chat.restart_apart();
    chat.say("Hello");
    for _ in 0..2 {
        signal("-KILL", engine_of(&chat).expect("an engine"));
        assert!(chat.engine().memory().unwrap().machine.is_some());
        assert!(
            chat.engine()
                .context(chat.conversation.clone())
                .unwrap()
                .used
                > 0
        );
    }
}

#[test]
fn a_message_sent_while_the_engine_is_away_is_answered_and_stored_once() {
    let mut chat = Chat::new(Subject::TINY);
    chat.restart_apart();
    chat.say("Hello");
    for text in ["And then?", "And after that?"] {
        signal("-KILL", engine_of(&chat).expect("an engine"));
        let reply = chat.say(text);
        assert_eq!(reply.state, MessageState::Length);
    }
    // Its words were stored, and then the engine was gone before it said so.
    let leaf = chat.shown().pop().expect("a reply").id;
    let new = NewMessage {
        conversation: chat.conversation.clone(),
        parent: Some(leaf),
        role: Role::User,
        text: "Hello again".into(),
        state: MessageState::Complete,
        model: None,
        edited_from: None,
    };
    let waiting = chat.history().append_message(new, 1).expect("stored").id;
    let conversation = chat.conversation.clone();
    let pointed = chat
        .history()
        .set_active_leaf(&conversation, Some(&waiting));
    pointed.expect("the newest");
    chat.say("Hello again");
    let said = |text: &str| chat.messages().iter().filter(|it| it.text == text).count();
    let counts = ["Hello", "And then?", "And after that?", "Hello again"].map(said);
    assert_eq!(counts, [1; 4]);
    // It has its reply now; the same words are a new message.
    chat.say("Hello again");
    assert_eq!(
        chat.messages()
            .iter()
            .filter(|it| it.text == "Hello again")
            .count(),
        2
    );
}

#[test]
fn an_engine_told_to_end_by_a_signal_saves_and_is_started_again() {
    let mut chat = Chat::new(Subject::Real);
    chat.restart_apart();
    let first = chat.say(&prose(0, 200));
    let before = engine_of(&chat).expect("an engine");
    signal("-TERM", before);
    wait_for("another engine", || {
        engine_of(&chat).is_some_and(|pid| pid != before)
    });
    let second = chat.say("And then?");
    assert!(
        second.prefill.restored >= first.prefill.computed,
        "{second:?}"
    );
}

#[test]
fn both_processes_go_on_with_the_same_history_when_its_encryption_changes() {
    let mut chat = Chat::new(Subject::TINY);
    chat.restart_apart();
    chat.say("Hello");
    let passphrase = Passphrase::from("correct horse battery".to_owned());
    let secret = Secret::Passphrase {
        passphrase: passphrase.clone(),
    };
    // As the window does it.
    let change = |chat: &Chat, ask: &dyn Fn(&Engine) -> engine::Result<engine::PrivacyState>| {
        let mut history = chat.history();
        history.set_aside().expect("set aside");
        let changed = ask(chat.engine());
        history.take_up(Some(&passphrase)).expect("taken up");
        changed
    };
    change(&chat, &|engine| engine.protect(secret.clone())).expect("encrypted");
    chat.say("And then?");
    assert_eq!(
        chat.messages().len(),
        4,
        "this process reads what the other wrote"
    );
    assert!(
        change(&chat, &|engine| engine.protect(secret.clone())).is_err(),
        "it is already"
    );

    signal("-KILL", engine_of(&chat).expect("an engine"));
    chat.engine().memory().expect("another engine");
    chat.say("And after that?");
    assert_eq!(
        chat.messages().len(),
        6,
        "one that is started again can unlock it"
    );

    change(&chat, &Engine::unprotect).expect("decrypted");
    chat.say("The end?");
    assert_eq!(chat.messages().len(), 8);
    wait_for("the change ends", || {
        chat.engine().privacy().expect("state").unlocks.is_none()
    });
    chat.restart();
    assert_eq!(chat.messages().len(), 8);
}

#[test]
fn a_parent_that_goes_away_leaves_no_engine_behind() {
    let chat = Chat::new(Subject::TINY);
    let start = |home: &Path| -> Child {
        Command::new(engine_program())
            .args(["--threads", "1", "--data-dir"])
            .arg(home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("an engine")
    };
    let mut closed = start(chat.home());
    let mut stdin = closed.stdin.take().expect("a stream");
    let opening = br#"{"passphrases":[]}"#;
    let length = (opening.len() as u32).to_le_bytes();
    stdin.write_all(&length).expect("it listens");
    stdin.write_all(opening).expect("it listens");
    drop(stdin);
    assert!(
        closed.wait().expect("its end").success(),
        "a closed stream is an end as any"
    );

    // A parent that dies while another process still holds the stream: a shell that started it.
    let held = "{ printf '\\022\\000\\000\\000{\"passphrases\":[]}'; sleep 1000; } | { \"$0\" --threads 1 --data-dir \"$1\"; :; }";
    let mut shell = Command::new("sh")
        .args(["-c", held])
        .arg(engine_program())
        .arg(chat.home())
        .process_group_of_its_own()
        .stdout(Stdio::null())
        .spawn()
        .expect("a shell");
    wait_for("the engine runs", || engine_of(&chat).is_some());
    let engine = engine_of(&chat).expect("an engine");
    let parent = parent_of(engine);
    signal("-KILL", parent);
    wait_for("the engine has ended", || engine_of(&chat).is_none());
    signal_group("-KILL", shell.id());
    let _ = shell.wait();
}

/// A shell's children are found and ended by their group.
trait OwnGroup {
    fn process_group_of_its_own(&mut self) -> &mut Self;
}

impl OwnGroup for Command {
    fn process_group_of_its_own(&mut self) -> &mut Self {
        std::os::unix::process::CommandExt::process_group(self, 0)
    }
}

fn signal_group(signal: &str, leader: u32) {
    // Some of it has ended already.
    let _ = Command::new("kill")
        .args([signal, "--", &format!("-{leader}")])
        .status();
}

fn parent_of(pid: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = status
        .lines()
        .find(|line| line.starts_with("PPid:"))
        .expect("a parent");
    line["PPid:".len()..].trim().parse().expect("a number")
}

#[test]
fn an_engine_that_cannot_be_had_says_why() {
    let home = tempfile::tempdir().expect("folder");
    let folder = DataFolder::open(Some(home.path().to_owned())).expect("data folder");
    let start = |program: &Path| {
        Engine::spawn(EngineProcess {
            program: program.to_owned(),
            data_folder: home.path().to_owned(),
            threads: 1,
            passphrase: None,
        })
        .map(drop)
        .expect_err("no engine")
    };
    let missing = start(&home.path().join("nothing"));
    assert_eq!(missing.code(), "engine_unavailable");
    assert!(
        missing.to_string().contains("install Reprise again"),
        "{missing}"
    );

    let Error::Remote { message, .. } = start(&engine_program()) else {
        panic!("there is no history");
    };
    assert!(!message.is_empty());

    drop(History::open(&folder.history_path()).expect("history"));
    let foreign = home.path().join("foreign");
    let hello = r#"{"reply":"hello","protocol":1,"version":"0.0.0"}"#;
    let length = format!("\\{:03o}\\000\\000\\000", hello.len());
    std::fs::write(
        &foreign,
        format!("#!/bin/sh\nprintf '{length}%s' '{hello}'\nsleep 100\n"),
    )
    .unwrap();
    std::fs::set_permissions(&foreign, std::fs::Permissions::from_mode(0o700)).unwrap();
    let other = start(&foreign);
    assert!(other.to_string().contains("of version 0.0.0"), "{other}");
}
