//! What flows: batches of records in columns, the headers and origins that the host keeps beside them, and key groups.

mod batch;
mod column;
mod headers;
mod json_pointer;
mod key_group;
mod origin;

pub use batch::{Batch, BatchFault, Columns, Row};
pub use column::Column;
pub use headers::{Header, Headers};
pub use json_pointer::{JsonPointer, PointerFault};
pub use key_group::{KeyGroups, key_group};
pub use origin::{Origin, Place, SplitTable};
