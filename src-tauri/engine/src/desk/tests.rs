use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use store::{History, NewConversation};

use super::{Desk, Work};
use crate::request::{Answer, Envelope, Request};
use crate::turn::{Turn, TurnOptions};

#[test]
fn a_turn_that_ended_does_not_refuse_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut history = History::open(&folder.path().join("history.db")).unwrap();
    let conversation = history
        .create_conversation(NewConversation::default(), 0)
        .unwrap()
        .id;
    let (requests, inbox) = channel();
    let mut desk = Desk::new(inbox, Arc::new(Mutex::new(history)), || 0);
    for _ in 0..2 {
        let (answers, _events) = channel();
        let turn = Turn::Send {
            conversation: conversation.clone(),
            parent: None,
            text: "hello".into(),
            options: TurnOptions::default(),
        };
        requests
            .send(Envelope {
                request: Request::Turn { turn },
                answers,
            })
            .unwrap();
        // The turn that `next` gave before has ended by now. The second one goes missing when it is refused.
        requests
            .send(Envelope {
                request: Request::Loaded,
                answers: channel().0,
            })
            .unwrap();
        assert!(matches!(
            desk.next(None, &mut || false),
            Some(Work::Turn(_))
        ));
    }
}

#[test]
fn a_conversation_that_was_left_is_not_warmed() {
    let folder = tempfile::tempdir().unwrap();
    let history = History::open(&folder.path().join("history.db")).unwrap();
    let (requests, inbox) = channel();
    let mut desk = Desk::new(inbox, Arc::new(Mutex::new(history)), || 0);
    let send = |request| {
        let (answers, events) = channel();
        requests.send(Envelope { request, answers }).unwrap();
        events
    };
    let warm = |name: &str| Request::Warm {
        conversation: name.to_owned().into(),
    };
    let left = send(warm("left"));
    send(Request::Loaded);
    send(warm("opened"));
    let mut done = Vec::new();
    for _ in 0..2 {
        let Some(Work::Other(Envelope { request, .. })) = desk.next(None, &mut || false) else {
            panic!("two requests wait")
        };
        done.push(request);
    }
    assert!(matches!(&done[0], Request::Loaded));
    assert!(
        matches!(&done[1], Request::Warm { conversation } if conversation.as_str() == "opened")
    );
    assert!(matches!(left.try_recv(), Ok(Answer::Done)), "answered");

    assert!(!desk.has_warm(), "nobody waits for the running one to end");
    send(Request::Loaded);
    desk.poll();
    assert!(!desk.has_warm());
    send(warm("left"));
    desk.poll();
    assert!(desk.has_warm(), "the reader went elsewhere");
}

#[test]
fn pointing_at_another_conversation_does_not_cancel_the_one_that_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let history = History::open(&folder.path().join("history.db")).unwrap();
    let (requests, inbox) = channel();
    let mut desk = Desk::new(inbox, Arc::new(Mutex::new(history)), || 0);
    let send = |request| {
        let answers = channel().0;
        requests.send(Envelope { request, answers }).unwrap();
    };
    let open = |name: &str| Request::Open {
        conversation: Some(name.to_owned().into()),
    };
    send(open("left"));
    send(open("opened"));
    send(Request::Warm {
        conversation: "pointed at".to_owned().into(),
    });
    desk.poll();
    assert!(desk.has_open());
    let Some(Work::Other(Envelope { request, .. })) = desk.next(None, &mut || false) else {
        panic!("two requests wait")
    };
    assert!(matches!(request, Request::Open { conversation: Some(id) } if id.as_str() == "opened"));
    assert!(!desk.has_open() && desk.has_warm());
}
