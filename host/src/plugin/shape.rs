//! Compares functions of two contracts by what crosses the boundary, and says where they differ.

use wit_parser::{Function, Handle, Resolve, Type, TypeDefKind};

/// Everything in which the found function differs from the expected one.
pub(super) fn differences(expected_in: &Resolve, expected: &Function, found_in: &Resolve, found: &Function) -> Vec<String> {
    let mut compare = Compare { expected_in, found_in, differences: Vec::new() };
    if found.kind.is_async() != expected.kind.is_async() {
        compare.differences.push("it is asynchronous, expected a synchronous function".into());
    }
    let names = |function: &Function| function.params.iter().map(|param| param.name.clone()).collect::<Vec<_>>().join(", ");
    if expected.params.len() == found.params.len() {
        for (expected, found) in expected.params.iter().zip(&found.params) {
            compare.types(&format!("parameter {}", expected.name), expected.ty, found.ty);
        }
    } else {
        let (expected, found) = (names(expected), names(found));
        compare.differences.push(format!("its parameters are ({found}), expected ({expected})"));
    }
    compare.optional("result", expected.result, found.result);
    compare.differences
}

/// The walk through both types at once: as deep as the contract's own types, however deep the other ones are.
struct Compare<'a> {
    expected_in: &'a Resolve,
    found_in: &'a Resolve,
    differences: Vec<String>,
}

impl Compare<'_> {
    fn optional(&mut self, place: &str, expected: Option<Type>, found: Option<Type>) {
        match (expected, found) {
            (Some(expected), Some(found)) => self.types(place, expected, found),
            (None, None) => {}
            (Some(expected), None) => self.differs(place, "nothing", &words(self.expected_in, expected)),
            (None, Some(found)) => self.differs(place, &words(self.found_in, found), "nothing"),
        }
    }

    fn differs(&mut self, place: &str, found: &str, expected: &str) {
        self.differences.push(format!("{place} is {found}, expected {expected}"));
    }

    fn types(&mut self, place: &str, expected: Type, found: Type) {
        let (expected, found) = (plain(self.expected_in, expected), plain(self.found_in, found));
        let same = match (expected, found) {
            (Type::Id(expected_id), Type::Id(found_id)) => {
                let (expected_kind, found_kind) = (&self.expected_in.types[expected_id].kind, &self.found_in.types[found_id].kind);
                self.kinds(place, expected_kind, found_kind)
            }
            (expected, found) => expected == found,
        };
        if !same {
            let (found, expected) = (words(self.found_in, found), words(self.expected_in, expected));
            self.differs(place, &found, &expected);
        }
    }

    /// Whether the kinds are the same; differences further inside are noted by themselves.
    fn kinds(&mut self, place: &str, expected: &TypeDefKind, found: &TypeDefKind) -> bool {
        match (expected, found) {
            (TypeDefKind::Record(expected), TypeDefKind::Record(found)) => {
                let (expected, found) = (&expected.fields, &found.fields);
                if !expected.iter().map(|field| &field.name).eq(found.iter().map(|field| &field.name)) {
                    return false;
                }
                for (expected, found) in expected.iter().zip(found) {
                    self.types(&format!("{place}.{}", expected.name), expected.ty, found.ty);
                }
                true
            }
            (TypeDefKind::Tuple(expected), TypeDefKind::Tuple(found)) => {
                for (index, (expected, found)) in expected.types.iter().zip(&found.types).enumerate() {
                    self.types(&format!("{place}.{index}"), *expected, *found);
                }
                expected.types.len() == found.types.len()
            }
            (TypeDefKind::List(expected), TypeDefKind::List(found)) => {
                self.types(&format!("{place}[]"), *expected, *found);
                true
            }
            (TypeDefKind::Option(expected), TypeDefKind::Option(found)) => {
                self.types(&format!("{place}, if any,"), *expected, *found);
                true
            }
            (TypeDefKind::Result(expected), TypeDefKind::Result(found)) => {
                self.optional(&format!("{place} (ok)"), expected.ok, found.ok);
                self.optional(&format!("{place} (error)"), expected.err, found.err);
                true
            }
            (TypeDefKind::Enum(expected), TypeDefKind::Enum(found)) => {
                expected.cases.iter().map(|case| &case.name).eq(found.cases.iter().map(|case| &case.name))
            }
            // The contract has no other kinds.
            _ => false,
        }
    }
}

/// A type behind all its other names.
fn plain(resolve: &Resolve, mut ty: Type) -> Type {
    while let Type::Id(id) = ty
        && let TypeDefKind::Type(behind) = resolve.types[id].kind
    {
        ty = behind;
    }
    ty
}

/// A type as WIT would write it, records with the names of their fields.
fn words(resolve: &Resolve, ty: Type) -> String {
    let inner = |ty: &Type| words(resolve, *ty);
    let optional = |ty: &Option<Type>| ty.as_ref().map_or_else(|| "_".to_owned(), inner);
    let Type::Id(id) = plain(resolve, ty) else {
        return format!("{ty:?}").to_lowercase();
    };
    match &resolve.types[id].kind {
        TypeDefKind::Record(record) => format!("record {{ {} }}", listed(record.fields.iter().map(|field| field.name.as_str()))),
        TypeDefKind::Enum(cases) => format!("enum {{ {} }}", listed(cases.cases.iter().map(|case| case.name.as_str()))),
        TypeDefKind::Variant(cases) => format!("variant {{ {} }}", listed(cases.cases.iter().map(|case| case.name.as_str()))),
        TypeDefKind::Tuple(tuple) => format!("tuple<{}>", tuple.types.iter().map(inner).collect::<Vec<_>>().join(", ")),
        TypeDefKind::List(element) => format!("list<{}>", inner(element)),
        TypeDefKind::Option(element) => format!("option<{}>", inner(element)),
        TypeDefKind::Result(result) => format!("result<{}, {}>", optional(&result.ok), optional(&result.err)),
        TypeDefKind::Handle(Handle::Own(_)) => "a resource".to_owned(),
        other => format!("a {}", other.as_str()),
    }
}

fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}
