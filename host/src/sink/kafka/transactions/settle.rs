//! Waits until what was committed is visible: Kafka answers to the end of a transaction as soon as that is decided, and tells the partitions after it.

use super::{Inner, transactional_ids};
use crate::Error;
use crate::kafka::wire;
use std::time::{Duration, Instant};

/// How long is waited at most.
const LONGEST: Duration = Duration::from_secs(10);
/// Between two questions.
const PAUSE: Duration = Duration::from_millis(10);

/// Returns when no transaction of the job is being ended.
pub(super) async fn settled(inner: &Inner) {
    let deadline = Instant::now() + LONGEST;
    loop {
        match is_being_ended(inner).await {
            Ok(false) => return,
            Ok(true) if Instant::now() < deadline => tokio::time::sleep(PAUSE).await,
            Ok(true) => {
                tracing::warn!(
                    prefix = inner.prefix,
                    "the last output is committed, and after {LONGEST:?} readers do not see all of it yet"
                );
                return;
            }
            // Brokers before 3.0, or a right is missing.
            Err(error) => {
                tracing::debug!(error = %error.chain(), "it cannot be found out whether readers see the last output already");
                return;
            }
        }
    }
}

async fn is_being_ended(inner: &Inner) -> Result<bool, Error> {
    let (ids, options) = (transactional_ids(&inner.prefix), inner.settings.asking());
    for address in inner.markers.cluster().brokers().await? {
        let states = wire::transactions(&options, &address, |id| ids.iter().any(|own| own == id)).await?;
        if states.iter().any(|state| state.state.starts_with("Prepare")) {
            return Ok(true);
        }
    }
    Ok(false)
}
