//! Law 1: save, end the process, restart, continue greedily: the same tokens as without the restart.

use models::Architecture;
use tests::{Chat, Subject, message_for_prompt, prose};

/// A conversation in which every reply is greedy; `restart` ends the engine before the last message.
fn last_reply(subject: Subject, words: usize, restart: bool) -> tests::Outcome {
    let mut chat = Chat::new(subject);
    chat.say(&prose(0, words));
    chat.say(&prose(1, words / 2));
    if restart {
        chat.restart();
    }
    chat.say("And then?")
}

fn resume_equals_never_left(subject: Subject, words: usize) {
    let stayed = last_reply(subject, words, false);
    let resumed = last_reply(subject, words, true);
    assert_eq!(resumed.ids, stayed.ids);
    assert_eq!(resumed.text, stayed.text);
    assert_eq!(
        resumed.prefill.computed, stayed.prefill.computed,
        "nothing is read again"
    );
    assert_eq!(resumed.prefill.restored, stayed.prefill.resident);
    assert_eq!(resumed.prefill.resident, 0);
}

#[test]
fn resume_equals_never_left_on_the_default_model() {
    resume_equals_never_left(Subject::Real, 120);
}

#[test]
fn resume_equals_never_left_in_every_architecture() {
    for architecture in [
        Architecture::Llama,
        Architecture::Qwen2,
        Architecture::Qwen3,
    ] {
        resume_equals_never_left(Subject::Tiny(architecture, 3), 150);
    }
}

#[test]
fn resume_equals_never_left_at_block_boundaries() {
    for num_tokens in [63, 64, 65, 127, 128, 129, 191, 192, 193] {
        let mut chat = Chat::new(Subject::TINY);
        chat.engine().load(None).expect("model");
        let text = message_for_prompt(&chat, num_tokens);
        let first = chat.say(&text);
        assert_eq!(first.prompt_tokens, num_tokens);
        let mut cold = chat.without_cache();
        let resumed = chat.say("And then?");
        let cold = cold.say("And then?");
        assert_eq!(cold.prefill.restored + cold.prefill.resident, 0);
        assert_eq!(resumed.ids, cold.ids, "prompt of {num_tokens}");
        // All but the last sampled token, whose keys and values nobody computed yet.
        let known = num_tokens + first.ids.len() as u32 - 1;
        assert_eq!(resumed.prefill.restored, known, "prompt of {num_tokens}");
    }
}

#[test]
fn a_cold_a_restored_and_a_resident_run_agree_on_the_default_model() {
    let mut chat = Chat::new(Subject::Real);
    let first = chat.say(&prose(3, 100));
    let resident = chat.say_after(&first.message, "Go on.");
    let mut cold = chat.without_cache();
    let restored = chat.say_after(&first.message, "Go on.");
    let cold = cold.say_after(&first.message, "Go on.");
    assert_eq!(resident.ids, cold.ids);
    assert_eq!(restored.ids, cold.ids);
    assert!(restored.prefill.restored > 100 && cold.prefill.computed == cold.prompt_tokens);
}
