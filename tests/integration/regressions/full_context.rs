//! A conversation that does not fit goes on in a shorter branch, and the full one stays as it was.

use engine::{ContextChoice, Shorten, Turn, TurnEvent, TurnOptions};
use store::{Message, MessageId, MessageKind, MessageState, Role, WhenFull};
use tests::{Chat, Cli, Subject, message_for_prompt, prose};

/// Bytes of a block of the default model.
const REAL_SLOT_BYTES: u64 = 64 * 12_240;

/// A conversation that has room for about 100 more tokens.
fn nearly_full(subject: Subject, words: usize) -> Chat {
    let mut chat = Chat::with_system(subject, "Be brief.");
    if subject == Subject::Real {
        // Filling all that the default model can hold takes minutes: the pool is the limit, 16 blocks beside the one to copy.
        chat.restart_with_pool(17 * REAL_SLOT_BYTES);
    }
    chat.say("Start.");
    let limit = chat.context().limit;
    let mut turn = 0;
    while limit - chat.context().used > 100 {
        let one_more = prose(turn, words);
        let needed = chat.preview(None, &one_more).of + chat.max_tokens;
        if needed > limit {
            break;
        }
        chat.say(&one_more);
        turn += 1;
    }
    assert!(turn > 4, "{turn} turns fill the context");
    chat
}

fn texts(messages: &[Message]) -> Vec<(Role, &str)> {
    let text = |message: &'_ Message| message.role;
    messages
        .iter()
        .map(|message| (text(message), message.text.as_str()))
        .collect()
}

fn shortened(events: &[TurnEvent]) -> (&[Message], u32, u32) {
    let found = events.iter().find_map(|event| match event {
        TurnEvent::Shortened {
            messages,
            turns,
            left_out,
            ..
        } => Some((messages.as_slice(), *turns, *left_out)),
        _ => None,
    });
    found.unwrap_or_else(|| panic!("nothing was shortened: {events:?}"))
}

fn streamed(events: &[TurnEvent]) -> String {
    events
        .iter()
        .take_while(|event| !matches!(event, TurnEvent::Shortened { .. }))
        .filter_map(|event| match event {
            TurnEvent::Token { text } => Some(text.as_str()),
            _ => None,
        })
        .collect()
}

/// The shorter branch that ends in `leaf` goes on, and answers what it would without any cache.
fn assert_goes_on_exactly(chat: &mut Chat, leaf: &MessageId, limit: u32) {
    chat.show(leaf);
    let next = chat.say("And then?");
    assert!(next.prompt_tokens < limit / 2 + 40);
    let mut cold = chat.without_cache();
    assert_eq!(cold.regenerate(&next.message).ids, next.ids);
}

/// The full branch is where it was, word for word and token for token, and its blocks are in the pool.
fn assert_untouched(chat: &mut Chat, before: &[Message], tokens: &[u32]) {
    let leaf = before.last().expect("leaf").id.clone();
    let branch = chat.history().branch(&leaf).expect("branch");
    assert_eq!(branch, before);
    assert_eq!(chat.branch_tokens(&leaf), tokens);
    chat.show(&leaf);
    let cost = chat.preview(None, "More.");
    let new = cost.of as usize - tokens.len();
    assert!(
        (cost.of - cost.keeps) as usize <= new + 1,
        "{cost:?} after a branch of {} tokens",
        tokens.len()
    );
    let last = chat.user_messages().last().expect("user").clone();
    let again = chat.regenerate(&last);
    assert_eq!(
        again.prefill.computed, 1,
        "switching back reuses everything"
    );
    if !chat
        .context()
        .choices
        .contains(&ContextChoice::LargerContext)
    {
        assert_eq!(again.prefill.restored, 0, "and all of it is in the pool");
    }
}

