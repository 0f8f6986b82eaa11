//! The fields of a JSON object, read by type and range; whatever is refused is refused by its path. Null is absent. Which
//! fields were asked for is remembered, so that unknown ones can be told.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;

use kipp::chat::parse_json;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};

use crate::error::ApiError;

/// One object of a request.
pub(crate) struct Fields<'a> {
    map: &'a Map<String, Value>,
    /// Where the object stands, with its dot; empty for the request itself.
    prefix: String,
    known: RefCell<BTreeSet<&'static str>>,
    /// Unknown fields of objects inside of it, by their paths.
    unknown_inside: RefCell<Vec<String>>,
}

/// A request's body as JSON. Numbers keep their spelling, since some of them go into prompts.
pub(crate) fn parse_body(body: &[u8]) -> Result<Map<String, Value>, ApiError> {
    let text = std::str::from_utf8(body).map_err(|error| {
        ApiError::invalid(format!("the body is not UTF-8 at byte {}", error.valid_up_to()))
    })?;
    match parse_json(text) {
        Ok(Value::Object(map)) => match serde_json::from_str(text) {
            Ok(Keys { repeated: Some(key), .. }) => Err(ApiError::field(key, "stands there twice")),
            _ => Ok(map),
        },
        Ok(_) => Err(ApiError::invalid("the body must be a JSON object")),
        Err(error) => Err(ApiError::invalid(format!("the body is not valid JSON: {error}"))),
    }
}

/// The names of a body's fields: a map keeps the last of two without a word.
#[derive(Default)]
struct Keys {
    seen: BTreeSet<String>,
    repeated: Option<String>,
}

impl<'de> Deserialize<'de> for Keys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Keys, D::Error> {
        deserializer.deserialize_map(Keys::default())
    }
}

impl<'de> Visitor<'de> for Keys {
    type Value = Keys;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Keys, A::Error> {
        while let Some((key, IgnoredAny)) = map.next_entry::<String, _>()? {
            if !self.seen.insert(key.clone()) {
                self.repeated.get_or_insert(key);
            }
        }
        Ok(self)
    }
}

