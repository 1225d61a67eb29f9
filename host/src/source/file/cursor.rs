//! One file that is being read: finds it, checks that it is still the same, and hands out its lines block by block.

use super::identity::{HEAD_BYTES, Head, Identity, read_head};
use super::input::Input;
use super::lines::{Block, Filled, LineError, Lines};
use super::settings::{Encoding, Settings};
use crate::Error;
use crate::config::Size;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A file and how far it was read.
pub(super) struct Cursor {
    /// The split, by its number in the reader.
    split: usize,
    /// Where the file was found.
    path: PathBuf,
    identity: Identity,
    /// The byte at which reading starts.
    offset: u64,
    /// The size of the file, compressed where it is, up to which it is read; none to follow it.
    size: Option<u64>,
    opened: Option<Opened>,
}

struct Opened {
    file: File,
    input: Input,
    lines: Lines,
    /// Since when the file is not to be found at its path any more, without anything new in it.
    left_alone_since: Option<Instant>,
}

/// What a step of reading came to.
#[derive(Debug)]
pub(super) enum Step {
    /// The block holds lines.
    Lines,
    /// Nothing new for now.
    Idle,
    /// The file is read to its end; the block may hold its last line.
    End,
    /// The file cannot be read on, for this reason: it was deleted, replaced or cut.
    Lost(String),
}

impl Cursor {
    pub(super) fn new(split: usize, path: PathBuf, identity: Identity, offset: u64, size: Option<u64>) -> Self {
        Self { split, path, identity, offset, size, opened: None }
    }

    /// The split, by its number in the reader.
    pub(super) fn split(&self) -> usize {
        self.split
    }

    /// Whether the file has an end.
    pub(super) fn is_bounded(&self) -> bool {
        self.size.is_some()
    }

    /// Where the file was found.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The byte up to which the file was read.
    pub(super) fn read_to(&self) -> u64 {
        self.opened.as_ref().map_or(self.offset, |opened| opened.lines.read_to())
    }

    /// Reads the next block.
    ///
    /// # Errors
    /// A file that cannot be read, is damaged, or has a line that is too long.
    pub(super) fn step(&mut self, settings: &Settings, block: &mut Block) -> Result<Step, Error> {
        let encoding = settings.encoding(&self.path);
        let mut opened = match self.opened.take() {
            Some(opened) => opened,
            None => match self.open(settings, encoding)? {
                Ok(opened) => opened,
                Err(lost) => return Ok(Step::Lost(lost)),
            },
        };
        let step = self.read(&mut opened, settings, encoding, block);
        self.opened = Some(opened);
        step
    }

    fn read(&mut self, opened: &mut Opened, settings: &Settings, encoding: Encoding, block: &mut Block) -> Result<Step, Error> {
        if let Some(lost) = self.change_of(opened, encoding)? {
            return Ok(Step::Lost(lost));
        }
        (block.split, block.head) = (self.split, self.identity.head);
        // Decided before reading: what was written until then is read in any case.
        let is_left = !self.is_bounded() && self.is_left(opened, settings)?;
        let before = opened.lines.read_to();
        let filled = opened.lines.read(&mut opened.input, block).map_err(|error| self.line_error(error, settings, encoding, opened))?;
        let has_grown = opened.lines.read_to() > before;
        if has_grown {
            opened.left_alone_since = None;
        }
        if filled == Filled::Lines {
            return Ok(Step::Lines);
        }
        if !self.is_bounded() && (has_grown || !is_left) {
            return Ok(Step::Idle);
        }
        opened.lines.finish(block).map_err(|error| self.line_error(error, settings, encoding, opened))?;
        Ok(Step::End)
    }

    /// Opens the file at its path, or under the name that it has got in the same folder; says why where it is lost.
    fn open(&self, settings: &Settings, encoding: Encoding) -> Result<Result<Opened, String>, Error> {
        let Some(file) = self.find()? else {
            return Ok(Err(self.what_is_there()));
        };
        let size = file.metadata().map_err(|error| self.failed("look at", error))?.len();
        if encoding == Encoding::Plain && size < self.offset {
            return Ok(Err(format!("was cut to {size} bytes")));
        }
        let input =
            Input::open(&file, encoding, self.offset, self.size).map_err(|error| self.content_error(self.offset, encoding, error))?;
        let lines = Lines::new(self.offset, settings.max_record, settings.skip_blank);
        Ok(Ok(Opened { file, input, lines, left_alone_since: None }))
    }

