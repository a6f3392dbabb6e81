//! Queries over a sequence: what the kernels make of them, and an f64 reference over what the tiles hold.

use ptx_interpreter::{Buffer, Memory, Order};

use super::device::{ORDERS, Sequence, layout, run, targets};
use crate::cuda::{Attention, KeyOffsets, Launch, Source};
use crate::random::floats;
use crate::{AttentionParams, KvDtype, KvFormat, RopeKind};

/// Queries of some tokens over a sequence.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) format: KvFormat,
    pub(super) head_dim: usize,
    pub(super) kv_heads: usize,
    pub(super) group: usize,
    /// Position of the first query, and how many there are.
    pub(super) offset: usize,
    pub(super) tokens: usize,
    pub(super) window: Option<usize>,
    pub(super) softcap: Option<f32>,
    pub(super) has_sinks: bool,
    /// Of keys whose format is rotated.
    pub(super) balance: Option<RopeKind>,
}

/// The two kernels of `decode`, and what the first leaves to the second; before them what fills the key offsets.
pub(super) struct Decode {
    pub(super) fill: Option<Launch>,
    pub(super) split: Launch,
    pub(super) parts: Buffer,
    pub(super) combine: Launch,
}

impl Decode {
    pub(super) fn launches(&self) -> impl Iterator<Item = &Launch> {
        self.fill.iter().chain([&self.split, &self.combine])
    }
}

impl Case {
    pub(super) fn new(format: KvFormat, head_dim: usize) -> Case {
        Case {
            format,
            head_dim,
            kv_heads: 2,
            group: 3,
            offset: 150,
            tokens: 1,
            window: None,
            softcap: None,
            has_sinks: false,
            balance: None,
        }
    }

    pub(super) fn heads(&self) -> usize {
        self.kv_heads * self.group
    }

    fn params(&self) -> AttentionParams {
        AttentionParams {
            // Scores that differ enough for the softmax to matter.
            scale: 4.0 / (self.head_dim as f32).sqrt(),
            window: self.window,
            softcap: self.softcap,
        }
    }

    /// Queries `[len, heads, head_dim]` for every position of the sequence.
    fn queries(&self) -> Vec<f32> {
        let len = self.offset + self.tokens;
        floats(7, len * self.heads() * self.head_dim)
    }

    fn sinks(&self) -> Option<Vec<f32>> {
        self.has_sinks.then(|| floats(8, self.heads()))
    }

    /// The sequence in a memory of its own.
    pub(super) fn sequence(&self) -> (Memory, Sequence) {
        let mut memory = Memory::new();
        let layout = layout(self.format, self.kv_heads, self.head_dim);
        let sequence = Sequence::new(&mut memory, layout, self.offset + self.tokens, self.balance);
        (memory, sequence)
    }

    fn attention(
        &self,
        memory: &mut Memory,
        sequence: &Sequence,
        (offset, tokens): (usize, usize),
        positions: usize,
    ) -> Attention {
        let kv = sequence.at(memory, offset);
        let sinks = self.sinks().map(|sinks| memory.floats("sinks", &sinks));
        let attention = Attention {
            kv,
            num_heads: self.heads(),
            params: self.params(),
            sinks: sinks.map_or(0, |sinks| memory.address(sinks)),
            key_offsets: None,
        };
        let bytes = attention.key_offsets_bytes(tokens, positions);
        let table = memory.uninitialised("key offsets", bytes);
        let address = memory.address(table);
        Attention {
            key_offsets: (bytes > 0).then_some(KeyOffsets { address, positions }),
            ..attention
        }
    }

    /// The queries of `tokens` positions from `offset` on.
    fn rows(&self, offset: usize, tokens: usize) -> Vec<f32> {
        let row = self.heads() * self.head_dim;
        self.queries()[offset * row..(offset + tokens) * row].to_vec()
    }

    /// Everything that `decode` launches, with its output.
    pub(super) fn decode(
        &self,
        memory: &mut Memory,
        sequence: &Sequence,
        (offset, tokens): (usize, usize),
        positions: usize,
    ) -> (Decode, Buffer) {
        let attention = self.attention(memory, sequence, (offset, tokens), positions);
        let queries = memory.floats("queries", &self.rows(offset, tokens));
        let bytes = attention.parts_bytes(tokens, positions);
        let parts = memory.uninitialised("parts", bytes);
        let out = memory.uninitialised("out", tokens * self.heads() * self.head_dim * 4);
        let [queries, at, to] = [queries, parts, out].map(|buffer| memory.address(buffer));
        let [split, combine] = attention
            .decode(queries, at, to, tokens, positions)
            .unwrap();
        let decode = Decode {
            fill: attention.fill_key_offsets(queries, tokens).unwrap(),
            split,
            parts,
            combine,
        };
        (decode, out)
    }

