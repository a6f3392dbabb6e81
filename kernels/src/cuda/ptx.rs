//! The compiled kernels.

/// A source file of kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// `kv_write.cu`
    KvWrite,
    /// `key_offsets.cu`
    KeyOffsets,
    /// `rope.cu`
    Rope,
    /// `rms_norm.cu`
    RmsNorm,
    /// `swiglu.cu`
    Swiglu,
    /// `paged_attention_decode.cu`
    AttentionDecode,
    /// `paged_attention_prefill.cu`
    AttentionPrefill,
    /// `paged_attention_prefill_mma.cu`
    AttentionPrefillMma,
    /// `sample.cu`
    Sample,
    /// `copy_blocks.cu`
    CopyBlocks,
}

macro_rules! text {
    ($name:literal) => {
        include_str!(concat!("../../cuda/ptx/", $name, ".ptx"))
    };
}

impl Source {
    /// All of them.
    pub const ALL: [Source; 10] = [
        Self::KvWrite,
        Self::KeyOffsets,
        Self::Rope,
        Self::RmsNorm,
        Self::Swiglu,
        Self::AttentionDecode,
        Self::AttentionPrefill,
        Self::AttentionPrefillMma,
        Self::Sample,
        Self::CopyBlocks,
    ];

    /// Its texts and the compute capability that each needs at least, the lowest first.
    pub fn texts(self) -> &'static [(u32, &'static str)] {
        match self {
            Self::KvWrite => &[(75, text!("kv_write.75"))],
            Self::KeyOffsets => &[(75, text!("key_offsets.75"))],
            Self::Rope => &[(75, text!("rope.75"))],
            Self::RmsNorm => &[(75, text!("rms_norm.75"))],
            Self::Swiglu => &[(75, text!("swiglu.75"))],
            Self::AttentionDecode => &[
                (75, text!("paged_attention_decode.75")),
                (80, text!("paged_attention_decode.80")),
            ],
            Self::AttentionPrefill => &[(75, text!("paged_attention_prefill.75"))],
            Self::AttentionPrefillMma => &[(80, text!("paged_attention_prefill_mma.80"))],
            Self::Sample => &[(75, text!("sample.75"))],
            Self::CopyBlocks => &[(75, text!("copy_blocks.75"))],
        }
    }

    /// The PTX for a device of this compute capability (75 for 7.5), or none when it is older than all.
    pub fn ptx(self, compute_capability: u32) -> Option<&'static str> {
        let fits = |(least, _): &&(u32, &str)| *least <= compute_capability;
        self.texts().iter().rev().find(fits).map(|(_, text)| *text)
    }
}
