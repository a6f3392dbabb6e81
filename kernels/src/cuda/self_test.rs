//! Whether a device computes what the CPU computes.

use std::sync::Arc;

use candle_core::quantized::GgmlDType;

use super::{Buffer, Device, Input, Launch, Matrix, Output, Quantized, Rows, Unavailable};
use crate::{Arena, Error, QuantizedMatrix, Result, Team};

const ROWS: usize = 72;
const COLS: usize = 512;
const TOKENS: usize = 3;
/// Of the largest result: sums of the same numbers in another order.
const TOLERANCE: f32 = 1e-5;

/// Multiplies a small `Q4_K` matrix on the device, as prefill and as decoding do, and compares with the CPU.
///
/// # Errors
/// What is wrong with the device.
pub fn self_test(device: &Arc<Device>, team: &Team) -> std::result::Result<(), Unavailable> {
    compare(device, team).map_err(|error| Unavailable::SelfTest {
        name: device.info().name.clone(),
        reason: error.to_string(),
    })
}

fn compare(device: &Arc<Device>, team: &Team) -> Result<()> {
    let dtype = GgmlDType::Q4K;
    let mut bytes = noise(0, ROWS * COLS / dtype.block_size() * dtype.type_size());
    // The two scales of each block, as numbers of a usual size: 2⁻⁷ and 2⁻⁹.
    for block in bytes.chunks_exact_mut(dtype.type_size()) {
        block[..4].copy_from_slice(&[0x00, 0x20, 0x00, 0x18]);
    }
    let matrix = QuantizedMatrix::new(dtype, ROWS, COLS, &bytes, team, &mut Arena::default())?;
    let x: Vec<f32> = noise(0, TOKENS * COLS)
        .into_iter()
        .map(|byte| f32::from(byte) / 128.0 - 1.0)
        .collect();
    let want = matrix.forward(&x, team)?;
    let product = Product::new(device, &matrix, &x)?;
    let capability = device.compute_capability();
    let weights = product.matrix.weights();
    for launch in [
        weights.prefill(product.input, product.output, capability)?,
        weights.decode(product.input, product.output)?,
    ] {
        check(&product.run(&launch)?, &want)?;
    }
    Ok(())
}

/// A product's operands on the device, and room for its result.
struct Product {
    device: Arc<Device>,
    matrix: Matrix,
    input: Input,
    output: Output,
    out: Buffer,
    /// Own the memory of the activations.
    _activations: [Buffer; 3],
}

impl Product {
    fn new(device: &Arc<Device>, matrix: &QuantizedMatrix, x: &[f32]) -> Result<Product> {
        let floats = Buffer::floats(device, x)?;
        let [quants, parts] = Quantized::bytes_for(TOKENS, COLS, false);
        let [quants, parts] = [Buffer::new(device, quants)?, Buffer::new(device, parts)?];
        let quantized = Quantized {
            quants: quants.address(),
            parts: parts.address(),
            tokens: TOKENS,
            cols: COLS,
            has_rest: false,
        };
        device.launch(&quantized.quantize(floats.address())?)?;
        let out = Buffer::new(device, TOKENS * ROWS * size_of::<f32>())?;
        Ok(Product {
            device: Arc::clone(device),
            matrix: Matrix::upload(device, matrix)?,
            input: Input::Quantized(quantized),
            output: Output {
                rows: Rows {
                    address: out.address(),
                    stride: ROWS,
                },
                bias: 0,
                is_added: false,
            },
            out,
            _activations: [floats, quants, parts],
        })
    }

    /// `[TOKENS, ROWS]`
    fn run(&self, launch: &Launch) -> Result<Vec<f32>> {
        // What nobody writes is not taken for a result.
        self.out.write(0, &vec![0xff; self.out.len()])?;
        self.device.launch(launch)?;
        let mut bytes = vec![0; self.out.len()];
        self.out.read(0, &mut bytes)?;
        let floats = bytes.as_chunks::<4>().0.iter();
        Ok(floats.map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }
}

fn check(got: &[f32], want: &[f32]) -> Result<()> {
    let most = want.iter().fold(0f32, |most, x| most.max(x.abs()));
    let off = |(got, want): &(&f32, &f32)| {
        let error = (*got - *want).abs();
        // A NaN is off, too.
        !matches!(
            error.partial_cmp(&(TOLERANCE * most)),
            Some(std::cmp::Ordering::Less)
        )
    };
    match got.iter().zip(want).find(off) {
        None => Ok(()),
        Some((got, want)) => Err(Error::argument(
            "self-test",
            format!("{got} where the CPU has {want}"),
        )),
    }
}

/// The same bytes each time for a seed, without a pattern: xorshift64* (Vigna, 2016).
pub(super) fn noise(seed: u64, len: usize) -> Vec<u8> {
    // An odd factor of an odd number: never 0.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(2 * seed + 1);
    let next = || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 56) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}
