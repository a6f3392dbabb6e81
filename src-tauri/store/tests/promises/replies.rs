use store::{Error, MessageState, Prefill, TokenRow, TurnStats};

use crate::support::{Scene, TOKENIZER};

#[test]
fn a_finished_reply_holds_its_text_ids_state_and_cost() {
    let mut scene = Scene::new();
    let talk = scene.conversation("reply");
    let root = scene.user(&talk, None, "hi");
    let now = scene.now();
    let reply = scene
        .history()
        .begin_reply(&talk.id, &root.id, Some("smol"), &TOKENIZER, now)
        .unwrap();
    assert_eq!(
        (reply.state, reply.text.as_str()),
        (MessageState::Generating, "")
    );
    assert_eq!(
        scene
            .history()
            .conversation(&talk.id)
            .unwrap()
            .active_leaf
            .as_ref(),
        Some(&reply.id)
    );
    scene
        .history()
        .append_reply(&reply.id, "Hel", &[1])
        .unwrap();
    scene
        .history()
        .append_reply(&reply.id, "lo", &[2, 3])
        .unwrap();
    let stats = TurnStats {
        prefill: Prefill {
            resident: 5,
            restored: 64,
            computed: 3,
        },
        prompt_tokens: 72,
        completion_tokens: 3,
        ttft_ms: 12.5,
        tokens_per_s: 80.25,
        restore_ms: 1.5,
    };
    let row = TokenRow {
        tokenizer: TOKENIZER,
        ids: vec![1, 2, 3, 9],
    };
    scene
        .history()
        .finish_reply(
            &reply.id,
            "Hello",
            &row,
            MessageState::Complete,
            Some(stats),
        )
        .unwrap();
    scene.reopen();
    let kept = scene.history().message(&reply.id).unwrap();
    assert_eq!(
        (kept.text.as_str(), kept.state, kept.num_tokens),
        ("Hello", MessageState::Complete, 4)
    );
    assert_eq!(
        (kept.stats, kept.model.as_deref()),
        (Some(stats), Some("smol"))
    );
    assert_eq!(
        scene.history().tokens(&reply.id, &TOKENIZER).unwrap(),
        Some(row.ids)
    );
}

#[test]
fn an_unfinished_reply_comes_back_interrupted_with_the_words_that_were_shown() {
    let mut scene = Scene::new();
    let talk = scene.conversation("reply");
    let root = scene.user(&talk, None, "hi");
    let now = scene.now();
    let reply = scene
        .history()
        .begin_reply(&talk.id, &root.id, None, &TOKENIZER, now)
        .unwrap();
    for (text, id) in [("Once ", 1), ("upon ", 2), ("", 3), ("a tïme", 4)] {
        scene
            .history()
            .append_reply(&reply.id, text, &[id])
            .unwrap();
    }
    for _ in 0..2 {
        scene.reopen();
        let kept = scene.history().message(&reply.id).unwrap();
        assert_eq!(
            (kept.text.as_str(), kept.state),
            ("Once upon a tïme", MessageState::Interrupted)
        );
        assert_eq!(kept.num_tokens, 4);
        assert_eq!(
            scene.history().tokens(&reply.id, &TOKENIZER).unwrap(),
            Some(vec![1, 2, 3, 4])
        );
        assert_eq!(scene.history().search("upon", 5).unwrap().len(), 1);
    }
}

#[test]
fn a_reply_interrupted_while_it_is_continued_keeps_both_parts() {
    let mut scene = Scene::new();
    let talk = scene.conversation("reply");
    let root = scene.user(&talk, None, "hi");
    let now = scene.now();
    let reply = scene
        .history()
        .begin_reply(&talk.id, &root.id, None, &TOKENIZER, now)
        .unwrap();
    let row = TokenRow {
        tokenizer: TOKENIZER,
        ids: vec![1, 2],
    };
    scene
        .history()
        .finish_reply(&reply.id, "Once upon", &row, MessageState::Stopped, None)
        .unwrap();
    scene
        .history()
        .reopen_reply(&reply.id, "Once upon", Some("another"), &row)
        .unwrap();
    scene
        .history()
        .append_reply(&reply.id, " a time", &[3, 4])
        .unwrap();
    scene.reopen();
    let kept = scene.history().message(&reply.id).unwrap();
    assert_eq!(
        (kept.text.as_str(), kept.state),
        ("Once upon a time", MessageState::Interrupted)
    );
    assert_eq!(
        scene.history().tokens(&reply.id, &TOKENIZER).unwrap(),
        Some(vec![1, 2, 3, 4])
    );
}

