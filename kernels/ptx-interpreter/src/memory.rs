//! Global memory: buffers, each with its own exact bounds.

use crate::Fault;

/// Addresses from one buffer to the next: an access past the end of one never lands in another.
const STRIDE: u64 = 1 << 36;
/// Where shared memory begins among generic addresses.
pub(crate) const SHARED_WINDOW: u64 = 1 << 32;
/// Where a thread's local memory begins among generic addresses.
pub(crate) const LOCAL_WINDOW: u64 = 2 << 32;

/// A buffer of [`Memory`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer(usize);

/// Global memory of a device: named buffers.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    buffers: Vec<Bytes>,
    /// Launches so far.
    launches: u32,
}

/// A thread of a launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Who {
    pub(crate) launch: u32,
    pub(crate) block: u32,
    pub(crate) thread: u32,
}

#[derive(Clone, Debug)]
struct Bytes {
    name: String,
    bytes: Vec<u8>,
    /// Which bytes were written; empty where all were given.
    is_written: Vec<bool>,
    /// Who wrote each byte last; empty before the first write.
    writers: Vec<Who>,
}

impl Memory {
    /// No buffers.
    pub fn new() -> Self {
        Self::default()
    }

    /// A buffer with these bytes.
    pub fn buffer(&mut self, name: &str, bytes: Vec<u8>) -> Buffer {
        self.push(name, bytes, Vec::new())
    }

    /// A buffer that kernels must write before they read.
    pub fn uninitialised(&mut self, name: &str, len: usize) -> Buffer {
        self.push(name, vec![0xff; len], vec![false; len])
    }

    fn push(&mut self, name: &str, bytes: Vec<u8>, is_written: Vec<bool>) -> Buffer {
        self.buffers.push(Bytes {
            name: name.to_owned(),
            bytes,
            is_written,
            writers: Vec::new(),
        });
        Buffer(self.buffers.len() - 1)
    }

