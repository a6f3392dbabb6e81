//! The one device: its memory, pinned memory of the host, and texts.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use ptx_interpreter::{Buffer, Memory, Module};

use crate::fault::{Fault, Result};
use crate::recording::Recordings;
use crate::stream::{Kind, Streams};
use crate::work::{Launch, Work};

/// Dynamic shared memory of a kernel that was allowed no more, in bytes.
const USUAL_SHARED_BYTES: u32 = 48 << 10;

#[derive(Default)]
pub(crate) struct Device {
    pub(crate) memory: Memory,
    /// Buffers and their sizes, by address.
    buffers: BTreeMap<u64, (Buffer, usize)>,
    used_bytes: usize,
    pinned: BTreeMap<usize, Pinned>,
    pub(crate) modules: Vec<Module>,
    functions: Vec<Function>,
    pub(crate) streams: Streams<Work>,
    pub(crate) recordings: Recordings,
    pub(crate) graphs: Vec<Vec<Launch>>,
    pub(crate) num_launches: u64,
    num_allocations: u64,
    /// How often the context is held.
    pub(crate) num_contexts: usize,
    failed: Option<String>,
}

pub(crate) struct Function {
    pub(crate) module: usize,
    pub(crate) name: String,
    pub(crate) allowed_shared_bytes: u32,
}

/// Pinned memory of the host.
struct Pinned {
    words: *mut [u64],
}

// SAFETY: whoever has the device has it; the program that it was given to answers for its own accesses.
unsafe impl Send for Pinned {}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: made of a box, and dropped once.
        drop(unsafe { Box::from_raw(self.words) });
    }
}

static DEVICE: Mutex<Option<Device>> = Mutex::new(None);

/// Calls `f` with the device; calls of several threads follow each other.
pub(crate) fn with<T>(f: impl FnOnce(&mut Device) -> T) -> T {
    let mut device = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    f(device.get_or_insert_default())
}

/// A number of the environment.
pub(crate) fn setting(name: &str, default: u64) -> u64 {
    let value = std::env::var(name).ok();
    value.and_then(|text| text.parse().ok()).unwrap_or(default)
}

pub(crate) fn memory_bytes() -> usize {
    setting("PTX_DRIVER_MEMORY_BYTES", 1 << 30) as usize
}

thread_local! {
    /// Whether this thread has made the context its own.
    static IS_CURRENT: Cell<bool> = const { Cell::new(false) };
    /// What runs ahead in streams that this thread makes, where it has said so.
    static AHEAD: Cell<Option<Kind>> = const { Cell::new(None) };
}

/// Makes the context this thread's own, or no more.
pub(crate) fn set_current(is_current: bool) {
    IS_CURRENT.set(is_current);
}

/// What runs ahead in streams that this thread makes from now on.
pub(crate) fn run_ahead(kind: Kind) {
    AHEAD.set(Some(kind));
}

/// What runs ahead in streams that this thread makes.
pub(crate) fn ahead() -> Kind {
    let copies = || std::env::var("PTX_DRIVER_AHEAD").is_ok_and(|kind| kind == "copies");
    AHEAD.get().unwrap_or_else(|| match copies() {
        true => Kind::Copies,
        false => Kind::Kernels,
    })
}

impl Device {
    /// Whether this thread may call.
    pub(crate) fn is_current(&self) -> bool {
        IS_CURRENT.get() && self.num_contexts > 0
    }

    /// A device on which something went wrong does nothing more.
    pub(crate) fn check(&self) -> Result<()> {
        match &self.failed {
            None => Ok(()),
            Some(reason) => Err(Fault::Failed(reason.clone())),
        }
    }

    /// From now on every call tells why; what has not run never will.
    pub(crate) fn fail(&mut self, reason: String) {
        self.failed.get_or_insert(reason);
        self.streams.abandon();
    }

    pub(crate) fn free_bytes(&self) -> usize {
        memory_bytes().saturating_sub(self.used_bytes)
    }

    pub(crate) fn allocate(&mut self, bytes: usize) -> Result<u64> {
        self.check()?;
        self.recordings.check_thread("memory is asked for")?;
        let spills = setting("PTX_DRIVER_SPILLS", 0) == 1;
        self.num_allocations += 1;
        if self.num_allocations == setting("PTX_DRIVER_REFUSES", 0) {
            eprintln!("ptx-driver: {bytes} bytes are refused");
            return Err(Fault::OutOfMemory);
        }
        let withheld = setting("PTX_DRIVER_WITHHELD_BYTES", 0) as usize;
        if bytes > self.free_bytes().saturating_sub(withheld) && !spills {
            return Err(Fault::OutOfMemory);
        }
        let buffer = self.memory.uninitialised("allocated memory", bytes);
        let address = self.memory.address(buffer);
        self.buffers.insert(address, (buffer, bytes));
        self.used_bytes += bytes;
        Ok(address)
    }