fn drops_the_oldest(subject: Subject, words: usize) {
    let mut chat = nearly_full(subject, words);
    let before = chat.shown();
    let tokens = chat.branch_tokens(&before.last().expect("leaf").id);
    let events = chat.shorten(Shorten::DropOldest);
    let (new, turns, left_out) = shortened(&events);
    assert!(turns >= 1 && left_out == 0, "{turns} dropped");
    let kept = &before[2 * turns as usize..];
    assert_eq!(texts(new), texts(kept));
    assert_eq!(
        chat.shown().last().map(|m| &m.id),
        new.last().map(|m| &m.id)
    );
    for (copy, old) in new.iter().zip(kept).skip(1) {
        assert_eq!(chat.tokens(&copy.id), chat.tokens(&old.id));
    }
    let context = chat.context();
    assert!(context.used <= context.limit / 2, "{context:?}");
    assert_untouched(&mut chat, &before, &tokens);
    assert_goes_on_exactly(&mut chat, &new.last().expect("leaf").id, context.limit);
}

#[test]
fn dropping_the_oldest_turns_keeps_the_latest_as_they_are() {
    drops_the_oldest(Subject::TINY, 100);
}

#[test]
fn dropping_the_oldest_turns_keeps_the_latest_as_they_are_on_the_default_model() {
    drops_the_oldest(Subject::Real, 60);
}

#[test]
fn what_begins_a_shorter_branch_is_read_like_any_first_message() {
    // The default model's template puts a system prompt of its own before a first message.
    let mut chat = Chat::new(Subject::Real);
    chat.say("Good morning.");
    let text = "What is steam?";
    chat.say(text);
    chat.shorten(Shorten::DropOldest);
    let root = chat.shown()[0].id.clone();
    chat.say("And ice?");
    let other = chat.new_conversation("");
    let first = chat.say_in(&other, text);
    let parent = chat
        .history()
        .message(&first.message)
        .expect("reply")
        .parent;
    assert_eq!(chat.tokens(&root), chat.tokens(&parent.expect("user")));
}

fn compacts(subject: Subject, words: usize) {
    let mut chat = nearly_full(subject, words);
    let before = chat.shown();
    let tokens = chat.branch_tokens(&before.last().expect("leaf").id);
    let blocks = chat.engine().cache_stats().expect("stats").num_blocks;
    let events = chat.shorten(Shorten::Compact);
    let (new, turns, left_out) = shortened(&events);
    let (summary, copies) = new.split_first().expect("summary");
    assert_eq!(
        (summary.kind, summary.role),
        (MessageKind::Summary, Role::User)
    );
    assert!(
        summary.text.ends_with(streamed(&events).trim()) && !streamed(&events).trim().is_empty(),
        "what was streamed is what is stored: {:?}",
        summary.text
    );
    assert_eq!(left_out, 0);
    assert_eq!(texts(copies), texts(&before[2 * turns as usize..]));
    let read = events.iter().rev().find_map(|event| match event {
        TurnEvent::Prefill {
            total, resident, ..
        } => Some(total - resident),
        _ => None,
    });
    assert!(
        read.expect("prefill") < 200,
        "the summary reads the instruction and nothing again: {read:?}"
    );
    // Law 7: nothing of the summary is kept.
    let after = chat.engine().cache_stats().expect("stats").num_blocks;
    assert_eq!(after, blocks);
    let context = chat.context();
    assert!(context.used < context.limit / 2, "{context:?}");
    assert_untouched(&mut chat, &before, &tokens);
    assert_goes_on_exactly(&mut chat, &new.last().expect("leaf").id, context.limit);
}

#[test]
fn a_compacted_branch_begins_with_a_summary_and_answers() {
    compacts(Subject::TINY, 100);
}

#[test]
fn a_compacted_branch_begins_with_a_summary_and_answers_on_the_default_model() {
    compacts(Subject::Real, 60);
}

