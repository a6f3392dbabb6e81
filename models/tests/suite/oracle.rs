//! The same weights and tokens give the same logits as candle-transformers' quantized models.
//!
//! Teacher-forced, one token after another, since the oracle gives the last token's logits only. Ours keeps keys and
//! values in f16, the oracle in f32, and for quantized weights each rounds activations in its own way; the tolerances
//! say how much that may be. The most likely token must agree wherever the oracle's margin exceeds what two errors of
//! that size can turn round.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use candle_core::quantized::GgmlDType;
use candle_core::quantized::gguf_file::Content;
use candle_core::{Device, Tensor};
use candle_transformers::models::{quantized_llama, quantized_qwen2, quantized_qwen3};
use models::tiny::TinyModel;
use models::{Architecture, Model};

use crate::support::{default_model, default_model_path, sequence, tiny, tokens};

enum Oracle {
    Llama(quantized_llama::ModelWeights),
    Qwen2(quantized_qwen2::ModelWeights),
    Qwen3(quantized_qwen3::ModelWeights),
}

impl Oracle {
    fn open(path: &Path, architecture: Architecture) -> Oracle {
        let mut file = BufReader::new(File::open(path).unwrap());
        let content = Content::read(&mut file).unwrap();
        let device = &Device::Cpu;
        match architecture {
            Architecture::Llama => Oracle::Llama(
                quantized_llama::ModelWeights::from_gguf(content, &mut file, device).unwrap(),
            ),
            Architecture::Qwen2 => Oracle::Qwen2(
                quantized_qwen2::ModelWeights::from_gguf(content, &mut file, device).unwrap(),
            ),
            Architecture::Qwen3 => Oracle::Qwen3(
                quantized_qwen3::ModelWeights::from_gguf(content, &mut file, device).unwrap(),
            ),
        }
    }

    fn logits(&mut self, token: u32, offset: usize) -> Vec<f32> {
        let input = Tensor::new(&[[token]], &Device::Cpu).unwrap();
        let logits = match self {
            Oracle::Llama(model) => model.forward(&input, offset),
            Oracle::Qwen2(model) => model.forward(&input, offset),
            Oracle::Qwen3(model) => model.forward(&input, offset),
        };
        logits.unwrap().flatten_all().unwrap().to_vec1().unwrap()
    }
}

/// Largest and root-mean-square difference over all positions; panics where a clear winner differs.
fn compare(model: &Model, oracle: &mut Oracle, tokens: &[u32], tolerance: f32) -> (f32, f32) {
    let (pool, table) = sequence(model, tokens.len());
    let ours = model
        .forward_all(tokens, 0, &pool, &table)
        .unwrap()
        .to_vec2::<f32>()
        .unwrap();
    let (mut largest, mut squares, mut clear) = (0f32, 0f64, 0);
    for (position, (token, ours)) in tokens.iter().zip(&ours).enumerate() {
        let theirs = oracle.logits(*token, position);
        assert_eq!(ours.len(), theirs.len());
        for (a, b) in ours.iter().zip(&theirs) {
            largest = largest.max((a - b).abs());
            squares += f64::from((a - b).powi(2)) / ours.len() as f64;
        }
        let (first, margin) = top(&theirs);
        if margin > 2.0 * tolerance {
            clear += 1;
            assert_eq!(top(ours).0, first, "position {position}, margin {margin}");
        }
    }
    assert!(
        clear * 2 > tokens.len(),
        "only {clear} of {} positions have a clear winner",
        tokens.len()
    );
    (largest, (squares / tokens.len() as f64).sqrt() as f32)
}

/// The most likely token and how far it leads.
fn top(logits: &[f32]) -> (usize, f32) {
    let (mut best, mut second) = (0, f32::MIN);
    for (i, &logit) in logits.iter().enumerate().skip(1) {
        if logit > logits[best] {
            second = logits[best];
            best = i;
        } else {
            second = second.max(logit);
        }
    }
    (best, logits[best] - second)
}

