//! A reply that was cut in any way and continued equals the reply that was not cut.

use engine::TurnEvent;
use store::{Format, MessageState, Sampling, TokenRow};
use tests::{Chat, Cli, Outcome, Subject};

/// Most tokens of the reply.
const MOST: u32 = 24;

/// Text that the default model is asked to repeat: characters of several tokens, alone and combined.
const WORDS: [&str; 4] = [
    "你好，世界。编译器很有趣。",
    "👨‍👩‍👧‍👦🚀🔥💡",
    "e\u{301}\u{323}a\u{308}o\u{302}\u{301}",
    "สวัสดีชาวโลก",
];

fn with_stops(chat: &Chat, stops: &[&str]) {
    let sampling = Sampling {
        stop: stops.iter().map(|stop| (*stop).to_owned()).collect(),
        ..Sampling::default()
    };
    chat.history()
        .set_sampling(&chat.conversation, &sampling)
        .expect("sampling");
}

/// The reply cut after `cut` tokens, and the same reply continued to the length of the whole one.
fn cut_and_continued(chat: &mut Chat, whole: &Outcome, cut: u32) -> (Outcome, Outcome) {
    chat.max_tokens = cut;
    let stopped = chat.regenerate(&whole.message);
    chat.max_tokens = MOST - cut;
    let continued = chat.go_on(&stopped.message);
    (stopped, continued)
}

#[test]
fn a_reply_cut_anywhere_and_continued_equals_the_one_that_was_not_cut() {
    let mut num_halves = 0;
    for words in WORDS {
        let mut chat = Chat::new(Subject::Real);
        chat.max_tokens = MOST;
        let whole = chat.say(&format!("Repeat exactly: {words}"));
        for cut in 1..(whole.ids.len() as u32).min(MOST) {
            let (stopped, continued) = cut_and_continued(&mut chat, &whole, cut);
            assert!(whole.text.starts_with(&stopped.text), "{:?}", stopped.text);
            // The ids end inside a character, which is not shown yet.
            num_halves += usize::from(chat.decoded(&stopped.ids).ends_with('\u{fffd}'));
            assert_eq!(continued.ids, whole.ids, "{words} cut at {cut}");
            assert_eq!(continued.text, whole.text, "{words} cut at {cut}");
            let message = chat.history().message(&continued.message).expect("reply");
            assert_eq!(message.text, whole.text, "{words} cut at {cut}");
        }
    }
    assert!(num_halves > 10, "{num_halves}");
}

/// A stop string: characters of several tokens.
fn middle_of(text: &str) -> String {
    let num_chars = text.chars().count();
    assert!(num_chars > 5, "{text:?}");
    text.chars().skip(num_chars / 2).take(3).collect()
}

#[test]
fn a_stop_string_over_the_cut_ends_the_reply_as_without_the_cut() {
    let mut chat = Chat::new(Subject::TINY);
    chat.max_tokens = MOST;
    let free = chat.say("hello world");
    let stop = middle_of(&free.text);
    with_stops(&chat, &[&stop, "🔥x"]);
    let whole = chat.regenerate(&free.message);
    assert_eq!(whole.state, MessageState::Complete);
    assert!(whole.ids.len() > 4 && !whole.text.contains(&stop));
    for cut in 1..whole.ids.len() as u32 {
        let (stopped, continued) = cut_and_continued(&mut chat, &whole, cut);
        assert_eq!(stopped.state, MessageState::Length);
        assert_eq!(
            (continued.state, &continued.ids, &continued.text),
            (MessageState::Complete, &whole.ids, &whole.text),
            "cut at {cut}"
        );
    }
}

#[test]
fn a_reply_that_was_stored_with_half_a_character_is_whole_when_it_goes_on() {
    let mut chat = Chat::new(Subject::TINY);
    chat.max_tokens = MOST;
    let whole = chat.say("hello world");
    let mut num_broken = 0;
    for cut in 1..7 {
        chat.max_tokens = cut;
        let stopped = chat.regenerate(&whole.message);
        // As an earlier version stored it.
        let text = chat.decoded(&stopped.ids);
        num_broken += usize::from(text.ends_with('\u{fffd}'));
        let row = TokenRow {
            tokenizer: Subject::TINY.tokenizer(),
            ids: stopped.ids,
        };
        {
            let mut history = chat.history();
            history
                .reopen_reply(&stopped.message, &text, None, &row)
                .expect("open");
            history
                .finish_reply(&stopped.message, &text, &row, MessageState::Stopped, None)
                .expect("stored");
        }
        chat.max_tokens = MOST - cut;
        let healed = chat.go_on(&stopped.message);
        assert_eq!(healed.text, whole.text, "cut at {cut}");
        let exported = chat.history().export(&chat.conversation, Format::Json);
        assert!(exported.is_ok());
    }
    assert!(num_broken > 2, "{num_broken}");
}

#[test]
fn a_reply_killed_at_any_moment_and_continued_is_whole() {
    let text = format!("Repeat exactly: {}", WORDS[1]);
    let mut chat = Chat::new(Subject::Real);
    chat.max_tokens = MOST;
    let whole = chat.say(&text);
    for kill_after in 1..5 {
        let home = tempfile::tempdir().expect("folder");
        Subject::Real.install(&home.path().join("models"));
        let cli = Cli::new(home.path());
        let lines = cli.run(&["chat", "new"]);
        let id = lines[0]["conversation"].as_str().expect("id").to_owned();
        let most = MOST.to_string();
        let mut running = cli.start(&[
            "chat",
            "send",
            &id,
            &text,
            "--greedy",
            "--max-tokens",
            &most,
        ]);
        let tokens = running.by_ref().filter(|event| event["event"] == "token");
        assert_eq!(tokens.take(kill_after).count(), kill_after);
        running.kill();
        let mut killed = Chat::resume(Subject::Real, home.path(), &id);
        let reply = killed.messages().pop().expect("reply");
        assert_eq!(reply.state, MessageState::Interrupted);
        assert!(whole.text.starts_with(&reply.text), "{:?}", reply.text);
        killed.max_tokens = MOST - killed.tokens(&reply.id).len() as u32;
        let continued = killed.go_on(&reply.id);
        assert_eq!(
            continued.text, whole.text,
            "killed after {kill_after} pieces"
        );
    }
}

#[test]
fn the_window_is_told_the_text_that_a_continued_reply_begins_with() {
    let mut chat = Chat::new(Subject::TINY);
    chat.max_tokens = MOST;
    let free = chat.say("hello world");
    with_stops(&chat, &[&middle_of(&free.text)]);
    chat.max_tokens = 5;
    let stopped = chat.regenerate(&free.message);
    chat.max_tokens = MOST;
    let events = chat.try_to_go_on(&stopped.message);
    let mut shown = None;
    for event in &events {
        match event {
            TurnEvent::Started {
                reply: Some(reply), ..
            } => shown = Some(reply.text.clone()),
            TurnEvent::Token { text } => shown.as_mut().expect("started").push_str(text),
            _ => {}
        }
    }
    assert_eq!(shown.as_ref(), Some(&chat.outcome(&events).text));
}
