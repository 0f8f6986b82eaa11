//! JSON whose numbers keep the client's spelling. `serde_json` keeps all digits but writes `1e5` as `1e+5` and
//! `1E5` as `1e+5`; a tool definition goes into the prompt, where that would be another text.

use serde_json::{Number, Value};

/// Parses JSON; numbers print as they were written.
///
/// # Errors
/// Text that is not JSON, with line and column.
pub fn parse_json(text: &str) -> Result<Value, serde_json::Error> {
    let mut value: Value = serde_json::from_str(text)?;
    let written = written_numbers(text);
    if written.iter().any(|number| number.contains(['e', 'E'])) {
        let mut parsed = Vec::new();
        parsed_numbers(&mut value, &mut parsed);
        // A repeated key drops numbers, and then the two lists do not match: the parser's spelling stays.
        let same = |(number, written): (&&mut Number, &&str)| number.to_string() == respelled(written);
        if parsed.len() == written.len() && parsed.iter().zip(&written).all(same) {
            for (number, written) in parsed.into_iter().zip(written) {
                // The only way to a number of a chosen spelling; that it is one was just checked.
                *number = Number::from_string_unchecked(written.to_owned());
            }
        }
    }
    Ok(value)
}

/// The numbers of a valid JSON text, in their order.
fn written_numbers(text: &str) -> Vec<&str> {
    let bytes = text.as_bytes();
    let mut numbers = Vec::new();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let start = at;
        at += 1;
        match byte {
            b'"' => {
                while let Some(&byte) = bytes.get(at).filter(|byte| **byte != b'"') {
                    at += if byte == b'\\' { 2 } else { 1 };
                }
                at += 1;
            }
            b'-' | b'0'..=b'9' => {
                while bytes
                    .get(at)
                    .is_some_and(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'))
                {
                    at += 1;
                }
                numbers.push(&text[start..at]);
            }
            _ => {}
        }
    }
    numbers
}

fn parsed_numbers<'a>(value: &'a mut Value, numbers: &mut Vec<&'a mut Number>) {
    match value {
        Value::Number(number) => numbers.push(number),
        Value::Array(items) => items.iter_mut().for_each(|item| parsed_numbers(item, numbers)),
        Value::Object(fields) => fields.values_mut().for_each(|value| parsed_numbers(value, numbers)),
        _ => {}
    }
}

/// A number as the parser prints it: a small `e`, always with a sign.
fn respelled(written: &str) -> String {
    match written.split_once(['e', 'E']) {
        Some((digits, exponent)) if exponent.starts_with(['+', '-']) => format!("{digits}e{exponent}"),
        Some((digits, exponent)) => format!("{digits}e+{exponent}"),
        None => written.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_survives() {
        let text =
            r#"{"a":[1e5,1E5,1e+5,1.50E-07,-0,"2e9 \" 3E1",123456789012345678901234567890],"b":{"c":0e0}}"#;
        assert_eq!(parse_json(text).unwrap().to_string(), text);
    }

    #[test]
    fn a_repeated_key_falls_back_to_the_parsers_spelling() {
        assert_eq!(parse_json(r#"{"a":1e5,"a":2e5}"#).unwrap().to_string(), r#"{"a":2e+5}"#);
        assert!(parse_json("1e").is_err() && parse_json("\"\\").is_err());
    }
}
