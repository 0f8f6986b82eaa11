//! The guards of a template's program (`program` puts them in): each takes fuel for the walk that the next
//! instruction will do, keeps containers to plain data, or calls a filter whose cost it has paid.

use minijinja::value::{ObjectRepr, Rest, Tuple, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, Value};

use super::filter;
use super::json::SpelledNumber;

/// The value is read in full.
pub(super) const READ: &str = "$read";
/// The value is read in full unless it is a map, in which one looks up.
pub(super) const CONTAINER: &str = "$container";
/// The value is read if it is a text: the engine charges any filter for that.
pub(super) const TEXT: &str = "$text";
/// As many steps as the value has items.
pub(super) const LENGTH: &str = "$length";
/// A lazy sequence becomes a list.
pub(super) const SETTLE: &str = "$settle";
/// The value is data.
pub(super) const DATA: &str = "$data";
/// The items of the new list are data.
pub(super) const ITEMS: &str = "$items";
/// A list of keys and values becomes a map.
pub(super) const MAP: &str = "$map";
/// Arguments of a slice.
pub(super) const SLICED: &str = "$sliced";
/// Receiver and arguments of a method.
pub(super) const METHOD_ARGS: &str = "$method";
/// Receiver and arguments of a method that compares each character with each.
pub(super) const STRIP_ARGS: &str = "$strip";
/// `str.format`, whose result no one can pay for beforehand.
pub(super) const FORMAT: &str = "$format";
/// Subject and arguments of a test.
pub(super) const TEST_ARGS: &str = "$test";
/// A filter that there is not.
pub(super) const UNKNOWN_FILTER: &str = "$unknown_filter";
/// A test that there is not.
pub(super) const UNKNOWN_TEST: &str = "$unknown_test";
/// The methods that compare each character with each.
pub(super) const STRIPS: [&str; 3] = ["strip", "lstrip", "rstrip"];

/// Bytes that one fuel pays for, as in the engine.
const BYTES_PER_FUEL: usize = 64;
/// List slots that one fuel pays for, as in the engine.
const SLOTS_PER_FUEL: usize = 2;
/// The engine prints, compares and hashes by recursion; JSON is read no deeper either.
const MAX_DEPTH: usize = 128;

/// Attributes a namespace may start with: the engine lists them to tell whether it has any.
const MAX_FIELDS: usize = 1024;

/// What a test does with its subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Test {
    /// Asks for its type.
    Constant,
    /// May read all of it and of the arguments.
    Reading,
}

/// The kind of a test.
pub(super) fn test(name: &str) -> Option<Test> {
    match name {
        "defined" | "undefined" | "none" | "boolean" | "true" | "false" | "odd" | "even" | "number"
        | "integer" | "int" | "float" | "string" | "sequence" | "iterable" | "mapping" | "safe"
        | "escaped" => Some(Test::Constant),
        "divisibleby" | "startingwith" | "endingwith" | "lower" | "upper" | "sameas" | "eq" | "equalto"
        | "==" | "ne" | "!=" | "lt" | "lessthan" | "<" | "le" | "<=" | "gt" | "greaterthan" | ">" | "ge"
        | ">=" | "in" => Some(Test::Reading),
        _ => None,
    }
}

