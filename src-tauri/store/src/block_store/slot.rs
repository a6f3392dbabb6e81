//! One slot of a pool file: a header that says what the payload is, and the payload. Sealed slots are in `slot/sealed.rs`.

mod sealed;

use std::fs::File;

use xxhash_rust::xxh3::xxh3_64;

use super::{Block, SlotFormat};
use crate::file;
use crate::key::{DataKey, Form};
use crate::unbuffered::{Sectors, Unbuffered};
pub(super) use sealed::Seals;

const MAGIC: &[u8; 8] = b"RPKVSLOT";
/// Of plain slots. Raised with any change of the layout below; slots of another version are misses.
const VERSION: u32 = 2;
/// Slots and payloads begin on multiples of this, the page of every usual disk and memory.
const ALIGN: u64 = 4096;
/// Where the token ids begin.
const TOKENS_AT: usize = 112;

// A slot, version 2; numbers little endian:
//
//      0  magic             8 bytes, "RPKVSLOT"
//      8  version           u32, 2
//     12  block_tokens      u32
//     16  tile_tokens       u32, a divisor of block_tokens
//     20  num_layers        u32
//     24  key_slab_bytes    u32
//     28  value_slab_bytes  u32
//     32  position          u32, absolute index of the first token
//     36  num_tokens        u32, 1 ..= block_tokens
//     40  id                32 bytes
//     72  parent            32 bytes, zero if there is none
//    104  has_parent        u32, 0 or 1
//    108  zero              u32
//    112  token ids         block_tokens × u32; zero from num_tokens on
//      …  slab checksums    num_layers × (keys u64, values u64), XXH3-64 of the slab's valid tiles
//      …  header checksum   u64, XXH3-64 of all bytes before it
//      …  not written, up to the next multiple of 4096
//      …  payload           num_layers × (key slab, value slab); of each slab the valid tiles are written: its first
//                           ceil(num_tokens / tile_tokens) of slab_bytes × tile_tokens / block_tokens bytes each
//      …  not written, up to the next multiple of 4096
//
// Version 3 is a sealed slot; a pool file holds slots of one version. Numbers and the description are as above:
//
//      0  magic             8 bytes, "RPKVSLOT"
//      8  version           u32, 3
//     12  salt              32 bytes, random, new with every write of the slot
//     44  description       what stands at 12 up to the slab checksums in version 2, encrypted
//      …  slab tags         num_layers × (keys 16 bytes, values 16 bytes), encrypted
//      …  header tag        16 bytes
//      …  not written, up to the next multiple of 4096
//      …  payload           as in version 2, each slab's valid tiles encrypted by themselves
//      …  not written, up to the next multiple of 4096
//
// All is AES-256-GCM under a key made of the data key and the salt (`DataKey::slot`), so that no nonce is ever used twice
// under one key whatever is written how often: slab n (layer × 2, + 1 for values) has the nonce n as u32 and 8 bytes zero, the
// header has u32::MAX in that place. Associated data of the header are the magic and version; of a slab, the whole
// description, so that no slab can pass for another block's or another slab.
//
// Version 1 had num_slabs × slab_bytes in place of the four numbers from 16 on, and rows of one token in place of tiles.
impl SlotFormat {
    /// A shape this store can hold. The bounds are far above any model's; they keep a damaged row from asking for the moon.
    pub(super) fn is_sound(&self) -> bool {
        (1..=4096).contains(&self.block_tokens)
            && self.tile_tokens > 0
            && self.block_tokens.is_multiple_of(self.tile_tokens)
            && (1..=32_768).contains(&self.num_layers)
            && [self.key_slab_bytes, self.value_slab_bytes]
                .iter()
                .all(|&slab| slab > 0 && slab.is_multiple_of(self.block_tokens / self.tile_tokens))
            && u64::from(self.num_layers)
                * (u64::from(self.key_slab_bytes) + u64::from(self.value_slab_bytes))
                <= 1 << 30
    }

    pub(super) fn header_bytes(&self, form: Form) -> usize {
        match form {
            Form::Plain => self.description_bytes() + 16 * self.num_layers as usize + 8,
            Form::Sealed => sealed::header_bytes(self),
        }
    }

    /// Magic, version, numbers, ids and token ids.
    fn description_bytes(&self) -> usize {
        TOKENS_AT + 4 * self.block_tokens as usize
    }

    pub(super) fn payload_at(&self, form: Form) -> u64 {
        (self.header_bytes(form) as u64).next_multiple_of(ALIGN)
    }

