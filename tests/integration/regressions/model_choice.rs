//! The model that answers: the conversation's own, or a fallback, which is reported.

use engine::{Turn, TurnEvent, TurnOptions};
use models::Architecture;
use store::ConversationId;
use tests::{Chat, Outcome, Subject, prose};

const FIRST: Subject = Subject::Tiny(Architecture::Llama, 1);
const SECOND: Subject = Subject::Tiny(Architecture::Llama, 2);

/// The model that wrote a reply, from the history.
fn writer(chat: &Chat, outcome: &Outcome) -> String {
    let message = chat.history().message(&outcome.message).expect("reply");
    message.model.expect("a model")
}

fn model_of(chat: &Chat, conversation: &ConversationId) -> Option<String> {
    let conversation = chat.history().conversation(conversation);
    conversation.expect("conversation").model
}

fn choose(chat: &Chat, model: &str) {
    let conversation = chat.conversation.clone();
    chat.history()
        .set_model(&conversation, Some(model))
        .expect("model");
}

/// The `ModelFallback` events: wanted model, code, answering model.
fn fallbacks(events: &[TurnEvent]) -> Vec<(String, String, String)> {
    let of = |event: &TurnEvent| match event {
        TurnEvent::ModelFallback {
            wanted,
            code,
            model,
            reason,
        } => {
            assert!(!reason.is_empty());
            Some((wanted.clone(), code.clone(), model.clone()))
        }
        _ => None,
    };
    events.iter().filter_map(of).collect()
}

#[test]
fn a_conversation_keeps_the_model_that_first_answered_in_it() {
    let mut chat = Chat::new(SECOND);
    let first = chat.say("hello");
    assert_eq!(writer(&chat, &first), "tiny-2");
    assert_eq!(
        model_of(&chat, &chat.conversation).as_deref(),
        Some("tiny-2")
    );
    // It sorts before the other.
    FIRST.install(&chat.home().join("models"));
    chat.restart();
    let second = chat.say("and again");
    assert_eq!(writer(&chat, &second), "tiny-2");
    // A new conversation keeps the default as well: an added file changes only the list.
    let other = chat.new_conversation("");
    let third = chat.say_in(&other, "hello");
    assert_eq!(writer(&chat, &third), "tiny-2");
}

#[test]
fn each_turn_may_have_another_model_and_each_reply_says_which_wrote_it() {
    let mut chat = Chat::new(FIRST);
    SECOND.install(&chat.home().join("models"));
    let first = chat.say("hello");
    choose(&chat, "tiny-2");
    let second = chat.say("and you?");
    choose(&chat, "tiny-1");
    let third = chat.say("and again?");
    let wrote: Vec<_> = [&first, &second, &third]
        .map(|outcome| writer(&chat, outcome))
        .to_vec();
    assert_eq!(wrote, ["tiny-1", "tiny-2", "tiny-1"]);
    let events = chat.try_to_say("last");
    let Some(TurnEvent::Finished { model, .. }) = events.last() else {
        panic!("{events:?}");
    };
    assert_eq!(model.as_deref(), Some("tiny-1"));
    assert!(fallbacks(&events).is_empty());
}

#[test]
fn a_model_that_is_gone_is_said_and_the_chosen_one_goes_on_with_the_same_words() {
    let mut chat = Chat::new(FIRST);
    SECOND.install(&chat.home().join("models"));
    choose(&chat, "tiny-2");
    let first = chat.say(&prose(0, 150));
    std::fs::remove_file(chat.home().join("models/tiny-2.gguf")).expect("removed");
    chat.restart();
    // Opening the conversation is not a turn and changes nothing.
    chat.engine()
        .open(Some(chat.conversation.clone()))
        .expect("open");
    chat.engine().loaded().expect("loaded");
    assert_eq!(
        model_of(&chat, &chat.conversation).as_deref(),
        Some("tiny-2")
    );

    let events = chat.try_to_say("And then?");
    let (wanted, code, model) = fallbacks(&events).pop().expect("it is said");
    assert_eq!((wanted.as_str(), model.as_str()), ("tiny-2", "tiny-1"));
    assert_eq!(code, "model_missing");
    let second = chat.outcome(&events);
    assert_eq!(writer(&chat, &second), "tiny-1");
    assert_eq!(
        second.prefill.computed, second.prompt_tokens,
        "no block of the other fingerprint is used"
    );
    assert_eq!(chat.shown()[1].text, first.text, "words are kept");
    let events = chat.try_to_say("Once more.");
    assert!(fallbacks(&events).is_empty(), "said once: {events:?}");
    assert!(chat.outcome(&events).prefill.resident > 100);
}

