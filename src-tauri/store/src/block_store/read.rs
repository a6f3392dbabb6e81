//! Restoring blocks: a plan is made while the store is held, and carried out without it.
//!
//! A slot may be dropped and used again in between. Its header then names another block, or its checksums differ while it
//! is being written: a miss, which costs the other block nothing.

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::pool::Place;
use super::{Block, BlockStore, Fingerprint, SlotFormat, slot};
use crate::key::{Form, Seal};

/// About as many bytes go into one read. Measured with blocks that are not in the system's page cache, 94 MB of them:
/// payloads of 1.4 MB took 1.2 times as long in halves and 1.3 times in quarters; payloads of 8 MiB took 1.1 times as
/// long in reads of 2 MiB, and 1.3 times in reads of 4 MiB.
const READ_BYTES: usize = 1 << 20;

/// Threads that read and check. On two cores and a disk of 1.1 GB/s two to six of them were alike, and from the page
/// cache 1.6 times as fast as one; four keep a queue before the disk while others check sums.
const NUM_READERS: usize = 4;

/// Where some blocks of one chain are. It holds their files open, and reads them without the store.
#[derive(Debug)]
pub struct ReadPlan {
    fingerprint: Fingerprint,
    format: SlotFormat,
    /// What opens sealed slots.
    seal: Option<Seal>,
    blocks: Vec<Planned>,
}

#[derive(Debug)]
struct Planned {
    block: Block,
    place: Place,
    seq: u64,
    /// None if it cannot be opened: found out when it is read.
    file: Option<Arc<File>>,
    at: u64,
}

/// What reading a plan gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadOutcome {
    /// So many blocks from the first on are exactly themselves. What was read of the others is not to be used.
    pub num_good: usize,
    /// Why the block after them is not, if there is one.
    pub reason: Option<String>,
}

impl BlockStore {
    /// Plans to read `blocks`, which follow each other in one chain. The plan ends before the first that the store has
    /// not, or not as this. Reads nothing, and takes microseconds.
    pub fn plan(&self, fingerprint: &Fingerprint, blocks: &[Block]) -> Option<ReadPlan> {
        let pool = self.pools.get(fingerprint)?;
        let mut files: HashMap<_, Option<Arc<File>>> = HashMap::new();
        let mut planned = Vec::with_capacity(blocks.len());
        for block in blocks {
            let Some(entry) = self.entries.get(&block.id) else {
                break;
            };
            if entry.fingerprint != *fingerprint || entry.block != *block {
                tracing::warn!(id = ?block.id, "a block was asked for as something it is not");
                break;
            }
            let file = files.entry(entry.place.file).or_insert_with(|| {
                let file = File::open(pool.path(&self.dir, entry.place.file));
                file.map(Arc::new).ok()
            });
            planned.push(Planned {
                block: block.clone(),
                place: entry.place,
                seq: entry.seq,
                file: file.clone(),
                at: pool.span(entry.place).0,
            });
        }
        Some(ReadPlan {
            fingerprint: *fingerprint,
            format: pool.format,
            seal: pool.seal.clone(),
            blocks: planned,
        })
    }

    /// Drops the block that a plan could not read, with everything below it, and logs why; unless it has gone or moved
    /// since the plan was made.
    pub fn drop_unreadable(&mut self, plan: &ReadPlan, outcome: &ReadOutcome) {
        let (Some(planned), Some(reason)) = (plan.blocks.get(outcome.num_good), &outcome.reason)
        else {
            return;
        };
        let id = planned.block.id;
        let is_there = self.entries.get(&id).is_some_and(|entry| {
            entry.place == planned.place && entry.seq == planned.seq // not put again meanwhile
        });
        if is_there {
            tracing::warn!(?id, fingerprint = ?plan.fingerprint, reason, "a block is dropped");
            self.drop_block(&plan.fingerprint, &id);
        } else {
            tracing::debug!(?id, reason, "a block went while it was being read");
        }
    }
}

