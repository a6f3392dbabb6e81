//! Law 8: resident + restored + computed = prompt, in every kind of turn.

use engine::{Turn, TurnEvent, TurnOptions};
use tests::{Chat, Outcome, Subject, prose};

fn assert_adds_up(outcome: &Outcome) {
    let prefill = outcome.prefill;
    assert_eq!(
        prefill.resident + prefill.restored + prefill.computed,
        outcome.prompt_tokens
    );
}

#[test]
fn the_counts_add_up_in_every_kind_of_turn() {
    let mut chat = Chat::new(Subject::TINY);
    let first = chat.say(&prose(0, 100));
    assert_adds_up(&first);
    assert_eq!(
        first.prefill.computed, first.prompt_tokens,
        "nothing was there to be reused"
    );
    assert_adds_up(&chat.say("More."));
    assert_adds_up(&chat.regenerate(&first.message));
    let user = chat.user_messages()[0].clone();
    assert_adds_up(&chat.edit(&user, &prose(0, 50)));
    chat.restart();
    assert_adds_up(&chat.go_on(&first.message));
    assert_adds_up(&chat.say_after(&first.message, "More."));
    let stats = chat
        .history()
        .message(&first.message)
        .expect("message")
        .stats
        .expect("stats are kept");
    assert!(stats.prefill.restored > 0);
}

#[test]
fn what_warming_brought_counts_as_restored_once() {
    let mut chat = Chat::new(Subject::TINY);
    let first = chat.say(&prose(0, 150));
    chat.restart();
    let conversation = chat.conversation.clone();
    chat.engine().warm(conversation).expect("warm");
    let next = chat.say("More.");
    assert!(
        next.prefill.restored >= first.prompt_tokens,
        "{:?}",
        next.prefill
    );
    assert_eq!(next.prefill.resident, 0);
    let again = chat.regenerate(&next.message);
    assert_eq!(again.prefill.restored, 0, "{:?}", again.prefill);
}

#[test]
fn progress_ends_at_the_whole_prompt() {
    let chat = Chat::new(Subject::TINY);
    let turn = Turn::Send {
        conversation: chat.conversation.clone(),
        parent: None,
        text: prose(0, 300),
        options: TurnOptions {
            greedy: true,
            seed: None,
            max_tokens: Some(2),
            ..TurnOptions::default()
        },
    };
    let progress: Vec<(u32, u32)> = chat
        .engine()
        .submit(turn)
        .filter_map(|event| match event {
            TurnEvent::Prefill { done, total, .. } => Some((done, total)),
            _ => None,
        })
        .collect();
    assert!(progress.len() > 2 && progress.is_sorted(), "{progress:?}");
    assert_eq!(
        progress.last().map(|(done, total)| done == total),
        Some(true),
        "{progress:?}"
    );
}

#[test]
fn what_is_sooner_computed_than_read_counts_as_computed() {
    let rates = |read_seconds: f64| {
        serde_json::json!({
            "read_bytes": { "amount": 1e9, "seconds": read_seconds },
            "prefill_tokens": { "amount": 1e6, "seconds": 1.0 },
        })
    };
    let mut chat = Chat::new(Subject::TINY);
    let first = chat.say(&prose(0, 100));
    let stats = chat.engine().cache_stats().expect("stats");
    let setting = format!("rates.{}", stats.pools[0].fingerprint);
    let mut resume = |read_seconds: f64| {
        chat.restart();
        let set = chat.history().set_setting(&setting, &rates(read_seconds));
        set.expect("setting");
        chat.show(&first.message);
        chat.engine().load(None).expect("load");
        let promised = chat.preview(None, "More.").keeps;
        let outcome = chat.say_after(&first.message, "More.");
        let kept = outcome.prefill.resident + outcome.prefill.restored;
        assert_eq!(promised, kept, "a preview says what the turn does");
        outcome
    };
    let (slow, fast) = (resume(1e6), resume(1e-3));
    assert_eq!(slow.prefill.computed, slow.prompt_tokens, "a slow disk");
    assert_eq!(fast.prefill.computed, 1, "a fast one");
    assert_eq!(fast.prefill.restored, fast.prompt_tokens - 1);
    assert_eq!(slow.ids, fast.ids);
    chat.stop();
    chat.start();
    let kept = chat.history().setting(&setting).expect("setting");
    let kept = kept.expect("what was measured is kept");
    assert!(kept["read_bytes"]["amount"].as_f64() > Some(0.0), "{kept}");
    assert_ne!(kept, rates(1e-3), "and goes on");
}
