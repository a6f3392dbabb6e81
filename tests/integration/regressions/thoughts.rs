//! Replies that begin inside a thought that their prompt opened, and repetition penalties that let a reply end.

use engine::{Turn, TurnEvent, TurnOptions};
use models::Architecture;
use models::tiny::{self, TinyModel};
use store::{MessageState, Role};
use tests::{Chat, Subject};

/// ChatML whose generation prompt opens a thought, as DeepSeek-R1, QwQ and Qwen3-Thinking have it.
const THINKING: &str = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}\
                        {% if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>\\n' }}{% endif %}";
const OPENING: &str = "<think>\n";

fn thinking() -> Chat {
    let mut chat = Chat::new(Subject::TINY);
    chat.stop();
    let model = TinyModel {
        chat_template: Some(THINKING.into()),
        ..TinyModel::new(Architecture::Llama, 1)
    };
    tiny::write(&chat.home().join("models/tiny-1.gguf"), &model).expect("a model");
    chat.start();
    chat
}

#[test]
fn a_reply_begins_in_the_thought_that_its_prompt_has_opened() {
    let mut chat = thinking();
    let events = chat.try_to_say("hello world");
    let first = events.iter().find_map(|event| match event {
        TurnEvent::Token { text } => Some(text.as_str()),
        _ => None,
    });
    assert_eq!(first, Some(OPENING), "whoever reads along knows at once");
    let reply = chat.outcome(&events);
    assert!(reply.text.starts_with(OPENING), "{:?}", reply.text);
    assert_eq!(
        reply.ids.len(),
        chat.max_tokens as usize,
        "the ids that the model wrote"
    );
    let prompt = chat.tokens(&chat.user_messages()[0]);
    assert_eq!(
        prompt.len(),
        reply.prompt_tokens as usize,
        "the tag is of the prompt"
    );

    // The next turn reuses every computed token, with no tag inserted.
    let next = chat.say("and then");
    let reused = next.prefill.resident + next.prefill.restored;
    assert_eq!(reused, reply.prompt_tokens + chat.max_tokens - 1);
    chat.restart();
    let later = chat.say("and then");
    assert!(
        later.prefill.restored > next.prompt_tokens,
        "{:?}",
        later.prefill
    );
}

#[test]
fn a_reply_that_begins_in_a_thought_and_was_cut_off_goes_on_as_if_it_was_not() {
    let mut chat = thinking();
    chat.max_tokens = 12;
    let whole = chat.say("hello world");
    for cut in [1, 5] {
        chat.max_tokens = cut;
        let begun = chat.regenerate(&whole.message);
        assert!(begun.text.starts_with(OPENING), "{:?}", begun.text);
        chat.max_tokens = 12 - cut;
        let continued = chat.go_on(&begun.message);
        assert_eq!(continued.ids, whole.ids);
        assert_eq!(
            continued.text.matches("<think>").count(),
            1,
            "{:?}",
            continued.text
        );
        assert_eq!(continued.state, MessageState::Length);
    }
}

#[test]
fn a_penalty_for_repetition_lets_a_short_reply_end() {
    let chat = Chat::new(Subject::Real);
    let question = "What is the capital of France? Answer in one short sentence.";
    for seed in [1, 2, 3] {
        let turn = Turn::Send {
            conversation: chat.new_conversation(""),
            parent: None,
            text: question.into(),
            options: TurnOptions {
                seed: Some(seed),
                max_tokens: Some(40),
                repetition_penalty: Some(1.5),
                ..TurnOptions::default()
            },
        };
        let conversation = turn.conversation().clone();
        let events: Vec<TurnEvent> = chat.engine().submit(turn).collect();
        let history = chat.history();
        let messages = history.messages(&conversation).expect("messages");
        let reply = messages.iter().find(|it| it.role == Role::Assistant);
        let state = reply.map(|reply| reply.state);
        assert_eq!(
            state,
            Some(MessageState::Complete),
            "seed {seed}: {events:?}"
        );
    }
}
