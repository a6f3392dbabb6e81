//! The threads that compute together.
//!
//! A decoder layer is a few hundred microseconds of work with several points where all threads must meet. So the threads
//! of a team run one closure at the same time, meet at barriers inside it, and wait by spinning, since the wait is shorter
//! than a sleep. Between two runs they spin for a moment (the next token usually follows at once), then they sleep: an idle
//! application uses no processor.

use std::any::Any;
use std::cell::UnsafeCell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::cpu::Path;

/// How long a thread without work spins before it sleeps.
const SPIN: Duration = Duration::from_micros(200);
/// Looks at a barrier before the processor is offered to other threads.
const LOOKS: u32 = 2000;

/// The machine's physical cores, as far as this process may use them (a container may be given fewer).
pub fn physical_cores() -> usize {
    num_cpus::get_physical().min(num_cpus::get()).max(1)
}

/// A fixed number of threads, the calling one among them, and the instruction path they use.
pub struct Team {
    state: Arc<State>,
    workers: Vec<JoinHandle<()>>,
    /// Held while a closure runs: callers take turns.
    turn: Mutex<()>,
    path: Path,
}

type Job<'a> = dyn Fn(usize) + Sync + 'a;

struct State {
    /// Counts runs; a worker starts when it changes.
    run: AtomicUsize,
    /// What to run; set before `run` changes, until all workers are done.
    job: UnsafeCell<Option<*const Job<'static>>>,
    /// Workers that have not finished the current run.
    busy: AtomicUsize,
    stop: AtomicBool,
    /// Workers that sleep or are about to.
    asleep: AtomicUsize,
    sleep: Mutex<()>,
    wake: Condvar,
    barrier: Barrier,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

// SAFETY: `job` is written only while no worker reads it: before a run begins and after all have finished. What it points
// to is `Sync` and outlives the run.
unsafe impl Send for State {}
// SAFETY: as above.
unsafe impl Sync for State {}

/// One thread's view of a run.
pub(crate) struct Member<'a> {
    index: usize,
    team: &'a Team,
}

impl Team {
    /// A team of `threads` threads (at least one), on the fastest path of this machine.
    pub fn new(threads: usize) -> Team {
        Team::on(Path::best(), threads)
    }

    /// A team on a given path.
    pub fn on(path: Path, threads: usize) -> Team {
        let threads = threads.max(1);
        let state = Arc::new(State {
            run: AtomicUsize::new(0),
            job: UnsafeCell::new(None),
            busy: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            asleep: AtomicUsize::new(0),
            sleep: Mutex::new(()),
            wake: Condvar::new(),
            barrier: Barrier::new(threads),
            panic: Mutex::new(None),
        });
        let workers = (1..threads)
            .map(|index| {
                let state = state.clone();
                std::thread::Builder::new()
                    .name(format!("compute-{index}"))
                    .spawn(move || state.work(index))
                    .expect("the system starts a thread")
            })
            .collect();
        Team {
            state,
            workers,
            turn: Mutex::new(()),
            path,
        }
    }

    /// Threads, the calling one included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// The instruction path.
    pub fn path(&self) -> Path {
        self.path
    }

    /// Runs `f` on every thread at the same time and returns when all have finished. A panic of one becomes the caller's.
    pub(crate) fn run(&self, f: impl Fn(&Member) + Sync) {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let job = |index: usize| f(&Member { index, team: self });
        if self.workers.is_empty() {
            return job(0);
        }
        let job: &Job<'_> = &job;
        // SAFETY: only the lifetime is erased; this function returns after every worker has let go of it.
        let erased: *const Job<'static> = unsafe { std::mem::transmute(job) };
        let state = &*self.state;
        // SAFETY: no worker reads it: all finished the last run.
        unsafe { *state.job.get() = Some(erased) };
        state.busy.store(self.workers.len(), Ordering::Relaxed);
        state.run.fetch_add(1, Ordering::SeqCst);
        if state.asleep.load(Ordering::SeqCst) > 0 {
            // A worker that counted itself asleep looks at `run` again under this lock before it waits.
            drop(state.sleep.lock().unwrap_or_else(PoisonError::into_inner));
            state.wake.notify_all();
        }
        state.attempt(job, 0);
        let mut looks = 0;
        while state.busy.load(Ordering::Acquire) > 0 {
            pause(&mut looks);
        }
        let panic = state
            .panic
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(panic) = panic {
            state.barrier.mend();
            resume_unwind(panic);
        }
    }

    /// Runs `f` for each item, an item on one thread.
    pub(crate) fn deal<T: Send>(&self, items: Vec<T>, f: impl Fn(T) + Sync) {
        let items: Vec<Mutex<Option<T>>> = items.into_iter().map(|i| Mutex::new(Some(i))).collect();
        let next = AtomicUsize::new(0);
        self.run(|_| {
            while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                let item = item.lock().unwrap_or_else(PoisonError::into_inner).take();
                f(item.expect("an item is dealt once"));
            }
        });
    }
}

impl std::fmt::Debug for Team {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Team({} threads, {:?})", self.threads(), self.path)
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::SeqCst);
        self.state.run.fetch_add(1, Ordering::SeqCst);
        drop(
            self.state
                .sleep
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        self.state.wake.notify_all();
        for worker in self.workers.drain(..) {
            // A worker catches the panics of what it runs.
            let _ = worker.join();
        }
    }
}

