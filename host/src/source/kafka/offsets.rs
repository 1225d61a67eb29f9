//! Offsets that are not there any more: deleted by retention, or more than the partition has.

use super::options::OnLostOffsets;
use super::splits::Reading;
use crate::Error;
use crate::kafka::{Consumer, error};
use rdkafka::consumer::Consumer as _;
use std::time::Duration;

/// How long the thread waits for the range that is there.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Decides where reading goes on at a partition whose position is out of range. Asks the broker, and so waits.
///
/// # Errors
/// The options say that the job fails; or the range cannot be learned.
pub(super) fn lost(consumer: &Consumer, uid: &str, split: &Reading, rule: OnLostOffsets) -> Result<i64, Error> {
    let place = format!("topic {}, partition {}", split.partition.topic, split.partition.partition);
    let range = consumer.fetch_watermarks(&split.partition.topic, split.partition.partition, TIMEOUT);
    let (start, end) = range.map_err(|error| error::of(consumer.context(), format!("{place}: reading its offsets"), &error))?;
    let why = if split.next < start { "were deleted" } else { "are not there: was the topic deleted and made again?" };
    let there = if start == end {
        format!("it is empty, and the next offset is {end}")
    } else {
        format!("offsets {start} to {} are there", end - 1)
    };
    let what = format!("{place}: the records at position {} {why} ({there})", split.next);
    let target = match rule {
        OnLostOffsets::Fail => {
            let advice = "set on-lost-offsets to earliest or latest to go on without what is lost, or start from another checkpoint";
            return Err(Error::user(format!("{what}: {advice}")));
        }
        OnLostOffsets::Earliest => start,
        OnLostOffsets::Latest => end,
    };
    tracing::warn!(source = uid, "{what}: going on at {target}, as on-lost-offsets says");
    Ok(target)
}
