//! Whether a device runs a kind of model as the CPU does.
//!
//! `self_test` asks before it is known what a device is for. A trial is of one model: every kernel that its calls launch runs
//! once, over one layer that is narrower than the model's and else of its kind: heads, formats, rope, norms, biases. A prompt that
//! ends in the second block, a decoded token, and one sampled, by the code that runs the model. What comes out is compared stage
//! by stage: what the blocks hold, what the layer gives, the logits. A device that fails is not used for the model, so that a
//! kernel that is wrong on it costs speed and not words.
//!
//! The driver compiles a kernel's text when it is first launched, so that a trial also brings that forward: the first turn does
//! not wait for it.

mod compare;
mod weights;

use std::ops::Range;
use std::sync::Arc;

use candle_core::quantized::GgmlDType;

use super::{Choice, Cuts, Decoder, Device, Next};
use crate::layer::{LayerParams, Layers, Phase, Place};
use crate::layout::Side;
use crate::{BLOCK_TOKENS, Error, KvLayout, KvPool, QuantizedMatrix, Result, Team, rms_norm};
use compare::{Tolerance, check_rows};
use weights::Parts;

const OP: &str = "trial";
/// Most columns of a matrix: two segments, the sums of which are joined.
const MOST_COLS: usize = 512;
/// Most KV heads, if the formats allow it: a kernel may take one for the other.
const MOST_KV_HEADS: usize = 2;
/// Rows of embedding and head: not a whole tile of any kernel.
const VOCAB: usize = 72;
/// Tokens of the prompt: a block and three, which is not a whole tile of any kernel.
const PROMPT: usize = BLOCK_TOKENS + 3;
/// Slots of the sequence, and one to copy to.
const TABLE: [u32; 2] = [1, 0];
const COPY: u32 = 2;
/// Tokens that are copied: a part of a tile is cut off.
const COPIED: usize = 37;

/// The formats of a layer's matrices, and of those before and after all layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Formats {
    /// Of the token embedding.
    pub embedding: GgmlDType,
    /// Of the head; `None` where it is the embedding.
    pub head: Option<GgmlDType>,
    /// Of queries, keys and values.
    pub projections: [GgmlDType; 3],
    /// Of attention's output.
    pub output: GgmlDType,
    /// Of the feed-forward's gate and up.
    pub gate_up: [GgmlDType; 2],
    /// Of the feed-forward's way back.
    pub down: GgmlDType,
}

/// What a device is tried with. Equal trials have equal results.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    params: LayerParams,
    /// Of one layer.
    layout: KvLayout,
    hidden: usize,
    inner: usize,
    formats: Formats,
    has_biases: bool,
    has_head_norms: bool,
}

impl Trial {
    /// For layers of these parameters, widths (of the residual stream and of the feed-forward) and formats, whose keys and values
    /// are laid out as `layout`; biases are those of queries, keys and values, head norms those of queries and keys.
    pub fn new(
        params: LayerParams,
        layout: KvLayout,
        (hidden, inner): (usize, usize),
        formats: Formats,
        (has_biases, has_head_norms): (bool, bool),
    ) -> Trial {
        let group = params.num_heads / layout.num_kv_heads.max(1);
        // As few as make whole blocks of the columns that attention's output has.
        let fits = |heads: &usize| {
            (heads * group * layout.head_dim).is_multiple_of(formats.output.block_size())
        };
        let few = MOST_KV_HEADS.min(layout.num_kv_heads);
        let num_kv_heads = (few..layout.num_kv_heads)
            .find(fits)
            .unwrap_or(layout.num_kv_heads);
        Trial {
            params: LayerParams {
                num_heads: num_kv_heads * group,
                ..params
            },
            layout: KvLayout {
                num_layers: 1,
                num_kv_heads,
                ..layout
            },
            // Whole blocks of every format.
            hidden: hidden.min(MOST_COLS),
            inner: inner.min(MOST_COLS),
            formats,
            has_biases,
            has_head_norms,
        }
    }

