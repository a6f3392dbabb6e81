//! The engine's process and the window: a fault of one is not the end of the other, the end of the window is that of both.

use std::time::{Duration, Instant};

use tests::{Cli, prose};

use crate::resume::prepare_for;
use crate::window::{Window, kill};

const PATIENCE: Duration = Duration::from_secs(60);

/// Keys and values of 64 tokens of the default model in q8.
const BLOCK_BYTES: u64 = 64 * 12_240;

/// Bytes of blocks on disk, as the application says.
fn saved_bytes(cli: &Cli) -> u64 {
    let stats = cli.run(&["engine", "memory"]).pop().expect("a line");
    stats["disk"]["cached_bytes"].as_u64().expect("bytes")
}

#[tokio::test]
async fn an_engine_killed_in_mid_reply_leaves_the_window_and_what_was_written_and_the_next_turn_restores()
 {
    let home = tempfile::tempdir().expect("folder");
    prepare_for(home.path(), 200);
    let window = Window::open(home.path()).await;
    window.click("conversation-item").await;
    let first = window.say(&prose(0, 150)).await;
    // What is new goes to disk when the turn has ended: the command line hears how much is there.
    let whole_blocks = u64::from(first.prefill.expect("counts").computed / 64);
    let cli = Cli::new(&home.path().join("reprise"));
    let start = Instant::now();
    while saved_bytes(&cli) < whole_blocks * BLOCK_BYTES {
        assert!(start.elapsed() < PATIENCE, "nothing is saved");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }

    window
        .write("composer", "Write a very long story about a lighthouse.")
        .await;
    window.click("send").await;
    let start = Instant::now();
    let shown = loop {
        let replies = window.replies().await;
        if let [_, reply] = &replies[..]
            && reply.text.len() > 30
        {
            break reply.clone();
        }
        assert!(start.elapsed() < PATIENCE, "no reply: {replies:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(shown.state, "generating");
    let engine = window.engine().expect("an engine");
    kill("-KILL", engine);
    let start = Instant::now();
    let cut = loop {
        let replies = window.replies().await;
        if let Some(reply) = replies.last().filter(|reply| reply.state == "interrupted") {
            break reply.clone();
        }
        assert!(start.elapsed() < PATIENCE, "it goes on: {replies:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert!(cut.text.starts_with(&shown.text[..20]), "{cut:?} {shown:?}");
    assert!(window.text("problem").await.contains("started again"));
    assert!(window.engine().is_some_and(|other| other != engine));

    let next = window.say("And then?").await.prefill.expect("counts");
    assert!(
        next.restored >= first.prefill.expect("counts").computed / 64 * 64,
        "{next:?}"
    );
    window.quit().await;
}

#[tokio::test]
async fn a_window_that_is_killed_leaves_no_engine_behind() {
    let home = tempfile::tempdir().expect("folder");
    prepare_for(home.path(), 12);
    let window = Window::open(home.path()).await;
    window.click("conversation-item").await;
    window.say("Hello there.").await;
    assert!(window.engine().is_some());
    window.kill().await;
}
