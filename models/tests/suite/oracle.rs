//! The same weights and tokens give the same logits as candle-transformers' quantized models.
//!
//! Teacher-forced, one token after another, since the oracle gives the last token's logits only.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use candle_core::quantized::gguf_file::{self, Content, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use candle_transformers::models::{quantized_llama, quantized_qwen2, quantized_qwen3};
use models::tiny::TinyModel;
use models::{Architecture, Model};

use crate::support::{default_model, default_model_path, load, sequence, tiny, tokens};

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

    fn run(path: &Path, architecture: Architecture, tokens: &[u32]) -> Logits {
        let mut oracle = Oracle::open(path, architecture);
        tokens
            .iter()
            .enumerate()
            .map(|(position, token)| oracle.logits(*token, position))
            .collect()
    }
}

/// [n][vocab_size]
type Logits = Vec<Vec<f32>>;

fn ours(model: &Model, tokens: &[u32]) -> Logits {
    let (pool, table) = sequence(model, tokens.len());
    model.forward_all(tokens, 0, &pool, &table).unwrap()
}

/// Largest and root-mean-square difference over all positions.
fn difference(a: &Logits, b: &Logits) -> (f32, f32) {
    assert_eq!(a.len(), b.len());
    let (mut largest, mut squares, mut count) = (0f32, 0f64, 0);
    for (a, b) in a.iter().zip(b) {
        assert_eq!(a.len(), b.len());
        for (a, b) in a.iter().zip(b) {
            largest = largest.max((a - b).abs());
            squares += f64::from((a - b).powi(2));
            count += 1;
        }
    }
    (largest, (squares / f64::from(count)).sqrt() as f32)
}

/// The most likely token agrees wherever the oracle's lead exceeds `margin`, which is so for a fifth of them at least.
fn check_winners(ours: &Logits, theirs: &Logits, margin: f32) {
    let mut clear = 0;
    for (position, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
        let (winner, lead) = top(theirs);
        if lead > margin {
            clear += 1;
            assert_eq!(top(ours).0, winner, "position {position}, lead {lead}");
        }
    }
    assert!(
        clear * 5 >= ours.len(),
        "only {clear} of {} positions have a clear winner",
        ours.len()
    );
}