impl ReadPlan {
    /// How many blocks it reads.
    pub fn num_blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Bytes that it reads.
    pub fn num_bytes(&self) -> u64 {
        let of = |planned: &Planned| {
            self.format.header_bytes(planned.place.file.form) + self.format.payload_bytes()
        };
        self.blocks.iter().map(of).sum::<usize>() as u64
    }

    /// Reads the planned blocks, each into a buffer of a payload's size, and checks them. Valid tiles come back exactly
    /// as they were put, the rest of a slab is zero.
    ///
    /// Some threads share the reads. A read is a run of whole layers of about 1 MiB: the first run of every block, then
    /// the second of every block, so that early layers are there early. A payload of less than 1.5 MiB is one read, since
    /// it comes faster whole than in parts.
    ///
    /// # Panics
    /// If there is not one buffer of that size for each block.
    pub fn run(&self, out: &mut [&mut [u8]]) -> ReadOutcome {
        assert_eq!(out.len(), self.blocks.len(), "a buffer for each block");
        let reading = Reading {
            plan: self,
            pieces: Mutex::new(self.pieces(out).into_iter()),
            headers: self.blocks.iter().map(|_| OnceLock::new()).collect(),
            first_bad: AtomicUsize::new(self.blocks.len()),
            reasons: Mutex::new(HashMap::new()),
        };
        let num_readers = NUM_READERS.min(reading.num_left());
        std::thread::scope(|scope| {
            for _ in 1..num_readers {
                let reader = std::thread::Builder::new().name("block-reader".into());
                // Without one more the others do its part.
                let _ = reader.spawn_scoped(scope, || reading.work());
            }
            reading.work();
        });
        let num_good = reading.first_bad.into_inner();
        let mut reasons = into_inner(reading.reasons);
        ReadOutcome {
            num_good,
            reason: reasons.remove(&num_good),
        }
    }

    /// Cuts the buffers into reads, in the order in which they are done.
    fn pieces<'a>(&self, out: &'a mut [&mut [u8]]) -> Vec<Piece<'a>> {
        let num_layers = self.format.num_layers as usize;
        let run_layers = layers_per_read(&self.format);
        let mut rests: Vec<&mut [u8]> = out.iter_mut().map(|bytes| &mut **bytes).collect();
        let mut pieces = Vec::new();
        for first in (0..num_layers).step_by(run_layers) {
            let layers = first..num_layers.min(first + run_layers);
            for (block, rest) in rests.iter_mut().enumerate() {
                let len = layers.len() * self.format.layer_bytes();
                let (bytes, after) = std::mem::take(rest).split_at_mut(len);
                *rest = after;
                pieces.push(Piece {
                    block,
                    layers: layers.clone(),
                    bytes,
                });
            }
        }
        assert!(
            rests.iter().all(|rest| rest.is_empty()),
            "a buffer is a payload"
        );
        pieces
    }
}

/// Layers that one read takes: a payload in equal parts of about [`READ_BYTES`].
fn layers_per_read(format: &SlotFormat) -> usize {
    let num_reads = (format.payload_bytes() + READ_BYTES / 2) / READ_BYTES;
    (format.num_layers as usize).div_ceil(num_reads.max(1))
}

/// One read: a run of layers of one block.
struct Piece<'a> {
    block: usize,
    layers: Range<usize>,
    bytes: &'a mut [u8],
}

/// What the readers share.
struct Reading<'a> {
    plan: &'a ReadPlan,
    pieces: Mutex<std::vec::IntoIter<Piece<'a>>>,
    /// What guards the slabs of each block; read by whoever needs it first.
    headers: Vec<OnceLock<Result<slot::Guard, String>>>,
    first_bad: AtomicUsize,
    reasons: Mutex<HashMap<usize, String>>,
}

