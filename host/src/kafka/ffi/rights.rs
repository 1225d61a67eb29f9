//! What the user of a client may do with a topic.

use super::{ERROR_BYTES, milliseconds};
use rdkafka::ClientContext;
use rdkafka::bindings::{
    self, rd_kafka_AclOperation_t as Operation, rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS, rd_kafka_event_t,
    rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR,
};
use rdkafka::client::Client;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use std::ffi::{CString, c_char};
use std::time::Duration;

/// Whether the user may write to a topic. Brokers that know no rights allow all.
///
/// # Errors
/// The topic is not there or may not be described, or nobody answers in time.
pub(crate) fn may_write<C: ClientContext>(client: &Client<C>, topic: &str, timeout: Duration) -> KafkaResult<bool> {
    let name = CString::new(topic)?;
    let mut names = [name.as_ptr()];
    // SAFETY: the client is alive for the length of the call; everything that is made here is destroyed once here, after its last use: the names are
    // copied, the options and the collection may go once the request is made, and the event once its content was read.
    unsafe {
        let client = client.native_ptr();
        let topics = bindings::rd_kafka_TopicCollection_of_topic_names(names.as_mut_ptr(), names.len());
        let options = bindings::rd_kafka_AdminOptions_new(client, RD_KAFKA_ADMIN_OP_DESCRIBETOPICS);
        let mut reason: [c_char; ERROR_BYTES] = [0; ERROR_BYTES];
        bindings::rd_kafka_AdminOptions_set_request_timeout(options, milliseconds(timeout), reason.as_mut_ptr(), ERROR_BYTES);
        let error = bindings::rd_kafka_AdminOptions_set_include_authorized_operations(options, 1);
        if !error.is_null() {
            bindings::rd_kafka_error_destroy(error);
        }
        let queue = bindings::rd_kafka_queue_new(client);
        bindings::rd_kafka_DescribeTopics(client, topics, options, queue);
        bindings::rd_kafka_AdminOptions_destroy(options);
        bindings::rd_kafka_TopicCollection_destroy(topics);
        let event = bindings::rd_kafka_queue_poll(queue, milliseconds(timeout + Duration::from_millis(500)));
        let answer = if event.is_null() { Err(RDKafkaErrorCode::OperationTimedOut) } else { read(event) };
        if !event.is_null() {
            bindings::rd_kafka_event_destroy(event);
        }
        bindings::rd_kafka_queue_destroy(queue);
        answer.map_err(KafkaError::AdminOp)
    }
}

/// # Safety
/// An event that is alive.
unsafe fn read(event: *mut rd_kafka_event_t) -> Result<bool, RDKafkaErrorCode> {
    // SAFETY: the event is alive, and with it its result, the description and the operations, which are `count` of them.
    unsafe {
        let code = bindings::rd_kafka_event_error(event);
        if code != RD_KAFKA_RESP_ERR_NO_ERROR {
            return Err(code.into());
        }
        let result = bindings::rd_kafka_event_DescribeTopics_result(event);
        if result.is_null() {
            return Err(RDKafkaErrorCode::Fail);
        }
        let mut count = 0;
        let topics = bindings::rd_kafka_DescribeTopics_result_topics(result, &raw mut count);
        if topics.is_null() || count == 0 {
            return Err(RDKafkaErrorCode::UnknownTopicOrPartition);
        }
        let topic = *topics;
        let code = bindings::rd_kafka_error_code(bindings::rd_kafka_TopicDescription_error(topic));
        if code != RD_KAFKA_RESP_ERR_NO_ERROR {
            return Err(code.into());
        }
        let operations = bindings::rd_kafka_TopicDescription_authorized_operations(topic, &raw mut count);
        if operations.is_null() {
            // A broker that does not say: it says it when it is written to.
            return Ok(true);
        }
        let operations = std::slice::from_raw_parts(operations, count);
        Ok(operations
            .iter()
            .any(|operation| matches!(operation, Operation::RD_KAFKA_ACL_OPERATION_WRITE | Operation::RD_KAFKA_ACL_OPERATION_ALL)))
    }
}
