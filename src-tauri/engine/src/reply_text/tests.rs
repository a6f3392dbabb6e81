use models::tiny::{self, TinyModel};
use models::{Architecture, StopStrings, Tokenizer};

use super::{ReplyText, covered};

/// Chinese, an emoji of several code points, combining marks, Thai, and plain words between them.
const TEXTS: [&str; 4] = [
    "你好，世界。编译器很有趣。",
    "go 👨‍👩‍👧‍👦 🚀🔥💡 on",
    "e\u{301}\u{323} a\u{308}ffin o\u{302}\u{301}",
    "สวัสดีชาวโลก the end",
];

fn tokenizer() -> Tokenizer {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    tiny::write(&path, &TinyModel::new(Architecture::Llama, 1)).unwrap();
    Tokenizer::open(&path).unwrap()
}

/// How a process that writes a reply ends: by itself, by a stop, or by a kill.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Whole,
    Stopped,
    Killed,
}

struct Scene {
    tokenizer: Tokenizer,
    stops: Vec<String>,
}

impl Scene {
    fn resumed(&self, stored: &str, ids: &[u32]) -> ReplyText {
        let stops = StopStrings::new(self.stops.clone());
        ReplyText::resumed(stored, "", ids, self.tokenizer.detokenizer(), stops)
    }

    /// Continues from `stored` and `ids[..from]` up to `to` or to a stop string; returns the stored text and the number
    /// of stored ids.
    fn write(
        &self,
        stored: &str,
        ids: &[u32],
        from: usize,
        to: usize,
        end: End,
    ) -> (String, usize) {
        let mut text = self.resumed(stored, &ids[..from]);
        let mut shown = text.as_str().to_owned();
        let mut at = from;
        while at < to && !text.has_stopped() {
            shown.push_str(&text.push(ids[at]));
            at += 1;
        }
        let is_complete = end == End::Whole || text.has_stopped();
        if end != End::Killed {
            shown.push_str(&text.end(!is_complete));
        }
        assert_eq!(
            shown,
            text.as_str(),
            "what is shown piece by piece is the text"
        );
        (shown, at)
    }
}