fn check(model: &TinyModel, num_tokens: usize, tolerance: f32) {
    let architecture = model.architecture;
    let what = format!("{architecture:?} {:?}", model.weights);
    let (_dir, path, model) = tiny(model);
    let tokens = tokens(num_tokens, model.config().vocab_size, 11);
    let (largest, typical) = compare(
        &model,
        &mut Oracle::open(&path, architecture),
        &tokens,
        tolerance,
    );
    println!("{what}: largest difference {largest}, typical {typical}");
    assert!(
        largest <= tolerance,
        "{what}: {largest} exceeds {tolerance}"
    );
}

const ALL: [Architecture; 3] = [
    Architecture::Llama,
    Architecture::Qwen2,
    Architecture::Qwen3,
];

#[test]
fn tiny_models_in_f32_agree_closely_with_the_oracle() {
    for architecture in ALL {
        check(&TinyModel::new(architecture, 1), 350, 0.05);
    }
    check(
        &TinyModel {
            tied: true,
            ..TinyModel::new(Architecture::Llama, 2)
        },
        100,
        0.05,
    );
}

#[test]
fn tiny_models_in_every_quantization_agree_with_the_oracle() {
    use GgmlDType::*;
    for (i, dtype) in [Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2K, Q3K, Q4K, Q5K, Q6K, F16]
        .into_iter()
        .enumerate()
    {
        check(&TinyModel::wide(ALL[i % 3], 3, dtype), 70, 0.6);
    }
}

#[test]
fn the_default_model_agrees_with_the_oracle() {
    let model = default_model();
    let text = "The history of the bicycle begins in the early nineteenth century. In 1817 the German baron Karl von Drais \
                built a running machine with two wheels in line, steered by the front one. It had no pedals: the rider \
                pushed with the feet. Pedals came in the 1860s, when French makers fixed cranks to the front hub. The \
                high wheeler followed, fast and dangerous, until John Kemp Starley's Rover of 1885 put a chain between the \
                pedals and the rear wheel. With Dunlop's air-filled tyres of 1888 the modern bicycle was complete.\n\n\
                fn main() {\n    let wheels = vec![1, 2, 3];\n    for w in &wheels {\n        println!(\"{w}\");\n    }\n}\n\n\
                List three facts:\n1. Water boils at 100 degrees Celsius at sea level.\n2. Light travels faster than sound.\n3.";
    let tokens = model.tokenizer().encode(text);
    assert!(tokens.len() >= 200, "{}", tokens.len());
    let mut oracle = Oracle::open(&default_model_path(), Architecture::Llama);
    let tolerance = 1.0;
    let (largest, typical) = compare(model, &mut oracle, &tokens, tolerance);
    println!(
        "default model: largest difference {largest}, typical {typical} over {} positions",
        tokens.len()
    );
    assert!(
        largest <= tolerance && typical <= 0.1,
        "{largest} {typical}"
    );
}

#[test]
fn llama_3_frequency_factors_stretch_the_rotation() {
    // Factors of 1 are no factors; others change every position but the first.
    let plain = TinyModel::new(Architecture::Llama, 5);
    let run = |factors: Option<Vec<f32>>| {
        let (_dir, _, model) = tiny(&TinyModel {
            rope_factors: factors,
            ..plain.clone()
        });
        let tokens = tokens(40, model.config().vocab_size, 3);
        let (pool, table) = sequence(&model, tokens.len());
        model
            .forward_all(&tokens, 0, &pool, &table)
            .unwrap()
            .to_vec2::<f32>()
            .unwrap()
    };
    let (none, ones, eights) = (run(None), run(Some(vec![1.0; 8])), run(Some(vec![8.0; 8])));
    assert_eq!(none, ones);
    assert_eq!(none[0], eights[0]);
    assert!((1..40).all(|i| none[i] != eights[i]));
}
