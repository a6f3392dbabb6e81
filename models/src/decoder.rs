//! The one decoder: embedding, layers, norm, head. Architectures differ by data.

use std::cell::RefCell;
use std::sync::Arc;

use candle_core::quantized::GgmlDType;
use kernels::{
    Arena, AttentionParams, BLOCK_TOKENS, KeyBalance, KvLayout, KvPool, Layer, LayerParams, Layers,
    Projection, QuantizedMatrix, Team, rms_norm,
};

use crate::config::{Architecture, ModelConfig};
use crate::error::Result;
use crate::gguf::GgufFile;
use crate::rope_table::{RopeTable, Rows};

/// The weights and what it takes to run them.
pub(crate) struct Decoder {
    /// [vocab_size, hidden_size]
    embedding: QuantizedMatrix,
    /// [vocab_size, hidden_size]; `None` where it is the embedding.
    head: Option<QuantizedMatrix>,
    layers: Layers,
    /// [hidden_size]
    norm: Vec<f32>,
    norm_eps: f32,
    rope: RopeTable,
    team: Team,
}

/// Where the tokens of a call stand: their first position and the slots of their sequence.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) offset: usize,
    pub(crate) pool: &'a KvPool,
    pub(crate) table: &'a [u32],
}

impl<'a> Place<'a> {
    fn with(self, rows: &'a Rows) -> kernels::Place<'a> {
        kernels::Place {
            offset: self.offset,
            pool: self.pool,
            table: self.table,
            cos: &rows.cos,
            sin: &rows.sin,
        }
    }
}

impl Decoder {
    /// Repacks the weights with the team that will run them.
    pub(crate) fn load(
        file: &GgufFile,
        config: &ModelConfig,
        layout: KvLayout,
        team: Team,
        float_weights: bool,
    ) -> Result<Decoder> {
        let (vocab, hidden) = (config.vocab_size, config.hidden_size);
        let load = Load {
            file,
            config,
            team: &team,
            float_weights,
            arena: RefCell::default(),
        };
        let head = match file.has_tensor("output.weight") {
            true => Some(load.matrix("output.weight", vocab, hidden)?),
            false => None,
        };
        let layers = (0..config.num_layers)
            .map(|index| load.layer(index))
            .collect::<Result<_>>()?;
        let params = LayerParams {
            num_heads: config.num_heads,
            norm_eps: config.norm_eps,
            rope_kind: config.rope_kind(),
            attention: AttentionParams {
                scale: 1.0 / (config.head_dim as f32).sqrt(),
                window: None,
                softcap: None,
            },
        };
        Ok(Decoder {
            embedding: load.matrix("token_embd.weight", vocab, hidden)?,
            head,
            layers: Layers::new(layers, params, layout)?,
            norm: file.vector("output_norm.weight", hidden)?,
            norm_eps: config.norm_eps,
            rope: RopeTable::new(config),
            team,
        })
    }

    pub(crate) fn num_threads(&self) -> usize {
        self.team.threads()
    }

    /// Writes keys and values of `tokens`; logits of all of them [n, vocab_size], or of the last one only [vocab_size].
    pub(crate) fn forward(
        &self,
        tokens: &[u32],
        place: Place<'_>,
        last_only: bool,
    ) -> Result<Vec<f32>> {
        let mut x = Vec::new(); // [n, hidden_size]
        self.embedding.embedding(tokens, &mut x)?;
        let rows = self.rope_rows(tokens, place);
        let at = place.with(&rows);
        self.layers.forward(&self.team, &mut x, at, last_only)?;
        let x = match last_only {
            true => &mut x[(tokens.len() - 1) * self.norm.len()..],
            false => &mut x[..],
        };
        rms_norm(self.team.path(), x, &self.norm, self.norm_eps);
        let head = self.head.as_ref().unwrap_or(&self.embedding);
        Ok(head.forward(x, &self.team)?)
    }

