//! What of a JSON schema is refused before it is compiled: text too long or too deep, references out of it, and
//! combinations that would multiply. The compiler has limits of its own, but counts steps, not what a step copies.
//!
//! ```text
//! a schema's weight: alternatives at its top, alternatives inside, parts
//! plain keywords        parts add up
//! anyOf, oneOf, enum    alternatives and parts add up; those of oneOf are compared in pairs
//! allOf, siblings       alternatives multiply; each alternative of one meets every part of the other
//! $ref alone            one part, for it is compiled once; beside siblings, what it refers to
//! ```

use serde_json::{Map, Value};

use super::ConstraintError;
use crate::artifact::Escaped;

/// Parts that combining may make, estimated from above: what the compiler copies in a fraction of a second.
const MAX_PARTS: u64 = 1_000_000;

/// Comparing two alternatives of `oneOf`, which must exclude each other, costs this much less than copying a part.
const PAIRS_A_PART: u64 = 16;

/// References followed in a row while weighing; a longer row is recursion, of which one turn is weighed.
const MAX_FOLLOWED: usize = 16;

/// Steps of weighing, so that references which double each other end it.
const MAX_STEPS: u64 = 200_000;

/// Keywords whose value is a schema, a list of schemas, and schemas by name.
const ONE: &[&str] = &[
    "items",
    "additionalItems",
    "additionalProperties",
    "not",
    "contains",
    "propertyNames",
    "if",
    "then",
    "else",
    "unevaluatedItems",
    "unevaluatedProperties",
];
const LIST: &[&str] = &["prefixItems", "items"];
const NAMED: &[&str] = &["properties", "patternProperties", "dependentSchemas"];
const DEFINITIONS: &[&str] = &["$defs", "definitions"];

/// What combining schemas makes of them.
#[derive(Clone, Copy, Debug)]
struct Weight {
    /// Alternatives at the top.
    options: u64,
    /// Alternatives inside.
    inner: u64,
    parts: u64,
}

impl Weight {
    const ONE: Weight = Weight { options: 1, inner: 0, parts: 1 };

    /// `other` as a part of this one.
    fn holding(self, other: Weight) -> Weight {
        Weight {
            options: self.options,
            inner: self.inner.saturating_add(other.inner).saturating_add(other.options - 1),
            parts: self.parts.saturating_add(other.parts),
        }
    }

    /// This one or `other`.
    fn or(self, other: Weight) -> Weight {
        Weight {
            options: self.options.saturating_add(other.options),
            inner: self.inner.saturating_add(other.inner),
            parts: self.parts.saturating_add(other.parts),
        }
    }

    /// This one and `other`.
    fn and(self, other: Weight) -> Weight {
        let copies =
            |of: Weight, times: Weight| of.parts.saturating_mul(times.options.saturating_add(times.inner));
        let both = self.inner.saturating_mul(other.inner);
        Weight {
            options: self.options.saturating_mul(other.options),
            inner: self.inner.saturating_add(other.inner).saturating_add(both),
            parts: copies(self, other).saturating_add(copies(other, self)),
        }
    }
}

/// Checks a schema against all of this file.
pub(super) fn check(schema: &Value) -> Result<(), ConstraintError> {
    let mut weighing = Weighing { root: schema, steps: 0, followed: 0 };
    let mut parts = weighing.weigh(schema)?.parts;
    for key in DEFINITIONS {
        for definition in schema.get(*key).and_then(Value::as_object).into_iter().flat_map(Map::values) {
            parts = parts.saturating_add(weighing.weigh(definition)?.parts);
        }
    }
    match parts > MAX_PARTS || weighing.steps > MAX_STEPS {
        true => Err(ConstraintError::TooManyParts { nodes: parts.max(weighing.steps), limit: MAX_PARTS }),
        false => Ok(()),
    }
}

struct Weighing<'a> {
    root: &'a Value,
    steps: u64,
    followed: usize,
}

