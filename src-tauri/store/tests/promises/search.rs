use store::{MessageState, TokenRow};

use crate::support::{Scene, TOKENIZER};

fn found(scene: &mut Scene, text: &str) -> Vec<String> {
    scene
        .history()
        .search(text, 20)
        .unwrap()
        .into_iter()
        .map(|hit| hit.snippet)
        .collect()
}

#[test]
fn search_finds_every_word_and_the_beginning_of_the_last() {
    let mut scene = Scene::new();
    let talk = scene.conversation("birds");
    let swift = scene.user(&talk, None, "The swift sleeps on the wing");
    scene.user(&talk, Some(&swift.id), "A swallow does not");
    let hits = scene.history().search("SLEEPS swi", 20).unwrap();
    assert_eq!(hits.len(), 1);
    assert_eq!(
        (
            &hits[0].conversation,
            &hits[0].message,
            hits[0].title.as_str()
        ),
        (&talk.id, &swift.id, "birds")
    );
    assert_eq!(hits[0].snippet, "The swift sleeps on the wing");
    assert!(
        found(&mut scene, "swif sleeps").is_empty(),
        "only the last word may be unfinished"
    );
    assert_eq!(found(&mut scene, "sw").len(), 2);
    assert_eq!(scene.history().search("sw", 1).unwrap().len(), 1);
}

#[test]
fn query_syntax_is_plain_text() {
    let mut scene = Scene::new();
    let talk = scene.conversation("syntax");
    scene.user(
        &talk,
        None,
        "this AND that OR \"other\" NOT near(x) c++ a*b text:colon {brace} ^caret -minus",
    );
    let hostile = [
        "\"",
        "\"\"",
        "*",
        "AND",
        "OR",
        "NOT",
        "NEAR",
        "NEAR(",
        "NEAR(a b, 2)",
        "(",
        ")",
        "()",
        "text:",
        "text:colon",
        "-",
        "^",
        "^caret",
        "{brace}",
        "a*b",
        "c++",
        "\"unclosed",
        "';--",
        "\\",
        "a AND",
        "AND AND",
        "%",
        "_",
        "\0",
        "x\0y",
        "\u{202e}",
        "'",
        "+ +",
        "\"*\"",
        "…",
    ];
    for text in hostile {
        scene
            .history()
            .search(text, 20)
            .unwrap_or_else(|error| panic!("{text:?}: {error}"));
    }
    for text in [
        "AND",
        "\"other\"",
        "NOT near(x)",
        "c++",
        "a*b",
        "text:colon",
        "^caret",
        "-min",
        "\"",
        "*",
        "{",
    ] {
        assert_eq!(found(&mut scene, text).len(), 1, "{text:?}");
    }
    assert!(found(&mut scene, "").is_empty() && found(&mut scene, " \n").is_empty());
    assert!(found(&mut scene, "absent AND").is_empty());
}

#[test]
fn search_knows_unicode() {
    let mut scene = Scene::new();
    let talk = scene.conversation("unicode");
    scene.user(&talk, None, "Crème brûlée mit Äpfeln");
    scene.user(&talk, None, "我喜欢编译器和数据库");
    scene.user(&talk, None, "ราคาเท่าไหร่ครับ");
    scene.user(&talk, None, "Здравствуй, мир 🙂");
    for text in [
        "creme",
        "BRÛLÉE",
        "apfel",
        "编译器",
        "数据",
        "เท่า",
        "МИР",
        "🙂",
        "здрав",
    ] {
        assert_eq!(found(&mut scene, text).len(), 1, "{text:?}");
    }
}

#[test]
fn search_keeps_in_step_with_the_messages() {
    let mut scene = Scene::new();
    let talk = scene.conversation("step");
    let root = scene.user(&talk, None, "question");
    let now = scene.now();
    let reply = scene
        .history()
        .begin_reply(&talk.id, &root.id, None, &TOKENIZER, now)
        .unwrap();
    let row = TokenRow {
        tokenizer: TOKENIZER,
        ids: vec![1],
    };
    scene
        .history()
        .finish_reply(&reply.id, "first answer", &row, MessageState::Stopped, None)
        .unwrap();
    assert_eq!(found(&mut scene, "answer").len(), 1);
    scene.history().reopen_reply(&reply.id, None, &row).unwrap();
    scene
        .history()
        .finish_reply(&reply.id, "other words", &row, MessageState::Complete, None)
        .unwrap();
    assert!(found(&mut scene, "answer").is_empty());
    assert_eq!(found(&mut scene, "words").len(), 1);

    scene.history().delete_conversation(&talk.id, 1).unwrap();
    assert!(
        found(&mut scene, "words").is_empty(),
        "a deleted conversation is not found"
    );
    scene.history().restore_conversation(&talk.id).unwrap();
    assert_eq!(found(&mut scene, "words").len(), 1);
    scene.history().delete_conversation(&talk.id, 1).unwrap();
    scene.history().purge_deleted(i64::MAX).unwrap();
    assert!(found(&mut scene, "words").is_empty());
}

#[test]
fn a_snippet_shows_the_words_around_the_match() {
    let mut scene = Scene::new();
    let talk = scene.conversation("snippet");
    let filler = "lorem ipsum dolor sit amet ".repeat(40);
    scene.user(&talk, None, &format!("{filler}needle {filler}"));
    scene.user(
        &talk,
        None,
        &format!("{}针{}", "山".repeat(300), "水".repeat(300)),
    );
    for text in ["needle", "针"] {
        let snippet = found(&mut scene, text).remove(0);
        assert!(
            snippet.contains(text) && snippet.starts_with('…') && snippet.ends_with('…'),
            "{snippet}"
        );
        assert!(snippet.chars().count() < 200);
    }
}