/// The same model with its weights as f32.
fn widened(path: &Path, to: &Path) {
    let mut file = File::open(path).unwrap();
    let content = Content::read(&mut file).unwrap();
    let widen = |name: &String, file: &mut File| {
        let tensor = content
            .tensor(file, name, &Device::Cpu)
            .unwrap()
            .dequantize(&Device::Cpu)
            .unwrap();
        QTensor::quantize(&tensor, GgmlDType::F32).unwrap()
    };
    let tensors: Vec<(&str, QTensor)> = content
        .tensor_infos
        .keys()
        .map(|name| (name.as_str(), widen(name, &mut file)))
        .collect();
    let tensors: Vec<(&str, &QTensor)> = tensors
        .iter()
        .map(|(name, tensor)| (*name, tensor))
        .collect();
    let metadata: Vec<(&str, &Value)> = content
        .metadata
        .iter()
        .map(|(key, value)| (key.as_str(), value))
        .collect();
    gguf_file::write(&mut File::create(to).unwrap(), &metadata, &tensors).unwrap();
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

/// Same weights in f32 on both sides: little but the f16 of keys and values differs.
fn check_exact(model: &TinyModel, num_tokens: usize) {
    let architecture = model.architecture;
    let (_dir, path, model) = tiny(model);
    let tokens = tokens(num_tokens, model.config().vocab_size, 11);
    let (ours, theirs) = (
        ours(&model, &tokens),
        Oracle::run(&path, architecture, &tokens),
    );
    let (largest, typical) = difference(&ours, &theirs);
    println!("{architecture:?} F32: largest difference {largest}, typical {typical}");
    assert!(
        largest <= 0.05 && typical <= 0.01,
        "{architecture:?}: {largest} {typical}"
    );
    check_winners(&ours, &theirs, 0.1);
}

/// Quantized weights: both sides round activations, each in its own way, so both are compared with the same weights in f32.
/// We may not be further from them than the oracle by more than a fifth.
fn check_quantized(model: &TinyModel, num_tokens: usize) {
    let (architecture, dtype) = (model.architecture, model.weights);
    let (dir, path, model) = tiny(model);
    let wide = dir.path().join("wide.gguf");
    widened(&path, &wide);
    let tokens = tokens(num_tokens, model.config().vocab_size, 11);
    let exact = ours(&load(&wide), &tokens);
    let (ours, theirs) = (
        ours(&model, &tokens),
        Oracle::run(&path, architecture, &tokens),
    );
    let (our_error, their_error) = (difference(&ours, &exact).1, difference(&theirs, &exact).1);
    let (largest, typical) = difference(&ours, &theirs);
    println!(
        "{architecture:?} {dtype:?}: error {our_error}, the oracle's {their_error}; apart {largest}, typical {typical}"
    );
    assert!(
        our_error <= 1.2 * their_error + 0.005,
        "{architecture:?} {dtype:?}: {our_error}, the oracle {their_error}"
    );
    assert!(largest <= 1.5, "{architecture:?} {dtype:?}: {largest}");
    check_winners(&ours, &theirs, 1.0);
}

const ALL: [Architecture; 3] = [
    Architecture::Llama,
    Architecture::Qwen2,
    Architecture::Qwen3,
];

#[test]
fn tiny_models_in_f32_agree_closely_with_the_oracle() {
    for architecture in ALL {
        check_exact(&TinyModel::new(architecture, 1), 350);
    }
    check_exact(
        &TinyModel {
            tied: true,
            ..TinyModel::new(Architecture::Llama, 2)
        },
        100,
    );
}

#[test]
fn tiny_models_in_every_quantization_are_as_exact_as_the_oracle() {
    use GgmlDType::*;
    for (i, dtype) in [Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2K, Q3K, Q4K, Q5K, Q6K, F16]
        .into_iter()
        .enumerate()
    {
        check_quantized(&TinyModel::wide(ALL[i % 3], 3, dtype), 50);
    }
}

const TEXT: &str = "The history of the bicycle begins in the early nineteenth century. In 1817 the German baron Karl von Drais \
    built a running machine with two wheels in line, steered by the front one. It had no pedals: the rider pushed with the \
    feet. Pedals came in the 1860s, when French makers fixed cranks to the front hub. The high wheeler followed, fast and \
    dangerous, until John Kemp Starley's Rover of 1885 put a chain between the pedals and the rear wheel. With Dunlop's \
    air-filled tyres of 1888 the modern bicycle was complete.\n\nfn main() {\n    let wheels = vec![1, 2, 3];\n    for w \
    in &wheels {\n        println!(\"{w}\");\n    }\n}\n\nList three facts:\n1. Water boils at 100 degrees Celsius at sea \
    level.\n2. Light travels faster than sound.\n3.";

#[test]
fn the_default_model_agrees_with_the_oracle() {
    let model = default_model();
    let tokens = model.tokenizer().encode(TEXT);
    assert!(tokens.len() >= 200, "{}", tokens.len());
    let (ours, theirs) = (
        ours(model, &tokens),
        Oracle::run(&default_model_path(), Architecture::Llama, &tokens),
    );
    let (largest, typical) = difference(&ours, &theirs);
    println!(
        "default model: apart {largest}, typical {typical} over {} positions",
        tokens.len()
    );
    assert!(largest <= 2.0 && typical <= 0.3, "{largest} {typical}");
    check_winners(&ours, &theirs, 2.0);
}

/// By hand (`--ignored`): needs 600 MB of disk and minutes.
#[test]
#[ignore = "slow: widens the default model to f32"]
fn the_default_model_is_as_exact_as_the_oracle() {
    let dir = tempfile::tempdir().unwrap();
    let wide = dir.path().join("wide.gguf");
    widened(&default_model_path(), &wide);
    let tokens = default_model().tokenizer().encode(TEXT);
    let exact = ours(&load(&wide), &tokens);
    let theirs = Oracle::run(&default_model_path(), Architecture::Llama, &tokens);
    let (our_error, their_error) = (
        difference(&ours(default_model(), &tokens), &exact).1,
        difference(&theirs, &exact).1,
    );
    println!("default model: error {our_error}, the oracle's {their_error}");
    assert!(
        our_error <= 1.2 * their_error,
        "{our_error}, the oracle {their_error}"
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
        model.forward_all(&tokens, 0, &pool, &table).unwrap()
    };
    let (none, ones, eights) = (run(None), run(Some(vec![1.0; 8])), run(Some(vec![8.0; 8])));
    assert_eq!(none, ones);
    assert_eq!(none[0], eights[0]);
    assert!((1..40).all(|i| none[i] != eights[i]));
}