impl<'a> Weighing<'a> {
    fn weigh(&mut self, schema: &'a Value) -> Result<Weight, ConstraintError> {
        self.steps += 1;
        let Some(keywords) = schema.as_object().filter(|_| self.steps <= MAX_STEPS) else {
            return Ok(Weight::ONE);
        };
        let mut weight = Weight::ONE;
        for (key, value) in keywords {
            let (key, value) = (key.as_str(), value);
            if ONE.contains(&key) && !value.is_array() {
                weight = weight.holding(self.weigh(value)?);
            } else if LIST.contains(&key) {
                for part in list(value) {
                    weight = weight.holding(self.weigh(part)?);
                }
            } else if NAMED.contains(&key) {
                for part in value.as_object().into_iter().flat_map(Map::values) {
                    weight = weight.holding(self.weigh(part)?);
                }
            }
        }
        for (key, value) in keywords {
            match key.as_str() {
                "enum" => {
                    let n = list(value).len().max(1) as u64;
                    weight = weight.and(Weight { options: n, inner: 0, parts: n });
                }
                "anyOf" | "oneOf" => {
                    let mut any = Weight { options: 0, inner: 0, parts: 0 };
                    for option in list(value) {
                        any = any.or(self.weigh(option)?);
                    }
                    any.options = any.options.max(1);
                    if key == "oneOf" {
                        any.parts = any.parts.max(any.options.saturating_mul(any.options) / PAIRS_A_PART);
                    }
                    weight = weight.and(any);
                }
                "allOf" => {
                    for part in list(value) {
                        weight = weight.and(self.weigh(part)?);
                    }
                }
                "$ref" => weight = weight.and(self.refer(value, keywords.len() > 1)?),
                _ => {}
            }
        }
        Ok(weight)
    }

    /// What a reference adds: what it refers to where it has `siblings` to be combined with.
    fn refer(&mut self, reference: &'a Value, siblings: bool) -> Result<Weight, ConstraintError> {
        let Some(text) = reference.as_str() else { return Ok(Weight::ONE) };
        if !text.starts_with('#') {
            return Err(ConstraintError::ForeignReference { reference: Escaped::text(text) });
        }
        let target = text.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
        match target {
            Some(target) if siblings && self.followed < MAX_FOLLOWED => {
                self.followed += 1;
                let weight = self.weigh(target);
                self.followed -= 1;
                weight
            }
            _ => Ok(Weight::ONE),
        }
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ordinary_schemas_pass_and_products_do_not() {
        let object = |n: usize| {
            let properties: Map<String, Value> =
                (0..n).map(|i| (format!("p{i}"), json!({"type": "string", "enum": ["a", "b"]}))).collect();
            json!({"type": "object", "properties": properties, "required": ["p0"]})
        };
        assert_eq!(check(&object(200)), Ok(()));
        assert_eq!(
            check(&json!({"allOf": [object(30), object(30), {"anyOf": [object(5), object(6)]}]})),
            Ok(())
        );
        assert_eq!(check(&json!(true)), Ok(()));
        let options: Vec<Value> = (0..300).map(|i| json!({"const": i, "title": "x"})).collect();
        assert_eq!(check(&json!({"anyOf": &options})), Ok(()));
        let product = json!({"allOf": [{"anyOf": &options}, {"anyOf": &options}, {"anyOf": &options}]});
        assert!(matches!(check(&product), Err(ConstraintError::TooManyParts { .. })));
    }

    #[test]
    fn references_lead_nowhere_outside() {
        for reference in ["http://example.com/schema", "other.json", "file:///etc/passwd", ""] {
            let found = check(&json!({"properties": {"a": {"items": {"$ref": reference}}}}));
            assert!(matches!(found, Err(ConstraintError::ForeignReference { .. })), "{reference}");
        }
        // A property may be called so.
        assert_eq!(check(&json!({"properties": {"$ref": {"type": "string"}}})), Ok(()));
        assert_eq!(
            check(
                &json!({"$defs": {"n": {"properties": {"next": {"$ref": "#/$defs/n"}}}}, "$ref": "#/$defs/n"})
            ),
            Ok(())
        );
    }

    #[test]
    fn references_that_double_each_other_end() {
        let mut definitions = Map::new();
        for i in 0..60 {
            let next = json!({"$ref": format!("#/$defs/d{}", i + 1)});
            definitions.insert(
                format!("d{i}"),
                json!({"allOf": [next.clone(), {"type": "object", "allOf": [next]}], "title": "t"}),
            );
        }
        definitions.insert("d60".to_owned(), json!({"properties": {"a": {"enum": [1, 2, 3]}}}));
        let started = std::time::Instant::now();
        let _ = check(&json!({"$defs": definitions, "$ref": "#/$defs/d0", "type": "object"}));
        assert!(started.elapsed().as_millis() < 500);
    }
}
