//! Restoring blocks: a plan is made while the store is held, and carried out without it.
//!
//! A slot may be dropped and used again in between. Its header then names another block, or its checksums differ while it
//! is being written: a miss, which costs the other block nothing.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::pool::Place;
use super::{Block, BlockStore, Fingerprint, SlotFormat, slot};
use crate::key::{Form, Seal};
use crate::unbuffered::Unbuffered;

/// About as many bytes go into one read. Measured with 94 MB of blocks that were on disk only and came through the page cache:
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
    file: Option<Arc<Unbuffered>>,
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
        let mut files: HashMap<_, Option<Arc<Unbuffered>>> = HashMap::new();
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
                let file = Unbuffered::open(&pool.path(&self.dir, entry.place.file));
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

    /// Reads the planned blocks and checks them. Valid tiles come back exactly as they were put, the rest of a slab is zero.
    ///
    /// For each block there are buffers of so many whole layers (the last may have fewer), in order, together a payload; one is
    /// filled with one read, and looked at only then. Some threads share the reads: the first buffer of every block, then the second of every block, so that early layers are
    /// there early. A buffer that was read and is right goes to `done`, on the thread that read it: of plain slots the
    /// checksums of its slabs were compared, of sealed ones the tags that stand for the whole block's description. All
    /// others are dropped, those of a block behind a bad one unread.
    ///
    /// # Panics
    /// If there are not such buffers for each block.
    pub fn run<B: AsMut<[u8]> + Send>(
        &self,
        buffers: Vec<Vec<B>>,
        layers_per_buffer: usize,
        done: impl Fn(B) + Sync,
    ) -> ReadOutcome {
        let pieces = self.pieces(buffers, layers_per_buffer);
        let num_readers = NUM_READERS.min(pieces.len());
        let reading = Reading {
            plan: self,
            pieces: Mutex::new(pieces.into_iter()),
            headers: self.blocks.iter().map(|_| OnceLock::new()).collect(),
            first_bad: AtomicUsize::new(self.blocks.len()),
            reasons: Mutex::new(HashMap::new()),
        };
        std::thread::scope(|scope| {
            for _ in 1..num_readers {
                let reader = std::thread::Builder::new().name("block-reader".into());
                // Without one more the others do its part.
                let _ = reader.spawn_scoped(scope, || reading.work(&done));
            }
            reading.work(&done);
        });
        let num_good = reading.first_bad.into_inner();
        let mut reasons = into_inner(reading.reasons);
        ReadOutcome {
            num_good,
            reason: reasons.remove(&num_good),
        }
    }

    /// The reads in the order in which they are done.
    fn pieces<B>(&self, buffers: Vec<Vec<B>>, layers_per_buffer: usize) -> Vec<Piece<B>> {
        assert_eq!(buffers.len(), self.blocks.len(), "buffers for each block");
        let num_layers = self.format.num_layers as usize;
        let mut pieces = Vec::new();
        for (block, buffers) in buffers.into_iter().enumerate() {
            let num_buffers = num_layers.div_ceil(layers_per_buffer);
            assert_eq!(buffers.len(), num_buffers, "a payload");
            pieces.extend(buffers.into_iter().enumerate().map(|(i, bytes)| {
                let first_layer = i * layers_per_buffer;
                Piece {
                    block,
                    first_layer,
                    num_layers: layers_per_buffer.min(num_layers - first_layer),
                    bytes,
                }
            }));
        }
        pieces.sort_by_key(|piece| (piece.first_layer, piece.block));
        pieces
    }
}

impl SlotFormat {
    /// Layers of a block to read at once: a payload in equal runs of about 1 MiB. One of less than 1.5 MiB is a single run,
    /// since it comes faster whole than in parts.
    pub fn layers_per_read(&self) -> usize {
        let num_reads = (self.payload_bytes() + READ_BYTES / 2) / READ_BYTES;
        (self.num_layers as usize).div_ceil(num_reads.max(1))
    }
}

/// One read: some layers of one block.
struct Piece<B> {
    block: usize,
    first_layer: usize,
    num_layers: usize,
    bytes: B,
}

/// What the readers share.
struct Reading<'a, B> {
    plan: &'a ReadPlan,
    pieces: Mutex<std::vec::IntoIter<Piece<B>>>,
    /// What guards the slabs of each block; read by whoever needs it first.
    headers: Vec<OnceLock<Result<slot::Guard, String>>>,
    first_bad: AtomicUsize,
    reasons: Mutex<HashMap<usize, String>>,
}

