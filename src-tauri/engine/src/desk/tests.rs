use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use store::{ConversationId, History, NewConversation};

use super::{Desk, Work};
use crate::request::{Answer, Envelope, Question, Request};
use crate::turn::{Turn, TurnEvent, TurnOptions};

#[test]
fn a_turn_that_ended_does_not_refuse_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut history = History::open(&folder.path().join("history.db")).unwrap();
    let conversation = history
        .create_conversation(NewConversation::default(), 0)
        .unwrap()
        .id;
    let mut desk = Desk::new(Arc::new(Mutex::new(history)), || 0);
    let intake = desk.intake();
    for _ in 0..2 {
        let (answers, _events) = channel();
        let turn = Turn::Send {
            conversation: conversation.clone(),
            parent: None,
            text: "hello".into(),
            options: TurnOptions::default(),
        };
        intake.take(Envelope {
            request: Request::Turn { turn },
            answers,
        });
        // A refused turn never reaches the queue.
        intake.take(Envelope {
            request: Question::Loaded.into(),
            answers: channel().0,
        });
        assert!(matches!(
            desk.next(None, &mut || false),
            Some(Work::Turn(_))
        ));
        // Called before the last event, after which the next turn may be sent.
        desk.ended();
    }
}

#[test]
fn words_are_durable_while_the_engine_thread_is_busy() {
    let folder = tempfile::tempdir().unwrap();
    let mut history = History::open(&folder.path().join("history.db")).unwrap();
    let mut begin = || {
        let new = NewConversation::default();
        history.create_conversation(new, 0).unwrap().id
    };
    let (answered, other) = (begin(), begin());
    let (requests, inbox) = channel();
    let history = Arc::new(Mutex::new(history));
    let wake = requests.clone();
    let mut desk = Desk::open(wake, inbox, Arc::clone(&history), || 0).unwrap();
    let send = |conversation: &ConversationId| {
        let (answers, events) = channel();
        let turn = Turn::Send {
            conversation: conversation.clone(),
            parent: None,
            text: "hello".into(),
            options: TurnOptions::default(),
        };
        let request = Request::Turn { turn };
        requests.send(Envelope { request, answers }).unwrap();
        events
    };
    let first = send(&answered);
    let work = desk.next(None, &mut || false);
    assert!(matches!(work, Some(Work::Turn(_))));
    // From here on the engine thread tokenizes, loads or computes, and does not take work from the desk.
    let second = send(&other);
    for (events, conversation) in [(first, answered), (second, other)] {
        let event = events.recv_timeout(Duration::from_secs(20)).unwrap();
        let Answer::Turn(TurnEvent::Started {
            user: Some(user), ..
        }) = event
        else {
            panic!("{event:?}")
        };
        let stored = history.lock().unwrap().messages(&conversation).unwrap();
        assert_eq!(stored, [*user]);
    }
}

#[test]
fn who_asks_an_engine_that_has_ended_is_not_left_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let history = History::open(&folder.path().join("history.db")).unwrap();
    let (requests, inbox) = channel();
    let ask = || {
        let (answers, answer) = channel();
        let request = Question::Loaded.into();
        // Accepted or not, the sender for its answer must be dropped.
        let _ = requests.send(Envelope { request, answers });
        answer
    };
    let desk = Desk::open(requests.clone(), inbox, Arc::new(Mutex::new(history)), || 0).unwrap();
    let before = ask();
    drop(desk);
    assert!(before.recv_timeout(Duration::from_secs(20)).is_err());
    assert!(ask().recv().is_err());
    assert!(
        requests
            .send(Envelope {
                request: Question::Loaded.into(),
                answers: channel().0
            })
            .is_err()
    );
}

#[test]
fn a_conversation_that_was_left_is_not_warmed() {
    let folder = tempfile::tempdir().unwrap();
    let history = History::open(&folder.path().join("history.db")).unwrap();
    let mut desk = Desk::new(Arc::new(Mutex::new(history)), || 0);
    let intake = desk.intake();
    let send = |request| {
        let (answers, events) = channel();
        intake.take(Envelope { request, answers });
        events
    };
    let warm = |name: &str| Request::Warm {
        conversation: name.to_owned().into(),
    };
    let left = send(warm("left"));
    send(Question::Loaded.into());
    send(warm("opened"));
    let mut done = Vec::new();
    for _ in 0..2 {
        let Some(Work::Other(Envelope { request, .. })) = desk.next(None, &mut || false) else {
            panic!("two requests wait")
        };
        done.push(request);
    }
    assert!(matches!(
        &done[0],
        Request::Question {
            question: Question::Loaded
        }
    ));
    assert!(
        matches!(&done[1], Request::Warm { conversation } if conversation.as_str() == "opened")
    );
    assert!(matches!(left.try_recv(), Ok(Answer::Done)), "answered");

    assert!(!desk.has_warm(), "nobody waits for the running one to end");
    send(Question::Loaded.into());
    assert!(!desk.has_warm());
    send(warm("left"));
    assert!(desk.has_warm(), "the reader went elsewhere");
}

#[test]
fn pointing_at_another_conversation_does_not_cancel_the_one_that_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let history = History::open(&folder.path().join("history.db")).unwrap();
    let mut desk = Desk::new(Arc::new(Mutex::new(history)), || 0);
    let intake = desk.intake();
    let send = |request| {
        let answers = channel().0;
        intake.take(Envelope { request, answers });
    };
    let open = |name: &str| Request::Open {
        conversation: Some(name.to_owned().into()),
    };
    send(open("left"));
    send(open("opened"));
    send(Request::Warm {
        conversation: "pointed at".to_owned().into(),
    });
    assert!(desk.has_open());
    let Some(Work::Other(Envelope { request, .. })) = desk.next(None, &mut || false) else {
        panic!("two requests wait")
    };
    assert!(matches!(request, Request::Open { conversation: Some(id) } if id.as_str() == "opened"));
    assert!(!desk.has_open() && desk.has_warm());
}
