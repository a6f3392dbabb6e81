//! Types of PTX, as far as instructions here differ by them.

/// A fundamental type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    /// Untyped or integer bits.
    Int(Int),
    F16,
    F16x2,
    Bf16,
    Bf16x2,
    F32,
    F64,
    Pred,
}

/// An integer type; bits without a sign are unsigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Int {
    pub(crate) bits: u8,
    pub(crate) signed: bool,
}

impl Type {
    /// The type of that name, without its dot.
    pub(crate) fn named(name: &str) -> Option<Type> {
        let int = |signed: bool| {
            let bits = name[1..].parse().ok()?;
            matches!(bits, 8 | 16 | 32 | 64).then_some(Type::Int(Int { bits, signed }))
        };
        match name {
            "pred" => Some(Type::Pred),
            "f16" => Some(Type::F16),
            "f16x2" => Some(Type::F16x2),
            "bf16" => Some(Type::Bf16),
            "bf16x2" => Some(Type::Bf16x2),
            "f32" => Some(Type::F32),
            "f64" => Some(Type::F64),
            _ if name.starts_with(['u', 'b']) => int(false),
            _ if name.starts_with('s') => int(true),
            _ => None,
        }
    }

    /// Bytes of a value in memory; a predicate has none.
    pub(crate) fn bytes(self) -> u32 {
        match self {
            Type::Int(int) => u32::from(int.bits) / 8,
            Type::F16 | Type::Bf16 => 2,
            Type::F16x2 | Type::Bf16x2 | Type::F32 => 4,
            Type::F64 => 8,
            Type::Pred => 0,
        }
    }

    pub(crate) fn int(self) -> Option<Int> {
        match self {
            Type::Int(int) => Some(int),
            _ => None,
        }
    }
}

impl Int {
    /// The low bits of `value`, which is how a register holds it.
    #[inline(always)]
    pub(crate) fn wrap(self, value: u64) -> u64 {
        value & (u64::MAX >> (64 - self.bits))
    }

    /// The value a register's bits stand for.
    #[inline(always)]
    pub(crate) fn value(self, bits: u64) -> i128 {
        let shift = 64 - self.bits;
        match self.signed {
            true => i128::from((bits << shift) as i64 >> shift),
            false => i128::from(bits << shift >> shift),
        }
    }

    /// The bits of `value`, sign-extended or cut to 64.
    #[inline(always)]
    pub(crate) fn extended(self, bits: u64) -> u64 {
        let shift = 64 - self.bits;
        match self.signed {
            true => ((bits << shift) as i64 >> shift) as u64,
            false => bits << shift >> shift,
        }
    }

    pub(crate) const fn unsigned(bits: u8) -> Int {
        Int {
            bits,
            signed: false,
        }
    }
}
