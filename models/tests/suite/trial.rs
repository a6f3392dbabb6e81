//! A trial: a device that computes what the CPU computes stands it, whatever the model's kind. (What a device that does not is
//! told is in `tests/integration/gpu/trial.rs`.)

use candle_core::quantized::GgmlDType;
use kernels::{KvFormat, Team};
use models::tiny::TinyModel;
use models::{Architecture, trials};

use crate::device::{device, write};
use crate::support::default_model_path;

/// How many trials a model takes, all of which the device stands.
fn stood(model: &TinyModel, kv: &str) -> usize {
    let (_folder, path) = write(model);
    let kv: KvFormat = kv.parse().expect("a format");
    let trials = trials(&path, kv).expect("trials");
    for trial in &trials {
        let outcome = trial.run(&device(), &Team::new(2));
        outcome.unwrap_or_else(|error| panic!("{trial:?}: {error}"));
    }
    trials.len()
}

#[test]
fn a_right_device_stands_the_trial_of_every_family() {
    for architecture in [
        Architecture::Llama,
        Architecture::Qwen2,
        Architecture::Qwen3,
    ] {
        assert_eq!(stood(&TinyModel::new(architecture, 1), "q8"), 1);
    }
}

#[test]
fn a_right_device_stands_the_trial_of_every_format_of_weights() {
    for weights in [
        GgmlDType::F16,
        GgmlDType::BF16,
        GgmlDType::Q4_0,
        GgmlDType::Q4_1,
        GgmlDType::Q5_0,
        GgmlDType::Q5_1,
        GgmlDType::Q8_0,
        GgmlDType::Q2K,
        GgmlDType::Q3K,
        GgmlDType::Q4K,
        GgmlDType::Q5K,
        GgmlDType::Q6K,
    ] {
        let model = TinyModel::wide(Architecture::Llama, 1, weights);
        assert_eq!(stood(&model, "f16"), 1);
    }
}

#[test]
fn a_right_device_stands_the_trial_of_every_format_of_keys_and_values() {
    let all = [
        "f16", "bf16", "q8", "q4", "bf16/f16", "q8/q4", "q4/bf16", "f16/q8",
    ];
    let sizes = [32, 96].map(|head_dim| ("q8", head_dim));
    for (kv, head_dim) in all.map(|kv| (kv, 64)).into_iter().chain(sizes) {
        let model = TinyModel {
            head_dim,
            ..TinyModel::new(Architecture::Llama, 1)
        };
        assert_eq!(stood(&model, kv), 1, "{kv}");
    }
}

#[test]
fn a_model_of_several_formats_is_tried_with_each() {
    let model = TinyModel {
        num_layers: 3,
        tied: true,
        format_of: |_, name| match name {
            "blk.1.attn_v.weight" | "blk.2.ffn_down.weight" => GgmlDType::Q6K,
            _ => GgmlDType::Q4K,
        },
        ..TinyModel::wide(Architecture::Llama, 1, GgmlDType::Q4K)
    };
    // The third layer has none that the second has not.
    assert_eq!(stood(&model, "q8"), 2);
}

#[test]
fn a_right_device_stands_the_trial_of_models_that_are_wider_than_it() {
    let model = TinyModel {
        num_layers: 1,
        hidden_size: 1024,
        intermediate_size: 1280,
        // Attention's output needs four of them for whole blocks of its format.
        num_heads: 24,
        num_kv_heads: 8,
        ..TinyModel::wide(Architecture::Qwen2, 1, GgmlDType::Q4K)
    };
    assert_eq!(stood(&model, "q8"), 1);
    for trial in trials(&default_model_path(), KvFormat::Q8).expect("trials") {
        trial.run(&device(), &Team::new(2)).expect("it is right");
    }
}