    /// What became of a file that is not found any more.
    fn what_is_there(&self) -> String {
        match fs::metadata(&self.path) {
            Err(_) => "was deleted or moved to another folder".to_owned(),
            Ok(metadata) if metadata.ino() != self.identity.inode => "was replaced by another file".to_owned(),
            Ok(metadata) if metadata.len() < self.size.unwrap_or(self.offset) => format!("was cut to {} bytes", metadata.len()),
            Ok(_) => "was overwritten".to_owned(),
        }
    }

    fn find(&self) -> Result<Option<File>, Error> {
        match File::open(&self.path) {
            Ok(file) if self.is(&file, true).map_err(|error| self.failed("read", error))? => return Ok(Some(file)),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(self.failed("open", error)),
            _ => {}
        }
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        let entries = match fs::read_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            entries => entries.map_err(|error| self.failed("search the folder of", error))?,
        };
        for entry in entries {
            let entry = entry.map_err(|error| self.failed("search the folder of", error))?;
            let same_inode = |metadata: &Metadata| metadata.is_file() && metadata.ino() == self.identity.inode;
            if !entry.metadata().as_ref().is_ok_and(same_inode) {
                continue;
            }
            let file = File::open(entry.path()).map_err(|error| self.failed("open the renamed", error))?;
            if self.is(&file, false).map_err(|error| self.failed("read", error))? {
                return Ok(Some(file));
            }
        }
        Ok(None)
    }

    fn is(&self, file: &File, same_name: bool) -> io::Result<bool> {
        Ok(self.identity.is(&file.metadata()?, &read_head(file)?, same_name))
    }

    /// Why the open file is not what it was any more, if so. Looked at before each read, so that nothing is read from the middle of other content.
    fn change_of(&mut self, opened: &Opened, encoding: Encoding) -> Result<Option<String>, Error> {
        let size = opened.file.metadata().map_err(|error| self.failed("look at", error))?.len();
        let needed = match (self.size, encoding) {
            (Some(size), _) => size,
            (None, Encoding::Plain) => opened.lines.read_to(),
            (None, _) => 0,
        };
        if size < needed {
            return Ok(Some(format!("was cut to {size} bytes")));
        }
        let is_short = usize::from(self.identity.head.length) < HEAD_BYTES;
        let head = read_head(&opened.file).map_err(|error| self.failed("read", error))?;
        if !self.identity.head.fits(&head) {
            return Ok(Some("was overwritten".to_owned()));
        }
        if is_short {
            self.identity.head = Head::of(&head);
        }
        Ok(None)
    }

    /// Whether the file was renamed or deleted and brought nothing new for as long as the options say.
    fn is_left(&self, opened: &mut Opened, settings: &Settings) -> Result<bool, Error> {
        let own = opened.file.metadata().map_err(|error| self.failed("look at", error))?;
        let at_its_path = match fs::metadata(&self.path) {
            Ok(metadata) => metadata.ino() == own.ino() && metadata.dev() == own.dev(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(self.failed("look at", error)),
        };
        if at_its_path {
            opened.left_alone_since = None;
            return Ok(false);
        }
        let since = *opened.left_alone_since.get_or_insert_with(Instant::now);
        Ok(since.elapsed() >= settings.rotation_wait)
    }

    fn line_error(&self, error: LineError, settings: &Settings, encoding: Encoding, opened: &Opened) -> Error {
        match error {
            LineError::Input(error) => self.content_error(opened.lines.read_to(), encoding, error),
            LineError::TooLong(at) => Error::user(format!(
                "the line at byte {at} of {} is longer than {}: raise max-record-size, or repair the file",
                self.path.display(),
                Size(settings.max_record as u64)
            )),
        }
    }

    fn content_error(&self, at: u64, encoding: Encoding, error: io::Error) -> Error {
        let kind = match encoding {
            Encoding::Plain => return self.failed("read", error),
            Encoding::Gzip => "gzip",
            Encoding::Zstd => "zstd",
        };
        let message = format!("cannot read {} behind byte {at} of its content", self.path.display());
        let hint = format!("it must be a complete {kind} file, moved to its place when it is written; or set compression");
        Error::external(format!("{message}: {hint}")).caused_by(error).with_retry(false)
    }

    fn failed(&self, what: &str, error: io::Error) -> Error {
        Error::external(format!("cannot {what} {}", self.path.display())).caused_by(error)
    }
}
