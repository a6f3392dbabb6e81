//! Which instructions the machine has, found out at run time: builds are for the baseline of the architecture.

/// Counts changes of what the operations compute. Bump it with any change of an order of accumulation, a rounding or a
/// format, of our own or of the tensor library's products: cached keys and values of another epoch are never used.
const NUMERICS_EPOCH: u32 = 1;

/// The instruction path of the machine. Paths differ in the last bits of their results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// Baseline instructions.
    Scalar,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
}

/// The fastest path this machine can run.
pub(crate) fn path() -> Path {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c")
    {
        return Path::Avx2;
    }
    Path::Scalar
}

/// Version of the numerics and the instruction path chosen at run time, e.g. `1/avx2`. It belongs in the fingerprint of
/// cached keys and values, since results differ between paths.
pub fn numerics() -> String {
    let path = match path() {
        Path::Avx2 => "avx2",
        Path::Scalar if cfg!(target_feature = "neon") => "neon",
        Path::Scalar => "scalar",
    };
    format!("{NUMERICS_EPOCH}/{path}{}", library_path())
}

/// What the tensor library's own products choose by, beyond `path`.
fn library_path() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512bf16") && is_x86_feature_detected!("avx512vl") {
            return "+bf16";
        }
        if path() == Path::Scalar && is_x86_feature_detected!("avx2") {
            return "+avx2";
        }
    }
    ""
}

/// Defines `$name`, which runs the inlined function `$body` compiled for AVX2 where the machine has it. Without fused
/// multiply-adds in `$body` both compilations give the same bits.
macro_rules! widened {
    ($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),*) = $body:path) => {
        $(#[$doc])*
        fn $name($($arg: $ty),*) {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma,f16c")]
                fn avx2($($arg: $ty),*) {
                    $body($($arg),*)
                }
                if crate::cpu::path() == crate::cpu::Path::Avx2 {
                    // SAFETY: the machine has the three features.
                    return unsafe { avx2($($arg),*) };
                }
            }
            $body($($arg),*)
        }
    };
}
pub(crate) use widened;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numerics_name_the_epoch_and_the_path() {
        let numerics = numerics();
        let (epoch, path) = numerics.split_once('/').unwrap();
        assert_eq!(epoch.parse(), Ok(NUMERICS_EPOCH));
        assert!(!path.is_empty());
        assert_eq!(super::numerics(), numerics);
    }
}
