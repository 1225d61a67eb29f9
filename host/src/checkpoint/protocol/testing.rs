//! Manifests for the tests of this module.

use uuid::Uuid;

use super::ids::{Attempt, Generation, JobName, Slot, StorageId};
use super::manifest::{JobSnapshot, Manifest, ManifestKind, OutputGuarantee, Timing};

/// A checkpoint of `name` in `slot` by `generation`, whose attempt follows from both.
#[allow(clippy::unwrap_used, reason = "tests")]
pub(crate) fn manifest(name: &str, generation: u64, slot: u64) -> Manifest {
    let job_name = JobName::new(name).unwrap();
    let attempt = Attempt(Uuid::from_u64_pair(generation, slot + 1));
    let mut snapshot = JobSnapshot { checkpoint: attempt, checkpoints_on_line: slot, ..JobSnapshot::default() };
    snapshot.plan.guarantee = OutputGuarantee::ExactlyOnce;
    Manifest {
        kind: if slot == 0 { ManifestKind::Start } else { ManifestKind::Checkpoint },
        storage: StorageId(Uuid::nil()),
        job: job_name.first_incarnation(),
        job_name,
        generation: Generation(generation),
        slot: Slot(slot),
        attempt,
        committed: None,
        released: false,
        timing: Timing::default(),
        uploaded_bytes: 0,
        snapshot,
    }
}
