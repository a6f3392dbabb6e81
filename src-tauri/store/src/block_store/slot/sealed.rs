//! Slots of version 3: encrypted and authenticated. The layout is drawn in `slot.rs`.

use std::fmt;

use aes_gcm::aead::AeadInPlace;
use aes_gcm::{Aes256Gcm, Nonce, Tag};

use super::{description, difference, slabs};
use crate::block_store::{Block, SlotFormat};
use crate::key::{DataKey, KEY_BYTES, fill_random};

const VERSION: u32 = 3;
const SALT_AT: usize = 12;
const TAG_BYTES: usize = 16;
/// Where the sealed part of the header begins: behind magic, version and salt.
const SEALED_AT: usize = SALT_AT + KEY_BYTES;
/// Magic and version stand before the salt, and are not sealed a second time.
const DESCRIBED_FROM: usize = 12;
const HEADER: u32 = u32::MAX;

pub(super) fn header_bytes(format: &SlotFormat) -> usize {
    let sealed =
        format.description_bytes() - DESCRIBED_FROM + 2 * TAG_BYTES * format.num_layers as usize;
    SEALED_AT + sealed + TAG_BYTES
}

fn nonce(of: u32) -> Nonce<aes_gcm::aead::consts::U12> {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&of.to_le_bytes());
    bytes.into()
}

/// Header and payload of a sealed slot under a fresh salt. Of the payload only valid tiles mean something.
pub(super) fn seal(
    format: &SlotFormat,
    key: &DataKey,
    block: &Block,
    payload: &[u8],
) -> std::io::Result<(Vec<u8>, Vec<u8>)> {
    let too_long = |_| std::io::Error::other("too many bytes for one tag");
    let mut salt = [0; KEY_BYTES];
    fill_random(&mut salt)?;
    let cipher = key.slot(&salt);
    let described = description(VERSION, format, block);
    let num_tokens = block.tokens.len();
    let mut payload = payload.to_vec();
    let places: Vec<(usize, usize)> = slabs(format, &payload, num_tokens)
        .map(|(start, tiles)| (start, tiles.len()))
        .collect();

    let mut header = described[..SALT_AT].to_vec();
    header.extend_from_slice(&salt);
    header.extend_from_slice(&described[DESCRIBED_FROM..]);
    for (slab, (start, len)) in (0..).zip(places) {
        let tiles = &mut payload[start..start + len];
        let tag = cipher
            .encrypt_in_place_detached(&nonce(slab), &described, tiles)
            .map_err(too_long)?;
        header.extend_from_slice(&tag);
    }
    let (open, sealed) = header.split_at_mut(SEALED_AT);
    let tag = cipher
        .encrypt_in_place_detached(&nonce(HEADER), &open[..SALT_AT], sealed)
        .map_err(too_long)?;
    header.extend_from_slice(&tag);
    Ok((header, payload))
}

/// Opens a header and compares everything in it; `Err` says what is wrong.
pub(super) fn open(
    header: &[u8],
    format: &SlotFormat,
    key: &DataKey,
    block: &Block,
) -> Result<Seals, String> {
    let expected = description(VERSION, format, block);
    let (start, rest) = header.split_at(SEALED_AT);
    if start[..SALT_AT] != expected[..SALT_AT] {
        return Err(difference(&start[..SALT_AT], &expected[..SALT_AT]).to_owned());
    }
    let salt = start[SALT_AT..].try_into();
    let cipher = key.slot(salt.map_err(|_| "its header is cut off".to_owned())?);
    let (sealed, tag) = rest.split_at(rest.len() - TAG_BYTES);
    let mut opened = sealed.to_vec();
    cipher
        .decrypt_in_place_detached(
            &nonce(HEADER),
            &start[..SALT_AT],
            &mut opened,
            Tag::from_slice(tag),
        )
        .map_err(|_| "its header's tag differs".to_owned())?;
    let (described, tags) = opened.split_at(expected.len() - DESCRIBED_FROM);
    if described != &expected[DESCRIBED_FROM..] {
        let whole = [&start[..SALT_AT], described].concat();
        return Err(difference(&whole, &expected).to_owned());
    }
    let (tags, _) = tags.as_chunks::<TAG_BYTES>();
    Ok(Seals {
        cipher: Box::new(cipher),
        tags: tags.to_vec(),
        described: expected,
    })
}

/// What opens the slabs of a slot whose header is right.
pub(in crate::block_store) struct Seals {
    cipher: Box<Aes256Gcm>,
    tags: Vec<[u8; TAG_BYTES]>,
    described: Vec<u8>,
}

impl fmt::Debug for Seals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seals")
    }
}

impl Seals {
    /// Decrypts the valid tiles of whole layers from `first_layer` on where they stand. The slab, counted from there, whose
    /// tag differs, if there is one; nothing of it is decrypted then.
    pub(super) fn open(
        &self,
        format: &SlotFormat,
        num_tokens: usize,
        first_layer: usize,
        layers: &mut [u8],
    ) -> Option<usize> {
        let places: Vec<(usize, usize)> = slabs(format, layers, num_tokens)
            .map(|(start, tiles)| (start, tiles.len()))
            .collect();
        places
            .into_iter()
            .enumerate()
            .position(|(at, (start, len))| {
                let slab = 2 * first_layer + at;
                let tag = Tag::from_slice(&self.tags[slab]);
                let tiles = &mut layers[start..start + len];
                let opened = self.cipher.decrypt_in_place_detached(
                    &nonce(slab as u32),
                    &self.described,
                    tiles,
                    tag,
                );
                opened.is_err()
            })
    }
}
