//! Reading many messages with one call.

use super::{bytes, milliseconds, text};
use crate::kafka::Consumer;
use rdkafka::bindings::{
    self, rd_kafka_message_t, rd_kafka_queue_t,
    rd_kafka_resp_err_t::{RD_KAFKA_RESP_ERR__NOENT, RD_KAFKA_RESP_ERR_NO_ERROR},
};
use rdkafka::consumer::Consumer as _;
use rdkafka::error::RDKafkaErrorCode;
use std::ffi::CStr;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Duration;

/// The queue in which the messages of a consumer arrive, and the errors and ends of its partitions, with room for those of one call.
pub(crate) struct ConsumerQueue {
    queue: NonNull<rd_kafka_queue_t>,
    slots: Vec<*mut rd_kafka_message_t>,
    /// So many slots hold a message.
    filled: usize,
    // The client of queue and messages; dropped after both were given back.
    _consumer: Arc<Consumer>,
}

// SAFETY: librdkafka is thread-safe, and queue and messages are bound to no thread; only one thread at a time has this value.
unsafe impl Send for ConsumerQueue {}

impl ConsumerQueue {
    /// The queue of a consumer, which has a group id, with room for so many messages, one at least; none without a group id.
    pub(crate) fn of(consumer: &Arc<Consumer>, messages: usize) -> Option<Self> {
        // SAFETY: the client is alive; what comes is null or a reference of our own, given back when this is dropped.
        let queue = unsafe { bindings::rd_kafka_queue_get_consumer(consumer.client().native_ptr()) };
        let slots = vec![ptr::null_mut(); messages.max(1)];
        Some(Self { queue: NonNull::new(queue)?, slots, filled: 0, _consumer: Arc::clone(consumer) })
    }

    /// Reads as many messages as are there and find room, in place of those that were read before. Waits for the first one, `wait` at most.
    pub(crate) fn read(&mut self, wait: Duration) {
        self.clear();
        self.fill(usize::MAX, Duration::ZERO);
        // librdkafka would wait for a full batch: one message ends the wait, and others may have come with it.
        if self.filled == 0 && !wait.is_zero() {
            self.fill(1, wait);
            self.fill(usize::MAX, Duration::ZERO);
        }
    }

    /// How many messages were read.
    pub(crate) fn len(&self) -> usize {
        self.filled
    }

    /// Message `index` of those that were read, in the order of the queue.
    pub(crate) fn get(&self, index: usize) -> Option<Message<'_>> {
        let message = *self.slots[..self.filled].get(index)?;
        Some(Message { message: NonNull::new(message)?, _alive: PhantomData })
    }

    fn fill(&mut self, most: usize, wait: Duration) {
        let free = &mut self.slots[self.filled..];
        if free.is_empty() {
            return;
        }
        // SAFETY: the queue is alive, and librdkafka writes at most as many pointers as it is told, all within `free`. Messages that it gives are
        // ours, and destroyed once: in `clear`.
        let read = unsafe {
            bindings::rd_kafka_consume_batch_queue(self.queue.as_ptr(), milliseconds(wait), free.as_mut_ptr(), free.len().min(most))
        };
        // A negative number is an error, and there is none but a wrong argument.
        self.filled += usize::try_from(read).unwrap_or(0);
    }

    fn clear(&mut self) {
        for slot in &mut self.slots[..self.filled] {
            // SAFETY: the first `filled` slots hold messages that nobody borrows any more (`self` is borrowed mutably), each destroyed once.
            unsafe { bindings::rd_kafka_message_destroy(*slot) };
            *slot = ptr::null_mut();
        }
        self.filled = 0;
    }
}

impl Drop for ConsumerQueue {
    fn drop(&mut self) {
        self.clear();
        // SAFETY: the reference of our own is given back once; the client is still alive.
        unsafe { bindings::rd_kafka_queue_destroy(self.queue.as_ptr()) };
    }
}