    pub(super) fn slot_bytes(&self, form: Form) -> u64 {
        self.payload_at(form) + (self.payload_bytes() as u64).next_multiple_of(ALIGN)
    }

    /// What is written for a block: header and valid tiles.
    pub(super) fn written_bytes(&self, form: Form, num_tokens: usize) -> u64 {
        let layer = self.valid_bytes(self.key_slab_bytes, num_tokens)
            + self.valid_bytes(self.value_slab_bytes, num_tokens);
        (self.header_bytes(form) + self.num_layers as usize * layer) as u64
    }
}

/// The header up to the slab checksums or tags.
fn description(version: u32, format: &SlotFormat, block: &Block) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(format.header_bytes(Form::Plain));
    bytes.extend_from_slice(MAGIC);
    let num_tokens = block.tokens.len() as u32;
    for number in [
        version,
        format.block_tokens,
        format.tile_tokens,
        format.num_layers,
        format.key_slab_bytes,
        format.value_slab_bytes,
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
    bytes.resize(format.description_bytes(), 0);
    bytes
}

/// The valid tiles of each slab in the bytes of whole layers, and where they begin in these.
fn slabs<'a>(
    format: &SlotFormat,
    layers: &'a [u8],
    num_tokens: usize,
) -> impl Iterator<Item = (usize, &'a [u8])> + use<'a> {
    let key_bytes = format.key_slab_bytes as usize;
    let valid_keys = format.valid_bytes(format.key_slab_bytes, num_tokens);
    let valid_values = format.valid_bytes(format.value_slab_bytes, num_tokens);
    let layer_bytes = format.layer_bytes();
    layers
        .chunks_exact(layer_bytes)
        .enumerate()
        .flat_map(move |(layer, bytes)| {
            let at = layer * layer_bytes;
            [
                (at, &bytes[..valid_keys]),
                (at + key_bytes, &bytes[key_bytes..key_bytes + valid_values]),
            ]
        })
}

/// Writes a block's header and valid tiles; returns how many bytes that were. With a key the slot is a sealed one.
pub(super) fn write(
    file: &File,
    at: u64,
    format: &SlotFormat,
    key: Option<&DataKey>,
    block: &Block,
    payload: &[u8],
) -> std::io::Result<u64> {
    if let Some(key) = key {
        let (header, payload) = sealed::seal(format, key, block, payload)?;
        return write_parts(file, at, format, Form::Sealed, block, &header, &payload);
    }
    let num_tokens = block.tokens.len();
    let mut header = description(VERSION, format, block);
    slabs(format, payload, num_tokens)
        .for_each(|(_, tiles)| header.extend_from_slice(&xxh3_64(tiles).to_le_bytes()));
    let checksum = xxh3_64(&header);
    header.extend_from_slice(&checksum.to_le_bytes());
    write_parts(file, at, format, Form::Plain, block, &header, payload)
}

fn write_parts(
    file: &File,
    at: u64,
    format: &SlotFormat,
    form: Form,
    block: &Block,
    header: &[u8],
    payload: &[u8],
) -> std::io::Result<u64> {
    let num_tokens = block.tokens.len();
    file::write_all_at(file, header, at)?;
    // Counted as it is written: the caller reports it.
    let mut written = header.len();
    let payload_at = at + format.payload_at(form);
    if num_tokens == format.block_tokens as usize {
        file::write_all_at(file, payload, payload_at)?;
        written += payload.len();
    } else {
        for (start, tiles) in slabs(format, payload, num_tokens) {
            file::write_all_at(file, tiles, payload_at + start as u64)?;
            written += tiles.len();
        }
    }
    Ok(written as u64)
}

/// What the slabs of a slot are compared with.
#[derive(Debug)]
pub(super) enum Guard {
    /// XXH3-64 of each.
    Checksums(Vec<u64>),
    /// Their tags, and the key that opens them.
    Seals(Seals),
}

/// Reads a slot's header, and with it the layers that follow it, as many as `layers` takes.
pub(super) fn read_header(
    file: &Unbuffered,
    at: u64,
    format: &SlotFormat,
    key: Option<&DataKey>,
    block: &Block,
    layers: &mut [u8],
) -> Result<Guard, String> {
    let form = key.map_or(Form::Plain, |_| Form::Sealed);
    let mut header = Sectors::new(format.payload_at(form) as usize);
    file.read_exact_at(&mut [&mut header, layers], at)
        .map_err(|error| format!("it cannot be read: {error}"))?;
    check_header(&header[..format.header_bytes(form)], format, key, block)
}

/// What guards a block's slabs, once everything else in its header was found to be what it should be. With a key the slot
/// is a sealed one. `Err` says what is wrong.
fn check_header(
    header: &[u8],
    format: &SlotFormat,
    key: Option<&DataKey>,
    block: &Block,
) -> Result<Guard, String> {
    if let Some(key) = key {
        return sealed::open(header, format, key, block).map(Guard::Seals);
    }
    let (covered, checksum) = header.split_at(header.len() - 8);
    if xxh3_64(covered).to_le_bytes() != checksum {
        return Err("its header's checksum differs".to_owned());
    }
    let expected = description(VERSION, format, block);
    let (described, checksums) = covered.split_at(expected.len());
    if described != expected {
        return Err(difference(described, &expected).to_owned());
    }
    let (checksums, _) = checksums.as_chunks::<8>();
    let checksums = checksums.iter().map(|sum| u64::from_le_bytes(*sum));
    Ok(Guard::Checksums(checksums.collect()))
}

/// Reads whole layers from `first_layer` on into `layers`, without the header.
pub(super) fn read_layers(
    file: &Unbuffered,
    at: u64,
    format: &SlotFormat,
    guard: &Guard,
    first_layer: usize,
    layers: &mut [u8],
) -> Result<(), String> {
    let form = match guard {
        Guard::Checksums(_) => Form::Plain,
        Guard::Seals(_) => Form::Sealed,
    };
    let layers_at = at + format.payload_at(form) + (first_layer * format.layer_bytes()) as u64;
    file.read_exact_at(&mut [layers], layers_at)
        .map_err(|error| format!("its layers cannot be read: {error}"))
}

/// Checks whole layers from `first_layer` on, as they were read. What follows a slab's valid tiles in the slot was never
/// written or belongs to another block: in `layers` it becomes zero. `Err` says what is wrong.
pub(super) fn check_layers(
    format: &SlotFormat,
    num_tokens: usize,
    guard: &Guard,
    first_layer: usize,
    layers: &mut [u8],
) -> Result<(), String> {
    if num_tokens < format.block_tokens as usize {
        clear_the_rest(format, num_tokens, layers);
    }
    let (what, bad) = match guard {
        Guard::Checksums(checksums) => {
            let checksums = &checksums[2 * first_layer..];
            let found = slabs(format, layers, num_tokens).map(|(_, tiles)| xxh3_64(tiles));
            let bad = found.zip(checksums).position(|(found, sum)| found != *sum);
            ("checksum", bad)
        }
        Guard::Seals(seals) => ("tag", seals.open(format, num_tokens, first_layer, layers)),
    };
    match bad {
        None => Ok(()),
        Some(slab) => Err(format!(
            "the {what} of the {} of its layer {} differs",
            ["keys", "values"][slab % 2],
            first_layer + slab / 2
        )),
    }
}

fn clear_the_rest(format: &SlotFormat, num_tokens: usize, layers: &mut [u8]) {
    let valid_keys = format.valid_bytes(format.key_slab_bytes, num_tokens);
    let valid_values = format.valid_bytes(format.value_slab_bytes, num_tokens);
    for layer in layers.chunks_exact_mut(format.layer_bytes()) {
        let (keys, values) = layer.split_at_mut(format.key_slab_bytes as usize);
        keys[valid_keys..].fill(0);
        values[valid_values..].fill(0);
    }
}

/// Reads a whole block into `out` and compares everything that can be compared. `Err` says what is wrong.
pub(super) fn read(
    file: &Unbuffered,
    at: u64,
    format: &SlotFormat,
    key: Option<&DataKey>,
    block: &Block,
    out: &mut [u8],
) -> Result<(), String> {
    let guard = read_header(file, at, format, key, block, out)?;
    check_layers(format, block.tokens.len(), &guard, 0, out)
}

/// Overwrites what a slot that is free says of the block that was in it. Without its salt a sealed payload is noise for
/// ever; a plain one is overwritten, too.
pub(super) fn erase(file: &File, at: u64, format: &SlotFormat, form: Form) -> std::io::Result<()> {
    let len = match form {
        Form::Sealed => format.header_bytes(form),
        Form::Plain => format.slot_bytes(form) as usize,
    };
    file::write_all_at(file, &vec![0; len], at)
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
        Some(12..32) => "its slot is of another shape",
        Some(32..36) => "its position differs",
        Some(36..112) => "its slot holds another block",
        _ => "its token ids differ",
    }
}
