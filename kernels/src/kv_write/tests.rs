use super::*;
use crate::kv_format::KvFormat;
use crate::random::floats;

fn layout(dtype: KvDtype) -> KvLayout {
    KvLayout {
        num_layers: 1,
        num_kv_heads: 1,
        head_dim: 64,
        format: KvFormat::same(dtype),
    }
}

fn write(path: Path, layout: &KvLayout, side: Side, x: &[f32], lane: usize, tile: &mut [u8]) {
    assert_eq!(tile.len(), layout.tile_bytes(side));
    let mut x = x.to_vec();
    let place = (tile.as_mut_ptr(), lane);
    // SAFETY: a whole tile, and one thread.
    unsafe { Rounded::default().write(path, layout, side, &mut x, place) };
}

#[test]
fn each_token_comes_back_as_exact_as_its_format_is_and_leaves_the_others_alone() {
    for dtype in KvDtype::ALL {
        let layout = layout(dtype);
        for side in [Side::Key, Side::Value] {
            let rows: Vec<Vec<f32>> = (0..16).map(|lane| floats(lane, 64)).collect();
            let mut tile = vec![0xff; layout.tile_bytes(side)];
            // Out of order: a later one must not touch an earlier one.
            for lane in (0..16).map(|i| i * 7 % 16) {
                write(Path::best(), &layout, side, &rows[lane], lane, &mut tile);
            }
            for (lane, row) in rows.iter().enumerate() {
                let mut got = read(&layout, side, &tile, lane);
                if dtype.is_rotated() {
                    hadamard(Path::Scalar, &mut got, 64);
                }
                let errors = got.iter().zip(row).map(|(a, b)| (a - b).powi(2));
                let error = (errors.sum::<f32>() / 64.0).sqrt();
                let most = match dtype {
                    KvDtype::F16 => 2e-4,
                    KvDtype::Bf16 => 2e-3,
                    KvDtype::Q8 => 4e-3,
                    KvDtype::Q4 => 7e-2,
                };
                assert!(error < most, "{dtype:?} {side:?} {lane}: {error}");
            }
        }
    }
}

#[test]
fn every_path_writes_the_same_bytes() {
    for dtype in KvDtype::ALL {
        let layout = layout(dtype);
        for side in [Side::Key, Side::Value] {
            for magnitude in [0.0, 1e-7, 1e-3, 1.0, 300.0, 1e9] {
                let x: Vec<f32> = floats(5, 64).iter().map(|x| x * magnitude).collect();
                let mut want = vec![0; layout.tile_bytes(side)];
                write(Path::Scalar, &layout, side, &x, 3, &mut want);
                assert!(read(&layout, side, &want, 3).iter().all(|x| x.is_finite()));
                for path in Path::available() {
                    let mut got = vec![0; layout.tile_bytes(side)];
                    write(path, &layout, side, &x, 3, &mut got);
                    assert!(got == want, "{path:?} {dtype:?} {side:?} {magnitude}");
                }
            }
        }
    }
}

#[test]
fn a_nan_is_not_hidden() {
    for dtype in KvDtype::ALL {
        let layout = layout(dtype);
        for side in [Side::Key, Side::Value] {
            let mut x = floats(1, 64);
            x[40] = f32::NAN;
            let mut tile = vec![0; layout.tile_bytes(side)];
            write(Path::best(), &layout, side, &x, 0, &mut tile);
            let got = read(&layout, side, &tile, 0);
            assert!(got.iter().any(|x| x.is_nan()), "{dtype:?} {side:?}");
        }
    }
}

#[test]
fn narrowing_equals_the_reference_and_saturates_on_every_path() {
    let mut x: Vec<f32> = floats(3, 1000).iter().map(|v| v * 70_000.0).collect();
    x.extend(floats(4, 1000).iter().map(|v| v * 1e-5));
    x.extend([f32::INFINITY, f32::NEG_INFINITY, 65_519.0, 65_520.0, -0.0]);
    let mut want = vec![0; x.len()];
    narrow_reference(&x, &mut want);
    let half = |i: usize| f16::from_bits(want[i]);
    assert_eq!(half(2000), f16::MAX);
    assert_eq!(half(2001), f16::MIN);
    for path in Path::available() {
        let mut got = Vec::new();
        narrow_f16(path, &x, &mut got);
        assert_eq!(got, want, "{path:?}");
        narrow_f16(path, &[f32::NAN; 9], &mut got);
        assert!(got.iter().all(|bits| f16::from_bits(*bits).is_nan()));
    }
}

#[test]
fn four_bits_err_less_with_the_best_scale_than_with_the_plain_one() {
    let (mut best, mut plain) = (0.0, 0.0);
    for seed in 0..50 {
        let x: [f32; GROUP] = floats(seed, GROUP).try_into().unwrap();
        let (mut quants, mut scales) = ([0; GROUP], [f16::ZERO]);
        quantize_4(Path::best(), &x, &mut quants, &mut scales);
        let got = quants.map(|q| scales[0].to_f32() * f32::from(q));
        let error: f32 = got.iter().zip(&x).map(|(a, b)| (a - b).powi(2)).sum();
        assert!((error - error_4(&x, scales[0])).abs() < 1e-5);
        best += error;
        let signed = x
            .iter()
            .fold(0f32, |m, &x| if x.abs() > m.abs() { x } else { m });
        plain += error_4(&x, f16::from_f32(signed / -8.0));
    }
    assert!(best < 0.95 * plain, "{best} of {plain}");
}
