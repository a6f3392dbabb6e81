//! Seeded model files for tests and benches, small unless asked otherwise (feature `tiny`, never in a shipped crate).
//!
//! ```ignore
//! tiny::write(&path, &TinyModel::new(Architecture::Llama, seed))?;                 // ~0.5 MB, F32, 2 layers, vocabulary ~400
//! tiny::write(&path, &TinyModel { context_length: 512, ..TinyModel::new(Architecture::Qwen3, 7) })?;
//! pub fn write(path: &Path, model: &TinyModel) -> Result<()>
//! ```
//!
//! The file is complete: weights, a byte-level BPE tokenizer (pre-tokenizer `smollm` for llama, `qwen2` for the others)
//! and a ChatML template. The same `TinyModel` gives the same bytes but for the order of metadata. Greedy replies never
//! end by themselves: the rows of the end tokens in the head are zero, those of other tokens are large.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

pub use candle_core::quantized::GgmlDType;
use candle_core::quantized::QTensor;
use candle_core::quantized::ggml_file::qtensor_from_ggml;
use candle_core::quantized::gguf_file::{self, Value};
use candle_core::{Device, Tensor};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::config::Architecture;
use crate::error::{Error, Result};
use crate::vocabulary::byte_chars;

/// What to write. Begin with [`TinyModel::new`] and change fields.
#[derive(Clone, Debug)]
pub struct TinyModel {
    /// The family.
    pub architecture: Architecture,
    /// Of the weights.
    pub seed: u64,
    /// Format of the matrices; K-quants need widths that are multiples of 256.
    pub weights: GgmlDType,
    /// Format of the matrix of this name; all have `weights` unless another function stands here.
    pub format_of: fn(&TinyModel, &str) -> GgmlDType,
    /// Decoder layers.
    pub num_layers: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width of the feed-forward layer.
    pub intermediate_size: usize,
    /// Query heads.
    pub num_heads: usize,
    /// Key/value heads.
    pub num_kv_heads: usize,
    /// Elements per head.
    pub head_dim: usize,
    /// Longest sequence in tokens.
    pub context_length: usize,
    /// The vocabulary is filled up to this many tokens with ones that no text becomes.
    pub vocab_size: usize,
    /// Whether the head is the embedding.
    pub tied: bool,
    /// Llama 3 frequency factors, one per pair of a head.
    pub rope_factors: Option<Vec<f32>>,
    /// The Jinja text; `None` leaves it out of the file.
    pub chat_template: Option<String>,
}

/// ChatML as most model files have it, without a default system prompt.
pub const CHATML: &str = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/// Special tokens, at the first ids.
const SPECIALS: [&str; 3] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];
/// The rows of a matrix repeat after this many: quantizing them is what takes long. More than any row count of a test.
const TILE_ROWS: usize = 512;
/// Words whose prefixes become merged tokens.
const WORDS: &str = " the and of to in is that it was for on are as with his they at be this have from or one had by \
                     word but not what all were we when your can said there use an each which she do how their if will \
                     user system assistant ing tion er hello world model cache token block";

impl TinyModel {
    /// Two layers, 64 wide, four query heads on two key/value heads, F32, 4096 tokens of context.
    pub fn new(architecture: Architecture, seed: u64) -> TinyModel {
        TinyModel {
            architecture,
            seed,
            weights: GgmlDType::F32,
            format_of: |model, _| model.weights,
            num_layers: 2,
            hidden_size: 64,
            intermediate_size: 128,
            num_heads: 4,
            num_kv_heads: 2,
            head_dim: if architecture == Architecture::Qwen3 {
                32
            } else {
                16
            },
            context_length: 4096,
            vocab_size: 0,
            tied: false,
            rope_factors: None,
            chat_template: Some(CHATML.into()),
        }
    }

    /// The same with widths that K-quants can have.
    pub fn wide(architecture: Architecture, seed: u64, weights: GgmlDType) -> TinyModel {
        TinyModel {
            weights,
            hidden_size: 256,
            intermediate_size: 512,
            head_dim: 64,
            ..TinyModel::new(architecture, seed)
        }
    }
}

/// Writes the model file.
pub fn write(path: &Path, model: &TinyModel) -> Result<()> {
    let tokenizer = TinyTokenizer::new(model.vocab_size);
    let tensors = Weights::new(model).all(tokenizer.tokens.len())?;
    let metadata = metadata(model, &tokenizer);
    let metadata: Vec<(&str, &Value)> = metadata
        .iter()
        .map(|(key, value)| (key.as_str(), value))
        .collect();
    let tensors: Vec<(&str, &QTensor)> = tensors
        .iter()
        .map(|(name, tensor)| (name.as_str(), tensor))
        .collect();
    let failed = |source| Error::Read {
        path: path.to_path_buf(),
        source,
    };
    let mut file = BufWriter::new(File::create(path).map_err(failed)?);
    gguf_file::write(&mut file, &metadata, &tensors)?;
    file.flush().map_err(failed)
}

