//! Which instructions the machine has, found out at run time: builds are for the baseline of the architecture.

#[cfg(target_arch = "x86_64")]
use crate::lanes::{Avx2, Avx512};
use crate::lanes::{Lanes, Scalar};

/// Counts changes of what the operations compute. Bump it with any change of an order of accumulation, a rounding or a
/// format: cached keys and values of another epoch are never used.
const NUMERICS_EPOCH: u32 = 3;

/// An instruction path. All give the same bits (see [`Lanes`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// Baseline instructions.
    Scalar,
    /// x86-64 with AVX2, FMA and F16C.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// As `Avx2`, with the 8-bit dot products of AVX-VNNI.
    #[cfg(target_arch = "x86_64")]
    AvxVnni,
    /// x86-64 with AVX-512 F, BW, VL, DQ and VNNI.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Path {
    /// The paths this machine can run, the fastest first.
    pub fn available() -> Vec<Path> {
        let mut paths = Vec::new();
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
        {
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vnni")
            {
                paths.push(Path::Avx512);
            }
            if is_x86_feature_detected!("avxvnni") {
                paths.push(Path::AvxVnni);
            }
            paths.push(Path::Avx2);
        }
        paths.push(Path::Scalar);
        paths
    }

    /// Its name: `avx512`, `avx-vnni`, `avx2` or `scalar`.
    pub fn name(self) -> &'static str {
        match self {
            Path::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Path::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Path::AvxVnni => "avx-vnni",
            #[cfg(target_arch = "x86_64")]
            Path::Avx512 => "avx512",
        }
    }

    /// The fastest path this machine can run.
    pub fn best() -> Path {
        Path::available()[0]
    }
}

/// Version of the numerics. It belongs in the fingerprint of cached keys and values; the instruction path does not,
/// since it does not change a bit.
pub fn numerics() -> String {
    NUMERICS_EPOCH.to_string()
}

/// An operation written once for all paths.
pub(crate) trait Kernel {
    /// What it returns.
    type Out;

    /// Runs with the lanes of a path. Implementations are `#[inline(always)]`, as everything they call with vectors, so
    /// that they are compiled inside the function that enables the path's instructions.
    ///
    /// # Safety
    /// The machine has the instructions of `L`.
    unsafe fn run<L: Lanes>(self) -> Self::Out;
}

/// Runs a kernel on a path.
#[inline]
pub(crate) fn run<K: Kernel>(path: Path, kernel: K) -> K::Out {
    match path {
        // SAFETY: baseline instructions.
        Path::Scalar => unsafe { kernel.run::<Scalar>() },
        // SAFETY: a `Path` is only made by `available`, which found the instructions.
        #[cfg(target_arch = "x86_64")]
        Path::Avx2 => unsafe { avx2(kernel) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Path::AvxVnni => unsafe { avx_vnni(kernel) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Path::Avx512 => unsafe { avx512(kernel) },
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn avx2<K: Kernel>(kernel: K) -> K::Out {
    // SAFETY: this function has the instructions.
    unsafe { kernel.run::<Avx2<false>>() }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
fn avx_vnni<K: Kernel>(kernel: K) -> K::Out {
    // SAFETY: this function has the instructions.
    unsafe { kernel.run::<Avx2<true>>() }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn avx512<K: Kernel>(kernel: K) -> K::Out {
    // SAFETY: this function has the instructions.
    unsafe { kernel.run::<Avx512>() }
}

/// Defines `$name`, which runs the inlined function `$body` compiled for a path. Plain Rust is vectorised without changing
/// the order of any operation, so that all compilations give the same bits.
macro_rules! widened {
    ($(#[$doc:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),*) = $body:path) => {
        $(#[$doc])*
        $vis fn $name(path: crate::cpu::Path, $($arg: $ty),*) {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            fn avx2($($arg: $ty),*) {
                $body($($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq")]
            fn avx512($($arg: $ty),*) {
                $body($($arg),*)
            }
            match path {
                crate::cpu::Path::Scalar => $body($($arg),*),
                // SAFETY: a `Path` is only made where the machine has its instructions.
                #[cfg(target_arch = "x86_64")]
                crate::cpu::Path::Avx2 | crate::cpu::Path::AvxVnni => unsafe { avx2($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                crate::cpu::Path::Avx512 => unsafe { avx512($($arg),*) },
            }
        }
    };
}
pub(crate) use widened;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_path_is_available_and_scalar_always_is() {
        let paths = Path::available();
        assert_eq!(paths[0], Path::best());
        assert_eq!(paths.last(), Some(&Path::Scalar));
    }
}