    /// Waits for everything that was asked for.
    pub(crate) fn free(&mut self, address: u64) -> Result<()> {
        self.recordings.check_thread("memory is given back")?;
        for end in self.streams.ends() {
            self.advance(Some(end));
        }
        let Some((buffer, bytes)) = self.buffers.remove(&address) else {
            return Err(Fault::Access(format!("{address:#x} is not allocated")));
        };
        self.memory.give_back(buffer);
        self.used_bytes -= bytes;
        self.check()
    }

    /// An error unless all these bytes of the device are allocated together.
    pub(crate) fn check_range(&self, address: u64, len: usize) -> Result<()> {
        let buffer = self.buffers.range(..=address).next_back();
        let is_inside = |(start, (_, bytes)): (&u64, &(Buffer, usize))| {
            address - start + len as u64 <= *bytes as u64
        };
        match buffer.is_some_and(is_inside) {
            true => Ok(()),
            false => Err(Fault::Access(format!(
                "{len} bytes at {address:#x} are not allocated"
            ))),
        }
    }

    /// Memory of the host; what it holds is of no meaning.
    pub(crate) fn pin(&mut self, bytes: usize) -> Result<*mut u8> {
        self.check()?;
        self.recordings.check_thread("memory is pinned")?;
        let words = vec![u64::MAX; bytes.div_ceil(8)].into_boxed_slice();
        let pinned = Pinned {
            words: Box::into_raw(words),
        };
        let address = pinned.words.cast::<u8>();
        self.pinned.insert(address.addr(), pinned);
        Ok(address)
    }

    /// Waits for nothing: a copy that still uses it is an error, which the device does not get over.
    pub(crate) fn unpin(&mut self, address: usize) -> Result<()> {
        self.recordings
            .check_thread("pinned memory is given back")?;
        let Some(pinned) = self.pinned.remove(&address) else {
            return Err(Fault::Access(format!("{address:#x} is not pinned")));
        };
        let end = address + 8 * pinned.words.len();
        let is_in_it = |used: usize| (address..end).contains(&used);
        let pinned = |work: &Work| work.pinned_address().is_some_and(is_in_it);
        if self.streams.pending().any(pinned) {
            self.fail("pinned memory is given back before it is copied".into());
        }
        self.check()
    }

    /// Pinned memory at an address, if that is pinned.
    pub(crate) fn pinned(&self, address: usize, len: usize) -> Result<Option<*mut u8>> {
        let Some((start, pinned)) = self.pinned.range(..=address).next_back() else {
            return Ok(None);
        };
        let (at, bytes) = (address - start, 8 * pinned.words.len());
        if at >= bytes {
            return Ok(None);
        }
        if at + len > bytes {
            let reason = format!("{len} bytes at {at} of {bytes} that are pinned");
            return Err(Fault::Access(reason));
        }
        Ok(Some(pinned.words.cast::<u8>().wrapping_add(at)))
    }

    /// Numbers begin at 1.
    pub(crate) fn load(&mut self, text: &str) -> Result<usize> {
        self.recordings.check_thread("a text is loaded")?;
        let module = Module::parse(text).map_err(|error| Fault::Text(error.to_string()))?;
        self.modules.push(module);
        Ok(self.modules.len())
    }

    pub(crate) fn function(&mut self, module: usize, name: &str) -> Result<usize> {
        let known = self.modules.get(module.wrapping_sub(1));
        let sizes = known.and_then(|module| module.parameter_bytes(name).ok());
        if sizes.is_none() {
            return Err(Fault::Missing(format!("no kernel {name}")));
        }
        self.functions.push(Function {
            module: module - 1,
            name: name.to_owned(),
            allowed_shared_bytes: USUAL_SHARED_BYTES,
        });
        Ok(self.functions.len())
    }

    pub(crate) fn known(&mut self, function: usize) -> Result<&mut Function> {
        let known = self.functions.get_mut(function.wrapping_sub(1));
        known.ok_or_else(|| Fault::Missing(format!("no function {function}")))
    }

    pub(crate) fn allow(&mut self, function: usize, shared_bytes: u32) -> Result<()> {
        self.known(function)?.allowed_shared_bytes = shared_bytes;
        Ok(())
    }

    /// Bytes of a kernel's parameters, in order.
    pub(crate) fn parameters(&mut self, function: usize) -> Result<Vec<u32>> {
        let (module, name) = {
            let known = self.known(function)?;
            (known.module, known.name.clone())
        };
        let sizes = self.modules[module].parameter_bytes(&name);
        sizes.map_err(|error| Fault::Missing(error.to_string()))
    }
}
