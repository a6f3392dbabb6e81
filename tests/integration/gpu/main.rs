//! Laws and promises with the model on a GPU: the whole engine, over a driver whose device interprets the shipped kernels.
#![cfg(target_os = "linux")]

mod choice;
mod faults;
mod laws;

use engine::MemoryStats;
use tests::{Chat, Subject};

/// A chat on the device; the model is small, since every instruction is interpreted.
fn chat() -> Chat {
    ptx_driver::load().expect("the stand-in for the driver");
    let mut chat = Chat::new(Subject::TINY);
    chat.max_tokens = 4;
    chat.engine().load(None).expect("a model");
    chat
}

fn memory(chat: &Chat) -> MemoryStats {
    chat.engine().memory().expect("memory")
}
