//! What is written and not sent outlives the window.

use std::time::{Duration, Instant};

use crate::resume::prepare;
use crate::window::{PATIENCE, Window};

/// Waits until the composer holds `text`.
async fn composer_holds(window: &Window, text: &str) {
    let start = Instant::now();
    loop {
        let composer = window.find("composer").await;
        let found = composer.prop("value").await.expect("value");
        if found.as_deref() == Some(text) {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "the composer holds {found:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn words_that_were_not_sent_are_there_after_the_window_was_killed() {
    let home = tempfile::tempdir().expect("folder");
    prepare(home.path());
    let window = Window::open(home.path()).await;
    window.write("composer", "A beginning.").await;
    window.click("conversation-item").await;
    window.say("Hello there.").await;
    composer_holds(&window, "").await;
    window.write("composer", "Half a thought\nof two").await;
    // The window writes them down four times a second.
    tokio::time::sleep(Duration::from_secs(1)).await;
    window.kill().await;

    let window = Window::open(home.path()).await;
    composer_holds(&window, "A beginning.").await;
    assert_eq!(window.text("draft").await, "draft");
    window.click("conversation-item").await;
    composer_holds(&window, "Half a thought\nof two").await;
    window.click("send").await;
    window.next_reply(|replies| replies.len() == 2).await;
    window.quit().await;

    let window = Window::open(home.path()).await;
    window.click("conversation-item").await;
    window.next_reply(|replies| replies.len() == 2).await;
    composer_holds(&window, "").await;
    window.quit().await;
}
