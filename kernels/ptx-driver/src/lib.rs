//! The CUDA driver's functions that Reprise calls, over a device that interprets PTX. Only tests use it.
//!
//! A program that finds this library as `libcuda.so.1` runs as it would on a GPU: it opens a device, allocates, copies, compiles
//! and launches through the same functions, and what a GPU must not do (see `ptx_interpreter`) ends the launch with an error,
//! told on standard error by the next call.
//!
//! Streams and events are real: work of different streams runs in no order but that which a program asks for (`stream`), so
//! that one that does not wait where it must reads what is not there yet, or writes what is still needed. Copies from and to
//! pinned memory touch it when they run. What is only sure to wait is waited for: a stream, an event, and memory given back
//! (`cuMemFree` waits for everything; `cuMemFreeHost` does not, and neither do `cuMemAlloc` and the loading of texts). A call on
//! a thread that has not made the context its own is refused, and so is what must not be done while launches are recorded.
//! There is no default stream.
//!
//! The device is described by the environment: `PTX_DRIVER_VERSION` (13000), `PTX_DRIVER_DEVICES` (1),
//! `PTX_DRIVER_COMPUTE_CAPABILITY` (80), `PTX_DRIVER_MEMORY_BYTES` (1 GiB), `PTX_DRIVER_WITHHELD_BYTES` (0; of what it
//! says is free, what it does not give), `PTX_DRIVER_REFUSES` (0; which of the calls for memory is refused, from 1),
//! `PTX_DRIVER_SPILLS` (0; 1 gives more memory than it has, as a driver does that takes that of the host).
//! `PTX_DRIVER_LAUNCHES` is the number of launches that succeed before one fails, as when a GPU falls over. `PTX_DRIVER_WRONG` is
//! how the names of kernels begin that compute wrongly: a bit is flipped in so many words of what each writes as
//! `PTX_DRIVER_WRONG_WORDS` says (1). `PTX_DRIVER_AHEAD` (kernels) says whether `kernels` or `copies` run as early
//! as they may, and the others as late as they may.

mod calls;
mod device;
mod fault;
mod recording;
mod result;
mod stand_in;
mod stream;
#[cfg(test)]
mod tests;
mod work;

pub use stand_in::{in_both_orders, install, library, load};
