//! The names of the protocol: jobs, generations, slots, attempts, storages.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The longest job name, in bytes: it becomes one path segment, with room for an incarnation's suffix.
pub const MAX_JOB_NAME_BYTES: usize = 100;

/// Counts the runs of one job: each process that starts it, and each recovery inside a process, takes a
/// number of its own. A run that sees a greater one than its own has been superseded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Generation(pub u64);

impl Generation {
    /// The first run of a job.
    pub const FIRST: Self = Self(1);

    /// The number after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A number in a job's log of manifests. Slots are dense; what fills one is known by its [`Attempt`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Slot(pub u64);

impl Slot {
    /// The slot of manifest 0.
    pub const FIRST: Self = Self(0);

    /// The slot after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The slot before this one.
    #[must_use]
    pub const fn previous(self) -> Option<Self> {
        match self.0.checked_sub(1) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Identifies one attempt to fill a slot: random, so that it is never mistaken for another one with
/// the same number. A checkpoint keeps its attempt when it has to move on to the next slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Attempt(pub Uuid);

impl Attempt {
    /// A new random attempt.
    #[must_use]
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Identifies one checkpoint directory; made once, when the directory is used for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StorageId(pub Uuid);

impl fmt::Display for StorageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Why a text is no job name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the job name {name:?} {problem}; use letters, digits, '-' and '_', a letter or digit first, at most {MAX_JOB_NAME_BYTES} characters"
)]
pub struct InvalidJobName {
    /// The refused text.
    pub name: String,
    /// What is wrong with it.
    pub problem: &'static str,
}

/// What a person calls a job. It stays the same over all incarnations of the job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct JobName(String);

impl JobName {
    /// Checks `name`.
    ///
    /// # Errors
    /// When it is empty, too long, or holds a character that would not be safe in a path or an object name.
    pub fn new(name: impl Into<String>) -> Result<Self, InvalidJobName> {
        let name = name.into();
        let problem = if name.is_empty() {
            Some("is empty")
        } else if name.len() > MAX_JOB_NAME_BYTES {
            Some("is too long")
        } else if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
            Some("does not begin with a letter or a digit")
        } else if !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') {
            Some("holds a character that is not allowed")
        } else {
            None
        };
        match problem {
            None => Ok(Self(name)),
            Some(problem) => Err(InvalidJobName { name, problem }),
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The identity of this job's first incarnation.
    #[must_use]
    pub fn first_incarnation(&self) -> JobId {
        JobId(self.0.clone())
    }
}

impl fmt::Display for JobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl TryFrom<String> for JobName {
    type Error = InvalidJobName;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        Self::new(name)
    }
}

impl From<JobName> for String {
    fn from(name: JobName) -> Self {
        name.0
    }
}

/// One incarnation of a job and the folder of its log: `orders` is the first one of the job `orders`,
/// `orders.2` the one that replaced it. No job name holds a dot, so no two jobs share an identity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct JobId(String);

impl JobId {
    /// The identity as text, which is also the folder's name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of the job that this is an incarnation of.
    #[must_use]
    pub fn name(&self) -> JobName {
        JobName(self.parts().0.to_owned())
    }

    /// The number of the incarnation, from 1.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.parts().1
    }

    /// The identity of the incarnation that replaces this one.
    #[must_use]
    pub fn next_incarnation(&self) -> Self {
        let (name, number) = self.parts();
        Self(format!("{name}.{}", number.saturating_add(1)))
    }

    fn parts(&self) -> (&str, u64) {
        match self.0.split_once('.') {
            Some((name, number)) => (name, number.parse().unwrap_or(1)),
            None => (&self.0, 1),
        }
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl TryFrom<String> for JobId {
    type Error = InvalidJobName;

    fn try_from(id: String) -> Result<Self, Self::Error> {
        let name = match id.split_once('.') {
            None => id.as_str(),
            Some((name, number)) => {
                let canonical = number.parse::<u64>().is_ok_and(|n| n >= 2 && n.to_string() == number);
                if !canonical {
                    return Err(InvalidJobName { name: id, problem: "has no valid number of an incarnation after the dot" });
                }
                name
            }
        };
        JobName::new(name)?;
        Ok(Self(id))
    }
}

impl From<JobId> for String {
    fn from(id: JobId) -> Self {
        id.0
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn only_safe_names_are_accepted() {
        for good in ["orders", "A", "9-lives_x"] {
            assert_eq!(JobName::new(good).unwrap().as_str(), good);
        }
        for bad in ["", ".", "..", "a/b", "a.b", "-a", "_a", "a b", "ä", "a\n", &"x".repeat(101)] {
            let refused = JobName::new(bad).unwrap_err();
            assert!(refused.to_string().contains("use letters"), "{refused}");
        }
    }

    #[test]
    fn incarnations_are_numbered_and_belong_to_their_name() {
        let first = JobName::new("orders").unwrap().first_incarnation();
        let second = first.next_incarnation();
        assert_eq!((first.as_str(), second.as_str(), second.next_incarnation().as_str()), ("orders", "orders.2", "orders.3"));
        assert_eq!(second.name(), first.name());
        for bad in ["orders.", "orders.1", "orders.02", "orders.x", "orders.2.3", ".2"] {
            assert!(JobId::try_from(bad.to_owned()).is_err(), "{bad}");
        }
        assert_eq!(JobId::try_from("orders.17".to_owned()).unwrap().as_str(), "orders.17");
    }
}
