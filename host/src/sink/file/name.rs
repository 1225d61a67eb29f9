//! The names of files. They say whose a file is, so that nothing is ever taken for another's, and no two runs choose the same.
//!
//! A visible file is `part-{uid}@{job}-{subtask}-{generation}-{counter}.{extension}`, its numbers with leading zeros, so that the order of
//! names is the order of writing within a subtask. While it is written it is hidden as `.{name}.in-progress`, and once it is complete and
//! durable as `.{name}.pending`.

use std::fmt::{self, Write as _};

const HEAD: &str = "part-";
const IN_PROGRESS: &str = ".in-progress";
const PENDING: &str = ".pending";

/// The longest name that the usual file systems take, in bytes.
pub(super) const MAX_NAME_BYTES: usize = 255;

/// A file's name in parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PartName {
    /// The uid of the sink.
    pub(super) uid: String,
    /// The id of the job.
    pub(super) job: String,
    pub(super) subtask: usize,
    pub(super) generation: u64,
    /// Counts the files of a writer.
    pub(super) counter: u64,
    /// Without the dot before it.
    pub(super) extension: String,
}

impl PartName {
    /// The name that readers see.
    pub(super) fn visible(&self) -> String {
        self.to_string()
    }

    /// The name while it is written.
    pub(super) fn in_progress(&self) -> String {
        format!(".{self}{IN_PROGRESS}")
    }

    /// The name once it is complete and durable.
    pub(super) fn pending(&self) -> String {
        format!(".{self}{PENDING}")
    }

    /// The parts of a hidden name; none for a name that is not of a hidden file of a file sink.
    pub(super) fn parse_hidden(name: &str) -> Option<Self> {
        let name = name.strip_prefix('.')?;
        Self::parse_visible(name.strip_suffix(IN_PROGRESS).or_else(|| name.strip_suffix(PENDING))?)
    }

    /// The parts of a visible name; none for a name that is not of a file of a file sink.
    pub(super) fn parse_visible(name: &str) -> Option<Self> {
        let (uid, rest) = name.strip_prefix(HEAD)?.split_once('@')?;
        let (rest, last) = rest.rsplit_once('-')?;
        let (counter, extension) = last.split_once('.')?;
        let (rest, generation) = rest.rsplit_once('-')?;
        let (job, subtask) = rest.rsplit_once('-')?;
        let parsed = Self {
            uid: unescape(uid)?,
            job: unescape(job)?,
            subtask: subtask.parse().ok()?,
            generation: generation.parse().ok()?,
            counter: counter.parse().ok()?,
            extension: extension.to_owned(),
        };
        // Only what this module would have written is taken for its own.
        (parsed.to_string() == name).then_some(parsed)
    }

    /// Whether a hidden name is that of a file still being written.
    pub(super) fn is_in_progress(name: &str) -> bool {
        name.ends_with(IN_PROGRESS)
    }
}

impl fmt::Display for PartName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { uid, job, subtask, generation, counter, extension } = self;
        let (uid, job) = (escape(uid), escape(job));
        write!(f, "{HEAD}{uid}@{job}-{subtask:05}-{generation:06}-{counter:09}.{extension}")
    }
}

/// Percent-encodes what is not plain in a file's name; `@` and `/` are not.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' | b'-' => out.push(char::from(byte)),
            _ => write!(out, "%{byte:02X}").expect("invariant: writing to memory does not fail"),
        }
    }
    out
}

fn unescape(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut parts = text.split('%');
    out.extend_from_slice(parts.next()?.as_bytes());
    for part in parts {
        let (code, rest) = part.split_at_checked(2)?;
        out.push(u8::from_str_radix(code, 16).ok()?);
        out.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn name(uid: &str, job: &str) -> PartName {
        let extension = "jsonl.gz".to_owned();
        PartName { uid: uid.into(), job: job.into(), subtask: 3, generation: 12, counter: 7, extension }
    }

    #[test]
    fn hidden_names_are_read_back() {
        for (uid, job) in [("out", "orders.2"), ("a-b@c/..", "-x-1-"), ("", "%é")] {
            let name = name(uid, job);
            assert!(!name.visible().contains('/'));
            for hidden in [name.in_progress(), name.pending()] {
                assert_eq!(PartName::parse_hidden(&hidden), Some(name.clone()), "{hidden}");
            }
            assert_eq!(PartName::parse_hidden(&name.visible()), None);
            assert_eq!(PartName::parse_visible(&name.visible()), Some(name.clone()));
        }
        assert_eq!(name("out", "orders.2").visible(), "part-out@orders.2-00003-000012-000000007.jsonl.gz");
    }

    #[test]
    fn other_names_are_not_taken_for_ones_own() {
        let good = name("out", "orders").pending();
        for wrong in [
            "",
            ".",
            ".pending",
            ".part-.pending",
            "data.pending",
            ".part-out@orders-3-12-7.jsonl.pending",
            ".x.swp",
            &good.replace("000012", "+00012"),
            &good.replace("part", "Part"),
            &good.replace("out", "o%75t"),
            &format!("{good}~"),
        ] {
            assert_eq!(PartName::parse_hidden(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn names_sort_in_the_order_of_writing() {
        let mut names: Vec<_> = [(1, 10), (1, 9), (2, 0), (10, 1), (9, 5)]
            .map(|(generation, counter)| PartName { generation, counter, ..name("u", "j") })
            .into();
        names.sort_by_key(PartName::visible);
        let order: Vec<_> = names.iter().map(|name| (name.generation, name.counter)).collect();
        assert_eq!(order, [(1, 9), (1, 10), (2, 0), (9, 5), (10, 1)]);
    }
}
