//! Long drafts and pasted texts: the engine stays responsive, and a text that cannot fit is recognized before it is
//! tokenized to its end.

use std::sync::atomic::{AtomicUsize, Ordering};

use engine::{ContextChoice, Shorten, TooLong, Turn, TurnEvent, TurnOptions, draft_tokens};
use models::{Error as ModelError, Extent};
use store::MessageState;
use tests::{Chat, Subject, prose};

#[test]
fn history_is_free_while_a_text_is_tokenized() {
    let mut chat = Chat::new(Subject::TINY);
    chat.say("Hello.");
    let folder = tempfile::tempdir().expect("folder");
    let model = crate::type_ahead::model(folder.path(), Subject::TINY);
    let conversation = chat.history().conversation(&chat.conversation);
    let conversation = conversation.expect("talk");
    let above = conversation.active_leaf.as_ref();
    let history = chat.shared_history();
    let looks = AtomicUsize::new(0);
    let mut go_on = || {
        // A message sent now is stored at once.
        assert!(history.try_lock().is_ok(), "words would wait");
        looks.fetch_add(1, Ordering::Relaxed);
        true
    };
    let mut extent = Extent::new(usize::MAX, &mut go_on);
    let text = prose(0, 20_000);
    let tokens = draft_tokens(history, &model, &conversation, above, &text, &mut extent);
    assert!(tokens.expect("draft").len() > 20_000);
    let looks = looks.into_inner();
    assert!(looks > text.len() / 10_000, "{looks} looks at the inbox");
}

#[test]
fn a_draft_that_cannot_fit_or_is_not_wanted_is_not_tokenized_to_its_end() {
    let chat = Chat::new(Subject::TINY);
    let folder = tempfile::tempdir().expect("folder");
    let model = crate::type_ahead::model(folder.path(), Subject::TINY);
    let conversation = chat.history().conversation(&chat.conversation);
    let conversation = conversation.expect("talk");
    let history = chat.shared_history();
    let text = prose(0, 200_000);
    let draft = |most, go_on: &mut dyn FnMut() -> bool| {
        let before = model.tokenizer().num_encoded_bytes();
        let mut extent = Extent::new(most, go_on);
        let tokens = draft_tokens(history, &model, &conversation, None, &text, &mut extent);
        (tokens, model.tokenizer().num_encoded_bytes() - before)
    };
    let (tokens, bytes) = draft(2048, &mut || true);
    assert!(tokens.expect("draft").len() > 2048);
    assert!(bytes < 40_000, "{bytes} of {}", text.len());
    let (tokens, bytes) = draft(usize::MAX, &mut || false);
    assert!(matches!(
        tokens,
        Err(engine::Error::Model(ModelError::Interrupted))
    ));
    assert!(bytes < 10_000, "{bytes} before it was seen");
}

#[test]
fn a_script_without_spaces_is_read_ahead_and_sending_it_computes_the_rest() {
    for (script, text) in [
        (
            "Chinese",
            "我们今天去北京看长城的时候天气非常好所以大家都很高兴".repeat(6),
        ),
        (
            "Thai",
            "ภาษาไทยเป็นภาษาที่มีระดับเสียงของคำแน่นอนหรือวรรณยุกต์".repeat(4),
        ),
        (
            "Japanese",
            "今日は天気がとても良いのでみんなで公園へ散歩に行きました".repeat(6),
        ),
    ] {
        let mut chat = Chat::new(Subject::Real);
        chat.max_tokens = 1;
        chat.engine().load(None).expect("model");
        let total = chat.preview(None, &text).of;
        assert!(total > 200, "{script}: {total}");
        let ready = chat.draft(None, &text);
        assert!(ready + 48 > total, "{script}: {ready} of {total}");
        // More text was typed before it was sent.
        let sent = chat.say(&format!("{text}。对吗?"));
        assert!(sent.prefill.computed < 80, "{script}: {:?}", sent.prefill);
    }
}

