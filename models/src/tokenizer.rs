//! Text to ids and back, from the model file's own vocabulary.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokenizers::Tokenizer as Merger;
use tokenizers::models::bpe::{BPE, Vocab};

use crate::detokenizer::Detokenizer;
use crate::error::{Error, Result};
use crate::extent::Extent;
use crate::gguf::GgufFile;
use crate::pieces::{self, Pieces};
use crate::pre_tokenizer::PreTokenizer;
use crate::sampler::{Sampler, SamplerConfig};
use crate::thought;
use crate::vocabulary::{Kind, Vocabulary, byte_chars};

/// A byte-level BPE tokenizer. `encode` knows no special tokens at all: whatever a person types is plain text. Special
/// tokens come from the chat template only.
pub struct Tokenizer {
    merger: Merger,
    vocabulary: Arc<Vocabulary>,
    bos: Option<u32>,
    adds_bos: bool,
    eos: Option<u32>,
    ends: HashSet<u32>,
    /// Special tokens and end-of-turn tokens.
    no_text: Arc<HashSet<u32>>,
    digest: [u8; 32],
    /// Length in bytes of the longest text token.
    longest_bytes: usize,
    pieces: Pieces,
    /// Number of bytes that were run through the merges.
    encoded_bytes: AtomicU64,
}

/// A run without a cut that is at least twice this long counts as stable up to this many bytes before its end: a merge
/// spans the characters of one token, and a token of a script without spaces has a few characters of three bytes.
const UNSURE_BYTES: usize = 36;
/// A longer run without a cut is not split further.
const MOST_RUN_BYTES: usize = 16 << 10;

/// Names that end a turn in the families at hand, where the vocabulary has them as control tokens.
const END_NAMES: [&str; 8] = [
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eot|>",
    "</s>",
];

impl Tokenizer {
    /// The tokenizer of a model file, without its weights.
    pub fn open(path: &Path) -> Result<Tokenizer> {
        Tokenizer::read(&GgufFile::open(path)?)
    }

    pub(crate) fn read(file: &GgufFile) -> Result<Tokenizer> {
        match file.text("tokenizer.ggml.model")? {
            None => return Err(file.broken("it has no tokenizer (tokenizer.ggml.model)")),
            Some("gpt2") => {}
            Some("llama") => {
                return Err(file.unsupported(
                    "its tokenizer is SentencePiece (\"llama\"), which is not supported yet",
                ));
            }
            Some(other) => {
                return Err(file.unsupported(format!(
                    "its tokenizer is {other:?}, which is not supported yet"
                )));
            }
        }
        let missing = |key: &str| file.broken(format!("{key} is missing"));
        let key = "tokenizer.ggml.tokens";
        let tokens = file
            .texts(key)?
            .filter(|t| !t.is_empty())
            .ok_or_else(|| missing(key))?;
        let types = file
            .numbers("tokenizer.ggml.token_type")?
            .unwrap_or_default();
        let key = "tokenizer.ggml.merges";
        let merges = file.texts(key)?.ok_or_else(|| missing(key))?;
        let pre = file.text("tokenizer.ggml.pre")?.unwrap_or("default");
        let pre_tokenizer = PreTokenizer::named(pre).ok_or_else(|| {
            file.unsupported(format!(
                "its pre-tokenizer is {pre:?}; supported are smollm, llama-bpe, qwen2 and gpt-2"
            ))
        })?;
        let id = |key: &str| -> Result<Option<u32>> {
            match file.number(key)? {
                None => Ok(None),
                Some(id) if (id as usize) < tokens.len() && id < u64::from(u32::MAX) => {
                    Ok(Some(id as u32))
                }
                Some(id) => {
                    Err(file.broken(format!("{key} is {id}, beyond the {} tokens", tokens.len())))
                }
            }
        };
        let bos = id("tokenizer.ggml.bos_token_id")?;
        let eos = id("tokenizer.ggml.eos_token_id")?;
        let adds_bos = file
            .flag("tokenizer.ggml.add_bos_token")?
            .unwrap_or(pre_tokenizer.adds_bos);
        let vocabulary = Vocabulary::new(&tokens, &types);
        let mut ends: HashSet<u32> = END_NAMES
            .iter()
            .filter_map(|name| vocabulary.special_id(name))
            .collect();
        ends.extend(eos);
        ends.extend(id("tokenizer.ggml.eot_token_id")?);
        ends.extend(id("tokenizer.ggml.eom_token_id")?);
        let special = (0..vocabulary.len() as u32)
            .filter(|id| vocabulary.kind(*id).is_some_and(|kind| kind != Kind::Text));
        let no_text = Arc::new(special.chain(ends.iter().copied()).collect());
        let digest = digest(pre, &tokens, &types, &merges, bos.filter(|_| adds_bos));
        let merger = merger(&tokens, &merges, &vocabulary, pre_tokenizer)
            .map_err(|reason| file.broken(reason))?;
        let texts = (0..vocabulary.len() as u32)
            .filter(|&id| vocabulary.kind(id) == Some(Kind::Text))
            .map(|id| vocabulary.shown(id).len());
        let longest_bytes = texts.max().unwrap_or(1).max(1);
        Ok(Tokenizer {
            merger,
            longest_bytes,
            pieces: Pieces::default(),
            encoded_bytes: AtomicU64::new(0),
            vocabulary: Arc::new(vocabulary),
            bos,
            adds_bos,
            eos,
            ends,
            no_text,
            digest,
        })
    }

