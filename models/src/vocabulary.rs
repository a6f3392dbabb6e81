//! The bytes each token id stands for.

use std::collections::HashMap;

use crate::thought::is_tag;

/// What a token is, as the model file says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Text (type 1) or one raw byte (type 6): the only tokens that encoding text may yield.
    Text,
    /// Written by templates and tools, recognised in template text, shown as text (type 4: `<think>`).
    Marked,
    /// Steers the model (types 2, 3 and 5): recognised in template text, never shown.
    Control,
}

/// Token id → bytes and kind; name → id for the tokens that template text may name.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    bytes: Vec<Vec<u8>>,
    kinds: Vec<Kind>,
    named: HashMap<String, u32>,
    /// Names of special tokens, longest first, so that a scan finds the longest match.
    names: Vec<(String, u32)>,
}

impl Vocabulary {
    /// `types[i]` is the GGUF token type of `tokens[i]`; ids beyond `types` are text.
    pub(crate) fn new(tokens: &[String], types: &[u32]) -> Vocabulary {
        let bytes_of = char_bytes();
        let mut vocabulary = Vocabulary {
            bytes: Vec::with_capacity(tokens.len()),
            kinds: Vec::with_capacity(tokens.len()),
            named: HashMap::new(),
            names: Vec::new(),
        };
        for (id, token) in tokens.iter().enumerate() {
            let kind = match types.get(id).copied().unwrap_or(1) {
                1 | 6 => Kind::Text,
                4 => Kind::Marked,
                // The tag is shown so that a reader sees where the thought ends.
                _ if is_tag(token) => Kind::Marked,
                _ => Kind::Control,
            };
            let is_byte = types.get(id) == Some(&6);
            let bytes = match kind {
                Kind::Text if is_byte => {
                    raw_byte(token).map_or_else(|| token.as_bytes().to_vec(), |b| vec![b])
                }
                Kind::Text => text_bytes(token, &bytes_of),
                _ => token.as_bytes().to_vec(),
            };
            if kind != Kind::Text && !token.is_empty() {
                vocabulary.named.insert(token.clone(), id as u32);
                vocabulary.names.push((token.clone(), id as u32));
            }
            vocabulary.bytes.push(bytes);
            vocabulary.kinds.push(kind);
        }
        vocabulary
            .names
            .sort_by(|a, b| b.0.len().cmp(&a.0.len()).then(a.0.cmp(&b.0)));
        vocabulary
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes shown for `id`: none for control tokens and unknown ids.
    pub(crate) fn shown(&self, id: u32) -> &[u8] {
        match self.kinds.get(id as usize) {
            Some(Kind::Text | Kind::Marked) => &self.bytes[id as usize],
            _ => &[],
        }
    }

    pub(crate) fn kind(&self, id: u32) -> Option<Kind> {
        self.kinds.get(id as usize).copied()
    }

    pub(crate) fn special_id(&self, name: &str) -> Option<u32> {
        self.named.get(name).copied()
    }

    /// The name of a special token.
    pub(crate) fn name(&self, id: u32) -> Option<&str> {
        match self.kinds.get(id as usize)? {
            Kind::Text => None,
            _ => std::str::from_utf8(&self.bytes[id as usize]).ok(),
        }
    }

    /// The first special token named in `text`: (byte position, byte length, id). The longest name wins at one position.
    pub(crate) fn find_special(&self, text: &str) -> Option<(usize, usize, u32)> {
        let mut best: Option<(usize, usize, u32)> = None;
        for (name, id) in &self.names {
            // Names come longest first: a shorter one must start strictly earlier to win.
            if let Some(at) = text
                .find(name.as_str())
                .filter(|&at| best.is_none_or(|b| at < b.0))
            {
                best = Some((at, name.len(), *id));
            }
        }
        best
    }
}

/// `<0x0A>` → 10.
fn raw_byte(token: &str) -> Option<u8> {
    u8::from_str_radix(token.strip_prefix("<0x")?.strip_suffix('>')?, 16).ok()
}

fn text_bytes(token: &str, bytes_of: &HashMap<char, u8>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(token.len());
    for c in token.chars() {
        match bytes_of.get(&c) {
            Some(b) => bytes.push(*b),
            None => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    bytes
}

/// The printable stand-in of every byte in a byte-level vocabulary (GPT-2): printable Latin-1 stands for itself, the
/// others are numbered from U+0100 on.
pub(crate) fn byte_chars() -> [char; 256] {
    let mut chars = ['\0'; 256];
    let mut next = 0x100u32;
    for (b, slot) in chars.iter_mut().enumerate() {
        let printable = matches!(b, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
        let code = if printable {
            b as u32
        } else {
            next += 1;
            next - 1
        };
        *slot = char::from_u32(code).unwrap_or('\u{fffd}');
    }
    chars
}

fn char_bytes() -> HashMap<char, u8> {
    byte_chars()
        .iter()
        .enumerate()
        .map(|(b, c)| (*c, b as u8))
        .collect()
}
