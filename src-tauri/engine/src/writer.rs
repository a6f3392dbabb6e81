//! The writer thread: takes finished blocks off the engine's hands and puts them on disk.
//!
//! The queue is bounded in bytes. Jobs are done in the order they came, so a ref never precedes its blocks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use store::{Block, BlockId, BlockStore, Fingerprint};

/// Bytes of block payload that may wait for the disk.
const QUEUE_BYTES: usize = 64 << 20;
/// Blocks that go to disk under one sync.
const BATCH: usize = 16;

/// What the writer thread does.
enum Job {
    Save(Block, Vec<u8>),
    Ref {
        leaf: String,
        block: BlockId,
        replaces: Vec<String>,
    },
    Touch(Vec<BlockId>, i64),
    Flush(Sender<()>),
}

/// Handle to the writer thread of one fingerprint. Dropping it finishes the queue and ends the thread.
pub struct Writer {
    jobs: Option<SyncSender<Job>>,
    results: Receiver<(BlockId, bool)>,
    bytes_written: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Starts the thread; `slot_bytes` sizes the queue.
    pub fn start(
        fingerprint: Fingerprint,
        slot_bytes: usize,
        store: Arc<Mutex<BlockStore>>,
    ) -> Self {
        let (jobs, inbox) = sync_channel((QUEUE_BYTES / slot_bytes.max(1)).clamp(2, 1024));
        let (outbox, results) = channel();
        let bytes_written = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&bytes_written);
        let thread = std::thread::Builder::new()
            .name("block-writer".into())
            .spawn(move || write(&fingerprint, &inbox, &outbox, &store, &counter))
            .inspect_err(|error| tracing::error!(%error, "no writer thread; blocks stay in memory"))
            .ok();
        Self {
            jobs: Some(jobs),
            results,
            bytes_written,
            thread,
        }
    }

    /// Queues a block without waiting; gives it back when the queue is full.
    pub fn try_save(&self, block: Block, payload: Vec<u8>) -> Result<(), (Block, Vec<u8>)> {
        let Some(jobs) = &self.jobs else {
            return Err((block, payload));
        };
        jobs.try_send(Job::Save(block, payload))
            .map_err(|error| match error {
                TrySendError::Full(Job::Save(block, payload))
                | TrySendError::Disconnected(Job::Save(block, payload)) => (block, payload),
                _ => unreachable!("only a save was sent"),
            })
    }

    /// Queues a block and waits for room. False when the thread is gone.
    pub fn save(&self, block: Block, payload: Vec<u8>) -> bool {
        self.send(Job::Save(block, payload))
    }

    /// After everything queued so far, lets `leaf` hold the chain that ends in `block` instead of `replaces`.
    pub fn set_ref(&self, leaf: String, block: BlockId, replaces: Vec<String>) {
        self.send(Job::Ref {
            leaf,
            block,
            replaces,
        });
    }

    /// Marks blocks as used at `now_ms`.
    pub fn touch(&self, blocks: Vec<BlockId>, now_ms: i64) {
        self.send(Job::Touch(blocks, now_ms));
    }

    /// Waits until everything queued so far is on disk.
    pub fn flush(&self) {
        let (done, wait) = channel();
        if self.send(Job::Flush(done)) {
            // An error here means that the thread ended; there is nothing left to wait for.
            let _ = wait.recv();
        }
    }

    /// Blocks done since the last call, and whether each is on disk.
    pub fn results(&self) -> impl Iterator<Item = (BlockId, bool)> + '_ {
        self.results.try_iter()
    }

    /// Bytes written to pool files since the start.
    pub fn bytes_written(&self) -> u64 {
        self.bytes_written.load(Ordering::Relaxed)
    }

    fn send(&self, job: Job) -> bool {
        self.jobs
            .as_ref()
            .is_some_and(|jobs| jobs.send(job).is_ok())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn write(
    fingerprint: &Fingerprint,
    inbox: &Receiver<Job>,
    outbox: &Sender<(BlockId, bool)>,
    store: &Mutex<BlockStore>,
    bytes_written: &AtomicU64,
) {
    let mut held = None;
    while let Some(job) = held.take().or_else(|| inbox.recv().ok()) {
        match job {
            Job::Save(block, payload) => {
                let mut batch = vec![(block, payload)];
                while batch.len() < BATCH {
                    match inbox.try_recv() {
                        Ok(Job::Save(block, payload)) => batch.push((block, payload)),
                        Ok(other) => {
                            held = Some(other);
                            break;
                        }
                        Err(_) => break,
                    }
                }
                let written = lock(store).put_many(fingerprint, &batch);
                for ((block, _), written) in batch.iter().zip(written) {
                    bytes_written.fetch_add(written.unwrap_or(0), Ordering::Relaxed);
                    // The engine may have ended first; then nobody asks.
                    let _ = outbox.send((block.id, written.is_some()));
                }
            }
            Job::Ref {
                leaf,
                block,
                replaces,
            } => {
                let mut store = lock(store);
                store.set_ref(&leaf, fingerprint, &block);
                for leaf in replaces {
                    store.drop_ref(&leaf);
                }
            }
            Job::Touch(blocks, now_ms) => {
                lock(store).touch(fingerprint, &blocks, now_ms.unsigned_abs())
            }
            Job::Flush(done) => {
                let _ = done.send(());
            }
        }
    }
}

/// The block store is a cache that checks itself on every read, so a panic elsewhere does not spoil it.
pub fn lock(store: &Mutex<BlockStore>) -> std::sync::MutexGuard<'_, BlockStore> {
    store.lock().unwrap_or_else(PoisonError::into_inner)
}