    /// The ids of plain text. Never a special token, whatever the text says.
    pub fn encode(&self, text: &str) -> Vec<u32> {
        let mut ids = Vec::new();
        // Without bounds it always completes.
        if self
            .encode_within(text, &mut ids, &mut Extent::whole())
            .is_err()
        {
            tracing::warn!("a text was not tokenized to its end");
        }
        ids
    }

    /// Encodes a text in one go, however long it is; the reference for encoding in pieces.
    pub fn encode_at_once(&self, text: &str) -> Vec<u32> {
        self.merge(text)
    }

    /// Appends the token ids of plain text to `ids`, piece by piece: all of them, or a prefix once `extent` is used up.
    /// The pieces of a long text are cached and not tokenized again.
    ///
    /// # Errors
    /// [`Error::Interrupted`] when `extent` is interrupted.
    pub fn encode_within(
        &self,
        text: &str,
        ids: &mut Vec<u32>,
        extent: &mut Extent<'_>,
    ) -> Result<()> {
        let mut start = 0;
        while start < text.len() {
            if !extent.is_wanted() {
                return Err(Error::Interrupted);
            }
            let end = pieces::piece_end(text, start);
            let piece = &text[start..end];
            // A piece that cannot be cut and exceeds the maximum even if every token is as long as possible.
            let least = piece.len() / self.longest_bytes;
            if least > extent.tokens_left() {
                extent.take(least);
                return Ok(());
            }
            // The last piece may still grow, so it is not cached.
            let before = ids.len();
            match end == text.len() {
                true => ids.extend(self.merge(piece)),
                false => ids.extend_from_slice(&self.pieces.ids(piece, || self.merge(piece))),
            }
            if !extent.take(ids.len() - before) {
                return Ok(());
            }
            start = end;
        }
        Ok(())
    }

    /// The byte length of the prefix of `text` whose token ids stay the same whatever is appended; 0 if there is none.
    /// Inside a long run without a cut, as in a script without spaces, this is very likely but not certain.
    pub fn standing(&self, text: &str) -> usize {
        let cut = pieces::last_cut(text).unwrap_or(0);
        let run = &text[cut..];
        if !(2 * UNSURE_BYTES..=MOST_RUN_BYTES).contains(&run.len()) {
            return cut;
        }
        let most = run.len() - UNSURE_BYTES;
        let mut stands = 0;
        let mut end = 0;
        for id in self.merge(run) {
            end += self.vocabulary.shown(id).len();
            if end > most {
                break;
            }
            if run.is_char_boundary(end) {
                stands = end;
            }
        }
        // Trailing white space may still be trimmed, and text outside the vocabulary is not counted.
        cut + run[..stands].trim_end().len()
    }

    /// Number of bytes that were run through the merges so far.
    pub fn num_encoded_bytes(&self) -> u64 {
        self.encoded_bytes.load(Ordering::Relaxed)
    }

    fn merge(&self, text: &str) -> Vec<u32> {
        let num_bytes = text.len() as u64;
        self.encoded_bytes.fetch_add(num_bytes, Ordering::Relaxed);
        match self.merger.encode_fast(text, false) {
            Ok(encoding) => encoding.get_ids().to_vec(),
            Err(error) => {
                tracing::warn!(%error, "tokenizer fell back to single bytes");
                self.encode_bytes(text)
            }
        }
    }

    /// One token per byte that the vocabulary has.
    fn encode_bytes(&self, text: &str) -> Vec<u32> {
        let chars = byte_chars();
        text.bytes()
            .filter_map(|b| self.merger.token_to_id(&chars[b as usize].to_string()))
            .collect()
    }

    /// The id of a special token by name.
    pub fn special_id(&self, name: &str) -> Option<u32> {
        self.vocabulary.special_id(name)
    }

    /// How many ids there are.
    pub fn num_tokens(&self) -> usize {
        self.vocabulary.len()
    }

    /// Digest of everything that decides which ids a text gets, BOS policy included.
    pub fn digest(&self) -> [u8; 32] {
        self.digest
    }

