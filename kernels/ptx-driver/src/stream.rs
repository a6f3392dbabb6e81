//! Streams and events: what was asked of a stream waits in a queue, and when it runs.
//!
//! Work of different streams runs in any order that the streams and their waits leave open, and a program must be right in all
//! of them. Two of them find every wait that is missing between a stream of kernels and one of copies: in one, kernels run as
//! early as they may and copies as late as they may; in the other it is the copies that run ahead. Of a kernel and a copy that
//! nothing orders, the first runs the kernel before the copy, and the second the copy before the kernel. A program that touches
//! pinned memory too early does so before a copy that runs late; one that writes it too late, after a copy that runs ahead.

use std::collections::{HashMap, VecDeque};

use crate::fault::{Fault, Result};

/// What a stream is for, as the first work shows that it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Kernels, and whatever else stays on the device.
    Kernels,
    /// Copies to and from the host.
    Copies,
}

/// A place in a stream: after everything that was asked of it before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    stream: usize,
    end: usize,
}

/// Streams and events, by their numbers, from 1; no number is used twice.
#[derive(Debug)]
pub(crate) struct Streams<W> {
    streams: Vec<Stream<W>>,
    /// Where each was recorded last, if ever.
    events: HashMap<usize, Option<Mark>>,
    num_events: usize,
}

#[derive(Debug)]
struct Stream<W> {
    /// It runs as early as it may if this is its kind.
    ahead: Kind,
    kind: Option<Kind>,
    is_open: bool,
    queue: VecDeque<Entry<W>>,
    /// Entries that are done, and so are no more in the queue.
    num_done: usize,
}

#[derive(Debug)]
enum Entry<W> {
    Work(W),
    Wait(Mark),
}

impl<W> Default for Streams<W> {
    fn default() -> Self {
        Self {
            streams: Vec::new(),
            events: HashMap::new(),
            num_events: 0,
        }
    }
}

impl<W> Stream<W> {
    /// Takes what is first, and that work if it is some.
    fn pass(&mut self) -> Option<W> {
        let entry = self.queue.pop_front()?;
        self.num_done += 1;
        match entry {
            Entry::Work(work) => Some(work),
            Entry::Wait(_) => None,
        }
    }
}

impl<W> Streams<W> {
    /// A stream that runs as early as it may if `ahead` turns out to be its kind, and as late as it may otherwise.
    pub(crate) fn open(&mut self, ahead: Kind) -> usize {
        self.streams.push(Stream {
            ahead,
            kind: None,
            is_open: true,
            queue: VecDeque::new(),
            num_done: 0,
        });
        self.streams.len()
    }

    /// Takes no more work; what was asked for still runs.
    pub(crate) fn close(&mut self, stream: usize) -> Result<()> {
        self.known(stream)?.is_open = false;
        Ok(())
    }

    pub(crate) fn new_event(&mut self) -> usize {
        self.num_events += 1;
        self.events.insert(self.num_events, None);
        self.num_events
    }

    /// Who waits for it still does.
    pub(crate) fn forget_event(&mut self, event: usize) -> Result<()> {
        match self.events.remove(&event) {
            Some(_) => Ok(()),
            None => Err(Fault::Handle(format!("no event {event}"))),
        }
    }

    /// The event is from now on done when everything before is that the stream was asked for.
    pub(crate) fn record(&mut self, event: usize, stream: usize) -> Result<()> {
        self.recorded(event)?;
        let mark = self.end(stream)?;
        self.events.insert(event, Some(mark));
        Ok(())
    }

    /// Where an event was recorded last.
    pub(crate) fn recorded(&self, event: usize) -> Result<Option<Mark>> {
        let known = self.events.get(&event).copied();
        known.ok_or_else(|| Fault::Handle(format!("no event {event}")))
    }

    /// What the stream is asked for from now on runs after what the event stands for now.
    pub(crate) fn wait(&mut self, stream: usize, event: usize) -> Result<()> {
        let mark = self.recorded(event)?;
        let stream = self.known(stream)?;
        stream.queue.extend(mark.map(Entry::Wait));
        Ok(())
    }

