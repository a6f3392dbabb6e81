//! What streams are asked for: launches and copies.

use ptx_interpreter::{Argument, Order};

use crate::device::{Device, setting};
use crate::fault::{Fault, Result};
use crate::stream::{Kind, Mark};

/// A launch, as it was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub(crate) function: usize,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    pub(crate) values: Vec<u64>,
}

/// What a stream was asked for.
#[derive(Debug)]
pub(crate) enum Work {
    Launch(Launch),
    /// Bytes that were taken over when they were to be copied, as those of memory that is not pinned are.
    Put {
        to: u64,
        bytes: Vec<u8>,
    },
    /// From pinned memory, which is read when the copy runs.
    In {
        to: u64,
        from: usize,
        len: usize,
    },
    /// To pinned memory, which is written when the copy runs.
    Out {
        to: usize,
        from: u64,
        len: usize,
    },
    Copy {
        to: u64,
        from: u64,
        len: usize,
    },
    Fill {
        to: u64,
        value: u8,
        len: usize,
    },
}

impl Work {
    /// The pinned memory that it will use.
    pub(crate) fn pinned_address(&self) -> Option<usize> {
        match self {
            Work::In { from: address, .. } | Work::Out { to: address, .. } => Some(*address),
            _ => None,
        }
    }
}

impl Device {
    /// Puts work into a stream, and runs what runs ahead. What goes wrong with it is told by a later call.
    fn ask(&mut self, stream: usize, kind: Kind, work: Work) -> Result<()> {
        self.check()?;
        self.recordings.check_stream(stream, "a copy")?;
        self.streams.ask(stream, kind, work)?;
        self.advance(None);
        Ok(())
    }

    /// Copies to the device, from memory of the host that a program is about to use otherwise unless it is pinned.
    ///
    /// # Safety
    /// There are `len` bytes, until the copy has run where they are pinned.
    pub(crate) unsafe fn write(
        &mut self,
        stream: usize,
        to: u64,
        from: *const u8,
        len: usize,
    ) -> Result<()> {
        self.check_range(to, len)?;
        let work = match self.pinned(from.addr(), len)? {
            Some(from) => Work::In {
                to,
                from: from.addr(),
                len,
            },
            None => Work::Put {
                to,
                // SAFETY: the caller's promise.
                bytes: unsafe { std::slice::from_raw_parts(from, len) }.to_vec(),
            },
        };
        self.ask(stream, Kind::Copies, work)
    }

    /// Copies from the device; what is not pinned has the bytes when the call returns.
    ///
    /// # Safety
    /// There are `len` bytes that nobody else uses, until the copy has run where they are pinned.
    pub(crate) unsafe fn read(
        &mut self,
        stream: usize,
        to: *mut u8,
        from: u64,
        len: usize,
    ) -> Result<()> {
        self.check_range(from, len)?;
        if let Some(to) = self.pinned(to.addr(), len)? {
            let to = to.addr();
            return self.ask(stream, Kind::Copies, Work::Out { to, from, len });
        }
        self.synchronize(stream)?;
        // SAFETY: the caller's promise.
        let out = unsafe { std::slice::from_raw_parts_mut(to, len) };
        if let Err(fault) = self.memory.get(from, out) {
            self.fail(format!("a copy from the device: {fault}"));
        }
        self.check()
    }

    pub(crate) fn copy(&mut self, stream: usize, to: u64, from: u64, len: usize) -> Result<()> {
        self.check_range(to, len)?;
        self.check_range(from, len)?;
        self.ask(stream, Kind::Kernels, Work::Copy { to, from, len })
    }

    pub(crate) fn fill(&mut self, stream: usize, to: u64, value: u8, len: usize) -> Result<()> {
        self.check_range(to, len)?;
        self.ask(stream, Kind::Kernels, Work::Fill { to, value, len })
    }

    /// Runs a kernel, or records that it is to be run.
    pub(crate) fn launch(&mut self, stream: usize, launch: Launch) -> Result<()> {
        let allowed = self.known(launch.function)?.allowed_shared_bytes;
        if launch.shared_bytes > allowed {
            let bytes = launch.shared_bytes;
            let reason = format!("{bytes} bytes of shared memory were not allowed");
            return Err(Fault::Access(reason));
        }
        match self.recordings.of(stream) {
            Some(recorded) => {
                recorded.push(launch);
                Ok(())
            }
            None => self.ask(stream, Kind::Kernels, Work::Launch(launch)),
        }
    }

