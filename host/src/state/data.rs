//! A value that MessagePack and JSON can both hold, as it was written: the members of a map in their order, numbers in their width.

use serde::de::{self, MapAccess, SeqAccess, Visitor};
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Data {
    Nil,
    Bool(bool),
    Unsigned(u64),
    Negative(i64),
    Single(f32),
    Double(f64),
    Text(String),
    List(Vec<Data>),
    Map(Vec<(String, Data)>),
}

impl Data {
    /// Reads MessagePack. None: it is something else, or would not be written as the same bytes again, or JSON cannot hold it.
    pub(super) fn of_message_pack(bytes: &[u8]) -> Option<Self> {
        let data: Self = rmp_serde::from_slice(bytes).ok()?;
        (data.is_json() && data.to_message_pack().ok()? == bytes).then_some(data)
    }

    /// As the plugin SDK writes values: structs as maps.
    pub(super) fn to_message_pack(&self) -> Result<Vec<u8>, String> {
        rmp_serde::to_vec_named(self).map_err(|error| error.to_string())
    }

    /// Whether JSON has it: it has no infinity and nothing that is not a number.
    fn is_json(&self) -> bool {
        match self {
            Self::Single(number) => number.is_finite(),
            Self::Double(number) => number.is_finite(),
            Self::List(elements) => elements.iter().all(Self::is_json),
            Self::Map(members) => members.iter().all(|(_, member)| member.is_json()),
            Self::Nil | Self::Bool(_) | Self::Unsigned(_) | Self::Negative(_) | Self::Text(_) => true,
        }
    }
}

impl Serialize for Data {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Nil => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Unsigned(number) => serializer.serialize_u64(*number),
            Self::Negative(number) => serializer.serialize_i64(*number),
            Self::Single(number) => serializer.serialize_f32(*number),
            Self::Double(number) => serializer.serialize_f64(*number),
            Self::Text(text) => serializer.serialize_str(text),
            Self::List(elements) => {
                let mut list = serializer.serialize_seq(Some(elements.len()))?;
                elements.iter().try_for_each(|element| list.serialize_element(element))?;
                list.end()
            }
            Self::Map(members) => {
                let mut map = serializer.serialize_map(Some(members.len()))?;
                members.iter().try_for_each(|(name, member)| map.serialize_entry(name, member))?;
                map.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Data {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyData)
    }
}

struct AnyData;

impl<'de> Visitor<'de> for AnyData {
    type Value = Data;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that JSON can hold")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Data, E> {
        Ok(Data::Nil)
    }

    fn visit_none<E: de::Error>(self) -> Result<Data, E> {
        Ok(Data::Nil)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Data, D::Error> {
        Data::deserialize(deserializer)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Data, E> {
        Ok(Data::Bool(value))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Data, E> {
        Ok(Data::Unsigned(number))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Data, E> {
        Ok(u64::try_from(number).map_or(Data::Negative(number), Data::Unsigned))
    }

    fn visit_f32<E: de::Error>(self, number: f32) -> Result<Data, E> {
        Ok(Data::Single(number))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Data, E> {
        Ok(Data::Double(number))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Data, E> {
        Ok(Data::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Data, A::Error> {
        let mut list = Vec::new();
        while let Some(element) = elements.next_element()? {
            list.push(element);
        }
        Ok(Data::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Data, A::Error> {
        let mut map = Vec::new();
        while let Some(member) = members.next_entry()? {
            map.push(member);
        }
        Ok(Data::Map(map))
    }
}
