//! One call of the decoder, as the launches that make it. Nothing is launched here.

use super::decoder::Decoder;
use super::matrix::{LayerOnDevice, Matrix, ProjectionOnDevice};
use super::scratch::{Part, Scratch};
use super::{
    Attention, Balance, Input, KeyOffsets, Kv, Launch, Output, Quantized, Rows, add_rms_norm, rope,
    swiglu,
};
use crate::{KvLayout, Phase, Result};

/// Where a random number (f64) stands among the inputs, which begin with the position of the first token (u32).
pub(super) const RANDOM_AT: usize = 8;
/// Where the tokens' ids begin.
pub(super) const IDS_AT: usize = 16;

/// Where the block table begins among the inputs.
pub(super) fn table_at(tokens: usize) -> usize {
    IDS_AT + (4 * tokens).next_multiple_of(16)
}

/// What a call computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    /// Tokens.
    pub(super) tokens: usize,
    /// Whether the first stands at position 0.
    pub(super) is_first: bool,
    /// Positions that attention has room for: at least the last token's position + 1.
    pub(super) positions: usize,
    pub(super) phase: Phase,
    /// Whether only the last token's logits are wanted.
    pub(super) last_only: bool,
}

/// Addresses of everything that the kernels of a call need.
pub(super) struct Pass<'a> {
    decoder: &'a Decoder,
    call: Call,
    layout: KvLayout,
    balance: Option<Balance>,
    cos_sin: (u64, u64),
    inputs: u64,
    x: u64,
    residual: u64,
    normed: u64,
    quants: [u64; 2],
    queries: u64,
    keys: u64,
    values: u64,
    attended: u64,
    splits: u64,
    key_offsets: u64,
    gate: u64,
    up: u64,
    logits: u64,
}

impl<'a> Pass<'a> {
    /// Finds room for a call over blocks of that layout.
    pub(super) fn new(
        decoder: &'a Decoder,
        scratch: &mut Scratch,
        call: Call,
        layout: KvLayout,
        balance: Option<Balance>,
        cos_sin: (u64, u64),
    ) -> Result<Self> {
        let n = call.tokens;
        let (hidden, inner) = (decoder.hidden, decoder.inner);
        let (heads, dim) = (decoder.params.num_heads, layout.head_dim);
        let floats = |count: usize| count * size_of::<f32>();
        let blocks = call.positions.div_ceil(crate::BLOCK_TOKENS);
        let widest = hidden.max(inner).max(heads * dim);
        let [quants, parts] = Quantized::bytes_for(n, widest.next_multiple_of(32), call.is_first);
        let mut room = |part, bytes| scratch.at_least(part, bytes);
        let mut pass = Self {
            decoder,
            call,
            layout,
            balance,
            cos_sin,
            inputs: room(Part::Inputs, table_at(n) + 8 * blocks)?,
            x: room(Part::X, floats(n * hidden))?,
            residual: room(Part::Residual, floats(n * hidden))?,
            normed: room(Part::Normed, floats(n * hidden))?,
            quants: [room(Part::Quants, quants)?, room(Part::QuantParts, parts)?],
            queries: room(Part::Queries, floats(n * heads * dim))?,
            keys: room(Part::Keys, floats(n * layout.row_elems()))?,
            values: room(Part::Values, floats(n * layout.row_elems()))?,
            attended: room(Part::Attended, floats(n * heads * dim))?,
            splits: 0,
            key_offsets: 0,
            gate: room(Part::Gate, floats(n * inner))?,
            up: room(Part::Up, floats(n * inner))?,
            logits: room(Part::Logits, floats(call.rows() * decoder.vocab()))?,
        };
        let attention = pass.attention(0);
        pass.key_offsets = room(
            Part::KeyOffsets,
            attention.key_offsets_bytes(n, call.positions),
        )?;
        if call.phase == Phase::Decode {
            pass.splits = room(Part::Splits, attention.parts_bytes(n, call.positions))?;
        }
        Ok(pass)
    }

    /// What the last layer leaves to be added.
    pub(super) fn residual(&self) -> u64 {
        self.residual
    }

    /// Where the logits will be.
    pub(super) fn logits(&self) -> u64 {
        self.logits
    }

    /// Where the random number is.
    pub(super) fn random(&self) -> u64 {
        self.inputs + RANDOM_AT as u64
    }

