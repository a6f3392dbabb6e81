//! Laws and promises with the model on a GPU: the whole engine, over a driver whose device interprets the shipped kernels.
#![cfg(target_os = "linux")]

mod choice;
mod faults;
mod laws;
mod trial;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use engine::MemoryStats;
use tests::{Chat, Subject, engine_program};

/// A chat on the device; the model is small, since every instruction is interpreted.
fn chat() -> Chat {
    ptx_driver::load().expect("the stand-in for the driver");
    let mut chat = Chat::new(Subject::TINY);
    chat.max_tokens = 4;
    chat.engine().load(None).expect("a model");
    chat
}

/// The engine's program beside the stand-in for the driver, after some lines of shell that describe its device. Copies run as
/// early as they may there, and kernels as late; in this process it is the other way round.
fn engine_beside_driver(folder: &Path, lines: &str) -> PathBuf {
    ptx_driver::install(folder).expect("the stand-in for the driver");
    let (program, folder) = (folder.join("engine"), folder.display());
    let engine = engine_program();
    let text = format!(
        "#!/bin/sh\nexport LD_LIBRARY_PATH='{folder}' PTX_DRIVER_AHEAD=copies\n{lines}\nexec '{}' \"$@\"\n",
        engine.display()
    );
    fs::write(&program, text).expect("a program");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).expect("it may run");
    program
}

fn memory(chat: &Chat) -> MemoryStats {
    chat.engine().memory().expect("memory")
}
