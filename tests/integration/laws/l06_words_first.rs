//! Law 6: the user's message is durable before the model runs; a stopped or killed reply keeps what was shown.

use engine::{Turn, TurnEvent, TurnOptions};
use serde_json::Value;
use store::{History, MessageState, Role};
use tests::{Chat, Cli, Running, Subject, prose};

fn send(chat: &Chat, text: &str, max_tokens: u32) -> Turn {
    Turn::Send {
        conversation: chat.conversation.clone(),
        parent: None,
        text: text.to_owned(),
        options: TurnOptions {
            greedy: true,
            seed: None,
            max_tokens: Some(max_tokens),
            ..TurnOptions::default()
        },
    }
}

#[test]
fn the_users_words_are_on_disk_when_the_turn_begins() {
    let chat = Chat::new(Subject::TINY);
    let mut events = chat.engine().submit(send(&chat, "Remember me.", 4));
    let Some(TurnEvent::Started {
        user: Some(user), ..
    }) = events.next()
    else {
        panic!("the turn starts")
    };
    // A second reader of the file, as after a crash.
    let copy = tempfile::tempdir().expect("folder");
    for file in std::fs::read_dir(chat.home()).expect("folder").flatten() {
        if file.file_name().to_string_lossy().starts_with("history") {
            std::fs::copy(file.path(), copy.path().join(file.file_name())).expect("copy");
        }
    }
    let folder = store::DataFolder::open(Some(copy.path().to_owned())).expect("folder");
    let history = History::open(&folder.history_path()).expect("history");
    assert_eq!(
        history.message(&user.id).expect("message").text,
        "Remember me."
    );
    events.for_each(drop);
}

#[test]
fn words_are_stored_while_the_model_is_still_loading() {
    let mut chat = Chat::new(Subject::Real);
    let other = chat.new_conversation("");
    chat.restart();
    let mut first = chat.engine().submit(send(&chat, "Hello.", 1));
    let stored = |event| matches!(event, Some(TurnEvent::Started { user: Some(_), .. }));
    assert!(stored(first.next()), "the first turn starts");
    let mut second = chat.engine().submit(Turn::Send {
        conversation: other.clone(),
        parent: None,
        text: "Remember me.".to_owned(),
        options: TurnOptions::default(),
    });
    assert!(stored(second.next()), "the second turn starts");
    let roles = |conversation| {
        let messages = chat.history().messages(conversation).expect("messages");
        messages.iter().map(|it| it.role).collect::<Vec<_>>()
    };
    // A reply needs the model, so that none has begun.
    assert_eq!(roles(&chat.conversation), [Role::User]);
    assert_eq!(roles(&other), [Role::User]);
    for conversation in [&chat.conversation, &other] {
        chat.engine().cancel(conversation.clone()).expect("cancel");
    }
    first.for_each(drop);
    second.for_each(drop);
}

#[test]
fn a_stopped_reply_keeps_what_was_shown_and_goes_on() {
    let mut chat = Chat::new(Subject::TINY);
    let mut shown = String::new();
    let mut all = Vec::new();
    for event in chat.engine().submit(send(&chat, &prose(0, 60), 4000)) {
        if let TurnEvent::Token { text } = &event {
            shown.push_str(text);
            chat.engine()
                .cancel(chat.conversation.clone())
                .expect("cancel");
        }
        all.push(event);
    }
    let stopped = chat.outcome(&all);
    assert_eq!(stopped.state, MessageState::Stopped);
    assert_eq!(stopped.text, shown);
    assert!(!shown.is_empty() && stopped.ids.len() < 4000);
    let longer = chat.go_on(&stopped.message);
    assert_eq!(longer.message, stopped.message);
    assert!(longer.text.starts_with(&shown) && longer.ids.len() > stopped.ids.len());
    assert!(longer.prefill.computed <= 1, "{:?}", longer.prefill);
}

#[test]
fn a_stop_while_reading_keeps_the_finished_chunks() {
    let mut chat = Chat::new(Subject::TINY);
    let mut all = Vec::new();
    for event in chat.engine().submit(send(&chat, &prose(0, 800), 4)) {
        if matches!(&event, TurnEvent::Prefill { done, .. } if *done > 0) {
            chat.engine()
                .cancel(chat.conversation.clone())
                .expect("cancel");
        }
        all.push(event);
    }
    let stopped = chat.outcome(&all);
    assert_eq!(
        (stopped.state, stopped.text.as_str()),
        (MessageState::Stopped, "")
    );
    let read = stopped.prefill.computed;
    assert!(
        read > 0 && read < stopped.prompt_tokens,
        "{:?}",
        stopped.prefill
    );
    let again = chat.regenerate(&stopped.message);
    assert_eq!(
        again.prefill.resident, read,
        "what was read is not read again"
    );
}