impl<B: AsMut<[u8]>> Reading<'_, B> {
    /// Reads piece after piece until none is left.
    fn work(&self, done: &impl Fn(B)) {
        while let Some(piece) = self.next() {
            let block = piece.block;
            // What follows a bad block is of no use.
            if block >= self.first_bad.load(Ordering::Relaxed) {
                continue;
            }
            // Whatever goes wrong with a block is a miss, and the other readers and who waits for them go on.
            let read = AssertUnwindSafe(|| self.read(piece).map(done));
            let read = catch_unwind(read).unwrap_or_else(|_| Err("its reader panicked".to_owned()));
            if let Err(reason) = read {
                let mut reasons = self.reasons.lock().unwrap_or_else(PoisonError::into_inner);
                reasons.entry(block).or_insert(reason);
                self.first_bad.fetch_min(block, Ordering::Relaxed);
            }
        }
    }

    fn next(&self) -> Option<Piece<B>> {
        self.pieces
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .next()
    }

    /// The bytes of a piece, when they are right.
    fn read(&self, mut piece: Piece<B>) -> Result<B, String> {
        let format = &self.plan.format;
        let planned = &self.plan.blocks[piece.block];
        let file = planned.file.as_deref().ok_or("its file cannot be opened")?;
        let bytes = piece.bytes.as_mut();
        if bytes.len() != piece.num_layers * format.layer_bytes() {
            return Err(format!(
                "{} bytes for {} layers",
                bytes.len(),
                piece.num_layers
            ));
        }
        // The first layers come with the header, unless somebody else needed it before.
        let mut has_layers = false;
        let header = self.headers[piece.block].get_or_init(|| {
            let seal = self.plan.seal.as_ref();
            let key = seal.filter(|_| planned.place.file.form == Form::Sealed);
            let key = key.map(|seal| &*seal.key);
            has_layers = piece.first_layer == 0;
            let layers = if has_layers { &mut *bytes } else { &mut [] };
            slot::read_header(file, planned.at, format, key, &planned.block, layers)
        });
        let guard = header.as_ref().map_err(String::clone)?;
        if !has_layers {
            slot::read_layers(file, planned.at, format, guard, piece.first_layer, bytes)?;
        }
        let num_tokens = planned.block.tokens.len();
        slot::check_layers(format, num_tokens, guard, piece.first_layer, bytes)?;
        Ok(piece.bytes)
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
        assert_eq!(layers_of(30, 24_576).layers_per_read(), 30);
        // 8 MiB, as of 8 heads of 128 in 32 layers.
        assert_eq!(layers_of(32, 128 << 10).layers_per_read(), 4);
        // A layer that is a read by itself.
        assert_eq!(layers_of(4, 4 << 20).layers_per_read(), 1);
        assert_eq!(layers_of(1, 64).layers_per_read(), 1);
    }

    /// A plan of three blocks, whose file is not there.
    fn plan(format: SlotFormat) -> ReadPlan {
        let fingerprint = Fingerprint([1; 32]);
        let planned = |_| Planned {
            block: Block::new(&fingerprint, None, vec![1; 64]),
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
        ReadPlan {
            fingerprint,
            format,
            seal: None,
            blocks: (0..3).map(planned).collect(),
        }
    }

    #[test]
    fn every_byte_is_read_once_and_early_layers_first() {
        let format = layers_of(5, 1 << 20);
        let plan = plan(format);
        let len = 2 * format.layer_bytes();
        let mut payloads = vec![vec![0u8; format.payload_bytes()]; 3];
        let buffers = payloads.iter_mut().map(|it| it.chunks_mut(len).collect());
        let pieces = plan.pieces::<&mut [u8]>(buffers.collect(), 2);
        let order: Vec<(usize, usize)> =
            pieces.iter().map(|it| (it.first_layer, it.block)).collect();
        let expected = [0, 2, 4].map(|layer| [0, 1, 2].map(|block| (layer, block)));
        assert_eq!(order, expected.concat());
        for piece in pieces {
            piece.bytes.iter_mut().for_each(|byte| *byte += 1);
        }
        assert!(payloads.iter().flatten().all(|byte| *byte == 1));
    }
}