#[test]
fn a_reply_cut_anywhere_and_continued_equals_the_one_that_was_not_cut() {
    let stops: [&[&str]; 5] = [
        &[],
        &["界。编"],
        &["🔥💡", "🚀🔥 "],
        &["\u{301}\u{323} a", "ชาว"],
        &["e en", "on", "。编译器很无聊"],
    ];
    let mut scene = Scene {
        tokenizer: tokenizer(),
        stops: Vec::new(),
    };
    for (text, stops) in TEXTS.iter().flat_map(|text| stops.map(|it| (text, it))) {
        scene.stops = stops.iter().map(|stop| (*stop).to_owned()).collect();
        let ids = scene.tokenizer.encode(text);
        let (whole, num_whole) = scene.write("", &ids, 0, ids.len(), End::Whole);
        assert!(text.starts_with(&whole));
        for cut in 0..=num_whole {
            for again in cut..=num_whole {
                for end in [End::Stopped, End::Killed] {
                    let (stored, at) = scene.write("", &ids, 0, cut, end);
                    assert!(text.starts_with(&stored), "{stored:?}");
                    let (stored, at) = scene.write(&stored, &ids, at, again, end);
                    let (continued, at) = scene.write(&stored, &ids, at, ids.len(), End::Whole);
                    assert_eq!(
                        (&continued, at),
                        (&whole, num_whole),
                        "{stops:?} cut at {cut} and {again}: {end:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_cut_reply_shows_nothing_for_half_a_character() {
    let scene = Scene {
        tokenizer: tokenizer(),
        stops: Vec::new(),
    };
    for text in TEXTS {
        let ids = scene.tokenizer.encode(text);
        for cut in 0..ids.len() {
            let (stored, _) = scene.write("", &ids, 0, cut, End::Stopped);
            assert!(text.starts_with(&stored), "{stored:?}");
        }
    }
    let ids = scene.tokenizer.encode("你");
    assert!(ids.len() > 1, "a character of several tokens");
    assert_eq!(scene.write("", &ids[..1], 0, 1, End::Whole).0, "\u{fffd}");
}

#[test]
fn bytes_that_never_were_a_character_and_control_tokens_stay_where_they_are() {
    let scene = Scene {
        tokenizer: tokenizer(),
        stops: Vec::new(),
    };
    let start = scene.tokenizer.special_id("<|im_start|>").unwrap();
    let half = |text: &str| scene.tokenizer.encode(text)[..1].to_vec();
    let mut ids = scene.tokenizer.encode("a");
    ids.extend(half("好"));
    ids.extend(scene.tokenizer.encode("b世"));
    // A control token has no text, even in the middle of a character.
    ids.insert(ids.len() - 1, start);
    ids.extend(half("🚀"));
    let (whole, _) = scene.write("", &ids, 0, ids.len(), End::Whole);
    assert_eq!(whole, "a\u{fffd}b世\u{fffd}");
    for cut in 0..=ids.len() {
        for end in [End::Stopped, End::Killed] {
            let (stored, _) = scene.write("", &ids, 0, cut, end);
            let (continued, _) = scene.write(&stored, &ids, cut, ids.len(), End::Whole);
            assert_eq!(continued, whole, "cut at {cut}: {end:?}");
        }
    }
}

#[test]
fn a_reply_that_was_stored_with_broken_characters_is_healed_when_it_goes_on() {
    let scene = Scene {
        tokenizer: tokenizer(),
        stops: Vec::new(),
    };
    for text in TEXTS {
        let ids = scene.tokenizer.encode(text);
        for (cut, again) in (0..ids.len()).flat_map(|cut| (cut..ids.len()).map(move |it| (cut, it)))
        {
            // Earlier versions decoded each part by itself.
            let parts = [&ids[..cut], &ids[cut..again]];
            let stored: String = parts.map(|part| scene.tokenizer.decode(part)).concat();
            let (healed, _) = scene.write(&stored, &ids, again, ids.len(), End::Whole);
            assert_eq!(healed, text, "cut at {cut} and {again}: {stored:?}");
        }
    }
}

#[test]
fn a_thought_that_the_prompt_opened_stays_open_when_its_reply_goes_on() {
    let tokenizer = tokenizer();
    let ids = tokenizer.encode("\nfor 好");
    let opening = "<think>\n";
    let whole = format!("{opening}\nfor 好");
    for cut in 0..=ids.len() {
        let stops = || StopStrings::new(vec!["\n\nfor".into(), "x".into()]);
        let mut text = ReplyText::new(tokenizer.detokenizer(), stops());
        text.open(opening);
        for &id in &ids[..cut] {
            text.push(id);
        }
        text.end(true);
        let mut text = ReplyText::resumed(
            text.as_str(),
            opening,
            &ids[..cut],
            tokenizer.detokenizer(),
            stops(),
        );
        for &id in &ids[cut..] {
            text.push(id);
        }
        text.end(false);
        assert_eq!(text.as_str(), whole, "cut at {cut}");
    }
}

#[test]
fn words_that_the_ids_do_not_say_are_kept() {
    let scene = Scene {
        tokenizer: tokenizer(),
        stops: vec!["END".into()],
    };
    // The template removed the space at the beginning.
    let ids = scene.tokenizer.encode("好 of E");
    let mut text = scene.resumed("  好 of E", &ids);
    assert_eq!(text.as_str(), "  好 of ");
    assert_eq!(text.end(true), "E");
    let mut text = scene.resumed("  好 of E", &ids);
    for id in scene.tokenizer.encode("ND") {
        text.push(id);
    }
    assert!(text.has_stopped() && text.as_str() == "  好 of ");
}

#[test]
fn what_was_shown_is_found_in_what_the_ids_say() {
    assert_eq!(covered("", "abc"), Some(0));
    assert_eq!(covered("ab", "abc"), Some(2));
    assert_eq!(covered("\u{fffd}\u{fffd}好", "你好，"), Some("你好".len()));
    assert_eq!(covered("a\u{fffd}", "a你"), Some("a你".len()));
    assert_eq!(covered("a\u{fffd}", "a\u{fffd}b"), Some("a\u{fffd}".len()));
    assert_eq!(covered(" a", "a"), None);
    assert_eq!(covered("a\u{fffd}b", "a你c"), None);
}