#[test]
fn a_reply_that_another_model_goes_on_with_has_that_models_ids_alone() {
    const OTHER: [u8; 32] = [9; 32];
    let mut scene = Scene::new();
    let talk = scene.conversation("reply");
    let root = scene.user(&talk, None, "hi");
    let now = scene.now();
    let reply = scene
        .history()
        .begin_reply(&talk.id, &root.id, Some("first"), &TOKENIZER, now)
        .unwrap();
    let row = |tokenizer, ids: &[u32]| TokenRow {
        tokenizer,
        ids: ids.to_vec(),
    };
    let first = row(TOKENIZER, &[1, 2]);
    scene
        .history()
        .finish_reply(&reply.id, "Once upon", &first, MessageState::Stopped, None)
        .unwrap();
    // With the end-of-turn tokens, as a prompt stores them.
    scene
        .history()
        .set_tokens(&reply.id, &OTHER, &[7, 8, 0])
        .unwrap();
    let open = scene
        .history()
        .reopen_reply(&reply.id, "Once upon", Some("second"), &row(OTHER, &[7, 8]))
        .unwrap();
    assert_eq!(open.model.as_deref(), Some("second"));
    scene
        .history()
        .append_reply(&reply.id, " a time", &[9])
        .unwrap();
    // The process was killed; the next one assembles the stored parts.
    scene.reopen();
    let history = scene.history();
    assert_eq!(history.message(&reply.id).unwrap().text, "Once upon a time");
    assert_eq!(
        history.tokens(&reply.id, &OTHER).unwrap(),
        Some(vec![7, 8, 9])
    );
    assert_eq!(history.tokens(&reply.id, &TOKENIZER).unwrap(), None);
}

#[test]
fn only_a_reply_being_written_can_grow_or_finish() {
    let mut scene = Scene::new();
    let talk = scene.conversation("reply");
    let root = scene.user(&talk, None, "hi");
    let row = TokenRow {
        tokenizer: TOKENIZER,
        ids: vec![],
    };
    let history = scene.history();
    assert!(matches!(
        history.append_reply(&root.id, "x", &[1]),
        Err(Error::NotGenerating(_))
    ));
    let finish = history.finish_reply(&root.id, "x", &row, MessageState::Complete, None);
    assert!(matches!(finish, Err(Error::NotGenerating(_))));
    assert_eq!(history.message(&root.id).unwrap().text, "hi");
}

#[test]
fn a_long_reply_does_not_wait_for_the_disk_and_its_end_folds_the_log() {
    let mut scene = Scene::new();
    let talk = scene.conversation("reply");
    let root = scene.user(&talk, None, "hi");
    let reply = scene
        .history()
        .begin_reply(&talk.id, &root.id, None, &TOKENIZER, 3)
        .unwrap();
    let path = scene.path();
    let log = path.with_file_name("history.db-wal");
    let lengths = || [&path, &log].map(|path| path.metadata().unwrap().len());
    let [file, _] = lengths();
    for id in 0..1500 {
        scene
            .history()
            .append_reply(&reply.id, "word ", &[id])
            .unwrap();
    }
    let [file_then, log_then] = lengths();
    assert_eq!(file_then, file, "nothing was folded in");
    assert!(log_then > 4 << 20, "{log_then}");
    let row = TokenRow {
        tokenizer: TOKENIZER,
        ids: (0..1500).collect(),
    };
    let text = "word ".repeat(1500);
    let finish = |scene: &mut Scene| {
        scene
            .history()
            .finish_reply(&reply.id, &text, &row, MessageState::Complete, None)
    };
    finish(&mut scene).unwrap();
    scene.user(&talk, Some(&reply.id), "and then?");
    let [file_after, log_after] = lengths();
    assert!(file_after > file, "{file_after}");
    assert!(log_after <= 4 << 20, "{log_after}");
}
