//! A balance of keys, on the CPU and on the device, and what attention over balanced keys stands for.

use ptx_interpreter::Memory;

use super::case::Case;
use super::device::{LAYER, ORDERS, Sequence, layout, run};
use crate::cuda::{Attention, Balance, KeyOffsets};
use crate::key_balance::{KeyBalance, middle};
use crate::layout::BLOCK_TOKENS;
use crate::random::floats;
use crate::{AttentionParams, KvFormat, KvLayout, RopeKind};

pub(super) const KINDS: [RopeKind; 2] = [RopeKind::Interleaved, RopeKind::Halves];

/// A balance that matters: means of twice, first keys of four times the size of what differs between keys, and factors from
/// 1 / e to e; with the angles of a sequence, to the end of its last block.
pub(super) struct Balancing {
    keys: KeyBalance,
    layout: KvLayout,
    kind: RopeKind,
    /// `[positions, head_dim / 2]`
    cos: Vec<f32>,
    sin: Vec<f32>,
}

impl Balancing {
    pub(super) fn new(layout: KvLayout, len: usize, kind: RopeKind) -> Self {
        let dim = layout.head_dim;
        let rows = floats(11, layout.num_layers * layout.num_kv_heads * 3 * dim);
        let numbers: Vec<f32> = rows
            .iter()
            .enumerate()
            .map(|(i, x)| match i / dim % 3 {
                0 => 2.0 * x,
                1 => 4.0 * x,
                _ => x.exp(),
            })
            .collect();
        let positions = len.next_multiple_of(BLOCK_TOKENS);
        let (cos, sin) = (0..positions * dim / 2)
            .map(|at| {
                let (position, i) = (at / (dim / 2), at % (dim / 2));
                let angle = position as f32 * 10_000f32.powf(-2.0 * i as f32 / dim as f32);
                (angle.cos(), angle.sin())
            })
            .unzip();
        Self {
            keys: KeyBalance::from_numbers(&numbers, &layout).unwrap(),
            layout,
            kind,
            cos,
            sin,
        }
    }

    pub(super) fn on_device(&self, memory: &mut Memory) -> Balance {
        let arrays = [&self.keys.device_numbers(), &self.cos, &self.sin];
        let [numbers, cos, sin] = arrays.map(|array| {
            let buffer = memory.floats("balance", array);
            memory.address(buffer)
        });
        Balance {
            numbers,
            cos,
            sin,
            kind: self.kind,
        }
    }

    /// Balances the key of one head at `position`, as the CPU does.
    pub(super) fn balance(&self, (position, kv_head): (usize, usize), key: &mut [f32]) {
        let half = self.layout.head_dim / 2;
        let middle = middle(position / BLOCK_TOKENS);
        let angles = middle * half..(middle + 1) * half;
        let angles = (&self.cos[angles.clone()], &self.sin[angles]);
        let head = self.keys.head(LAYER, kv_head, &self.layout);
        head.key(key, position, angles, self.kind, &mut Vec::new());
    }

    /// The key that a balanced one stands for.
    pub(super) fn undo(&self, place: (usize, usize), key: &mut [f32]) {
        let mut nothing = vec![0f32; key.len()];
        self.balance(place, &mut nothing);
        for (x, nothing) in key.iter_mut().zip(&nothing) {
            *x -= nothing;
        }
        let head = self.keys.head(LAYER, place.1, &self.layout);
        head.queries(key);
    }
}

#[test]
fn attention_over_balanced_keys_is_that_over_the_keys_as_they_came() {
    for (i, (format, most)) in [("q8", 0.02), ("q4", 0.2)].into_iter().enumerate() {
        for kind in KINDS {
            let case = Case {
                balance: Some(kind),
                offset: 60,
                tokens: 10,
                ..Case::new(format.parse().unwrap(), 64)
            };
            let mut sequence = case.sequence().1;
            sequence.keys = sequence.given_keys.clone();
            let want = case.reference(&sequence);
            let results = [75, 80].map(|target| {
                let prefilled = case.prefilled(&[case.tokens], target, ORDERS[i]);
                [prefilled, case.decoded(target, ORDERS[i])]
            });
            for got in results.as_flattened() {
                let error = Case::error(got, &want);
                assert!(error < most, "{format} {kind:?}: {error}");
            }
        }
    }
}