    /// The token that begins every prompt, where the model wants one.
    pub fn bos(&self) -> Option<u32> {
        self.bos.filter(|_| self.adds_bos)
    }

    /// Whether generation ends with this token.
    pub fn is_end(&self, id: u32) -> bool {
        self.ends.contains(&id)
    }

    /// The text of ids; control tokens have none, broken characters become U+FFFD.
    pub fn decode(&self, ids: &[u32]) -> String {
        let mut detokenizer = self.detokenizer();
        let mut text: String = ids.iter().map(|id| detokenizer.push(*id)).collect();
        text.push_str(&detokenizer.finish());
        text
    }

    /// The opening thought tag at the end of a prompt, with the white space after it; the reply then begins inside the
    /// thought.
    pub fn opened_thought(&self, prompt: &[u32]) -> Option<String> {
        /// More tokens than any tag and the white space after it.
        const TOKENS: usize = 16;
        let end = self.decode(&prompt[prompt.len().saturating_sub(TOKENS)..]);
        thought::opening(&end).map(str::to_owned)
    }

    /// Creates a sampler for unmodified logits. Tokens that are not text are exempt from the repetition penalty: ending
    /// a turn or a thought like the one before is not a repetition.
    pub fn sampler(&self, config: SamplerConfig) -> Sampler {
        Sampler::sparing(config, Arc::clone(&self.no_text))
    }

    /// For text as it is generated.
    pub fn detokenizer(&self) -> Detokenizer {
        Detokenizer::new(Arc::clone(&self.vocabulary))
    }

    /// Names that templates know as `bos_token` and `eos_token`.
    pub(crate) fn bos_name(&self) -> Option<&str> {
        self.bos.and_then(|id| self.vocabulary.name(id))
    }

    pub(crate) fn eos_name(&self) -> Option<&str> {
        self.eos.and_then(|id| self.vocabulary.name(id))
    }

    /// The first special token named in template text: (byte position, byte length, id).
    pub(crate) fn find_special(&self, text: &str) -> Option<(usize, usize, u32)> {
        self.vocabulary.find_special(text)
    }
}

/// The `tokenizers` pipeline over the text tokens alone. Special tokens are left out of its vocabulary, so no merge and no
/// whole-word match can produce one; merges that name a token the vocabulary lacks are left out with them.
fn merger(
    tokens: &[String],
    merges: &[String],
    vocabulary: &Vocabulary,
    pre: PreTokenizer,
) -> std::result::Result<Merger, String> {
    let vocab: Vocab = tokens
        .iter()
        .enumerate()
        .filter(|(id, _)| vocabulary.kind(*id as u32) == Some(Kind::Text))
        .map(|(id, token)| (token.clone(), id as u32))
        .collect();
    // Some vocabularies lack tokens for rare control bytes; such bytes are left out of the ids, as the reference does.
    let chars = byte_chars();
    if let Some(byte) = (b' '..=b'~').find(|b| !vocab.contains_key(&chars[*b as usize].to_string()))
    {
        return Err(format!(
            "its vocabulary has no token for {:?}",
            char::from(byte)
        ));
    }
    let mut pairs = Vec::with_capacity(merges.len());
    for merge in merges {
        let (left, right) = merge
            .split_once(' ')
            .ok_or_else(|| format!("the merge {merge:?} is not two tokens"))?;
        if [left, right, &format!("{left}{right}")]
            .iter()
            .all(|token| vocab.contains_key(*token))
        {
            pairs.push((left.to_string(), right.to_string()));
        }
    }
    let bpe = BPE::builder()
        .vocab_and_merges(vocab, pairs)
        .ignore_merges(pre.ignore_merges)
        .build()
        .map_err(|error| format!("its tokenizer is broken: {error}"))?;
    let mut merger = Merger::new(bpe);
    merger
        .with_normalizer(pre.normalizer)
        .map_err(|error| error.to_string())?;
    merger.with_pre_tokenizer(Some(pre.split));
    Ok(merger)
}

fn digest(
    pre: &str,
    tokens: &[String],
    types: &[u32],
    merges: &[String],
    bos: Option<u32>,
) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    let mut field = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    field(b"reprise tokenizer 1");
    field(pre.as_bytes());
    field(&bos.map_or(Vec::new(), |id| id.to_le_bytes().to_vec()));
    field(
        &types
            .iter()
            .flat_map(|t| t.to_le_bytes())
            .collect::<Vec<_>>(),
    );
    field(&(tokens.len() as u64).to_le_bytes());
    tokens.iter().for_each(|token| field(token.as_bytes()));
    merges.iter().for_each(|merge| field(merge.as_bytes()));
    *hasher.finalize().as_bytes()
}
