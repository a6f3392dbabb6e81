//! The shipped PTX, run by the interpreter, against the CPU's own code and f64 references.

mod attention;
mod device;
mod elementwise;
mod mutations;
mod write;
