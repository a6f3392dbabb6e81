//! The one decoder: embedding, layers of attention and feed-forward, norm, head. Architectures differ by data.

use candle_core::{Device, Tensor};
use kernels::{AttentionParams, KvPool, QuantizedMatrix, RopeKind};

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
    norm: Tensor,
    layers: Vec<Layer>,
    rope: RopeTable,
    rope_kind: RopeKind,
    attention: AttentionParams,
    num_heads: usize,
    num_kv_heads: usize,
    head_dim: usize,
    norm_eps: f32,
}

struct Layer {
    attention_norm: Tensor,
    query: Projection,
    key: Projection,
    value: Projection,
    output: QuantizedMatrix,
    /// Per-head norms of queries and keys, each [head_dim].
    head_norms: Option<(Tensor, Tensor)>,
    feed_forward_norm: Tensor,
    gate: QuantizedMatrix,
    up: QuantizedMatrix,
    down: QuantizedMatrix,
}

struct Projection {
    weight: QuantizedMatrix,
    bias: Option<Tensor>,
}

/// Where the tokens of a call stand: their first position and the slots of their sequence.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) offset: usize,
    pub(crate) pool: &'a KvPool,
    pub(crate) table: &'a [u32],
}

impl Decoder {
    pub(crate) fn load(file: &GgufFile, config: &ModelConfig, device: &Device) -> Result<Decoder> {
        let (vocab, hidden) = (config.vocab_size, config.hidden_size);
        let head = match file.has_tensor("output.weight") {
            true => Some(matrix(file, "output.weight", vocab, hidden)?),
            false => None,
        };
        Ok(Decoder {
            embedding: matrix(file, "token_embd.weight", vocab, hidden)?,
            head,
            norm: file.vector("output_norm.weight", hidden, device)?,
            layers: (0..config.num_layers)
                .map(|i| Layer::load(file, config, i, device))
                .collect::<Result<_>>()?,
            rope: RopeTable::new(config, device),
            rope_kind: config.rope_kind(),
            attention: AttentionParams {
                scale: 1.0 / (config.head_dim as f32).sqrt(),
                window: None,
                softcap: None,
            },
            num_heads: config.num_heads,
            num_kv_heads: config.num_kv_heads,
            head_dim: config.head_dim,
            norm_eps: config.norm_eps,
        })
    }

    /// Writes keys and values of `tokens`; logits of all of them [n, vocab_size], or of the last one only [1, vocab_size].
    pub(crate) fn forward(
        &self,
        tokens: &[u32],
        place: Place<'_>,
        last_only: bool,
    ) -> Result<Tensor> {
        let rows = self.rope.rows(place.offset + tokens.len())?;
        let mut x = self.embedding.embedding(tokens)?; // [n, hidden_size]
        for (index, layer) in self.layers.iter().enumerate() {
            let narrow = last_only && index + 1 == self.layers.len();
            x = self.layer(layer, index, &x, place, &rows, narrow)?;
        }
        let x = kernels::rms_norm(&x, &self.norm, self.norm_eps)?;
        Ok(self.head.as_ref().unwrap_or(&self.embedding).forward(&x)?)
    }

