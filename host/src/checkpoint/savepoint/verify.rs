//! Reads every file of a savepoint or checkpoint, to the last entry.

use super::{Found, SavepointError};
use crate::state::read_chunks;

/// What is wrong with the files, a sentence each; empty: it is intact.
///
/// # Errors
/// The storage fails.
pub async fn verify(found: &Found) -> Result<Vec<String>, SavepointError> {
    let mut problems = Vec::new();
    for file in found.manifest.snapshot.files() {
        let content = match found.read(file).await {
            Ok(content) => content,
            Err(problem @ SavepointError::File { .. }) => {
                problems.push(problem.to_string());
                continue;
            }
            Err(error) => return Err(error),
        };
        if let Some(damage) = read_chunks(&content).find_map(Result::err) {
            problems.push(SavepointError::StateFile { path: found.files.describe(&file.path), damage }.to_string());
        }
    }
    Ok(problems)
}
