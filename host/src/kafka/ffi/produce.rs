//! Handing records to a producer without a copy of their headers' names or a look-up of their topic.

use super::milliseconds;
use rdkafka::ClientContext;
use rdkafka::bindings::{
    self, rd_kafka_headers_t, rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR, rd_kafka_topic_t, rd_kafka_vtype_t as Type, rd_kafka_vu_t,
};
use rdkafka::client::Client;
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::producer::{BaseProducer, PARTITION_UA, Producer as _, ProducerContext};
use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Duration;

/// A topic of a producer: what stands for it in every call.
pub(crate) struct ProducerTopic<C: ProducerContext + 'static> {
    topic: NonNull<rd_kafka_topic_t>,
    // The topic's client; dropped after the topic was given back.
    producer: Arc<BaseProducer<C>>,
}

// SAFETY: librdkafka's topics may be used from any thread.
unsafe impl<C: ProducerContext + 'static> Send for ProducerTopic<C> {}
// SAFETY: librdkafka's topics may be used from several threads at a time.
unsafe impl<C: ProducerContext + 'static> Sync for ProducerTopic<C> {}

/// A record on its way to a topic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing<'a> {
    /// The key; null is not empty.
    pub(crate) key: Option<&'a [u8]>,
    /// The value; null is not empty.
    pub(crate) value: Option<&'a [u8]>,
    /// The partition; none: the client's partitioner decides.
    pub(crate) partition: Option<i32>,
    /// Milliseconds since the Unix epoch; 0: now.
    pub(crate) timestamp: i64,
    /// What a delivery report gives back.
    pub(crate) opaque: usize,
}

impl<C: ProducerContext + 'static> ProducerTopic<C> {
    /// The topic of a name; asks for its partitions in the background.
    ///
    /// # Errors
    /// A name with a zero byte in it, or one that librdkafka does not take.
    pub(crate) fn new(producer: &Arc<BaseProducer<C>>, name: &str) -> Result<Self, RDKafkaErrorCode> {
        let name = CString::new(name).map_err(|_| RDKafkaErrorCode::InvalidTopic)?;
        // SAFETY: the client is alive, the name NUL-terminated and copied; without a configuration the client's defaults hold.
        let topic = unsafe { bindings::rd_kafka_topic_new(producer.client().native_ptr(), name.as_ptr(), ptr::null_mut()) };
        let topic = NonNull::new(topic).ok_or_else(|| {
            // SAFETY: reads the error of the last call of this thread.
            RDKafkaErrorCode::from(unsafe { bindings::rd_kafka_last_error() })
        })?;
        Ok(Self { topic, producer: Arc::clone(producer) })
    }

    /// Puts a record into the producer's queue; key, value and headers are copied there. Never waits: a full queue is `QueueFull`.
    ///
    /// # Errors
    /// The record is not in the queue: the code says why.
    pub(crate) fn produce<'h>(
        &self,
        record: &Outgoing<'_>,
        headers: impl ExactSizeIterator<Item = (&'h str, Option<&'h [u8]>)>,
    ) -> Result<(), RDKafkaErrorCode> {
        let headers = if headers.len() == 0 { None } else { Some(NativeHeaders::new(headers)?) };
        let mut arguments: [rd_kafka_vu_t; 8] = [
            argument(Type::RD_KAFKA_VTYPE_RKT, |u| u.rkt = self.topic.as_ptr()),
            argument(Type::RD_KAFKA_VTYPE_PARTITION, |u| u.i32_ = record.partition.unwrap_or(PARTITION_UA)),
            argument(Type::RD_KAFKA_VTYPE_MSGFLAGS, |u| u.i = bindings::RD_KAFKA_MSG_F_COPY as c_int),
            argument(Type::RD_KAFKA_VTYPE_VALUE, |u| (u.mem.ptr, u.mem.size) = memory(record.value)),
            argument(Type::RD_KAFKA_VTYPE_KEY, |u| (u.mem.ptr, u.mem.size) = memory(record.key)),
            argument(Type::RD_KAFKA_VTYPE_TIMESTAMP, |u| u.i64_ = record.timestamp),
            argument(Type::RD_KAFKA_VTYPE_OPAQUE, |u| u.ptr = record.opaque as *mut c_void),
            argument(Type::RD_KAFKA_VTYPE_END, |_| ()),
        ];
        let mut count = 7;
        if let Some(headers) = &headers {
            arguments[count] = argument(Type::RD_KAFKA_VTYPE_HEADERS, |u| u.headers = headers.0.as_ptr());
            count += 1;
        }
        // SAFETY: the client, the topic and the first `count` arguments are alive; key and value are copied within the call.
        let error = unsafe { bindings::rd_kafka_produceva(self.producer.client().native_ptr(), arguments.as_ptr(), count) };
        if error.is_null() {
            // They belong to the record now.
            std::mem::forget(headers);
            return Ok(());
        }
        // SAFETY: an error that was given to us, read before it is destroyed, once.
        let code = unsafe {
            let code = bindings::rd_kafka_error_code(error);
            bindings::rd_kafka_error_destroy(error);
            code
        };
        Err(code.into())
    }
}

