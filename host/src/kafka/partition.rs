//! A partition of a topic, and its name as it stands in checkpoints and job files.

use std::fmt;
use std::sync::Arc;

/// A partition of a topic; written `topic-partition`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct TopicPartition {
    /// The topic.
    pub(crate) topic: Arc<str>,
    /// The number of the partition, from 0.
    pub(crate) partition: i32,
}

impl TopicPartition {
    /// A partition of a topic.
    pub(crate) fn new(topic: impl Into<Arc<str>>, partition: i32) -> Self {
        Self { topic: topic.into(), partition }
    }

    /// Reads `topic-partition`; topics may have dashes themselves.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (topic, partition) = text.rsplit_once('-')?;
        let is_number = !partition.is_empty() && partition.bytes().all(|byte| byte.is_ascii_digit());
        let is_plain = is_number && (partition == "0" || !partition.starts_with('0'));
        (is_plain && !topic.is_empty()).then(|| Some(Self::new(topic, partition.parse().ok()?)))?
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for text in ["orders-0", "a-b-12", "x.y_z-3"] {
            assert_eq!(TopicPartition::parse(text).unwrap().to_string(), text);
        }
        for text in ["orders", "orders-", "orders-x", "-1", "orders-007", "orders-99999999999", "orders--"] {
            assert_eq!(TopicPartition::parse(text), None, "{text}");
        }
    }
}