impl<'a> Fields<'a> {
    /// The request itself.
    pub(crate) fn of(map: &'a Map<String, Value>) -> Fields<'a> {
        Fields::at(map, "")
    }

    /// An object inside of it; `prefix` ends with a dot.
    pub(crate) fn at(map: &'a Map<String, Value>, prefix: &str) -> Fields<'a> {
        Fields {
            map,
            prefix: prefix.to_owned(),
            known: RefCell::default(),
            unknown_inside: RefCell::default(),
        }
    }

    /// A field's path.
    pub(crate) fn path(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    /// A field, unless it is null or absent.
    pub(crate) fn value(&self, key: &'static str) -> Option<&'a Value> {
        self.known.borrow_mut().insert(key);
        self.map.get(key).filter(|value| !value.is_null())
    }

    /// Fields that are taken and mean nothing here.
    pub(crate) fn ignore(&self, keys: &[&'static str]) {
        self.known.borrow_mut().extend(keys);
    }

    /// An object inside of it has been read: what nobody asked for there is told with the rest.
    pub(crate) fn done_with(&self, inside: &Fields<'_>) {
        self.unknown_inside.borrow_mut().extend(inside.unknown());
    }

    /// Paths of fields that nobody asked for.
    pub(crate) fn unknown(&self) -> Vec<String> {
        let known = self.known.borrow();
        let own = self.map.keys().filter(|key| !known.contains(key.as_str())).map(|key| self.path(key));
        own.chain(self.unknown_inside.borrow().iter().cloned()).collect()
    }

    pub(crate) fn text(&self, key: &'static str) -> Result<Option<&'a str>, ApiError> {
        self.typed(key, "text", Value::as_str)
    }

    pub(crate) fn boolean(&self, key: &'static str) -> Result<Option<bool>, ApiError> {
        self.typed(key, "true or false", Value::as_bool)
    }

    pub(crate) fn number(&self, key: &'static str) -> Result<Option<f64>, ApiError> {
        self.typed(key, "a finite number", Value::as_f64)
    }

    /// A whole number that may be negative.
    pub(crate) fn signed(&self, key: &'static str) -> Result<Option<i64>, ApiError> {
        self.typed(key, "a whole number", Value::as_i64)
    }

    pub(crate) fn list(&self, key: &'static str) -> Result<Option<&'a [Value]>, ApiError> {
        self.typed(key, "a list", |value| value.as_array().map(Vec::as_slice))
    }

    pub(crate) fn object(&self, key: &'static str) -> Result<Option<&'a Map<String, Value>>, ApiError> {
        self.typed(key, "an object", Value::as_object)
    }

    /// A whole number from 0, as large as one likes: what is beyond a machine word is as good as its largest value.
    pub(crate) fn count(&self, key: &'static str) -> Result<Option<usize>, ApiError> {
        let found = self.typed(key, "a whole number from 0", Value::as_u64)?;
        Ok(found.map(|count| usize::try_from(count).unwrap_or(usize::MAX)))
    }

    /// A whole number within bounds.
    pub(crate) fn within(
        &self,
        key: &'static str,
        low: usize,
        high: usize,
    ) -> Result<Option<usize>, ApiError> {
        let expected = format!("a whole number from {low} to {high}");
        self.typed(key, &expected, |value| {
            value.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|n| (low..=high).contains(n))
        })
    }

    fn typed<T>(
        &self,
        key: &'static str,
        expected: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, ApiError> {
        let Some(value) = self.value(key) else { return Ok(None) };
        match read(value) {
            Some(read) => Ok(Some(read)),
            None => Err(ApiError::found(self.path(key), expected, value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn types_are_strict_and_null_is_absent() {
        let map = parse_body(br#"{"a": null, "b": 1.5, "c": "x", "d": 1e999, "e": 7, "f": -1}"#).unwrap();
        let fields = Fields::of(&map);
        assert_eq!(fields.text("a"), Ok(None));
        assert_eq!(fields.number("b"), Ok(Some(1.5)));
        assert!(fields.count("b").is_err() && fields.text("b").is_err() && fields.number("c").is_err());
        assert!(fields.number("d").is_err(), "no infinity");
        assert!(fields.within("e", 0, 6).is_err() && fields.count("f").is_err());
        assert_eq!((fields.within("e", 0, 7), fields.signed("f")), (Ok(Some(7)), Ok(Some(-1))));
        assert_eq!(fields.unknown(), [""; 0]);
        let inside = Fields::at(&map, "o.");
        assert_eq!((inside.unknown()[0].as_str(), inside.unknown().len()), ("o.a", 6));
        fields.done_with(&inside);
        assert_eq!(fields.unknown(), inside.unknown());
    }

    #[test]
    fn h22_surrogates_and_broken_utf8_are_the_clients_fault() {
        for body in [
            &br#"{"a": "x \ud83d"}"#[..],
            br#"{"a": "\ude00 y"}"#,
            br#"{"\ud83d\ud83d": 1}"#,
            b"{\"a\": \"\xff\"}",
            b"{\"a\": \"\xc0\x80\"}",
            b"",
            br#"{"a": 1} x"#,
            b"[1]",
        ] {
            let error = parse_body(body).unwrap_err();
            assert_eq!(error.status.as_u16(), 400);
        }
        let map = parse_body(br#"{"a": "\ud83d\ude00", "b": "\u0000"}"#).unwrap();
        assert_eq!((&map["a"], &map["b"]), (&json!("\u{1F600}"), &json!("\0")));
    }

    #[test]
    fn h23_a_value_nested_without_end_is_refused() {
        let body = format!("{{\"a\": {}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(parse_body(body.as_bytes()).is_err());
    }
}
