//! The command line reaches the running application: it gives its memory back, and the conversation goes on.

use tests::{Cli, prose};

use crate::resume::prepare;
use crate::window::Window;

#[tokio::test]
async fn the_real_window_gives_memory_back_when_the_command_line_asks_and_reads_nothing_again() {
    let home = tempfile::tempdir().expect("folder");
    prepare(home.path());
    let cli = Cli::new(&home.path().join("reprise"));
    let last = |words: &[&str]| cli.run(words).pop().expect("a line");

    let window = Window::open(home.path()).await;
    window.click("conversation-item").await;
    let first = window.say(&prose(0, 120)).await;
    let computed = first.prefill.expect("counts").computed;
    let weights = last(&["engine", "memory"])["weights_bytes"].as_u64();
    assert!(weights > Some(80 << 20), "{weights:?}");
    let released = last(&["engine", "release"]);
    assert!(released["freed_bytes"].as_u64() >= weights, "{released}");
    assert_eq!(last(&["engine", "memory"])["weights_bytes"], 0);

    let second = window.say("And then?").await.prefill.expect("counts");
    assert!(second.restored >= computed, "{second:?}");
    assert!(second.computed < 40, "{second:?}");
    window.quit().await;
    assert_eq!(last(&["engine", "memory"])["running"], false);
}
