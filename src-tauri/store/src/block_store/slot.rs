//! One slot of a pool file: a header that says what the payload is, and the payload.

use std::fs::File;

use xxhash_rust::xxh3::xxh3_64;

use super::{Block, SlotFormat};
use crate::file;

const MAGIC: &[u8; 8] = b"RPKVSLOT";
/// Raised with any change of the layout below; slots of another version are misses.
pub(super) const VERSION: u32 = 1;
/// Slots and payloads begin on multiples of this, the page of every usual disk and memory.
const ALIGN: u64 = 4096;
/// Where the token ids begin.
const TOKENS_AT: usize = 104;

// A slot, version 1; numbers little endian:
//
//      0  magic            8 bytes, "RPKVSLOT"
//      8  version          u32, 1
//     12  block_tokens     u32
//     16  num_slabs        u32
//     20  slab_bytes       u32
//     24  position         u32, absolute index of the first token
//     28  num_tokens       u32, 1 ..= block_tokens
//     32  id               32 bytes
//     64  parent           32 bytes, zero if there is none
//     96  has_parent       u32, 0 or 1
//    100  zero             u32
//    104  token ids        block_tokens × u32; zero from num_tokens on
//      …  slab checksums   num_slabs × u64, XXH3-64 of the slab's first num_tokens rows
//      …  header checksum  u64, XXH3-64 of all bytes before it
//      …  not written, up to the next multiple of 4096
//      …  payload          num_slabs × slab_bytes; of each slab the first num_tokens rows are written
//      …  not written, up to the next multiple of 4096
impl SlotFormat {
    /// A shape this store can hold. The bounds are far above any model's; they keep a damaged row from asking for the moon.
    pub(super) fn is_sound(&self) -> bool {
        (1..=4096).contains(&self.block_tokens)
            && (1..=65_536).contains(&self.num_slabs)
            && self.slab_bytes > 0
            && self.slab_bytes.is_multiple_of(self.block_tokens)
            && u64::from(self.num_slabs) * u64::from(self.slab_bytes) <= 1 << 30
    }

    pub(super) fn header_bytes(&self) -> usize {
        TOKENS_AT + 4 * self.block_tokens as usize + 8 * self.num_slabs as usize + 8
    }

    fn payload_at(&self) -> u64 {
        (self.header_bytes() as u64).next_multiple_of(ALIGN)
    }

    pub(super) fn slot_bytes(&self) -> u64 {
        self.payload_at() + (self.payload_bytes() as u64).next_multiple_of(ALIGN)
    }

    /// Bytes of one slab that hold something in a block of so many tokens.
    fn valid_bytes(&self, num_tokens: usize) -> usize {
        num_tokens * self.row_bytes()
    }

    /// What is written for a block: header and valid rows.
    pub(super) fn written_bytes(&self, num_tokens: usize) -> u64 {
        (self.header_bytes() + self.num_slabs as usize * self.valid_bytes(num_tokens)) as u64
    }
}

/// The header up to the slab checksums.
fn description(format: &SlotFormat, block: &Block) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(format.header_bytes());
    bytes.extend_from_slice(MAGIC);
    let num_tokens = block.tokens.len() as u32;
    for number in [
        VERSION,
        format.block_tokens,
        format.num_slabs,
        format.slab_bytes,
        block.position,
        num_tokens,
    ] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(&block.id.0);
    bytes.extend_from_slice(&block.parent.map_or([0; 32], |parent| parent.0));
    bytes.extend_from_slice(&u32::from(block.parent.is_some()).to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    block
        .tokens
        .iter()
        .for_each(|token| bytes.extend_from_slice(&token.to_le_bytes()));
    bytes.resize(TOKENS_AT + 4 * format.block_tokens as usize, 0);
    bytes
}

/// The valid rows of each slab.
fn slabs<'a>(
    format: &SlotFormat,
    payload: &'a [u8],
    num_tokens: usize,
) -> impl Iterator<Item = &'a [u8]> + use<'a> {
    let valid = format.valid_bytes(num_tokens);
    payload
        .chunks_exact(format.slab_bytes as usize)
        .map(move |slab| &slab[..valid])
}

/// Writes a block's header and valid rows; returns how many bytes that were.
pub(super) fn write(
    file: &File,
    at: u64,
    format: &SlotFormat,
    block: &Block,
    payload: &[u8],
) -> std::io::Result<u64> {
    let num_tokens = block.tokens.len();
    let mut header = description(format, block);
    slabs(format, payload, num_tokens)
        .for_each(|rows| header.extend_from_slice(&xxh3_64(rows).to_le_bytes()));
    let checksum = xxh3_64(&header);
    header.extend_from_slice(&checksum.to_le_bytes());
    file::write_all_at(file, &header, at)?;

    // Counted as it is written: the caller reports it.
    let mut written = header.len();
    let payload_at = at + format.payload_at();
    if num_tokens == format.block_tokens as usize {
        file::write_all_at(file, payload, payload_at)?;
        written += payload.len();
    } else {
        for (slab, rows) in slabs(format, payload, num_tokens).enumerate() {
            file::write_all_at(
                file,
                rows,
                payload_at + slab as u64 * u64::from(format.slab_bytes),
            )?;
            written += rows.len();
        }
    }
    Ok(written as u64)
}

/// Reads a block's valid rows into `out` and compares everything that can be compared. `Err` says what is wrong.
pub(super) fn read(
    file: &File,
    at: u64,
    format: &SlotFormat,
    block: &Block,
    out: &mut [u8],
) -> Result<(), String> {
    let mut header = vec![0; format.header_bytes()];
    file::read_exact_at(file, &mut header, at)
        .map_err(|error| format!("its header cannot be read: {error}"))?;
    let (covered, checksum) = header.split_at(header.len() - 8);
    if xxh3_64(covered).to_le_bytes() != checksum {
        return Err("its header's checksum differs".to_owned());
    }
    let expected = description(format, block);
    let (described, checksums) = covered.split_at(expected.len());
    if described != expected {
        return Err(difference(described, &expected).to_owned());
    }

    let payload_at = at + format.payload_at();
    let num_tokens = block.tokens.len();
    let unreadable = |error| format!("its rows cannot be read: {error}");
    if num_tokens == format.block_tokens as usize {
        file::read_exact_at(file, out, payload_at).map_err(unreadable)?;
    } else {
        let valid = format.valid_bytes(num_tokens);
        for (slab, rows) in out.chunks_exact_mut(format.slab_bytes as usize).enumerate() {
            let slab_at = payload_at + slab as u64 * u64::from(format.slab_bytes);
            file::read_exact_at(file, &mut rows[..valid], slab_at).map_err(unreadable)?;
        }
    }
    for (slab, (rows, checksum)) in slabs(format, out, num_tokens)
        .zip(checksums.chunks_exact(8))
        .enumerate()
    {
        if xxh3_64(rows).to_le_bytes() != checksum {
            return Err(format!("the checksum of its slab {slab} differs"));
        }
    }
    Ok(())
}

/// Which part of two descriptions differs.
fn difference(found: &[u8], expected: &[u8]) -> &'static str {
    match found
        .iter()
        .zip(expected)
        .position(|(found, expected)| found != expected)
    {
        Some(0..8) => "its slot holds no block",
        Some(8..12) => "its slot is of another version",
        Some(12..24) => "its slot is of another shape",
        Some(24..32) => "its position differs",
        Some(32..104) => "its slot holds another block",
        _ => "its token ids differ",
    }
}
