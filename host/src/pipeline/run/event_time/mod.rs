//! Event time: what a source task tells of it, and how a task combines what its channels say.
//!
//! Reading order: `combine` (many watermarks to one) → `splits` (the watermarks of a subtask's splits) and `stamp` (timestamps out of
//! values), both used by `source` → `inputs` (the channels of a task behind others) → `kept` (what a manifest keeps).

mod combine;
mod inputs;
mod kept;
mod source;
mod splits;
mod stamp;

pub(super) use combine::EventTime;
pub(super) use inputs::Inputs;
pub(super) use kept::{greatest_of, keep_greatest, keep_watermark, watermark_of};
pub(super) use source::SourceTime;

/// Event time before any record.
pub(super) const NO_WATERMARK: i64 = i64::MIN;
/// Event time behind every record.
pub(super) const END_OF_TIME: i64 = i64::MAX;
