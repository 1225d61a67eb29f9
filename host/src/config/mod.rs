//! What options are made of: durations and sizes as people write them, and the faults of a configuration, each with its path.

mod duration;
mod fault;
mod options;
mod size;
mod structure;
mod suggest;

pub use duration::Span;
pub use fault::{Fault, Faults};
pub use options::parse_options;
pub use size::Size;
pub use structure::check;
pub use suggest::{closest, unknown};