#[test]
fn a_turn_that_does_not_fit_is_refused_with_choices_and_answered_in_the_shorter_branch() {
    for how in [Shorten::DropOldest, Shorten::Compact] {
        let mut chat = nearly_full(Subject::TINY, 100);
        let before = chat.shown();
        let question = prose(9, 300);
        let events = chat.try_to_say(&question);
        let Some(TurnEvent::ContextFull { choices, .. }) = events.last() else {
            panic!("{events:?}")
        };
        let offered = [
            ContextChoice::Compact,
            ContextChoice::DropOldest,
            ContextChoice::Stop,
        ];
        assert_eq!(choices, &offered, "the pool is not what limits");
        let events = chat.shorten(how);
        let answered = chat.outcome(&events);
        let shown = chat.shown();
        let [.., user, reply] = &shown[..] else {
            panic!("{shown:?}")
        };
        assert_eq!((&user.text, &reply.id), (&question, &answered.message));
        let leaf = &before.last().expect("leaf").id;
        assert_eq!(chat.history().branch(leaf).expect("branch"), before);
    }
}

#[test]
fn a_conversation_set_to_it_shortens_by_itself_and_goes_on() {
    for when in [WhenFull::DropOldest, WhenFull::Compact] {
        let mut chat = nearly_full(Subject::TINY, 100);
        let conversation = chat.conversation.clone();
        chat.history()
            .set_when_full(&conversation, when)
            .expect("setting");
        let question = prose(9, 300);
        let events = chat.try_to_say(&question);
        let stored = events.iter().position(
            |event| matches!(event, TurnEvent::Started { user: Some(user), .. } if user.text == question),
        );
        let shortening = events
            .iter()
            .position(|event| matches!(event, TurnEvent::Shortening { .. }));
        assert!(stored.expect("words") < shortening.expect("shortening"));
        let answered = chat.outcome(&events);
        let shown = chat.shown();
        assert_eq!(shown[shown.len() - 2].text, question);
        assert_eq!(shown[shown.len() - 1].id, answered.message);
        assert_eq!(
            shown[0].kind == MessageKind::Summary,
            when == WhenFull::Compact
        );
    }
}

#[test]
fn a_conversation_set_to_stop_offers_nothing_and_keeps_the_words() {
    let mut chat = nearly_full(Subject::TINY, 100);
    let conversation = chat.conversation.clone();
    chat.history()
        .set_when_full(&conversation, WhenFull::Stop)
        .expect("setting");
    let question = prose(9, 300);
    let events = chat.try_to_say(&question);
    assert!(
        matches!(events.last(), Some(TurnEvent::ContextFull { choices, .. }) if choices.is_empty())
    );
    assert_eq!(chat.shown().last().expect("leaf").text, question);
}

#[test]
fn a_reply_that_ran_into_the_limit_goes_on_in_the_shorter_branch() {
    let mut chat = nearly_full(Subject::TINY, 100);
    let limit = chat.context().limit;
    let text = message_for_prompt(&chat, limit - 4);
    chat.max_tokens = 12;
    let cut_off = chat.say(&text);
    if cut_off.state == MessageState::Complete {
        return;
    }
    assert_eq!(cut_off.state, MessageState::ContextFull);
    let events = chat.shorten(Shorten::DropOldest);
    let longer = chat.outcome(&events);
    assert_ne!(longer.message, cut_off.message);
    assert!(longer.ids.len() > cut_off.ids.len() && longer.ids.starts_with(&cut_off.ids));
    assert!(chat.decoded(&longer.ids).starts_with(&longer.text));
    let old = chat.history().message(&cut_off.message).expect("reply");
    assert_eq!((old.text, old.state), (cut_off.text, cut_off.state));
}

#[test]
fn a_summary_that_is_stopped_leaves_nothing() {
    let mut chat = nearly_full(Subject::TINY, 100);
    let before = chat.messages();
    let shown = chat.shown();
    let turn = Turn::Shorten {
        conversation: chat.conversation.clone(),
        how: Shorten::Compact,
        options: TurnOptions {
            greedy: true,
            ..TurnOptions::default()
        },
    };
    let mut last = None;
    for event in chat.engine().submit(turn) {
        if matches!(event, TurnEvent::Token { .. }) {
            chat.engine()
                .cancel(chat.conversation.clone())
                .expect("cancel");
        }
        last = Some(event);
    }
    assert!(
        matches!(&last, Some(TurnEvent::Error { code, .. }) if code == "stopped"),
        "{last:?}"
    );
    assert_eq!(chat.messages(), before);
    assert_eq!(chat.shown(), shown);
    let tokens = chat.branch_tokens(&shown.last().expect("leaf").id);
    assert_untouched(&mut chat, &shown, &tokens);
}

