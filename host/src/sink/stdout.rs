//! The sink that prints lines on standard output: for looking at a job, and for pipes.

use super::{Format, Guarantee, Sink, SinkType, SinkWriter, WriterContext};
use crate::Error;
use crate::config::{Fault, parse_options};
use crate::record::Batch;
use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io::{self, ErrorKind, Write};
use std::sync::Arc;
use tokio::task::spawn_blocking;

const CLOSED: &str =
    "whoever read the standard output has closed it; run the job without the pipe, or with a reader that goes on to the end";

/// The options of the sink `stdout`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct StdoutOptions {
    /// How a record becomes a line: `lines` (the value) or `json` (the whole record). By default `lines`.
    #[serde(default)]
    pub format: Format,
}

/// The sink type `stdout`.
#[derive(Clone, Copy, Debug, Default)]
pub struct StdoutType;

impl SinkType for StdoutType {
    fn name(&self) -> &str {
        "stdout"
    }

    fn options_schema(&self) -> schemars::Schema {
        schemars::schema_for!(StdoutOptions)
    }

    fn guarantees(&self) -> &[Guarantee] {
        &[Guarantee::None, Guarantee::AtLeastOnce]
    }

    fn promise(&self) -> &str {
        "stdout can be none or at-least-once: what was printed cannot be taken back, so that lines repeat after a crash"
    }

    fn create(&self, _uid: &str, options: &Value, _guarantee: Guarantee) -> Result<Arc<dyn Sink>, Vec<Fault>> {
        let StdoutOptions { format } = parse_options(options)?;
        Ok(Arc::new(StdoutSink { format }))
    }
}

#[derive(Debug)]
struct StdoutSink {
    format: Format,
}

#[async_trait]
impl Sink for StdoutSink {
    async fn open(&self, context: WriterContext) -> Result<Box<dyn SinkWriter>, Error> {
        Ok(Box::new(LineWriter::new(self.format, context, Box::new(io::stdout()), is_abandoned)))
    }
}