impl Reading<'_> {
    fn num_left(&self) -> usize {
        self.pieces
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
    }

    /// Reads piece after piece until none is left.
    fn work(&self) {
        loop {
            let next = self
                .pieces
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .next();
            let Some(piece) = next else { return };
            let block = piece.block;
            // What follows a bad block is of no use.
            if block >= self.first_bad.load(Ordering::Relaxed) {
                continue;
            }
            if let Err(reason) = self.read(piece) {
                let mut reasons = self.reasons.lock().unwrap_or_else(PoisonError::into_inner);
                reasons.entry(block).or_insert(reason);
                self.first_bad.fetch_min(block, Ordering::Relaxed);
            }
        }
    }

    fn read(
        &self,
        Piece {
            block,
            layers,
            bytes,
        }: Piece,
    ) -> Result<(), String> {
        let format = &self.plan.format;
        let planned = &self.plan.blocks[block];
        let file = planned.file.as_deref().ok_or("its file cannot be opened")?;
        let header = self.headers[block].get_or_init(|| {
            let seal = self.plan.seal.as_ref();
            let key = seal.filter(|_| planned.place.file.form == Form::Sealed);
            let key = key.map(|seal| &*seal.key);
            slot::read_header(file, planned.at, format, key, &planned.block)
        });
        let guard = header.as_ref().map_err(String::clone)?;
        let num_tokens = planned.block.tokens.len();
        slot::read_layers(
            file,
            planned.at,
            format,
            num_tokens,
            guard,
            layers.start,
            bytes,
        )
    }
}

fn into_inner<T>(mutex: Mutex<T>) -> T {
    mutex.into_inner().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_store::pool::FileId;

    /// Keys and values of so many bytes in each layer.
    fn layers_of(num_layers: u32, slab_bytes: u32) -> SlotFormat {
        SlotFormat {
            block_tokens: 64,
            tile_tokens: 16,
            num_layers,
            key_slab_bytes: slab_bytes,
            value_slab_bytes: slab_bytes,
        }
    }

    #[test]
    fn small_payloads_are_read_whole_and_large_ones_in_runs_of_layers() {
        // 1.4 MB, as of the default model.
        assert_eq!(layers_per_read(&layers_of(30, 24_576)), 30);
        // 8 MiB, as of 8 heads of 128 in 32 layers.
        assert_eq!(layers_per_read(&layers_of(32, 128 << 10)), 4);
        // A layer that is a read by itself.
        assert_eq!(layers_per_read(&layers_of(4, 4 << 20)), 1);
        assert_eq!(layers_per_read(&layers_of(1, 64)), 1);
    }

    #[test]
    fn every_byte_is_read_once_and_early_layers_first() {
        let format = layers_of(5, 1 << 20);
        let tokens = vec![1; 64];
        let fingerprint = Fingerprint([1; 32]);
        let planned = |_| Planned {
            block: Block::new(&fingerprint, None, tokens.clone()),
            place: Place {
                file: FileId {
                    form: Form::Plain,
                    number: 0,
                },
                slot: 0,
            },
            seq: 0,
            file: None,
            at: 0,
        };
        let plan = ReadPlan {
            fingerprint,
            format,
            seal: None,
            blocks: (0..3).map(planned).collect(),
        };
        let mut buffers = vec![vec![0; format.payload_bytes()]; 3];
        let mut out: Vec<&mut [u8]> = buffers.iter_mut().map(Vec::as_mut_slice).collect();
        let pieces = plan.pieces(&mut out);
        let order: Vec<(usize, usize)> = pieces
            .iter()
            .map(|it| (it.layers.start, it.block))
            .collect();
        assert!(order.is_sorted(), "{order:?}");
        for piece in pieces {
            assert_eq!(piece.bytes.len(), piece.layers.len() * format.layer_bytes());
            piece.bytes.iter_mut().for_each(|byte| *byte += 1);
        }
        assert!(buffers.iter().flatten().all(|byte| *byte == 1));
    }
}
