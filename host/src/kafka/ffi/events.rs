//! The queue of a client's own events: log lines, errors, results of commits, tokens that expire.

use super::{ERROR_BYTES, milliseconds, text};
use crate::kafka::token::Token;
use crate::kafka::{Consumer, Context};
use rdkafka::ClientContext;
use rdkafka::bindings::{self, rd_kafka_event_t, rd_kafka_queue_t, rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR, rd_kafka_t};
use rdkafka::client::Client;
use rdkafka::consumer::Consumer as _;
use std::ffi::{CStr, CString, c_char};
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

/// The events of a consumer, apart from its messages: a batch call would print log lines to the standard error and drop errors.
pub(crate) struct MainQueue {
    queue: *mut rd_kafka_queue_t,
    // The queue's client; dropped after the queue was given back.
    consumer: Arc<Consumer>,
}

// SAFETY: librdkafka is thread-safe, and a queue is bound to no thread.
unsafe impl Send for MainQueue {}

impl MainQueue {
    /// Takes the events out of the queue of messages, where the binding puts them for consumers with a group. Nothing must be assigned yet.
    pub(crate) fn of(consumer: Arc<Consumer>) -> Self {
        // SAFETY: the client is alive; every client has a main queue, and the reference is given back when this is dropped. No target
        // of forwarding ends it.
        let queue = unsafe {
            let queue = bindings::rd_kafka_queue_get_main(consumer.client().native_ptr());
            bindings::rd_kafka_queue_forward(queue, ptr::null_mut());
            queue
        };
        let events = Self { queue, consumer };
        events.serve_early();
        events
    }

    /// Serves the events of the first moment, which stand in the queue of messages already: the first token is asked for there.
    fn serve_early(&self) {
        // SAFETY: the client is alive; what comes is null or a reference of our own, given back here.
        unsafe {
            let messages = bindings::rd_kafka_queue_get_consumer(self.consumer.client().native_ptr());
            if messages.is_null() {
                return;
            }
            while bindings::rd_kafka_queue_length(messages) > 0 {
                // Without an assignment there is no message in it: what the binding gives are errors, which the context has heard of.
                let _known = self.consumer.poll(Duration::ZERO);
            }
            bindings::rd_kafka_queue_destroy(messages);
        }
    }

    /// Hands one event to the context; waits for it, `wait` at most.
    pub(crate) fn serve(&self, wait: Duration) {
        // SAFETY: the queue is alive; what comes is null or an event that is ours and destroyed once, after its last use.
        unsafe {
            let event = bindings::rd_kafka_queue_poll(self.queue, milliseconds(wait));
            if event.is_null() {
                return;
            }
            self.handle(event);
            bindings::rd_kafka_event_destroy(event);
        }
    }

    /// # Safety
    /// An event that is alive.
    unsafe fn handle(&self, event: *mut rd_kafka_event_t) {
        let context: &Context = self.consumer.client().context();
        // SAFETY: the event is alive; its texts are null or NUL-terminated and live as long.
        unsafe {
            match bindings::rd_kafka_event_type(event) {
                bindings::RD_KAFKA_EVENT_LOG => {
                    let (mut facility, mut line, mut level): (*const c_char, *const c_char, _) = (ptr::null(), ptr::null(), 0);
                    if bindings::rd_kafka_event_log(event, &raw mut facility, &raw mut line, &raw mut level) == 0 {
                        context.line(level, &text(facility), text(line).trim());
                    }
                }
                bindings::RD_KAFKA_EVENT_ERROR => {
                    let reason = text(bindings::rd_kafka_event_error_string(event));
                    context.trouble(bindings::rd_kafka_event_error(event).into(), reason.trim());
                }
                bindings::RD_KAFKA_EVENT_OFFSET_COMMIT => context.committed(bindings::rd_kafka_event_error(event).into()),
                bindings::RD_KAFKA_EVENT_OAUTHBEARER_TOKEN_REFRESH => refresh_token(self.consumer.client(), context),
                _ => {}
            }
        }
    }
}

impl Drop for MainQueue {
    fn drop(&mut self) {
        // SAFETY: the reference of our own is given back once; the client is still alive.
        unsafe { bindings::rd_kafka_queue_destroy(self.queue) };
    }
}

fn refresh_token(client: &Client<Context>, context: &Context) {
    let result = context.token().and_then(|token| set_oauth_token(client, &token));
    if let Err(reason) = result {
        // A sentence of ours has no zero byte; one that had would be shortened.
        let reason = CString::new(reason).unwrap_or_default();
        // SAFETY: the client is alive, and the text NUL-terminated; librdkafka copies it.
        unsafe { bindings::rd_kafka_oauthbearer_set_token_failure(client.native_ptr(), reason.as_ptr()) };
    }
}

/// Gives a client a token for OAUTHBEARER.
///
/// # Errors
/// A token that librdkafka does not take: expired, or not of the form of one. The sentence does not repeat it.
pub(crate) fn set_oauth_token<C: ClientContext>(client: &Client<C>, token: &Token) -> Result<(), String> {
    let zero = |_| "it has a zero byte in it".to_owned();
    let value = CString::new(token.value.as_str()).map_err(zero)?;
    let principal = CString::new(token.principal.as_str()).map_err(zero)?;
    let mut reason: [c_char; ERROR_BYTES] = [0; ERROR_BYTES];
    let client: *mut rd_kafka_t = client.native_ptr();
    // SAFETY: the client is alive and copies both texts; there are no extensions; `reason` has the size that is told, and holds a NUL-terminated
    // text afterwards.
    unsafe {
        let code = bindings::rd_kafka_oauthbearer_set_token(
            client,
            value.as_ptr(),
            token.expires,
            principal.as_ptr(),
            ptr::null_mut(),
            0,
            reason.as_mut_ptr(),
            ERROR_BYTES,
        );
        if code == RD_KAFKA_RESP_ERR_NO_ERROR {
            return Ok(());
        }
        Err(CStr::from_ptr(reason.as_ptr()).to_string_lossy().into_owned())
    }
}