    pub(crate) fn ask(&mut self, stream: usize, kind: Kind, work: W) -> Result<()> {
        let stream = self.known(stream)?;
        stream.kind.get_or_insert(kind);
        stream.queue.push_back(Entry::Work(work));
        Ok(())
    }

    /// The place after everything that a stream was asked for.
    pub(crate) fn end(&mut self, stream: usize) -> Result<Mark> {
        let known = self.known(stream)?;
        let end = known.num_done + known.queue.len();
        Ok(Mark { stream, end })
    }

    /// The ends of all streams.
    pub(crate) fn ends(&self) -> Vec<Mark> {
        let streams = self.streams.iter().zip(1..);
        let end = |(known, stream): (&Stream<W>, usize)| Mark {
            stream,
            end: known.num_done + known.queue.len(),
        };
        streams.map(end).collect()
    }

    /// What is to run next: of the streams that run ahead, or what must run for `goal` to be reached. None when there is no more.
    pub(crate) fn next(&mut self, goal: Option<Mark>) -> Option<W> {
        self.pass_waits();
        let runs_ahead = |stream: &Stream<W>| {
            let has_work = matches!(stream.queue.front(), Some(Entry::Work(_)));
            has_work && stream.kind == Some(stream.ahead)
        };
        let ahead = self.streams.iter().position(runs_ahead);
        if let Some(ahead) = ahead {
            return self.streams[ahead].pass();
        }
        let mut goal = goal?;
        // Waits only ever point at what was asked for before them, so that this ends.
        while !self.is_reached(goal) {
            let stream = &mut self.streams[goal.stream - 1];
            match stream.queue.front() {
                Some(Entry::Wait(earlier)) => goal = *earlier,
                _ => return stream.pass(),
            }
        }
        None
    }

    /// Passes the waits that are over, until every stream begins with work or with a wait for some.
    fn pass_waits(&mut self) {
        let is_over = |streams: &Self, stream: usize| match streams.streams[stream].queue.front() {
            Some(Entry::Wait(mark)) => streams.is_reached(*mark),
            _ => false,
        };
        while let Some(stream) = (0..self.streams.len()).find(|stream| is_over(self, *stream)) {
            self.streams[stream].pass();
        }
    }

    fn is_reached(&self, mark: Mark) -> bool {
        self.streams[mark.stream - 1].num_done >= mark.end
    }

    /// Work that has not run.
    pub(crate) fn pending(&self) -> impl Iterator<Item = &W> {
        let entries = self.streams.iter().flat_map(|stream| &stream.queue);
        entries.filter_map(|entry| match entry {
            Entry::Work(work) => Some(work),
            Entry::Wait(_) => None,
        })
    }

    /// Drops all work that has not run.
    pub(crate) fn abandon(&mut self) {
        for stream in &mut self.streams {
            stream.num_done += stream.queue.len();
            stream.queue.clear();
        }
    }

    fn known(&mut self, stream: usize) -> Result<&mut Stream<W>> {
        let known = self.streams.get_mut(stream.wrapping_sub(1));
        let known = known.filter(|known| known.is_open);
        known.ok_or_else(|| Fault::Handle(format!("no stream {stream}")))
    }
}

#[cfg(test)]
mod tests {
    use super::{Kind, Streams};

    /// Two streams, and a name for each piece of work.
    fn streams(ahead: Kind) -> (Streams<&'static str>, usize, usize) {
        let mut streams = Streams::default();
        let (kernels, copies) = (streams.open(ahead), streams.open(ahead));
        (streams, kernels, copies)
    }

