//! User actions in the window other than writing: choosing a model, searching, changing settings, deleting.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use store::{DataFolder, History};
use tests::{Subject, default_model};

use crate::resume::prepare;
use crate::window::{PATIENCE, Window};

/// Sorts after the default model, so that it answers only when it is chosen.
const OTHER: &str = "Zebra-Model";

/// Waits until `holds` is true for the value that a script returns.
async fn until(window: &Window, what: &str, script: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let start = Instant::now();
    loop {
        let found = window.script(script, Value::Null).await;
        if holds(&found) {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "{what}: {found}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Opens the history after the window was closed.
fn history(home: &Path) -> History {
    History::open(&home.join("reprise").join("history.db")).expect("history")
}

/// Dispatches a key press in the page.
async fn press(window: &Window, key: &str, ctrl: bool) {
    let script = "const [key, ctrlKey] = arguments[0];
        (document.activeElement ?? document.body).dispatchEvent(
            new KeyboardEvent('keydown', { key, ctrlKey, bubbles: true, cancelable: true }));";
    window.script(script, json!([key, ctrl])).await;
}

/// Script that returns the titles in the list of conversations, in order.
const TITLES: &str = "return [...document.querySelectorAll(\"[data-testid='conversation-item']\")].map((item) => item.textContent.trim())";

fn names(found: &Value, title: &str) -> bool {
    let titles = found.as_array().into_iter().flatten();
    titles
        .filter_map(Value::as_str)
        .any(|found| found.contains(title))
}

#[tokio::test]
async fn the_model_that_is_chosen_answers_and_the_header_names_it_also_after_a_restart() {
    let home = tempfile::tempdir().expect("folder");
    prepare(home.path());
    let models = home.path().join("reprise").join("models");
    // A copy, since two names of one file count as one model.
    std::fs::copy(default_model(), models.join(format!("{OTHER}.gguf"))).expect("another model");

    let window = Window::open(home.path()).await;
    window.click("conversation-item").await;
    let first = window.say("Say one word.").await;
    window.click("model-picker").await;
    window.find("model-item").await;
    let choose = "const item = [...document.querySelectorAll(\"[data-testid='model-item']\")].find((item) => item.textContent.includes('Zebra-Model'));
        item?.click(); return item !== undefined";
    until(&window, "the picker lists it", choose, |found| {
        *found == true
    })
    .await;
    let header =
        "return document.querySelector(\"[data-testid='model-picker']\")?.textContent ?? ''";
    let names_other = |found: &Value| found.as_str().is_some_and(|text| text.contains(OTHER));
    until(&window, "the header names it", header, names_other).await;
    let second = window.say("And another.").await;
    until(&window, "the header after the turn", header, names_other).await;
    window.quit().await;

    let window = Window::open(home.path()).await;
    window.click("conversation-item").await;
    window.next_reply(|replies| replies.len() == 2).await;
    until(&window, "the header after a restart", header, names_other).await;
    let third = window.say("And one more.").await;
    window.quit().await;
    let history = history(home.path());
    let models = [first, second, third].map(|reply| {
        history
            .message(&reply.id.as_str().into())
            .expect("message")
            .model
    });
    let models = models.each_ref().map(Option::as_deref);
    let expected = [Some("SmolLM2-135M-Instruct.Q4_1"), Some(OTHER), Some(OTHER)];
    assert_eq!(models, expected, "who answered");
}

#[tokio::test]
async fn a_word_and_a_title_are_found_and_open_their_conversation() {
    let home = tempfile::tempdir().expect("folder");
    prepare(home.path());
    let window = Window::open(home.path()).await;
    window.click("conversation-item").await;
    window.say("The zebra stands beside the lighthouse.").await;
    window.click("new-chat").await;
    for (asked, what) in [("LIGHTHOUSE zebra", "a word"), ("long stor", "a title")] {
        press(&window, "k", true).await;
        window.write("search", asked).await;
        window.find("search-hit").await;
        window.click("search-hit").await;
        let shown = "return [...document.querySelectorAll(\"[data-testid='message']\")].map((message) => message.textContent)";
        until(&window, what, shown, |found| names(found, "zebra stands")).await;
        // Clears the hits of this word before the next search.
        window.write("search", "").await;
        let hits = "return document.querySelectorAll(\"[data-testid='search-hit']\").length";
        until(&window, "hits of nothing", hits, |found| *found == 0).await;
        window.click("new-chat").await;
        window.find("composer").await;
    }
    press(&window, "k", true).await;
    window.write("search", "nobodysaidthis").await;
    let page = "return document.body.innerText";
    until(&window, "nothing is found", page, |found| {
        found
            .as_str()
            .is_some_and(|text| text.contains("Nothing found"))
    })
    .await;
    window.quit().await;
}

#[tokio::test]
async fn what_is_set_is_there_after_a_restart_and_holds() {
    let home = tempfile::tempdir().expect("folder");
    prepare(home.path());
    let window = Window::open(home.path()).await;
    window.click("conversation-item").await;
    window.click("settings-open").await;
    window.find_css("#system-prompt").await;
    let set = "const [selector, text] = arguments[0]; const field = document.querySelector(selector); field.focus();
        const setter = Object.getOwnPropertyDescriptor(Object.getPrototypeOf(field), 'value').set;
        setter.call(field, text); field.dispatchEvent(new InputEvent('input', { bubbles: true }));
        field.dispatchEvent(new Event('change', { bubbles: true })); field.blur();";
    window
        .script(set, json!(["#system-prompt", "Answer in one word."]))
        .await;
    window.script(set, json!(["#stop-strings", "END"])).await;
    window
        .script(set, json!(["#when-full", "drop_oldest"]))
        .await;
    // Gives the change time to reach the shell.
    tokio::time::sleep(Duration::from_secs(1)).await;
    window.quit().await;
    let kept = history(home.path())
        .conversations()
        .expect("list")
        .remove(0);
    assert_eq!(kept.system_prompt, "Answer in one word.");
    assert_eq!(kept.sampling.stop, ["END"]);
    assert_eq!(kept.when_full, store::WhenFull::DropOldest);

    let window = Window::open(home.path()).await;
    window.click("conversation-item").await;
    window.click("settings-open").await;
    window.find_css("#system-prompt").await;
    let shown = "return ['#system-prompt', '#stop-strings', '#when-full'].map((field) => document.querySelector(field)?.value)";
    let expected = json!(["Answer in one word.", "END", "drop_oldest"]);
    until(&window, "what is shown", shown, |found| *found == expected).await;
    window.quit().await;
}

#[tokio::test]
async fn a_deleted_conversation_comes_back_by_undo_and_stays_away_after_a_restart() {
    let home = tempfile::tempdir().expect("folder");
    prepare(home.path());
    let window = Window::open(home.path()).await;
    window.click("conversation-item").await;
    window.say("Say one word.").await;
    let is_listed = |found: &Value| names(found, "A long story");
    let remove = "document.querySelector(\"[data-testid='delete']\").click()";
    window.find("delete").await;
    window.script(remove, Value::Null).await;
    until(&window, "it is gone", TITLES, |found| !is_listed(found)).await;
    window.click("toast-action").await;
    until(&window, "it is back", TITLES, is_listed).await;
    window.click("conversation-item").await;
    window.next_reply(|replies| replies.len() == 1).await;
    window.script(remove, Value::Null).await;
    until(&window, "it is gone again", TITLES, |found| {
        !is_listed(found)
    })
    .await;
    window.quit().await;

    let window = Window::open(home.path()).await;
    let there = window.script(TITLES, Value::Null).await;
    assert!(!is_listed(&there), "{there}");
    window.quit().await;
    assert!(
        history(home.path())
            .conversations()
            .expect("list")
            .is_empty()
    );
}

#[tokio::test]
async fn a_second_start_ends_at_once_and_another_folder_starts_beside_it() {
    let home = tempfile::tempdir().expect("folder");
    prepare(home.path());
    let window = Window::open(home.path()).await;
    let app = std::env::var("REPRISE_TEST_APP").expect("REPRISE_TEST_APP names the application");
    let start = Instant::now();
    let second = std::process::Command::new(app)
        .arg("--data-dir")
        .arg(home.path().join("reprise"))
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(second.status.success(), "{said}");
    assert!(said.contains("it is running already"), "{said}");
    assert!(
        start.elapsed() < Duration::from_secs(4),
        "{:?}",
        start.elapsed()
    );
    // The first window still works.
    window.click("conversation-item").await;
    window.say("Say one word.").await;

    let elsewhere = tempfile::tempdir().expect("folder");
    drop(DataFolder::open(Some(elsewhere.path().join("reprise"))).expect("data folder"));
    Subject::TINY.install(&elsewhere.path().join("reprise").join("models"));
    let other = Window::open(elsewhere.path()).await;
    assert!(other.engine().is_some() && other.engine() != window.engine());
    other.quit().await;
    assert!(window.engine().is_some());
    window.quit().await;
}
