//! Inputs: that they lead somewhere, without a circle, and that everything is read.

use super::Checks;
use crate::config::unknown;
use crate::pipeline::spec::{ErrorPolicy, InputSpec, JobSpec, KeyBy, OnMissingKey};
use std::collections::HashSet;

/// Checks the graph; answers with the positions of the operators, each behind those that it reads from.
pub(super) fn check(spec: &JobSpec, checks: &mut Checks) -> Vec<usize> {
    if spec.sources.is_empty() {
        checks.fault("/sources", "there is none: a job has at least one source");
    }
    if spec.sinks.is_empty() {
        checks.fault("/sinks", "there is none: a job has at least one sink (type discard takes what nobody wants)");
    }
    for (index, operator) in spec.operators.iter().enumerate() {
        let path = format!("/operators/{index}/inputs");
        if operator.inputs.is_empty() {
            checks.fault(&path, "is empty: an operator reads from at least one source or operator");
        }
        check_inputs(spec, &operator.uid, &path, &operator.inputs, checks);
        check_numbers(&path, &operator.inputs, checks);
    }
    for (index, sink) in spec.sinks.iter().enumerate() {
        let path = format!("/sinks/{index}/inputs");
        if sink.inputs.is_empty() && !takes_dead_letters(spec, &sink.uid) {
            checks.fault(&path, "is empty: a sink reads from at least one source or operator, or is some operator's dead-letter-sink");
        }
        check_inputs(spec, &sink.uid, &path, &sink.inputs, checks);
        for (number, input) in sink.inputs.iter().enumerate().filter(|(_, input)| input.number != 0) {
            checks.fault(format!("{path}/{number}/as"), format!("a sink has one input, 0, and no input {}", input.number));
        }
    }
    check_dead_letters(spec, checks);
    check_readers(spec, checks);
    order(spec, checks)
}

fn takes_dead_letters(spec: &JobSpec, sink: &str) -> bool {
    spec.operators.iter().any(|operator| operator.dead_letter_sink.as_deref() == Some(sink))
}

fn check_inputs(spec: &JobSpec, uid: &str, path: &str, inputs: &[InputSpec], checks: &mut Checks) {
    let mut seen = HashSet::new();
    for (number, input) in inputs.iter().enumerate() {
        let path = format!("{path}/{number}");
        check_origin(spec, uid, &path, input, checks);
        if !seen.insert((&input.from, input.number)) {
            checks.fault(&path, format!("{:?} is read twice at this input", input.from));
        }
        if input.broadcast && input.key_by.is_some() {
            checks.fault(format!("{path}/broadcast"), "contradicts key-by: an input is dealt by key or given whole to every subtask");
        }
        if input.on_missing_key != OnMissingKey::Fail && input.key_by.is_none() {
            checks.fault(format!("{path}/on-missing-key"), "says what happens to a record without a key, but the input has no key-by");
        }
        if let Some(KeyBy::JsonPointer(pointer)) = &input.key_by
            && !is_json_pointer(pointer)
        {
            checks.fault(
                format!("{path}/key-by/json-pointer"),
                format!("{pointer:?} is not a JSON pointer such as \"/user\" or \"/order/id\" (in a name, ~1 stands for / and ~0 for ~)"),
            );
        }
        if matches!(&input.key_by, Some(KeyBy::Header(name)) if name.is_empty()) {
            checks.fault(format!("{path}/key-by/header"), "is empty: give the name of a header");
        }
    }
}

/// A pointer to a place inside of a value, as RFC 6901 has it; the whole value is no key.
pub(super) fn is_json_pointer(pointer: &str) -> bool {
    let escapes_are_right = || pointer.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
    pointer.starts_with('/') && escapes_are_right()
}

fn check_origin(spec: &JobSpec, uid: &str, path: &str, input: &InputSpec, checks: &mut Checks) {
    let (from, output) = input.origin();
    // The place of a short input is the input itself.
    if checks.is_silent(&format!("{path}/from")) {
        return;
    }
    if from == uid {
        checks.fault(path, format!("{uid:?} reads its own output; records flow in one direction"));
    } else if spec.sinks.iter().any(|sink| sink.uid == from) {
        checks.fault(path, format!("{from:?} is a sink, which has no output"));
    } else if let Some(output) = output
        && spec.sources.iter().any(|source| source.uid == from)
    {
        checks.fault(path, format!("the source {from:?} has one output and no side output {output:?}; write {from:?}"));
    } else {
        let known =
            || spec.sources.iter().map(|source| source.uid.as_str()).chain(spec.operators.iter().map(|operator| operator.uid.as_str()));
        if !known().any(|known| known == from) {
            let readable = known().filter(|known| *known != uid && !known.starts_with('?'));
            checks.fault(path, unknown("input", from, readable));
        }
    }
}

