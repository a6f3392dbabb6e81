//! A message is read while it is typed; sending it computes the rest, and nothing else can be told from it.

use std::path::Path;
use std::sync::{Arc, Mutex};

use engine::{Answer, Cache, Request, Session, Turn, TurnOptions, draft_tokens};
use models::{DigestCache, Extent, Model};
use store::{BlockStore, Budget, Conversation};
use tests::{Chat, Subject, prose};

const TYPED: [&str; 9] = [
    "Why does bread need steam in the first minutes?",
    "  It's 1234567 o'clock; don't we'll they're \t ok...  \n\n Yes.",
    "def f(x):\n    return x ** 2  # square\n\n\nprint(f(3))\n",
    "one  two   three    four\n\n\n\nfive.\n\n(six)",
    "Größe: 3,14 m² — naïve café… “quoted”",
    "我喜欢 学习 中文。 很 好！",
    "مرحبا بالعالم كيف الحال",
    "🙂 👩‍👩‍👧 emoji 🇩🇪 and e\u{301} marks",
    "<|im_end|> is not special <|im_start|>user here",
];

pub fn model(folder: &Path, subject: Subject) -> Model {
    subject.install(folder);
    let mut files = std::fs::read_dir(folder).expect("folder").flatten();
    let file = files.next().expect("model").path();
    Model::load(&file, kernels::physical_cores(), &DigestCache::new(None)).expect("model")
}

/// Types `text` letter by letter after the active leaf: everything that is read ahead on the way.
fn typed(chat: &Chat, model: &Model, text: &str) -> Vec<Vec<u32>> {
    let conversation = chat.history().conversation(&chat.conversation);
    let conversation = conversation.expect("talk");
    let ends = text.char_indices().map(|(at, char)| at + char.len_utf8());
    ends.map(|end| draft(chat, model, &conversation, &text[..end]))
        .collect()
}

/// The tokens prefilled for the draft `text` after the active leaf.
fn draft(chat: &Chat, model: &Model, conversation: &Conversation, text: &str) -> Vec<u32> {
    let (history, above) = (chat.shared_history(), conversation.active_leaf.as_ref());
    let mut extent = Extent::whole();
    draft_tokens(history, model, conversation, above, text, &mut extent).expect("draft")
}

#[test]
fn what_is_read_ahead_is_the_beginning_of_what_is_sent() {
    for subject in [Subject::Real, Subject::TINY] {
        let folder = tempfile::tempdir().expect("folder");
        let model = model(folder.path(), subject);
        for system in ["", "Be brief."] {
            let mut chat = Chat::with_system(subject, system);
            chat.max_tokens = 2;
            for text in TYPED {
                let drafts = typed(&chat, &model, text);
                let sent = chat.say(text);
                let mut tokens = chat.branch_tokens(&sent.message);
                tokens.truncate(tokens.len() - sent.ids.len());
                // No message owns the tokens of the system prompt.
                let system = sent.prompt_tokens as usize - tokens.len();
                for (index, draft) in drafts.iter().enumerate() {
                    let own = &draft[system.min(draft.len())..];
                    assert!(
                        tokens.starts_with(own),
                        "{subject:?}: letter {index} of {text:?}"
                    );
                }
                assert!(
                    drafts
                        .iter()
                        .any(|draft| draft.len() + 48 > sent.prompt_tokens as usize),
                    "{text:?}"
                );
            }
        }
    }
}

fn sending_computes_the_rest(subject: Subject) {
    let mut chat = Chat::with_system(subject, "Be brief.");
    chat.say(&prose(0, 40));
    let text = prose(1, 120);
    let unsent = chat.preview(None, &text);
    for words in [3, 40, 41, 90, 120] {
        chat.draft(None, &prose(1, words));
    }
    let ready = chat.draft(None, &text);
    assert!(ready > unsent.keeps + 100, "{ready} of {unsent:?}");
    let mut cold = chat.without_cache();
    // The copy needed a restart, which forgets what was not sent.
    chat.engine().load(None).expect("model");
    assert_eq!(chat.draft(None, &text), ready);
    let sent = chat.say(&text);
    assert_eq!(sent.prefill.computed, sent.prompt_tokens - ready);
    assert_eq!(
        sent.prefill.resident + sent.prefill.restored,
        ready,
        "drafted tokens count as resident"
    );
    assert!(sent.prefill.restored > 0, "and restored ones as restored");
    assert_eq!(sent.ids, cold.say(&text).ids);
    // Now that it is sent it is kept like any other turn.
    chat.restart();
    let next = chat.say("And then?");
    assert!(next.prefill.computed < 40, "{:?}", next.prefill);
}

#[test]
fn sending_a_draft_computes_only_the_rest() {
    sending_computes_the_rest(Subject::TINY);
}

#[test]
fn sending_a_draft_computes_only_the_rest_on_the_default_model() {
    sending_computes_the_rest(Subject::Real);
}

#[test]
fn an_edit_that_is_typed_computes_only_the_rest() {
    let mut chat = Chat::new(Subject::TINY);
    chat.say(&prose(0, 60));
    chat.say(&prose(1, 60));
    let message = chat.user_messages()[0].clone();
    let text = prose(2, 60);
    let ready = chat.draft(Some(&message), &text);
    let cost = chat.preview(Some(&message), &text);
    assert_eq!(cost.keeps, ready, "the preview tells the truth");
    let edited = chat.edit(&message, &text);
    assert_eq!(edited.prefill.computed, edited.prompt_tokens - ready);
}

