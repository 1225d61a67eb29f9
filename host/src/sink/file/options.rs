//! The options of the file sink and what is right for them.

use super::name::{MAX_NAME_BYTES, PartName};
use super::partition::{PartitionBy, Partitioner};
use crate::config::{Fault, Size, Span, parse_options};
use crate::sink::format::Format;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::PathBuf;

/// The options of the sink `file`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FileOptions {
    /// The folder that the files are put into. It is created where it is missing; other files in it are never touched.
    pub path: String,

    /// How a record becomes a line: `lines` (the value) or `json` (the whole record). By default `lines`.
    #[serde(default)]
    pub format: Format,

    /// How files are compressed: `none`, `gzip` or `zstd`. By default `none`.
    #[serde(default)]
    pub compression: Compression,

    /// The extension of the files, before that of the compression (`gz`, `zst`): letters, digits and dots. By default `jsonl`.
    #[serde(default = "default_extension")]
    pub extension: String,

    /// A file of this size, before compression, is closed and another one begun. By default 128 MiB.
    ///
    /// Every file is closed at the barrier of a checkpoint in any case, so that what a checkpoint holds becomes visible with it.
    #[serde(default = "default_roll_size")]
    pub roll_size: Size,

    /// A file that has been open for this long is closed when the next records arrive, and another one begun: for intervals of checkpoints
    /// that are much longer. By default never.
    pub roll_interval: Option<Span>,

    /// Which folder below the path a record goes to. By default the path itself.
    pub partition_by: Option<PartitionBy>,

    /// The partition of records that have none: nothing at the pointer, null, an empty string, an object or a list there, a value that is
    /// not JSON, or a timestamp that is no time. By default `__DEFAULT_PARTITION__`.
    #[serde(default = "default_partition")]
    pub default_partition: String,

    /// In how many partitions a subtask writes at once; up to 256 KiB are buffered for each. A record for one more closes the file
    /// of the partition that was written to least recently: more and smaller files, never an error. By default 128.
    #[serde(default = "default_max_open_partitions")]
    pub max_open_partitions: usize,
}

/// How files are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// gzip, level 6; `.gz` is added to the name.
    Gzip,
    /// Zstandard, level 3; `.zst` is added to the name.
    Zstd,
}

fn default_extension() -> String {
    "jsonl".to_owned()
}

fn default_roll_size() -> Size {
    Size(128 << 20)
}

fn default_partition() -> String {
    "__DEFAULT_PARTITION__".to_owned()
}

fn default_max_open_partitions() -> usize {
    128
}

/// Options that were found right, in the form in which writers use them.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// The folder, absolute: prepared work names it, whatever the working directory of the run that commits it.
    pub(super) root: PathBuf,
    pub(super) format: Format,
    pub(super) compression: Compression,
    /// With that of the compression.
    pub(super) extension: String,
    pub(super) roll_size: u64,
    pub(super) roll_interval: Option<std::time::Duration>,
    pub(super) partitioner: Partitioner,
    pub(super) max_open_partitions: usize,
}

