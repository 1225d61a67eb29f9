//! How old the open transactions are: a metric, and a warning before one times out.

use super::Inner;
use crate::config::Span;
use crate::telemetry::{JobMetrics, TransactionsReading};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::task::AbortHandle;

/// How often a transaction's age is looked at, in parts of its longest.
const LOOKS: u32 = 20;

/// Shows the transactions in the metrics of the job.
pub(super) fn report(inner: &Arc<Inner>, metrics: &JobMetrics) {
    let inner = Arc::downgrade(inner);
    metrics.read_transactions_from(move || inner.upgrade().map(|inner| inner.reading()).unwrap_or_default());
}

/// Warns when a transaction has been open for half of its longest time. Ends when it is dropped.
#[derive(Debug)]
pub(super) struct AgeWatch(AbortHandle);

impl AgeWatch {
    pub(super) fn start(inner: &Arc<Inner>) -> Self {
        let (timeout, inner) = (inner.timeout, Arc::downgrade(inner));
        Self(tokio::spawn(watch(inner, timeout)).abort_handle())
    }
}

impl Drop for AgeWatch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn watch(inner: Weak<Inner>, timeout: Duration) {
    let mut warned = false;
    loop {
        tokio::time::sleep(timeout / LOOKS).await;
        let Some(age) = inner.upgrade().and_then(|inner| inner.reading().oldest_open) else { return };
        let is_old = age >= timeout / 2;
        if is_old && !warned {
            tracing::warn!(
                age = %Span(Duration::from_secs(age.as_secs())),
                timeout = %Span(timeout),
                "the oldest open transaction has lasted for more than half of transaction.timeout.ms; when it times out, the job reads again what is in it"
            );
        }
        warned = is_old;
    }
}

impl Inner {
    fn reading(&self) -> TransactionsReading {
        let state = self.state();
        let epochs = state.run.as_ref().map(|run| &run.epochs);
        TransactionsReading {
            oldest_open: epochs.map(|epochs| epochs.oldest().elapsed()),
            waiting_writers: epochs.map_or(0, |epochs| epochs.waiting() as u64),
            barrier_wait: epochs.and_then(super::Epochs::waited),
            committed: self.committed.load(Ordering::Relaxed),
            aborted: self.aborted.load(Ordering::Relaxed),
        }
    }
}
