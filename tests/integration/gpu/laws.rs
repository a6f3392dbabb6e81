//! The laws, where blocks lie in the memory of a GPU.

use std::fs;
use std::path::Path;

use tests::{Outcome, message_for_prompt, prose};

use super::{chat, memory};

const WORDS: usize = 40;

/// Changes a byte in every kilobyte of every pool file.
fn damage(folder: &Path) {
    for entry in fs::read_dir(folder).expect("folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            damage(&path);
        } else if path
            .extension()
            .is_some_and(|extension| extension == "pool")
        {
            let mut bytes = fs::read(&path).expect("pool");
            bytes
                .chunks_mut(1024)
                .for_each(|part| part[part.len() / 2] ^= 1);
            fs::write(&path, bytes).expect("pool");
        }
    }
}

/// A conversation in which every reply is greedy; `restart` ends the engine before the last message.
fn last_reply(restart: bool) -> Outcome {
    let mut chat = chat();
    chat.say(&prose(0, WORDS));
    assert!(memory(&chat).device.name.is_some(), "{:?}", memory(&chat));
    if restart {
        chat.restart();
    }
    chat.say("And then?")
}

#[test]
fn law_1_resume_equals_never_left() {
    let (stayed, resumed) = (last_reply(false), last_reply(true));
    assert_eq!(resumed.ids, stayed.ids);
    assert_eq!(resumed.prefill.computed, stayed.prefill.computed);
    assert_eq!(resumed.prefill.restored, stayed.prefill.resident);
    assert_eq!(resumed.prefill.resident, 0);
}

#[test]
fn law_1_what_made_way_on_the_gpu_goes_on_from_the_machines_memory() {
    let mut stayed = chat();
    let text = message_for_prompt(&stayed, 140);
    stayed.say(&text);
    let stayed = stayed.say("And then?");
    let mut chat = chat();
    let model = chat.engine().load(None).expect("a model").expect("a model");
    // Three blocks each, and room for two less than both.
    chat.restart_with_pool(5 * 64 * model.kv_bytes_per_token);
    chat.say(&text);
    let beside = chat.new_conversation("");
    chat.say_in(&beside, &prose(9, WORDS));
    let before = memory(&chat);
    assert!(before.host.cached_bytes > 0, "{before:?}");
    // Whatever is not in memory is lost.
    chat.engine().cache_stats().expect("all is on disk");
    damage(&chat.kv());
    let back = chat.say("And then?");
    assert_eq!(back.ids, stayed.ids);
    assert_eq!(back.prefill.computed, stayed.prefill.computed);
    assert!(back.prefill.restored > 0, "{:?}", back.prefill);
    let after = memory(&chat);
    assert_eq!((after.pool.active_bytes, after.host.active_bytes), (0, 0));
    assert!(after.host.cached_bytes <= after.host.budget_bytes);
    chat.engine().release().expect("released");
    assert_eq!(memory(&chat).host, engine::TierUse::default());
}

#[test]
fn law_2_an_edit_costs_its_suffix_and_is_what_a_cold_run_computes() {
    let mut chat = chat();
    let text = prose(4, WORDS);
    chat.say(&text);
    let users = chat.user_messages();
    // The last word is another: the block before stays, of the last one a part.
    let edited = format!("{} otherwise", text.rsplit_once(' ').expect("words").0);
    let cost = chat.preview(Some(&users[0]), &edited);
    let reply = chat.edit(&users[0], &edited);
    assert_eq!(reply.prefill.resident, cost.keeps);
    assert!(cost.keeps > 64, "{cost:?}");
    assert_eq!(reply.prefill.computed, reply.prompt_tokens - cost.keeps);
    let cold = chat.without_cache().regenerate(&reply.message);
    assert_eq!(cold.prefill.computed, cold.prompt_tokens);
    assert_eq!(
        cold.ids, reply.ids,
        "a prompt's tokens have the same bits in any chunk"
    );
}

#[test]
fn law_3_and_8_one_token_is_computed_and_counted_when_all_is_there() {
    let mut chat = chat();
    let first = chat.say(&prose(2, WORDS));
    let again = chat.regenerate(&first.message);
    assert_eq!(again.prefill.computed, 1);
    assert_eq!(again.prefill.resident, again.prompt_tokens - 1);
    assert_eq!(again.ids.len(), first.ids.len());
}

#[test]
fn law_4_a_damaged_block_is_a_miss_and_the_pool_is_as_before() {
    let mut chat = chat();
    chat.say(&message_for_prompt(&chat, 140));
    let mut cold = chat.without_cache();
    chat.stop();
    damage(&chat.kv());
    chat.start();
    let reply = chat.say("And then?");
    assert_eq!(reply.prefill.restored + reply.prefill.resident, 0);
    assert_eq!(reply.ids, cold.say("And then?").ids);
    assert_eq!(memory(&chat).pool.active_bytes, 0);
}

#[test]
fn law_5_blocks_of_the_cpu_are_not_taken_for_those_of_the_gpu() {
    let mut chat = chat();
    chat.say(&prose(3, WORDS));
    chat.restart_on("cpu");
    let reply = chat.say("And then?");
    assert_eq!(memory(&chat).device.name, None);
    assert_eq!(reply.prefill.restored + reply.prefill.resident, 0);
    chat.restart_on("cuda:0");
    let reply = chat.say("And after that?");
    assert!(
        reply.prefill.restored > 0,
        "those of the GPU are still there"
    );
}
