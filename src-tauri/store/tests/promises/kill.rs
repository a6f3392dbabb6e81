//! What a second process is told, and what a killed one leaves behind. The second process is this test binary itself.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use store::{DataFolder, Error, History, MessageState, NewConversation};

use crate::support::{TOKENIZER, message};

pub const FOLDER: &str = "REPRISE_TEST_CHILD_FOLDER";

/// Starts `test` of this binary on `folder`; returns when it has printed "ready".
fn child(test: &str, folder: &Path) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--ignored"])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(
        lines.any(|line| line.unwrap().ends_with("ready")),
        "the child ended early"
    );
    child
}

fn kill(mut child: Child) {
    child.kill().unwrap(); // SIGKILL
    child.wait().unwrap();
}

/// In the child: says that it is ready and waits to be killed.
fn wait_for_death() -> ! {
    println!("ready");
    std::io::stdout().flush().unwrap();
    loop {
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
}

pub fn child_folder() -> PathBuf {
    PathBuf::from(std::env::var_os(FOLDER).expect("run by another test"))
}

#[test]
#[ignore = "the other process of a_second_process_is_told_and_the_lock_goes_with_the_first"]
fn hold_the_lock() {
    let _folder = DataFolder::open(Some(child_folder())).unwrap();
    wait_for_death();
}

#[test]
fn a_second_process_is_told_and_the_lock_goes_with_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let holder = child("kill::hold_the_lock", folder.path());
    let refused = DataFolder::open(Some(folder.path().to_owned()));
    assert!(matches!(refused, Err(Error::AlreadyRunning { .. })));
    kill(holder);
    DataFolder::open(Some(folder.path().to_owned())).unwrap();
}

#[test]
#[ignore = "the other process of words_shown_survive_kill_9"]
fn write_a_reply() {
    let mut history = History::open(&child_folder().join("history.db")).unwrap();
    let talk = history
        .create_conversation(NewConversation::default(), 1)
        .unwrap();
    let user = history
        .append_message(
            message(&talk, None, store::Role::User, "tell me a story"),
            2,
        )
        .unwrap();
    let reply = history
        .begin_reply(&talk.id, &user.id, None, &TOKENIZER, 3)
        .unwrap();
    for piece in 0..200 {
        history
            .append_reply(&reply.id, &format!("w{piece} "), &[piece])
            .unwrap();
    }
    wait_for_death();
}

#[test]
fn words_shown_survive_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    kill(child("kill::write_a_reply", folder.path()));
    let history = History::open(&folder.path().join("history.db")).unwrap();
    let talk = history.conversations().unwrap().remove(0);
    let branch = history.branch(&talk.active_leaf.unwrap()).unwrap();
    assert_eq!(branch[0].text, "tell me a story");
    assert_eq!(branch[1].state, MessageState::Interrupted);
    assert_eq!(
        branch[1].text,
        (0..200)
            .map(|piece| format!("w{piece} "))
            .collect::<String>()
    );
    assert_eq!(
        history.tokens(&branch[1].id, &TOKENIZER).unwrap(),
        Some((0..200).collect())
    );
}
