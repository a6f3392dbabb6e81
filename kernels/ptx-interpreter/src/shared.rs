//! Shared memory of one block, with what is needed to find races: who touched each byte since the last barrier.

use crate::Fault;

/// Where static arrays begin; the dynamic one begins at 0. In between lies nothing, so that each has exact bounds.
pub(crate) const STATIC_START: u64 = 1 << 24;

/// A thread at a point between barriers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub(crate) thread: u32,
    /// Barriers of the block so far, from 1.
    pub(crate) epoch: u32,
    /// Barriers of the thread's warp so far.
    pub(crate) warp_epoch: u32,
}

/// How many read a byte since the last barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Readers {
    One,
    OneWarp,
    Several,
}

#[derive(Clone, Copy, Debug)]
struct Shadow {
    writer: Now,
    reader: Now,
    readers: Readers,
    is_pending: bool,
}

const NEVER: Now = Now {
    thread: 0,
    epoch: 0,
    warp_epoch: 0,
};

/// Stands for all threads in their atomic operations; in no thread's warp.
const ATOMIC: u32 = u32::MAX;

#[derive(Debug)]
pub(crate) struct Shared {
    dynamic_bytes: usize,
    bytes: Vec<u8>,
    shadows: Vec<Shadow>,
}

impl Shared {
    pub(crate) fn new(dynamic_bytes: u32, static_bytes: u32) -> Self {
        let len = (dynamic_bytes + static_bytes) as usize;
        let shadow = Shadow {
            writer: NEVER,
            reader: NEVER,
            readers: Readers::One,
            is_pending: false,
        };
        Self {
            dynamic_bytes: dynamic_bytes as usize,
            bytes: vec![0; len],
            shadows: vec![shadow; len],
        }
    }

    #[inline(always)]
    fn place(&self, address: u64, len: usize) -> Result<usize, Fault> {
        let bytes = len as u32;
        if !address.is_multiple_of(len as u64) {
            return Err(Fault::Misaligned { address, bytes });
        }
        let (start, end, at) = match address >= STATIC_START {
            true => (self.dynamic_bytes, self.bytes.len(), address - STATIC_START),
            false => (0, self.dynamic_bytes, address),
        };
        match at.checked_add(len as u64) {
            Some(to) if to <= (end - start) as u64 => Ok(start + at as usize),
            _ => Err(Fault::OutOfBounds {
                space: format!("{} bytes of shared memory", end - start),
                address,
                bytes,
            }),
        }
    }

    pub(crate) fn read(&mut self, now: Now, address: u64, out: &mut [u8]) -> Result<(), Fault> {
        let at = self.place(address, out.len())?;
        for (i, shadow) in self.shadows[at..at + out.len()].iter_mut().enumerate() {
            let address = address + i as u64;
            if shadow.is_pending {
                return Err(Fault::Pending { address });
            }
            if shadow.writer.epoch == 0 {
                let space = "shared".into();
                return Err(Fault::Uninitialised { space, address });
            }
            if let Some(other) = raced(now, shadow.writer) {
                return Err(Fault::Race { address, other });
            }
            shadow.note_reader(now);
        }
        out.copy_from_slice(&self.bytes[at..at + out.len()]);
        Ok(())
    }

