//! A balance of keys, on the CPU and on the device, and what attention over balanced keys stands for.

use ptx_interpreter::Memory;

use super::case::Case;
use super::device::{LAYER, ORDERS, Sequence, layout, run};
use crate::cuda::{Attention, Balance, KeyOffsets};
use crate::key_balance::{KeyBalance, middle};
use crate::layout::BLOCK_TOKENS;
use crate::random::{bits, floats};
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

/// The table for all tokens of a sequence, in chunks of these lengths, and its columns: those that nobody sees are NaN.
fn table(kind: RopeKind, window: Option<usize>, chunks: &[usize], room: usize) -> Vec<f32> {
    let (layout, heads) = (layout(KvFormat::Q8, 2, 96), 6);
    let len: usize = chunks.iter().sum();
    let mut memory = Memory::new();
    let sequence = Sequence::new(&mut memory, layout, len, Some(kind));
    let row = heads * layout.head_dim;
    let queries = floats(7, len * row);
    let (mut offset, mut entries) = (0, Vec::new());
    for (i, tokens) in chunks.iter().enumerate() {
        let mut attention = Attention {
            kv: sequence.at(&mut memory, offset),
            num_heads: heads,
            params: AttentionParams {
                scale: 0.5,
                window,
                softcap: None,
            },
            sinks: 0,
            key_offsets: None,
        };
        let bytes = attention.key_offsets_bytes(*tokens, room);
        let out = memory.uninitialised("key offsets", bytes);
        attention.key_offsets = Some(KeyOffsets {
            address: memory.address(out),
            positions: room,
        });
        let x = memory.floats("queries", &queries[offset * row..(offset + tokens) * row]);
        let launch = attention.fill_key_offsets(memory.address(x), *tokens);
        let launch = launch.unwrap().expect("balanced keys");
        run(&launch, &mut memory, 75, ORDERS[i % ORDERS.len()]);
        entries.extend(memory.read_floats(out));
        offset += tokens;
    }
    entries
}

#[test]
fn key_offsets_of_a_query_are_those_of_any_chunk_and_bucket() {
    for kind in KINDS {
        for window in [None, Some(70)] {
            let (len, room) = (150, 64 * 40);
            let whole = table(kind, window, &[len], len);
            let chunks = table(kind, window, &[1, 62, 1, 1, 40, 45], room);
            let columns = [len, room].map(|positions| 1 + positions.div_ceil(BLOCK_TOKENS));
            let rows = whole.chunks_exact(columns[0]);
            let mut seen = 0;
            for (i, (whole, chunk)) in rows.zip(chunks.chunks_exact(columns[1])).enumerate() {
                let position = i / 6;
                let first = window.map_or(0, |window| (position + 1).saturating_sub(window));
                let blocks = 1 + first / BLOCK_TOKENS..2 + position / BLOCK_TOKENS;
                for column in (first == 0).then_some(0).into_iter().chain(blocks) {
                    assert!(!whole[column].is_nan(), "{position} {column}");
                    assert_eq!(bits(&whole[column..=column]), bits(&chunk[column..=column]));
                    seen += 1;
                }
            }
            assert!(seen > 2 * len, "{seen}");
        }
    }
}
