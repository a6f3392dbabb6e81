//! Kernels: loading them, launching them, and recording launches.

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::sync::PoisonError;

use cudarc::driver::{result, sys};

use super::{Device, failed};
use crate::cuda::{Argument, Launch, Source};
use crate::{Error, Result};

/// Dynamic shared memory that a kernel has without being allowed more, in bytes.
const USUAL_SHARED_BYTES: u32 = 48 << 10;

/// What was loaded.
#[derive(Default)]
pub(super) struct Loaded {
    pub(super) modules: HashMap<Source, sys::CUmodule>,
    /// Kernels, and the shared memory that each is allowed.
    functions: HashMap<(Source, String), (sys::CUfunction, u32)>,
}

impl Device {
    /// Launches a kernel. What it does wrong is told by a later call.
    ///
    /// # Errors
    /// When the driver refuses it.
    pub(in crate::cuda) fn launch(&self, launch: &Launch) -> Result<()> {
        self.enter()?;
        self.launch_on(self.kernels, launch)
    }

    /// On a stream, in the current context.
    fn launch_on(&self, stream: sys::CUstream, launch: &Launch) -> Result<()> {
        let function = self.function(launch)?;
        let values: Vec<u64> = launch.arguments.iter().map(bits).collect();
        let mut pointers: Vec<*mut c_void> = values
            .iter()
            .map(|value| std::ptr::from_ref(value).cast_mut().cast())
            .collect();
        let [x, y, z] = launch.grid;
        // SAFETY: the arguments are those that the launch was made with, for this kernel; the driver copies them.
        unsafe {
            result::launch_kernel(
                function,
                (x, y, z),
                (launch.threads, 1, 1),
                launch.shared_bytes,
                stream,
                &mut pointers,
            )
        }
        .map_err(failed("start a kernel"))
    }

    /// Records what `launches` would do, to be run as a whole later.
    pub(in crate::cuda) fn record(&self, launches: &[Launch]) -> Result<sys::CUgraphExec> {
        self.enter()?;
        // Finding a function may load a module, which must not happen while recording.
        launches
            .iter()
            .try_for_each(|launch| self.function(launch).map(drop))?;
        // On a stream that nobody else knows: what other threads launch meanwhile would be recorded, and what they wait for spoil it.
        let kind = result::stream::StreamKind::NonBlocking;
        let stream = result::stream::create(kind).map_err(failed("record"))?;
        let graph = self.record_on(stream, launches);
        // SAFETY: just made, and it has no work.
        let _ = unsafe { result::stream::destroy(stream) };
        graph
    }

    fn record_on(&self, stream: sys::CUstream, launches: &[Launch]) -> Result<sys::CUgraphExec> {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: our stream.
        unsafe { result::stream::begin_capture(stream, mode) }.map_err(failed("record"))?;
        let mut launches = launches.iter();
        let launched = launches.try_for_each(|launch| self.launch_on(stream, launch));
        // SAFETY: our stream, which is recording.
        let graph = unsafe { result::stream::end_capture(stream) };
        launched?;
        let graph = graph.map_err(failed("record"))?;
        let flags = sys::CUgraphInstantiate_flags(0);
        // SAFETY: just recorded; the executable form does not need it any more.
        unsafe {
            let executable = result::graph::instantiate(graph, flags);
            let _ = result::graph::destroy(graph);
            executable.map_err(failed("prepare what was recorded"))
        }
    }

    /// Runs what was recorded.
    pub(in crate::cuda) fn replay(&self, graph: sys::CUgraphExec) -> Result<()> {
        self.enter()?;
        // SAFETY: recorded by this device and not forgotten.
        unsafe { result::graph::launch(graph, self.kernels) }.map_err(failed("start a graph"))
    }

    /// Forgets what was recorded.
    pub(in crate::cuda) fn forget(&self, graph: sys::CUgraphExec) {
        if self.enter().is_ok() {
            // SAFETY: recorded by this device, and forgotten once; kernels of it that run still end.
            let _ = unsafe { result::graph::exec_destroy(graph) };
        }
    }

    /// The kernel of a launch, with as much shared memory as that takes.
    fn function(&self, launch: &Launch) -> Result<sys::CUfunction> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (launch.source, launch.kernel.clone());
        let (function, allowed) = match loaded.functions.get(&key) {
            Some(known) => *known,
            None => {
                let module = self.module(&mut loaded, launch.source)?;
                let name = CString::new(launch.kernel.as_str()).unwrap_or_default();
                // SAFETY: a module that is never unloaded before the device is dropped.
                let function = unsafe { result::module::get_function(module, name) }
                    .map_err(failed("find a kernel"))?;
                (function, USUAL_SHARED_BYTES)
            }
        };
        if launch.shared_bytes > allowed {
            use sys::CUfunction_attribute_enum as Attribute;
            let attribute = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            let bytes = launch.shared_bytes as i32;
            // SAFETY: a function of ours.
            unsafe { result::function::set_function_attribute(function, attribute, bytes) }
                .map_err(failed("give a kernel its shared memory"))?;
        }
        let allowed = allowed.max(launch.shared_bytes);
        loaded.functions.insert(key, (function, allowed));
        Ok(function)
    }

    /// The driver compiles a text when it is first used, and remembers the result on disk.
    fn module(&self, loaded: &mut Loaded, source: Source) -> Result<sys::CUmodule> {
        if let Some(module) = loaded.modules.get(&source) {
            return Ok(*module);
        }
        let ptx = source.ptx(self.compute_capability()).ok_or_else(|| {
            let reason = format!("{source:?} has no text for {}", self.compute_capability());
            Error::argument("load kernels", reason)
        })?;
        let text = CString::new(ptx).unwrap_or_default();
        // SAFETY: a text that ends with a zero.
        let module = unsafe { result::module::load_data(text.as_ptr().cast()) }
            .map_err(failed("compile kernels"))?;
        loaded.modules.insert(source, module);
        Ok(module)
    }
}

/// An argument in the first bytes of a word, as little endian machines have it.
fn bits(argument: &Argument) -> u64 {
    match *argument {
        Argument::Address(value) | Argument::U64(value) => value,
        Argument::U32(value) => value.into(),
        Argument::F32(value) => value.to_bits().into(),
    }
}
