//! What a GPU is used for that computes a kernel wrongly: nothing.

use engine::DeviceUse;
use models::Architecture;
use models::tiny::{self, GgmlDType, TinyModel};
use tests::{Chat, Subject};

use super::{engine_beside_driver, memory};

/// A chat whose model is of this shape, not loaded yet.
fn chat_with(model: &TinyModel) -> Chat {
    let chat = Chat::new(Subject::TINY);
    let path = chat.home().join("models/tiny-1.gguf");
    tiny::write(&path, model).expect("a tiny model");
    chat
}

/// What runs the model beside a driver on which the kernels of this name write so many words wrongly.
fn used(chat: &mut Chat, wrong: &str, words: usize) -> DeviceUse {
    let folder = tempfile::tempdir().expect("a folder");
    let lines = format!("export PTX_DRIVER_WRONG={wrong} PTX_DRIVER_WRONG_WORDS={words}");
    chat.restart_as(engine_beside_driver(folder.path(), &lines));
    chat.engine().load(None).expect("a model");
    memory(chat).device
}

/// Each of these kernels is found out.
fn check(chat: &mut Chat, kernels: &[&str], words: usize) {
    // A name that no kernel has.
    let right = used(chat, "none", words);
    assert!(right.name.is_some(), "{right:?}");
    let is_found = |kernel: &&&str| {
        let used = used(chat, kernel, words);
        let said = "PTX interpreter failed its self-test: trial: ";
        used.name.is_none() && used.reason.is_some_and(|reason| reason.starts_with(said))
    };
    let found: Vec<&&str> = kernels.iter().filter(is_found).collect();
    assert_eq!(found, kernels.iter().collect::<Vec<_>>());
}

#[test]
fn a_gpu_that_computes_a_kernel_wrongly_is_not_used_and_says_why() {
    let mut chat = chat_with(&TinyModel::new(Architecture::Llama, 1));
    let kernels = [
        "paged_attention_prefill",
        "paged_attention_decode",
        "paged_attention_combine",
        "kv_write",
        "rope",
        "add_rms_norm",
        "swiglu",
        "product_plain_f32",
        "product_decode_f32",
        "embedding_f32",
        "sample_greedy",
        "sample_top_k",
        "clear_tokens",
    ];
    // A single one.
    check(&mut chat, &kernels, 1);
    chat.max_tokens = 2;
    assert_eq!(chat.say("Hello").ids.len(), 2, "the CPU answers");
}

#[test]
fn kernels_of_formats_of_weights_keys_and_values_are_tried_where_the_model_has_them() {
    let q6 = TinyModel::wide(Architecture::Qwen3, 1, GgmlDType::Q6K);
    let kernels = [
        // On tensor cores.
        "paged_attention_prefill_64_f16",
        "paged_attention_decode",
        "kv_write",
        "key_offsets",
        "product_prefill_q6k",
        "product_decode_q6k",
    ];
    // As many as the threads of a warp: between steps of bytes a single one of attention's is not seen.
    check(&mut chat_with(&q6), &kernels, 32);
}
