//! The one device: memory, texts, and launches.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::thread::{ThreadId, current};

use ptx_interpreter::{Argument, Buffer, Launch, Memory, Module, Order};

/// Dynamic shared memory of a kernel that was allowed no more, in bytes.
const USUAL_SHARED_BYTES: u32 = 48 << 10;

/// What went wrong.
#[derive(Debug)]
pub(crate) enum Fault {
    OutOfMemory,
    /// A copy outside of what is allocated, or of what nobody wrote.
    Access(String),
    Text(String),
    Missing(String),
    /// A kernel did what it must not, now or before.
    Launch(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfMemory => f.write_str("out of memory"),
            Self::Access(text) | Self::Text(text) | Self::Missing(text) | Self::Launch(text) => {
                f.write_str(text)
            }
        }
    }
}

type Result<T> = std::result::Result<T, Fault>;

#[derive(Default)]
pub(crate) struct Device {
    memory: Memory,
    /// Buffers and their sizes, by address.
    buffers: BTreeMap<u64, (Buffer, usize)>,
    used_bytes: usize,
    /// Pinned memory of the host, by address.
    pinned: HashMap<usize, Box<[u64]>>,
    modules: Vec<Module>,
    functions: Vec<Function>,
    launches: u64,
    /// What threads record, each for itself.
    recordings: HashMap<ThreadId, Vec<Recorded>>,
    graphs: Vec<Vec<Recorded>>,
    failed: Option<String>,
}

struct Function {
    module: usize,
    name: String,
    allowed_shared_bytes: u32,
}

/// A launch, as it was asked for.
#[derive(Clone)]
struct Recorded {
    function: usize,
    shape: ([u32; 3], [u32; 3]),
    shared_bytes: u32,
    values: Vec<u64>,
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

impl Device {
    /// A device on which a kernel went wrong does nothing more.
    pub(crate) fn check(&self) -> Result<()> {
        match &self.failed {
            None => Ok(()),
            Some(reason) => Err(Fault::Launch(reason.clone())),
        }
    }

    /// Copies are not recorded here.
    fn check_not_recording(&self) -> Result<()> {
        match self.recordings.contains_key(&current().id()) {
            false => Ok(()),
            true => Err(Fault::Access("a copy while launches are recorded".into())),
        }
    }

    pub(crate) fn free_bytes(&self) -> usize {
        memory_bytes().saturating_sub(self.used_bytes)
    }

    pub(crate) fn allocate(&mut self, bytes: usize) -> Result<u64> {
        self.check()?;
        if bytes > self.free_bytes() {
            return Err(Fault::OutOfMemory);
        }
        let buffer = self.memory.uninitialised("allocated memory", bytes);
        let address = self.memory.address(buffer);
        self.buffers.insert(address, (buffer, bytes));
        self.used_bytes += bytes;
        Ok(address)
    }

    pub(crate) fn free(&mut self, address: u64) -> Result<()> {
        let Some((buffer, bytes)) = self.buffers.remove(&address) else {
            return Err(Fault::Access(format!("{address:#x} is not allocated")));
        };
        self.memory.give_back(buffer);
        self.used_bytes -= bytes;
        self.check()
    }

    /// Memory of the host; what it holds is of no meaning.
    pub(crate) fn pin(&mut self, bytes: usize) -> Result<*mut u64> {
        self.check()?;
        let mut memory = vec![u64::MAX; bytes.div_ceil(8)].into_boxed_slice();
        let address = memory.as_mut_ptr();
        self.pinned.insert(address.addr(), memory);
        Ok(address)
    }

    pub(crate) fn unpin(&mut self, address: *mut u64) -> Result<()> {
        match self.pinned.remove(&address.addr()) {
            Some(_) => Ok(()),
            None => Err(Fault::Access(format!("{address:?} is not pinned"))),
        }
    }

    pub(crate) fn write(&mut self, to: u64, bytes: &[u8]) -> Result<()> {
        self.check()?;
        self.check_not_recording()?;
        self.memory
            .put(to, bytes)
            .map_err(|fault| Fault::Access(format!("a copy to the device: {fault}")))
    }

    pub(crate) fn read(&mut self, from: u64, out: &mut [u8]) -> Result<()> {
        self.check()?;
        self.check_not_recording()?;
        self.memory
            .get(from, out)
            .map_err(|fault| Fault::Access(format!("a copy from the device: {fault}")))
    }

    pub(crate) fn copy(&mut self, from: u64, to: u64, len: usize) -> Result<()> {
        let mut bytes = vec![0; len];
        self.read(from, &mut bytes)?;
        self.write(to, &bytes)
    }

    /// Numbers begin at 1.
    pub(crate) fn load(&mut self, text: &str) -> Result<usize> {
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

    fn known(&mut self, function: usize) -> Result<&mut Function> {
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

    /// Records launches from now on, instead of running them.
    pub(crate) fn begin_recording(&mut self) -> Result<()> {
        self.recordings.insert(current().id(), Vec::new());
        self.check()
    }

    /// The number of what was recorded, from 1.
    pub(crate) fn end_recording(&mut self) -> Result<usize> {
        let recorded = self.recordings.remove(&current().id());
        let none = || Fault::Missing("nothing is being recorded".into());
        self.graphs.push(recorded.ok_or_else(none)?);
        Ok(self.graphs.len())
    }

    /// Runs what was recorded.
    pub(crate) fn replay(&mut self, graph: usize) -> Result<()> {
        let known = self.graphs.get(graph.wrapping_sub(1)).cloned();
        let launches = known.ok_or_else(|| Fault::Missing(format!("no graph {graph}")))?;
        launches
            .into_iter()
            .try_for_each(|it| self.launch(it.function, it.shape, it.shared_bytes, &it.values))
    }

    /// Runs a kernel, or records that it is to be run.
    pub(crate) fn launch(
        &mut self,
        function: usize,
        shape: ([u32; 3], [u32; 3]),
        shared_bytes: u32,
        values: &[u64],
    ) -> Result<()> {
        if let Some(recording) = self.recordings.get_mut(&current().id()) {
            recording.push(Recorded {
                function,
                shape,
                shared_bytes,
                values: values.to_vec(),
            });
            return Ok(());
        }
        self.run(function, shape, shared_bytes, values)
    }

    fn run(
        &mut self,
        function: usize,
        (grid, block): ([u32; 3], [u32; 3]),
        shared_bytes: u32,
        values: &[u64],
    ) -> Result<()> {
        self.check()?;
        let sizes = self.parameters(function)?;
        let known = self.known(function)?;
        let (module, name, allowed) =
            (known.module, known.name.clone(), known.allowed_shared_bytes);
        let arguments = sizes.iter().zip(values).map(|(size, value)| match size {
            4 => Argument::U32(*value as u32),
            _ => Argument::U64(*value),
        });
        let arguments: Vec<Argument> = arguments.collect();
        let launch = Launch {
            grid,
            block,
            shared_bytes,
            arguments: &arguments,
            order: Order::Forward,
        };
        self.launches += 1;
        let outcome = if shared_bytes > allowed {
            Err(format!(
                "{shared_bytes} bytes of shared memory were not allowed"
            ))
        } else if self.launches > setting("PTX_DRIVER_LAUNCHES", u64::MAX) {
            Err("the device was told to fail".into())
        } else {
            self.modules[module]
                .run(&name, &launch, &mut self.memory)
                .map_err(|error| error.to_string())
        };
        outcome.map_err(|reason| {
            let reason = format!("{name}: {reason}");
            self.failed = Some(reason.clone());
            Fault::Launch(reason)
        })
    }
}
