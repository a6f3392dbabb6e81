//! Launches that are recorded, to be run later as one.

use std::collections::HashMap;
use std::thread::{ThreadId, current};

use crate::device::Device;
use crate::fault::{Fault, Result};
use crate::work::Launch;

/// Streams whose launches are recorded instead of being run, as with `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`: the thread that
/// records must not do what might wait for the device, and nobody may do anything else with the stream.
#[derive(Default)]
pub(crate) struct Recordings(HashMap<usize, Recording>);

struct Recording {
    thread: ThreadId,
    launches: Vec<Launch>,
    is_spoiled: bool,
}

impl Recordings {
    /// An error where this thread is recording.
    pub(crate) fn check_thread(&mut self, attempt: &str) -> Result<()> {
        let mut recordings = self.0.values_mut();
        match recordings.find(|it| it.thread == current().id()) {
            Some(recording) => Err(recording.spoil(attempt)),
            None => Ok(()),
        }
    }

    /// An error where a stream is recording.
    pub(crate) fn check_stream(&mut self, stream: usize, attempt: &str) -> Result<()> {
        match self.0.get_mut(&stream) {
            Some(recording) => Err(recording.spoil(attempt)),
            None => Ok(()),
        }
    }

    /// Where the launches of a stream go, if it is recording.
    pub(crate) fn of(&mut self, stream: usize) -> Option<&mut Vec<Launch>> {
        self.0.get_mut(&stream).map(|it| &mut it.launches)
    }
}

impl Recording {
    fn spoil(&mut self, attempt: &str) -> Fault {
        self.is_spoiled = true;
        Fault::Recording(format!("{attempt} while launches are recorded"))
    }
}

impl Device {
    /// Records launches from now on, instead of running them.
    pub(crate) fn begin_recording(&mut self, stream: usize) -> Result<()> {
        self.check()?;
        self.streams.end(stream)?;
        self.recordings.check_stream(stream, "another recording")?;
        let recording = Recording {
            thread: current().id(),
            launches: Vec::new(),
            is_spoiled: false,
        };
        self.recordings.0.insert(stream, recording);
        Ok(())
    }

    /// The number of what was recorded, from 1.
    pub(crate) fn end_recording(&mut self, stream: usize) -> Result<usize> {
        let recorded = self.recordings.0.remove(&stream);
        let recorded =
            recorded.ok_or_else(|| Fault::Missing("nothing is being recorded".into()))?;
        if recorded.is_spoiled || recorded.thread != current().id() {
            return Err(Fault::Recording("what was recorded is spoiled".into()));
        }
        self.graphs.push(recorded.launches);
        Ok(self.graphs.len())
    }

    /// Runs what was recorded.
    pub(crate) fn replay(&mut self, graph: usize, stream: usize) -> Result<()> {
        let known = self.graphs.get(graph.wrapping_sub(1)).cloned();
        let launches = known.ok_or_else(|| Fault::Missing(format!("no graph {graph}")))?;
        self.recordings.check_stream(stream, "a graph")?;
        launches
            .into_iter()
            .try_for_each(|launch| self.launch(stream, launch))
    }
}