    /// One layer over x [n, hidden_size]. With `last_only` (the last layer of a prefill) every key and value is written,
    /// but only the last token goes on: the result is [1, hidden_size].
    fn layer(
        &self,
        layer: &Layer,
        index: usize,
        x: &Tensor,
        at: Place<'_>,
        rows: &Rows,
        last_only: bool,
    ) -> Result<Tensor> {
        let n = x.dim(0)?;
        let h = kernels::rms_norm(x, &layer.attention_norm, self.norm_eps)?;
        let mut k = layer
            .key
            .forward(&h)?
            .reshape((n, self.num_kv_heads, self.head_dim))?;
        let v = layer
            .value
            .forward(&h)?
            .reshape((n, self.num_kv_heads, self.head_dim))?;
        if let Some((_, norm)) = &layer.head_norms {
            k = kernels::rms_norm(&k, norm, self.norm_eps)?;
        }
        let k = kernels::rope(&k, &rows.cos, &rows.sin, at.offset, self.rope_kind)?;
        kernels::kv_write(at.pool, index, &k, &v, at.table, at.offset)?;

        let (x, h, n, offset) = match last_only {
            true => (
                x.narrow(0, n - 1, 1)?,
                h.narrow(0, n - 1, 1)?.contiguous()?,
                1,
                at.offset + n - 1,
            ),
            false => (x.clone(), h, n, at.offset),
        };
        let mut q = layer
            .query
            .forward(&h)?
            .reshape((n, self.num_heads, self.head_dim))?;
        if let Some((norm, _)) = &layer.head_norms {
            q = kernels::rms_norm(&q, norm, self.norm_eps)?;
        }
        let q = kernels::rope(&q, &rows.cos, &rows.sin, offset, self.rope_kind)?;
        let a = kernels::paged_attention(&q, at.pool, index, at.table, offset, &self.attention)?;
        let a = a.reshape((n, self.num_heads * self.head_dim))?;
        let x = (x + layer.output.forward(&a)?)?;

        let h = kernels::rms_norm(&x, &layer.feed_forward_norm, self.norm_eps)?;
        let h = kernels::swiglu(&layer.gate.forward(&h)?, &layer.up.forward(&h)?)?;
        Ok((x + layer.down.forward(&h)?)?)
    }
}

impl Layer {
    fn load(file: &GgufFile, config: &ModelConfig, index: usize, device: &Device) -> Result<Layer> {
        let name = |part: &str| format!("blk.{index}.{part}");
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        let (q, kv) = (
            config.num_heads * config.head_dim,
            config.num_kv_heads * config.head_dim,
        );
        let head_norms = match config.has_head_norms() {
            true => Some((
                file.vector(&name("attn_q_norm.weight"), config.head_dim, device)?,
                file.vector(&name("attn_k_norm.weight"), config.head_dim, device)?,
            )),
            false => None,
        };
        let projection =
            |part: &str, rows: usize| Projection::load(file, config, &name(part), rows, device);
        Ok(Layer {
            attention_norm: file.vector(&name("attn_norm.weight"), hidden, device)?,
            query: projection("attn_q", q)?,
            key: projection("attn_k", kv)?,
            value: projection("attn_v", kv)?,
            output: matrix(file, &name("attn_output.weight"), hidden, q)?,
            head_norms,
            feed_forward_norm: file.vector(&name("ffn_norm.weight"), hidden, device)?,
            gate: matrix(file, &name("ffn_gate.weight"), inner, hidden)?,
            up: matrix(file, &name("ffn_up.weight"), inner, hidden)?,
            down: matrix(file, &name("ffn_down.weight"), hidden, inner)?,
        })
    }
}

impl Projection {
    /// Qwen 2 must have biases; the others may.
    fn load(
        file: &GgufFile,
        config: &ModelConfig,
        name: &str,
        rows: usize,
        device: &Device,
    ) -> Result<Projection> {
        let bias = format!("{name}.bias");
        let has_bias = config.architecture == Architecture::Qwen2 || file.has_tensor(&bias);
        Ok(Projection {
            weight: matrix(file, &format!("{name}.weight"), rows, config.hidden_size)?,
            bias: if has_bias {
                Some(file.vector(&bias, rows, device)?)
            } else {
                None
            },
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.weight.forward(x)?;
        Ok(match &self.bias {
            Some(bias) => y.broadcast_add(bias)?,
            None => y,
        })
    }
}

fn matrix(file: &GgufFile, name: &str, rows: usize, columns: usize) -> Result<QuantizedMatrix> {
    let tensor = file.tensor_of(name, &[rows, columns])?;
    Ok(QuantizedMatrix::new(
        tensor.dtype,
        rows,
        columns,
        tensor.bytes,
    )?)
}
