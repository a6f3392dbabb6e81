//! The shipped PTX, run by the interpreter, against the CPU's own code and f64 references.

mod attention;
mod copy;
mod device;
mod elementwise;
mod launches;
mod mutations;
mod sample;
mod write;