    pub(crate) fn write(&mut self, now: Now, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        let at = self.place(address, bytes.len())?;
        for (i, shadow) in self.shadows[at..at + bytes.len()].iter_mut().enumerate() {
            shadow.claim(now, address + i as u64)?;
        }
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    /// An atomic sum; what was there. Atomic operations do not race with each other.
    pub(crate) fn add(&mut self, now: Now, address: u64, value: u32) -> Result<u32, Fault> {
        let now = Now {
            thread: ATOMIC,
            ..now
        };
        let mut word = [0; 4];
        self.read(now, address, &mut word)?;
        let before = u32::from_le_bytes(word);
        self.write(now, address, &before.wrapping_add(value).to_le_bytes())?;
        Ok(before)
    }

    /// The beginning of an asynchronous copy.
    pub(crate) fn begin(&mut self, now: Now, address: u64, len: usize) -> Result<(), Fault> {
        let at = self.place(address, len)?;
        for (i, shadow) in self.shadows[at..at + len].iter_mut().enumerate() {
            shadow.claim(now, address + i as u64)?;
            shadow.is_pending = true;
        }
        Ok(())
    }

    /// The arrival of an asynchronous copy, as a write of the thread that waited for it.
    pub(crate) fn arrive(&mut self, now: Now, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        let at = self.place(address, bytes.len())?;
        for shadow in &mut self.shadows[at..at + bytes.len()] {
            shadow.is_pending = false;
            shadow.writer = now;
        }
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
}

/// The other thread, when nothing orders its access before now.
#[inline(always)]
fn raced(now: Now, other: Now) -> Option<u32> {
    if other.epoch != now.epoch || other.thread == now.thread {
        return None;
    }
    let is_ordered = other.thread / 32 == now.thread / 32 && other.warp_epoch != now.warp_epoch;
    (!is_ordered).then_some(other.thread)
}

impl Shadow {
    #[inline(always)]
    fn note_reader(&mut self, now: Now) {
        let before = self.reader;
        let is_same_warp = before.thread / 32 == now.thread / 32;
        self.readers = if before.epoch != now.epoch {
            Readers::One
        } else if !is_same_warp || self.readers == Readers::Several {
            Readers::Several
        } else if before.warp_epoch != now.warp_epoch {
            // The warp's barrier put the earlier ones in order.
            Readers::One
        } else if before.thread == now.thread {
            self.readers
        } else {
            Readers::OneWarp
        };
        self.reader = now;
    }

    #[inline(always)]
    fn claim(&mut self, now: Now, address: u64) -> Result<(), Fault> {
        if self.is_pending {
            return Err(Fault::Pending { address });
        }
        let by_reader = match self.readers {
            _ if self.reader.epoch != now.epoch => None,
            Readers::One => raced(now, self.reader),
            Readers::OneWarp => {
                // Any other thread of the reader's warp may be among them.
                let other = self.reader;
                let is_own_warp = other.thread / 32 == now.thread / 32;
                let is_ordered = is_own_warp && other.warp_epoch != now.warp_epoch;
                (!is_ordered).then_some(other.thread)
            }
            Readers::Several => Some(self.reader.thread),
        };
        if let Some(other) = raced(now, self.writer).or(by_reader) {
            return Err(Fault::Race { address, other });
        }
        self.writer = now;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(thread: u32, epoch: u32, warp_epoch: u32) -> Now {
        Now {
            thread,
            epoch,
            warp_epoch,
        }
    }

    fn is_race<T>(result: Result<T, Fault>) -> bool {
        matches!(result, Err(Fault::Race { .. }))
    }

    #[test]
    fn a_barrier_orders_warps_and_nothing_else_does() {
        let mut shared = Shared::new(8, 0);
        shared.write(at(0, 1, 0), 0, &[1; 4]).unwrap();
        let mut out = [0; 4];
        assert!(is_race(shared.read(at(32, 1, 5), 0, &mut out)));
        shared.read(at(32, 2, 0), 0, &mut out).unwrap();
        assert!(is_race(shared.write(at(0, 2, 9), 0, &[2; 4])));
        shared.write(at(0, 3, 0), 0, &[2; 4]).unwrap();
        assert!(is_race(shared.write(at(64, 3, 0), 2, &[2; 2])));
    }

    #[test]
    fn a_write_races_with_any_of_several_warps_that_read() {
        let mut shared = Shared::new(4, 0);
        let mut out = [0; 4];
        shared.write(at(0, 1, 0), 0, &[1; 4]).unwrap();
        for thread in [0, 32, 0] {
            shared.read(at(thread, 2, 0), 0, &mut out).unwrap();
        }
        assert!(is_race(shared.write(at(0, 2, 0), 0, &[2; 4])));
        shared.write(at(0, 3, 0), 0, &[2; 4]).unwrap();
    }

    #[test]
    fn a_warp_orders_its_threads_by_its_own_barrier() {
        let mut shared = Shared::new(4, 0);
        let mut out = [0; 4];
        shared.write(at(0, 1, 0), 0, &[1; 4]).unwrap();
        assert!(is_race(shared.read(at(1, 1, 0), 0, &mut out)));
        shared.read(at(1, 1, 1), 0, &mut out).unwrap();
        shared.read(at(2, 1, 1), 0, &mut out).unwrap();
        assert!(is_race(shared.write(at(2, 1, 1), 0, &[2; 4])));
        shared.write(at(2, 1, 2), 0, &[2; 4]).unwrap();
    }

    #[test]
    fn each_array_has_exact_bounds() {
        let mut shared = Shared::new(8, 4);
        let now = at(0, 1, 0);
        assert!(shared.write(now, 4, &[0; 4]).is_ok());
        let outside = |result| matches!(result, Err(Fault::OutOfBounds { .. }));
        assert!(outside(shared.write(now, 8, &[0; 4])));
        assert!(shared.write(now, STATIC_START, &[0; 4]).is_ok());
        assert!(outside(shared.write(now, STATIC_START + 4, &[0; 4])));
        let odd = shared.write(now, 2, &[0; 4]);
        assert!(matches!(odd, Err(Fault::Misaligned { .. })));
    }

    #[test]
    fn atomic_sums_race_with_plain_accesses_only() {
        let mut shared = Shared::new(4, 0);
        shared.write(at(0, 1, 0), 0, &[1, 0, 0, 0]).unwrap();
        assert!(is_race(shared.add(at(0, 1, 0), 0, 1)));
        assert_eq!(shared.add(at(5, 2, 0), 0, 2), Ok(1));
        assert_eq!(shared.add(at(40, 2, 0), 0, 3), Ok(3));
        assert!(is_race(shared.read(at(5, 2, 0), 0, &mut [0; 4])));
        assert!(is_race(shared.write(at(5, 2, 0), 0, &[0; 4])));
        assert_eq!(shared.add(at(5, 3, 0), 0, 0), Ok(6));
    }

    #[test]
    fn a_copy_under_way_is_untouchable() {
        let mut shared = Shared::new(16, 0);
        let now = at(0, 1, 0);
        shared.begin(now, 0, 16).unwrap();
        let pending = |result| matches!(result, Err(Fault::Pending { .. }));
        assert!(pending(shared.read(now, 4, &mut [0; 4])));
        assert!(pending(shared.write(now, 4, &[0; 4])));
        shared.arrive(now, 0, &[7; 16]).unwrap();
        let mut out = [0; 4];
        shared.read(now, 4, &mut out).unwrap();
        assert_eq!(out, [7; 4]);
    }
}
