use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use super::{Address, Command, Control, FILE, PATIENCE, address, ask, understood};
use crate::memory::Released;
use crate::request::Answer;

/// A listener whose engine answers every release with 7 bytes.
fn listening(folder: &Path) -> Control {
    let take = |command, answers: Sender<Answer>| {
        let answer = match command {
            Command::Release => Answer::Released(Released {
                freed_bytes: 7,
                was_loaded: true,
            }),
            Command::Memory | Command::Show => Answer::Done,
        };
        answers.send(answer).unwrap();
    };
    Control::listen(folder, take).unwrap()
}

fn found(folder: &Path) -> Address {
    serde_json::from_slice(&std::fs::read(folder.join(FILE)).unwrap()).unwrap()
}

/// What comes back for raw bytes.
fn said(folder: &Path, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address(found(folder).port)).unwrap();
    // The other side may close in the middle of what is sent.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

#[test]
fn a_release_is_asked_for_and_answered() {
    let folder = tempfile::tempdir().unwrap();
    let _control = listening(folder.path());
    let answer = ask(folder.path(), Command::Release).unwrap();
    assert!(
        matches!(
            answer,
            Some(Answer::Released(Released { freed_bytes: 7, .. }))
        ),
        "{answer:?}"
    );
    assert!(matches!(
        ask(folder.path(), Command::Memory).unwrap(),
        Some(Answer::Done)
    ));
}

#[test]
fn a_window_comes_forward_while_a_release_waits_for_a_reply() {
    let folder = tempfile::tempdir().unwrap();
    let (keep, kept) = channel();
    let take = move |command, answers: Sender<Answer>| match command {
        Command::Show => answers.send(Answer::Done).unwrap(),
        _ => keep.send(answers).unwrap(),
    };
    let control = Control::listen(folder.path(), take).unwrap();
    let path = folder.path().to_owned();
    let releasing = std::thread::spawn(move || ask(&path, Command::Release));
    let answers = kept.recv().unwrap();
    let shown = ask(folder.path(), Command::Show).unwrap();
    assert!(matches!(shown, Some(Answer::Done)), "{shown:?}");
    drop(answers);
    assert!(releasing.join().unwrap().is_err());
    drop(control);
}

#[test]
fn a_window_that_does_not_answer_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let (keep, _kept) = channel();
    let take = move |_, answers: Sender<Answer>| keep.send(answers).unwrap();
    let _control = Control::listen(folder.path(), take).unwrap();
    let start = Instant::now();
    let error = ask(folder.path(), Command::Show).unwrap_err();
    assert!(error.to_string().contains("gave no answer"), "{error}");
    assert!(start.elapsed() < 3 * PATIENCE, "{:?}", start.elapsed());
}

#[test]
fn nobody_else_is_understood_and_the_next_one_is_served_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let _control = listening(folder.path());
    let token = found(folder.path()).token;
    let hostile: [Vec<u8>; 8] = [
        b"release\n".to_vec(),
        b"\n".to_vec(),
        Vec::new(),
        vec![0xff; 300],
        format!("{} release\n", "0".repeat(64)).into_bytes(),
        format!("{token} shutdown\n").into_bytes(),
        format!("{token} release").into_bytes(),
        vec![b'a'; 1 << 20],
    ];
    for bytes in hostile {
        let start = &bytes[..bytes.len().min(80)];
        assert_eq!(said(folder.path(), &bytes), b"", "{start:?}");
    }
    assert!(ask(folder.path(), Command::Release).unwrap().is_some());
}

#[test]
fn a_client_that_dawdles_keeps_nobody_out() {
    let folder = tempfile::tempdir().unwrap();
    let _control = listening(folder.path());
    let mut slow = TcpStream::connect(address(found(folder.path()).port)).unwrap();
    let dawdling = std::thread::spawn(move || {
        for _ in 0..40 {
            std::thread::sleep(Duration::from_millis(200));
            if slow.write_all(b"a").is_err() {
                return;
            }
        }
        panic!("it was listened to for eight seconds");
    });
    let start = Instant::now();
    assert!(ask(folder.path(), Command::Release).unwrap().is_some());
    assert!(start.elapsed() < 3 * PATIENCE, "{:?}", start.elapsed());
    dawdling.join().unwrap();
}

#[test]
fn only_a_whole_line_with_the_token_is_a_command() {
    assert_eq!(understood("t release\n", "t"), Some(Command::Release));
    assert_eq!(understood("t memory\n", "t"), Some(Command::Memory));
    assert_eq!(understood("t show\n", "t"), Some(Command::Show));
    for line in [
        "t release",
        "t  release\n",
        "t release \n",
        "x release\n",
        " release\n",
        "release\n",
        "t\n",
    ] {
        assert_eq!(understood(line, "t"), None, "{line:?}");
    }
}

#[test]
fn the_file_goes_with_the_listener_and_a_stale_one_is_nobody() {
    let folder = tempfile::tempdir().unwrap();
    assert!(ask(folder.path(), Command::Release).unwrap().is_none());
    let control = listening(folder.path());
    let stale = std::fs::read(folder.path().join(FILE)).unwrap();
    drop(control);
    assert!(!folder.path().join(FILE).exists());
    assert!(ask(folder.path(), Command::Release).unwrap().is_none());
    std::fs::write(folder.path().join(FILE), stale).unwrap();
    assert!(ask(folder.path(), Command::Release).unwrap().is_none());
    std::fs::write(folder.path().join(FILE), "{").unwrap();
    let error = ask(folder.path(), Command::Release).unwrap_err();
    assert!(error.to_string().contains("delete it"), "{error}");
}

#[test]
fn something_else_on_the_port_is_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let other = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = other.local_addr().unwrap().port();
    std::thread::spawn(move || {
        other
            .accept()
            .map(|(mut s, _)| s.write_all(b"220 smtp\r\n"))
    });
    let text = format!("{{\"port\":{port},\"token\":\"t\"}}");
    std::fs::write(folder.path().join(FILE), text).unwrap();
    let error = ask(folder.path(), Command::Release).unwrap_err();
    assert!(error.to_string().contains("gave no answer"), "{error}");
}

#[test]
#[cfg(unix)]
fn the_file_is_for_its_owner_only_and_tokens_differ() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let first = listening(folder.path());
    let mode = folder
        .path()
        .join(FILE)
        .metadata()
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let token = found(folder.path()).token;
    assert_eq!(token.len(), 64);
    drop(first);
    let _second = listening(folder.path());
    assert_ne!(found(folder.path()).token, token);
}
