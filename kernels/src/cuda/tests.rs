//! The shipped PTX, run by the interpreter, against the CPU's own code and f64 references.

mod balance;
mod case;
mod decode;
mod dense;
mod device;
mod elementwise;
mod launches;
mod mutations;
#[cfg(target_os = "linux")]
mod opened;
#[cfg(target_os = "linux")]
mod ordering;
mod prefill;
mod product;
mod sample;
mod weights;
mod write;