#[test]
fn a_reply_of_a_model_that_is_gone_is_written_again_and_goes_on() {
    let mut chat = Chat::new(FIRST);
    SECOND.install(&chat.home().join("models"));
    choose(&chat, "tiny-2");
    let first = chat.say("hello there");
    std::fs::write(chat.home().join("models/tiny-2.gguf"), b"GGUF").expect("broken");
    chat.restart();
    let events: Vec<_> = chat
        .engine()
        .submit(Turn::Continue {
            conversation: chat.conversation.clone(),
            message: first.message.clone(),
            options: TurnOptions {
                greedy: true,
                seed: None,
                max_tokens: Some(4),
                ..TurnOptions::default()
            },
        })
        .collect();
    assert_eq!(fallbacks(&events).len(), 1, "{events:?}");
    let gone_on = chat.outcome(&events);
    assert_eq!(writer(&chat, &gone_on), "tiny-1");
    assert!(gone_on.text.starts_with(&first.text) && gone_on.text != first.text);
    let again = chat.regenerate(&first.message);
    assert_eq!(writer(&chat, &again), "tiny-1");
}

#[test]
fn files_that_cannot_be_used_stop_no_conversation() {
    let mut chat = Chat::new(FIRST);
    let models = chat.home().join("models");
    let whole = std::fs::read(models.join("tiny-1.gguf")).expect("model");
    std::fs::write(models.join("a-partial.gguf"), &whole[..whole.len() / 3]).expect("partial");
    std::fs::write(models.join("a-empty.gguf"), "").expect("empty");
    std::fs::create_dir(models.join("a-folder.gguf")).expect("folder");
    chat.restart();
    let loaded = chat.engine().load(None).expect("the window's start");
    assert_eq!(loaded.expect("a model").name, "tiny-1");
    let events = chat.try_to_say("hello");
    assert!(
        fallbacks(&events).is_empty(),
        "nobody wanted another: {events:?}"
    );
    let outcome = chat.outcome(&events);
    assert_eq!(writer(&chat, &outcome), "tiny-1");
}

#[test]
fn without_any_model_the_words_are_kept_and_a_model_that_comes_answers_them() {
    let mut chat = Chat::new(FIRST);
    choose(&chat, "gone");
    let models = chat.home().join("models");
    std::fs::remove_file(models.join("tiny-1.gguf")).expect("removed");
    let events = chat.try_to_say("hello");
    let Some(TurnEvent::Error { code, .. }) = events.last() else {
        panic!("{events:?}");
    };
    assert_eq!(code, "model_missing");
    FIRST.install(&models);
    let user = chat.messages()[0].id.clone();
    let answered = chat.regenerate(&user);
    assert_eq!(writer(&chat, &answered), "tiny-1");
    assert_eq!(chat.messages()[0].text, "hello");
}

#[test]
fn pointing_at_a_conversation_of_another_model_leaves_the_loaded_one() {
    let mut chat = Chat::new(FIRST);
    SECOND.install(&chat.home().join("models"));
    chat.say("hello");
    let other = chat.new_conversation("");
    chat.history()
        .set_model(&other, Some("tiny-2"))
        .expect("model");
    chat.engine().warm(other.clone()).expect("warm");
    let loaded = chat.engine().loaded().expect("loaded").expect("a model");
    assert_eq!(loaded.name, "tiny-1");
    chat.engine().open(Some(other)).expect("open");
    let loaded = chat.engine().loaded().expect("loaded").expect("a model");
    assert_eq!(loaded.name, "tiny-2", "opening it loads its own");
}

#[test]
fn a_pool_larger_than_any_memory_is_what_there_is() {
    let mut chat = Chat::new(FIRST);
    chat.restart_with_pool(u64::MAX);
    chat.say("hello");
}
