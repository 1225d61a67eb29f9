//! Event time: where timestamps are, watermarks, and what becomes of late records.

use super::Checks;
use super::graph::is_json_pointer;
use crate::config::Span;
use crate::operator::LATE_OUTPUT;
use crate::pipeline::spec::{EventTimeSpec, InputSpec, JobSpec, LateRecords, TimestampSpec};

/// The longest time that watermarks are reckoned with: the years that a timestamp can have.
const LONGEST: Span = Span::from_millis(20_000 * 366 * 24 * 3_600_000);

pub(super) fn check(spec: &JobSpec, checks: &mut Checks) {
    for (index, source) in spec.sources.iter().enumerate() {
        if let Some(event_time) = &source.event_time {
            check_source(event_time, &format!("/sources/{index}/event-time"), checks);
        }
    }
    for (index, operator) in spec.operators.iter().enumerate() {
        if operator.late_records == LateRecords::SideOutput && !is_read(spec, &operator.uid) {
            let uid = &operator.uid;
            checks.fault(
                format!("/operators/{index}/late-records"),
                format!("nobody reads \"{uid}.{LATE_OUTPUT}\": name it in the inputs of an operator or a sink, or write drop"),
            );
        }
    }
}

fn check_source(event_time: &EventTimeSpec, path: &str, checks: &mut Checks) {
    if let TimestampSpec::Value(place) = &event_time.timestamp
        && !place.json_pointer.is_empty()
        && !is_json_pointer(&place.json_pointer)
    {
        checks.fault(
            format!("{path}/timestamp/json-pointer"),
            format!("{:?} is not a JSON pointer such as \"/at\" (in a name, ~1 stands for / and ~0 for ~)", place.json_pointer),
        );
    }
    let watermark = &event_time.watermark;
    if watermark.interval < Span::from_millis(1) {
        checks.fault(format!("{path}/watermark/interval"), "must be at least 1ms; without `event-time` no watermarks are made");
    }
    if watermark.idle_timeout.is_some_and(|timeout| timeout < Span::from_millis(1)) {
        checks.fault(format!("{path}/watermark/idle-timeout"), "must be at least 1ms; leave it out to wait for every split");
    }
    let times = [
        ("out-of-orderness", Some(watermark.out_of_orderness)),
        ("idle-timeout", watermark.idle_timeout),
        ("interval", Some(watermark.interval)),
    ];
    for (key, time) in times {
        if time.is_some_and(|time| time > LONGEST) {
            checks.fault(format!("{path}/watermark/{key}"), "is longer than 20,000 years");
        }
    }
}

fn is_read(spec: &JobSpec, uid: &str) -> bool {
    let inputs = spec.operators.iter().flat_map(|operator| &operator.inputs).chain(spec.sinks.iter().flat_map(|sink| &sink.inputs));
    inputs.map(InputSpec::origin).any(|origin| origin == (uid, Some(LATE_OUTPUT)))
}
