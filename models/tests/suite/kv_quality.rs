//! What formats of keys and values cost the default model, its weights kept in f32 so that nothing else is rounded. The
//! figures over a long text come from `reprise-cli bench kv-quality`.

use candle_core::{Device, Tensor};
use candle_nn::ops::log_softmax;
use kernels::{KvFormat, KvPool, Team};
use models::{DigestCache, LoadOptions, Model};

use crate::support::{any_fixture, default_model_path};

const TOKENS: usize = 512;

/// Log probabilities of every next token, `[n, vocab_size]`.
fn read(model: &Model, tokens: &[u32], format: KvFormat) -> Tensor {
    let layout = model.config().kv_layout(format);
    let pool = KvPool::reserved(layout, tokens.len().div_ceil(64)).unwrap();
    let table: Vec<u32> = (0..pool.num_slots() as u32).collect();
    let logits = model.forward_all(tokens, 0, &pool, &table).unwrap();
    log_softmax(&Tensor::new(logits, &Device::Cpu).unwrap(), 1).unwrap()
}

/// Mean Kullback-Leibler divergence in nats, and the part of positions with the same most likely token.
fn compare(logs: &Tensor, exact: &Tensor) -> candle_core::Result<(f32, f32)> {
    let divergence = (exact.exp()? * (exact - logs)?)?.sum(1)?.mean_all()?;
    let same = logs.argmax(1)?.eq(&exact.argmax(1)?)?;
    let agreement = same.to_dtype(candle_core::DType::F32)?.mean_all()?;
    Ok((divergence.to_scalar()?, agreement.to_scalar()?))
}

#[test]
fn q8_changes_next_to_nothing_and_what_is_refused_changes_much() {
    let options = LoadOptions {
        float_weights: true,
        ..LoadOptions::default()
    };
    let team = Team::new(kernels::physical_cores());
    let path = default_model_path();
    let model = Model::load_with(&path, team, &DigestCache::new(None), options).unwrap();
    let mut tokens = model
        .tokenizer()
        .encode(&any_fixture("text/constitution.txt"));
    tokens.truncate(TOKENS);
    let exact = read(&model, &tokens, KvFormat::F16);
    let of = |format: KvFormat| compare(&read(&model, &tokens, format), &exact).unwrap();

    let (divergence, agreement) = of(KvFormat::Q8);
    assert!(
        divergence < 0.001 && agreement > 0.97,
        "{divergence} {agreement}"
    );
    let (instead_of_q4, reason) = model.config().kv_format(KvFormat::Q4);
    let (divergence, agreement) = of(instead_of_q4);
    assert!(
        divergence < 0.03 && agreement > 0.9,
        "{divergence} {agreement}"
    );
    assert!(reason.is_some());
    let (divergence, _) = of(KvFormat::Q4);
    assert!(divergence > 0.05, "it need not be refused: {divergence}");
}
