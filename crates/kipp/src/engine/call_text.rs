//! A tool call as a model writes it, read while it grows: the name as soon as it is known, then the arguments as they come.
//! What was told of a call is never taken back, so nothing is told before the text can only be a call: `{"name": "...",
//! "arguments": {`. From there to the brace that closes it the text is the arguments, letter for letter. Calls written
//! another way are read when they are complete (`call::parse_call`).

/// Bytes before the arguments at most; what takes longer is read when it is complete.
const MAX_HEAD_BYTES: usize = 4096;

/// The text of one call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CallText {
    /// All of it, until the arguments begin.
    head: String,
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// The arguments may still begin.
    #[default]
    Head,
    /// It is no call, or one that is read when it is complete.
    Kept,
    Arguments(Braces),
    /// The arguments are complete.
    Complete,
}

/// Where in the arguments the text is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Braces {
    depth: usize,
    in_text: bool,
    escaped: bool,
}

/// What a piece of text tells of a call.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    /// The call begins: its name.
    pub(super) name: Option<String>,
    /// More of its arguments.
    pub(super) arguments: String,
    /// The arguments are complete.
    pub(super) complete: bool,
}

impl CallText {
    /// Takes more text.
    pub(super) fn push(&mut self, text: &str) -> Told {
        let mut told = Told::default();
        match &mut self.state {
            State::Head | State::Kept => {
                self.head.push_str(text);
                if self.state == State::Head {
                    self.look_for_arguments(&mut told);
                }
            }
            State::Arguments(braces) => {
                let end = braces.end(text);
                told.arguments.push_str(text.get(..end.unwrap_or(text.len())).unwrap_or_default());
                if end.is_some() {
                    told.complete = true;
                    self.state = State::Complete;
                }
            }
            // Other fields of the call, which nobody asked for.
            State::Complete => {}
        }
        told
    }

    /// The text of a call of which nothing was told; `None` where its name was.
    pub(super) fn untold(self) -> Option<String> {
        matches!(self.state, State::Head | State::Kept).then_some(self.head)
    }

    fn look_for_arguments(&mut self, told: &mut Told) {
        match head(&self.head) {
            Head::Complete { name, rest } => {
                let arguments = rest.to_owned();
                told.name = Some(name);
                self.head = String::new();
                self.state = State::Arguments(Braces::default());
                let Told { arguments, complete, .. } = self.push(&arguments);
                (told.arguments, told.complete) = (arguments, complete);
            }
            Head::Growing if self.head.len() <= MAX_HEAD_BYTES => {}
            Head::Growing | Head::Another => self.state = State::Kept,
        }
    }
}

impl Braces {
    /// The byte behind the brace that closes the first one, if it is in this text.
    fn end(&mut self, text: &str) -> Option<usize> {
        for (at, byte) in text.bytes().enumerate() {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_text => self.escaped = true,
                b'"' => self.in_text = !self.in_text,
                _ if self.in_text => {}
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        return Some(at + 1);
                    }
                }
                _ => {}
            }
        }
        None
    }
}

/// What a call begins with.
#[derive(Debug, PartialEq, Eq)]
enum Head<'a> {
    /// It may still become one with arguments.
    Growing,
    /// It cannot.
    Another,
    /// Its name, and what follows from the arguments' first brace on.
    Complete { name: String, rest: &'a str },
}

fn head(text: &str) -> Head<'_> {
    let mut rest = text;
    for token in ["{", "\"name\"", ":"] {
        match after(rest, token) {
            Ok(behind) => rest = behind,
            Err(other) => return other,
        }
    }
    rest = rest.trim_start();
    let Some(end) = end_of_text(rest) else {
        return if rest.is_empty() || rest.starts_with('"') { Head::Growing } else { Head::Another };
    };
    let (name, behind) = rest.split_at(end);
    let name = match serde_json::from_str::<String>(name) {
        Ok(name) if !name.is_empty() => name,
        _ => return Head::Another,
    };
    rest = behind;
    for token in [",", "\"arguments\"", ":"] {
        match after(rest, token) {
            Ok(behind) => rest = behind,
            Err(other) => return other,
        }
    }
    match rest.trim_start() {
        "" => Head::Growing,
        rest if rest.starts_with('{') => Head::Complete { name, rest },
        _ => Head::Another,
    }
}

/// What follows a token and the white space before it.
fn after<'a>(text: &'a str, token: &str) -> Result<&'a str, Head<'a>> {
    let text = text.trim_start();
    match text.strip_prefix(token) {
        Some(rest) => Ok(rest),
        None if token.starts_with(text) => Err(Head::Growing),
        None => Err(Head::Another),
    }
}

/// The byte behind a quoted text.
fn end_of_text(text: &str) -> Option<usize> {
    let mut escaped = false;
    let mut bytes = text.bytes().enumerate();
    bytes.next().filter(|(_, byte)| *byte == b'"')?;
    for (at, byte) in bytes {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(at + 1),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Name, arguments, whether they are complete, and what was not told, of a text that comes in pieces of so many bytes.
    fn read(text: &str, bytes: usize) -> (Option<String>, String, bool, Option<String>) {
        let mut call = CallText::default();
        let (mut name, mut arguments, mut complete) = (None, String::new(), false);
        for piece in text.as_bytes().chunks(bytes) {
            let told = call.push(std::str::from_utf8(piece).unwrap());
            assert!(told.name.is_none() || name.is_none(), "a name is told once");
            name = name.or(told.name);
            arguments += &told.arguments;
            complete |= told.complete;
        }
        (name, arguments, complete, call.untold())
    }

    #[test]
    fn arguments_are_told_as_they_are_written_however_the_text_is_cut() {
        for (text, name, arguments, complete) in [
            ("\n{\"name\": \"f\", \"arguments\": {\"a\": 1.50}}\n", "f", "{\"a\": 1.50}", true),
            ("{\"name\":\"g\\\"h\",\"arguments\":{}}", "g\"h", "{}", true),
            (
                r#"{"name": "f", "arguments": {"a": "}\"{\\", "b": [{}, "]"]}, "id": "x}"}"#,
                "f",
                r#"{"a": "}\"{\\", "b": [{}, "]"]}"#,
                true,
            ),
            ("{\"name\": \"f\", \"arguments\": {\"a\": tru", "f", "{\"a\": tru", false),
        ] {
            for bytes in [1, 2, 3, 7, 1000] {
                let expected = (Some(name.to_owned()), arguments.to_owned(), complete, None);
                assert_eq!(read(text, bytes), expected, "{text} in {bytes}");
            }
        }
    }

    #[test]
    fn what_is_written_another_way_is_kept_whole() {
        let long = format!("{{\"name\": \"{}", "x".repeat(5000));
        for text in [
            "{\"name\": f}",
            "{\"name\": \"\", \"arguments\": {}}",
            "{\"arguments\": {}, \"name\": \"f\"}",
            "{\"name\": \"f\", \"arguments\": \"{}\"}",
            "{\"name\": \"f\", \"argu",
            "{\"name\": \"f\"}",
            "plain",
            "",
            &long,
        ] {
            for bytes in [1, 4, 10_000] {
                assert_eq!(read(text, bytes), (None, String::new(), false, Some(text.to_owned())), "{text}");
            }
        }
    }
}
