//! What options are made of: durations and sizes as people write them, and the faults of a configuration, each with its path.

mod duration;
mod fault;
mod file_url;
mod options;
mod size;
mod structure;
mod suggest;

pub use duration::Span;
pub use fault::{Fault, Faults};
pub(crate) use file_url::relative as relative_file_url;
pub use options::parse_options;
pub use size::Size;
pub use structure::{check, fault_of};
pub use suggest::{closest, unknown};
