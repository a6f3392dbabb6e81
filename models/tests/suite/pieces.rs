//! Tokenizing long texts and long conversations: the counted cost, and the same ids as in one go.

use models::{ChatMessage, ChatTemplate, Ends, Error, Extent, Role, Tokenizer};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::golden::small;
use crate::support::{default_model, fixture};

const DATE: &str = "2026-03-01T09:05:07Z";

/// Building blocks of test texts: words, numbers, signs, scripts with and without spaces, marks, line ends, controls.
const SCRAPS: [&str; 36] = [
    "bread",
    "salt ",
    " water",
    "don't",
    "WE'LL",
    "'s",
    "1234567",
    "12",
    " 3.5",
    "x1y2",
    "\n",
    "\r\n",
    "\n\n",
    " ",
    "   ",
    "\t",
    "...",
    "!?",
    " (",
    ")",
    "=>",
    "语言",
    "，",
    "ภาษาไทย",
    "です",
    "。",
    "한국어",
    "e\u{301}",
    "é",
    "\u{301}",
    "🙂",
    "👩‍👩‍👧",
    "مرحبا",
    "<|im_end|>",
    "\u{a0}",
    "\u{200b}",
];

fn text(seed: u64, num_bytes: usize) -> String {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut text = String::new();
    while text.len() < num_bytes {
        let scrap = SCRAPS.choose(&mut random).unwrap();
        for _ in 0..random.random_range(1..4) {
            text.push_str(scrap);
        }
    }
    text
}

fn prose(num_words: usize) -> String {
    (0..num_words)
        .map(|word| format!("w{} ", word * 7919 % 1_000_003))
        .collect()
}

/// The ids of `text`, at most `most`, the number of bytes run through the merges, and whether the bound was reached.
fn encode(tokenizer: &Tokenizer, text: &str, most: usize) -> (Vec<u32>, u64, bool) {
    let before = tokenizer.num_encoded_bytes();
    let mut ids = Vec::new();
    let mut go_on = || true;
    let mut extent = Extent::new(most, &mut go_on);
    tokenizer
        .encode_within(text, &mut ids, &mut extent)
        .unwrap();
    let bytes = tokenizer.num_encoded_bytes() - before;
    (ids, bytes, extent.is_used_up())
}

#[test]
fn a_text_in_pieces_has_the_ids_of_the_whole() {
    for pre in ["smollm", "llama-bpe", "qwen2", "gpt-2"] {
        let tokenizer = small(pre);
        for seed in 0..12 {
            let text = text(seed, 40_000);
            assert_eq!(
                tokenizer.encode(&text),
                tokenizer.encode_at_once(&text),
                "{pre}, {seed}"
            );
        }
    }
    let tokenizer = default_model().tokenizer();
    let text = text(99, 200_000);
    assert_eq!(tokenizer.encode(&text), tokenizer.encode_at_once(&text));
}

#[test]
fn what_stands_of_a_text_keeps_its_ids_whatever_follows() {
    for pre in ["smollm", "llama-bpe", "qwen2", "gpt-2"] {
        let tokenizer = small(pre);
        let mut random = ChaCha8Rng::seed_from_u64(7);
        for seed in 0..200 {
            let whole = text(seed, 400);
            let end = (0..=whole.len()).filter(|&at| whole.is_char_boundary(at));
            let end = *end.collect::<Vec<_>>().choose(&mut random).unwrap();
            let stands = tokenizer.standing(&whole[..end]);
            let (head, tail) = whole.split_at(stands);
            let apart = [tokenizer.encode(head), tokenizer.encode(tail)].concat();
            assert_eq!(
                tokenizer.encode(&whole),
                apart,
                "{pre}: {head:?} | {tail:?}"
            );
        }
    }
}

#[test]
fn a_script_without_spaces_stands_nearly_whole() {
    let tokenizer = default_model().tokenizer();
    for (script, text) in [
        (
            "Chinese",
            "我们今天去北京看长城的时候天气非常好所以大家都很高兴".repeat(20),
        ),
        (
            "Thai",
            "ภาษาไทยเป็นภาษาที่มีระดับเสียงของคำแน่นอนหรือวรรณยุกต์".repeat(12),
        ),
        (
            "Japanese",
            "今日は天気がとても良いのでみんなで公園へ散歩に行きました".repeat(20),
        ),
    ] {
        let stands = tokenizer.standing(&text);
        assert!(
            text.len() - stands < 64,
            "{script}: {stands} of {}",
            text.len()
        );
        let head = tokenizer.encode(&text[..stands]);
        assert!(tokenizer.encode(&text).starts_with(&head), "{script}");
    }
}