fn check_numbers(path: &str, inputs: &[InputSpec], checks: &mut Checks) {
    let largest = inputs.iter().map(|input| input.number).max().unwrap_or(0);
    if largest > 0 && usize::from(largest) >= inputs.len() {
        check_largest(path, inputs, checks);
        return;
    }
    for number in 0..largest {
        if !inputs.iter().any(|input| input.number == number) {
            checks.fault(path, format!("an input is numbered {largest} by `as`, but none {number}: numbers begin at 0 and have no gaps"));
        }
    }
    for number in 0..=largest {
        let of_number = || inputs.iter().filter(|input| input.number == number);
        if of_number().any(|input| input.broadcast) && of_number().any(|input| !input.broadcast) {
            checks.fault(
                path,
                format!("input {number} is a union of what is broadcast and what is not: give the two different numbers by `as`"),
            );
        }
    }
}

/// Numbers without gaps are below the number of inputs.
fn check_largest(path: &str, inputs: &[InputSpec], checks: &mut Checks) {
    let possible = match inputs.len() {
        1 => "only 0 is possible where there is one input".to_owned(),
        count => format!("with {count} inputs 0 to {} are possible: numbers begin at 0 and have no gaps", count - 1),
    };
    for (index, input) in inputs.iter().enumerate().filter(|(_, input)| usize::from(input.number) >= inputs.len()) {
        checks.fault(format!("{path}/{index}/as"), format!("{} is out of range: {possible}", input.number));
    }
}

fn check_dead_letters(spec: &JobSpec, checks: &mut Checks) {
    for (index, operator) in spec.operators.iter().enumerate() {
        let path = format!("/operators/{index}/dead-letter-sink");
        match (operator.error_policy, &operator.dead_letter_sink) {
            (ErrorPolicy::DeadLetter, None) => {
                checks.fault(path, "is missing: error-policy dead-letter needs the uid of the sink that dead letters go to");
            }
            (ErrorPolicy::Fail | ErrorPolicy::Skip, Some(_)) => {
                let message = "is given, but error-policy is not dead-letter: nothing would go there";
                checks.fault(path, message);
            }
            (_, Some(sink)) if !spec.sinks.iter().any(|known| known.uid == *sink) => {
                checks.fault(path, unknown("sink", sink, spec.sinks.iter().map(|sink| sink.uid.as_str())));
            }
            _ => {}
        }
    }
}

/// Sources and operators that nobody reads do work for nothing: their effect is their output alone.
fn check_readers(spec: &JobSpec, checks: &mut Checks) {
    let inputs = || spec.operators.iter().flat_map(|operator| &operator.inputs).chain(spec.sinks.iter().flat_map(|sink| &sink.inputs));
    // A misspelt input has a fault of its own, and is probably the one that is missing here.
    let all_are_known = inputs().all(|input| {
        let (from, _) = input.origin();
        spec.sources.iter().any(|source| source.uid == from) || spec.operators.iter().any(|operator| operator.uid == from)
    });
    let is_unread = |section: &str, count: usize| (0..count).any(|index| checks.is_silent(&format!("/{section}/{index}/inputs")));
    if !all_are_known || spec.sinks.is_empty() || is_unread("operators", spec.operators.len()) || is_unread("sinks", spec.sinks.len()) {
        return;
    }
    let sources = spec.sources.iter().enumerate().map(|(index, source)| (format!("/sources/{index}/uid"), &source.uid));
    let operators = spec.operators.iter().enumerate().map(|(index, operator)| (format!("/operators/{index}/uid"), &operator.uid));
    for (path, uid) in sources.chain(operators) {
        if !inputs().any(|input| input.origin().0 == uid) {
            checks.fault(path, format!("nobody reads {uid:?}: name it in the inputs of an operator or a sink, or leave it out"));
        }
    }
}

/// The positions of the operators, each behind those that it reads from, otherwise in the order of the specification.
fn order(spec: &JobSpec, checks: &mut Checks) -> Vec<usize> {
    let mut order: Vec<usize> = Vec::new();
    let mut left: Vec<usize> = (0..spec.operators.len()).collect();
    let reads_from = |reader: usize, left: &[usize]| {
        let inputs = &spec.operators[reader].inputs;
        left.iter().copied().find(|&other| inputs.iter().any(|input| input.origin().0 == spec.operators[other].uid))
    };
    while !left.is_empty() {
        let Some(place) = left.iter().position(|&index| reads_from(index, &left).is_none()) else {
            report_circle(spec, &left, &reads_from, checks);
            break;
        };
        order.push(left.remove(place));
    }
    order
}

fn report_circle(spec: &JobSpec, left: &[usize], reads_from: &dyn Fn(usize, &[usize]) -> Option<usize>, checks: &mut Checks) {
    // All that is left reads from what is left, so following the inputs must come to an operator a second time.
    let mut walked = vec![left[0]];
    while let Some(next) = walked.last().and_then(|&last| reads_from(last, left)) {
        if let Some(start) = walked.iter().position(|&index| index == next) {
            let circle = &walked[start..];
            // One that reads itself was reported as that.
            if circle.len() > 1 {
                let names: Vec<&str> = circle.iter().chain(&circle[..1]).rev().map(|&index| spec.operators[index].uid.as_str()).collect();
                let path = format!("/operators/{}/inputs", circle[0]);
                checks.fault(path, format!("records would flow in a circle: {}", names.join(" → ")));
            }
            return;
        }
        walked.push(next);
    }
}
