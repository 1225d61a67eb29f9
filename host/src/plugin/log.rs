//! What a plugin says: messages, and lines of its standard output and error, go to the job's log with the operator's uid and subtask.

use bytes::Bytes;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::AsyncWrite;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

/// How long a message or line may be, in bytes; what is longer is cut. A plugin that logs its records must not fill the host's memory.
const MAX_LINE_BYTES: usize = 8 * 1024;
/// How many lines a subtask may log in a second; more are counted and left out.
const MAX_LINES_A_SECOND: u32 = 500;
/// How much a plugin may write to an output at once.
const WRITE_BYTES: usize = 64 * 1024;

/// How loud a line is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Loudness {
    Debug,
    Info,
    Warn,
    Error,
}

/// The log of one subtask. Cheap to clone; all clones share the bound on the lines a second.
#[derive(Clone, Debug)]
pub(super) struct PluginLog(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    uid: String,
    subtask: u32,
    flood: Mutex<Flood>,
}

#[derive(Debug)]
struct Flood {
    second: Instant,
    lines: u32,
}

impl PluginLog {
    pub(super) fn new(uid: &str, subtask: u32) -> Self {
        let flood = Mutex::new(Flood { second: Instant::now(), lines: 0 });
        Self(Arc::new(Shared { uid: uid.to_owned(), subtask, flood }))
    }

    pub(super) fn uid(&self) -> &str {
        &self.0.uid
    }

    pub(super) fn line(&self, loudness: Loudness, text: &str) {
        let left_out = {
            let mut flood = locked(&self.0.flood);
            let left_out = flood.count();
            if flood.lines > MAX_LINES_A_SECOND {
                return;
            }
            left_out
        };
        if left_out > 0 {
            self.event(
                Loudness::Warn,
                &format!("{left_out} lines of the plugin were left out: more than {MAX_LINES_A_SECOND} in a second"),
            );
        }
        self.event(loudness, shortened(text));
    }

    fn event(&self, loudness: Loudness, text: &str) {
        let Shared { uid, subtask, .. } = &*self.0;
        match loudness {
            Loudness::Debug => tracing::debug!(operator = %uid, subtask, "{text}"),
            Loudness::Info => tracing::info!(operator = %uid, subtask, "{text}"),
            Loudness::Warn => tracing::warn!(operator = %uid, subtask, "{text}"),
            Loudness::Error => tracing::error!(operator = %uid, subtask, "{text}"),
        }
    }
}

impl Flood {
    /// Counts a line. The first one of a new second gets the number of lines that were left out before it.
    fn count(&mut self) -> u32 {
        let mut left_out = 0;
        if self.second.elapsed() >= Duration::from_secs(1) {
            left_out = self.lines.saturating_sub(MAX_LINES_A_SECOND);
            *self = Self { second: Instant::now(), lines: 0 };
        }
        self.lines = self.lines.saturating_add(1);
        left_out
    }
}

fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_LINE_BYTES)]
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A standard output or error: lines of it go to the log. A last line without an end is logged when the plugin is gone.
#[derive(Clone)]
pub(super) struct LineStream(Arc<Mutex<Lines>>);

struct Lines {
    log: PluginLog,
    loudness: Loudness,
    buffer: Vec<u8>,
}

impl LineStream {
    pub(super) fn new(log: PluginLog, loudness: Loudness) -> Self {
        Self(Arc::new(Mutex::new(Lines { log, loudness, buffer: Vec::new() })))
    }
}

impl Lines {
    fn write(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = MAX_LINE_BYTES.saturating_sub(self.buffer.len());
            match piece.strip_suffix(b"\n") {
                Some(end) => {
                    self.buffer.extend_from_slice(&end[..end.len().min(room)]);
                    self.end_line();
                }
                None => self.buffer.extend_from_slice(&piece[..piece.len().min(room)]),
            }
        }
    }

    fn end_line(&mut self) {
        let line = String::from_utf8_lossy(&self.buffer);
        self.log.line(self.loudness, line.trim_end_matches('\r'));
        self.buffer.clear();
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        if !self.buffer.is_empty() {
            self.end_line();
        }
    }
}

impl IsTerminal for LineStream {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for LineStream {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

#[wasmtime_wasi::async_trait]
impl OutputStream for LineStream {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        locked(&self.0).write(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(WRITE_BYTES)
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for LineStream {
    async fn ready(&mut self) {}
}

impl AsyncWrite for LineStream {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        locked(&self.0).write(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