#[test]
fn a_draft_that_grows_is_tokenized_where_it_grew() {
    let tokenizer = small("qwen2");
    let text = prose(60_000);
    let (_, all, _) = encode(&tokenizer, &text, usize::MAX);
    assert!(all as usize >= text.len());
    let (_, again, _) = encode(&tokenizer, &format!("{text}and more"), usize::MAX);
    assert!(again < 10_000, "{again} bytes for two words at the end");
    let mut inserted = text.clone();
    inserted.insert_str(text.len() / 2, " in the middle");
    let (ids, again, _) = encode(&tokenizer, &inserted, usize::MAX);
    assert!(
        again < 30_000,
        "{again} bytes for three words in the middle"
    );
    assert_eq!(ids, tokenizer.encode_at_once(&inserted));
}

#[test]
fn a_text_that_cannot_fit_is_tokenized_no_further_than_there_is_room() {
    let tokenizer = small("smollm");
    let text = prose(1_000_000);
    let (ids, bytes, is_used_up) = encode(&tokenizer, &text, 1000);
    assert!(is_used_up && ids.len() > 1000);
    assert!(
        tokenizer.encode_at_once(&text[..40_000]).starts_with(&ids),
        "a beginning"
    );
    assert!(bytes < 20_000, "{bytes} of {}", text.len());
    // The length in bytes alone shows that a run that cannot be cut is too long.
    let run = "x".repeat(5_000_000);
    let (_, bytes, is_used_up) = encode(&tokenizer, &run, 1000);
    assert!(is_used_up && bytes == 0);
}

#[test]
fn tokenizing_stops_between_two_pieces_and_goes_on_from_there() {
    let tokenizer = small("smollm");
    let text = prose(40_000);
    let mut pieces_left = 10;
    let mut go_on = || {
        pieces_left -= 1;
        pieces_left >= 0
    };
    let mut extent = Extent::new(usize::MAX, &mut go_on);
    let stopped = tokenizer.encode_within(&text, &mut Vec::new(), &mut extent);
    assert!(matches!(stopped, Err(Error::Interrupted)));
    let first = tokenizer.num_encoded_bytes();
    assert!(first < 60_000, "{first} bytes before it was seen");
    encode(&tokenizer, &text, usize::MAX);
    let rest = tokenizer.num_encoded_bytes() - first;
    assert!(
        rest <= text.len() as u64 - first + 1,
        "what was done is not done again"
    );
}

const ALL: [(&str, &str); 5] = [
    ("smollm", "smollm"),
    ("llama3", "llama-bpe"),
    ("qwen2.5", "qwen2"),
    ("qwen3", "qwen2"),
    ("mistral", "gpt-2"),
];

fn conversation(turns: usize) -> Vec<ChatMessage<'static>> {
    (0..turns)
        .map(|index| ChatMessage {
            role: if index % 2 == 0 {
                Role::User
            } else {
                Role::Assistant
            },
            content: if index % 2 == 0 {
                "And why is that?"
            } else {
                "Because of the salt."
            },
            tokens: None,
        })
        .collect()
}

#[test]
fn a_branch_of_many_turns_is_rendered_in_linear_time() {
    for (name, vocabulary) in ALL {
        let tokenizer = small(vocabulary);
        let template = ChatTemplate::new(&fixture(&format!("templates/{name}.jinja"))).unwrap();
        let lists = template
            .tokenize(&tokenizer, &conversation(600), DATE)
            .unwrap();
        let rendered = template.num_rendered_messages();
        assert!(rendered < 600 * 30, "{name}: {rendered} messages");
        // The same words have the same ids in every message.
        for index in 4..599 {
            assert_eq!(lists[index], lists[index - 2], "{name}: message {index}");
        }
    }
}

#[test]
fn a_template_that_counts_its_messages_is_rendered_whole() {
    let tokenizer = small("smollm");
    let text = "{% for m in messages %}<|im_start|>{{ loop.index0 }} {{ m.content }}<|im_end|>\n{% endfor %}{{ '<|im_start|>' }}";
    let template = ChatTemplate::new(text).unwrap();
    let lists = template
        .tokenize(&tokenizer, &conversation(41), DATE)
        .unwrap();
    let last = tokenizer.decode(&lists[40]);
    assert!(last.contains("40 And why"), "{last:?}");
}

#[test]
fn a_prompt_ends_where_the_content_does() {
    for (name, vocabulary) in ALL {
        let tokenizer = small(vocabulary);
        let template = ChatTemplate::new(&fixture(&format!("templates/{name}.jinja"))).unwrap();
        let whole = "And why is that, if it is so?";
        let tokens = |content: &str, ends| {
            let mut messages = conversation(2);
            messages.push(ChatMessage {
                role: Role::User,
                content,
                tokens: None,
            });
            let lists =
                template.tokenize_within(&tokenizer, &messages, DATE, ends, &mut Extent::whole());
            lists.unwrap().concat()
        };
        let sent = tokens(whole, Ends::WithTurn);
        let nothing = tokens("", Ends::InContent);
        let stands = tokenizer.standing(whole);
        assert_eq!(&whole[stands..], "?");
        let typed = tokens(&whole[..stands], Ends::InContent);
        assert!(
            sent.starts_with(&typed) && sent.starts_with(&nothing),
            "{name}"
        );
        assert!(typed.len() > nothing.len() && typed.len() < sent.len());
    }
}
