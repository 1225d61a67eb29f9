//! One file that is being read: finds it, checks that it is still the same, and hands out its lines block by block.
//!
//! A file that is followed is kept open while it is read, and may be [closed](Cursor::close) to make room for others. A closed one is looked at
//! from time to time, and opened again, by its identity and wherever it is in its folder, as soon as there is something to do:
//!
//! - it has another size or was changed otherwise: it is read on;
//! - it is not at its path any more (rotated): it is read to its end as an open one is, with all that is written to it within `rotation-wait`;
//! - it is nowhere in its folder any more, and again not `rotation-wait` later: nothing can be read of it. Had it been read to its end, in whole
//!   lines, when it was looked at last, it is finished; if not, it is lost, and `on-lost-file` decides. Only an open file outlives its deletion,
//!   so it is those that grew last that stay open.

use super::failure::failure;
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
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a file that was closed is looked at: a look is a system call, and there may be thousands of files.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// How often a folder is searched for a file that is renamed meanwhile.
const SEARCHES: usize = 3;

/// A file and how far it was read.
pub(super) struct Cursor {
    /// The split, by its number in the reader.
    split: usize,
    /// Where the file was found.
    path: PathBuf,
    /// Where it was when it was opened last.
    place: PathBuf,
    identity: Identity,
    /// The byte at which reading starts.
    offset: u64,
    /// The byte up to which the file was read when it was open before: from the offset on it is read again.
    furthest: u64,
    /// The size of the file, compressed where it is, up to which it is read; none to follow it.
    size: Option<u64>,
    opened: Option<Opened>,
    /// What is known of the file where it was closed.
    closed: Option<Closed>,
    /// Since when the file is not to be found at its path any more, without anything new in it.
    left_alone_since: Option<Instant>,
}

struct Opened {
    file: Arc<File>,
    input: Input,
    lines: Lines,
    /// The file as it was before it was read last, where that came to its end.
    at_end: Option<Seen>,
    /// When something new was found in it, or it was opened.
    grew_at: Instant,
}

/// By what it is noticed that a file was written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    size: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
}

impl Seen {
    fn of(metadata: &Metadata) -> Self {
        Self { size: metadata.len(), modified: (metadata.mtime(), metadata.mtime_nsec()) }
    }
}

