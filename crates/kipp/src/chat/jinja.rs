//! Jinja with Transformers' settings, and with bounds: a template comes with a model file and is hostile until
//! it has rendered.

use std::io;
use std::sync::Arc;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::ValueKind;
use minijinja::{Environment, Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat;

use super::error::{ChatError, Raised};
use super::json::tojson;
use super::markers::Atoms;

/// What one rendering may use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Steps; one also pays for 64 bytes of any text made on the way, so this bounds memory too.
    pub(super) fuel: u64,
    /// Bytes of the prompt.
    pub(super) output_bytes: usize,
}

/// What any rendering may need, the parser's own recursion included.
const MIN_STACK_BYTES: usize = 8 << 20;
/// A nested list costs at least two steps a level; printing one takes about 300 bytes of stack a level.
const STACK_BYTES_PER_FUEL: usize = 256;

/// The engine with everything that a chat template may call. With `atoms`, matching methods see text spelled out.
fn environment<'source>(fuel: u64, atoms: Option<Arc<Atoms>>) -> Environment<'source> {
    let mut environment = Environment::new();
    let syntax =
        SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).keep_trailing_newline(false).build();
    if let Ok(syntax) = syntax {
        environment.set_syntax(syntax);
    }
    // A prompt is text, never HTML.
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_debug(false);
    environment.set_fuel(Some(fuel));
    // A list that holds one list many times is small until it is printed: it is paid for while it is.
    environment.set_formatter(|output, state, value| match value.as_object() {
        Some(_) => Ok(std::fmt::Write::write_fmt(output, format_args!("{}", string(state, value)?))?),
        None => minijinja::escape_formatter(output, state, value),
    });
    environment.add_filter("tojson", tojson);
    environment.add_filter("string", string);
    environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, "raise_exception").with_source(Raised(message)))
    });
    environment.set_unknown_method_callback(
        move |state: &mut State<'_, '_>, value, method, args| match &atoms {
            Some(atoms) if MATCHING_METHODS.contains(&method) => {
                let args: Vec<Value> = args.iter().map(|arg| spelled_out(arg, atoms)).collect();
                pycompat::unknown_method_callback(state, &spelled_out(value, atoms), method, &args)
            }
            _ => pycompat::unknown_method_callback(state, value, method, args),
        },
    );
    environment
}

/// Methods that only ask about a text. Their answer is about what the text spells, so that for instance
/// `content.startswith('<tool_response>')` holds for a message that spells it as for one that the template wrote.
const MATCHING_METHODS: [&str; 5] = ["startswith", "endswith", "find", "rfind", "count"];

/// A text, or a list of texts, with its atoms spelled out.
fn spelled_out(value: &Value, atoms: &Atoms) -> Value {
    if let Some(text) = value.as_str() {
        return match atoms.spell_out(text) {
            Some((spelled, _)) => Value::from(spelled),
            None => value.clone(),
        };
    }
    match (value.kind(), value.try_iter()) {
        (ValueKind::Seq, Ok(items)) => items.map(|item| spelled_out_text(item, atoms)).collect(),
        _ => value.clone(),
    }
}

/// As `spelled_out` for one item of a list, which is not searched for further lists.
fn spelled_out_text(value: Value, atoms: &Atoms) -> Value {
    match value.as_str().and_then(|text| atoms.spell_out(text)) {
        Some((spelled, _)) => Value::from(spelled),
        None => value,
    }
}

/// The filter `string`, paying for the text while it grows.
fn string(state: &State<'_, '_>, value: &Value) -> Result<Value, Error> {
    struct Paying<'a, 'b>(&'a State<'b, 'b>, String);
    impl std::fmt::Write for Paying<'_, '_> {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            self.1.push_str(text);
            // Rounded up, so that many small pieces are paid for as well.
            self.0.consume_fuel(text.len() as u64 / 64 + 1).map_err(|_| std::fmt::Error)
        }
    }
    if value.as_str().is_some() {
        return Ok(value.clone());
    }
    let mut text = Paying(state, String::new());
    match std::fmt::Write::write_fmt(&mut text, format_args!("{value}")) {
        Ok(()) => Ok(Value::from(text.1)),
        Err(_) => Err(Error::from(ErrorKind::OutOfFuel)),
    }
}

/// Checks that `source` is a template. The parser bounds its own recursion.
pub(super) fn check(source: &str) -> Result<(), ChatError> {
    match environment(0, None).template_from_str(source) {
        Ok(_) => Ok(()),
        Err(error) => Err(ChatError::from_engine(&error, 0, 0)),
    }
}

/// Renders `source` with `variables`.
///
/// A template can nest a list as deep as its fuel goes, and the engine drops and prints lists by recursion: the
/// rendering gets a thread with a stack for that depth, of which only what is used becomes memory.
pub(super) fn render(
    source: &str,
    variables: Value,
    limits: Limits,
    atoms: Option<Arc<Atoms>>,
) -> Result<String, ChatError> {
    let stack_bytes =
        MIN_STACK_BYTES.saturating_add((limits.fuel as usize).saturating_mul(STACK_BYTES_PER_FUEL));
    let failed = |problem: &str| ChatError::Failed { line: 0, problem: problem.to_owned() };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("chat-template".to_owned()).stack_size(stack_bytes);
        let rendering = thread
            .spawn_scoped(scope, move || render_here(source, variables, limits, atoms))
            .map_err(|error| failed(&format!("no thread to render on: {error}")))?;
        rendering.join().unwrap_or_else(|_| Err(failed("the template engine panicked")))
    })
}

/// Renders on this thread.
fn render_here(
    source: &str,
    variables: Value,
    limits: Limits,
    atoms: Option<Arc<Atoms>>,
) -> Result<String, ChatError> {
    let environment = environment(limits.fuel, atoms);
    let mut output = BoundedOutput { bytes: Vec::new(), limit: limits.output_bytes };
    let rendered = environment
        .template_from_str(source)
        .and_then(|template| template.render_captured_to(variables, &mut output).map(drop));
    if let Err(error) = rendered {
        return Err(ChatError::from_engine(&error, limits.fuel, limits.output_bytes));
    }
    String::from_utf8(output.bytes)
        .map_err(|_| ChatError::Failed { line: 0, problem: "the output is not UTF-8".to_owned() })
}

/// Collects the prompt up to a limit.
struct BoundedOutput {
    bytes: Vec<u8>,
    limit: usize,
}

impl io::Write for BoundedOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.limit - self.bytes.len() {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