/// Gives an environment the guards, and functions that pay for themselves.
pub(super) fn install(environment: &mut Environment<'_>) {
    environment.add_filter(READ, |state: &State<'_, '_>, value: Value| read(state, &value).map(|()| value));
    environment.add_filter(CONTAINER, |state: &State<'_, '_>, value: Value| {
        if !is_map(&value) {
            read(state, &value)?;
        }
        Ok::<_, Error>(value)
    });
    environment.add_filter(TEXT, |value: Value| value);
    environment
        .add_filter(LENGTH, |state: &State<'_, '_>, value: Value| pay_items(state, &value).map(|()| value));
    environment.add_filter(SETTLE, |state: &State<'_, '_>, value: Value| settle(state, value));
    environment.add_filter(DATA, |value: Value| data(&value).map(|()| value));
    environment.add_filter(ITEMS, |value: Value| items(&value).iter().try_for_each(data).map(|()| value));
    environment.add_filter(MAP, map);
    environment.add_filter(SLICED, |state: &State<'_, '_>, list: Value| {
        let args = items(&list);
        args.iter().try_for_each(|value| pay_items(state, value))?;
        Ok::<_, Error>(reversed(args))
    });
    environment
        .add_filter(METHOD_ARGS, |state: &State<'_, '_>, list: Value| method_args(state, &list, false));
    environment.add_filter(STRIP_ARGS, |state: &State<'_, '_>, list: Value| method_args(state, &list, true));
    environment.add_filter(FORMAT, |_: Value| Err::<Value, _>(refused("the method `format`")));
    environment.add_filter(TEST_ARGS, |state: &State<'_, '_>, list: Value| {
        let args = items(&list);
        args.iter().try_for_each(|value| read(state, value))?;
        Ok::<_, Error>(reversed(args))
    });
    environment.add_filter(UNKNOWN_FILTER, |args: Rest<ValueOrKwargs>| {
        unknown(ErrorKind::UnknownFilter, &args.into_values())
    });
    environment.add_filter(UNKNOWN_TEST, |args: Rest<ValueOrKwargs>| {
        unknown(ErrorKind::UnknownTest, &args.into_values())
    });
    filter::install(environment);
    environment.remove_global("debug");
    environment.add_function("namespace", |state: &State<'_, '_>, fields: Option<ValueOrKwargs>| {
        let fields = fields.map(|fields| own_fields(state, fields)).transpose()?;
        if fields.as_ref().and_then(|fields| fields.len()).is_some_and(|fields| fields > MAX_FIELDS) {
            return Err(refused("a namespace of more than 1024 attributes"));
        }
        minijinja::functions::namespace(fields)
    });
    environment.add_function("dict", |state: &State<'_, '_>, fields: Option<ValueOrKwargs>| {
        let Some(fields) = fields else { return Ok(Value::from_pairs(Vec::<(Value, Value)>::new())) };
        let fields = own_fields(state, fields)?.into_value();
        let pairs = fields.as_object().and_then(|object| object.try_iter_pairs());
        match pairs.filter(|_| is_map(&fields)) {
            Some(pairs) => Ok(Value::from_pairs(pairs)),
            None => Err(refused("dict() of something that is not a map")),
        }
    });
}

/// Takes the fuel for reading `value` in full.
pub(super) fn read(state: &State<'_, '_>, value: &Value) -> Result<(), Error> {
    read_at(state, value, 0)
}