    /// What runs until all of a stream is done, or until nothing runs ahead.
    fn run(streams: &mut Streams<&'static str>, stream: Option<usize>) -> Vec<&'static str> {
        let goal = stream.map(|stream| streams.end(stream).unwrap());
        std::iter::from_fn(|| streams.next(goal)).collect()
    }

    #[test]
    fn of_a_kernel_and_a_copy_that_nothing_orders_the_kind_that_is_ahead_runs_first() {
        for (ahead, at_once) in [(Kind::Kernels, "kernel"), (Kind::Copies, "copy")] {
            for copy_first in [false, true] {
                let (mut streams, kernels, copies) = streams(ahead);
                let mut work = [
                    (kernels, Kind::Kernels, "kernel"),
                    (copies, Kind::Copies, "copy"),
                ];
                if copy_first {
                    work.reverse();
                }
                for (stream, kind, name) in work {
                    streams.ask(stream, kind, name).unwrap();
                }
                assert_eq!(run(&mut streams, None), [at_once]);
                let late = match ahead {
                    Kind::Kernels => copies,
                    Kind::Copies => kernels,
                };
                assert_eq!(run(&mut streams, Some(late)).len(), 1);
            }
        }
    }

    #[test]
    fn what_waits_for_an_event_runs_after_it_and_what_was_asked_for_later_does_not_run_with_it() {
        for ahead in [Kind::Kernels, Kind::Copies] {
            let (mut streams, kernels, copies) = streams(ahead);
            let event = streams.new_event();
            streams.ask(copies, Kind::Copies, "copy").unwrap();
            streams.record(event, copies).unwrap();
            streams.ask(copies, Kind::Copies, "other copy").unwrap();
            streams.wait(kernels, event).unwrap();
            streams.ask(kernels, Kind::Kernels, "kernel").unwrap();
            // An event that is recorded again is another one to who waits from now on.
            streams.record(event, kernels).unwrap();
            streams.forget_event(event).unwrap();
            let mut ran = run(&mut streams, None);
            ran.extend(run(&mut streams, Some(kernels)));
            assert_eq!(
                ran,
                match ahead {
                    Kind::Kernels => vec!["copy", "kernel"],
                    Kind::Copies => vec!["copy", "other copy", "kernel"],
                }
            );
            ran.extend(run(&mut streams, Some(copies)));
            assert_eq!(ran.len(), 3);
        }
    }

    #[test]
    fn a_stream_that_runs_ahead_goes_on_as_soon_as_what_it_waits_for_is_done() {
        let (mut streams, kernels, copies) = streams(Kind::Kernels);
        let event = streams.new_event();
        streams.ask(copies, Kind::Copies, "copy").unwrap();
        streams.record(event, copies).unwrap();
        streams.ask(copies, Kind::Copies, "other copy").unwrap();
        streams.wait(kernels, event).unwrap();
        streams.ask(kernels, Kind::Kernels, "kernel").unwrap();
        assert!(run(&mut streams, None).is_empty());
        let all = run(&mut streams, Some(copies));
        assert_eq!(all, ["copy", "kernel", "other copy"]);
    }

    #[test]
    fn a_stream_that_only_waits_is_waited_for() {
        for ahead in [Kind::Kernels, Kind::Copies] {
            let (mut streams, kernels, copies) = streams(ahead);
            let event = streams.new_event();
            streams.ask(copies, Kind::Copies, "copy").unwrap();
            for (stream, other) in [(kernels, copies), (copies, kernels)] {
                streams.record(event, other).unwrap();
                streams.wait(stream, event).unwrap();
            }
            streams.ask(copies, Kind::Copies, "other copy").unwrap();
            let mut ran = run(&mut streams, None);
            ran.extend(run(&mut streams, Some(copies)));
            assert_eq!(ran, ["copy", "other copy"]);
        }
    }

    #[test]
    fn an_event_that_was_never_recorded_is_done_and_one_or_a_stream_that_is_not_there_is_refused() {
        let (mut streams, kernels, copies) = streams(Kind::Copies);
        let event = streams.new_event();
        streams.wait(kernels, event).unwrap();
        streams.ask(kernels, Kind::Kernels, "kernel").unwrap();
        assert_eq!(run(&mut streams, Some(kernels)), ["kernel"]);
        streams.forget_event(event).unwrap();
        assert!(streams.wait(kernels, event).is_err() && streams.record(event, kernels).is_err());
        streams.ask(copies, Kind::Copies, "copy").unwrap();
        streams.close(copies).unwrap();
        assert!(streams.ask(copies, Kind::Copies, "copy").is_err());
        assert!(streams.end(0).is_err() && streams.end(3).is_err());
        assert_eq!(run(&mut streams, None), ["copy"], "it was asked for before");
    }
}
