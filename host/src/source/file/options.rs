//! What a job file can say about a file source, and what of it is wrong.

use super::listing::Pattern;
use super::settings::Settings;
use crate::config::{Fault, Size, Span, parse_options};
use crate::record::JsonPointer;
use crate::source::rate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;

/// The largest limit of a record: lines are held in memory whole.
const MAX_RECORD_SIZE: Size = Size(1 << 30);

const DEFAULT_RECORD_SIZE: Size = Size(16 << 20);
const DEFAULT_DISCOVERY_INTERVAL: Span = Span(Duration::from_secs(5));
const DEFAULT_ROTATION_WAIT: Span = Span(Duration::from_secs(10));

/// Options of the `file` source: each line of a file is a record, its value the line without its end (`\n` or `\r\n`), its timestamp
/// the time of reading.
///
/// Every file is a split. Files are told apart by device, inode and a fingerprint of their first bytes (up to 256), so that a renamed
/// file is the same one and a new file of an old name is another. Without `follow` the files and their sizes are looked up once, when
/// the job starts: what is appended later is not read, and a last line counts without its line end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FileOptions {
    /// A file, a folder (its files, not those of folders in it), or a pattern: `*`, `?`, `[ab]` and `{a,b}` within a name, `**` for folders
    /// at any depth. Files are read in the order of their names; names that start with a dot are left out unless the pattern has the dot.
    /// Files of no bytes are left out.
    pub path: String,
    /// `json` skips blank lines and allows `key`; the host does not check that lines are JSON. `lines` takes every line as it is, an empty
    /// one as an empty value. By default `json`.
    #[serde(default)]
    pub format: Format,
    /// JSON pointer to the key in each line, such as `/user`: a string is taken as its text, a number or boolean as JSON writes it. The key
    /// is null where the line is not JSON, has nothing there, or an object or array. By default the key is null.
    #[serde(default)]
    pub key: Option<String>,
    /// `gzip`, `zstd`, `none`, or `auto`: by the file's name (`.gz`, `.gzip`, `.zst`, `.zstd`). By default `auto`. Positions in a compressed file
    /// count decompressed bytes: a restart decompresses it from its beginning.
    #[serde(default)]
    pub compression: Compression,
    /// Goes on reading: lines that are appended, and new files. A last line waits for its line end, and a file is taken up when its first
    /// line is complete. Compressed files are read once, when nothing was written to them for `rotation-wait`. By default false.
    #[serde(default)]
    pub follow: bool,
    /// How often to look for new files; only with `follow`. By default 5 s.
    #[serde(default)]
    pub discovery_interval: Option<Span>,
    /// How long a file that was renamed or deleted must bring nothing new before it counts as read to its end; only with `follow`. By default 10 s.
    #[serde(default)]
    pub rotation_wait: Option<Span>,
    /// The longest record; a longer line fails the job and is named. By default 16 MiB.
    #[serde(default = "default_record_size")]
    pub max_record_size: Size,
    /// Records per second over all subtasks. By default as fast as possible.
    #[serde(default)]
    pub rate: Option<f64>,
    /// What to do when a file that is not read to its end was deleted, replaced or cut (as log rotation by copying and truncating does):
    /// `fail` the job, or `skip` what is left of it with a warning; with `follow` a file that stands there instead is read from its
    /// start. By default `fail`.
    #[serde(default)]
    pub on_lost_file: OnLostFile,
}

/// What a line is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// A JSON document; blank lines are skipped.
    #[default]
    Json,
    /// Any bytes.
    Lines,
}

/// How files are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Compression {
    /// As the file's name says.
    #[default]
    Auto,
    /// Not at all.
    None,
    /// One or more gzip members.
    Gzip,
    /// One or more zstd frames.
    Zstd,
}

/// What to do when a file that is not read to its end is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnLostFile {
    /// The job fails.
    #[default]
    Fail,
    /// What is left of the file is given up with a warning.
    Skip,
}

fn default_record_size() -> Size {
    DEFAULT_RECORD_SIZE
}

impl FileOptions {
    /// Reads options and checks them.
    ///
    /// # Errors
    /// Every fault at once.
    pub(super) fn parse(uid: &str, options: &Value) -> Result<(Self, Settings), Vec<Fault>> {
        let parsed: Self = parse_options(options)?;
        let mut faults = Vec::new();
        let mut check = |path: &str, fault: Option<String>| faults.extend(fault.map(|message| Fault::new(path, message)));
        check("/rate", rate::fault_of(parsed.rate));
        let size = parsed.max_record_size;
        let wrong_size = size.0 == 0 || size > MAX_RECORD_SIZE;
        check("/max-record-size", wrong_size.then(|| format!("{size} is not between 1 byte and {MAX_RECORD_SIZE}")));
        let idle = |option: &Option<Span>| (!parsed.follow && option.is_some()).then(|| "has an effect only with follow: true".to_owned());
        check("/discovery-interval", idle(&parsed.discovery_interval));
        let zero = parsed.discovery_interval == Some(Span(Duration::ZERO));
        check("/discovery-interval", (parsed.follow && zero).then(|| "must be above 0".to_owned()));
        check("/rotation-wait", idle(&parsed.rotation_wait));
        let keyed_lines = parsed.format == Format::Lines && parsed.key.is_some();
        check("/key", keyed_lines.then(|| "needs format: json: raw lines have no fields".to_owned()));
        let key = parsed.key.as_deref().map(JsonPointer::parse).transpose();
        check("/key", key.as_ref().err().cloned());
        let pattern = Pattern::parse(&parsed.path);
        check("/path", pattern.as_ref().err().cloned());
        match (key, pattern) {
            (Ok(key), Ok(pattern)) if faults.is_empty() => {
                let settings = Settings {
                    uid: uid.to_owned(),
                    pattern,
                    skip_blank: parsed.format == Format::Json,
                    key,
                    compression: parsed.compression,
                    follow: parsed.follow,
                    discovery_interval: parsed.discovery_interval.unwrap_or(DEFAULT_DISCOVERY_INTERVAL).0,
                    rotation_wait: parsed.rotation_wait.unwrap_or(DEFAULT_ROTATION_WAIT).0,
                    max_record: usize::try_from(size.0).unwrap_or(usize::MAX),
                    on_lost_file: parsed.on_lost_file,
                };
                Ok((parsed, settings))
            }
            _ => Err(faults),
        }
    }
}
