//! Compares a document with a JSON schema, and says what is wrong in words for the person who wrote it.

use super::{Fault, unknown};
use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::paths::Location;
use jsonschema::{Keyword, ValidationError, Validator};
use serde_json::Value;
use serde_path_to_error::Segment;

/// The longest piece of a document that a fault repeats, in characters.
const SHOWN_CHARACTERS: usize = 60;

/// Every fault of a document against a schema, in the order of the schema.
pub fn check(schema: &Value, document: &Value) -> Vec<Fault> {
    let mut strict = schema.clone();
    tighten(&mut strict);
    let schema = &strict;
    match Validator::options().with_keyword(WHOLE, whole).build(schema) {
        Ok(validator) => {
            let mut faults = Vec::new();
            for error in validator.iter_errors(document) {
                match keys_of_empty_object(&error, document) {
                    Some(unexpected) => faults.extend(unexpected),
                    None => describe(schema, &error, &mut faults),
                }
            }
            faults
        }
        Err(error) => vec![Fault::new("", format!("the options cannot be checked, because their schema is not one: {error}"))],
    }
}

/// The keyword of our own that asks for a whole number: for a JSON schema 5.0 is one too, for the types that are read it is not.
const WHOLE: &str = "waterwheel-whole";

/// Says what the formats of numbers mean: that they are whole, and their largest values.
fn tighten(schema: &mut Value) {
    let members = match schema {
        Value::Array(elements) => return elements.iter_mut().for_each(tighten),
        Value::Object(members) => members,
        _ => return,
    };
    let largest = match members.get("format").and_then(Value::as_str) {
        Some("uint8") => Some(u64::from(u8::MAX)),
        Some("uint16") => Some(u64::from(u16::MAX)),
        Some("uint32") => Some(u64::from(u32::MAX)),
        Some("uint64" | "uint") => Some(u64::MAX),
        Some("int64" | "int") => Some(i64::MAX.unsigned_abs()),
        _ => None,
    };
    if let Some(largest) = largest {
        members.entry("maximum").or_insert_with(|| largest.into());
        members.insert(WHOLE.to_owned(), true.into());
    }
    members.values_mut().for_each(tighten);
}

struct Whole;

impl<'i> Keyword<'i> for Whole {
    fn validate(&self, instance: &'i Value) -> Result<(), ValidationError<'i>> {
        if self.is_valid(instance) { Ok(()) } else { Err(ValidationError::custom("write it as a whole number, without a decimal point")) }
    }

    fn is_valid(&self, instance: &Value) -> bool {
        // What has no other fault: it is within the range, and not for its fraction of another type.
        let is_whole = |number: f64| number.fract() == 0.0 && number.abs() < LARGEST_WHOLE;
        !instance.is_f64() || !instance.as_f64().is_some_and(is_whole)
    }
}

/// 2^64: what is larger is beyond every range.
const LARGEST_WHOLE: f64 = 18_446_744_073_709_551_616.0;

fn whole<'a>(
    _: &'a serde_json::Map<String, Value>,
    _: &'a Value,
    _: Location,
) -> Result<Box<dyn for<'i> Keyword<'i>>, ValidationError<'a>> {
    Ok(Box::new(Whole))
}

/// The keys of an object that may have none; the validator names only the object.
fn keys_of_empty_object(error: &ValidationError<'_>, document: &Value) -> Option<Vec<Fault>> {
    let denied =
        matches!(error.kind(), ValidationErrorKind::FalseSchema) && error.schema_path().as_str().ends_with("/additionalProperties");
    let path = error.instance_path().as_str();
    let fields = document.pointer(path).and_then(Value::as_object).filter(|_| denied)?;
    Some(fields.keys().map(|name| Fault::new(member(path, name), format!("unknown key {name:?}; there are none here"))).collect())
}

