//! Limits of plugins that none could live with.

use super::Checks;
use crate::config::{Size, Span};
use crate::pipeline::spec::JobSpec;

/// The shortest time that a call may be given.
const SHORTEST_CALL: Span = Span::from_millis(1);

/// The smallest memory: a page of WebAssembly. What a plugin needs beyond that is told when it is loaded.
const SMALLEST_MEMORY: Size = Size(64 << 10);

pub(super) fn check(spec: &JobSpec, checks: &mut Checks) {
    for (index, operator) in spec.operators.iter().enumerate() {
        let path = format!("/operators/{index}/limits");
        let limits = &operator.limits;
        if limits.memory < SMALLEST_MEMORY {
            checks.fault(
                format!("{path}/memory"),
                format!("{} is less than {SMALLEST_MEMORY}, the least that a plugin can have", limits.memory),
            );
            checks.silence(format!("{path}/memory"));
        }
        if limits.call_timeout < SHORTEST_CALL {
            checks.fault(format!("{path}/call-timeout"), format!("must be at least {SHORTEST_CALL}: a call that takes longer fails"));
        }
    }
}
