//! The formats in which keys and values are kept.

use std::fmt;
use std::str::FromStr;

use crate::lanes::GROUP;

/// The format of the keys, or of the values, of all tokens.
///
/// `Q8` and `Q4` share one f16 scale among 32 elements along the head: 8.5 and 4.5 bits an element. What they round is
/// rotated first (see [`KvDtype::is_rotated`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KvDtype {
    /// IEEE half precision; larger values become the largest finite ones.
    F16,
    /// bfloat16.
    Bf16,
    /// scale * q, -127 ≤ q ≤ 127.
    Q8,
    /// scale * q, -8 ≤ q ≤ 7.
    Q4,
}

impl KvDtype {
    /// All of them, the most exact first.
    pub const ALL: [KvDtype; 4] = [Self::F16, Self::Bf16, Self::Q8, Self::Q4];

    /// `f16`, `bf16`, `q8` or `q4`.
    pub fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Q8 => "q8",
            Self::Q4 => "q4",
        }
    }

    /// Whether 32 elements share a scale. Such heads are rotated by a normalised Hadamard transform before they are rounded,
    /// queries alike, so that no element stands out and scores stay what they were (Ashkboos et al., QuaRot, 2024).
    pub fn is_rotated(self) -> bool {
        matches!(self, Self::Q8 | Self::Q4)
    }

    /// Bytes of `head_dim` elements, scales included.
    pub fn bytes(self, head_dim: usize) -> usize {
        match self {
            Self::F16 | Self::Bf16 => 2 * head_dim,
            Self::Q8 => head_dim + 2 * (head_dim / GROUP),
            Self::Q4 => head_dim / 2 + 2 * (head_dim / GROUP),
        }
    }
}

/// The formats of keys and of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KvFormat {
    /// Of the keys.
    pub key: KvDtype,
    /// Of the values.
    pub value: KvDtype,
}

impl KvFormat {
    /// As exact as the model itself.
    pub const F16: KvFormat = KvFormat::same(KvDtype::F16);
    /// About half the memory of f16; the default.
    pub const Q8: KvFormat = KvFormat::same(KvDtype::Q8);
    /// About a quarter of it.
    pub const Q4: KvFormat = KvFormat::same(KvDtype::Q4);

    /// One format for both.
    pub const fn same(dtype: KvDtype) -> Self {
        Self {
            key: dtype,
            value: dtype,
        }
    }

    /// The format to use for heads of `head_dim` elements, and why it is another one than asked for.
    pub fn fitting(self, head_dim: usize) -> (Self, Option<String>) {
        let is_whole = head_dim.is_multiple_of(GROUP);
        if is_whole || !(self.key.is_rotated() || self.value.is_rotated()) {
            return (self, None);
        }
        let whole_or_f16 = |dtype: KvDtype| match dtype.is_rotated() {
            true => KvDtype::F16,
            false => dtype,
        };
        let fitting = Self {
            key: whole_or_f16(self.key),
            value: whole_or_f16(self.value),
        };
        let reason = format!(
            "{self} needs heads of a multiple of {GROUP} elements and this model's have {head_dim}; {fitting} is used"
        );
        (fitting, Some(reason))
    }
}

/// The name of the one format, or `key/value`.
impl fmt::Display for KvFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key == self.value {
            true => f.write_str(self.key.name()),
            false => write!(f, "{}/{}", self.key.name(), self.value.name()),
        }
    }
}

impl FromStr for KvFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let dtype = |name: &str| {
            let found = KvDtype::ALL.into_iter().find(|dtype| dtype.name() == name);
            found.ok_or_else(|| {
                format!("{name:?} is no KV format; use f16, bf16, q8 or q4, or two of them as keys/values")
            })
        };
        let (key, value) = text.split_once('/').unwrap_or((text, text));
        Ok(Self {
            key: dtype(key)?,
            value: dtype(value)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_and_nonsense_is_refused() {
        for key in KvDtype::ALL {
            for value in KvDtype::ALL {
                let format = KvFormat { key, value };
                assert_eq!(format.to_string().parse(), Ok(format));
            }
        }
        assert_eq!(KvFormat::Q8.to_string(), "q8");
        for text in ["", "q5", "q8/", "/q8", "q8/q8/q8", "F16"] {
            assert!(text.parse::<KvFormat>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_format_that_does_not_fit_the_heads_becomes_f16_with_a_reason() {
        for head_dim in [32, 64, 96, 128, 256] {
            assert_eq!(KvFormat::Q8.fitting(head_dim), (KvFormat::Q8, None));
        }
        let mixed: KvFormat = "bf16/q4".parse().unwrap();
        for head_dim in [20, 80, 40] {
            let (format, reason) = KvFormat::Q8.fitting(head_dim);
            assert_eq!(format, KvFormat::F16);
            assert!(reason.unwrap().contains(&head_dim.to_string()));
            assert_eq!(mixed.fitting(head_dim).0.to_string(), "bf16/f16");
            assert_eq!(KvFormat::F16.fitting(head_dim), (KvFormat::F16, None));
        }
    }
}