#[test]
fn requests_that_make_no_sense_store_nothing() {
    let chat = Chat::new(Subject::TINY);
    let events: Vec<_> = chat.engine().submit(send(&chat, "  \n ", 4)).collect();
    assert!(
        matches!(&events[..], [TurnEvent::Error { code, .. }] if code == "invalid_argument"),
        "{events:?}"
    );
    assert!(chat.messages().is_empty());
}

#[test]
fn a_full_context_is_an_event_with_choices_and_keeps_the_words() {
    let chat = Chat::new(Subject::TINY);
    let text = prose(0, 5000);
    let events: Vec<_> = chat.engine().submit(send(&chat, &text, 4)).collect();
    let Some(TurnEvent::ContextFull {
        needed_tokens,
        limit_tokens,
        choices,
        ..
    }) = events.last()
    else {
        panic!("{events:?}")
    };
    assert!(needed_tokens > limit_tokens && !choices.is_empty());
    assert_eq!(chat.messages()[0].text, text);
}

/// A conversation of a `reprise-cli` over the subject's model.
struct Killed {
    home: tempfile::TempDir,
    subject: Subject,
    conversation: String,
}

impl Killed {
    fn new(subject: Subject) -> Self {
        let home = tempfile::tempdir().expect("folder");
        subject.install(&home.path().join("models"));
        let lines = Cli::new(home.path()).run(&["chat", "new"]);
        let conversation = lines[0]["conversation"].as_str().expect("id").to_owned();
        Self {
            home,
            subject,
            conversation,
        }
    }

    fn send<'a>(&'a self, text: &'a str, max_tokens: &'a str) -> Vec<&'a str> {
        vec![
            "chat",
            "send",
            &self.conversation,
            text,
            "--greedy",
            "--max-tokens",
            max_tokens,
        ]
    }

    fn start(&self, text: &str, max_tokens: &str) -> Running {
        Cli::new(self.home.path()).start(&self.send(text, max_tokens))
    }

    fn reopen(&self) -> Chat {
        Chat::resume(self.subject, self.home.path(), &self.conversation)
    }
}

fn is(event: &Value, name: &str) -> bool {
    event["event"] == name
}

fn killed_while_writing(subject: Subject, num_tokens: usize) {
    let killed = Killed::new(subject);
    let mut running = killed.start(&prose(0, 80), "4000");
    let mut shown = String::new();
    let mut pieces = 0;
    for event in running.by_ref() {
        if is(&event, "token") {
            shown.push_str(event["text"].as_str().expect("text"));
            pieces += 1;
            if pieces == num_tokens {
                break;
            }
        }
    }
    running.kill();
    let mut chat = killed.reopen();
    let reply = chat
        .messages()
        .into_iter()
        .find(|message| message.role == Role::Assistant)
        .expect("reply");
    assert_eq!(reply.state, MessageState::Interrupted);
    assert!(
        reply.text.starts_with(&shown),
        "shown {shown:?}, kept {:?}",
        reply.text
    );
    // Going on equals a cold run over the same words.
    let mut cold = chat.without_cache();
    let (warm, cold) = (chat.go_on(&reply.id), cold.go_on(&reply.id));
    assert_eq!(warm.ids, cold.ids);
    assert!(warm.text.starts_with(&reply.text));
}

#[test]
fn a_reply_that_was_killed_keeps_what_was_shown() {
    for num_tokens in [1, 5, 70, 140] {
        killed_while_writing(Subject::TINY, num_tokens);
    }
}

#[test]
fn a_reply_that_was_killed_keeps_what_was_shown_on_the_default_model() {
    killed_while_writing(Subject::Real, 12);
}

#[test]
fn a_kill_while_saving_resumes_to_the_same_tokens() {
    // The process ends by itself or is killed at some moment around saving: nothing but the cost may differ.
    for delay_ms in [0, 1, 3, 6, 10, 20, 40] {
        let killed = Killed::new(Subject::TINY);
        let mut running = killed.start(&prose(0, 400), "3");
        for event in running.by_ref() {
            if is(&event, "finished") || is(&event, "token") {
                break;
            }
        }
        std::thread::sleep(std::time::Duration::from_millis(delay_ms));
        running.kill();
        let mut chat = killed.reopen();
        let user = chat.messages()[0].id.clone();
        let mut cold = chat.without_cache();
        assert_eq!(
            chat.regenerate(&user).ids,
            cold.regenerate(&user).ids,
            "killed after {delay_ms} ms"
        );
    }
}
