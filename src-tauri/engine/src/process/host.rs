//! The process's side: requests in from the parent, answers out, and an end that leaves nothing behind.

use std::io::{BufReader, ErrorKind, Read, Write};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use store::Passphrase;

use super::{Call, Opening, PROTOCOL, Reply, VERSION, frame};
use crate::request::{Answer, Request};
use crate::{Engine, Error};

/// How long saving may take after the parent is gone.
const LONGEST_FAREWELL: Duration = Duration::from_secs(20);

/// The streams from and to the parent.
pub struct Parent<R, W> {
    from: BufReader<R>,
    out: Arc<Mutex<W>>,
}

impl<R: Read, W: Write + Send + 'static> Parent<R, W> {
    /// Says hello, and hears what may unlock the history, the likeliest first.
    ///
    /// # Errors
    /// When nobody listens, or says something else.
    pub fn greet(from: R, out: W) -> std::io::Result<(Self, Vec<Passphrase>)> {
        let mut parent = Self {
            from: BufReader::new(from),
            out: Arc::new(Mutex::new(out)),
        };
        parent.send(&Reply::Hello {
            protocol: PROTOCOL,
            version: VERSION.to_owned(),
        })?;
        match frame::read::<Opening>(&mut parent.from)? {
            Some(opening) => Ok((parent, opening.passphrases)),
            None => Err(ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Says why the engine cannot be started.
    ///
    /// # Errors
    /// When nobody listens.
    pub fn refuse(&self, error: &Error) -> std::io::Result<()> {
        self.send(&Reply::Refused {
            code: error.code().to_owned(),
            message: error.to_string(),
        })
    }

    /// Does what the parent asks until it ends the stream or asks for the end; then everything is saved. When the engine
    /// itself has died, false: the process is of no more use.
    ///
    /// # Errors
    /// When the parent sends what is no request.
    pub fn serve(&mut self, engine: &Engine) -> std::io::Result<bool> {
        self.send(&Reply::Ready)?;
        let outcome = loop {
            match frame::read::<Call>(&mut self.from) {
                Ok(Some(Call { id, request })) => {
                    let is_last = matches!(request, Request::Shutdown);
                    let answered = self.answer(engine, id, request);
                    if is_last {
                        // The answer is on its way before the process ends.
                        let _ = answered.map(thread::JoinHandle::join);
                        break Ok(true);
                    }
                    if answered.is_none() {
                        break Ok(false);
                    }
                }
                Ok(None) => break Ok(true),
                Err(error) => break Err(error),
            }
        };
        end_within(LONGEST_FAREWELL);
        engine.shutdown();
        outcome
    }

    /// Passes a request on; its answers follow on a thread of their own. `None` when there is no engine any more.
    fn answer(&self, engine: &Engine, id: u64, request: Request) -> Option<thread::JoinHandle<()>> {
        let (answers, received) = channel::<Answer>();
        engine.send(request, answers).ok()?;
        let out = Arc::clone(&self.out);
        let pass_on = move || {
            for answer in received {
                // Without a parent nobody listens; the stream's end says so to the reader.
                let _ = send(&out, &Reply::Answer { id, answer });
            }
            let _ = send(&out, &Reply::End { id });
        };
        thread::Builder::new()
            .name("answers".into())
            .spawn(pass_on)
            .ok()
    }

    fn send(&self, reply: &Reply) -> std::io::Result<()> {
        send(&self.out, reply)
    }
}

fn send<W: Write>(out: &Mutex<W>, reply: &Reply) -> std::io::Result<()> {
    let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
    frame::write(&mut *out, reply)
}

/// Ends the process, come what may: a driver that hangs must not keep it, and history has every word already.
pub fn end_within(most: Duration) {
    let watch = thread::Builder::new().name("farewell".into());
    let _ = watch.spawn(move || {
        thread::sleep(most);
        end();
    });
}

/// Ends the process without what libraries want to do first: the driver's part of that waits for what hangs.
fn end() -> ! {
    #[cfg(target_os = "linux")]
    // SAFETY: it does not return, and nothing is run that could see what is left as it is.
    unsafe {
        libc::_exit(1)
    }
    #[cfg(not(target_os = "linux"))]
    std::process::abort()
}
