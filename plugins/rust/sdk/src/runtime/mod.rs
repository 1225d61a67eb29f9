//! Between the bindings and an author's type: opens it, runs it over batches, answers the host. The test harness drives the same code.

mod keyed;
mod map;
mod open;

pub use keyed::KeyedRuntime;
pub use map::MapRuntime;
