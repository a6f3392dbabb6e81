//! What can be wrong with a kernel.

/// The crate's error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text is no PTX that this interpreter knows.
    #[error("line {line}: {reason}: {text}")]
    Parse {
        /// Line of the text, from 1.
        line: u32,
        /// The statement.
        text: String,
        /// What it does not know or find.
        reason: String,
    },
    /// The launch does not fit the kernel.
    #[error("launch: {0}")]
    Launch(String),
    /// A thread did what it must not.
    #[error("{fault} by thread {thread} of block {block:?} at line {line}: {text}")]
    Fault {
        /// What it did.
        fault: Fault,
        /// Index of the thread in its block.
        thread: u32,
        /// Index of the block.
        block: [u32; 3],
        /// Line of the instruction, from 1.
        line: u32,
        /// The instruction.
        text: String,
    },
}

/// What a thread must not do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Memory outside every buffer, or outside shared, local, parameter or constant memory.
    #[error("access to {bytes} bytes at {address:#x} outside of {space}")]
    OutOfBounds {
        /// Which memory.
        space: String,
        /// First byte.
        address: u64,
        /// Size of the access.
        bytes: u32,
    },
    /// An address that is no multiple of the access's size.
    #[error("access to {bytes} bytes at the misaligned address {address:#x}")]
    Misaligned {
        /// First byte.
        address: u64,
        /// Size of the access.
        bytes: u32,
    },
    /// A read of what nobody wrote.
    #[error("read of uninitialised {space} memory at {address:#x}")]
    Uninitialised {
        /// Which memory.
        space: String,
        /// First such byte.
        address: u64,
    },
    /// An access to what a `cp.async` will write, before its wait.
    #[error("access to shared memory at {address:#x}, to which an asynchronous copy is under way")]
    Pending {
        /// First such byte.
        address: u64,
    },
    /// Two threads touched a byte of shared memory, one of them writing, with no barrier between.
    #[error("race on shared memory at {address:#x} with thread {other}")]
    Race {
        /// First such byte.
        address: u64,
        /// The other thread, or one of them.
        other: u32,
    },
    /// A thread wrote what another of the same launch wrote, or read what another block wrote.
    #[error(
        "race on global memory at {address:#x} with thread {thread} of the block number {block}"
    )]
    GlobalRace {
        /// First byte of the access.
        address: u64,
        /// Number of the other's block.
        block: u32,
        /// The other thread.
        thread: u32,
    },
    /// Not every thread of the block comes to the barrier.
    #[error("barrier that not every thread reaches (thread {other} {state})")]
    DivergentBarrier {
        /// A thread that does not come.
        other: u32,
        /// Where it is instead.
        state: String,
    },
    /// A warp's operation for which one of its threads never comes.
    #[error("operation of the warp in which thread {other} takes no part ({state})")]
    DivergentWarp {
        /// A thread that does not come.
        other: u32,
        /// Where it is instead.
        state: String,
    },
    /// More instructions than a kernel may take: it does not end.
    #[error("no end after {0} instructions")]
    Endless(u64),
    /// An instruction whose operands have no defined result.
    #[error("{0}")]
    Undefined(String),
}

/// The crate's result.
pub type Result<T> = std::result::Result<T, Error>;