    /// The whole call: tokens to logits.
    pub(super) fn launches(&self) -> Result<Vec<Launch>> {
        let mut out = self.layers()?;
        self.head(self.residual, &mut out)?;
        Ok(out)
    }

    /// From tokens through the layers, but for what the last one adds.
    pub(super) fn layers(&self) -> Result<Vec<Launch>> {
        let mut out = vec![self.embed()?];
        for (index, layer) in self.decoder.layers.iter().enumerate() {
            self.project(index, layer, &mut out)?;
            self.attend(index, layer, &mut out)?;
            self.feed_forward(layer, &mut out)?;
        }
        Ok(out)
    }

    /// The tokens' embeddings.
    pub(super) fn embed(&self) -> Result<Launch> {
        let ids = self.inputs + IDS_AT as u64;
        let embedding = self.decoder.embedding.weights();
        embedding.embedding(ids, self.x, self.call.tokens)
    }

    /// The layer's queries, keys and values before rope.
    pub(super) fn project(
        &self,
        index: usize,
        layer: &LayerOnDevice,
        out: &mut Vec<Launch>,
    ) -> Result<()> {
        let residual = if index == 0 { 0 } else { self.residual };
        out.push(self.norm(residual, layer.attention_norm.address())?);
        let all = [&layer.query, &layer.key, &layer.value];
        let x = self.input(self.normed, &all.map(|p| &p.matrix), out)?;
        for (projection, to) in all.into_iter().zip([self.queries, self.keys, self.values]) {
            self.multiply_with_bias(projection, x, to, out)?;
        }
        let (heads, kv_heads, dim) = self.shape();
        if let Some((query, key)) = &layer.head_norms {
            for (x, weight, heads) in [(self.queries, query, heads), (self.keys, key, kv_heads)] {
                let shape = (self.call.tokens * heads, dim);
                let eps = self.decoder.params.norm_eps;
                out.push(add_rms_norm(x, 0, weight.address(), x, shape, eps)?);
            }
        }
        Ok(())
    }

    /// Rope, writing keys and values, attention, and what it gives to the residual.
    pub(super) fn attend(
        &self,
        index: usize,
        layer: &LayerOnDevice,
        out: &mut Vec<Launch>,
    ) -> Result<()> {
        let (tokens, (heads, kv_heads, dim)) = (self.call.tokens, self.shape());
        for (address, heads) in [(self.queries, heads), (self.keys, kv_heads)] {
            let rows = rows(address, heads * dim);
            let kind = self.decoder.params.rope_kind;
            let shape = (tokens, heads, dim);
            out.push(rope(rows, shape, self.cos_sin, self.inputs, kind)?);
        }
        let attention = self.attention(index);
        let [keys, values] = [self.keys, self.values].map(|at| rows(at, kv_heads * dim));
        out.push(attention.kv.write(keys, values, tokens)?);
        out.extend(attention.fill_key_offsets(self.queries, tokens)?);
        let (queries, to) = (self.queries, self.attended);
        match self.call.phase {
            Phase::Prefill => {
                let capability = self.decoder.device.compute_capability();
                out.push(attention.prefill(queries, to, tokens, capability)?);
            }
            Phase::Decode => {
                let positions = self.call.positions;
                out.extend(attention.decode(queries, self.splits, to, tokens, positions)?);
            }
        }
        let x = self.input(self.attended, &[&layer.output], out)?;
        self.multiply(&layer.output, x, self.residual, out)
    }

    /// The feed-forward, whose result is the residual.
    pub(super) fn feed_forward(&self, layer: &LayerOnDevice, out: &mut Vec<Launch>) -> Result<()> {
        out.push(self.norm(self.residual, layer.feed_forward_norm.address())?);
        let x = self.input(self.normed, &[&layer.gate, &layer.up], out)?;
        self.multiply(&layer.gate, x, self.gate, out)?;
        self.multiply(&layer.up, x, self.up, out)?;
        let len = self.call.tokens * self.decoder.inner;
        out.push(swiglu(self.gate, self.up, self.gate, len)?);
        let x = self.input(self.gate, &[&layer.down], out)?;
        self.multiply(&layer.down, x, self.residual, out)
    }