impl Member<'_> {
    /// Threads of the team.
    pub(crate) fn threads(&self) -> usize {
        self.team.threads()
    }

    /// The instruction path.
    pub(crate) fn path(&self) -> Path {
        self.team.path
    }

    /// This thread's part of `0..count`: the parts of all threads follow each other and differ by at most one.
    pub(crate) fn share(&self, count: usize) -> Range<usize> {
        let at = |index: usize| count * index / self.threads();
        at(self.index)..at(self.index + 1)
    }

    /// Waits until all threads of the team are here. What one wrote before, the others read after.
    pub(crate) fn barrier(&self) {
        if self.threads() > 1 {
            self.team.state.barrier.wait();
        }
    }
}

impl State {
    fn work(&self, index: usize) {
        let mut seen = 0;
        loop {
            self.await_change(seen);
            seen = self.run.load(Ordering::SeqCst);
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            // SAFETY: it was set before `run` changed and stays until this worker is not busy any more.
            let job = unsafe { (*self.job.get()).map(|job| &*job) };
            self.attempt(job.expect("a run has a job"), index);
            self.busy.fetch_sub(1, Ordering::Release);
        }
    }

    /// Returns when `run` is not `seen` any more.
    fn await_change(&self, seen: usize) {
        let changed = || self.run.load(Ordering::SeqCst) != seen;
        let start = Instant::now();
        while start.elapsed() < SPIN {
            for _ in 0..100 {
                if changed() {
                    return;
                }
                std::hint::spin_loop();
            }
            std::thread::yield_now();
        }
        let mut sleep = self.sleep.lock().unwrap_or_else(PoisonError::into_inner);
        self.asleep.fetch_add(1, Ordering::SeqCst);
        while !changed() {
            sleep = self
                .wake
                .wait(sleep)
                .unwrap_or_else(PoisonError::into_inner);
        }
        self.asleep.fetch_sub(1, Ordering::SeqCst);
    }

    /// Runs the job; its panic is kept for the caller, and the others are let go from their barriers.
    fn attempt(&self, job: &Job<'_>, index: usize) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| job(index))) {
            let mut first = self.panic.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert(panic);
            drop(first);
            self.barrier.broken.store(true, Ordering::SeqCst);
        }
    }
}

/// Looks often at first, then lets other threads have the processor.
fn pause(looks: &mut u32) {
    if *looks < LOOKS {
        *looks += 1;
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}

struct Barrier {
    threads: usize,
    here: AtomicUsize,
    round: AtomicUsize,
    /// A thread panicked and will not come.
    broken: AtomicBool,
}

impl Barrier {
    fn new(threads: usize) -> Self {
        Self {
            threads,
            here: AtomicUsize::new(0),
            round: AtomicUsize::new(0),
            broken: AtomicBool::new(false),
        }
    }

    fn wait(&self) {
        let round = self.round.load(Ordering::Acquire);
        if self.here.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            self.here.store(0, Ordering::Relaxed);
            self.round.store(round.wrapping_add(1), Ordering::Release);
            return;
        }
        let mut looks = 0;
        while self.round.load(Ordering::Acquire) == round {
            if self.broken.load(Ordering::Relaxed) {
                panic!("another computing thread panicked");
            }
            pause(&mut looks);
        }
    }

    /// Makes it usable again; nobody waits.
    fn mend(&self) {
        self.here.store(0, Ordering::SeqCst);
        self.broken.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_runs_once_and_barriers_order_their_work() {
        for threads in 1..=8 {
            let team = Team::new(threads);
            for _ in 0..200 {
                let first: Vec<AtomicUsize> = (0..threads).map(|_| AtomicUsize::new(0)).collect();
                let seen = AtomicUsize::new(0);
                team.run(|member| {
                    first[member.index].fetch_add(1, Ordering::Relaxed);
                    member.barrier();
                    let all: usize = first.iter().map(|n| n.load(Ordering::Relaxed)).sum();
                    seen.fetch_add(all, Ordering::Relaxed);
                    member.barrier();
                });
                assert_eq!(seen.into_inner(), threads * threads);
            }
        }
    }

    #[test]
    fn shares_cover_everything_once() {
        for threads in 1..=8 {
            let team = Team::new(threads);
            for count in [0, 1, 7, 8, 100] {
                let covered: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
                team.run(|member| {
                    for i in member.share(count) {
                        covered[i].fetch_add(1, Ordering::Relaxed);
                    }
                });
                assert!(covered.into_iter().all(|n| n.into_inner() == 1));
            }
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_team_works_on() {
        let team = Team::new(4);
        for panicking in 0..4 {
            let caught = catch_unwind(AssertUnwindSafe(|| {
                team.run(|member| {
                    assert_ne!(member.index, panicking, "on purpose");
                    member.barrier();
                });
            }));
            assert!(caught.is_err());
            let count = AtomicUsize::new(0);
            team.run(|member| {
                member.barrier();
                count.fetch_add(1, Ordering::Relaxed);
                member.barrier();
            });
            assert_eq!(count.into_inner(), 4);
        }
    }

    #[test]
    fn a_team_that_slept_wakes_up() {
        let team = Team::new(3);
        for _ in 0..5 {
            std::thread::sleep(10 * SPIN);
            let count = AtomicUsize::new(0);
            team.run(|_| {
                count.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(count.into_inner(), 3);
        }
    }

    #[test]
    fn callers_take_turns() {
        let team = Team::new(2);
        let total = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        team.run(|member| {
                            total.fetch_add(1, Ordering::Relaxed);
                            member.barrier();
                        });
                    }
                });
            }
        });
        assert_eq!(total.into_inner(), 4 * 50 * 2);
    }
}
