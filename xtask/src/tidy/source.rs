//! One Rust file, seen as the checks need it: the text as written, and the code alone, with comments, the inside of
//! string and character literals and `#[cfg(test)]` items blanked, line for line. Not a parser.

/// A Rust file. All three views have the same lines.
pub(super) struct Source {
    pub(super) path: String,
    /// As written.
    pub(super) lines: Vec<String>,
    /// Without comments and the inside of literals.
    pub(super) code: Vec<String>,
    /// `code` without items behind `#[cfg(test)]`, and nothing of a file of tests.
    pub(super) product: Vec<String>,
}

impl Source {
    pub(super) fn new(path: &str, text: &str) -> Self {
        let code = blank_literals(text);
        let only_tests = path.ends_with("/tests.rs") || path.contains("/tests/");
        let product = if only_tests { blank(&code) } else { blank_tests(&code) };
        let lines = |text: &str| text.lines().map(str::to_owned).collect();
        Self { path: path.to_owned(), lines: lines(text), code: lines(&code), product: lines(&product) }
    }

    /// `path:line`, from a line index.
    pub(super) fn place(&self, index: usize) -> String {
        format!("{}:{}", self.path, index + 1)
    }
}

/// Whether `word` stands in `line` as a whole word.
pub(super) fn has_word(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word)
        .any(|(at, _)| !line[..at].ends_with(part) && !line[at + word.len()..].starts_with(part))
}

/// Spaces, line for line.
fn blank(text: &str) -> String {
    text.chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect()
}

/// Comments and the inside of literals become spaces; line breaks stay.
fn blank_literals(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let (skipped, kept) = token(rest, out.chars().next_back(), c);
        if kept {
            out.push_str(&rest[..skipped]);
        } else {
            out.push_str(&blank(&rest[..skipped]));
        }
        rest = &rest[skipped..];
    }
    out
}

/// Length of what starts here, and whether it is code.
fn token(rest: &str, before: Option<char>, c: char) -> (usize, bool) {
    let in_word = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    if rest.starts_with("//") {
        (rest.find('\n').unwrap_or(rest.len()), false)
    } else if rest.starts_with("/*") {
        (block_comment(rest), false)
    } else if c == '"' {
        (quoted(rest, '"'), false)
    } else if c == 'r' && !in_word && raw_string(rest).is_some() {
        (raw_string(rest).unwrap_or(1), false)
    } else if c == 'b' && !in_word && raw_string(&rest[1..]).is_some() {
        (1 + raw_string(&rest[1..]).unwrap_or(0), false)
    } else if c == '\'' && is_char_literal(rest) {
        (quoted(rest, '\''), false)
    } else {
        (c.len_utf8(), true)
    }
}

fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while let Some(c) = rest[at..].chars().next() {
        if rest[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += c.len_utf8();
        }
    }
    rest.len()
}

/// Length of a literal with its two quotes.
fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == quote {
            return at + 1;
        }
    }
    rest.len()
}

/// Length of `r"..."` or `r#"..."#`, if one starts here.
fn raw_string(rest: &str) -> Option<usize> {
    let body = rest.strip_prefix('r')?;
    let hashes = body.len() - body.trim_start_matches('#').len();
    let inside = body[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let length = inside.find(&end).map_or(inside.len(), |at| at + end.len());
    Some(1 + hashes + 1 + length)
}

/// `'a'` and `'\n'`, unlike the lifetime `'a`.
fn is_char_literal(rest: &str) -> bool {
    let mut chars = rest.chars().skip(1);
    match chars.next() {
        Some('\\') => true,
        Some(_) => chars.next() == Some('\''),
        None => false,
    }
}

/// Blanks each item behind `#[cfg(test)]`: to its closing brace, or to a semicolon before any brace opens.
fn blank_tests(code: &str) -> String {
    const MARK: &str = "#[cfg(test)]";
    let mut out = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(at) = rest.find(MARK) {
        out.push_str(&rest[..at]);
        let end = item_end(&rest[at..], MARK.len());
        out.push_str(&blank(&rest[at..at + end]));
        rest = &rest[at + end..];
    }
    out.push_str(rest);
    out
}

fn item_end(item: &str, start: usize) -> usize {
    let mut depth = 0;
    for (at, c) in item.char_indices().skip_while(|(at, _)| *at < start) {
        match c {
            '{' => depth += 1,
            '}' if depth <= 1 => return at + 1,
            '}' => depth -= 1,
            ';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    item.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_and_comments_are_no_code() {
        let source = Source::new(
            "a.rs",
            "let a = \"unsafe \\\" {\"; // unsafe\n/* a /* b */ unsafe */ let b = 'x'; r#\"\"unsafe\"#\nfn f<'a>(x: &'a u8) {}\n",
        );
        assert!(!source.code.iter().any(|line| has_word(line, "unsafe")));
        assert!(source.code[1].contains("let b ="));
        assert_eq!(source.code[2], "fn f<'a>(x: &'a u8) {}");
        assert_eq!(source.code.len(), source.lines.len());
    }

    #[test]
    fn tests_are_no_product() {
        let text = "#[cfg(test)]\nuse a::b;\nfn keep() {}\n#[cfg(test)]\nmod tests {\n fn x() { y(); }\n}\nfn also() {}\n";
        let source = Source::new("a.rs", text);
        let product: Vec<&str> = source.product.iter().map(|line| line.trim()).collect();
        assert_eq!(product, ["", "", "fn keep() {}", "", "", "", "", "fn also() {}"]);
        assert!(Source::new("src/isa/tests.rs", text).product.iter().all(|line| line.trim().is_empty()));
    }

    #[test]
    fn words_are_whole() {
        assert!(has_word("unsafe {", "unsafe"));
        assert!(!has_word("unsafe_code", "unsafe"));
    }
}