#[test]
fn words_that_are_typed_differently_cost_their_suffix() {
    let mut chat = Chat::new(Subject::TINY);
    chat.say("Start.");
    chat.draft(None, &prose(0, 150));
    let other = format!("{} something else entirely", prose(0, 90));
    let common = chat.draft(None, &prose(0, 90));
    assert!(common > chat.preview(None, &other).of / 2);
    let sent = chat.say(&other);
    let mut cold = chat.without_cache();
    let history_is_the_same = cold.regenerate(&sent.message);
    assert_eq!(sent.ids, history_is_the_same.ids);
    assert!(sent.prefill.computed <= sent.prompt_tokens - common);
}

#[test]
fn a_discarded_draft_leaves_nothing_behind() {
    let mut chat = Chat::new(Subject::TINY);
    let mut twin = Chat::new(Subject::TINY);
    for chat in [&mut chat, &mut twin] {
        chat.say(&prose(0, 100));
    }
    chat.engine().load(None).expect("model");
    let before = chat.engine().cache_stats().expect("stats");
    let kept = chat.preview(None, &prose(1, 150)).keeps;
    assert!(chat.draft(None, &prose(1, 150)) > kept);
    assert_eq!(chat.draft(None, ""), 0);
    let after = chat.engine().cache_stats().expect("stats");
    assert_eq!(
        (before.num_blocks, before.file_bytes),
        (after.num_blocks, after.file_bytes)
    );
    assert_eq!(chat.preview(None, &prose(1, 150)).keeps, kept);
    let (next, expected) = (chat.say("And then?"), twin.say("And then?"));
    assert_eq!((next.prefill, next.ids), (expected.prefill, expected.ids));
}

#[test]
fn an_abandoned_session_gives_its_slots_back() {
    let folder = tempfile::tempdir().expect("folder");
    let model = Arc::new(model(&folder.path().join("models"), Subject::TINY));
    let store = BlockStore::open(&folder.path().join("kv"), Budget::Bytes(1 << 30));
    let store = Arc::new(Mutex::new(store));
    let mut cache = Cache::open(model, 8 << 20, store).expect("cache");
    let go_on = &mut |_: &_, _| std::ops::ControlFlow::Continue(());
    let prompt: Vec<u32> = (0..300).map(|token| token % 90 + 5).collect();
    let mut session = Session::new();
    session
        .sync(&mut cache, &prompt[..150], go_on)
        .expect("sync");
    session.close(&mut cache);
    let mut aside = Session::aside();
    for len in [200, 290, 260, 300] {
        aside.sync(&mut cache, &prompt[..len], go_on).expect("sync");
        cache.check(&[aside.table()]).expect("counts");
    }
    aside.abandon(&mut cache);
    cache.check(&[]).expect("counts");
    cache.flush();
    let written = cache.bytes_written();
    let mut again = Session::new();
    let synced = again.sync(&mut cache, &prompt, go_on).expect("sync");
    assert_eq!(
        (synced.prefill.resident, synced.prefill.computed),
        (150, 150)
    );
    again.abandon(&mut cache);
    assert!(written > 0);
}

#[test]
fn a_draft_makes_way_for_a_turn() {
    let chat = Chat::new(Subject::Real);
    chat.engine().load(None).expect("model");
    let other = chat.new_conversation("");
    let text = prose(0, 900);
    let total = chat.preview(None, &text).of;
    let engine = chat.engine();
    let conversation = chat.conversation.clone();
    let ready = std::thread::scope(|scope| {
        let drafting = scope.spawn(|| {
            engine.ask(Request::Draft {
                conversation,
                message: None,
                text,
            })
        });
        std::thread::sleep(std::time::Duration::from_millis(30));
        let turn = Turn::Send {
            conversation: other,
            parent: None,
            text: "Hello.".into(),
            options: TurnOptions {
                greedy: true,
                seed: None,
                max_tokens: Some(1),
                ..TurnOptions::default()
            },
        };
        assert!(engine.submit(turn).count() > 2);
        assert!(
            drafting.is_finished(),
            "the turn came after the draft had made way"
        );
        drafting.join().expect("draft")
    });
    let Ok(Answer::Drafted { tokens }) = ready else {
        panic!("{ready:?}")
    };
    assert!(
        tokens < total / 2,
        "{tokens} of {total} were read before the turn"
    );
}

fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("folder").flatten() {
        let path = entry.path();
        if path.is_dir() && !path.ends_with("models") {
            found.extend(files(&path));
        } else if path.is_file() {
            found.push((
                path.display().to_string(),
                std::fs::read(&path).expect("file"),
            ));
        }
    }
    found
}

fn holds(file: &[u8], bytes: &[u8]) -> bool {
    file.windows(bytes.len()).any(|window| window == bytes)
}

#[test]
fn an_unsent_draft_is_in_no_file() {
    let folder = tempfile::tempdir().expect("folder");
    let model = model(folder.path(), Subject::TINY);
    let mut chat = Chat::new(Subject::TINY);
    chat.say(&prose(0, 100));
    let text = "Nobody shall ever know of the xylophone in the quagmire";
    let secret = format!("{} {text}", prose(3, 150));
    let ids = model.tokenizer().encode(text);
    let ids: Vec<u8> = ids[4..16].iter().flat_map(|id| id.to_le_bytes()).collect();
    assert!(chat.draft(None, &secret) > 150);
    chat.stop();
    let home = chat.home().to_owned();
    for (name, bytes) in files(&home) {
        assert!(!holds(&bytes, &ids), "{name} holds its token ids");
        assert!(!holds(&bytes, text.as_bytes()), "{name} holds its words");
    }
    // The same search finds what was sent.
    chat.start();
    chat.say(&secret);
    chat.stop();
    let found = files(&home);
    assert!(found.iter().any(|(_, bytes)| holds(bytes, &ids)));
    assert!(found.iter().any(|(_, bytes)| holds(bytes, text.as_bytes())));
}
