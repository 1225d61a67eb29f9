//! Compares a document with a JSON schema, and says what is wrong in words for the person who wrote it.

use super::{Fault, unknown};
use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{ValidationError, Validator};
use serde_json::Value;

/// The longest piece of a document that a fault repeats, in characters.
const SHOWN_CHARACTERS: usize = 60;

/// Every fault of a document against a schema, in the order of the schema.
pub fn check(schema: &Value, document: &Value) -> Vec<Fault> {
    match Validator::options().build(schema) {
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