#[test]
fn a_branch_of_one_turn_cannot_be_shortened() {
    let mut chat = Chat::new(Subject::TINY);
    chat.say("Only this.");
    let before = chat.messages();
    for how in [Shorten::DropOldest, Shorten::Compact] {
        let events = chat.shorten(how);
        if how == Shorten::DropOldest {
            assert!(
                matches!(&events[..], [TurnEvent::Error { code, .. }] if code == "invalid_argument"),
                "{events:?}"
            );
            assert_eq!(chat.messages(), before);
        }
    }
    let events = Chat::new(Subject::TINY).try_to_say(&prose(0, 5000));
    let Some(TurnEvent::ContextFull { choices, .. }) = events.last() else {
        panic!("{events:?}")
    };
    assert!(
        !choices.contains(&ContextChoice::Compact) && choices.contains(&ContextChoice::EditEarlier)
    );
}

#[test]
fn a_summary_without_room_for_the_oldest_turns_says_so() {
    // A question of more than a quarter of the context stays alone: all turns before it are to be summarised, and they
    // fill the context.
    let mut chat = nearly_full(Subject::TINY, 100);
    let question = prose(9, 260);
    chat.try_to_say(&question);
    let events = chat.shorten(Shorten::Compact);
    let (new, turns, left_out) = shortened(&events);
    assert!(0 < left_out && left_out < turns, "{left_out} of {turns}");
    assert!(
        new[0].text.contains("without its first"),
        "{:?}",
        new[0].text
    );
    assert_eq!(texts(&new[1..]), [(Role::User, question.as_str())]);
    chat.outcome(&events);
}

#[test]
fn a_process_killed_while_it_summarises_leaves_nothing() {
    let home = tempfile::tempdir().expect("folder");
    Subject::TINY.install(&home.path().join("models"));
    let cli = Cli::new(home.path());
    let lines = cli.run(&["chat", "new"]);
    let conversation = lines[0]["conversation"].as_str().expect("id").to_owned();
    for text in [prose(0, 80), prose(1, 80)] {
        cli.run(&["chat", "send", &conversation, &text, "--max-tokens", "4"]);
    }
    let before = Chat::resume(Subject::TINY, home.path(), &conversation).shown();
    let mut running = cli.start(&["chat", "compact", &conversation, "--greedy"]);
    assert!(running.by_ref().any(|event| event["event"] == "token"));
    running.kill();
    let mut chat = Chat::resume(Subject::TINY, home.path(), &conversation);
    assert_eq!(chat.messages(), before);
    assert_eq!(chat.shown(), before);
    let next = chat.say("And then?");
    assert!(next.prefill.computed < 60, "{:?}", next.prefill);
}

#[test]
fn a_larger_context_is_offered_where_the_pool_is_the_limit() {
    let mut chat = Chat::new(Subject::TINY);
    // Room for 6 blocks of which one is to copy from.
    chat.restart_with_pool(6 * 16 * 1024);
    chat.say(&prose(0, 40));
    let small = chat.context();
    assert!(small.choices.contains(&ContextChoice::LargerContext));
    chat.engine().raise_context().expect("larger");
    let large = chat.context();
    assert!(large.limit > small.limit);
    assert!(!large.choices.contains(&ContextChoice::LargerContext));
    let next = chat.say("More.");
    assert!(next.prefill.restored > 0, "{:?}", next.prefill);
    assert_eq!(
        chat.engine().raise_context().expect_err("no more").code(),
        "invalid_argument"
    );
}
