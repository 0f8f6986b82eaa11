//! Jinja with Transformers' settings, and with bounds: a template comes with a model file and is hostile until
//! it has rendered.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use minijinja::machinery::{self, Instructions};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::ValueKind;
use minijinja::{Environment, Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat;

use super::error::{ChatError, Raised};
use super::json::tojson;
use super::markers::Atoms;
use super::{guard, program};

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
/// A nested list costs at least three steps a level to build; dropping one takes some 300 bytes of stack a level.
const STACK_BYTES_PER_FUEL: usize = 256;

/// Transformers' settings.
fn syntax() -> Result<SyntaxConfig, Error> {
    SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).keep_trailing_newline(false).build()
}

/// The engine with everything that a chat template may call. With `atoms`, matching methods see text spelled out.
fn environment(limits: Limits, atoms: Option<Arc<Atoms>>) -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_debug(false);
    environment.set_fuel(Some(limits.fuel));
    let written_bytes = AtomicUsize::new(0);
    environment.set_formatter(move |output, state, value| {
        guard::read(state, value)?;
        let text = match value.as_str() {
            Some(text) => text,
            None if value.is_undefined() => "",
            None => &value.to_string(),
        };
        // Macros and captured blocks count too: the limit has room for them.
        let before = written_bytes.fetch_add(text.len(), Ordering::Relaxed);
        if before.saturating_add(text.len()) > limits.output_bytes {
            return Err(Error::from(ErrorKind::WriteFailure));
        }
        output.write_str(text).map_err(Error::from)
    });
    environment.add_filter("tojson", tojson);
    environment.add_function(
        "raise_exception",
        |state: &State<'_, '_>, message: Value| -> Result<Value, Error> {
            guard::read(state, &message)?;
            Err(Error::new(ErrorKind::InvalidOperation, "raise_exception")
                .with_source(Raised(message.to_string())))
        },
    );
    guard::install(&mut environment);
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

/// Checks that `source` is a template within bounds.
pub(super) fn check(source: &str) -> Result<(), ChatError> {
    on_own_stack(MIN_STACK_BYTES, || compile(source).map(drop))
}

fn compile(source: &str) -> Result<Instructions<'_>, ChatError> {
    program::compile(source, syntax().map_err(|error| ChatError::from_engine(&error, 0, 0))?)
}

/// Renders `source` with `variables`.
///
/// A template can nest a list as deep as its fuel goes, and the engine drops lists by recursion: the
/// rendering gets a thread with a stack for that depth, of which only what is used becomes memory.
pub(super) fn render(
    source: &str,
    variables: Value,
    limits: Limits,
    atoms: Option<Arc<Atoms>>,
) -> Result<String, ChatError> {
    let stack_bytes =
        MIN_STACK_BYTES.saturating_add((limits.fuel as usize).saturating_mul(STACK_BYTES_PER_FUEL));
    on_own_stack(stack_bytes, move || render_here(source, variables, limits, atoms))
}

/// Runs `work` on a thread of its own.
fn on_own_stack<T: Send>(
    stack_bytes: usize,
    work: impl FnOnce() -> Result<T, ChatError> + Send,
) -> Result<T, ChatError> {
    let failed = |problem: &str| ChatError::Failed { line: 0, problem: problem.to_owned() };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("chat-template".to_owned()).stack_size(stack_bytes);
        let working = thread
            .spawn_scoped(scope, work)
            .map_err(|error| failed(&format!("no thread to render on: {error}")))?;
        working.join().unwrap_or_else(|_| Err(failed("the template engine panicked")))
    })
}

/// Renders on this thread.
fn render_here(
    source: &str,
    variables: Value,
    limits: Limits,
    atoms: Option<Arc<Atoms>>,
) -> Result<String, ChatError> {
    let environment = environment(limits, atoms);
    let (instructions, blocks) = (compile(source)?, BTreeMap::new());
    let mut text = String::new();
    let rendered = machinery::eval(
        &environment,
        &instructions,
        variables,
        &blocks,
        &mut machinery::make_string_output(&mut text),
        // A prompt is text, never HTML.
        minijinja::AutoEscape::None,
    );
    match rendered {
        Ok(_) => Ok(text),
        Err(error) => Err(ChatError::from_engine(&error, limits.fuel, limits.output_bytes)),
    }
}
