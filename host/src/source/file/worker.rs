//! The thread that reads the files of one subtask, ahead of the records that are asked for.

use super::cursor::{Cursor, Step};
use super::lines::Block;
use super::options::OnLostFile;
use super::settings::Settings;
use crate::Error;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread;
use std::time::Duration;
use tokio::sync::mpsc;

/// How often files that are followed are looked at while none of them has anything new.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Files that a thread has open at most. As long as there are no more files than this, all of them stay open: an open file is read to its end
/// also when it was deleted. With the usual limit of 1,024 descriptors there is room for a dozen subtasks and what they write.
pub(super) const MAX_OPEN_FILES: usize = 64;

/// Blocks that are read ahead: enough that neither side waits for the other, and a bound of the memory.
const BLOCKS_AHEAD: usize = 4;

/// What the thread tells its reader, in the order of reading.
#[derive(Debug)]
pub(super) enum Event {
    /// Lines of a split.
    Lines(Block),
    /// A split is read to its end.
    End(usize),
    /// The rest of a split is given up, as the options say.
    Lost(usize),
    /// Reading failed, and the thread has ended.
    Failed(Error),
}

/// The reader's end of the thread. The thread ends when this is dropped.
#[derive(Debug)]
pub(super) struct Worker {
    commands: Sender<Vec<Cursor>>,
    spare: Sender<Block>,
    pub(super) events: mpsc::Receiver<Event>,
}

impl std::fmt::Debug for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cursor").field("path", &self.path()).field("read_to", &self.read_to()).finish_non_exhaustive()
    }
}

impl Worker {
    /// Starts the thread of a subtask.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(super) fn start(settings: Arc<Settings>, subtask: usize) -> io::Result<Self> {
        let (commands, command_queue) = channel();
        let (spare, spare_queue) = channel();
        let (event_queue, events) = mpsc::channel(BLOCKS_AHEAD);
        let name = format!("file-{}-{subtask}", settings.uid);
        let reading = Reading { settings, commands: command_queue, spare: spare_queue, events: event_queue, cursors: VecDeque::new() };
        // Nobody joins it: it ends by itself within a read after its reader was dropped.
        thread::Builder::new().name(name).spawn(move || reading.run())?;
        Ok(Self { commands, spare, events })
    }

    /// Hands over files to read. When the thread has ended it has said why.
    pub(super) fn add(&self, cursors: Vec<Cursor>) {
        let _ended = self.commands.send(cursors);
    }

    /// Gives a block back, to be filled again.
    pub(super) fn recycle(&self, block: Block) {
        let _ended = self.spare.send(block);
    }
}

struct Reading {
    settings: Arc<Settings>,
    commands: Receiver<Vec<Cursor>>,
    spare: Receiver<Block>,
    events: mpsc::Sender<Event>,
    cursors: VecDeque<Cursor>,
}

/// The reader was dropped.
struct Gone;

impl Reading {
    fn run(mut self) {
        // Gone is the normal end.
        let _gone = self.read_all();
    }

    fn read_all(&mut self) -> Result<(), Gone> {
        let (mut unused, mut idle) = (None, 0);
        loop {
            if self.take_commands(idle >= self.cursors.len())? {
                idle = 0;
            }
            idle = if idle >= self.cursors.len() { 0 } else { idle };
            let Some(mut cursor) = self.cursors.pop_front() else { continue };
            match cursor.needs_opening(&self.settings) {
                Ok(true) => self.make_room(),
                Ok(false) if cursor.is_open() => {}
                Ok(false) => {
                    self.cursors.push_back(cursor);
                    idle += 1;
                    continue;
                }
                Err(error) => return self.failed(error),
            }
            let mut block = unused.take().or_else(|| self.spare.try_recv().ok()).unwrap_or_default();
            match cursor.step(&self.settings, &mut block) {
                Ok(Step::Lines) => {
                    self.send(Event::Lines(block))?;
                    // A file with an end is read to it; those that are followed take turns.
                    if cursor.is_bounded() {
                        self.cursors.push_front(cursor)
                    } else {
                        self.cursors.push_back(cursor)
                    }
                    idle = 0;
                }
                Ok(Step::Idle) => {
                    unused = Some(block);
                    self.cursors.push_back(cursor);
                    idle += 1;
                }
                Ok(Step::End) => {
                    self.send(Event::Lines(block))?;
                    self.send(Event::End(cursor.split()))?;
                }
                Ok(Step::Lost(why)) => self.lost(&cursor, &why)?,
                Err(error) => return self.failed(error),
            }
        }
    }

    fn failed(&self, error: Error) -> Result<(), Gone> {
        let error = error.within(format!("source {}", self.settings.uid));
        self.send(Event::Failed(error)).and(Err(Gone))
    }

    /// Closes a file if another one could not be opened else: of those that were read to their ends, or else of all, the one that brought
    /// nothing new for longest.
    fn make_room(&mut self) {
        if self.cursors.iter().filter(|cursor| cursor.is_open()).count() < MAX_OPEN_FILES {
            return;
        }
        let open = self.cursors.iter_mut().filter(|cursor| cursor.is_open());
        if let Some(quietest) = open.min_by_key(|cursor| (!cursor.is_at_end(), cursor.grew_at())) {
            quietest.close();
        }
    }

    fn lost(&self, cursor: &Cursor, why: &str) -> Result<(), Gone> {
        let Settings { uid, on_lost_file, .. } = &*self.settings;
        let what = format!("{} {why} when it was read to byte {}", cursor.path().display(), cursor.read_to());
        if *on_lost_file == OnLostFile::Skip {
            tracing::warn!(source = uid.as_str(), "{what}: the rest of it is skipped");
            return self.send(Event::Lost(cursor.split()));
        }
        let advice = "put the file back as it was, or set on-lost-file: skip to go on without the rest of it";
        let rotation = "log files should be rotated by renaming them, not by copying and truncating";
        let error = Error::user(format!("source {uid}: {what}: {advice}; {rotation}"));
        self.send(Event::Failed(error)).and(Err(Gone))
    }

    fn send(&self, event: Event) -> Result<(), Gone> {
        self.events.blocking_send(event).map_err(|_| Gone)
    }

    /// Takes over new files: waits for some when there are none, or for a while when the present ones have nothing new. Says whether there were.
    fn take_commands(&mut self, all_idle: bool) -> Result<bool, Gone> {
        let added = if self.cursors.is_empty() {
            Some(self.commands.recv().map_err(|_| Gone)?)
        } else if all_idle {
            match self.commands.recv_timeout(POLL_INTERVAL) {
                Ok(added) => Some(added),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return Err(Gone),
            }
        } else {
            match self.commands.try_recv() {
                Ok(added) => Some(added),
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => return Err(Gone),
            }
        };
        let is_new = added.is_some();
        self.cursors.extend(added.into_iter().flatten());
        Ok(is_new)
    }
}
