//! Law 10: a template that rewrites earlier text may not silently cost a full prefill.

use models::Architecture;
use models::tiny::{self, CHATML, TinyModel};
use tests::{Chat, Subject, prose};

/// Replaces the chat's model file by one with `template`.
fn with_template(template: &str) -> Chat {
    let mut chat = Chat::new(Subject::TINY);
    chat.stop();
    let path = chat.home().join("models").join("tiny-1.gguf");
    let model = TinyModel {
        chat_template: Some(template.to_owned()),
        ..TinyModel::new(Architecture::Llama, 1)
    };
    tiny::write(&path, &model).expect("tiny model");
    chat.start();
    chat
}

#[test]
fn a_clock_in_the_template_stands_still_per_conversation() {
    let clock = format!(
        "{{{{ '<|im_start|>system\\nIt is ' + strftime_now('%H:%M:%S') + '<|im_end|>\\n' }}}}{CHATML}"
    );
    let mut chat = with_template(&clock);
    let first = chat.say(&prose(0, 100));
    chat.restart();
    let next = chat.say("More.");
    let known = first.prompt_tokens + first.ids.len() as u32 - 1;
    assert_eq!(next.prefill.restored, known, "{:?}", next.prefill);
}

#[test]
fn a_template_that_drops_earlier_thinking_keeps_stored_tokens() {
    let dropping = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' }}\
        {% if message['role'] == 'assistant' and not loop.last %}{{ message['content'].split('</think>')[-1].lstrip() }}\
        {% else %}{{ message['content'] }}{% endif %}{{ '<|im_end|>\\n' }}{% endfor %}\
        {% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
    let mut chat = with_template(dropping);
    let first = chat.say(&prose(0, 100));
    let thought = chat.edit(
        &first.message,
        "So many words. </think> That is a man with a machine.",
    );
    let text = chat
        .history()
        .message(&thought.message)
        .expect("reply")
        .text;
    assert!(text.contains("</think>"));
    let first = chat.say("Thank you.");
    let next = chat.say("More.");
    let known = first.prompt_tokens + first.ids.len() as u32 - 1;
    assert_eq!(next.prefill.resident, known, "{:?}", next.prefill);
}

#[test]
fn a_new_system_prompt_is_shown_as_computed() {
    let mut chat = Chat::with_system(Subject::TINY, "Be brief.");
    chat.say(&prose(0, 100));
    let conversation = chat.conversation.clone();
    chat.history()
        .set_system_prompt(&conversation, "Be verbose, and more than that.")
        .expect("system prompt");
    let next = chat.say("More.");
    assert!(next.prefill.computed > 90, "{:?}", next.prefill);
    let mut cold = chat.without_cache();
    assert_eq!(
        chat.regenerate(&next.message).ids,
        cold.regenerate(&next.message).ids
    );
}
