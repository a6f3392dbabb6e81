//! What balances a model's keys before they are rounded (see `kernels::KeyBalance`), measured once and remembered.

use std::io::Write;
use std::path::{Path, PathBuf};

use kernels::{BLOCK_TOKENS, KeyBalance, KvFormat};

use crate::config::ModelConfig;
use crate::decoder::{Decoder, Place};
use crate::error::Result;
use crate::tokenizer::Tokenizer;

/// Most tokens that are read for it.
const TOKENS: usize = 256;

/// Prose, code, figures and a few languages, as they come up in conversations. A change of it changes every model's balance:
/// bump `DECODER_NUMERICS`.
const TEXT: &str = "\
The kettle had been on for ten minutes before anyone noticed. \"You could have said something,\" she laughed, and opened the \
window. How long does it take to cook rice for 12 people? Rinse 900 g, add 1.35 l of water, and wait 18 minutes.\n\n\
```python\ndef area(width: float, height: float) -> float:\n    \"\"\"Square metres.\"\"\"\n    if width < 0 or height < 0:\n        \
raise ValueError(\"negative\")\n    return width * height\n```\n\n1. First, read the letter.\n2. Then answer it: briefly, kindly.\n\n\
Der Zug kommt um halb acht an. Merci beaucoup, à demain. El río baja crecido. 今日はとても寒い。 Это было давно.\n\n\
| year | people |\n|---|---|\n| 1900 | 1,650,000,000 |\n\nIn short: measure twice, cut once, and keep the receipt.";

const MAGIC: &[u8; 8] = b"RPKEYBAL";

/// Measures it, or reads what was measured before with these weights and this arithmetic (`name` says which) in `folder`.
pub(crate) fn of(
    decoder: &Decoder,
    config: &ModelConfig,
    tokenizer: &Tokenizer,
    folder: Option<&Path>,
    name: &[u8; 32],
) -> Result<KeyBalance> {
    let layout = config.kv_layout(KvFormat::F16);
    let file = folder.map(|folder| {
        folder
            .join("balance")
            .join(blake3::Hash::from(*name).to_hex().as_str())
    });
    let kept = file.as_deref().and_then(read);
    if let Some(balance) = kept.and_then(|numbers| KeyBalance::from_numbers(&numbers, &layout).ok())
    {
        return Ok(balance);
    }
    let mut tokens: Vec<u32> = tokenizer.bos().into_iter().collect();
    tokens.extend(tokenizer.encode(TEXT));
    tokens.truncate(TOKENS.min(config.context_length));
    let pool = decoder.pool(layout, tokens.len().div_ceil(BLOCK_TOKENS))?;
    (0..pool.num_slots() as u32).try_for_each(|slot| pool.reserve(slot))?;
    let table: Vec<u32> = (0..pool.num_slots() as u32).collect();
    let place = Place {
        offset: 0,
        pool: &pool,
        table: &table,
    };
    let balance = decoder.measure_keys(&tokens, place)?;
    if let Some(file) = file
        && let Err(error) = write(&file, &balance.numbers())
    {
        tracing::warn!(path = %file.display(), %error, "the balance of keys was not saved");
    }
    Ok(balance)
}

// A file: magic 8 bytes, the numbers as f32 little endian, BLAKE3 of all before it. It is a cache: anything else is none.
fn read(path: &Path) -> Option<Vec<f32>> {
    let bytes = std::fs::read(path).ok()?;
    let (content, digest) = bytes.split_last_chunk::<32>()?;
    if blake3::hash(content) != *digest {
        return None;
    }
    let numbers = content.strip_prefix(MAGIC)?.as_chunks::<4>();
    Some(
        numbers
            .0
            .iter()
            .map(|bytes| f32::from_le_bytes(*bytes))
            .collect(),
    )
}

fn write(path: &Path, numbers: &[f32]) -> std::io::Result<()> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    bytes.extend_from_slice(blake3::hash(&bytes).as_bytes());
    let partial: PathBuf = path.with_extension("partial");
    std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
    let mut file = std::fs::File::create(&partial)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    std::fs::rename(&partial, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_balance_is_read_again_and_a_damaged_one_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b.balance");
        assert_eq!(read(&path), None);
        let numbers = [1.5, -2.0, 0.25];
        write(&path, &numbers).unwrap();
        assert_eq!(read(&path).unwrap(), numbers);
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            std::fs::write(&path, &bytes).unwrap();
            assert_eq!(read(&path), None, "byte {at}");
            std::fs::write(&path, &whole[..at]).unwrap();
            assert_eq!(read(&path), None, "cut at {at}");
        }
    }
}