/// Queries over a sequence whose keys are balanced.
#[derive(Clone, Copy, Debug)]
struct Table {
    kind: RopeKind,
    window: Option<usize>,
    /// Position of the first query, and how many tokens there are.
    offset: usize,
    tokens: usize,
}

const SCALE: f32 = 0.5;
const HEADS: usize = 6;
const KV_HEADS: usize = 2;
const DIM: usize = 96;

impl Table {
    fn queries(&self) -> Vec<f32> {
        floats(7, self.tokens * HEADS * DIM)
    }

    /// The entries for all tokens, in chunks of these lengths, with room for so many positions; NaN where there is none.
    fn filled(&self, chunks: &[usize], positions: usize) -> Vec<f32> {
        let mut memory = Memory::new();
        let (layout, len) = (
            layout(KvFormat::Q8, KV_HEADS, DIM),
            self.offset + self.tokens,
        );
        let sequence = Sequence::new(&mut memory, layout, len, Some(self.kind));
        let (queries, mut first, mut entries) = (self.queries(), 0, Vec::new());
        for (i, &tokens) in chunks.iter().enumerate() {
            let mut attention = Attention {
                kv: sequence.at(&mut memory, self.offset + first),
                num_heads: HEADS,
                params: AttentionParams {
                    scale: SCALE,
                    window: self.window,
                    softcap: None,
                },
                sinks: 0,
                key_offsets: None,
            };
            let bytes = attention.key_offsets_bytes(tokens, positions);
            let out = memory.uninitialised("key offsets", bytes);
            let address = memory.address(out);
            attention.key_offsets = Some(KeyOffsets { address, positions });
            let rows = first * HEADS * DIM..(first + tokens) * HEADS * DIM;
            let queries = memory.floats("queries", &queries[rows]);
            let launch = attention.fill_key_offsets(memory.address(queries), tokens);
            let launch = launch.unwrap().expect("balanced keys");
            run(&launch, &mut memory, 75, ORDERS[i % ORDERS.len()]);
            entries.extend(memory.read_floats(out));
            first += tokens;
        }
        entries
    }
}

#[test]
fn key_offsets_are_products_with_the_centers_and_the_same_in_any_chunk_and_bucket() {
    // Also where there are more blocks than a block of threads has columns.
    for (offset, tokens, window) in [
        (0, 150, None),
        (0, 150, Some(70)),
        (2016, 40, Some(70)),
        (2016, 3, None),
    ] {
        for kind in KINDS {
            let table = Table {
                kind,
                window,
                offset,
                tokens,
            };
            let (len, room) = (offset + tokens, offset + tokens + 64 * 40);
            let whole = table.filled(&[tokens], len);
            let chunks = table.filled(&[1, tokens / 2, tokens - tokens / 2 - 1], room);
            let [narrow, wide] = [len, room].map(|positions| 1 + positions.div_ceil(BLOCK_TOKENS));
            let balancing = Balancing::new(layout(KvFormat::Q8, KV_HEADS, DIM), len, kind);
            for (row, q) in table.queries().chunks_exact(DIM).enumerate() {
                let (position, kv_head) = (offset + row / HEADS, row % HEADS / (HEADS / KV_HEADS));
                let first = window.map_or(0, |window| (position + 1).saturating_sub(window));
                let blocks = 1 + first / BLOCK_TOKENS..2 + position / BLOCK_TOKENS;
                for column in (first == 0).then_some(0).into_iter().chain(blocks) {
                    // A position that stands for the column.
                    let key = column.saturating_sub(1) * BLOCK_TOKENS + column.min(1);
                    let mut center = [0.0; DIM];
                    balancing.undo((key, kv_head), &mut center);
                    let products = q.iter().zip(center);
                    let dot: f64 = products.map(|(q, c)| f64::from(*q) * f64::from(c)).sum();
                    let got = whole[row * narrow + column];
                    let error = f64::from(got) - dot * f64::from(SCALE);
                    assert!(error.abs() < 2e-5, "{table:?} {row} {column}: {error}");
                    assert_eq!(got.to_bits(), chunks[row * wide + column].to_bits());
                }
            }
        }
    }
}
