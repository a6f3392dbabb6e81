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
    /// `clear_tokens.cu`
    ClearTokens,
    /// `quantize.cu`
    Quantize,
    /// `product_dense.cu`
    ProductDense,
    /// `product_dense_mma.cu`
    ProductDenseMma,
    /// `product_q4_0.cu`
    ProductQ4_0,
    /// `product_q4_1.cu`
    ProductQ4_1,
    /// `product_q5_0.cu`
    ProductQ5_0,
    /// `product_q5_1.cu`
    ProductQ5_1,
    /// `product_q8_0.cu`
    ProductQ8_0,
    /// `product_q2k.cu`
    ProductQ2K,
    /// `product_q3k.cu`
    ProductQ3K,
    /// `product_q4k.cu`
    ProductQ4K,
    /// `product_q5k.cu`
    ProductQ5K,
    /// `product_q6k.cu`
    ProductQ6K,
}

macro_rules! text {
    ($name:expr) => {
        include_str!(concat!("../../cuda/ptx/", $name, ".ptx"))
    };
}

/// The texts for a format of weights.
macro_rules! product {
    ($format:literal) => {
        &[
            (75, text!(concat!("product_", $format, ".75"))),
            (80, text!(concat!("product_", $format, ".80"))),
        ]
    };
}

impl Source {
    /// All of them.
    pub const ALL: [Source; 23] = [
        Self::KvWrite,
        Self::KeyOffsets,
        Self::Rope,
        Self::RmsNorm,
        Self::Swiglu,
        Self::AttentionDecode,
        Self::AttentionPrefill,
        Self::AttentionPrefillMma,
        Self::Sample,
        Self::ClearTokens,
        Self::Quantize,
        Self::ProductDense,
        Self::ProductDenseMma,
        Self::ProductQ4_0,
        Self::ProductQ4_1,
        Self::ProductQ5_0,
        Self::ProductQ5_1,
        Self::ProductQ8_0,
        Self::ProductQ2K,
        Self::ProductQ3K,
        Self::ProductQ4K,
        Self::ProductQ5K,
        Self::ProductQ6K,
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
            Self::ClearTokens => &[(75, text!("clear_tokens.75"))],
            Self::Quantize => &[(75, text!("quantize.75"))],
            Self::ProductDense => &[(75, text!("product_dense.75"))],
            Self::ProductDenseMma => &[(80, text!("product_dense_mma.80"))],
            Self::ProductQ4_0 => product!("q4_0"),
            Self::ProductQ4_1 => product!("q4_1"),
            Self::ProductQ5_0 => product!("q5_0"),
            Self::ProductQ5_1 => product!("q5_1"),
            Self::ProductQ8_0 => product!("q8_0"),
            Self::ProductQ2K => product!("q2k"),
            Self::ProductQ3K => product!("q3k"),
            Self::ProductQ4K => product!("q4k"),
            Self::ProductQ5K => product!("q5k"),
            Self::ProductQ6K => product!("q6k"),
        }
    }

    /// The PTX for a device of this compute capability (75 for 7.5), or none when it is older than all.
    pub fn ptx(self, compute_capability: u32) -> Option<&'static str> {
        let fits = |(least, _): &&(u32, &str)| *least <= compute_capability;
        self.texts().iter().rev().find(fits).map(|(_, text)| *text)
    }
}