fn metadata(model: &TinyModel, tokenizer: &TinyTokenizer) -> Vec<(String, Value)> {
    let arch = model.architecture.name();
    let texts = |list: &[String]| {
        Value::Array(
            list.iter()
                .map(|text| Value::String(text.clone()))
                .collect(),
        )
    };
    let number = |n: usize| Value::U32(n as u32);
    let types =
        (0..tokenizer.tokens.len()).map(|i| Value::I32(if i < SPECIALS.len() { 3 } else { 1 }));
    let pre = if model.architecture == Architecture::Llama {
        "smollm"
    } else {
        "qwen2"
    };
    let mut all = vec![
        ("general.architecture".into(), Value::String(arch.into())),
        // The oracle takes its activation type from here; 0 is f32.
        ("general.dtype".into(), Value::U32(0)),
        (format!("{arch}.block_count"), number(model.num_layers)),
        (
            format!("{arch}.context_length"),
            number(model.context_length),
        ),
        (
            format!("{arch}.embedding_length"),
            number(model.hidden_size),
        ),
        (
            format!("{arch}.feed_forward_length"),
            number(model.intermediate_size),
        ),
        (
            format!("{arch}.attention.head_count"),
            number(model.num_heads),
        ),
        (
            format!("{arch}.attention.head_count_kv"),
            number(model.num_kv_heads),
        ),
        (
            format!("{arch}.attention.key_length"),
            number(model.head_dim),
        ),
        (
            format!("{arch}.attention.value_length"),
            number(model.head_dim),
        ),
        (
            format!("{arch}.rope.dimension_count"),
            number(model.head_dim),
        ),
        (format!("{arch}.rope.freq_base"), Value::F32(10_000.0)),
        (
            format!("{arch}.attention.layer_norm_rms_epsilon"),
            Value::F32(1e-5),
        ),
        ("tokenizer.ggml.model".into(), Value::String("gpt2".into())),
        ("tokenizer.ggml.pre".into(), Value::String(pre.into())),
        ("tokenizer.ggml.tokens".into(), texts(&tokenizer.tokens)),
        (
            "tokenizer.ggml.token_type".into(),
            Value::Array(types.collect()),
        ),
        ("tokenizer.ggml.merges".into(), texts(&tokenizer.merges)),
        ("tokenizer.ggml.bos_token_id".into(), Value::U32(1)),
        ("tokenizer.ggml.eos_token_id".into(), Value::U32(2)),
        ("tokenizer.ggml.add_bos_token".into(), Value::Bool(false)),
    ];
    all.extend(
        model
            .chat_template
            .clone()
            .map(|text| ("tokenizer.chat_template".to_string(), Value::String(text))),
    );
    all
}

struct TinyTokenizer {
    tokens: Vec<String>,
    merges: Vec<String>,
}

impl TinyTokenizer {
    fn new(vocab_size: usize) -> TinyTokenizer {
        let chars = byte_chars();
        let mut tokens: Vec<String> = SPECIALS.iter().map(|name| name.to_string()).collect();
        tokens.extend(chars.iter().map(char::to_string));
        let mut merges = Vec::new();
        for word in WORDS.split_whitespace() {
            let mut left = chars[b' ' as usize].to_string();
            for c in word.chars() {
                let merge = format!("{left} {c}");
                left.push(c);
                if !tokens.contains(&left) {
                    tokens.push(left.clone());
                    merges.push(merge);
                }
            }
        }
        // Nothing merges into them.
        tokens.extend((tokens.len()..vocab_size).map(|id| format!("[unused{id}]")));
        TinyTokenizer { tokens, merges }
    }
}

struct Weights<'a> {
    model: &'a TinyModel,
    rng: ChaCha8Rng,
    tensors: Vec<(String, QTensor)>,
}

