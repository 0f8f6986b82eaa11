//! The filters that a template may call, each with what it costs: its guard takes the fuel and then calls it.

use minijinja::value::{ObjectRepr, Rest, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, Value};

use super::guard::{self, Test, argument, data, items, pay_items, pay_strip, read, read_at, refused, settle};

/// What a filter does with its input.
#[derive(Clone, Copy)]
enum Cost {
    /// Nothing, for a list or a text.
    Free,
    /// At most a step for each item.
    Items,
    /// Reads everything once.
    Reads,
    /// Compares each of the text's characters with each of the argument's.
    Strips,
    /// Compares items with one another.
    Sorts,
    /// Calls a test, or a filter of the kind `Reads`, for each item.
    Calls,
}

/// The filters: name, guard, cost.
const FILTERS: [(&str, &str, Cost); 42] = [
    ("abs", "$$abs", Cost::Reads),
    ("attr", "$$attr", Cost::Reads),
    ("batch", "$$batch", Cost::Items),
    ("bool", "$$bool", Cost::Reads),
    ("capitalize", "$$capitalize", Cost::Reads),
    ("count", "$$count", Cost::Free),
    ("d", "$$d", Cost::Free),
    ("default", "$$default", Cost::Free),
    ("dictsort", "$$dictsort", Cost::Sorts),
    ("e", "$$e", Cost::Reads),
    ("escape", "$$escape", Cost::Reads),
    ("first", "$$first", Cost::Free),
    ("float", "$$float", Cost::Reads),
    ("indent", "$$indent", Cost::Reads),
    ("int", "$$int", Cost::Reads),
    ("items", "$$items", Cost::Items),
    ("join", "$$join", Cost::Reads),
    ("last", "$$last", Cost::Items),
    ("length", "$$length", Cost::Free),
    ("lines", "$$lines", Cost::Reads),
    ("list", "$$list", Cost::Items),
    ("lower", "$$lower", Cost::Reads),
    ("map", "$$map", Cost::Calls),
    ("max", "$$max", Cost::Sorts),
    ("min", "$$min", Cost::Sorts),
    ("reject", "$$reject", Cost::Calls),
    ("rejectattr", "$$rejectattr", Cost::Calls),
    ("replace", "$$replace", Cost::Reads),
    ("reverse", "$$reverse", Cost::Items),
    ("round", "$$round", Cost::Reads),
    ("safe", "$$safe", Cost::Reads),
    ("select", "$$select", Cost::Calls),
    ("selectattr", "$$selectattr", Cost::Calls),
    ("slice", "$$slice", Cost::Items),
    ("sort", "$$sort", Cost::Sorts),
    ("split", "$$split", Cost::Reads),
    ("string", "$$string", Cost::Reads),
    ("title", "$$title", Cost::Reads),
    // Pays for itself, and knows the same depth.
    ("tojson", "$$tojson", Cost::Items),
    ("trim", "$$trim", Cost::Strips),
    ("unique", "$$unique", Cost::Sorts),
    ("upper", "$$upper", Cost::Reads),
];

/// The guard of a filter.
pub(super) fn guard_of(name: &str) -> Option<&'static str> {
    FILTERS.iter().find(|known| known.0 == name).map(|known| known.1)
}

/// Gives an environment the guards of the filters.
pub(super) fn install(environment: &mut Environment<'_>) {
    for (name, guard, cost) in FILTERS {
        environment.add_filter(guard, move |state: &mut State<'_, '_>, args: Rest<ValueOrKwargs>| {
            call_filter(state, name, cost, &args.into_values())
        });
    }
}

fn call_filter(state: &mut State<'_, '_>, name: &str, cost: Cost, args: &[Value]) -> Result<Value, Error> {
    let Some((input, rest)) = args.split_first() else { return Err(refused("a filter of nothing")) };
    for value in rest {
        argument(value)?;
        read(state, value)?;
    }
    match cost {
        Cost::Free if input.downcast_object_ref::<Vec<Value>>().is_some() => {}
        Cost::Free | Cost::Items => pay_items(state, input)?,
        Cost::Reads => read(state, input)?,
        Cost::Strips => {
            read(state, input)?;
            pay_strip(state, args)?;
        }
        Cost::Sorts => pay_sort(state, input)?,
        Cost::Calls => pay_calls(state, name, input, rest)?,
    }
    let result = state.apply_filter(name, args)?;
    let result = settle(state, result)?;
    if matches!(cost, Cost::Calls | Cost::Items) && result.downcast_object_ref::<Vec<Value>>().is_some() {
        items(&result).iter().try_for_each(data)?;
    }
    Ok(result)
}

/// Items are compared about n log n times; the dearest one may be in each.
fn pay_sort(state: &State<'_, '_>, input: &Value) -> Result<(), Error> {
    let Some(object) = input.as_object() else { return read(state, input) };
    let mut dearest = 1;
    let mut count = 0_u64;
    let mut pay = |value: &Value| -> Result<(), Error> {
        let before = state.fuel_levels().map_or(0, |levels| levels.0);
        read_at(state, value, 1)?;
        dearest = dearest.max(state.fuel_levels().map_or(0, |levels| levels.0).saturating_sub(before));
        count += 1;
        Ok(())
    };
    match object.repr() {
        ObjectRepr::Map => {
            for (key, value) in object.try_iter_pairs().into_iter().flatten() {
                pay(&key)?;
                pay(&value)?;
            }
        }
        _ => object.try_iter().into_iter().flatten().try_for_each(|item| pay(&item))?,
    }
    let log = u64::from(u64::BITS - count.leading_zeros());
    state.consume_fuel(dearest.saturating_mul(count).saturating_mul(log))
}

/// A test or filter by name, for each item.
fn pay_calls(state: &State<'_, '_>, name: &str, input: &Value, rest: &[Value]) -> Result<(), Error> {
    pay_items(state, input)?;
    let before = state.fuel_levels().map_or(0, |levels| levels.0);
    rest.iter().try_for_each(|value| read_at(state, value, 1))?;
    let args = state.fuel_levels().map_or(0, |levels| levels.0).saturating_sub(before);
    let count = input.as_object().and_then(|object| object.enumerator_len()).unwrap_or(0) as u64;
    state.consume_fuel(args.saturating_add(1).saturating_mul(count))?;
    let called = rest.get(usize::from(name.ends_with("attr"))).filter(|called| !called.is_kwargs());
    let Some(called) = called.and_then(Value::as_str) else { return Ok(()) };
    let reads = match name {
        "map" => match FILTERS.iter().find(|known| known.0 == called).map(|known| known.2) {
            Some(Cost::Reads) => true,
            _ if matches!(called, "length" | "count" | "first" | "last" | "default" | "d") => false,
            _ => return Err(refused("this filter over a list")),
        },
        _ => match guard::test(called) {
            Some(test) => test == Test::Reading && !matches!(called, "eq" | "equalto" | "==" | "ne" | "!="),
            None => return Err(Error::new(ErrorKind::UnknownTest, format!("test {called} is unknown"))),
        },
    };
    if reads { read(state, input) } else { Ok(()) }
}
