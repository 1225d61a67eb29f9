//! How a record becomes a line: the formats that the sinks of lines share.

use super::WriterContext;
use crate::Error;
use crate::record::{Batch, Header};
use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::io::{self, Write};

/// How a record becomes a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// The value as it is, then a line break. What a line cannot hold is refused: a null value, and a value with a line break.
    #[default]
    Lines,
    /// A JSON object `{"key","value","timestamp","headers"}` with the whole record: key and value as strings, `{"base64":"…"}` where they
    /// are not UTF-8, null where they are null; `headers` as a list of `{"name","value"}`, left out where a record has none.
    Json,
}

/// Why a record cannot be written in a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    /// The value is null.
    Null,
    /// The value has a line break.
    LineBreak,
}

impl Format {
    /// Appends record `index` of a batch as a line.
    pub(super) fn append(self, batch: &Batch, index: usize, out: &mut Vec<u8>) -> Result<(), Unfit> {
        match self {
            Self::Lines => {
                let value = batch.value(index).ok_or(Unfit::Null)?;
                if value.contains(&b'\n') {
                    return Err(Unfit::LineBreak);
                }
                out.extend_from_slice(value);
                out.push(b'\n');
            }
            Self::Json => {
                append_json(batch, index, out).expect("invariant: writing to memory does not fail");
            }
        }
        Ok(())
    }

    /// The error for a record that does not fit, with its place.
    pub(super) fn refusal(self, unfit: Unfit, batch: &Batch, index: usize, context: &WriterContext) -> Error {
        let (what, advice) = match unfit {
            Unfit::Null => ("null value (a tombstone)", "drop tombstones before this sink, or choose `format: json`, which keeps them"),
            Unfit::LineBreak => {
                ("value with a line break", "choose `format: json`, which keeps it, or remove the line break before this sink")
            }
        };
        let origin = batch.origins()[index];
        let place = match context.split_table.place(origin) {
            Some(place) => format!(" (read from {place})"),
            None => String::new(),
        };
        Error::user(format!("`format: lines` cannot hold the {what} of a record{place}; {advice}"))
    }
}

fn append_json(batch: &Batch, index: usize, out: &mut Vec<u8>) -> io::Result<()> {
    out.extend_from_slice(b"{\"key\":");
    append_bytes(batch.key(index), out)?;
    out.extend_from_slice(b",\"value\":");
    append_bytes(batch.value(index), out)?;
    write!(out, ",\"timestamp\":{}", batch.timestamps()[index])?;
    let mut headers = batch.headers().row(index);
    if let Some(first) = headers.next() {
        out.extend_from_slice(b",\"headers\":[");
        append_header(first, out)?;
        for header in headers {
            out.push(b',');
            append_header(header, out)?;
        }
        out.push(b']');
    }
    out.extend_from_slice(b"}\n");
    Ok(())
}

fn append_header(header: Header<'_>, out: &mut Vec<u8>) -> io::Result<()> {
    out.extend_from_slice(b"{\"name\":");
    serde_json::to_writer(&mut *out, header.name)?;
    out.extend_from_slice(b",\"value\":");
    append_bytes(header.value, out)?;
    out.push(b'}');
    Ok(())
}

fn append_bytes(bytes: Option<&[u8]>, out: &mut Vec<u8>) -> io::Result<()> {
    match bytes.map(|bytes| std::str::from_utf8(bytes).map_err(|_| bytes)) {
        None => out.extend_from_slice(b"null"),
        Some(Ok(text)) => serde_json::to_writer(&mut *out, text)?,
        Some(Err(bytes)) => write!(out, "{{\"base64\":\"{}\"}}", Base64Display::new(bytes, &STANDARD))?,
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::record::{Origin, Row, SplitTable};
    use serde_json::{Value, json};

    fn push<'a>(batch: &mut Batch, key: impl Into<Option<&'a str>>, value: impl Into<Option<&'a [u8]>>) {
        batch.push(Row { key: key.into().map(str::as_bytes), value: value.into(), timestamp: 7, origin: Origin::NONE });
    }

    #[test]
    fn lines_are_values() {
        let mut batch = Batch::default();
        push(&mut batch, None, b"a".as_slice());
        push(&mut batch, None, b"".as_slice());
        let mut out = Vec::new();
        (0..2).for_each(|index| Format::Lines.append(&batch, index, &mut out).unwrap());
        assert_eq!(out, b"a\n\n");
    }

    #[test]
    fn lines_refuse_what_a_line_cannot_hold_and_name_its_place() {
        let split_table = SplitTable::default();
        let mut batch = Batch::default();
        let origin = Origin { split: split_table.number("orders", "a.jsonl"), position: 42 };
        batch.push(Row { key: None, value: None, timestamp: 0, origin });
        batch.push(Row { key: None, value: Some(b"a\nb"), timestamp: 0, origin });
        let context = WriterContext {
            job: "j".into(),
            uid: "out".into(),
            subtask: 0,
            parallelism: 1,
            generation: 1,
            split_table,
            metrics: std::sync::Arc::default(),
            transactions: None,
        };
        let mut out = Vec::new();
        for (index, unfit) in [Unfit::Null, Unfit::LineBreak].into_iter().enumerate() {
            assert_eq!(Format::Lines.append(&batch, index, &mut out), Err(unfit));
            let message = Format::Lines.refusal(unfit, &batch, index, &context).to_string();
            assert!(message.contains("source orders, split a.jsonl, position 42"), "{message}");
        }
        assert!(out.is_empty());
    }

    #[test]
    fn json_keeps_the_whole_record() {
        let mut batch = Batch::default();
        push(&mut batch, "k\"1", b"a\nb".as_slice());
        push(&mut batch, None, None);
        push(&mut batch, "", [0xff, 0].as_slice());
        batch.headers_mut().push(1, Header { name: "trace", value: Some(b"x") });
        batch.headers_mut().push(1, Header { name: "trace", value: None });
        let mut out = Vec::new();
        (0..3).for_each(|index| Format::Json.append(&batch, index, &mut out).unwrap());
        let lines: Vec<Value> = out.split_inclusive(|b| *b == b'\n').map(|line| serde_json::from_slice(line).unwrap()).collect();
        let headers = json!([{"name": "trace", "value": "x"}, {"name": "trace", "value": null}]);
        assert_eq!(
            lines,
            [
                json!({"key": "k\"1", "value": "a\nb", "timestamp": 7}),
                json!({"key": null, "value": null, "timestamp": 7, "headers": headers}),
                json!({"key": "", "value": {"base64": "/wA="}, "timestamp": 7}),
            ]
        );
    }
}
