//! How text is cut before byte-pair merging, per `tokenizer.ggml.pre`.

use tokenizers::normalizers::NFC;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::tokenizer::SplitDelimiterBehavior;

/// Words with one leading mark, numbers of up to three digits, runs of marks, line ends, spaces (GPT-4's pattern).
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The same, but every digit stands alone.
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The way from text to pieces that merging never crosses.
pub(crate) struct PreTokenizer {
    pub(crate) normalizer: Option<NFC>,
    pub(crate) split: PreTokenizerWrapper,
    /// A piece that is a token as a whole is that token, whatever the merges say.
    pub(crate) ignore_merges: bool,
    /// Whether the reference puts the BOS token first when the file does not say.
    pub(crate) adds_bos: bool,
}

impl PreTokenizer {
    /// `None`: a pre-tokenizer that is not known here, so that guessing would give wrong ids.
    pub(crate) fn named(name: &str) -> Option<PreTokenizer> {
        let gpt2 = ByteLevel::new(false, true, true);
        match name {
            "default" | "gpt-2" | "gpt2" => Some(PreTokenizer {
                normalizer: None,
                split: gpt2.into(),
                ignore_merges: false,
                adds_bos: false,
            }),
            "smollm" => Some(PreTokenizer {
                normalizer: None,
                split: Sequence::new(vec![Digits::new(true).into(), gpt2.into()]).into(),
                ignore_merges: false,
                adds_bos: false,
            }),
            "llama-bpe" | "llama3" | "llama-v3" => Some(PreTokenizer {
                normalizer: None,
                split: pattern(LLAMA3)?,
                ignore_merges: true,
                adds_bos: true,
            }),
            "qwen2" => Some(PreTokenizer {
                normalizer: Some(NFC),
                split: pattern(QWEN2)?,
                ignore_merges: false,
                adds_bos: false,
            }),
            _ => None,
        }
    }
}

fn pattern(regex: &str) -> Option<PreTokenizerWrapper> {
    let split = Split::new(
        SplitPattern::Regex(regex.into()),
        SplitDelimiterBehavior::Isolated,
        false,
    )
    .ok()?;
    Some(
        Sequence::new(vec![
            split.into(),
            ByteLevel::new(false, true, false).into(),
        ])
        .into(),
    )
}
