//! A decoder on a device: embedding, layers, norm, head, all in its memory.
//!
//! A call uploads where its tokens stand, launches what [`Pass`] lists, and reads the logits back. Decoding repeats the same
//! launches for token after token, so that they are recorded once (a CUDA graph) for every so many positions of context, and
//! replayed; a device that cannot do that launches them one by one.

mod first;
mod measure;
mod next;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::graph::Graph;
use super::matrix::{LayerOnDevice, Matrix};
use super::pass::{Call, IDS_AT, Pass, RANDOM_AT, table_at};
use super::scratch::{Part, Scratch};
use super::{Balance, Buffer, Device, DeviceSlots, Launch};
use crate::key_balance::KeyBalance;
use crate::layer::{Layer, LayerParams, Place, shapes};
use crate::{BLOCK_TOKENS, Error, KvLayout, Phase, QuantizedMatrix, Result};
pub use next::{Choice, Next};

const OP: &str = "decoder on the GPU";
/// Positions that the recorded launches of a decoding step have room for, a step of so many after the other.
const BUCKET_POSITIONS: usize = 1024;

/// A decoder's weights and what it takes to run them.
#[derive(Debug)]
pub struct Decoder {
    pub(super) device: Arc<Device>,
    pub(super) embedding: Matrix,
    /// `None` where it is the embedding.
    head: Option<Matrix>,
    pub(super) layers: Vec<LayerOnDevice>,
    pub(super) norm: Buffer,
    pub(super) params: LayerParams,
    layout: KvLayout,
    pub(super) hidden: usize,
    pub(super) inner: usize,
    balance: Option<Buffer>,
    state: Mutex<State>,
}

/// Addresses of what a call left.
struct Computed {
    logits: u64,
    random: u64,
}

/// What calls leave for the next.
#[derive(Debug)]
struct State {
    scratch: Scratch,
    /// Floats of the rotary angles that are on the device, of the cosines and of the sines each.
    num_angles: usize,
    steps: Vec<Step>,
}

impl State {
    fn new(device: &Arc<Device>) -> Self {
        Self {
            scratch: Scratch::new(Arc::clone(device)),
            num_angles: 0,
            steps: Vec::new(),
        }
    }
}

/// A decoding step whose launches were recorded.
#[derive(Debug)]
struct Step {
    call: Call,
    layout: KvLayout,
    /// Of the scratch when it was recorded.
    moves: u64,
    /// None where the device does not record.
    graph: Option<Graph>,
}

impl Decoder {
    /// Copies what is not in layers to the device: the embedding `[vocab, hidden]`, the head (none where it is the embedding), the
    /// last norm `[hidden]`. The layers follow by `push`.
    ///
    /// # Errors
    /// When there is no memory for it, or shapes do not fit each other.
    pub fn new(
        device: Arc<Device>,
        embedding: &QuantizedMatrix,
        head: Option<&QuantizedMatrix>,
        norm: &[f32],
        params: LayerParams,
        layout: KvLayout,
    ) -> Result<Decoder> {
        let shape = (embedding.rows(), embedding.cols());
        if embedding.cols() != norm.len()
            || head.is_some_and(|head| (head.rows(), head.cols()) != shape)
        {
            return Err(Error::argument(
                OP,
                "embedding, head and norm of other shapes",
            ));
        }
        Ok(Decoder {
            embedding: Matrix::upload(&device, embedding)?,
            head: head.map(|head| Matrix::upload(&device, head)).transpose()?,
            layers: Vec::with_capacity(layout.num_layers),
            norm: Buffer::floats(&device, norm)?,
            params,
            layout,
            hidden: norm.len(),
            inner: 0,
            balance: None,
            state: Mutex::new(State::new(&device)),
            device,
        })
    }

    /// Copies the next layer to the device.
    ///
    /// # Errors
    /// When there is no memory for it, or its shapes do not fit.
    pub fn push(&mut self, layer: &Layer) -> Result<()> {
        let of_one = KvLayout {
            num_layers: 1,
            ..self.layout
        };
        let (hidden, inner) = shapes::check(std::slice::from_ref(layer), &self.params, &of_one)?;
        let is_first = self.layers.is_empty();
        if hidden != self.hidden || !is_first && inner != self.inner {
            return Err(Error::argument(OP, "a layer of another width"));
        }
        self.inner = inner;
        self.layers
            .push(LayerOnDevice::upload(&self.device, layer)?);
        Ok(())
    }