impl<'a> Weights<'a> {
    fn new(model: &'a TinyModel) -> Weights<'a> {
        Weights {
            model,
            rng: ChaCha8Rng::seed_from_u64(model.seed),
            tensors: Vec::new(),
        }
    }

    fn all(mut self, vocab: usize) -> Result<Vec<(String, QTensor)>> {
        let m = self.model;
        let (hidden, inner) = (m.hidden_size, m.intermediate_size);
        let (q, kv) = (m.num_heads * m.head_dim, m.num_kv_heads * m.head_dim);
        self.matrix("token_embd.weight", vocab, hidden, 1.0, 0)?;
        if !m.tied {
            // Large, so that the most likely token is clear; nothing for the special tokens.
            self.matrix(
                "output.weight",
                vocab,
                hidden,
                4.0 / (hidden as f32).sqrt(),
                SPECIALS.len(),
            )?;
        }
        self.vector("output_norm.weight", hidden, 1.0, 0.1)?;
        if let Some(factors) = &m.rope_factors {
            let factors = Tensor::new(factors.as_slice(), &Device::Cpu)?;
            self.tensors.push((
                "rope_freqs.weight".into(),
                QTensor::quantize(&factors, GgmlDType::F32)?,
            ));
        }
        for layer in 0..m.num_layers {
            let name = |part: &str| format!("blk.{layer}.{part}");
            self.vector(&name("attn_norm.weight"), hidden, 1.0, 0.1)?;
            self.vector(&name("ffn_norm.weight"), hidden, 1.0, 0.1)?;
            for (part, rows, columns) in [
                ("attn_q", q, hidden),
                ("attn_k", kv, hidden),
                ("attn_v", kv, hidden),
                ("attn_output", hidden, q),
                ("ffn_gate", inner, hidden),
                ("ffn_up", inner, hidden),
                ("ffn_down", hidden, inner),
            ] {
                self.matrix(
                    &name(&format!("{part}.weight")),
                    rows,
                    columns,
                    1.5 / (columns as f32).sqrt(),
                    0,
                )?;
            }
            if m.architecture == Architecture::Qwen2 {
                for (part, rows) in [("attn_q", q), ("attn_k", kv), ("attn_v", kv)] {
                    self.vector(&name(&format!("{part}.bias")), rows, 0.0, 0.5)?;
                }
            }
            if m.architecture == Architecture::Qwen3 {
                self.vector(&name("attn_q_norm.weight"), m.head_dim, 1.2, 0.1)?;
                self.vector(&name("attn_k_norm.weight"), m.head_dim, 1.2, 0.1)?;
            }
        }
        Ok(self.tensors)
    }

    /// The first `zero_rows` rows are zero.
    fn matrix(
        &mut self,
        name: &str,
        rows: usize,
        columns: usize,
        deviation: f32,
        zero_rows: usize,
    ) -> Result<()> {
        let tile = rows.min(TILE_ROWS);
        let mut values = self.normals(tile * columns, 0.0, deviation);
        values[..zero_rows * columns].fill(0.0);
        let dtype = (self.model.format_of)(self.model, name);
        self.push(name, values, &[tile, columns], dtype)?;
        match rows > tile {
            true => self.repeat_rows(rows, columns),
            false => Ok(()),
        }
    }

    /// The last matrix with its rows over and over, up to `rows`.
    fn repeat_rows(&mut self, rows: usize, columns: usize) -> Result<()> {
        let Some((name, tile)) = self.tensors.pop() else {
            return Ok(());
        };
        let dtype = tile.dtype();
        let len = rows * columns / dtype.block_size() * dtype.type_size();
        let bytes: Vec<u8> = tile.data()?.iter().copied().cycle().take(len).collect();
        let tensor = qtensor_from_ggml(dtype, &bytes, vec![rows, columns], &Device::Cpu)?;
        self.tensors.push((name, tensor));
        Ok(())
    }

    fn vector(&mut self, name: &str, len: usize, mean: f32, deviation: f32) -> Result<()> {
        let values = self.normals(len, mean, deviation);
        self.push(name, values, &[len], GgmlDType::F32)
    }

    fn push(
        &mut self,
        name: &str,
        values: Vec<f32>,
        shape: &[usize],
        dtype: GgmlDType,
    ) -> Result<()> {
        let tensor = Tensor::from_vec(values, shape, &Device::Cpu)?;
        self.tensors
            .push((name.into(), QTensor::quantize(&tensor, dtype)?));
        Ok(())
    }

    /// Nearly normal: a sum of uniform numbers, so that it is the same on every platform.
    fn normals(&mut self, count: usize, mean: f32, deviation: f32) -> Vec<f32> {
        let mut normal = || {
            (0..6).map(|_| self.rng.random::<f32>() - 0.5).sum::<f32>() * std::f32::consts::SQRT_2
        };
        (0..count).map(|_| mean + deviation * normal()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DigestCache, Model};

    #[test]
    fn a_large_vocabulary_in_a_format_of_its_own_is_a_model_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        let model = TinyModel {
            vocab_size: 3 * TILE_ROWS + 1,
            tied: true,
            format_of: |model, name| match name {
                "token_embd.weight" => GgmlDType::Q6K,
                _ => model.weights,
            },
            ..TinyModel::wide(Architecture::Llama, 1, GgmlDType::Q4K)
        };
        write(&path, &model).unwrap();
        let read = Model::load(&path, 1, &DigestCache::new(None)).unwrap();
        assert_eq!(read.config().vocab_size, model.vocab_size);
        assert_eq!(read.tokenizer().num_tokens(), model.vocab_size);
        assert_eq!(read.info().quantization, "Q4_K");
    }
}