fn describe(schema: &Value, error: &ValidationError<'_>, faults: &mut Vec<Fault>) {
    let path = error.instance_path().as_str();
    let instance = shown(error.instance());
    match error.kind() {
        ValidationErrorKind::AdditionalProperties { unexpected } | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
            let known = known_properties(schema, error);
            for name in unexpected {
                faults.push(Fault::new(member(path, name), unknown("key", name, known.iter().copied())));
            }
        }
        ValidationErrorKind::Required { property } => {
            let name = property.as_str().unwrap_or_default();
            let meaning = description(schema, error, name).map(|text| format!(" ({text})")).unwrap_or_default();
            faults.push(Fault::new(member(path, name), format!("is missing{meaning}")));
        }
        ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => {
            describe_alternatives(schema, path, &instance, context, faults);
        }
        _ => faults.push(Fault::new(path, format!("{instance} is wrong here: {}", expected(schema, error)))),
    }
}

/// What would be right, as `expected …` or `must …`.
fn expected(schema: &Value, error: &ValidationError<'_>) -> String {
    if let Some(title) = owner(schema, error).and_then(|owner| owner.get("title")).and_then(Value::as_str) {
        return format!("expected {title}");
    }
    match error.kind() {
        ValidationErrorKind::Type { .. } | ValidationErrorKind::Constant { .. } | ValidationErrorKind::Enum { .. } => {
            format!("expected {}", any_of(&alternatives(schema, error)))
        }
        ValidationErrorKind::Custom { message, .. } => message.clone(),
        ValidationErrorKind::Minimum { limit } => format!("it must be at least {limit}"),
        ValidationErrorKind::Maximum { limit } => format!("it must be at most {limit}"),
        ValidationErrorKind::ExclusiveMinimum { limit } => format!("it must be more than {limit}"),
        ValidationErrorKind::ExclusiveMaximum { limit } => format!("it must be less than {limit}"),
        ValidationErrorKind::MinLength { limit: 1 } | ValidationErrorKind::MinItems { limit: 1 } => "it must not be empty".to_owned(),
        ValidationErrorKind::Pattern { pattern } => format!("it must match {pattern}"),
        _ => error.to_string(),
    }
}

/// The document fits none of several schemas: the faults against the one that was meant, if that can be told, or what could stand here.
fn describe_alternatives(schema: &Value, path: &str, instance: &str, context: &[Vec<ValidationError<'static>>], faults: &mut Vec<Fault>) {
    let is_other_kind = |error: &ValidationError<'_>| {
        let kind = matches!(
            error.kind(),
            ValidationErrorKind::Type { .. } | ValidationErrorKind::Constant { .. } | ValidationErrorKind::Enum { .. }
        );
        kind && error.instance_path().as_str() == path
    };
    // Of several kinds of objects the one that is meant has the keys that it must have.
    let is_other_object = |error: &ValidationError<'_>| {
        matches!(error.kind(), ValidationErrorKind::Required { .. }) && error.instance_path().as_str() == path
    };
    let fitting: Vec<_> = context.iter().filter(|errors| !errors.iter().any(is_other_kind)).collect();
    let complete: Vec<_> = fitting.iter().copied().filter(|errors| !errors.iter().any(is_other_object)).collect();
    if let ([meant], _) | (_, [meant]) = (fitting.as_slice(), complete.as_slice()) {
        for error in *meant {
            describe(schema, error, faults);
        }
        return;
    }
    let mut choices = Vec::new();
    for errors in context {
        // What a value must be says more than its type.
        let is_value = |error: &&ValidationError<'_>| !matches!(error.kind(), ValidationErrorKind::Type { .. });
        let errors: Vec<_> =
            if errors.iter().any(|error| is_value(&error)) { errors.iter().filter(is_value).collect() } else { errors.iter().collect() };
        choices.extend(errors.into_iter().flat_map(|error| alternatives(schema, error)));
    }
    choices.dedup();
    faults.push(Fault::new(path, format!("{instance} is wrong here: expected {}", any_of(&choices))));
}

