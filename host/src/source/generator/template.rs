//! Templates of values and keys, taken apart once and filled in for each record without an allocation.

use super::draw::Drawn;
use crate::config::Fault;
use serde_json::Value;

/// The longest text of a number with a sign and a point, and of a date and time: what a placeholder may need.
const PLACEHOLDER_BYTES: usize = 32;

/// What padding is made of.
const PADDING: u8 = b'x';

/// The names of placeholders, for errors.
const NAMES: &str = "{sequence}, {user}, {amount}, {time}, {date-time} or {padding}";

/// A template: literal bytes, and what stands between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Template {
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(Vec<u8>),
    Filled(Placeholder),
}

/// What can be filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placeholder {
    Sequence,
    User,
    Amount,
    Time,
    DateTime,
    Padding,
}

impl Placeholder {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "sequence" => Self::Sequence,
            "user" => Self::User,
            "amount" => Self::Amount,
            "time" => Self::Time,
            "date-time" => Self::DateTime,
            "padding" => Self::Padding,
            _ => return None,
        })
    }

    /// Whether it is a number in JSON when it stands alone.
    fn is_number(self) -> bool {
        !matches!(self, Self::DateTime | Self::Padding)
    }
}

impl Template {
    /// The template of a JSON value.
    ///
    /// # Errors
    /// Every string that is wrong, with its path in the template.
    pub(super) fn json(value: &Value) -> Result<Self, Vec<Fault>> {
        let (mut template, mut faults) = (Self::default(), Vec::new());
        template.add_json(value, "", &mut faults);
        if template.paddings() > 1 {
            faults.push(Fault::new("", "has more than one {padding}: leave one"));
        }
        if faults.is_empty() { Ok(template) } else { Err(faults) }
    }

    /// The template of a plain text.
    ///
    /// # Errors
    /// A sentence.
    pub(super) fn text(text: &str) -> Result<Self, String> {
        let template = Self { pieces: pieces_of(text)? };
        if template.paddings() > 0 { Err("a key cannot be padded: leave {padding} out".to_owned()) } else { Ok(template) }
    }

    fn add_json(&mut self, value: &Value, path: &str, faults: &mut Vec<Fault>) {
        match value {
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.add_text(if index == 0 { b"[" } else { b"," });
                    self.add_json(item, &format!("{path}/{index}"), faults);
                }
                self.add_text(if items.is_empty() { b"[]" } else { b"]" });
            }
            Value::Object(fields) => {
                for (index, (name, field)) in fields.iter().enumerate() {
                    self.add_text(if index == 0 { b"{" } else { b"," });
                    self.add_text(Value::from(name.as_str()).to_string().as_bytes());
                    self.add_text(b":");
                    let step = name.replace('~', "~0").replace('/', "~1");
                    self.add_json(field, &format!("{path}/{step}"), faults);
                }
                self.add_text(if fields.is_empty() { b"{}" } else { b"}" });
            }
            Value::String(text) => match pieces_of(text) {
                Ok(pieces) => self.add_string(pieces),
                Err(message) => faults.push(Fault::new(path, message)),
            },
            scalar => self.add_text(scalar.to_string().as_bytes()),
        }
    }

    fn add_string(&mut self, pieces: Vec<Piece>) {
        if let [Piece::Filled(placeholder)] = pieces[..]
            && placeholder.is_number()
        {
            return self.pieces.push(Piece::Filled(placeholder));
        }
        self.add_text(b"\"");
        for piece in pieces {
            match piece {
                Piece::Text(text) => {
                    let escaped = Value::from(String::from_utf8_lossy(&text)).to_string();
                    self.add_text(&escaped.as_bytes()[1..escaped.len() - 1]);
                }
                filled @ Piece::Filled(_) => self.pieces.push(filled),
            }
        }
        self.add_text(b"\"");
    }

    fn add_text(&mut self, text: &[u8]) {
        match self.pieces.last_mut() {
            Some(Piece::Text(before)) => before.extend_from_slice(text),
            _ => self.pieces.push(Piece::Text(text.to_vec())),
        }
    }

    fn paddings(&self) -> usize {
        self.pieces.iter().filter(|piece| **piece == Piece::Filled(Placeholder::Padding)).count()
    }

    /// Whether it needs random numbers.
    pub(super) fn is_random(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::Filled(Placeholder::User | Placeholder::Amount)))
    }

    /// What a record can need at most, in bytes, when it is padded to `size`.
    pub(super) fn longest(&self, size: usize) -> usize {
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => text.len(),
            Piece::Filled(Placeholder::Padding) => 0,
            Piece::Filled(_) => PLACEHOLDER_BYTES,
        };
        self.pieces.iter().map(piece).sum::<usize>().max(size)
    }

    /// Appends the text for a record, padded to `size` where padding stands.
    pub(super) fn write(&self, drawn: &Drawn, size: usize, out: &mut Vec<u8>) {
        let (start, mut padding) = (out.len(), None);
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text),
                Piece::Filled(Placeholder::Sequence) => write_number(drawn.sequence, out),
                Piece::Filled(Placeholder::User) => write_number(drawn.user, out),
                Piece::Filled(Placeholder::Amount) => write_amount(drawn.amount, drawn.decimals, out),
                Piece::Filled(Placeholder::Time) => write_number(drawn.time, out),
                Piece::Filled(Placeholder::DateTime) => write_date_time(drawn.time, out),
                Piece::Filled(Placeholder::Padding) => padding = Some(out.len()),
            }
        }
        if let Some(at) = padding {
            let (end, missing) = (out.len(), size.saturating_sub(out.len() - start));
            out.resize(end + missing, PADDING);
            out.copy_within(at..end, at + missing);
            out[at..at + missing].fill(PADDING);
        }
    }
}

