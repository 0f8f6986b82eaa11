//! `tojson` as Transformers gives it to templates: Python's `json.dumps(ensure_ascii=False)`, with blanks after
//! comma and colon, keys in their order, nothing escaped for HTML. Numbers that a client sent keep its spelling.

use std::fmt;
use std::sync::Arc;

use minijinja::value::{Kwargs, Object, ObjectRepr, Rest, ValueKind, ValueOrKwargs, from_args};
use minijinja::{Error, ErrorKind, State, Value};

/// Deeper values than any tool definition has are refused instead of overflowing the stack; serde_json reads
/// no deeper ones either.
const MAX_DEPTH: usize = 128;

/// A number whose spelling no native value would give back: `1e5`, `1.50`, an integer of 40 digits.
#[derive(Debug)]
pub(super) struct SpelledNumber(String);

impl Object for SpelledNumber {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn is_true(self: &Arc<Self>) -> bool {
        self.0.parse() != Ok(0.0)
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A JSON value as a template sees it.
pub(super) fn template_value(json: &serde_json::Value) -> Value {
    use serde_json::Value as Json;
    match json {
        Json::Null => Value::from(()),
        Json::Bool(value) => Value::from(*value),
        Json::Number(number) => template_number(&number.to_string()),
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => items.iter().map(template_value).collect(),
        Json::Object(fields) => template_map(fields),
    }
}

/// A JSON object as a template sees it, keys in their order.
pub(super) fn template_map(fields: &serde_json::Map<String, serde_json::Value>) -> Value {
    Value::from_pairs(fields.iter().map(|(key, value)| (key.as_str(), template_value(value))))
}

/// A native number where that gives the same spelling back, so that templates can compare and add.
fn template_number(spelling: &str) -> Value {
    if let Ok(value) = spelling.parse::<i64>()
        && value.to_string() == spelling
    {
        return Value::from(value);
    }
    match spelling.parse::<f64>() {
        Ok(value) if python_float(value) == spelling => Value::from(value),
        _ => Value::from_object(SpelledNumber(spelling.to_owned())),
    }
}

/// Python's `repr` of a float: the shortest digits that read back, an exponent from 1e16 up and below 1e-4.
fn python_float(value: f64) -> String {
    if !value.is_finite() {
        let sign = if value.is_sign_negative() { "-" } else { "" };
        return if value.is_nan() { "NaN".to_owned() } else { format!("{sign}Infinity") };
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>().unwrap_or(0) {
        -4..=15 => format!("{value:?}"),
        exponent => format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs()),
    }
}

/// The filter `tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
pub(super) fn tojson(
    state: &State<'_, '_>,
    value: &Value,
    args: Rest<ValueOrKwargs>,
) -> Result<Value, Error> {
    let args = args.into_values();
    let (positional, named): (&[Value], Kwargs) = from_args(&args)?;
    let argument = |n: usize, name: &str| -> Result<Option<Value>, Error> {
        let given = match positional.get(n) {
            Some(value) => Some(value.clone()),
            None => named.get::<Option<Value>>(name)?,
        };
        Ok(given.filter(|value| !value.is_none() && !value.is_undefined()))
    };
    let ensure_ascii = argument(0, "ensure_ascii")?.is_some_and(|value| value.is_true());
    let indent = match argument(1, "indent")? {
        None => None,
        Some(value) => Some(match value.as_str() {
            Some(text) => text.to_owned(),
            None => " ".repeat(i64::try_from(value)?.clamp(0, 64) as usize),
        }),
    };
    let mut separators = (if indent.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned());
    if let Some(given) = argument(2, "separators")? {
        separators = (given.get_item_by_index(0)?.to_string(), given.get_item_by_index(1)?.to_string());
    }
    let sort_keys = argument(3, "sort_keys")?.is_some_and(|value| value.is_true());
    named.assert_all_used()?;
    let mut dump =
        Dump { state, out: String::new(), paid_bytes: 0, ensure_ascii, indent, separators, sort_keys };
    dump.value(value, 0)?;
    Ok(Value::from(dump.out))
}

/// One `json.dumps` under way.
struct Dump<'a> {
    state: &'a State<'a, 'a>,
    out: String,
    /// Bytes of `out` that fuel was taken for.
    paid_bytes: usize,
    ensure_ascii: bool,
    indent: Option<String>,
    /// Between items, and between key and value.
    separators: (String, String),
    sort_keys: bool,
}

impl Dump<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.pay()?;
        if depth > MAX_DEPTH {
            return Err(refused("a value nested more than 128 deep"));
        }
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number if value.is_integer() => self.out.push_str(&value.to_string()),
            ValueKind::Number => self.out.push_str(&python_float(f64::try_from(value.clone())?)),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => self.sequence(value, depth)?,
            ValueKind::Map => self.map(value, depth)?,
            _ => match value.downcast_object_ref::<SpelledNumber>() {
                Some(SpelledNumber(spelling)) => self.out.push_str(spelling),
                None => return Err(refused(&format!("a value of type {}", value.kind()))),
            },
        }
        Ok(())
    }

    fn sequence(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.out.push('[');
        let mut any = false;
        for item in value.try_iter()? {
            self.before_item(any, depth + 1);
            self.value(&item, depth + 1)?;
            any = true;
        }
        self.close(any, depth, ']');
        Ok(())
    }

    fn map(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        let mut fields = Vec::new();
        for key in value.try_iter()? {
            let name = match key.kind() {
                ValueKind::String => key.as_str().unwrap_or_default().to_owned(),
                ValueKind::None => "null".to_owned(),
                ValueKind::Bool => if key.is_true() { "true" } else { "false" }.to_owned(),
                ValueKind::Number => key.to_string(),
                kind => return Err(refused(&format!("a key of type {kind}"))),
            };
            fields.push((name, value.get_item(&key)?));
        }
        if self.sort_keys {
            fields.sort_by(|a, b| a.0.cmp(&b.0));
        }
        self.out.push('{');
        for (n, (name, value)) in fields.iter().enumerate() {
            self.before_item(n > 0, depth + 1);
            self.string(name);
            self.out.push_str(&self.separators.1);
            self.value(value, depth + 1)?;
        }
        self.close(!fields.is_empty(), depth, '}');
        Ok(())
    }

    fn before_item(&mut self, any_before: bool, depth: usize) {
        if any_before {
            self.out.push_str(&self.separators.0);
        }
        self.new_line(depth);
    }

    fn close(&mut self, any: bool, depth: usize, bracket: char) {
        if any {
            self.new_line(depth);
        }
        self.out.push(bracket);
    }

    fn new_line(&mut self, depth: usize) {
        if let Some(indent) = &self.indent {
            self.out.push('\n');
            (0..depth).for_each(|_| self.out.push_str(indent));
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if c < ' ' || self.ensure_ascii && c > '~' => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        self.out.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }

    /// Takes fuel for each value and for the text so far: a small value that holds itself many times over must not outgrow the
    /// memory before it is paid for.
    fn pay(&mut self) -> Result<(), Error> {
        const BYTES_PER_FUEL: usize = 64;
        let owed = (self.out.len() - self.paid_bytes) / BYTES_PER_FUEL;
        self.paid_bytes += owed * BYTES_PER_FUEL;
        self.state.consume_fuel(owed as u64 + 1)
    }
}

fn refused(what: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("tojson cannot write {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_spelled_as_python_does() {
        for (value, spelling) in [
            (1.0, "1.0"),
            (0.1, "0.1"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (-0.0, "-0.0"),
            (123456.789, "123456.789"),
        ] {
            assert_eq!(python_float(value), spelling);
        }
    }

    #[test]
    fn numbers_are_native_only_where_their_spelling_survives() {
        for spelling in
            ["1.0", "1e5", "1E5", "-0", "0.10", "123456789012345678901234567890", "7", "-3", "1e-7"]
        {
            assert_eq!(template_number(spelling).to_string(), spelling);
        }
        assert!(template_number("7").is_integer());
        assert_eq!(template_number("1.5").kind(), ValueKind::Number);
        assert!(template_number("1e5").is_true() && !template_number("0e5").is_true());
    }
}
