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
fn a_gpu_with_little_room_is_asked_for_no_more_whatever_its_driver_would_give() {
    // Less than the pool would be elsewhere.
    let lines = "export PTX_DRIVER_MEMORY_BYTES=12000000";
    let texts = [lines.to_owned(), format!("{lines} PTX_DRIVER_SPILLS=1")].map(|lines| {
        let mut chat = chat();
        let folder = tempfile::tempdir().expect("folder");
        chat.restart_as(engine_beside_driver(folder.path(), &lines));
        let text = chat.say("Hello").text;
        let memory = memory(&chat);
        assert!(memory.device.name.is_some(), "{:?}", memory.device);
        assert_eq!(memory.device.num_layers, None, "{:?}", memory.device);
        let held = memory.weights_bytes + memory.pool.reserved_bytes + memory.scratch_bytes;
        assert!(held < 12_000_000, "{held}");
        text
    });
    assert_eq!(texts[0], texts[1]);
}

#[test]
fn memory_that_the_gpu_refuses_at_any_point_costs_at_most_a_turn_which_is_told_so() {
    let mut chat = chat();
    chat.max_tokens = 2;
    let folder = tempfile::tempdir().expect("folder");
    let (mut told, mut refused) = (0, 0);
    for nth in 1.. {
        let (driver, log) = (
            folder.path().join(nth.to_string()),
            folder.path().join("log"),
        );
        std::fs::create_dir(&driver).expect("folder");
        let lines = format!("export PTX_DRIVER_REFUSES={nth}\nexec 2>{}", log.display());
        chat.restart_as(engine_beside_driver(&driver, &lines));
        let conversation = chat.new_conversation("");
        chat.conversation = conversation;
        let events = chat.try_to_say("Hello");
        let is_told = |event: &TurnEvent| matches!(event, TurnEvent::Error { code, .. } if code == "memory_full");
        if events.iter().any(is_told) {
            told += 1;
            let loaded = chat.engine().loaded().expect("engine");
            assert!(loaded.is_none(), "it is planned anew for the next turn");
            assert!(!chat.say("And then?").text.is_empty(), "at {nth}");
        } else {
            let ends = |event: &TurnEvent| matches!(event, TurnEvent::Finished { .. });
            assert!(events.iter().any(ends), "at {nth}: {events:?}");
        }
        let log = std::fs::read_to_string(log).expect("log");
        if !log.contains("bytes are refused") {
            break;
        }
        refused += 1;
    }
    assert!(refused > 10 && told > 1, "{told} of {refused}");
}
