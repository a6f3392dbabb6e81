//! A shorter branch is made as a whole or not at all, and what it was made from stays as it is.

use store::{BranchPart, Error, MessageId, MessageKind, NewMessage, Role, TokenRow, WhenFull};

use crate::support::{Scene, TOKENIZER, message};

fn copy(of: &MessageId, with_tokens: bool) -> BranchPart {
    BranchPart::Copy {
        of: of.clone(),
        with_tokens,
    }
}

fn summary(text: &str) -> BranchPart {
    BranchPart::Summary {
        text: text.into(),
        model: Some("smol".into()),
    }
}

#[test]
fn a_branch_of_copies_keeps_words_and_token_ids_and_leaves_the_old_one_alone() {
    let mut scene = Scene::new();
    let talk = scene.conversation("long");
    let first = scene.user(&talk, None, "first");
    let second = scene.user(&talk, Some(&first.id), "second");
    let history = scene.history();
    for (message, ids) in [(&first, [1, 2]), (&second, [3, 4])] {
        history.set_tokens(&message.id, &TOKENIZER, &ids).unwrap();
    }
    let reply = history
        .begin_reply(&talk.id, &second.id, Some("smol"), &TOKENIZER, 5)
        .unwrap();
    let row = TokenRow {
        tokenizer: TOKENIZER,
        ids: vec![5, 6, 7],
    };
    let state = store::MessageState::ContextFull;
    history
        .finish_reply(&reply.id, "third", &row, state, None)
        .unwrap();
    let before = history.messages(&talk.id).unwrap();

    let parts = [copy(&second.id, false), copy(&reply.id, true)];
    let added = history.add_branch(&talk.id, &parts, 9).unwrap();
    scene.reopen();
    let history = scene.history();
    assert_eq!(history.messages(&talk.id).unwrap()[..3], before[..]);
    assert_eq!(history.branch(&added[1].id).unwrap(), added);
    assert_eq!(
        history.conversation(&talk.id).unwrap().active_leaf,
        Some(added[1].id.clone())
    );
    let ids: Vec<_> = added
        .iter()
        .map(|message| history.tokens(&message.id, &TOKENIZER).unwrap())
        .collect();
    assert_eq!(ids, [None, Some(vec![5, 6, 7])]);
    assert_eq!([added[0].num_tokens, added[1].num_tokens], [0, 3]);
    assert_eq!((&added[0].parent, added[1].state), (&None, state));
    assert_eq!(added[1].model.as_deref(), Some("smol"));
    assert_eq!(added[0].edited_from, Some(second.id));
}

#[test]
fn a_summary_is_marked_and_stays_one_when_it_is_edited() {
    let mut scene = Scene::new();
    let talk = scene.conversation("long");
    let first = scene.user(&talk, None, "first");
    let added = scene
        .history()
        .add_branch(&talk.id, &[summary("in short"), copy(&first.id, false)], 9)
        .unwrap();
    assert_eq!(
        [added[0].kind, added[1].kind],
        [MessageKind::Summary, MessageKind::Said]
    );
    let edit = NewMessage {
        edited_from: Some(added[0].id.clone()),
        ..message(&talk, None, Role::User, "in other words")
    };
    let edited = scene.history().append_message(edit, 10).unwrap();
    assert_eq!(edited.kind, MessageKind::Summary);
}

#[test]
fn a_copy_is_not_found_beside_its_original_and_a_summary_is_named() {
    let mut scene = Scene::new();
    let talk = scene.conversation("long");
    scene.user(&talk, None, "about swifts");
    let second = scene.user(&talk, None, "do swifts sleep");
    let history = scene.history();
    let parts = [summary("it was about swifts"), copy(&second.id, true)];
    let added = history.add_branch(&talk.id, &parts, 9).unwrap();
    for text in ["swifts", "do swifts"] {
        let hits = history.search(text, 9).unwrap();
        assert!(
            hits.iter()
                .all(|hit| hit.message.as_ref() != Some(&added[1].id)),
            "{hits:?}"
        );
    }
    assert_eq!(history.search("swifts", 9).unwrap().len(), 3);
    let page = history.export(&talk.id, store::Format::Markdown).unwrap();
    assert!(
        page.contains("## Summary\n\nit was about swifts\n\n## You"),
        "{page}"
    );
}

#[test]
fn a_branch_that_cannot_be_made_leaves_nothing() {
    let mut scene = Scene::new();
    let (talk, other) = (scene.conversation("one"), scene.conversation("two"));
    let mine = scene.user(&talk, None, "mine");
    let foreign = scene.user(&other, None, "foreign");
    let parts = [
        summary("short"),
        copy(&mine.id, false),
        copy(&foreign.id, false),
    ];
    let refused = scene.history().add_branch(&talk.id, &parts, 9);
    assert!(matches!(refused, Err(Error::MessageMissing(id)) if id == foreign.id));
    let history = scene.history();
    assert_eq!(
        history.messages(&talk.id).unwrap(),
        std::slice::from_ref(&mine)
    );
    assert_eq!(
        history.conversation(&talk.id).unwrap().active_leaf,
        Some(mine.id)
    );
}

#[test]
fn what_to_do_when_full_is_remembered() {
    let mut scene = Scene::new();
    let talk = scene.conversation("long");
    assert_eq!(talk.when_full, WhenFull::Ask);
    scene
        .history()
        .set_when_full(&talk.id, WhenFull::DropOldest)
        .unwrap();
    scene.reopen();
    let read = scene.history().conversation(&talk.id).unwrap();
    assert_eq!(read.when_full, WhenFull::DropOldest);
}
