use store::{HitKind, Mark, MessageState, SearchHit, TokenRow};

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
        (&talk.id, &Some(swift.id.clone()), "birds")
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
    scene
        .history()
        .reopen_reply(&reply.id, "first answer", None, &row)
        .unwrap();
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

/// The marked parts of a snippet.
fn marked(hit: &SearchHit) -> Vec<String> {
    let chars: Vec<char> = hit.snippet.chars().collect();
    let slice = |mark: &Mark| {
        chars[mark.start as usize..mark.end as usize]
            .iter()
            .collect()
    };
    hit.marks.iter().map(slice).collect()
}

#[test]
fn every_word_is_found_in_every_script_and_marked_as_it_stands() {
    let cases: serde_json::Value =
        serde_json::from_str(include_str!("../fixtures/search.json")).unwrap();
    for case in cases.as_array().unwrap() {
        let (text, query) = (
            case["text"].as_str().unwrap(),
            case["query"].as_str().unwrap(),
        );
        let mut scene = Scene::new();
        let talk = scene.conversation("of something else entirely");
        scene.user(&talk, None, text);
        let hits = scene.history().search(query, 9).unwrap();
        let found = case["found"].as_array();
        assert_eq!(
            hits.len(),
            usize::from(found.is_some()),
            "{query} in {text}"
        );
        if let Some(found) = found {
            assert_eq!(hits[0].kind, HitKind::Message);
            assert_eq!(
                serde_json::json!(marked(&hits[0])),
                serde_json::json!(found),
                "{query} in {text}"
            );
        }
        // The index and the direct comparison give the same hits.
        let without_index = Scene::without_index(&mut scene).search(query, 9).unwrap();
        assert_eq!(hits, without_index, "{query} in {text}");
    }
}

#[test]
fn titles_are_found_and_come_first() {
    let mut scene = Scene::new();
    let talk = scene.conversation("");
    let first = scene.user(&talk, None, "How much zucchini grows on a plant?");
    let by_name = scene.history().search("zucchini", 9).unwrap();
    assert_eq!(
        by_name.len(),
        1,
        "a title that was made of the message says nothing more: {by_name:?}"
    );
    scene.history().rename(&talk.id, "Täxes\n2026").unwrap();
    let hits = scene.history().search("2026 taxes", 9).unwrap();
    assert_eq!(
        (
            hits.len(),
            hits[0].kind,
            &hits[0].conversation,
            &hits[0].message,
            hits[0].snippet.as_str()
        ),
        (1, HitKind::Title, &talk.id, &None, "Täxes 2026")
    );
    assert_eq!(marked(&hits[0]), ["Täxes", "2026"]);
    scene.user(&talk, Some(&first.id), "about taxes");
    let kinds: Vec<_> = scene
        .history()
        .search("taxes", 9)
        .unwrap()
        .iter()
        .map(|hit| hit.kind)
        .collect();
    assert_eq!(kinds, [HitKind::Title, HitKind::Message]);
    for n in 0..9 {
        scene.conversation(&format!("taxes {n}"));
    }
    let kinds: Vec<_> = scene
        .history()
        .search("taxes", 6)
        .unwrap()
        .iter()
        .map(|hit| hit.kind)
        .collect();
    assert_eq!(
        kinds,
        [
            HitKind::Title,
            HitKind::Title,
            HitKind::Title,
            HitKind::Message
        ],
        "messages keep their place"
    );
    scene.history().delete_conversation(&talk.id, 1).unwrap();
    assert!(scene.history().search("2026", 9).unwrap().is_empty());
}

#[test]
fn a_title_that_another_program_wrote_is_found() {
    let mut scene = Scene::new();
    let talk = scene.conversation("old");
    scene.user(&talk, None, "words");
    scene.history = None;
    let raw = rusqlite::Connection::open(scene.path()).unwrap();
    raw.execute_batch(
        "UPDATE conversation SET title = 'Taxes 2026'; UPDATE message SET text = 'other words'",
    )
    .unwrap();
    drop(raw);
    scene.reopen();
    assert_eq!(
        scene.history().search("taxes", 9).unwrap()[0].kind,
        HitKind::Title
    );
    assert_eq!(found(&mut scene, "other"), ["other words"]);
}

#[test]
fn a_snippet_shows_as_many_of_the_words_as_it_can() {
    let mut scene = Scene::new();
    let talk = scene.conversation("snippets");
    let filler = "lorem ipsum dolor\n\n".repeat(30);
    scene.user(
        &talk,
        None,
        &format!("alpha {filler} alpha\tbeta\u{202e} {filler}"),
    );
    let hit = scene.history().search("beta alpha", 9).unwrap().remove(0);
    assert_eq!(marked(&hit), ["alpha", "beta"]);
    assert!(
        !hit.snippet.contains(['\n', '\t', '\u{202e}']),
        "{}",
        hit.snippet
    );
}

#[test]
fn a_long_history_is_searched_as_a_short_one() {
    let mut scene = Scene::new();
    let talk = scene.conversation("long");
    let mut parent = None;
    let words = ["lorem", "ipsum", "dolor", "sit", "amet", "consectetur"];
    for n in 0..3000usize {
        let text: Vec<&str> = (0..60)
            .map(|at| words[(n * 7 + at * 3) % words.len()])
            .collect();
        let text = format!("{} 北京的天气{n}很好 number{n}", text.join(" "));
        parent = Some(scene.user(&talk, parent.as_ref(), &text).id);
    }
    for (query, num_hits) in [("天气", 50), ("amet ipsum", 50), ("C++ number1", 0)] {
        assert_eq!(scene.history().search(query, 50).unwrap().len(), num_hits);
    }
    assert_eq!(found(&mut scene, "number2999").len(), 1);
}
