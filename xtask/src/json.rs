//! Reading the JSON that the program prints and the reference files hold. Only reading, and only what the gates ask
//! of it, so that xtask builds in a second and shares no parser with what it checks.

use anyhow::{Context, Result, anyhow, bail};

/// A JSON value; numbers are f64, keys keep their order.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    /// One document, nothing but white space after it.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut reader = Reader { text, at: 0 };
        let value = reader.value(0)?;
        reader.white();
        if reader.at != text.len() {
            bail!("not JSON: more text at byte {}", reader.at);
        }
        Ok(value)
    }

    /// The value at a path of keys, such as `timings.decode_tok_s`.
    pub(crate) fn at(&self, path: &str) -> Result<&Self> {
        path.split('.').try_fold(self, |value, key| match value {
            Self::Object(pairs) => pairs
                .iter()
                .find(|(name, _)| name == key)
                .map(|(_, value)| value)
                .ok_or_else(|| anyhow!("no key {key:?} of {path:?}")),
            _ => Err(anyhow!("{path:?}: no object holds {key:?}")),
        })
    }

    pub(crate) fn number(&self, path: &str) -> Result<f64> {
        match self.at(path)? {
            Self::Number(number) => Ok(*number),
            other => bail!("{path:?} is no number but {other:?}"),
        }
    }

    pub(crate) fn text(&self, path: &str) -> Result<&str> {
        match self.at(path)? {
            Self::Text(text) => Ok(text),
            other => bail!("{path:?} is no text but {other:?}"),
        }
    }

    pub(crate) fn list(&self, path: &str) -> Result<&[Self]> {
        match self.at(path)? {
            Self::List(items) => Ok(items),
            other => bail!("{path:?} is no list but {other:?}"),
        }
    }
}

/// Nesting past this is refused rather than left to the stack.
const MAX_DEPTH: usize = 64;

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn white(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start_matches([' ', '\t', '\r', '\n']).len();
    }

    fn take(&mut self, what: &str) -> bool {
        let found = self.rest().starts_with(what);
        if found {
            self.at += what.len();
        }
        found
    }

    fn value(&mut self, depth: usize) -> Result<Json> {
        self.white();
        if depth > MAX_DEPTH {
            bail!("not JSON that we read: nested deeper than {MAX_DEPTH} at byte {}", self.at);
        }
        if self.take("null") {
            Ok(Json::Null)
        } else if self.take("true") {
            Ok(Json::Bool(true))
        } else if self.take("false") {
            Ok(Json::Bool(false))
        } else if self.take("\"") {
            self.string().map(Json::Text)
        } else if self.take("[") {
            self.items("]", |reader| reader.value(depth + 1)).map(Json::List)
        } else if self.take("{") {
            self.items("}", |reader| reader.pair(depth + 1)).map(Json::Object)
        } else {
            self.plain_number()
        }
    }

    fn items<T>(&mut self, end: &str, mut read: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut items = Vec::new();
        self.white();
        if self.take(end) {
            return Ok(items);
        }
        loop {
            items.push(read(self)?);
            self.white();
            if self.take(end) {
                return Ok(items);
            }
            if !self.take(",") {
                bail!("not JSON: expected , or {end} at byte {}", self.at);
            }
        }
    }

    fn pair(&mut self, depth: usize) -> Result<(String, Json)> {
        self.white();
        if !self.take("\"") {
            bail!("not JSON: expected a key at byte {}", self.at);
        }
        let key = self.string()?;
        self.white();
        if !self.take(":") {
            bail!("not JSON: expected : at byte {}", self.at);
        }
        Ok((key, self.value(depth)?))
    }

    fn plain_number(&mut self) -> Result<Json> {
        let rest = self.rest();
        let end =
            rest.find(|c: char| !matches!(c, '0'..='9' | '+' | '-' | '.' | 'e' | 'E')).unwrap_or(rest.len());
        let number =
            rest[..end].parse().with_context(|| format!("not JSON: no value at byte {}", self.at))?;
        self.at += end;
        Ok(Json::Number(number))
    }

    /// The text after an opening quote.
    fn string(&mut self) -> Result<String> {
        let mut text = String::new();
        loop {
            let Some(c) = self.rest().chars().next() else { bail!("not JSON: a text without end") };
            self.at += c.len_utf8();
            match c {
                '"' => return Ok(text),
                '\\' => text.push(self.escape()?),
                '\0'..'\x20' => bail!("not JSON: a control character in a text at byte {}", self.at - 1),
                _ => text.push(c),
            }
        }
    }

    fn escape(&mut self) -> Result<char> {
        let Some(c) = self.rest().chars().next() else { bail!("not JSON: a text without end") };
        self.at += c.len_utf8();
        Ok(match c {
            '"' | '\\' | '/' => c,
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'b' => '\x08',
            'f' => '\x0c',
            'u' => self.code_point()?,
            _ => bail!("not JSON: \\{c} at byte {}", self.at),
        })
    }

    fn code_point(&mut self) -> Result<char> {
        let high = self.hex4()?;
        let code = if (0xD800..0xDC00).contains(&high) && self.take("\\u") {
            let low = self.hex4()?;
            0x10000 + ((high - 0xD800) << 10) + low.wrapping_sub(0xDC00)
        } else {
            high
        };
        char::from_u32(code).with_context(|| format!("not JSON: half a surrogate pair at byte {}", self.at))
    }

    fn hex4(&mut self) -> Result<u32> {
        let digits = self.rest().get(..4).unwrap_or_default();
        self.at += digits.len();
        u32::from_str_radix(digits, 16).with_context(|| format!("not JSON: \\u{digits} at byte {}", self.at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_program_prints() -> Result<()> {
        let json = Json::parse(
            r#" {"text":"a\"\u00e9\ud83d\ude00\n","timings":{"ms":-1.5e2},"ids":[1, 2],"n":null} "#,
        )?;
        assert_eq!(json.text("text")?, "a\"é😀\n");
        assert_eq!(json.number("timings.ms")?, -150.0);
        assert_eq!(json.list("ids")?, [Json::Number(1.0), Json::Number(2.0)]);
        assert_eq!(json.at("n")?, &Json::Null);
        assert!(json.at("timings.none").is_err());
        Ok(())
    }

    #[test]
    fn refuses_what_is_not_json() {
        let deep = "[".repeat(1000);
        for text in [
            "",
            "{",
            "[1,]",
            "{\"a\" 1}",
            "\"open",
            "1 2",
            "nul",
            "\"\\ud800\"",
            "{\"a\":NaN}",
            deep.as_str(),
        ] {
            assert!(Json::parse(text).is_err(), "{text:?}");
        }
    }
}