    /// With keys balanced wherever their format rotates them.
    ///
    /// # Errors
    /// When the balance is that of other layers, or there is no memory for it.
    pub fn balanced(self, balance: &KeyBalance) -> Result<Decoder> {
        if !balance.fits(&self.layout) {
            return Err(Error::argument(OP, "key balance of another model"));
        }
        let numbers = Buffer::floats(&self.device, &balance.device_numbers())?;
        // It was measured over more tokens than a call has.
        let state = Mutex::new(State::new(&self.device));
        Ok(Decoder {
            balance: Some(numbers),
            state,
            ..self
        })
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Bytes of the weights on the device.
    pub fn weights_bytes(&self) -> usize {
        let layers: usize = self.layers.iter().map(LayerOnDevice::num_bytes).sum();
        let head = self.head.as_ref().map_or(0, Matrix::num_bytes);
        layers + head + self.embedding.num_bytes()
    }

    /// Bytes of the weights that a token reads: all, but of the embedding only where it is the head as well.
    pub fn bytes_read(&self) -> usize {
        match &self.head {
            Some(_) => self.weights_bytes() - self.embedding.num_bytes(),
            None => self.weights_bytes(),
        }
    }

    /// Bytes of activations and angles on the device, as far as calls have needed them.
    pub fn scratch_bytes(&self) -> usize {
        self.state().scratch.num_bytes()
    }

    pub(super) fn head(&self) -> &Matrix {
        self.head.as_ref().unwrap_or(&self.embedding)
    }

    pub(super) fn vocab(&self) -> usize {
        self.embedding.weights().rows
    }

    /// Runs `tokens` whose sequence has the slots of `place`, on the device: writes their keys and values, and returns the logits
    /// of all of them `[n, vocab]`, or of the last one only `[vocab]`. The phase says which kernels compute them; a token's
    /// result depends on that, and not on its neighbours.
    ///
    /// # Errors
    /// When sizes do not fit each other, memory is missing, or the device fails.
    pub fn forward(
        &self,
        tokens: &[u32],
        place: Place,
        phase: Phase,
        last_only: bool,
    ) -> Result<Vec<f32>> {
        let mut state = self.state();
        let call = self.call(tokens, &place, phase, last_only)?;
        self.compute(&mut state, tokens, &place, call, 0.0)?;
        read(&state.scratch, Part::Logits, call.rows() * self.vocab())
    }

    /// Runs a call; where its logits are, and the random number that was given.
    fn compute(
        &self,
        state: &mut State,
        tokens: &[u32],
        place: &Place,
        call: Call,
        random: f64,
    ) -> Result<Computed> {
        if call.phase == Phase::Decode {
            place.check_filled(OP, tokens.len())?;
        }
        let pass = self.pass(state, call, place)?;
        upload(&state.scratch, tokens, place, random)?;
        match call.phase {
            Phase::Prefill => self.prefill(&pass, place, call)?,
            Phase::Decode => self.step(state, &pass, call, *slots(place)?.layout())?,
        }
        Ok(Computed {
            logits: pass.logits(),
            random: pass.random(),
        })
    }

    /// What a call computes, after its sizes were checked.
    fn call(&self, tokens: &[u32], place: &Place, phase: Phase, last_only: bool) -> Result<Call> {
        let layout = *slots(place)?.layout();
        let same_shape = KvLayout {
            format: layout.format,
            ..self.layout
        };
        let end = place.offset + tokens.len();
        let angles = end.next_multiple_of(BLOCK_TOKENS) * layout.head_dim / 2;
        let fits = !tokens.is_empty()
            && self.layers.len() == layout.num_layers
            && layout == same_shape
            && place.table.len() >= end.div_ceil(BLOCK_TOKENS)
            && angles <= place.cos.len().min(place.sin.len());
        if !fits {
            let reason = format!(
                "{} tokens at {}, {} angles, {} blocks, {layout:?}",
                tokens.len(),
                place.offset,
                place.cos.len(),
                place.table.len()
            );
            return Err(Error::argument(OP, reason));
        }
        Ok(Call {
            tokens: tokens.len(),
            is_first: place.offset == 0,
            positions: end.next_multiple_of(BUCKET_POSITIONS),
            phase,
            last_only,
        })
    }

    /// Finds room for a call, and brings its angles to the device.
    fn pass(&self, state: &mut State, call: Call, place: &Place) -> Result<Pass<'_>> {
        let bytes = size_of_val(place.cos);
        let angles = [(Part::Cos, place.cos), (Part::Sin, place.sin)];
        let mut addresses = [0; 2];
        for (address, (part, values)) in addresses.iter_mut().zip(angles) {
            *address = state.scratch.at_least(part, bytes)?;
            // A row depends on its position alone, so that more of them begin as fewer do.
            if values.len() > state.num_angles
                && let Some(buffer) = state.scratch.part(part)
            {
                buffer.write_floats(values)?;
            }
        }
        state.num_angles = state.num_angles.max(place.cos.len());
        let [cos, sin] = addresses;
        let layout = *slots(place)?.layout();
        let numbers = self.balance.as_ref();
        let balance = numbers.map(|numbers| Balance {
            numbers: numbers.address(),
            cos,
            sin,
            kind: self.params.rope_kind,
        });
        Pass::new(self, &mut state.scratch, call, layout, balance, (cos, sin))
    }

