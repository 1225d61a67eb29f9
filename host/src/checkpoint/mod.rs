//! Checkpoints: what makes the output of a job exact through crashes, upgrades and second instances.
//!
//! Reading order: [`protocol`] (pure: what an entry of the log says, and every decision) → [`storage`] (where
//! it is kept) → [`participants`] (who takes part in a commit) → [`log`] (put, read, generations) →
//! [`recovery`] (how a run starts) → [`commit`] (how a checkpoint of a running job becomes visible) →
//! [`retention`] (what is deleted) → [`savepoint`] (what stands alone) → [`failpoints`] (where tests crash it).

pub mod commit;
pub mod failpoints;
pub(crate) mod intact;
pub mod log;
pub mod participants;
pub mod protocol;
pub mod recovery;
pub mod retention;
pub mod savepoint;
pub mod storage;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "tests")]
mod model;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, clippy::clone_on_ref_ptr, reason = "tests")]
mod tests;