    /// Runs it.
    ///
    /// # Errors
    /// What is wrong with the device; [`Error::Memory`] where there is none left for it, which says nothing of the device.
    pub fn run(&self, device: &Arc<Device>, team: &Team) -> Result<()> {
        let run = Run::new(self, device, team)?;
        run.check_call(0..PROMPT, Phase::Prefill)?;
        run.check_call(PROMPT..PROMPT + 1, Phase::Decode)?;
        run.check_sampled()?;
        run.check_copy()
    }

    fn matrices(&self) -> impl Iterator<Item = GgmlDType> {
        let Formats {
            embedding,
            head,
            projections: [query, key, value],
            output,
            gate_up: [gate, up],
            down,
        } = self.formats;
        let head = head.unwrap_or(embedding);
        [query, key, value, output, gate, up, down, head].into_iter()
    }
}

/// A trial on its way.
struct Run<'a> {
    tolerance: Tolerance,
    layout: KvLayout,
    eps: f32,
    team: &'a Team,
    embedding: QuantizedMatrix,
    head: Option<QuantizedMatrix>,
    norm: Vec<f32>,
    layers: Layers,
    decoder: Decoder,
    /// Of the CPU, and of the device.
    pools: [KvPool; 2],
    /// Of both blocks `[128, head_dim / 2]`.
    angles: [Vec<f32>; 2],
    tokens: Vec<u32>,
}

impl<'a> Run<'a> {
    fn new(trial: &Trial, device: &Arc<Device>, team: &'a Team) -> Result<Self> {
        let mut parts = Parts::new(trial, team);
        // Of the size of what the layer adds to it.
        let size = (trial.hidden as f32).sqrt();
        let embedding = parts.matrix(trial.formats.embedding, (VOCAB, trial.hidden), size)?;
        let head = trial.formats.head;
        let head = head.map(|format| parts.matrix(format, (VOCAB, trial.hidden), 1.0));
        let (head, norm) = (head.transpose()?, parts.near(1.0, trial.hidden));
        let (layer, layout) = (parts.layer()?, trial.layout);
        let on = Arc::clone(device);
        let (params, head_of) = (trial.params, head.as_ref());
        let mut decoder = Decoder::new(on, &embedding, head_of, &norm, params, layout)?;
        decoder.push(&layer)?;
        let pools = [
            KvPool::reserved(layout, TABLE.len() + 1)?,
            KvPool::on(Arc::clone(device), 1, layout, TABLE.len() + 1)?,
        ];
        (0..=COPY).try_for_each(|slot| pools[1].reserve(slot))?;
        let mut run = Run {
            tolerance: Tolerance::of(trial),
            layout,
            eps: params.norm_eps,
            team,
            layers: Layers::new(vec![layer], params, layout)?,
            embedding,
            head,
            norm,
            decoder,
            pools,
            angles: weights::angles(layout.head_dim, TABLE.len() * BLOCK_TOKENS),
            tokens: (0..=PROMPT as u32)
                .map(|i| (i * 29 + 7) % VOCAB as u32)
                .collect(),
        };
        if layout.format.key.is_rotated() {
            run = run.balanced()?;
        }
        Ok(run)
    }

    /// As every model whose keys are rotated.
    fn balanced(self) -> Result<Self> {
        let mut x = Vec::new();
        self.embedding.embedding(&self.tokens, &mut x)?;
        let balance = self.layers.measure(self.team, &mut x, self.place(0, 0))?;
        Ok(Run {
            decoder: self.decoder.balanced(&balance)?,
            layers: self.layers.balanced(balance)?,
            ..self
        })
    }

