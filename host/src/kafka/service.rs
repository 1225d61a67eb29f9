//! The thread that serves a consumer's events (log lines, errors, tokens that expire) while others wait in its calls.

use super::Consumer;
use super::ffi::MainQueue;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// How long the thread waits for an event before it looks whether it should end.
const POLL: Duration = Duration::from_millis(100);

/// Serves the events of a consumer until it is dropped. The thread may be the last that holds the consumer, so that closing it, which
/// waits, happens there.
#[derive(Debug)]
pub(crate) struct Service {
    stop: Arc<AtomicBool>,
}

impl Service {
    /// Starts the thread, before anything is assigned to the consumer.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn start(name: &str, consumer: Arc<Consumer>) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let queue = MainQueue::of(consumer);
        // Nobody joins it: it ends by itself soon after its service was dropped.
        thread::Builder::new().name(format!("kafka-{name}")).spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                queue.serve(POLL);
            }
        })?;
        Ok(Self { stop })
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