impl Settings {
    /// Reads and checks options.
    pub(super) fn parse(uid: &str, options: &Value) -> Result<Self, Vec<Fault>> {
        let options: FileOptions = parse_options(options)?;
        let mut faults = Vec::new();
        let mut fault = |path: &str, message: String| faults.push(Fault::new(path, message));

        let root = absolute(&options.path).unwrap_or_else(|message| {
            fault("/path", message);
            PathBuf::new()
        });
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '.';
        if options.extension.is_empty() || !options.extension.chars().all(plain) || options.extension.starts_with('.') {
            fault("/extension", format!("{:?}: write letters, digits and dots, without a dot before them", options.extension));
        }
        if options.roll_size.0 == 0 {
            fault("/roll-size", "0: write a size of at least one byte, such as \"128 MiB\"".into());
        }
        if options.roll_interval.is_some_and(|span| span.0.is_zero()) {
            fault("/roll-interval", "0: write a duration such as \"15 min\", or leave it out".into());
        }
        if options.max_open_partitions == 0 {
            fault("/max-open-partitions", "0: write at least 1".into());
        }
        if !is_plain_folder(&options.default_partition) {
            let message = format!("{:?}: write the name of a folder, without `/` and without a dot before it", options.default_partition);
            fault("/default-partition", message);
        }
        let partitioner = Partitioner::new(options.partition_by.as_ref(), &options.default_partition).unwrap_or_else(|wrong| {
            faults.push(wrong);
            Partitioner::default()
        });
        let extension = match options.compression {
            Compression::None => options.extension,
            Compression::Gzip => format!("{}.gz", options.extension),
            Compression::Zstd => format!("{}.zst", options.extension),
        };
        // The job's id is not known yet; with it the name is checked again when a writer is opened.
        if let Err(message) = check_name_length("", uid, &extension) {
            faults.push(Fault::new("", message));
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        Ok(Self {
            root,
            format: options.format,
            compression: options.compression,
            extension,
            roll_size: options.roll_size.0,
            roll_interval: options.roll_interval.map(|span| span.0),
            partitioner,
            max_open_partitions: options.max_open_partitions,
        })
    }
}

fn absolute(path: &str) -> Result<PathBuf, String> {
    if path.is_empty() || path.contains('\0') {
        return Err(format!("{path:?}: write the path of a folder"));
    }
    let absolute = std::path::absolute(path).map_err(|error| format!("{path:?} cannot be made an absolute path: {error}"))?;
    // Prepared work goes into the manifest, which is text.
    match absolute.to_str() {
        Some(_) => Ok(absolute),
        None => Err(format!("{} is not UTF-8: run in another working directory, or write an absolute path", absolute.display())),
    }
}

/// Whether a text is the name of one visible folder.
pub(super) fn is_plain_folder(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\0']) && name.len() <= MAX_NAME_BYTES
}

/// Whether the longest name of a job's files fits the file systems.
pub(super) fn check_name_length(job: &str, uid: &str, extension: &str) -> Result<(), String> {
    let (job, uid, extension) = (job.to_owned(), uid.to_owned(), extension.to_owned());
    let longest = PartName { uid, job, subtask: 0, generation: u64::MAX, counter: u64::MAX, extension }.in_progress().len();
    if longest > MAX_NAME_BYTES {
        return Err(format!(
            "its files would have names of {longest} bytes, and {MAX_NAME_BYTES} is the limit: choose a shorter uid or job name"
        ));
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn defaults_are_right() {
        let settings = Settings::parse("out", &json!({"path": "some/out", "compression": "zstd"})).unwrap();
        assert!(settings.root.is_absolute());
        assert_eq!((settings.extension.as_str(), settings.roll_size), ("jsonl.zst", 128 << 20));
    }

    #[test]
    fn every_fault_is_named_at_once() {
        let options = json!({
            "path": "", "extension": ".x", "roll-size": 0, "roll-interval": 0, "max-open-partitions": 0, "default-partition": "..",
            "partition-by": {"time": "%Y/../%m"},
        });
        let faults = Settings::parse("out", &options).unwrap_err();
        let paths: Vec<_> = faults.iter().map(|fault| fault.path.as_str()).collect();
        let expected =
            ["/path", "/extension", "/roll-size", "/roll-interval", "/max-open-partitions", "/default-partition", "/partition-by/time"];
        assert_eq!(paths, expected, "{faults:?}");
        let faults = Settings::parse("out", &json!({"paht": "x", "format": "csv", "partition-by": {"pointer": 3}})).unwrap_err();
        let paths: Vec<_> = faults.iter().map(|fault| fault.path.as_str()).collect();
        assert_eq!(paths, ["/format", "/partition-by/pointer", "/paht", "/path"], "{faults:?}");
    }

    #[test]
    fn names_that_are_too_long_are_refused() {
        let faults = Settings::parse(&"u".repeat(220), &json!({"path": "out"})).unwrap_err();
        assert!(faults[0].message.contains("shorter uid"), "{faults:?}");
    }
}
