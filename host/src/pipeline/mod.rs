//! From what a person writes to what runs: the [job specification](spec), the [checked job](job) and the [plan].
//!
//! - [`spec`]: the specification, YAML or JSON or built in code, and its JSON schema;
//! - [`connectors`]: the source and sink types that it can name;
//! - [`job`]: everything that can be wrong with it, reported at once;
//! - [`plan`]: the graph of nodes, edges and chains that tasks are made of, and drawings of it;
//! - [`run`]: tasks, channels, checkpoints and restarts.

pub mod connectors;
pub mod job;
pub mod plan;
pub mod run;
pub mod spec;

pub use connectors::Connectors;
pub use job::Job;
pub use plan::Plan;
pub use spec::{JobBuilder, JobSpec};