    fn place(&self, pool: usize, offset: usize) -> Place<'_> {
        let [cos, sin] = &self.angles;
        Place {
            offset,
            pool: &self.pools[pool],
            table: &TABLE,
            cos,
            sin,
        }
    }

    /// Runs the tokens at some positions, and compares what blocks hold of each, what the layer adds for it, and its logits.
    fn check_call(&self, positions: Range<usize>, phase: Phase) -> Result<()> {
        let (first, tokens) = (positions.start, &self.tokens[positions.clone()]);
        let [on_cpu, place] = [0, 1].map(|pool| self.place(pool, first));
        let given = self.decoder.begin(tokens, place, phase)?;
        let mut embedded = Vec::new();
        self.embedding.embedding(tokens, &mut embedded)?;
        let mut want = embedded.clone();
        self.layers.forward(self.team, &mut want, on_cpu, false)?;
        let (want_kept, got_kept) = (self.blocks(0)?, self.blocks(1)?);
        for side in [Side::Key, Side::Value] {
            let blocks = [&got_kept[..], &want_kept[..]];
            self.tolerance
                .check_kept(&self.layout, side, blocks, positions.clone())?;
        }
        let added = |x: &[f32]| -> Vec<f32> {
            x.iter()
                .zip(&embedded)
                .map(|(x, before)| x - before)
                .collect()
        };
        let (n, rows) = (tokens.len(), (&added(&given)[..], &added(&want)[..]));
        check_rows("the layer's result", first, rows, n, self.tolerance.layer)?;
        // Of what the device found, so that nothing else counts.
        let got = self.decoder.finish(&given, place, phase)?;
        let want = self.logits(given)?;
        check_rows("a logit", first, (&got, &want), n, self.tolerance.product)
    }

    fn blocks(&self, pool: usize) -> Result<Vec<Vec<u8>>> {
        let read = |slot: &u32| {
            let mut bytes = vec![0; self.layout.slot_bytes()];
            self.pools[pool]
                .read_slot(*slot, &mut bytes)
                .map(|()| bytes)
        };
        TABLE.iter().map(read).collect()
    }

    /// Of what the layer gave, `[n, hidden]`.
    fn logits(&self, mut x: Vec<f32>) -> Result<Vec<f32>> {
        rms_norm(self.team.path(), &mut x, &self.norm, self.eps);
        let head = self.head.as_ref().unwrap_or(&self.embedding);
        head.forward(&x, self.team)
    }

    /// Decodes the last token as turns do: launched and recorded, and replayed; then the most likely token is the one of the
    /// largest logit.
    fn check_sampled(&self) -> Result<()> {
        let (token, place) = (&self.tokens[PROMPT..], self.place(1, PROMPT));
        let logits = self.decoder.forward(token, place, Phase::Decode, true)?;
        let largest = |best: usize, at: usize| if logits[at] > logits[best] { at } else { best };
        let likeliest = (0..logits.len()).fold(0, largest) as u32;
        let cuts = Cuts {
            top_k: Some(1),
            top_p: None,
            min_p: None,
            temperature: 1.0,
        };
        let random = Choice::Random { cuts, random: 0.5 };
        for choice in [Choice::Greedy, random, Choice::Greedy] {
            let next = self.decoder.next(token, place, choice)?;
            if next != Next::Token(likeliest) {
                let reason = format!("{choice:?} gives {next:?}, not {likeliest}");
                return Err(Error::argument(OP, reason));
            }
        }
        Ok(())
    }

    /// Copies a part of a block, which moves bytes and computes nothing: both must agree on every byte.
    fn check_copy(&self) -> Result<()> {
        let mut bytes = vec![0; self.layout.slot_bytes()];
        self.pools[1].read_slot(TABLE[0], &mut bytes)?;
        self.pools[0].write_slot(TABLE[0], &bytes)?;
        let copied = self.pools.each_ref().map(|pool| {
            let mut bytes = vec![0; self.layout.slot_bytes()];
            pool.copy_slot(TABLE[0], COPY, COPIED)?;
            pool.read_slot(COPY, &mut bytes).map(|()| bytes)
        });
        let [want, got] = copied;
        match want? == got? {
            true => Ok(()),
            false => Err(Error::argument(OP, "a part of a block is copied wrongly")),
        }
    }
}
