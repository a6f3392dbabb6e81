//! A bounds check of a GGUF header before the real parser sees it.
//!
//! candle's reader checks most lengths against the file, but it divides by `general.alignment` and makes a 32-byte
//! value of every array element; this walk allocates nothing, refuses what would hurt, and says what is wrong.
//!
//! Layout (little endian): magic, version u32, tensor count u64, metadata count u64; metadata: key, type u32, value;
//! tensors: name, dimensions u32, sizes u64 …, type u32, offset u64. Strings are a u64 length and bytes.

/// More array elements than any vocabulary and merge list together have.
const MAX_ELEMENTS: u64 = 4 << 20;
/// More than any model file has.
const MAX_ENTRIES: u64 = 1 << 20;
/// Longer than any key or tensor name.
const MAX_NAME: u64 = 256;
const MAX_DEPTH: usize = 4;

/// Why a header is not valid.
#[derive(Debug)]
pub(crate) enum Flaw {
    /// The file ends inside it.
    Ends(String),
    /// The header is malformed.
    Nonsense(String),
}

impl From<String> for Flaw {
    fn from(reason: String) -> Self {
        Self::Nonsense(reason)
    }
}

type Checked<T> = Result<T, Flaw>;

/// The length of the header in bytes, up to the end of the tensor table, or why it is not valid. `bytes` begin with the
/// magic number of GGUF.
pub(crate) fn check(bytes: &[u8]) -> Checked<usize> {
    let mut walk = Walk {
        bytes,
        at: 0,
        elements: 0,
    };
    walk.skip(4, "the magic")?;
    let version = walk.u32("the version")?;
    if !(2..=3).contains(&version) {
        return Err(format!("GGUF version {version} is not 2 or 3").into());
    }
    let tensors = walk.count("tensors", MAX_ENTRIES)?;
    let entries = walk.count("metadata entries", MAX_ENTRIES)?;
    for _ in 0..entries {
        let key = walk.name("a metadata key")?;
        let kind = walk.u32(&key)?;
        if key == "general.alignment" {
            walk.alignment(kind)?;
        } else {
            walk.value(&key, kind, 0)?;
        }
    }
    for _ in 0..tensors {
        let name = walk.name("a tensor name")?;
        let dimensions = walk.u32(&name)?;
        if dimensions > 4 {
            return Err(format!("tensor {name} has {dimensions} dimensions").into());
        }
        walk.skip(8 * u64::from(dimensions) + 4 + 8, &name)?;
    }
    Ok(walk.at)
}

struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Array elements so far, over all entries.
    elements: u64,
}

impl Walk<'_> {
    fn skip(&mut self, n: u64, what: &str) -> Checked<()> {
        if n > (self.bytes.len() - self.at) as u64 {
            return Err(Flaw::Ends(format!("it ends inside the header (at {what})")));
        }
        self.at += n as usize;
        Ok(())
    }

    fn u32(&mut self, what: &str) -> Checked<u32> {
        self.skip(4, what)?;
        let bytes = &self.bytes[self.at - 4..self.at];
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn u64(&mut self, what: &str) -> Checked<u64> {
        let low = u64::from(self.u32(what)?);
        Ok(low | u64::from(self.u32(what)?) << 32)
    }

    fn count(&mut self, what: &str, most: u64) -> Checked<u64> {
        let count = self.u64(what)?;
        if count > most {
            return Err(format!("it claims {count} {what}").into());
        }
        Ok(count)
    }

    /// A key or a tensor's name, printable in one short line.
    fn name(&mut self, what: &str) -> Checked<String> {
        let length = self.u64(what)?;
        if length > MAX_NAME {
            return Err(format!("{what} claims {length} bytes").into());
        }
        self.skip(length, what)?;
        let bytes = &self.bytes[self.at - length as usize..self.at];
        Ok(String::from_utf8_lossy(bytes).escape_debug().to_string())
    }

    fn alignment(&mut self, kind: u32) -> Checked<()> {
        if kind != 4 {
            return Err(Flaw::Nonsense(
                "general.alignment is not a 32-bit number".into(),
            ));
        }
        let alignment = self.u32("general.alignment")?;
        if !alignment.is_power_of_two() || alignment > 1 << 20 {
            return Err(format!("general.alignment is {alignment}").into());
        }
        Ok(())
    }

    fn value(&mut self, key: &str, kind: u32, depth: usize) -> Checked<()> {
        match kind {
            0 | 1 | 7 => self.skip(1, key),
            2 | 3 => self.skip(2, key),
            4..=6 => self.skip(4, key),
            10..=12 => self.skip(8, key),
            8 => {
                let length = self.u64(key)?;
                self.skip(length, key)
            }
            9 if depth < MAX_DEPTH => {
                let element = self.u32(key)?;
                let length = self.u64(key)?;
                self.elements = self.elements.saturating_add(length);
                if self.elements > MAX_ELEMENTS {
                    return Err(format!("{key} claims {length} elements").into());
                }
                (0..length).try_for_each(|_| self.value(key, element, depth + 1))
            }
            _ => Err(format!("{key} has an unknown value type ({kind})").into()),
        }
    }
}
