//! The commands as scripts see them: a process each, over a tiny model.

mod bench;
mod cache;
mod changes;
mod chat;
mod errors;
mod memory;
mod models;
mod privacy;
#[cfg(target_os = "linux")]
mod pseudo_terminal;
mod shorten;
mod support;
#[cfg(target_os = "linux")]
mod talk;
mod terminal;
mod turns;
mod unwritable;
