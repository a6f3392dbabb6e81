use serde_json::json;
use store::{Conversation, Error, Format, MessageId, NewMessage, Role, Sampling};

use crate::support::{Scene, TOKENIZER, message};

#[test]
fn a_conversation_is_a_tree_and_a_branch_is_a_path_through_it() {
    let mut scene = Scene::new();
    let talk = scene.conversation("tree");
    let root = scene.user(&talk, None, "hello");
    let left = scene.say(&talk, Some(&root.id), Role::Assistant, "left");
    let right = scene.say(&talk, Some(&root.id), Role::Assistant, "right");
    let deep = scene.user(&talk, Some(&left.id), "deeper");
    scene.reopen();

    let texts =
        |messages: Vec<store::Message>| messages.into_iter().map(|m| m.text).collect::<Vec<_>>();
    assert_eq!(
        texts(scene.history().messages(&talk.id).unwrap()),
        ["hello", "left", "right", "deeper"]
    );
    assert_eq!(
        texts(scene.history().branch(&deep.id).unwrap()),
        ["hello", "left", "deeper"]
    );
    assert_eq!(
        texts(scene.history().branch(&right.id).unwrap()),
        ["hello", "right"]
    );
    assert_eq!(
        scene.history().message(&deep.id).unwrap().parent,
        Some(left.id)
    );
}

#[test]
fn the_last_message_is_the_active_leaf_and_any_other_can_be_chosen() {
    let mut scene = Scene::new();
    let (talk, other) = (scene.conversation("one"), scene.conversation("two"));
    let first = scene.user(&talk, None, "a");
    let second = scene.user(&talk, Some(&first.id), "b");
    let foreign = scene.user(&other, None, "c");
    assert_eq!(
        scene.history().conversation(&talk.id).unwrap().active_leaf,
        Some(second.id)
    );
    scene
        .history()
        .set_active_leaf(&talk.id, Some(&first.id))
        .unwrap();
    assert_eq!(
        scene.history().conversation(&talk.id).unwrap().active_leaf,
        Some(first.id)
    );
    let refused = scene.history().set_active_leaf(&talk.id, Some(&foreign.id));
    assert!(matches!(refused, Err(Error::MessageMissing(_))));
}

#[test]
fn a_message_needs_a_parent_of_its_own_conversation() {
    let mut scene = Scene::new();
    let (talk, other) = (scene.conversation("one"), scene.conversation("two"));
    let foreign = scene.user(&other, None, "c");
    let now = scene.now();
    for parent in [&foreign.id, &MessageId::from("nobody")] {
        let refused = scene
            .history()
            .append_message(message(&talk, Some(parent), Role::User, "x"), now);
        assert!(matches!(refused, Err(Error::MessageMissing(_))));
    }
    let mut nowhere = message(&talk, None, Role::User, "x");
    nowhere.conversation = "nowhere".into();
    assert!(matches!(
        scene.history().append_message(nowhere, now),
        Err(Error::ConversationMissing(_))
    ));
    assert!(scene.history().messages(&talk.id).unwrap().is_empty());
}

#[test]
fn an_edit_remembers_what_it_was_made_from() {
    let mut scene = Scene::new();
    let talk = scene.conversation("edit");
    let root = scene.user(&talk, None, "teh");
    let edit = NewMessage {
        edited_from: Some(root.id.clone()),
        ..message(&talk, None, Role::User, "the")
    };
    let now = scene.now();
    let edited = scene.history().append_message(edit, now).unwrap();
    assert_eq!(
        scene.history().message(&edited.id).unwrap().edited_from,
        Some(root.id)
    );
}

#[test]
fn the_first_user_message_names_a_conversation_without_a_title() {
    let mut scene = Scene::new();
    let talk = scene.conversation("");
    let first = scene.user(
        &talk,
        None,
        "\n  What is a monad, and why should anybody care about it in everyday work?\nmore",
    );
    scene.user(&talk, Some(&first.id), "second");
    let title = scene.history().conversation(&talk.id).unwrap().title;
    assert_eq!(
        title,
        "What is a monad, and why should anybody care about it in…"
    );
    let named = scene.conversation("kept");
    scene.user(&named, None, "words");
    assert_eq!(
        scene.history().conversation(&named.id).unwrap().title,
        "kept"
    );
}

