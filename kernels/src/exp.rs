//! The exponential function, our own: the system's differs between libraries and does not vectorise.

const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// ln 2 in two parts, the first exact in few bits, so that `n * LN_2_HIGH` is exact.
const LN_2_HIGH: f32 = 0.693_359_4;
const LN_2_LOW: f32 = -2.121_944_4e-4;
/// Adding it rounds to an integer, which then stands in the low bits.
const ROUND: f32 = 12_582_912.0; // 1.5 * 2^23
/// Below it the result is 0, above `MAX` it is that of `MAX`.
const MIN: f32 = -87.0;
const MAX: f32 = 88.0;

/// e^x to within 2 units in the last place; exactly 1 at 0, exactly 0 below -87 (-inf included), NaN for NaN.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    let clamped = if x < MIN { MIN } else { x };
    let clamped = if clamped > MAX { MAX } else { clamped };
    let shifted = clamped * LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = clamped - n * LN_2_HIGH - n * LN_2_LOW;
    let p = 1.987_569_1e-4;
    let p = p * r + 1.398_199_9e-3;
    let p = p * r + 8.333_452e-3;
    let p = p * r + 4.166_579_6e-2;
    let p = p * r + 1.666_666_5e-1;
    let p = p * r + 0.5;
    let p = p * (r * r) + r + 1.0;
    let two_to_n = f32::from_bits((shifted.to_bits() << 23).wrapping_add(127 << 23));
    // A mask and not a branch, so that loops over it vectorise.
    let mask = if x < MIN { 0 } else { u32::MAX };
    f32::from_bits((p * two_to_n).to_bits() & mask)
}

/// tanh x, by `exp`.
#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    1.0 - 2.0 / (exp(2.0 * x) + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_within_two_units_in_the_last_place() {
        for i in -86_900..88_000 {
            let x = i as f32 / 1000.0;
            let (got, want) = (f64::from(exp(x)), f64::from(x).exp());
            assert!(
                (got / want - 1.0).abs() < 2.4e-7,
                "exp({x}) = {got}, not {want}"
            );
        }
    }

    #[test]
    fn exp_is_exact_where_the_softmax_relies_on_it() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(-1e9), 0.0);
        assert!(exp(f32::NAN).is_nan());
        assert!(exp(f32::INFINITY).is_finite());
    }

    #[test]
    fn tanh_is_close_and_bounded() {
        for i in -2000..2000 {
            let x = i as f32 / 100.0;
            assert!((f64::from(tanh(x)) - f64::from(x).tanh()).abs() < 3e-7);
        }
        assert_eq!(tanh(f32::INFINITY), 1.0);
        assert_eq!(tanh(f32::NEG_INFINITY), -1.0);
    }
}