    pub(super) fn decoded(&self, target: u32, order: Order) -> Vec<f32> {
        let (mut memory, sequence) = self.sequence();
        let positions = self.offset + self.tokens;
        let place = (self.offset, self.tokens);
        let (decode, out) = self.decode(&mut memory, &sequence, place, positions);
        for launch in decode.launches() {
            run(launch, &mut memory, target, order);
        }
        assert!(memory.is_written(out));
        memory.read_floats(out)
    }

    /// What `prefill` launches, the attention last, with its output.
    pub(super) fn prefill(
        &self,
        memory: &mut Memory,
        sequence: &Sequence,
        (offset, tokens): (usize, usize),
        target: u32,
    ) -> (Vec<Launch>, Buffer) {
        let attention = self.attention(memory, sequence, (offset, tokens), offset + tokens);
        let queries = memory.floats("queries", &self.rows(offset, tokens));
        let out = memory.uninitialised("out", tokens * self.heads() * self.head_dim * 4);
        let (queries, to) = (memory.address(queries), memory.address(out));
        let fill = attention.fill_key_offsets(queries, tokens).unwrap();
        let attend = attention.prefill(queries, to, tokens, target).unwrap();
        (fill.into_iter().chain([attend]).collect(), out)
    }

    /// All tokens, in chunks of these lengths.
    pub(super) fn prefilled(&self, chunks: &[usize], target: u32, order: Order) -> Vec<f32> {
        let (mut memory, sequence) = self.sequence();
        let mut offset = self.offset;
        let mut values = Vec::new();
        for &tokens in chunks {
            let place = (offset, tokens);
            let (launches, out) = self.prefill(&mut memory, &sequence, place, target);
            for launch in &launches {
                run(launch, &mut memory, target, order);
            }
            assert!(memory.is_written(out));
            values.extend(memory.read_floats(out));
            offset += tokens;
        }
        assert_eq!(offset, self.offset + self.tokens);
        values
    }

    pub(super) fn check_prefill(&self, target: u32, order: usize) {
        let want = self.reference(&self.sequence().1);
        let got = self.prefilled(&[self.tokens], target, ORDERS[order % ORDERS.len()]);
        let error = Self::error(&got, &want);
        // Tensor cores take queries and weights in 16 bits.
        let has_bf16 = self.format.key == KvDtype::Bf16;
        let most = match (target, has_bf16) {
            (75, _) => 3e-5,
            (_, false) => 4e-3,
            (_, true) => 3e-2,
        };
        assert!(error < most, "{self:?} for {target}: {error}",);
    }

    /// In f64, of the keys and values as they were rounded.
    pub(super) fn reference(&self, sequence: &Sequence) -> Vec<f32> {
        let (dim, kv_heads, params) = (self.head_dim, self.kv_heads, self.params());
        let (queries, sinks) = (self.rows(self.offset, self.tokens), self.sinks());
        let mut out = Vec::new();
        for (row, q) in queries.chunks_exact(dim).enumerate() {
            let (position, head) = (self.offset + row / self.heads(), row % self.heads());
            let at = |t: usize| (t * kv_heads + head / self.group) * dim;
            let seen = params.visible(position);
            let scores: Vec<f64> = seen
                .clone()
                .map(|t| {
                    let key = &sequence.keys[at(t)..][..dim];
                    let dot: f64 = q
                        .iter()
                        .zip(key)
                        .map(|(q, k)| f64::from(*q) * f64::from(*k))
                        .sum();
                    let score = dot * f64::from(params.scale);
                    params.softcap.map_or(score, |cap| {
                        f64::from(cap) * (score / f64::from(cap)).tanh()
                    })
                })
                .collect();
            let mut sum: f64 = scores.iter().map(|score| score.exp()).sum();
            sum += sinks
                .as_ref()
                .map_or(0.0, |sinks| f64::from(sinks[head]).exp());
            let mut values = vec![0f64; dim];
            for (t, score) in seen.zip(scores) {
                for (value, v) in values.iter_mut().zip(&sequence.values[at(t)..]) {
                    *value += score.exp() / sum * f64::from(*v);
                }
            }
            out.extend(values.iter().map(|value| *value as f32));
        }
        out
    }

    /// How much two results differ at most.
    pub(super) fn error(got: &[f32], want: &[f32]) -> f32 {
        assert_eq!(got.len(), want.len());
        let differences = got.iter().zip(want).map(|(a, b)| (a - b).abs());
        differences.fold(0.0, |most, d| if d > most || d.is_nan() { d } else { most })
    }

    pub(super) fn check_decode(&self, order: usize) {
        self.check_decode_for(targets(Source::AttentionDecode), order);
    }

    pub(super) fn check_decode_for(&self, targets: impl Iterator<Item = u32>, order: usize) {
        let want = self.reference(&self.sequence().1);
        for target in targets {
            let got = self.decoded(target, ORDERS[order % ORDERS.len()]);
            let error = Self::error(&got, &want);
            assert!(error < 3e-5, "{self:?} for {target}: {error}",);
        }
    }
}