/// Whether the reader of a pipe has closed it with bytes in it that it never took: a write tells that only from the next byte on.
fn is_abandoned() -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let output = io::stdout();
    let mut pipe = [PollFd::new(&output, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    // What cannot be asked is no pipe.
    let is_closed = poll(&mut pipe, Some(&at_once)).is_ok() && pipe[0].revents().contains(PollFlags::ERR);
    is_closed && rustix::io::ioctl_fionread(&output).is_ok_and(|unread| unread > 0)
}

/// Prints a batch at once, so that lines of subtasks are never mixed, on a thread that may block: whoever reads may be slow.
struct LineWriter {
    format: Format,
    context: WriterContext,
    /// None while a blocking thread has it, and for good after a failure.
    output: Option<Output>,
    is_abandoned: fn() -> bool,
}

struct Output {
    buffer: Vec<u8>,
    to: Box<dyn Write + Send>,
}

impl LineWriter {
    fn new(format: Format, context: WriterContext, to: Box<dyn Write + Send>, is_abandoned: fn() -> bool) -> Self {
        Self { format, context, output: Some(Output { buffer: Vec::new(), to }), is_abandoned }
    }

    fn output(&mut self) -> Result<&mut Output, Error> {
        self.output.as_mut().ok_or_else(|| Error::internal("the writer failed or was cancelled before"))
    }

    /// Prints what is buffered.
    async fn print(&mut self) -> Result<(), Error> {
        self.output()?;
        let Some(mut output) = self.output.take() else { return Ok(()) };
        let printed = spawn_blocking(move || {
            output.to.write_all(&output.buffer)?;
            output.to.flush()?;
            output.buffer.clear();
            Ok::<_, io::Error>(output)
        });
        let printed = printed.await.map_err(|error| Error::internal("printing did not end").caused_by(error))?;
        self.output = Some(printed.map_err(|error| match error.kind() {
            ErrorKind::BrokenPipe => Error::external(CLOSED).with_retry(false).caused_by(error),
            _ => Error::external("cannot print on the standard output").caused_by(error),
        })?);
        Ok(())
    }
}

#[async_trait]
impl SinkWriter for LineWriter {
    async fn write(&mut self, batch: &Batch) -> Result<(), Error> {
        let format = self.format;
        for index in 0..batch.len() {
            let appended = format.append(batch, index, &mut self.output()?.buffer);
            appended.map_err(|unfit| format.refusal(unfit, batch, index, &self.context))?;
        }
        self.print().await
    }

    async fn flush(&mut self) -> Result<(), Error> {
        self.print().await?;
        if (self.is_abandoned)() { Err(Error::external(CLOSED).with_retry(false)) } else { Ok(()) }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::record::{Origin, Row, SplitTable};
    use serde_json::json;
    use std::sync::Mutex;

    #[derive(Clone, Default)]
    struct Screen {
        shown: Arc<Mutex<Vec<u8>>>,
        held: Vec<u8>,
        closed: bool,
    }

    impl Write for Screen {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.closed {
                return Err(ErrorKind::BrokenPipe.into());
            }
            self.held.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            self.shown.lock().unwrap().append(&mut self.held);
            Ok(())
        }
    }

    fn writer(format: Format, screen: Screen) -> LineWriter {
        let (job, uid, split_table) = ("job".to_owned(), "out".to_owned(), SplitTable::default());
        let context =
            WriterContext { job, uid, subtask: 0, parallelism: 1, generation: 1, split_table, metrics: Arc::default(), transactions: None };
        LineWriter::new(format, context, Box::new(screen), || false)
    }

    fn batch(values: &[Option<&str>]) -> Batch {
        let mut batch = Batch::default();
        for value in values {
            batch.push(Row { key: None, value: value.map(str::as_bytes), timestamp: 3, origin: Origin::NONE });
        }
        batch
    }

    #[tokio::test]
    async fn a_batch_is_shown_when_it_was_written() {
        let screen = Screen::default();
        let mut writer = writer(Format::Lines, screen.clone());
        writer.write(&batch(&[Some("a"), Some("b")])).await.unwrap();
        assert_eq!(*screen.shown.lock().unwrap(), b"a\nb\n");
        writer.write(&batch(&[Some("c")])).await.unwrap();
        writer.flush().await.unwrap();
        assert_eq!(*screen.shown.lock().unwrap(), b"a\nb\nc\n");
    }

    #[tokio::test]
    async fn tombstones_are_refused_as_lines_and_shown_as_json() {
        assert!(writer(Format::Lines, Screen::default()).write(&batch(&[None])).await.is_err());
        let screen = Screen::default();
        writer(Format::Json, screen.clone()).write(&batch(&[None])).await.unwrap();
        assert_eq!(*screen.shown.lock().unwrap(), b"{\"key\":null,\"value\":null,\"timestamp\":3}\n");
    }

    #[tokio::test]
    async fn a_reader_that_went_away_is_told_and_not_tried_again() {
        let mut writer = writer(Format::Lines, Screen { closed: true, ..Screen::default() });
        let error = writer.write(&batch(&[Some("a")])).await.unwrap_err();
        assert!(error.to_string().contains("closed it") && !error.retry_helps(), "{error}");
        assert!(writer.flush().await.unwrap_err().to_string().contains("failed or was cancelled before"));
    }

    #[tokio::test]
    async fn lines_that_a_reader_left_in_the_pipe_are_not_flushed() {
        let mut writer = writer(Format::Lines, Screen::default());
        writer.is_abandoned = || true;
        writer.write(&batch(&[Some("a")])).await.unwrap();
        let error = writer.flush().await.unwrap_err();
        assert!(error.to_string().contains("closed it") && !error.retry_helps(), "{error}");
    }

    #[test]
    fn exactly_once_is_not_among_its_guarantees() {
        assert_eq!(StdoutType.guarantees(), [Guarantee::None, Guarantee::AtLeastOnce]);
        assert!(StdoutType.promise().contains("at-least-once"));
        let faults = StdoutType.create("out", &json!({"format": "xml", "color": 1}), Guarantee::None).unwrap_err();
        assert_eq!(faults.len(), 2, "{faults:?}");
    }
}
