//! How far slots are that are being filled, for those who fill and those who wait.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::cuda::{DeviceSlots, Mark};
use crate::{Error, Result};

/// What the fillers and those who wait share.
#[derive(Debug)]
pub(crate) struct Filling {
    /// In order.
    pub(super) slots: Vec<u32>,
    num_layers: usize,
    pub(super) layers_per_part: usize,
    progress: Mutex<Progress>,
    changed: Condvar,
    /// Layers that are there, from the first on: it only grows, and no more once a part has failed, so that all threads of
    /// a pass are told the same of a layer.
    num_ready: AtomicUsize,
}

#[derive(Debug)]
struct Progress {
    /// Parts of each run of layers that are not ready.
    left: Vec<usize>,
    /// Runs that are there, from the first on.
    num_runs: usize,
    has_failed: bool,
    /// For runs of slots on a device: after the copies of all its parts.
    marks: Vec<Option<Mark>>,
    /// Of a device that did not take a part.
    error: Option<Error>,
}

impl Filling {
    /// Of these slots, in parts of so many layers (at least one).
    pub(crate) fn new(slots: &[u32], num_layers: usize, layers_per_part: usize) -> Filling {
        let mut sorted = slots.to_vec();
        sorted.sort_unstable();
        let num_runs = num_layers.div_ceil(layers_per_part);
        let is_done = slots.is_empty();
        Filling {
            slots: sorted,
            num_layers,
            layers_per_part,
            progress: Mutex::new(Progress {
                left: vec![slots.len(); num_runs],
                num_runs: if is_done { num_runs } else { 0 },
                has_failed: false,
                marks: (0..num_runs).map(|_| None).collect(),
                error: None,
            }),
            changed: Condvar::new(),
            num_ready: AtomicUsize::new(if is_done { num_layers } else { 0 }),
        }
    }

    /// What went wrong on the way to a device.
    pub(super) fn take_error(&self) -> Option<Error> {
        self.lock().error.take()
    }

    /// Whether one of these slots is being filled.
    pub(crate) fn has_any(&self, slots: &[u32]) -> bool {
        slots
            .iter()
            .any(|slot| self.slots.binary_search(slot).is_ok())
    }

    /// Sleeps until a layer is there; false if it never will be. What was written to it is then visible to the caller.
    pub(crate) fn wait(&self, layer: usize) -> bool {
        let is_there = || self.num_ready.load(Ordering::Acquire) > layer;
        if is_there() {
            return true;
        }
        let mut progress = self.lock();
        while !is_there() {
            if progress.has_failed {
                return false;
            }
            progress = self
                .changed
                .wait(progress)
                .unwrap_or_else(PoisonError::into_inner);
        }
        true
    }

    /// Lets kernels that are launched from now on wait for a layer, which is there, and for no later one; for slots on a device.
    pub(crate) fn follow(&self, layer: usize) -> Result<()> {
        let progress = self.lock();
        let mark = progress.marks.get(layer / self.layers_per_part);
        mark.and_then(Option::as_ref).map_or(Ok(()), Mark::follow)
    }

    /// Notes that a part is there, or on its way to a device in the order of its copies.
    pub(super) fn note_ready(&self, run: usize, on_device: Option<&DeviceSlots>) {
        let mut progress = self.lock();
        progress.left[run] -= 1;
        if progress.has_failed {
            return;
        }
        if let Some(on_device) = on_device.filter(|_| progress.left[run] == 0) {
            match on_device.mark() {
                Ok(mark) => progress.marks[run] = Some(mark),
                Err(error) => {
                    progress.error = Some(error);
                    progress.has_failed = true;
                    self.changed.notify_all();
                    return;
                }
            }
        }
        let before = progress.num_runs;
        while progress.left.get(progress.num_runs) == Some(&0) {
            progress.num_runs += 1;
        }
        if progress.num_runs > before {
            let num_layers = (progress.num_runs * self.layers_per_part).min(self.num_layers);
            self.num_ready.store(num_layers, Ordering::Release);
            self.changed.notify_all();
        }
    }

    pub(super) fn fail(&self) {
        self.lock().has_failed = true;
        self.changed.notify_all();
    }

    /// Notes what went wrong on the way to a device.
    pub(super) fn note_error(&self, error: Error) {
        self.lock().error = Some(error);
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        // Every state of it is sound.
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::Filling;

    #[test]
    fn a_layer_is_there_when_every_slot_has_it_and_all_before_it_in_whatever_order_parts_come() {
        // Three slots of five layers in runs of two.
        let filling = Filling::new(&[7, 2, 4], 5, 2);
        let mut slots = vec![vec![0u8; 5 * 8]; 3];
        let mut parts: Vec<Vec<_>> = slots
            .iter_mut()
            .map(|slot| filling.parts(slot, 8).into_iter().map(Some).collect())
            .collect();
        assert_eq!(parts[0].len(), 3);
        let lengths = parts[0]
            .iter_mut()
            .map(|part| part.as_mut().unwrap().as_mut().len());
        assert_eq!(lengths.collect::<Vec<_>>(), [16, 16, 8]);
        let there = || filling.num_ready.load(super::Ordering::Relaxed);
        for (slot, run, expected) in [
            (0, 0, 0),
            (1, 1, 0),
            (2, 0, 0),
            (0, 2, 0),
            (1, 0, 2),
            (2, 1, 2),
            (0, 1, 4),
            (1, 2, 4),
            (2, 2, 5),
        ] {
            parts[slot][run].take().unwrap().ready();
            assert_eq!(there(), expected);
        }
        assert!(filling.wait(4));
    }

    #[test]
    fn a_part_that_is_lost_stops_who_waits_and_takes_back_no_layer() {
        let filling = Filling::new(&[0, 1], 3, 1);
        let mut slots = vec![vec![0u8; 3]; 2];
        let mut parts: Vec<Vec<_>> = slots
            .iter_mut()
            .map(|slot| filling.parts(slot, 1))
            .collect();
        let (last, middle) = (parts[1].remove(2), parts[1].remove(1));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| filling.wait(1));
            parts.into_iter().flatten().for_each(crate::Part::ready);
            assert!(filling.wait(0));
            drop(last);
            assert!(!waits.join().unwrap());
        });
        middle.ready();
        assert!(filling.wait(0) && !filling.wait(1), "as all were told");
    }

    #[test]
    fn nothing_to_fill_is_there_at_once() {
        assert!(Filling::new(&[], 3, 2).wait(2));
    }
}
