//! The protocol's types and decisions. Pure: no clock, no randomness, no I/O, no async.
//!
//! Reading order: [`ids`] → [`manifest`] → [`envelope`] (how it is written) → [`marker`] → [`view`] (a log as
//! it was read) → [`decide`] (what a run restores) → [`slot`] (what an occupied slot means) → [`fork`] →
//! [`plan`] (what a changed plan means) → [`line`](mod@line) (how the next manifest is assembled) → [`retain`] (what may be deleted).

pub mod decide;
pub mod envelope;
pub mod fork;
pub mod ids;
pub mod line;
pub mod manifest;
pub mod marker;
pub mod plan;
pub mod retain;
pub mod slot;
pub mod view;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, clippy::cast_possible_truncation, reason = "tests")]
mod tests;

pub use decide::{Decision, Refusal, RestorePlan};
pub use envelope::{Checksum, Damage};
pub use ids::{Attempt, Generation, InvalidJobName, JobId, JobName, Slot, StorageId};
pub use line::{ChainChange, CheckpointDraft, Line, OperatorDraft, SinkWork, SubtaskDraft};
pub use manifest::{
    CommittedPoint, DeclaredState, ForkIntent, InFlightFile, JobSnapshot, KeyGroupRange, KeyedInput, Manifest, ManifestKind, OperatorState,
    OutputGuarantee, PlanPart, PlanRevision, PreparedWork, Replaced, ReplacedPoint, SourceState, SplitState, StateFile, StateFileKind,
    StopRequest, SubtaskState, Timing,
};
pub use marker::{Marker, MarkerState, MarkerView, MissingMarker};
pub use plan::PlanChange;
pub use retain::RetentionPlan;
pub use view::{LogEntry, LogView};
