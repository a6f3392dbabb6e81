//! The writer thread: takes finished blocks off the engine's hands and puts them on disk, at the lowest priority.
//!
//! Jobs are done in the order they came, so a ref never precedes its blocks. How much it may have at once is up to who
//! sends (`backlog`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use store::{Block, BlockId, BlockStore, Fingerprint};

/// Blocks that go to disk under one sync.
const BATCH: usize = 16;

/// What the writer thread does.
pub(crate) enum Job {
    /// Save a block with this payload; answered.
    Save(Block, Vec<u8>),
    /// Let `leaf` hold the chain that ends in `block` instead of `replaces`.
    Ref {
        leaf: String,
        block: BlockId,
        replaces: Vec<String>,
    },
    /// Mark blocks as used at a time in Unix milliseconds.
    Touch(Vec<BlockId>, i64),
    /// Answer when everything before is done.
    Flush(Sender<()>),
}

/// The answer to a `Save`.
pub(crate) struct Written {
    pub id: BlockId,
    /// The buffer it came in.
    pub payload: Vec<u8>,
    pub on_disk: bool,
}

/// Handle to the writer thread of one fingerprint. Dropping it finishes the queue and ends the thread.
pub(crate) struct Writer {
    jobs: Option<Sender<Job>>,
    results: Receiver<Written>,
    bytes_written: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Starts the thread.
    pub(crate) fn start(fingerprint: Fingerprint, store: Arc<Mutex<BlockStore>>) -> Self {
        let (jobs, inbox) = channel();
        let (outbox, results) = channel();
        let bytes_written = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&bytes_written);
        let thread = std::thread::Builder::new()
            .name("block-writer".into())
            .spawn(move || {
                yield_to_others();
                write(&fingerprint, &inbox, &outbox, &store, &counter);
            })
            .inspect_err(|error| tracing::error!(%error, "no writer thread; blocks stay in memory"))
            .ok();
        Self {
            jobs: Some(jobs),
            results,
            bytes_written,
            thread,
        }
    }

    /// Gives the thread a job. False when it is gone.
    pub(crate) fn send(&self, job: Job) -> bool {
        self.jobs
            .as_ref()
            .is_some_and(|jobs| jobs.send(job).is_ok())
    }

    /// Waits until everything sent so far is on disk.
    pub(crate) fn flush(&self) {
        let (done, wait) = channel();
        if self.send(Job::Flush(done)) {
            // An error here means that the thread ended; there is nothing left to wait for.
            let _ = wait.recv();
        }
    }

    /// An answer that is there.
    pub(crate) fn try_result(&self) -> Option<Written> {
        self.results.try_recv().ok()
    }

    /// Waits for an answer; at least one is due. `None` when the thread is gone.
    pub(crate) fn result(&self) -> Option<Written> {
        self.results.recv().ok()
    }

    /// Bytes written to pool files since the start.
    pub(crate) fn bytes_written(&self) -> u64 {
        self.bytes_written.load(Ordering::Relaxed)
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
    outbox: &Sender<Written>,
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
                for ((block, payload), written) in batch.into_iter().zip(written) {
                    bytes_written.fetch_add(written.unwrap_or(0), Ordering::Relaxed);
                    // The engine may have ended first; then nobody asks.
                    let _ = outbox.send(Written {
                        id: block.id,
                        payload,
                        on_disk: written.is_some(),
                    });
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

/// Lets every other thread go first: what is written now could as well be written later.
fn yield_to_others() {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: plain numbers go in. On Linux process 0 is the calling thread, and a nice value is a thread's own.
        let refused = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) } != 0;
        if refused {
            tracing::debug!("the writer keeps its priority");
        }
    }
}

/// The block store is a cache that checks itself on every read, so a panic elsewhere does not spoil it.
pub(crate) fn lock(store: &Mutex<BlockStore>) -> std::sync::MutexGuard<'_, BlockStore> {
    store.lock().unwrap_or_else(PoisonError::into_inner)
}
