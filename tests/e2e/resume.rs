//! The main job: a conversation resumes after a restart without being read again, and an edit costs its suffix.

use std::path::Path;
use std::time::Duration;

use store::{DataFolder, History, NewConversation, Sampling};
use tests::{Subject, prose};

use crate::window::{ShownReply, Window};

/// A data folder with the default model and one empty conversation whose replies are short and greedy.
pub(crate) fn prepare(home: &Path) {
    prepare_for(home, 12);
}

/// As `prepare`, with replies of so many tokens at most.
pub(crate) fn prepare_for(home: &Path, max_tokens: u32) {
    let folder = DataFolder::open(Some(home.join("reprise"))).expect("data folder");
    Subject::Real.install(&folder.models_path());
    let mut history = History::open(&folder.history_path()).expect("history");
    let sampling = Sampling {
        temperature: 0.0,
        max_tokens: Some(max_tokens),
        ..Sampling::default()
    };
    let new = NewConversation {
        title: "A long story".to_owned(),
        system_prompt: String::new(),
        model: None,
        sampling,
    };
    history
        .create_conversation(new, 1_700_000_000_000)
        .expect("conversation");
}

fn prompt_tokens(reply: &ShownReply) -> u32 {
    let prefill = reply.prefill.expect("counts");
    prefill.resident + prefill.restored + prefill.computed
}

/// The two numbers of "keeps 233 of 248 tokens", whatever stands between the digits of a number.
fn cost(line: &str) -> Option<(u32, u32)> {
    let number = |text: &str| {
        text.chars()
            .filter(char::is_ascii_digit)
            .collect::<String>()
            .parse()
            .ok()
    };
    let (keeps, of) = line.split_once(" of ")?;
    Some((number(keeps)?, number(of)?))
}

#[tokio::test]
async fn a_conversation_resumes_in_the_real_window_and_an_edit_costs_its_suffix() {
    let home = tempfile::tempdir().expect("folder");
    prepare(home.path());

    let window = Window::open(home.path()).await;
    window.click("conversation-item").await;
    let first = window.say(&prose(0, 120)).await;
    assert!(!first.text.is_empty(), "{first:?}");
    assert_eq!(
        first.prefill.expect("counts").computed,
        prompt_tokens(&first)
    );
    let second = window.say("And what did the others say to that?").await;
    let counts = second.prefill.expect("counts");
    assert!(counts.resident > 120 && counts.computed < 40, "{second:?}");
    window.quit().await;

    let window = Window::open(home.path()).await;
    window.click("conversation-item").await;
    let shown = window.next_reply(|replies| replies.len() == 2).await;
    assert_eq!(shown.text, second.text, "what was shown is what is shown");
    let third = window.say("Tell me more.").await;
    let counts = third.prefill.expect("counts");
    assert!(
        counts.restored > 150,
        "the history came from disk: {third:?}"
    );
    assert!(counts.computed < 40, "and was not read again: {third:?}");

    window
        .click_css("[data-testid='message'][data-role='user'] [data-testid='edit']")
        .await;
    window
        .write(
            "edit-text",
            &format!("{} Nobody believed him.", prose(0, 90)),
        )
        .await;
    // The count of the text as it is now, not as it was when the editor opened.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let line = window.text("edit-cost").await;
    let (keeps, of) = cost(&line).unwrap_or_else(|| panic!("the editor says {line:?}"));
    window.click("edit-save").await;
    let edited = window.next_reply(|replies| replies.len() == 1).await;
    let counts = edited.prefill.expect("counts");
    assert_eq!(prompt_tokens(&edited), of, "{line:?}, {edited:?}");
    // Some of the new words may have been read ahead since.
    assert!(of - counts.computed >= keeps, "{line:?}, {edited:?}");
    assert!(keeps > 90 && counts.computed < 60, "{line:?}, {edited:?}");
    assert!(
        window.text("branch-count").await.contains('2'),
        "the old branch is still there"
    );
    window.quit().await;
}

#[tokio::test]
async fn a_reply_stops_at_once_and_its_words_stay() {
    let home = tempfile::tempdir().expect("folder");
    prepare(home.path());
    let window = Window::open(home.path()).await;
    window.click("new-chat").await;
    window
        .write("composer", "Write a very long story about a lighthouse.")
        .await;
    window.click("send").await;
    window.find("stop").await;
    let mut shown = window.replies().await;
    while shown.last().is_none_or(|reply| reply.text.len() < 20) {
        tokio::time::sleep(Duration::from_millis(50)).await;
        shown = window.replies().await;
    }
    window.click("stop").await;
    let stopped = window.next_reply(|replies| !replies.is_empty()).await;
    assert!(
        ["stopped", "complete"].contains(&stopped.state.as_str()),
        "{stopped:?}"
    );
    assert!(!stopped.text.is_empty());
    window.quit().await;
}
