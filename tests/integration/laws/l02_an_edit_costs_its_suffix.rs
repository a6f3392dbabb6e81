//! Law 2: tokens computed = prompt length − longest common token prefix, exact to the token.

use tests::{Chat, Outcome, Subject, prose};

fn common_prefix(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Checks an edit's counts against the tokens of the branch it left.
fn assert_costs_suffix(chat: &Chat, old: &[u32], edited: &Outcome) {
    let parent = chat
        .history()
        .message(&edited.message)
        .expect("reply")
        .parent
        .expect("user message");
    let new = chat.branch_tokens(&parent);
    assert_eq!(new.len(), edited.prompt_tokens as usize);
    let kept = common_prefix(old, &new).min(new.len() - 1);
    assert_eq!(edited.prefill.computed as usize, new.len() - kept);
    assert_eq!(
        (edited.prefill.resident + edited.prefill.restored) as usize,
        kept
    );
}

fn an_edit_costs_its_suffix(subject: Subject, turns: usize, words: usize, restart: bool) {
    let mut chat = Chat::new(subject);
    let mut last = None;
    for turn in 0..turns {
        last = Some(chat.say(&prose(turn, words)));
    }
    let old = chat.branch_tokens(&last.expect("a turn").message);
    for index in [turns - 1, turns / 2, 0] {
        let message = chat.user_messages()[index].clone();
        let text = chat.history().message(&message).expect("message").text;
        let cut = text.len() * 2 / 3;
        let text = format!("{} and something else", text[..cut].trim_end());
        if restart {
            chat.restart();
        }
        chat.engine().load(None).expect("model");
        let cost = chat.preview(Some(&message), &text);
        let edited = chat.edit(&message, &text);
        assert_costs_suffix(&chat, &old, &edited);
        assert_eq!(cost.of, edited.prompt_tokens, "the preview told the truth");
        assert_eq!(
            cost.keeps,
            edited.prompt_tokens - edited.prefill.computed,
            "the preview told the truth"
        );
        // Back to the branch that was edited.
        let leaf = last_reply_of(&chat, &old);
        let conversation = chat.conversation.clone();
        chat.history()
            .set_active_leaf(&conversation, Some(&leaf))
            .expect("leaf");
    }
}

fn last_reply_of(chat: &Chat, tokens: &[u32]) -> store::MessageId {
    let messages = chat.messages();
    let found = messages
        .iter()
        .find(|message| chat.branch_tokens(&message.id) == tokens);
    found.expect("the old branch is still there").id.clone()
}

#[test]
fn an_edit_costs_its_suffix_on_the_default_model() {
    an_edit_costs_its_suffix(Subject::Real, 3, 50, true);
}

#[test]
fn an_edit_costs_its_suffix_while_resident() {
    an_edit_costs_its_suffix(Subject::TINY, 6, 60, false);
}

#[test]
fn an_edit_costs_its_suffix_after_a_restart() {
    an_edit_costs_its_suffix(Subject::TINY, 6, 60, true);
}

#[test]
fn an_edited_answer_equals_the_cold_answer() {
    let mut chat = Chat::new(Subject::TINY);
    chat.say(&prose(0, 80));
    chat.say(&prose(1, 80));
    let message = chat.user_messages()[1].clone();
    let mut cold = chat.without_cache();
    let edited = chat.edit(&message, &prose(1, 40));
    assert!(edited.prefill.restored > 0);
    assert_eq!(edited.ids, cold.edit(&message, &prose(1, 40)).ids);
}

#[test]
fn flipping_between_branches_stays_warm() {
    let mut chat = Chat::new(Subject::TINY);
    let left = chat.say(&prose(0, 150)).message;
    let first = chat.user_messages()[0].clone();
    let right = chat.edit(&first, &prose(5, 150)).message;
    let mut leaves = [left, right];
    for flip in 0..20 {
        let leaf = &mut leaves[flip % 2];
        let before = chat.branch_tokens(leaf).len();
        let next = chat.say_after(leaf, "More.");
        let new_tokens = next.prompt_tokens as usize - before;
        assert!(
            next.prefill.computed as usize <= new_tokens + 1,
            "flip {flip}: {:?}",
            next.prefill
        );
        *leaf = next.message;
    }
}
