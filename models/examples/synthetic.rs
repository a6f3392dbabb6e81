//! Writes a complete model file of a known shape with random weights, for benches of formats and sizes that need no
//! download. It reads and runs like a trained one, here and in llama.cpp; what it says means nothing.
//!
//! ```sh
//! cargo run --release -p models --features tiny --example synthetic -- --shape 1b --weights q4_k_m FILE
//! ```

use std::path::PathBuf;
use std::process::ExitCode;

use candle_core::quantized::GgmlDType;
use models::Architecture;
use models::tiny::{self, TinyModel};

const USAGE: &str = "usage: synthetic --shape 135m|1b|8b --weights f16|q4_0|q4_1|q5_0|q5_1|q8_0|q4_k|q5_k|q6_k|q4_k_m FILE";

fn main() -> ExitCode {
    let Some((model, path)) = read(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match tiny::write(&path, &model) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The command line; `None` where it says something else than the usage.
fn read(mut words: impl Iterator<Item = String>) -> Option<(TinyModel, PathBuf)> {
    let (mut shaped, mut weights, mut path) = (None, None, None);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--shape" => shaped = Some(shape(&words.next()?)?),
            "--weights" => weights = Some(words.next()?),
            flag if flag.starts_with('-') => return None,
            file => path = Some(PathBuf::from(file)),
        }
    }
    Some((with_weights(shaped?, &weights?)?, path?))
}

fn shape(name: &str) -> Option<TinyModel> {
    let base = TinyModel {
        context_length: 8192,
        head_dim: 64,
        tied: true,
        ..TinyModel::new(Architecture::Llama, 1)
    };
    Some(match name {
        // SmolLM2-135M
        "135m" => TinyModel {
            num_layers: 30,
            hidden_size: 576,
            intermediate_size: 1536,
            num_heads: 9,
            num_kv_heads: 3,
            vocab_size: 49_152,
            ..base
        },
        // Llama 3.2 1B, but for its context
        "1b" => TinyModel {
            num_layers: 16,
            hidden_size: 2048,
            intermediate_size: 8192,
            num_heads: 32,
            num_kv_heads: 8,
            vocab_size: 128_256,
            ..base
        },
        // Llama 3.1 8B, but for its context
        "8b" => TinyModel {
            num_layers: 32,
            hidden_size: 4096,
            intermediate_size: 14_336,
            num_heads: 32,
            num_kv_heads: 8,
            head_dim: 128,
            vocab_size: 128_256,
            tied: false,
            ..base
        },
        _ => return None,
    })
}

fn with_weights(model: TinyModel, name: &str) -> Option<TinyModel> {
    let weights = match name {
        "f16" => GgmlDType::F16,
        "q4_0" => GgmlDType::Q4_0,
        "q4_1" => GgmlDType::Q4_1,
        "q5_0" => GgmlDType::Q5_0,
        "q5_1" => GgmlDType::Q5_1,
        "q8_0" => GgmlDType::Q8_0,
        "q4_k" | "q4_k_m" => GgmlDType::Q4K,
        "q5_k" => GgmlDType::Q5K,
        "q6_k" => GgmlDType::Q6K,
        _ => return None,
    };
    let format_of = match name {
        "q4_k_m" => q4_k_m,
        _ => model.format_of,
    };
    Some(TinyModel {
        weights,
        format_of,
        ..model
    })
}

/// llama.cpp's mix (`llama_tensor_get_type` in its `llama-quant.cpp`): Q6_K for the head, which here is the embedding,
/// and for the values and down projections of the layers that get more bits.
fn q4_k_m(model: &TinyModel, name: &str) -> GgmlDType {
    let mut parts = name.split('.');
    let more = match (parts.next(), parts.next(), parts.next()) {
        (Some("blk"), Some(layer), Some("attn_v" | "ffn_down")) => layer
            .parse()
            .is_ok_and(|i| has_more_bits(i, model.num_layers)),
        (Some("token_embd" | "output"), ..) => true,
        _ => false,
    };
    if more { GgmlDType::Q6K } else { model.weights }
}

/// The first eighth, the last eighth, and every third layer between them.
fn has_more_bits(layer: usize, num_layers: usize) -> bool {
    let eighth = num_layers / 8;
    layer < eighth || layer >= 7 * num_layers / 8 || (layer - eighth) % 3 == 2
}