/// Whether padding and a size go together.
pub(super) fn padding_faults(template: &Template, has_size: bool) -> Option<Fault> {
    match (template.paddings() > 0, has_size) {
        (true, false) => Some(Fault::new("/size", "is missing: the template has {padding}, and needs to know to which size")),
        (false, true) => {
            Some(Fault::new("/template", "has no {padding} to fill the record to the size with: add it, or leave the size out"))
        }
        _ => None,
    }
}

fn pieces_of(text: &str) -> Result<Vec<Piece>, String> {
    let (mut pieces, mut literal, mut rest) = (Vec::new(), Vec::new(), text);
    while let Some(at) = rest.find(['{', '}']) {
        literal.extend_from_slice(&rest.as_bytes()[..at]);
        let brace = &rest[at..=at];
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix(brace) {
            literal.extend_from_slice(brace.as_bytes());
            rest = after;
            continue;
        }
        let name = rest.split_once('}').filter(|_| brace == "{");
        let Some((name, after)) = name else {
            return Err(format!("{text:?} has a lone {brace}: write {brace}{brace} for the character"));
        };
        let placeholder = Placeholder::named(name).ok_or_else(|| format!("{{{name}}} is no placeholder: write {NAMES}"))?;
        if !literal.is_empty() {
            pieces.push(Piece::Text(std::mem::take(&mut literal)));
        }
        pieces.push(Piece::Filled(placeholder));
        rest = after;
    }
    literal.extend_from_slice(rest.as_bytes());
    if !literal.is_empty() {
        pieces.push(Piece::Text(literal));
    }
    Ok(pieces)
}

fn write_number(number: impl itoa::Integer, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Writes `units` of the last decimal as a decimal number: -5 with 2 decimals is -0.05.
fn write_amount(units: i64, decimals: u8, out: &mut Vec<u8>) {
    if units < 0 {
        out.push(b'-');
    }
    let (magnitude, one) = (units.unsigned_abs(), 10_u64.pow(u32::from(decimals)));
    write_number(magnitude / one, out);
    if decimals > 0 {
        out.push(b'.');
        let mut digits = itoa::Buffer::new();
        let fraction = digits.format(magnitude % one).as_bytes();
        out.resize(out.len() + usize::from(decimals) - fraction.len(), b'0');
        out.extend_from_slice(fraction);
    }
}

fn write_date_time(milliseconds: i64, out: &mut Vec<u8>) {
    use std::io::Write;
    let latest = jiff::Timestamp::MAX.as_millisecond();
    let time = jiff::Timestamp::from_millisecond(milliseconds.min(latest)).unwrap_or(jiff::Timestamp::MAX);
    write!(out, "{time:.3}").expect("invariant: writing to memory does not fail");
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use serde_json::json;

    const DRAWN: Drawn = Drawn { sequence: 7, user: 3, amount: -105, decimals: 2, time: 1_704_067_200_250 };

    fn filled(template: &Value, size: usize) -> String {
        let mut out = b"before".to_vec();
        let template = Template::json(template).unwrap();
        template.write(&DRAWN, size, &mut out);
        assert!(out.len() - 6 <= template.longest(size));
        String::from_utf8(out).unwrap().strip_prefix("before").unwrap().to_owned()
    }

    #[test]
    fn placeholders_are_filled_in_and_the_rest_stays_json() {
        let template = json!({"a\"b": "{sequence}", "u": "user-{user}/\"{sequence}\"", "l": ["{amount}", "{time}", {}, [], null, 1.5, true],
            "d": "{date-time}", "braces": "{{x}}"});
        let expected =
            r#"{"a\"b":7,"u":"user-3/\"7\"","l":[-1.05,1704067200250,{},[],null,1.5,true],"d":"2024-01-01T00:00:00.250Z","braces":"{x}"}"#;
        assert_eq!(filled(&template, 0), expected);
        assert!(serde_json::from_str::<Value>(expected).is_ok());
    }

    #[test]
    fn padding_fills_to_the_size_and_never_cuts() {
        assert_eq!(filled(&json!({"p": "{padding}", "s": "{sequence}"}), 20), r#"{"p":"xxxxxx","s":7}"#);
        assert_eq!(filled(&json!({"p": "{padding}", "s": "{sequence}"}), 3), r#"{"p":"","s":7}"#);
    }

    #[test]
    fn amounts_keep_their_zeros() {
        let written = |units, decimals| {
            let mut out = Vec::new();
            write_amount(units, decimals, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!([written(-5, 2), written(120, 2), written(7, 0), written(1_000_000_001, 9)], ["-0.05", "1.20", "7", "1.000000001"]);
    }

    #[test]
    fn each_wrong_string_is_named() {
        let faults = Template::json(&json!({"a/b": "{usr}", "list": ["ok", "{user", "a}"], "p": "{padding}{padding}"})).unwrap_err();
        let paths: Vec<_> = faults.iter().map(|fault| fault.path.as_str()).collect();
        assert_eq!(paths, ["/a~1b", "/list/1", "/list/2", ""], "{faults:?}");
        assert!(faults[0].message.contains("{sequence}"), "{faults:?}");
        assert!(Template::text("{padding}").is_err());
    }
}
