//! What a GPU that falls over in the middle of a reply leaves: the words so far, and an engine that goes on.

use std::time::Duration;

use engine::TurnEvent;
use store::MessageState;
use tests::prose;

use super::{chat, engine_beside_driver, memory};

#[test]
fn a_gpu_that_falls_over_in_mid_reply_is_replaced_and_the_conversation_goes_on() {
    let mut chat = chat();
    chat.say(&prose(0, 20));
    let folder = tempfile::tempdir().expect("folder");
    chat.max_tokens = 60;
    let started = folder.path().join("started");
    let started = started.display();
    let once = format!("[ -e '{started}' ] || export PTX_DRIVER_LAUNCHES=900\ntouch '{started}'");
    chat.restart_as(engine_beside_driver(folder.path(), &once));
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

#[test]
fn a_driver_that_gives_memory_of_the_host_is_not_asked_for_more_than_the_gpu_has() {
    // The model fits, and the first stretch of the pool does not.
    let lines = "export PTX_DRIVER_MEMORY_BYTES=12000000";
    let ends = [lines.to_owned(), format!("{lines} PTX_DRIVER_SPILLS=1")].map(|lines| {
        let mut chat = chat();
        let folder = tempfile::tempdir().expect("folder");
        chat.restart_as(engine_beside_driver(folder.path(), &lines));
        let end = chat.try_to_say("Hello").pop().expect("an end");
        assert!(memory(&chat).device.name.is_some());
        format!("{end:?}")
    });
    assert_eq!(ends[0], ends[1]);
    assert!(ends[0].contains("gives no memory"), "{}", ends[0]);
}