    /// What balances keys, measured over `tokens`.
    pub(crate) fn measure_keys(&self, tokens: &[u32], place: Place<'_>) -> Result<KeyBalance> {
        let mut x = Vec::new(); // [n, hidden_size]
        self.embedding.embedding(tokens, &mut x)?;
        let rows = self.rope_rows(tokens, place);
        Ok(self.layers.measure(&self.team, &mut x, place.with(&rows))?)
    }

    /// The decoder with its keys balanced.
    pub(crate) fn balanced(self, balance: KeyBalance) -> Result<Decoder> {
        Ok(Decoder {
            layers: self.layers.balanced(balance)?,
            ..self
        })
    }

    /// Angles as far as the block of the last token.
    fn rope_rows(&self, tokens: &[u32], place: Place<'_>) -> Arc<Rows> {
        let end = place.offset + tokens.len();
        self.rope.rows(end.next_multiple_of(BLOCK_TOKENS))
    }
}

/// What loading takes.
struct Load<'a> {
    file: &'a GgufFile,
    config: &'a ModelConfig,
    team: &'a Team,
    float_weights: bool,
    arena: RefCell<Arena>,
}

impl Load<'_> {
    fn layer(&self, index: usize) -> Result<Layer> {
        let (file, config) = (self.file, self.config);
        let name = |part: &str| format!("blk.{index}.{part}");
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        let (q, kv) = (
            config.num_heads * config.head_dim,
            config.num_kv_heads * config.head_dim,
        );
        let head_norms = match config.has_head_norms() {
            true => Some((
                file.vector(&name("attn_q_norm.weight"), config.head_dim)?,
                file.vector(&name("attn_k_norm.weight"), config.head_dim)?,
            )),
            false => None,
        };
        Ok(Layer {
            attention_norm: file.vector(&name("attn_norm.weight"), hidden)?,
            query: self.projection(&name("attn_q"), q)?,
            key: self.projection(&name("attn_k"), kv)?,
            value: self.projection(&name("attn_v"), kv)?,
            output: self.matrix(&name("attn_output.weight"), hidden, q)?,
            head_norms,
            feed_forward_norm: file.vector(&name("ffn_norm.weight"), hidden)?,
            gate: self.matrix(&name("ffn_gate.weight"), inner, hidden)?,
            up: self.matrix(&name("ffn_up.weight"), inner, hidden)?,
            down: self.matrix(&name("ffn_down.weight"), hidden, inner)?,
        })
    }

    /// Qwen 2 must have biases; the others may.
    fn projection(&self, name: &str, rows: usize) -> Result<Projection> {
        let bias = format!("{name}.bias");
        let has_bias =
            self.config.architecture == Architecture::Qwen2 || self.file.has_tensor(&bias);
        Ok(Projection {
            weight: self.matrix(&format!("{name}.weight"), rows, self.config.hidden_size)?,
            bias: if has_bias {
                Some(self.file.vector(&bias, rows)?)
            } else {
                None
            },
        })
    }

    fn matrix(&self, name: &str, rows: usize, columns: usize) -> Result<QuantizedMatrix> {
        let tensor = self.file.tensor_of(name, &[rows, columns])?;
        let arena = &mut self.arena.borrow_mut();
        let matrix =
            QuantizedMatrix::new(tensor.dtype, rows, columns, tensor.bytes, self.team, arena)?;
        self.file.forget(&tensor);
        match self.float_weights {
            true => self.as_floats(&matrix, arena),
            false => Ok(matrix),
        }
    }

    /// The same weights in f32.
    fn as_floats(&self, matrix: &QuantizedMatrix, arena: &mut Arena) -> Result<QuantizedMatrix> {
        let (rows, columns) = (matrix.rows(), matrix.cols());
        let mut floats = Vec::new();
        let ids: Vec<u32> = (0..rows as u32).collect();
        matrix.embedding(&ids, &mut floats)?;
        let bytes: Vec<u8> = floats.iter().flat_map(|x| x.to_le_bytes()).collect();
        let dtype = GgmlDType::F32;
        Ok(QuantizedMatrix::new(
            dtype, rows, columns, &bytes, self.team, arena,
        )?)
    }
}