#[test]
fn conversations_come_by_recency_with_what_was_set() {
    let mut scene = Scene::new();
    let (old, new) = (scene.conversation("old"), scene.conversation("new"));
    scene.user(&old, None, "now the newest");
    let sampling = Sampling {
        temperature: 0.0,
        seed: Some(u64::MAX),
        stop: vec!["END".into()],
        ..Default::default()
    };
    let history = scene.history();
    history.rename(&old.id, "renamed").unwrap();
    history.set_model(&old.id, Some("smol")).unwrap();
    history.set_sampling(&old.id, &sampling).unwrap();
    history.set_system_prompt(&old.id, "be brief").unwrap();
    scene.reopen();
    let all = scene.history().conversations().unwrap();
    assert_eq!([&all[0].id, &all[1].id], [&old.id, &new.id]);
    assert_eq!(
        (all[0].title.as_str(), all[0].model.as_deref()),
        ("renamed", Some("smol"))
    );
    assert_eq!(
        (&all[0].sampling, all[0].system_prompt.as_str()),
        (&sampling, "be brief")
    );
}

#[test]
fn a_deletion_can_be_undone_until_it_is_purged() {
    let mut scene = Scene::new();
    let (talk, other) = (scene.conversation("gone"), scene.conversation("stays"));
    let root = scene.user(&talk, None, "hello");
    let leaf = scene.say(&talk, Some(&root.id), Role::Assistant, "hi");
    scene.history().delete_conversation(&talk.id, 500).unwrap();
    assert_eq!(scene.history().conversations().unwrap().len(), 1);
    assert!(matches!(
        scene.history().conversation(&talk.id),
        Err(Error::ConversationMissing(_))
    ));
    assert!(matches!(
        scene.history().messages(&talk.id),
        Err(Error::ConversationMissing(_))
    ));
    let now = scene.now();
    let refused = scene
        .history()
        .append_message(message(&talk, None, Role::User, "x"), now);
    assert!(matches!(refused, Err(Error::ConversationMissing(_))));

    scene.history().restore_conversation(&talk.id).unwrap();
    assert_eq!(scene.history().messages(&talk.id).unwrap().len(), 2);

    scene.history().delete_conversation(&talk.id, 500).unwrap();
    assert!(scene.history().purge_deleted(500).unwrap().is_empty());
    assert_eq!(
        scene.history().purge_deleted(501).unwrap(),
        [root.id, leaf.id]
    );
    assert!(matches!(
        scene.history().restore_conversation(&talk.id),
        Err(Error::ConversationMissing(_))
    ));
    assert!(scene.history().conversation(&other.id).is_ok());
}

#[test]
fn a_very_long_conversation_can_be_walked_and_purged() {
    let mut scene = Scene::new();
    let talk = scene.conversation("long");
    let mut leaf: Option<MessageId> = None;
    // Past the depth at which SQLite gives up on nested triggers.
    for turn in 0..1200 {
        leaf = Some(scene.user(&talk, leaf.as_ref(), &format!("turn {turn}")).id);
    }
    assert_eq!(scene.history().branch(&leaf.unwrap()).unwrap().len(), 1200);
    scene.history().delete_conversation(&talk.id, 1).unwrap();
    assert_eq!(scene.history().purge_deleted(i64::MAX).unwrap().len(), 1200);
}

#[test]
fn token_ids_are_kept_per_tokenizer() {
    let mut scene = Scene::new();
    let talk = scene.conversation("tokens");
    let root = scene.user(&talk, None, "hello");
    let ids = [0, 1, 255, 256, 65_536, u32::MAX];
    scene
        .history()
        .set_tokens(&root.id, &TOKENIZER, &ids)
        .unwrap();
    scene.reopen();
    assert_eq!(
        scene
            .history()
            .tokens(&root.id, &TOKENIZER)
            .unwrap()
            .as_deref(),
        Some(ids.as_slice())
    );
    assert_eq!(scene.history().tokens(&root.id, &[8; 32]).unwrap(), None);
    assert_eq!(scene.history().message(&root.id).unwrap().num_tokens, 6);
    let nobody = scene
        .history()
        .set_tokens(&"nobody".into(), &TOKENIZER, &ids);
    assert!(matches!(nobody, Err(Error::MessageMissing(_))));
}