#[test]
fn what_a_send_costs_is_told_before_with_its_time_once_that_was_measured() {
    let mut chat = Chat::new(Subject::TINY);
    chat.engine().load(None).expect("model");
    let before = chat.preview(None, "Hello.");
    assert!(!before.at_least && before.of < before.limit);
    assert_eq!(before.read_ms, None, "nothing was measured yet");
    chat.say(&prose(0, 400));
    let text = prose(1, 200);
    let cost = chat.preview(None, &text);
    assert!(cost.read_ms.is_some());
    let (conversation, engine) = (chat.conversation.clone(), chat.engine());
    let system = engine.preview_system(conversation.clone(), "Be kind.".into());
    let system = system.expect("cost");
    let used = chat.context().used;
    assert!(
        system.keeps < 64 && system.of > used,
        "all is read again: {system:?}"
    );
    let cached = engine
        .preview_system(conversation, String::new())
        .expect("cost");
    assert!(cached.keeps > used / 2, "the one it has: {cached:?}");
    let new = engine
        .preview_new("Be kind.".into(), text.clone())
        .expect("cost");
    let sent = chat.say(&text);
    assert_eq!(
        (cost.of, cost.keeps),
        (
            sent.prompt_tokens,
            sent.prefill.resident + sent.prefill.restored
        )
    );
    let other = chat.new_conversation("Be kind.");
    assert_eq!(new.of, chat.say_in(&other, &text).prompt_tokens);
    let too_long = chat.preview(None, &prose(0, 200_000));
    assert!(too_long.at_least && too_long.of > too_long.limit && too_long.of < 2 * too_long.limit);
}

fn refusal(events: &[TurnEvent]) -> (Option<TooLong>, bool, Vec<ContextChoice>) {
    match events.last() {
        Some(TurnEvent::ContextFull {
            too_long,
            at_least,
            choices,
            ..
        }) => (*too_long, *at_least, choices.clone()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn advice_is_offered_only_where_it_can_help() {
    let long = prose(0, 30_000);
    let mut chat = Chat::new(Subject::TINY);
    chat.say("Hello.");
    let shorter = [
        ContextChoice::EditEarlier,
        ContextChoice::NewConversation,
        ContextChoice::Stop,
    ];
    // A branch of two turns: dropping the first one does not help.
    let said = refusal(&chat.try_to_say(&long));
    assert_eq!(said, (Some(TooLong::Message), true, shorter.to_vec()));
    let context = chat.context();
    assert!(context.at_least && context.used > context.limit);
    assert_eq!(context.choices, shorter);

    // The next message fits alone: the turns before it cannot be summarised, but can be dropped.
    let said = refusal(&chat.try_to_say("Go on."));
    let leave_out = vec![ContextChoice::DropOldest, ContextChoice::Stop];
    assert_eq!(said, (None, true, leave_out.clone()));
    assert_eq!(chat.context().choices, leave_out);
    chat.max_tokens = 2;
    let events = chat.shorten(Shorten::DropOldest);
    chat.outcome(&events);

    let mut chat = Chat::with_system(Subject::TINY, &long);
    let said = refusal(&chat.try_to_say("Hello."));
    let edit = vec![ContextChoice::EditSystemPrompt, ContextChoice::Stop];
    assert_eq!(said, (Some(TooLong::SystemPrompt), true, edit));
}

#[test]
fn a_turn_whose_words_cannot_be_kept_gives_back_what_it_held() {
    let mut chat = Chat::new(Subject::TINY);
    chat.say(&prose(0, 200));
    let turn = Turn::Send {
        conversation: chat.conversation.clone(),
        parent: None,
        text: prose(1, 200),
        options: TurnOptions {
            greedy: true,
            max_tokens: Some(400),
            ..TurnOptions::default()
        },
    };
    let mut events = chat.engine().submit(turn);
    let written = events.find(|event| matches!(event, TurnEvent::Token { .. }));
    assert!(written.is_some());
    {
        // The conversation is purged while its reply is written.
        let mut history = chat.history();
        let id = chat.conversation.clone();
        history.delete_conversation(&id, 0).expect("trash");
        assert!(!history.purge_deleted(1).expect("purged").is_empty());
    }
    let last = events.last();
    assert!(matches!(last, Some(TurnEvent::Error { .. })), "{last:?}");
    let stats = chat.engine().memory().expect("memory");
    assert_eq!(stats.pool.active_bytes, 0, "its slots are nobody's");
    chat.conversation = chat.new_conversation("");
    assert_eq!(chat.say("Hello.").state, MessageState::Length);
}