impl<C: ProducerContext + 'static> Drop for ProducerTopic<C> {
    fn drop(&mut self) {
        // SAFETY: the reference of our own is given back once; the client is still alive.
        unsafe { bindings::rd_kafka_topic_destroy(self.topic.as_ptr()) };
    }
}

/// Waits until every record in the producer's queue was delivered, or has failed and its report was served by another thread; `wait` at most.
/// Meanwhile nothing lingers. Whether it is so.
pub(crate) fn flush<C: ClientContext>(client: &Client<C>, wait: Duration) -> bool {
    // SAFETY: the client is alive while it is borrowed.
    unsafe { bindings::rd_kafka_flush(client.native_ptr(), milliseconds(wait)) == RD_KAFKA_RESP_ERR_NO_ERROR }
}

fn argument(vtype: Type, set: impl FnOnce(&mut bindings::rd_kafka_vu_s__bindgen_ty_1)) -> rd_kafka_vu_t {
    let mut u = bindings::rd_kafka_vu_s__bindgen_ty_1 { _pad: [0; 64] };
    set(&mut u);
    rd_kafka_vu_t { vtype, u }
}

/// Null stays null; what is empty is not null in Rust either.
fn memory(bytes: Option<&[u8]>) -> (*mut c_void, usize) {
    bytes.map_or((ptr::null_mut(), 0), |bytes| (bytes.as_ptr().cast_mut().cast(), bytes.len()))
}

/// Headers that are not part of a record yet.
struct NativeHeaders(NonNull<rd_kafka_headers_t>);

impl NativeHeaders {
    fn new<'h>(headers: impl ExactSizeIterator<Item = (&'h str, Option<&'h [u8]>)>) -> Result<Self, RDKafkaErrorCode> {
        // SAFETY: makes an empty list with room for so many.
        let list = unsafe { bindings::rd_kafka_headers_new(headers.len()) };
        let list = Self(NonNull::new(list).ok_or(RDKafkaErrorCode::Fail)?);
        for (name, value) in headers {
            let (value, length) = memory(value);
            let too_long = |_| RDKafkaErrorCode::InvalidArgument;
            let (name_length, length) = (isize::try_from(name.len()).map_err(too_long)?, isize::try_from(length).map_err(too_long)?);
            // SAFETY: the list is alive; name and value have the lengths that are told, and are copied.
            let code =
                unsafe { bindings::rd_kafka_header_add(list.0.as_ptr(), name.as_ptr().cast::<c_char>(), name_length, value, length) };
            if code != RD_KAFKA_RESP_ERR_NO_ERROR {
                return Err(code.into());
            }
        }
        Ok(list)
    }
}

impl Drop for NativeHeaders {
    fn drop(&mut self) {
        // SAFETY: headers that no record has taken over, destroyed once.
        unsafe { bindings::rd_kafka_headers_destroy(self.0.as_ptr()) };
    }
}