    /// A buffer of numbers.
    pub fn floats(&mut self, name: &str, values: &[f32]) -> Buffer {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes());
        self.buffer(name, bytes.collect())
    }

    /// A buffer of numbers.
    pub fn words(&mut self, name: &str, values: &[u32]) -> Buffer {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes());
        self.buffer(name, bytes.collect())
    }

    /// A buffer of numbers, addresses for instance.
    pub fn longs(&mut self, name: &str, values: &[u64]) -> Buffer {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes());
        self.buffer(name, bytes.collect())
    }

    /// The device address of its first byte, a multiple of 256.
    pub fn address(&self, buffer: Buffer) -> u64 {
        (buffer.0 as u64 + 1) * STRIDE
    }

    /// Its bytes; those never written are 0xff.
    pub fn bytes(&self, buffer: Buffer) -> &[u8] {
        &self.buffers[buffer.0].bytes
    }

    /// Its bytes as numbers.
    pub fn read_floats(&self, buffer: Buffer) -> Vec<f32> {
        let words = self.bytes(buffer).as_chunks::<4>().0;
        words.iter().map(|word| f32::from_le_bytes(*word)).collect()
    }

    /// Its bytes as numbers.
    pub fn read_words(&self, buffer: Buffer) -> Vec<u32> {
        let words = self.bytes(buffer).as_chunks::<4>().0;
        words.iter().map(|word| u32::from_le_bytes(*word)).collect()
    }

    /// Whether a kernel wrote every byte of a buffer that was uninitialised.
    pub fn is_written(&self, buffer: Buffer) -> bool {
        self.buffers[buffer.0].is_written.iter().all(|&is| is)
    }

    /// Ends a buffer: any access to it is an error from now on.
    pub fn give_back(&mut self, buffer: Buffer) {
        let buffer = &mut self.buffers[buffer.0];
        buffer.bytes = Vec::new();
        buffer.is_written = Vec::new();
        buffer.writers = Vec::new();
        buffer.name.push_str(", given back");
    }

    /// Writes bytes from outside, to an address in a buffer.
    ///
    /// # Errors
    /// When they are not all inside.
    pub fn put(&mut self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        let (index, at) = self.stretch(address, bytes.len())?;
        let buffer = &mut self.buffers[index];
        buffer.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        if let Some(written) = buffer.is_written.get_mut(at..at + bytes.len()) {
            written.fill(true);
        }
        Ok(())
    }

    /// Flips a bit of so many words in the middle of what the last launch wrote, as a kernel that computes wrongly might: the first,
    /// which of a number is the sign.
    pub fn spoil(&mut self, words: usize) {
        let launch = self.launches;
        for buffer in &mut self.buffers {
            let writers = buffer.writers.iter().enumerate();
            let is_last = |(_, who): &(usize, &Who)| who.launch == launch;
            let written = writers.filter(is_last).map(|(at, _)| at | 3);
            let mut written: Vec<usize> = written.collect();
            written.dedup();
            let middle = written.len().saturating_sub(words) / 2;
            for at in written.iter().skip(middle).take(words) {
                buffer.bytes[*at] ^= 0x80;
            }
            if !written.is_empty() {
                return;
            }
        }
    }

    /// Reads bytes from outside, from an address in a buffer.
    ///
    /// # Errors
    /// When they are not all inside, or nobody wrote one of them.
    pub fn get(&self, address: u64, out: &mut [u8]) -> Result<(), Fault> {
        let (index, at) = self.stretch(address, out.len())?;
        let buffer = &self.buffers[index];
        buffer.check_written(address, at, out.len())?;
        out.copy_from_slice(&buffer.bytes[at..at + out.len()]);
        Ok(())
    }

    /// The buffer, and the range in it, of an access of any length and alignment.
    fn stretch(&self, address: u64, bytes: usize) -> Result<(usize, usize), Fault> {
        let (index, at) = self.place(address, 1)?;
        match at + bytes <= self.buffers[index].bytes.len() {
            true => Ok((index, at)),
            false => self
                .place(address + bytes as u64 - 1, 1)
                .map(|_| (index, at)),
        }
    }

    /// The buffer, and the range in it, of an access.
    #[inline(always)]
    fn place(&self, address: u64, bytes: u32) -> Result<(usize, usize), Fault> {
        if !address.is_multiple_of(u64::from(bytes)) {
            return Err(Fault::Misaligned { address, bytes });
        }
        let (index, at) = (
            (address / STRIDE).wrapping_sub(1) as usize,
            address % STRIDE,
        );
        match self.buffers.get(index) {
            Some(buffer) if at + u64::from(bytes) <= buffer.bytes.len() as u64 => {
                Ok((index, at as usize))
            }
            buffer => Err(Fault::OutOfBounds {
                space: match buffer {
                    Some(buffer) => {
                        format!(
                            "the {} bytes of {} at {at}",
                            buffer.bytes.len(),
                            buffer.name
                        )
                    }
                    None => "every buffer".into(),
                },
                address,
                bytes,
            }),
        }
    }

    /// The number of a new launch, from 1.
    pub(crate) fn begin_launch(&mut self) -> u32 {
        self.launches += 1;
        self.launches
    }

    /// Blocks run in no order, so what one wrote no other may read in the same launch.
    pub(crate) fn read(&self, who: Who, address: u64, out: &mut [u8]) -> Result<(), Fault> {
        let (index, at) = self.place(address, out.len() as u32)?;
        let buffer = &self.buffers[index];
        if let Some(writers) = buffer.writers.get(at..at + out.len()) {
            let is_raced = |w: &&Who| w.launch == who.launch && w.block != who.block;
            if let Some(writer) = writers.iter().find(is_raced) {
                return Err(writer.race(address));
            }
        }
        buffer.check_written(address, at, out.len())?;
        out.copy_from_slice(&buffer.bytes[at..at + out.len()]);
        Ok(())
    }

    /// No two threads of a launch write the same byte.
    pub(crate) fn write(&mut self, who: Who, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        let (index, at) = self.place(address, bytes.len() as u32)?;
        let buffer = &mut self.buffers[index];
        if buffer.writers.is_empty() {
            buffer.writers = vec![Who::default(); buffer.bytes.len()];
        }
        let writers = &mut buffer.writers[at..at + bytes.len()];
        let is_raced = |w: &&Who| w.launch == who.launch && **w != who;
        if let Some(writer) = writers.iter().find(is_raced) {
            return Err(writer.race(address));
        }
        writers.fill(who);
        buffer.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        if let Some(written) = buffer.is_written.get_mut(at..at + bytes.len()) {
            written.fill(true);
        }
        Ok(())
    }
}

impl Bytes {
    #[inline(always)]
    fn check_written(&self, address: u64, at: usize, len: usize) -> Result<(), Fault> {
        match self.is_written.get(at..at + len) {
            Some(written) => match written.iter().position(|is| !is) {
                Some(i) => Err(Fault::Uninitialised {
                    space: self.name.clone(),
                    address: address + i as u64,
                }),
                None => Ok(()),
            },
            None => Ok(()),
        }
    }
}

impl Who {
    fn race(&self, address: u64) -> Fault {
        Fault::GlobalRace {
            address,
            block: self.block,
            thread: self.thread,
        }
    }
}
