//! What was written and not sent.

use store::{Conversation, Error, MessageId, Role, Unsent};

use crate::support::Scene;

fn unsent(talk: Option<&Conversation>, message: Option<&MessageId>, text: &str) -> Unsent {
    Unsent {
        conversation: talk.map(|talk| talk.id.clone()),
        message: message.cloned(),
        text: text.into(),
    }
}

impl Scene {
    fn keep(&mut self, talk: Option<&Conversation>, message: Option<&MessageId>, text: &str) {
        let words = unsent(talk, message, text);
        self.history().keep_unsent(&words).unwrap();
    }

    fn kept(&mut self) -> Vec<String> {
        let all = self.history().unsent().unwrap();
        all.into_iter().map(|unsent| unsent.text).collect()
    }
}

#[test]
fn words_that_were_not_sent_are_there_after_a_restart_each_in_its_place() {
    let mut scene = Scene::new();
    let (one, two) = (scene.conversation("one"), scene.conversation("two"));
    let message = scene.user(&one, None, "hello");
    scene.keep(None, None, "a beginning");
    scene.keep(Some(&one), None, "half a tho");
    scene.keep(Some(&one), Some(&message.id), "hello there");
    scene.keep(Some(&two), None, "  another\n");
    scene.keep(Some(&one), None, "half a thought");
    scene.reopen();
    let mut all = scene.history().unsent().unwrap();
    all.sort_by(|a, b| a.text.cmp(&b.text));
    let expected = [
        unsent(Some(&two), None, "  another\n"),
        unsent(None, None, "a beginning"),
        unsent(Some(&one), None, "half a thought"),
        unsent(Some(&one), Some(&message.id), "hello there"),
    ];
    assert_eq!(all, expected);
    for Unsent {
        conversation,
        message,
        ..
    } in expected
    {
        let empty = Unsent {
            conversation,
            message,
            text: String::new(),
        };
        scene.history().keep_unsent(&empty).unwrap();
    }
    assert!(scene.kept().is_empty());
}

#[test]
fn words_become_a_message_in_the_moment_in_which_they_are_unsent_no_more() {
    let mut scene = Scene::new();
    let (one, two) = (scene.conversation("one"), scene.conversation("two"));
    let first = scene.user(&one, None, "hello");
    scene.keep(Some(&one), Some(&first.id), "an edit");
    scene.keep(Some(&one), None, "a reply");
    scene.keep(Some(&two), None, "a reply");
    scene.user(&one, Some(&first.id), "a reply");
    assert_eq!(scene.kept(), ["an edit", "a reply"]);
    // What was typed on in the meantime is another text.
    scene.keep(Some(&one), None, "more than that");
    scene.user(&one, Some(&first.id), "more");
    scene.say(&one, Some(&first.id), Role::Assistant, "an edit");
    assert_eq!(scene.kept(), ["a reply", "more than that"]);
}

#[test]
fn words_go_and_come_back_with_their_conversation() {
    let mut scene = Scene::new();
    let talk = scene.conversation("one");
    let message = scene.user(&talk, None, "hello");
    scene.keep(Some(&talk), None, "a thought");
    scene.keep(Some(&talk), Some(&message.id), "an edit");
    scene.history().delete_conversation(&talk.id, 500).unwrap();
    assert!(scene.kept().is_empty());
    // What was on its way when the conversation was deleted.
    scene.keep(Some(&talk), None, "a thought of mine");
    scene.history().restore_conversation(&talk.id).unwrap();
    assert_eq!(scene.kept(), ["an edit", "a thought of mine"]);
    scene.history().delete_conversation(&talk.id, 500).unwrap();
    scene.history().purge_deleted(501).unwrap();
    let late = unsent(Some(&talk), None, "too late");
    assert!(matches!(
        scene.history().keep_unsent(&late),
        Err(Error::ConversationMissing(_))
    ));
    scene.reopen();
    assert!(scene.kept().is_empty());
}

#[test]
fn an_edit_belongs_to_a_message_of_its_conversation() {
    let mut scene = Scene::new();
    let (one, two) = (scene.conversation("one"), scene.conversation("two"));
    let message = scene.user(&one, None, "hello");
    for talk in [None, Some(&two)] {
        let strange = unsent(talk, Some(&message.id), "strange");
        assert!(matches!(
            scene.history().keep_unsent(&strange),
            Err(Error::MessageMissing(_))
        ));
    }
    assert!(scene.kept().is_empty());
}
