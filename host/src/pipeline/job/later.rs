//! What a specification can name because Flink's users know it, and what this version cannot do yet: refused, never passed over.

use super::Checks;
use crate::config::Span;
use crate::pipeline::spec::{ClaimMode, JobSpec};

pub(super) fn check(spec: &JobSpec, checks: &mut Checks) {
    let checkpointing = &spec.execution.checkpointing;
    let recovery = &spec.execution.state_recovery;
    let asked = [
        (
            checkpointing.unaligned.enabled,
            "checkpointing/unaligned/enabled",
            "barriers that overtake records are not built yet; checkpoints are aligned",
        ),
        (
            checkpointing.aligned_checkpoint_timeout > Span::from_millis(0),
            "checkpointing/aligned-checkpoint-timeout",
            "it belongs to unaligned checkpoints, which are not built yet",
        ),
        (
            checkpointing.max_concurrent_checkpoints > 1,
            "checkpointing/max-concurrent-checkpoints",
            "checkpoints follow one another; more than one at once is not built yet",
        ),
        (
            !checkpointing.incremental,
            "checkpointing/incremental",
            "checkpoints are always incremental, and merged in the background so that restoring stays fast; leave the key out",
        ),
        (
            recovery.path.is_some(),
            "state-recovery/path",
            "a job goes on from its own newest checkpoint; another one is chosen when it is started, by --from-checkpoint",
        ),
        (
            recovery.ignore_unclaimed_state,
            "state-recovery/ignore-unclaimed-state",
            "it is said when the job is started: --allow-non-restored-state",
        ),
        (
            recovery.claim_mode == ClaimMode::Claim,
            "state-recovery/claim-mode",
            "it is said when the job is started from a savepoint: --claim",
        ),
    ];
    for (is_asked, path, message) in asked {
        if is_asked {
            checks.fault(format!("/execution/{path}"), message);
        }
    }
}
