//! The interpreter, fed with PTX text.

mod faults;
mod opcodes;
mod support;
mod tiles;
