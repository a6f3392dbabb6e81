//! What a model will take in memory, from its file's header alone.

use std::path::Path;

use kernels::{BLOCK_TOKENS, KvFormat, QuantizedMatrix};

use crate::config::ModelConfig;
use crate::error::Result;
use crate::gguf::GgufFile;
use crate::rope_table;

/// Bytes that one token of the vocabulary takes in the tokenizer: its text three times (by id, by name and as bytes), its
/// merge, the maps around them, and what building them leaves behind. Measured on a vocabulary of 49 152 tokens.
const TOKENIZER_BYTES_PER_TOKEN: u64 = 620;
/// Rows that attention scores at a time.
const ATTENTION_ROWS: u64 = 48;
/// Most tokens that a thread takes through a layer together.
const PANEL_TOKENS: u64 = 64;

/// Bytes of a model's parts once it is loaded, keys and values not counted.
#[derive(Clone, Debug, PartialEq)]
pub struct Footprint {
    /// Matrices as the kernels repack them, norms and biases.
    pub weights_bytes: u64,
    /// Of these, what each layer takes.
    layers_bytes: Vec<u64>,
    /// The tokenizer's tables; an estimate.
    pub tokenizer_bytes: u64,
    config: ModelConfig,
}

impl Footprint {
    /// Reads a model file's header, and no weights.
    ///
    /// # Errors
    /// As [`crate::inspect`].
    pub fn read(path: &Path) -> Result<Footprint> {
        let file = GgufFile::open(path)?;
        let config = ModelConfig::read(&file)?;
        Ok(Footprint::of(&file, &config))
    }

    pub(crate) fn of(file: &GgufFile, config: &ModelConfig) -> Footprint {
        let mut layers_bytes = vec![0; config.num_layers];
        let mut outside_bytes = 0;
        for (name, dtype, shape) in file.shapes() {
            let bytes = match shape {
                [rows, columns] => QuantizedMatrix::bytes_for(dtype, *rows, *columns),
                // Vectors become floats.
                shape => shape.iter().product::<usize>() * size_of::<f32>(),
            };
            let layer = name
                .strip_prefix("blk.")
                .and_then(|rest| rest.split('.').next());
            let layer = layer.and_then(|index| index.parse::<usize>().ok());
            match layer.and_then(|index| layers_bytes.get_mut(index)) {
                Some(of_layer) => *of_layer += bytes as u64,
                None => outside_bytes += bytes as u64,
            }
        }
        Footprint {
            weights_bytes: outside_bytes + layers_bytes.iter().sum::<u64>(),
            layers_bytes,
            tokenizer_bytes: TOKENIZER_BYTES_PER_TOKEN * config.vocab_size as u64,
            config: config.clone(),
        }
    }

    /// Layers of the decoder.
    pub fn num_layers(&self) -> usize {
        self.layers_bytes.len()
    }

    /// Bytes of the weights on a GPU that has the first `num_layers` layers, and the embedding and the head.
    pub fn device_weights_bytes(&self, num_layers: usize) -> u64 {
        let left: u64 = self.layers_bytes.iter().skip(num_layers).sum();
        self.weights_bytes - left
    }

    /// The format of keys and values that the model gets when `asked` is asked for, and its bytes per token.
    pub fn kv(&self, asked: KvFormat) -> (KvFormat, u64) {
        let (format, _) = self.config.kv_format(asked);
        let bytes = self.config.kv_layout(format).bytes_per_token();
        (format, bytes as u64)
    }

    /// Bytes of the rotary angles once `num_tokens` tokens have been run.
    pub fn rope_bytes(&self, num_tokens: u64) -> u64 {
        let rows = rope_table::rows_for(num_tokens as usize) as u64;
        rows * self.config.head_dim as u64 * size_of::<f32>() as u64
    }

    /// Bytes that running `step_tokens` tokens at a time takes on a GPU beside weights and angles, at the end of a context of so
    /// many tokens: activations, what attention leaves between its kernels, logits.
    pub fn device_scratch_bytes(&self, step_tokens: u64, context_tokens: u64) -> u64 {
        /// Positions of a split of attention's context.
        const SPLIT: u64 = 128;
        let config = &self.config;
        let (hidden, inner) = (config.hidden_size as u64, config.intermediate_size as u64);
        let (heads, head) = (config.num_heads as u64, config.head_dim as u64);
        let (all, kv) = (heads * head, config.num_kv_heads as u64 * head);
        let widest = hidden.max(inner).max(all);
        // Floats, but for the quantized activations: a byte each, and three floats for 32 of them.
        let of_token = 4 * (3 * hidden + 2 * all + 2 * kv + 2 * inner) + widest * (32 + 12) / 32;
        let offsets = 4 * step_tokens * heads * (1 + context_tokens.div_ceil(BLOCK_TOKENS as u64));
        let splits = 4 * heads * context_tokens.div_ceil(SPLIT) * (head + 2);
        step_tokens * of_token + offsets + splits + 4 * config.vocab_size as u64
    }

    /// Bytes that running `step_tokens` tokens at a time on `threads` threads takes beside the weights: activations, each
    /// thread's workspace, logits and their copy in the sampler.
    pub fn scratch_bytes(&self, step_tokens: u64, threads: u64) -> u64 {
        let config = &self.config;
        let (hidden, inner) = (config.hidden_size as u64, config.intermediate_size as u64);
        let head = config.head_dim as u64;
        let all = config.num_heads as u64 * head;
        let kv = config.num_kv_heads as u64 * head;
        let block = BLOCK_TOKENS as u64;
        // Floats, but for the quantized activations: a byte each, and three floats for 32 of them.
        let panel = step_tokens.div_ceil(threads.max(1)).min(PANEL_TOKENS);
        let activations = panel * hidden.max(inner).max(all) * (32 + 12) / 32;
        let of_thread = panel * (hidden + 2 * inner + 2 * all + 2 * kv)
            + head * block * 3
            + ATTENTION_ROWS * block;
        let of_all = step_tokens * (hidden + all) + 2 * config.vocab_size as u64;
        4 * (of_all + threads * of_thread) + threads * activations
    }
}