    /// The logits that are wanted. `residual` is the address of what is yet to be added to the stream, or 0.
    pub(super) fn head(&self, residual: u64, out: &mut Vec<Launch>) -> Result<()> {
        let (decoder, rows) = (self.decoder, self.call.rows());
        let skipped = (self.call.tokens - rows) * decoder.hidden * size_of::<f32>();
        let x = self.x + skipped as u64;
        let residual = match residual {
            0 => 0,
            residual => residual + skipped as u64,
        };
        let shape = (rows, decoder.hidden);
        let (norm, eps) = (decoder.norm.address(), decoder.params.norm_eps);
        out.push(add_rms_norm(x, residual, norm, self.normed, shape, eps)?);
        let head = decoder.head();
        let last = Pass {
            call: Call {
                tokens: rows,
                // As on the CPU: the token at position 0 is as others here.
                is_first: false,
                ..self.call
            },
            ..*self
        };
        let x = last.input(self.normed, &[head], out)?;
        last.multiply(head, x, self.logits, out)
    }

    /// Adds a residual to the stream, and its norm.
    fn norm(&self, residual: u64, weight: u64) -> Result<Launch> {
        let shape = (self.call.tokens, self.decoder.hidden);
        let eps = self.decoder.params.norm_eps;
        add_rms_norm(self.x, residual, weight, self.normed, shape, eps)
    }

    /// Activations as some matrices take them.
    fn input(&self, x: u64, takers: &[&Matrix], out: &mut Vec<Launch>) -> Result<Activations> {
        let tokens = self.call.tokens;
        let mut activations = Activations {
            floats: Input::Floats(x, tokens),
            quantized: None,
        };
        let taker = takers
            .iter()
            .map(|matrix| matrix.weights())
            .find(|weights| weights.takes_quantized());
        if let Some(weights) = taker {
            let [quants, parts] = self.quants;
            let quantized = Quantized {
                quants,
                parts,
                tokens,
                cols: weights.cols,
                has_rest: self.call.is_first,
            };
            out.push(quantized.quantize(x)?);
            activations.quantized = Some(quantized);
        }
        Ok(activations)
    }

    fn multiply(
        &self,
        matrix: &Matrix,
        x: Activations,
        to: u64,
        out: &mut Vec<Launch>,
    ) -> Result<()> {
        self.product(matrix, 0, x, to, out)
    }

    fn multiply_with_bias(
        &self,
        projection: &ProjectionOnDevice,
        x: Activations,
        to: u64,
        out: &mut Vec<Launch>,
    ) -> Result<()> {
        self.product(&projection.matrix, projection.bias(), x, to, out)
    }

    fn product(
        &self,
        matrix: &Matrix,
        bias: u64,
        x: Activations,
        to: u64,
        out: &mut Vec<Launch>,
    ) -> Result<()> {
        let weights = matrix.weights();
        let x = match x.quantized {
            Some(quantized) if weights.takes_quantized() => Input::Quantized(quantized),
            _ => x.floats,
        };
        let to = Output {
            rows: rows(to, weights.rows),
            bias,
            is_added: false,
        };
        out.push(match self.call.phase {
            Phase::Decode => weights.decode(x, to)?,
            Phase::Prefill => weights.prefill(x, to, self.decoder.device.compute_capability())?,
        });
        out.extend(weights.rest(x, to)?);
        Ok(())
    }

    fn attention(&self, layer: usize) -> Attention {
        Attention {
            kv: Kv {
                layout: self.layout,
                layer,
                blocks: self.inputs + table_at(self.call.tokens) as u64,
                offset: self.inputs,
                balance: self.balance,
            },
            num_heads: self.decoder.params.num_heads,
            params: self.decoder.params.attention,
            sinks: 0,
            key_offsets: Some(KeyOffsets {
                address: self.key_offsets,
                positions: self.call.positions,
            }),
        }
    }

    /// Query heads, KV heads, elements of a head.
    fn shape(&self) -> (usize, usize, usize) {
        let heads = self.decoder.params.num_heads;
        (heads, self.layout.num_kv_heads, self.layout.head_dim)
    }
}

impl Call {
    /// Tokens whose logits are wanted.
    pub(super) fn rows(&self) -> usize {
        if self.last_only { 1 } else { self.tokens }
    }
}

/// Activations in the forms that products take.
#[derive(Clone, Copy)]
struct Activations {
    floats: Input,
    quantized: Option<Quantized>,
}

fn rows(address: u64, width: usize) -> Rows {
    Rows {
        address,
        stride: width,
    }
}
