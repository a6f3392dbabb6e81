//! The commands as scripts see them: a process each, over a tiny model.

mod bench;
mod cache;
mod chat;
mod errors;
mod memory;
mod models;
mod privacy;
mod shorten;
mod support;
mod turns;
mod unwritable;
