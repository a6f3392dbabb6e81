//! Instructions in the compact form that runs.

use crate::types::{Int, Type};

/// A register that is none: a guard that is not there.
pub(crate) const NO_SLOT: u16 = u16::MAX;

/// One instruction. What `args` and the list mean is said at each [`Op`]: slots of the thread's registers, the result first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Instruction {
    pub(crate) op: Op,
    /// Predicate, or `NO_SLOT`.
    pub(crate) guard: u16,
    pub(crate) is_negated: bool,
    pub(crate) args: [u16; 5],
    /// Start of the operands of vectors among the module's lists; the target of a branch.
    pub(crate) list: u32,
}

/// What an instruction does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Op {
    /// d = a
    Mov,
    /// d = the parts of the list, of so many bits each, the lowest first
    Pack(u8, u8),
    /// list = the parts of a
    Unpack(u8, u8),
    /// d = a op b (op c)
    Int(IntOp, Int),
    /// d = a * b (+ c) in twice the bits
    Wide(Int),
    /// d = a op b (op c)
    Float(FloatOp, Float),
    /// d = any function of the bits of a, b and c, given as its table
    Logic3(u8),
    /// d = bytes of a and b, chosen by c
    Permute,
    /// d = c + the four products of the bytes of a and b; whether a and b are signed
    Dot4(bool, bool),
    /// d = the high (left) or low (right) half of b:a shifted by c
    Funnel {
        left: bool,
        clamp: bool,
    },
    /// d (and q) = a compares to b (joined with c)
    Compare(Comparison),
    /// d = c ? a : b
    Select,
    /// d = a
    Convert(Conversion),
    /// d = f32 a and b rounded to halves, a the high one
    ConvertPair(Type),
    /// list = memory at a + b
    Load(Access),
    /// memory at a + b = list
    Store(Access),
    /// d = shared memory at a + b, which becomes that and c
    AtomicAdd,
    /// d = a moved between generic addresses and those of a space
    ToSpace(Space),
    FromSpace(Space),
    /// Shared memory at a + b = global memory at c + d, so many bytes, of which e are read
    CopyAsync(u8),
    CommitCopies,
    /// Waits until at most so many groups are under way.
    WaitCopies(u32),
    Branch,
    Exit,
    Barrier,
    /// The rest takes a whole warp, with the mask in the last argument. d, p = a from the lane that b and c say
    Shuffle(ShuffleMode),
    /// d = a of all lanes
    Vote(VoteMode),
    /// d = a of all lanes joined
    Reduce(IntOp, Int),
    SyncWarp,
    /// list: d 4, a 4, b 2, c 4
    Mma(Type),
    /// Of bytes, 16 columns (`is_half`; list: d 4, a 2, b 1, c 4) or 32 (as above); whether a and b are signed
    MmaBytes {
        is_half: bool,
        signs: (bool, bool),
    },
    /// list = matrices at a + b; how many, and whether each is transposed
    LoadMatrix {
        count: u8,
        is_transposed: bool,
    },
}

impl Op {
    /// Whether the threads of a warp execute it together.
    pub(crate) fn is_collective(self) -> bool {
        use Op::*;
        matches!(
            self,
            Shuffle(_)
                | Vote(_)
                | Reduce(..)
                | SyncWarp
                | Mma(_)
                | MmaBytes { .. }
                | LoadMatrix { .. }
        )
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IntOp {
    Add,
    Sub,
    MulLow,
    MulHigh,
    MadLow,
    MadHigh,
    Div,
    Rem,
    Min,
    Max,
    Neg,
    Abs,
    And,
    Or,
    Xor,
    Not,
    Shl,
    Shr,
    Popc,
    Clz,
    Brev,
    /// Shift that brings the highest bit to the top.
    BfindShift,
    Bfe,
    Bfi,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FloatOp {
    Add,
    Sub,
    Mul,
    Fma,
    Div,
    Min,
    Max,
    Neg,
    Abs,
    Sqrt,
    Rsqrt,
    Rcp,
    Exp2,
    Log2,
}

/// A float format to compute in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Float {
    F32 {
        /// Subnormal operands and results are zeros.
        flush: bool,
    },
    F64,
    F16,
    F16x2,
    Bf16,
    Bf16x2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Comparison {
    pub(crate) relation: Relation,
    pub(crate) of: Compared,
    pub(crate) join: Join,
    /// Whether c is negated.
    pub(crate) is_negated: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compared {
    Int(Int),
    Float(Float),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Relation {
    pub(crate) less: bool,
    pub(crate) equal: bool,
    pub(crate) greater: bool,
    pub(crate) unordered: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Join {
    None,
    And,
    Or,
    Xor,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Conversion {
    pub(crate) to: Type,
    pub(crate) from: Type,
    pub(crate) round: Round,
    pub(crate) flush: bool,
    /// Integers become the nearest that fits, floats lie in 0..=1.
    pub(crate) saturate: bool,
}

/// To the nearest (ties to even), to zero, down or up; a float to an integer that way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Round {
    /// Exact, or as integers are cut.
    None,
    Nearest,
    NearestInt,
    ZeroInt,
    DownInt,
    UpInt,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    Generic,
    Global,
    Shared,
    Local,
    Param,
    Const,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) space: Space,
    /// Values, 1, 2 or 4.
    pub(crate) count: u8,
    /// Bytes of each.
    pub(crate) bytes: u8,
    /// Whether loads extend the sign to the register's bits.
    pub(crate) is_signed: bool,
    pub(crate) register_bits: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShuffleMode {
    Up,
    Down,
    Butterfly,
    Index,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VoteMode {
    All,
    Any,
    Uniform,
    Ballot,
}
