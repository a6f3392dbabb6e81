//! A frame: the length of what follows as u32 little endian, then a value as JSON.

use std::io::{Error, ErrorKind, Read, Result, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest frame in bytes. A message a person pastes may be large; a damaged length is larger.
const MOST: usize = 256 << 20;

/// Writes a frame in one call, so that nothing stands half-written in a buffer.
pub(crate) fn write<T: Serialize>(to: &mut impl Write, value: &T) -> Result<()> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, value)?;
    let len = bytes.len() - 4;
    if len > MOST {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            format!("a frame of {len} bytes"),
        ));
    }
    bytes[..4].copy_from_slice(&(len as u32).to_le_bytes());
    to.write_all(&bytes)?;
    to.flush()
}

/// Reads a frame; `None` at the end of the stream.
///
/// # Errors
/// When the stream ends inside a frame, or it is not one.
pub(crate) fn read<T: DeserializeOwned>(from: &mut impl Read) -> Result<Option<T>> {
    let mut len = [0; 4];
    let mut got = 0;
    while got < len.len() {
        match from.read(&mut len[got..]) {
            Ok(0) if got == 0 => return Ok(None),
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => got += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let len = u32::from_le_bytes(len) as usize;
    if len > MOST {
        return Err(Error::new(
            ErrorKind::InvalidData,
            format!("a frame of {len} bytes"),
        ));
    }
    let mut bytes = Vec::new();
    // Memory as the bytes come, not as the length claims.
    from.take(len as u64).read_to_end(&mut bytes)?;
    if bytes.len() < len {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(Some(serde_json::from_slice(&bytes)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_as_they_went_in_and_then_the_stream_ends() {
        let mut bytes = Vec::new();
        for text in ["", "a\nb\u{0}c", "語"] {
            write(&mut bytes, &text).unwrap();
        }
        let mut from = &bytes[..];
        for text in ["", "a\nb\u{0}c", "語"] {
            assert_eq!(read::<String>(&mut from).unwrap().as_deref(), Some(text));
        }
        assert_eq!(read::<String>(&mut from).unwrap(), None);
    }

    #[test]
    fn a_cut_a_foreign_and_an_endless_frame_are_errors() {
        let mut bytes = Vec::new();
        write(&mut bytes, &"hello").unwrap();
        for end in 1..bytes.len() {
            assert!(read::<String>(&mut &bytes[..end]).is_err(), "{end}");
        }
        assert!(read::<u32>(&mut &bytes[..]).is_err());
        assert!(read::<String>(&mut &[0xff; 64][..]).is_err());
    }
}