    /// Launches a prompt's call. Where slots before the tokens are being filled meanwhile (`KvPool::fill`), each layer's attention is
    /// launched when the layer is there; [`Error::Unfilled`] if one never is.
    fn prefill(&self, pass: &Pass, place: &Place, call: Call) -> Result<()> {
        let num_blocks = (place.offset + call.tokens).div_ceil(BLOCK_TOKENS);
        let blocks = &place.table[..num_blocks];
        let filling = place.pool.filling();
        let Some(filling) = filling.filter(|filling| filling.has_any(blocks)) else {
            return self.run(&pass.launches()?);
        };
        let is_in_both = place.pool.rest().is_some();
        if is_in_both || filling.has_any(&blocks[place.offset / BLOCK_TOKENS..]) {
            return Err(Error::argument(OP, "tokens in a slot that is being filled"));
        }
        self.run(&[pass.embed()?])?;
        for (index, layer) in self.layers.iter().enumerate() {
            let mut launches = Vec::new();
            pass.project(index, layer, &mut launches)?;
            self.run(&launches)?;
            if !filling.wait(index) {
                return Err(Error::Unfilled);
            }
            filling.follow(index)?;
            launches.clear();
            pass.attend(index, layer, &mut launches)?;
            pass.feed_forward(layer, &mut launches)?;
            self.run(&launches)?;
        }
        let mut launches = Vec::new();
        pass.head(pass.residual(), &mut launches)?;
        self.run(&launches)
    }

    fn run(&self, launches: &[Launch]) -> Result<()> {
        launches
            .iter()
            .try_for_each(|launch| self.device.launch(launch))
    }

    /// A decoding step: as it was recorded, or launch by launch the first time, and then recorded.
    fn step(&self, state: &mut State, pass: &Pass, call: Call, layout: KvLayout) -> Result<()> {
        let moves = state.scratch.moves();
        let is_this = |step: &&Step| (step.call, step.layout) == (call, layout);
        state.steps.retain(|step| step.moves == moves);
        if let Some(Step {
            graph: Some(graph), ..
        }) = state.steps.iter().find(is_this)
        {
            return graph.run();
        }
        let launches = pass.launches()?;
        self.run(&launches)?;
        if !state.steps.iter().any(|step| is_this(&step)) {
            state.steps.push(Step {
                call,
                layout,
                moves,
                graph: Graph::record(&self.device, &launches),
            });
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // What a panic left is of no meaning to the next call, which writes all it reads.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where the keys and values of a call are.
fn slots<'a>(place: &'a Place) -> Result<&'a DeviceSlots> {
    let slots = place.pool.on_device();
    slots.ok_or_else(|| Error::argument(OP, "a pool that is not in the memory of the GPU"))
}

/// Tells the device where the tokens stand, which they are, where the blocks of their sequence are, and a random number.
fn upload(scratch: &Scratch, tokens: &[u32], place: &Place, random: f64) -> Result<()> {
    let slots = slots(place)?;
    let num_blocks = (place.offset + tokens.len()).div_ceil(BLOCK_TOKENS);
    let mut bytes = vec![0; table_at(tokens.len()) + 8 * num_blocks];
    let offset = u32::try_from(place.offset)
        .map_err(|_| Error::argument(OP, format!("position {}", place.offset)))?;
    bytes[..4].copy_from_slice(&offset.to_le_bytes());
    bytes[RANDOM_AT..IDS_AT].copy_from_slice(&random.to_le_bytes());
    let (ids, table) = bytes.split_at_mut(table_at(tokens.len()));
    for (to, id) in ids[IDS_AT..].chunks_exact_mut(4).zip(tokens) {
        to.copy_from_slice(&id.to_le_bytes());
    }
    for (to, slot) in table.chunks_exact_mut(8).zip(place.table) {
        to.copy_from_slice(&slots.address(*slot)?.to_le_bytes());
    }
    match scratch.part(Part::Inputs) {
        Some(buffer) => buffer.write(0, &bytes),
        None => Err(Error::argument(OP, "no room for the inputs")),
    }
}

/// The first floats of a part.
fn read(scratch: &Scratch, part: Part, floats: usize) -> Result<Vec<f32>> {
    let mut bytes = vec![0; floats * size_of::<f32>()];
    if let Some(buffer) = scratch.part(part) {
        buffer.read(0, &mut bytes)?;
    }
    let floats = bytes.as_chunks::<4>().0.iter();
    Ok(floats.map(|bytes| f32::from_le_bytes(*bytes)).collect())
}