#[test]
fn a_new_system_prompt_forgets_the_ids_of_root_messages_only() {
    let mut scene = Scene::new();
    let (talk, other) = (scene.conversation("one"), scene.conversation("two"));
    let root = scene.user(&talk, None, "hello");
    let child = scene.user(&talk, Some(&root.id), "again");
    let foreign = scene.user(&other, None, "other");
    for id in [&root.id, &child.id, &foreign.id] {
        scene.history().set_tokens(id, &TOKENIZER, &[1, 2]).unwrap();
    }
    scene.history().set_system_prompt(&talk.id, "new").unwrap();
    assert_eq!(scene.history().tokens(&root.id, &TOKENIZER).unwrap(), None);
    assert_eq!(scene.history().message(&root.id).unwrap().num_tokens, 0);
    for id in [&child.id, &foreign.id] {
        assert!(scene.history().tokens(id, &TOKENIZER).unwrap().is_some());
    }
}

#[test]
fn settings_and_models_are_kept() {
    let mut scene = Scene::new();
    let history = scene.history();
    history
        .set_setting("window", &json!({"width": 900}))
        .unwrap();
    history
        .set_setting("window", &json!({"width": 901}))
        .unwrap();
    history.add_model("b", "/models/b.gguf".as_ref()).unwrap();
    history.add_model("a", "/models/a.gguf".as_ref()).unwrap();
    history
        .add_model("a", "/elsewhere/a.gguf".as_ref())
        .unwrap();
    scene.reopen();
    assert_eq!(
        scene.history().setting("window").unwrap(),
        Some(json!({"width": 901}))
    );
    assert_eq!(scene.history().setting("nothing").unwrap(), None);
    let models = scene.history().models().unwrap();
    assert_eq!(
        (models[0].name.as_str(), models[0].path.as_str()),
        ("a", "/elsewhere/a.gguf")
    );
    scene.history().remove_model("a").unwrap();
    assert_eq!(scene.history().models().unwrap().len(), 1);
}

#[test]
fn an_export_reads_as_the_shown_branch_or_holds_the_whole_tree() {
    let mut scene = Scene::new();
    let talk = scene.conversation("Trip");
    scene
        .history()
        .set_system_prompt(&talk.id, "Be brief.")
        .unwrap();
    let root = scene.user(&talk, None, "Where to?");
    scene.say(&talk, Some(&root.id), Role::Assistant, "Rome.");
    scene.say(&talk, Some(&root.id), Role::Assistant, "Oslo.");
    let markdown = scene.history().export(&talk.id, Format::Markdown).unwrap();
    assert_eq!(
        markdown,
        "# Trip\n\n## System\n\nBe brief.\n\n## You\n\nWhere to?\n\n## Assistant\n\nOslo.\n"
    );
    let json = scene.history().export(&talk.id, Format::Json).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["conversation"]["title"], "Trip");
    assert_eq!(json["messages"].as_array().unwrap().len(), 3);
    assert_eq!(json["messages"][1]["text"], "Rome.");
}

#[test]
fn a_conversation_that_was_used_under_a_wrong_clock_does_not_stay_on_top() {
    let mut scene = Scene::new();
    let [wrong, right] = ["wrong", "right"].map(|title| scene.conversation(title));
    let now = scene.now();
    let year_ms = 365 * 24 * 3600 * 1000;
    let mut use_at = |talk: &Conversation, at_ms: i64| {
        let new = message(talk, None, Role::User, "words");
        scene.history().append_message(new, at_ms).unwrap();
        let listed = scene.history().conversations().unwrap();
        (listed[0].title.clone(), listed[0].updated_at)
    };
    assert_eq!(
        use_at(&wrong, now + year_ms),
        ("wrong".to_owned(), now + year_ms)
    );
    assert_eq!(use_at(&right, now), ("right".to_owned(), now));
    assert_eq!(use_at(&wrong, now + 1).0, "wrong");
    assert_eq!(
        use_at(&wrong, now + 1).1,
        now + 1,
        "the time is true again as well"
    );
    // A clock that is behind does not hide a conversation either.
    assert_eq!(use_at(&right, 1), ("right".to_owned(), 1));
    let new = scene.conversation("new");
    assert_eq!(scene.history().conversations().unwrap()[0].id, new.id);
}