    /// Lets a stream wait for what an event stands for now.
    pub(crate) fn wait(&mut self, stream: usize, event: usize) -> Result<()> {
        self.check()?;
        self.recordings.check_stream(stream, "a wait")?;
        self.streams.wait(stream, event)
    }

    /// Lets an event stand for what a stream was asked for.
    pub(crate) fn record(&mut self, event: usize, stream: usize) -> Result<()> {
        self.check()?;
        self.recordings.check_stream(stream, "an event")?;
        self.streams.record(event, stream)
    }

    /// Waits for everything that a stream was asked for.
    pub(crate) fn synchronize(&mut self, stream: usize) -> Result<()> {
        self.recordings.check_stream(stream, "a wait of the host")?;
        let end = self.streams.end(stream)?;
        self.finish(Some(end))
    }

    /// Waits for what an event stands for.
    pub(crate) fn synchronize_event(&mut self, event: usize) -> Result<()> {
        let mark = self.streams.recorded(event)?;
        self.finish(mark)
    }

    fn finish(&mut self, goal: Option<Mark>) -> Result<()> {
        self.recordings.check_thread("a wait of the host")?;
        self.check()?;
        self.advance(goal);
        self.check()
    }

    /// Runs what runs ahead and what must run for `goal` to be reached, and nothing else.
    pub(crate) fn advance(&mut self, goal: Option<Mark>) {
        while let Some(work) = self.streams.next(goal) {
            if let Err(reason) = self.run(work) {
                self.fail(reason);
            }
        }
    }

    fn run(&mut self, work: Work) -> std::result::Result<(), String> {
        let copied = match work {
            Work::Launch(launch) => return self.run_kernel(&launch),
            Work::Put { to, bytes } => self.memory.put(to, &bytes),
            Work::In { to, from, len } => {
                let from = self.known_pinned(from, len)?;
                // SAFETY: inside of pinned memory, which is there.
                self.memory
                    .put(to, unsafe { std::slice::from_raw_parts(from, len) })
            }
            Work::Out { to, from, len } => {
                let to = self.known_pinned(to, len)?;
                // SAFETY: as above; a program that waits for the copy does not use it meanwhile.
                let to = unsafe { std::slice::from_raw_parts_mut(to, len) };
                self.memory.get(from, to)
            }
            Work::Copy { to, from, len } => {
                let mut bytes = vec![0; len];
                let read = self.memory.get(from, &mut bytes);
                read.and_then(|()| self.memory.put(to, &bytes))
            }
            Work::Fill { to, value, len } => self.memory.put(to, &vec![value; len]),
        };
        copied.map_err(|fault| format!("a copy: {fault}"))
    }

    fn known_pinned(&self, address: usize, len: usize) -> std::result::Result<*mut u8, String> {
        let pinned = self.pinned(address, len).ok().flatten();
        pinned.ok_or_else(|| "a copy of memory that is not pinned any more".into())
    }

    fn run_kernel(&mut self, launch: &Launch) -> std::result::Result<(), String> {
        let said = |fault: Fault| fault.to_string();
        let sizes = self.parameters(launch.function).map_err(said)?;
        let known = self.known(launch.function).map_err(said)?;
        let (module, name) = (known.module, known.name.clone());
        let values = sizes.iter().zip(&launch.values);
        let arguments = values.map(|(size, value)| match size {
            4 => Argument::U32(*value as u32),
            _ => Argument::U64(*value),
        });
        let arguments: Vec<Argument> = arguments.collect();
        self.num_launches += 1;
        if self.num_launches > setting("PTX_DRIVER_LAUNCHES", u64::MAX) {
            return Err(format!("{name}: the device was told to fail"));
        }
        let launch = ptx_interpreter::Launch {
            grid: launch.grid,
            block: launch.block,
            shared_bytes: launch.shared_bytes,
            arguments: &arguments,
            order: Order::Forward,
        };
        let ran = self.modules[module].run(&name, &launch, &mut self.memory);
        ran.map_err(|error| format!("{name}: {error}"))?;
        if std::env::var("PTX_DRIVER_WRONG").is_ok_and(|wrong| name.starts_with(&wrong)) {
            let words = setting("PTX_DRIVER_WRONG_WORDS", 1);
            self.memory.spoil(words as usize);
        }
        Ok(())
    }
}