struct Closed {
    /// The file as it was read to its end; none where it was closed before that.
    at_end: Option<Seen>,
    /// Whether a line was begun whose end is not there yet.
    has_begun_line: bool,
    next_look: Instant,
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
        Self {
            split,
            place: path.clone(),
            path,
            identity,
            offset,
            furthest: offset,
            size,
            opened: None,
            closed: None,
            left_alone_since: None,
        }
    }

    /// Whether the file is open.
    pub(super) fn is_open(&self) -> bool {
        self.opened.is_some()
    }

    /// When something new was found in the file, or it was opened.
    pub(super) fn grew_at(&self) -> Option<Instant> {
        self.opened.as_ref().map(|opened| opened.grew_at)
    }

    /// Whether the file is open and was read to its end.
    pub(super) fn is_at_end(&self) -> bool {
        self.opened.as_ref().is_some_and(|opened| opened.at_end.is_some())
    }

    /// Gives the descriptor back; the next step that needs it opens the file again.
    pub(super) fn close(&mut self) {
        let Some(Opened { lines, at_end, .. }) = self.opened.take() else { return };
        let has_begun_line = lines.read_to() > lines.line_start();
        self.offset = lines.line_start();
        self.closed = Some(Closed { at_end, has_begun_line, next_look: Instant::now() + LOOK_INTERVAL });
    }

    /// Whether the next step opens the file. One that is closed is looked at for that, unless that was done just now.
    ///
    /// # Errors
    /// A file that cannot be looked at.
    pub(super) fn needs_opening(&mut self, settings: &Settings) -> Result<bool, Error> {
        if self.opened.is_some() {
            return Ok(false);
        }
        let Some(closed) = &mut self.closed else { return Ok(true) };
        let Some(seen) = closed.at_end else { return Ok(true) };
        let now = Instant::now();
        if now < closed.next_look {
            return Ok(false);
        }
        closed.next_look = now + LOOK_INTERVAL;
        let metadata = match fs::metadata(&self.place) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
            Err(error) => return Err(failure("look at", &self.place, error)),
        };
        let is_unchanged = metadata.ino() == self.identity.inode && Seen::of(&metadata) == seen;
        let is_over = self.left_alone_since.is_some_and(|since| since.elapsed() >= settings.rotation_wait);
        Ok(!is_unchanged || is_over)
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
                Err(_) if self.was_deleted_at_its_end() => return Ok(self.deleted(settings, block)),
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
        let seen = Seen::of(&opened.file.metadata().map_err(|error| failure("look at", &self.place, error))?);
        let filled = opened.lines.read(&mut opened.input, block).map_err(|error| self.line_error(error, settings, encoding, opened))?;
        let has_grown = opened.lines.read_to() > self.furthest;
        if has_grown {
            self.furthest = opened.lines.read_to();
            self.left_alone_since = None;
            opened.grew_at = Instant::now();
        }
        opened.at_end = (opened.lines.read_to() >= seen.size).then_some(seen);
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
    fn open(&mut self, settings: &Settings, encoding: Encoding) -> Result<Result<Opened, String>, Error> {
        let Some((file, place)) = self.find()? else {
            return Ok(Err(self.what_is_there()));
        };
        (self.place, self.closed) = (place, None);
        let size = file.metadata().map_err(|error| self.failed("look at", error))?.len();
        if encoding == Encoding::Plain && size < self.offset {
            return Ok(Err(format!("was cut to {size} bytes")));
        }
        let input =
            Input::open(&file, encoding, self.offset, self.size).map_err(|error| self.content_error(self.offset, encoding, error))?;
        let lines = Lines::new(self.offset, settings.max_record, settings.skip_blank);
        Ok(Ok(Opened { file, input, lines, at_end: None, grew_at: Instant::now() }))
    }

    /// What comes of a closed file that was deleted at its end: it is finished if it stays away.
    fn deleted(&mut self, settings: &Settings, block: &mut Block) -> Step {
        let since = *self.left_alone_since.get_or_insert_with(Instant::now);
        if since.elapsed() < settings.rotation_wait {
            if let Some(closed) = &mut self.closed {
                closed.next_look = since + settings.rotation_wait;
            }
            return Step::Idle;
        }
        Lines::new(self.offset, settings.max_record, settings.skip_blank).begin(block);
        (block.split, block.head) = (self.split, self.identity.head);
        Step::End
    }

    /// Whether the file, which is nowhere to be found, was closed when it had been read to its end, in whole lines, and was not written to as
    /// far as that was seen. One that stands at its path and is another one by its first bytes was overwritten.
    fn was_deleted_at_its_end(&self) -> bool {
        let was_read = self.closed.as_ref().is_some_and(|closed| closed.at_end.is_some() && !closed.has_begun_line);
        let is_there = fs::metadata(&self.place).is_ok_and(|metadata| metadata.ino() == self.identity.inode);
        was_read && !is_there
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

    /// The file and where it is now.
    fn find(&self) -> Result<Option<(Arc<File>, PathBuf)>, Error> {
        match File::open(&self.path) {
            Ok(file) if self.is(&file, true).map_err(|error| self.failed("read", error))? => {
                return Ok(Some((Arc::new(file), self.path.clone())));
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(self.failed("open", error)),
            _ => {}
        }
        for _ in 0..SEARCHES {
            match self.search() {
                // It was renamed again meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                found => return found.map_err(|error| self.failed("search the folder of", error)),
            }
        }
        Ok(None)
    }

    /// The file under another name in its folder.
    fn search(&self) -> io::Result<Option<(Arc<File>, PathBuf)>> {
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        let entries = match fs::read_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let same_inode = |metadata: &Metadata| metadata.is_file() && metadata.ino() == self.identity.inode;
            if !entry.metadata().as_ref().is_ok_and(same_inode) {
                continue;
            }
            let file = File::open(entry.path())?;
            if self.is(&file, false)? {
                return Ok(Some((Arc::new(file), entry.path())));
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
    fn is_left(&mut self, opened: &Opened, settings: &Settings) -> Result<bool, Error> {
        let own = opened.file.metadata().map_err(|error| self.failed("look at", error))?;
        let at_its_path = match fs::metadata(&self.path) {
            Ok(metadata) => metadata.ino() == own.ino() && metadata.dev() == own.dev(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(self.failed("look at", error)),
        };
        if at_its_path {
            self.left_alone_since = None;
            return Ok(false);
        }
        let since = *self.left_alone_since.get_or_insert_with(Instant::now);
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
            _ if error.raw_os_error().is_some() => return self.failed("read", error),
            Encoding::Plain => return self.failed("read", error),
            Encoding::Gzip => "gzip",
            Encoding::Zstd => "zstd",
        };
        let message = format!("cannot read {} behind byte {at} of its content", self.path.display());
        let hint = format!("it must be a complete {kind} file, moved to its place when it is written; or set compression");
        Error::external(format!("{message}: {hint}")).caused_by(error).with_retry(false)
    }

    fn failed(&self, what: &str, error: io::Error) -> Error {
        failure(what, &self.path, error)
    }
}