pub(super) fn read_at(state: &State<'_, '_>, value: &Value, depth: usize) -> Result<(), Error> {
    if let Some(text) = value.as_str() {
        // A short text within a container costs something as well.
        return state.consume_fuel((text.len() / BYTES_PER_FUEL) as u64 + u64::from(depth > 0));
    }
    let Some(object) = value.as_object() else { return state.consume_fuel(u64::from(depth > 0)) };
    state.consume_fuel(1)?;
    if depth > MAX_DEPTH {
        return Err(refused("a value nested more than 128 deep"));
    }
    match object.repr() {
        ObjectRepr::Map => {
            for (key, value) in object.try_iter_pairs().into_iter().flatten() {
                read_at(state, &key, depth + 1)?;
                read_at(state, &value, depth + 1)?;
            }
        }
        ObjectRepr::Seq | ObjectRepr::Iterable => {
            for item in object.try_iter().into_iter().flatten() {
                read_at(state, &item, depth + 1)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Takes the fuel for a step for each item, or for the bytes of a text.
pub(super) fn pay_items(state: &State<'_, '_>, value: &Value) -> Result<(), Error> {
    let fuel = match (value.as_str(), value.as_object()) {
        (Some(text), _) => text.len() / BYTES_PER_FUEL,
        (None, Some(object)) => object.enumerator_len().unwrap_or(0) / SLOTS_PER_FUEL,
        (None, None) => 0,
    };
    state.consume_fuel(fuel as u64)
}

fn is_map(value: &Value) -> bool {
    value.as_object().is_some_and(|object| matches!(object.repr(), ObjectRepr::Map))
}

/// Whether this is a container as literals build it, or a number.
fn is_data(value: &Value) -> bool {
    let Some(object) = value.as_object() else { return true };
    let is_literal_map = || object.type_name() == map_type();
    object.downcast_ref::<Vec<Value>>().is_some()
        || object.downcast_ref::<Tuple>().is_some()
        || object.downcast_ref::<SpelledNumber>().is_some()
        || is_literal_map()
}

/// The engine's type of a map, which has no public name.
fn map_type() -> &'static str {
    static NAME: std::sync::OnceLock<&'static str> = std::sync::OnceLock::new();
    NAME.get_or_init(|| {
        let map = Value::from_pairs(Vec::<(Value, Value)>::new());
        map.as_object().map_or("", |object| object.type_name())
    })
}

pub(super) fn data(value: &Value) -> Result<(), Error> {
    if is_data(value) { Ok(()) } else { Err(refused("a namespace, loop, macro or function within a value")) }
}

/// Data, or named arguments that are.
pub(super) fn argument(value: &Value) -> Result<(), Error> {
    if !value.is_kwargs() {
        return data(value);
    }
    let pairs = value.as_object().and_then(|object| object.try_iter_pairs());
    pairs.into_iter().flatten().try_for_each(|(_, value)| data(&value))
}

/// A lazy sequence as a list of data.
pub(super) fn settle(state: &State<'_, '_>, value: Value) -> Result<Value, Error> {
    let lazy = value.as_object().is_some_and(|object| {
        !is_data(&value) && matches!(object.repr(), ObjectRepr::Seq | ObjectRepr::Iterable)
    });
    if !lazy {
        // A list of new values, such as `map` makes, may hold lazy ones.
        return Ok(value);
    }
    let mut settled = Vec::new();
    for (n, item) in value.try_iter()?.enumerate() {
        state.consume_fuel(u64::from(n % SLOTS_PER_FUEL == 0))?;
        data(&item)?;
        settled.push(item);
    }
    Ok(Value::from(settled))
}

/// A constant that the compiler folded, which may be a lazy sum of lists.
pub(super) fn settled_constant(value: &Value) -> Value {
    match (value.as_object(), value.try_iter()) {
        (Some(object), Ok(items))
            if !is_data(value) && matches!(object.repr(), ObjectRepr::Seq | ObjectRepr::Iterable) =>
        {
            Value::from(items.collect::<Vec<_>>())
        }
        _ => value.clone(),
    }
}

/// The items of a list or tuple; of anything else none.
pub(super) fn items(list: &Value) -> Vec<Value> {
    list.as_object().and_then(|object| object.try_iter()).into_iter().flatten().collect()
}

fn reversed(mut args: Vec<Value>) -> Value {
    args.reverse();
    Value::from(args)
}

/// Keys are looked up and compared at any time, so they are short walks: no containers.
fn map(state: &State<'_, '_>, list: &Value) -> Result<Value, Error> {
    let flat = items(list);
    let mut pairs = Vec::with_capacity(flat.len() / 2);
    for pair in flat.chunks_exact(2) {
        key(state, &pair[0])?;
        data(&pair[1])?;
        pairs.push((pair[0].clone(), pair[1].clone()));
    }
    Ok(Value::from_pairs(pairs))
}

fn key(state: &State<'_, '_>, key: &Value) -> Result<(), Error> {
    match key.as_object() {
        Some(_) => Err(refused("a container as a key")),
        None => read(state, key),
    }
}

/// Fields of a new map or namespace.
fn own_fields(state: &State<'_, '_>, fields: ValueOrKwargs) -> Result<ValueOrKwargs, Error> {
    let value = fields.into_value();
    let pairs = value.as_object().and_then(|object| object.try_iter_pairs());
    for (n, (name, value)) in pairs.into_iter().flatten().enumerate() {
        state.consume_fuel(u64::from(n % SLOTS_PER_FUEL == 0))?;
        key(state, &name)?;
        data(&value)?;
    }
    Ok(ValueOrKwargs::from(value))
}

fn method_args(state: &State<'_, '_>, list: &Value, strips: bool) -> Result<Value, Error> {
    let args = items(list);
    if let Some((receiver, rest)) = args.split_first() {
        match is_map(receiver) {
            true => pay_items(state, receiver)?,
            false => read(state, receiver)?,
        }
        for value in rest {
            argument(value)?;
            read(state, value)?;
        }
        if strips {
            pay_strip(state, &args)?;
        }
    }
    Ok(reversed(args))
}

/// Takes the fuel for comparing each character of a text with each of the characters to strip.
pub(super) fn pay_strip(state: &State<'_, '_>, args: &[Value]) -> Result<(), Error> {
    let bytes = |n: usize| args.get(n).and_then(Value::as_str).map_or(0, str::len);
    state.consume_fuel((bytes(0).saturating_mul(bytes(1) / 16) / BYTES_PER_FUEL) as u64)
}

fn unknown(kind: ErrorKind, args: &[Value]) -> Result<Value, Error> {
    Err(Error::new(kind, args.last().map(Value::to_string).unwrap_or_default()))
}

pub(super) fn refused(what: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("{what} is not allowed in a chat template"))
}