/// A message, or an error or the end of a partition, which come in the order of messages.
#[derive(Clone, Copy)]
pub(crate) struct Message<'a> {
    message: NonNull<rd_kafka_message_t>,
    _alive: PhantomData<&'a ConsumerQueue>,
}

impl<'a> Message<'a> {
    fn native(&self) -> &'a rd_kafka_message_t {
        // SAFETY: the queue holds the message for `'a`, and nothing writes to its fields.
        unsafe { self.message.as_ref() }
    }

    /// The error that came instead of a message.
    pub(crate) fn error(&self) -> Option<RDKafkaErrorCode> {
        let code = self.native().err;
        (code != RD_KAFKA_RESP_ERR_NO_ERROR).then(|| code.into())
    }

    /// The error in the client's words.
    pub(crate) fn error_text(&self) -> String {
        // SAFETY: the message is alive; the text is null or NUL-terminated and lives as long as the message.
        unsafe { text(bindings::rd_kafka_message_errstr(self.message.as_ptr())) }
    }

    /// What tells topics apart among messages that are alive at one time, at no cost; 0 where there is no topic.
    pub(crate) fn topic_handle(&self) -> usize {
        self.native().rkt as usize
    }

    /// The topic; none where an error belongs to none.
    pub(crate) fn topic(&self) -> Option<&'a str> {
        let topic = self.native().rkt;
        if topic.is_null() {
            return None;
        }
        // SAFETY: the message holds its topic, whose name is NUL-terminated and lives as long.
        unsafe { CStr::from_ptr(bindings::rd_kafka_topic_name(topic)) }.to_str().ok()
    }

    /// The partition.
    pub(crate) fn partition(&self) -> i32 {
        self.native().partition
    }

    /// The offset; at the end of a partition the next one to come.
    pub(crate) fn offset(&self) -> i64 {
        self.native().offset
    }

    /// The key; null is not empty.
    pub(crate) fn key(&self) -> Option<&'a [u8]> {
        let native = self.native();
        // SAFETY: null, or as many bytes, which live and stay as long as the message.
        unsafe { bytes(native.key, native.key_len) }
    }

    /// The value; null is not empty.
    pub(crate) fn value(&self) -> Option<&'a [u8]> {
        let native = self.native();
        // SAFETY: null, or as many bytes, which live and stay as long as the message.
        unsafe { bytes(native.payload, native.len) }
    }

    /// Milliseconds since the Unix epoch; -1 where the message has none.
    pub(crate) fn timestamp(&self) -> i64 {
        // SAFETY: the message is alive; the type of the timestamp is not asked for.
        unsafe { bindings::rd_kafka_message_timestamp(self.message.as_ptr(), ptr::null_mut()) }
    }

    /// Calls `each` with the name and the value of every header, in order; names may repeat, and null is not empty. librdkafka takes them apart
    /// with memory of its own, a little of it also for a message that has none.
    ///
    /// # Errors
    /// Headers that cannot be taken apart.
    pub(crate) fn headers(&self, mut each: impl FnMut(&str, Option<&'a [u8]>)) -> Result<(), RDKafkaErrorCode> {
        let mut headers = ptr::null_mut();
        // SAFETY: the message is alive, and so are its headers, which it keeps. For each index below their number the name is NUL-terminated and the
        // value null or as many bytes, all alive as long as the message.
        unsafe {
            match bindings::rd_kafka_message_headers(self.message.as_ptr(), &raw mut headers) {
                RD_KAFKA_RESP_ERR_NO_ERROR => {}
                RD_KAFKA_RESP_ERR__NOENT => return Ok(()),
                code => return Err(code.into()),
            }
            let (mut name, mut value, mut length) = (ptr::null(), ptr::null(), 0);
            let mut index = 0;
            while bindings::rd_kafka_header_get_all(headers, index, &raw mut name, &raw mut value, &raw mut length)
                == RD_KAFKA_RESP_ERR_NO_ERROR
            {
                each(&CStr::from_ptr(name).to_string_lossy(), bytes(value, length));
                index += 1;
            }
        }
        Ok(())
    }
}