/// What the schema of an error would take, in words.
fn alternatives(schema: &Value, error: &ValidationError<'_>) -> Vec<String> {
    match error.kind() {
        ValidationErrorKind::Constant { expected_value } => vec![shown(expected_value)],
        ValidationErrorKind::Enum { options } => options.as_array().into_iter().flatten().map(shown).collect(),
        ValidationErrorKind::Type { kind } => {
            let title = owner(schema, error).and_then(|owner| owner.get("title")).and_then(Value::as_str);
            title.map_or_else(|| type_words(kind), |title| vec![title.to_owned()])
        }
        ValidationErrorKind::Required { property } => vec![format!("{{{}: …}}", property.as_str().unwrap_or_default())],
        ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => {
            context.iter().flatten().flat_map(|error| alternatives(schema, error)).collect()
        }
        _ => Vec::new(),
    }
}

fn type_words(kind: &TypeKind) -> Vec<String> {
    let types: Vec<String> = match kind {
        TypeKind::Single(one) => vec![one.to_string()],
        TypeKind::Multiple(set) => set.into_iter().map(|one| one.to_string()).collect(),
    };
    let word = |name: &String| match name.as_str() {
        "string" => Some("a text"),
        "integer" => Some("a whole number"),
        "number" => Some("a number"),
        "boolean" => Some("true or false"),
        "array" => Some("a list"),
        "object" => Some("an object with keys"),
        // That a key may as well be left out helps nobody who wrote something.
        _ => None,
    };
    types.iter().filter_map(word).map(str::to_owned).collect()
}

/// The schema that the failing keyword stands in.
fn owner<'s>(schema: &'s Value, error: &ValidationError<'_>) -> Option<&'s Value> {
    let location = error.schema_path().as_str();
    schema.pointer(location.rsplit_once('/')?.0)
}

fn known_properties<'s>(schema: &'s Value, error: &ValidationError<'_>) -> Vec<&'s str> {
    let properties = owner(schema, error).and_then(|owner| owner.get("properties")).and_then(Value::as_object);
    properties.into_iter().flat_map(|properties| properties.keys()).map(String::as_str).collect()
}

fn description<'s>(schema: &'s Value, error: &ValidationError<'_>, property: &str) -> Option<&'s str> {
    let text = owner(schema, error)?.get("properties")?.get(property)?.get("description")?.as_str()?;
    text.split_once(". ").map_or(text.strip_suffix('.'), |(first, _)| Some(first))
}

/// The fault that reading a type from a document came to, with its path and in words of people.
pub fn fault_of(error: &serde_path_to_error::Error<serde_json::Error>, document: &Value) -> Fault {
    let steps = error.path().iter().map(|step| match step {
        Segment::Seq { index } => format!("/{index}"),
        Segment::Map { key } | Segment::Enum { variant: key } => member("", key),
        Segment::Unknown => String::new(),
    });
    let path: String = steps.collect();
    let said = error.inner().to_string();
    let message = match (said.strip_prefix("invalid ").and_then(|rest| rest.split_once(", expected ")), document.pointer(&path)) {
        (Some((_, expected)), Some(value)) => format!("{} is wrong here: expected {}", shown(value), in_words(expected)),
        // Sentences of the types themselves.
        _ => said,
    };
    Fault::new(path, message)
}

/// What a type expects, as the library that reads it says it, in words of people.
fn in_words(expected: &str) -> String {
    match expected {
        "u8" => "a whole number from 0 to 255".to_owned(),
        "u16" => "a whole number from 0 to 65535".to_owned(),
        "u32" => format!("a whole number from 0 to {}", u32::MAX),
        "u64" | "usize" => format!("a whole number from 0 to {}", u64::MAX),
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "a string" | "string" | "a character" => "a text".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a sequence" => "a list".to_owned(),
        "a map" => "an object with keys".to_owned(),
        other if other.starts_with("struct ") => "an object with keys".to_owned(),
        other => other.to_owned(),
    }
}

/// The path of a member of an object.
fn member(path: &str, name: &str) -> String {
    format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// `a`, `a or b`, `a, b or c`.
fn any_of(choices: &[String]) -> String {
    match choices {
        [] => "something else".to_owned(),
        [one] => one.clone(),
        [all @ .., last] => format!("{} or {last}", all.join(", ")),
    }
}

fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN_CHARACTERS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
