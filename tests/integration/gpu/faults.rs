//! What a GPU that falls over in the middle of a reply leaves: the words so far, and an engine that goes on.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use engine::TurnEvent;
use store::MessageState;
use tests::{engine_program, prose};

use super::chat;

/// The engine's program beside a driver whose device fails after so many launches, the first time that it is started.
fn failing_once(folder: &Path, launches: u32) -> PathBuf {
    ptx_driver::install(folder).expect("the stand-in for the driver");
    let (program, folder) = (folder.join("engine"), folder.display());
    let engine = engine_program();
    let text = format!(
        "#!/bin/sh\nexport LD_LIBRARY_PATH='{folder}'\n\
         if [ ! -e '{folder}/started' ]; then export PTX_DRIVER_LAUNCHES={launches}; fi\n\
         touch '{folder}/started'\nexec '{}' \"$@\"\n",
        engine.display()
    );
    fs::write(&program, text).expect("a program");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).expect("it may run");
    program
}

#[test]
fn a_gpu_that_falls_over_in_mid_reply_is_replaced_and_the_conversation_goes_on() {
    let mut chat = chat();
    chat.say(&prose(0, 20));
    let folder = tempfile::tempdir().expect("folder");
    chat.max_tokens = 60;
    chat.restart_as(failing_once(folder.path(), 900));
    let events = chat.try_to_say("And then?");
    let failed =
        |event: &&TurnEvent| matches!(event, TurnEvent::Error { code, .. } if code == "gpu_failed");
    assert!(events.iter().any(|event| failed(&event)), "{events:?}");
    let reply = chat.shown().pop().expect("a reply");
    assert_eq!(reply.state, MessageState::Failed);
    assert!(!reply.text.is_empty(), "what was shown is kept");
    // It is gone as soon as it has said so, and there again a moment later.
    while chat.engine().memory().is_err() {
        std::thread::sleep(Duration::from_millis(20));
    }
    chat.max_tokens = 4;
    let next = chat.say("Go on.");
    assert!(next.prefill.restored > 0, "{next:?}");
    assert_eq!(next.state, MessageState::Length);
}
