//! `[parameters]`: flags of the engine, and variables of its environment, with the values that each may take.

use std::cmp::Ordering;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::engine::OUR_FLAGS;
use super::format::{Key, Kind, Table, Variant};
use super::reader::{self, Fields, Place};
use super::reading;
use super::secrets::holds_secret;
use super::suggest;
use super::{constraints, domains};
use crate::engine::variable;
use crate::problems::Problem;
use crate::space::{Parameter, Point, Value, plain_name};

/// The most values that a parameter may have.
pub const MOST_VALUES: usize = 10_000;

#[rustfmt::skip]
pub static PARAMETER: Table = Table {
    variant: Variant::Presence { key: "values", with: "values", without: "range" },
    rows: &[&[
        Key::required(Kind::Values).named("values", "The values to choose from, all of one kind.").within(&["values"]),
        Key::required(Kind::Number).named("min", "The smallest value.").within(&["range"]),
        Key::required(Kind::Number).named("max", "No value is larger.").within(&["range"]),
        Key::optional(Kind::Number).named("step", "The distance between values; 1 for integers, required for reals.").within(&["range"]),
        Key::optional(Kind::Value).named("default", "The baseline's value; without it the running engine tells its own."),
        Key::optional(Kind::Text).named("when", "The condition under which the parameter exists, such as \"speculative-config != off\"; without one it always does."),
    ]],
};

/// A regular expression of every key, for the schema.
pub const KEY_PATTERN: &str = "^[A-Za-z0-9][A-Za-z0-9_.-]*$";

/// What the section holds. A refused parameter is still known by name, so that a constraint on it is not called
/// unknown.
#[derive(Default)]
pub struct Parameters {
    /// The parameters without mistakes, in the order of the file.
    pub sound: Vec<Parameter>,
    /// The names of all whose name could be read.
    pub names: Vec<String>,
    /// Where these stand.
    pub spans: Vec<Range<usize>>,
    /// Whether some name could not be read.
    pub nameless: bool,
}

pub fn read(place: &Place, table: &DeTable, problems: &mut Vec<Problem>) -> Parameters {
    let mut parameters = Parameters::default();
    let mut conditions = Vec::new();
    for (key, span, value) in reader::in_order(table) {
        let name = match name(key, &span) {
            Ok(name) => name,
            Err(problem) => {
                problems.push(problem);
                parameters.nameless = true;
                continue;
            }
        };
        let before = problems.len();
        if parameters.names.contains(&name) {
            let message = format!("`{name}` stands twice in `[parameters]`");
            let hint = "keep one of them; `_` and `-` are the same in a flag";
            problems.push(Problem::new(&span, message, "again here", hint));
            continue;
        }
        let read = parameter(&name, &span, value, problems);
        parameters.names.push(name);
        parameters.spans.push(span);
        if let Some((parameter, when)) = read.filter(|_| problems.len() == before) {
            conditions.extend(when.map(|(text, span)| (parameter.name.clone(), text, span)));
            parameters.sound.push(parameter);
        }
    }
    conditional(&mut parameters, &conditions, problems);
    if parameters.names.is_empty() && !parameters.nameless {
        let hint = "name at least one flag to tune, such as max-num-seqs = { values = [32, 64, 128] }";
        problems.push(Problem::new(&place.span, "`[parameters]` tunes nothing", "no parameters", hint));
    }
    parameters
}

/// The text of a condition, with its place.
type Condition = (String, Range<usize>);

/// Gives parameters the conditions under which they exist: name, text and place.
fn conditional(
    parameters: &mut Parameters,
    conditions: &[(String, String, Range<usize>)],
    problems: &mut Vec<Problem>,
) {
    for (name, text, span) in conditions {
        let when = match constraints::one(text, span, parameters) {
            Ok(when) => when,
            Err(problem) => {
                problems.push(problem);
                continue;
            }
        };
        if let Some(chained) = when.names().find(|other| conditions.iter().any(|(name, ..)| name == other)) {
            let message = format!("the condition of `{name}` names `{chained}`, which has a condition itself");
            let hint = "name parameters that always exist";
            problems.push(Problem::new(span, message, "not known to exist", hint));
            continue;
        }
        if !constraints::possible(&parameters.sound, &[&when]) {
            let message = format!("`{name}` never exists: no values meet `{when}`");
            problems.push(Problem::new(span, message, "never true", "remove the parameter, or relax its condition"));
            continue;
        }
        let default = |name: &str| parameters.sound.iter().find(|p| p.name == name).and_then(|p| p.default.clone());
        let defaults = when.names().filter_map(|name| Some((name.to_owned(), default(name)?)));
        let met = when.is_met(&Point(defaults.collect()));
        let open = when.names().find(|other| default(other).is_none());
        if let (Some(open), true, false) = (open, default(name).is_some(), met) {
            let message = format!("the default of `{name}` is never used: `{open}`, which decides it, has none");
            let hint = format!("give `{open}` a default, or remove that of `{name}`");
            problems.push(Problem::new(span, message, "not known of the defaults", hint));
            continue;
        }
        if let Some(parameter) = parameters.sound.iter_mut().find(|p| p.name == *name) {
            parameter.when = Some(when);
        }
    }
}

fn name(key: &str, span: &Range<usize>) -> Result<String, Problem> {
    let bare = key.trim_start_matches('-');
    if let Some(variable) = variable(key) {
        let sound = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if variable.is_empty() || !variable.chars().all(sound) || variable.starts_with(|c: char| c.is_ascii_digit()) {
            let hint = "write env.NAME in quotes, such as \"env.VLLM_ATTENTION_BACKEND\" = { values = [...] }";
            return Err(Problem::new(span, format!("`{key}` names no variable"), "not a variable", hint));
        }
        return Ok(key.to_owned());
    }
    let name = plain_name(bare);
    let sound = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if bare.is_empty() || !bare.chars().all(sound) || bare.starts_with(['_', '.']) {
        let hint = "write a flag of the engine without its dashes, such as max-num-seqs";
        return Err(Problem::new(span, format!("`{key}` is no name of a flag"), "not a flag", hint));
    }
    if bare.len() != key.len() {
        let message = format!("`{key}` begins with dashes");
        return Err(Problem::new(span, message, "leading dashes", format!("write `{name}`")));
    }
    if OUR_FLAGS.contains(&name.as_str()) {
        let message = format!("`{name}` cannot be tuned: the tuner sets it for every launch");
        let hint = "remove it; use engine.port for a fixed port";
        return Err(Problem::new(span, message, "not tunable", hint));
    }
    Ok(name)
}

fn parameter(
    name: &str,
    key: &Range<usize>,
    value: &Spanned<DeValue>,
    problems: &mut Vec<Problem>,
) -> Option<(Parameter, Option<Condition>)> {
    let path = format!("parameters.{name}");
    let DeValue::Table(table) = value.get_ref() else {
        let hint = match value.get_ref() {
            DeValue::Array(_) => "wrap the list: { values = [...] }".to_owned(),
            DeValue::Integer(i) => format!("write {{ values = [{i}] }} to tune it, or fix it in engine.args"),
            DeValue::Float(f) => format!("write {{ values = [{f}] }} to tune it, or fix it in engine.args"),
            DeValue::Boolean(_) => "write { values = [true, false] } to tune it, or fix it in engine.args".to_owned(),
            _ => "write { values = [...] } to tune it, or fix it in engine.args".to_owned(),
        };
        let label = format!("this is {}", reading::article(value.get_ref()));
        problems.push(Problem::new(&value.span(), format!("wrong type for `{path}`"), label, hint));
        return None;
    };
    let before = problems.len();
    let fields = reader::fields(&PARAMETER, &Place { path: &path, span: key.clone() }, table, problems);
    if problems.len() != before {
        return None;
    }
    let whole = value.span();
    let values = match fields.values("values") {
        Some(listed) => choices(name, listed, fields.span("values").unwrap_or(whole.clone())),
        None => range(&path, &fields, whole.clone()),
    };
    let values = match values {
        Ok(values) => values,
        Err(problem) => {
            problems.push(problem);
            return None;
        }
    };
    if let Some((odd, takes)) = values.iter().find_map(|value| Some((value, domains::refuses(name, value)?))) {
        let mut listed = fields.values("values").into_iter().flatten();
        let bound = if Some(odd) == values.last() && values.len() > 1 { "max" } else { "min" };
        let span = listed.find_map(|(value, span)| (value == odd).then(|| span.clone())).or_else(|| fields.span(bound));
        let message = format!("the engine cannot take `{name}` {odd}");
        let hint = format!("write {takes}");
        problems.push(Problem::new(&span.unwrap_or_else(|| value.span()), message, "not a value of this flag", hint));
        return None;
    }
    if values.iter().any(|value| matches!(value, Value::Text(text) if holds_secret(name, text))) {
        let message = format!("`{name}` has a value with a secret, and an answer tells the values that it chose");
        let hint = "fix it in engine.args, or give it to the engine in engine.env";
        problems.push(Problem::new(key, message, "cannot be tuned", hint));
        return None;
    }
    if let (Some(word), [Value::Bool(_), ..]) = (name.strip_prefix("no-"), values.as_slice()) {
        let hint = format!("tune `{word}` instead; false gives --no-{word}");
        problems.push(Problem::new(key, format!("`{name}` is a switch turned around"), "negated", hint));
        return None;
    }
    let default = match fields.value("default") {
        None => None,
        Some(default) => match values.iter().find(|value| value.same(default)) {
            Some(value) => Some(value.clone()),
            None => {
                let span = fields.span("default").unwrap_or_else(|| value.span());
                problems.push(stray_default(&path, default, &values, &span));
                return None;
            }
        },
    };
    let when = fields.get("when").map(|text| (text, fields.span("when").unwrap_or(whole)));
    Some((Parameter { name: name.to_owned(), values, default, when: None }, when))
}

/// The kind of a value, for lists that must hold one kind only.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Bool(_) => "true or false",
        Value::Int(_) => "an integer",
        Value::Real(_) => "a real number",
        Value::Text(_) => "a string",
    }
}

/// Checks listed values and sorts numbers.
fn choices(name: &str, listed: &[(Value, Range<usize>)], span: Range<usize>) -> Result<Vec<Value>, Problem> {
    let Some((first, _)) = listed.first() else {
        let hint = format!("list at least one value, or remove `{name}`");
        return Err(Problem::new(&span, format!("`parameters.{name}` has no values"), "empty", hint));
    };
    if listed.len() > MOST_VALUES {
        return Err(too_many(&format!("parameters.{name}"), &span, "list fewer values"));
    }
    if let Some((odd, at)) = listed.iter().find(|(value, _)| kind(value) != kind(first)) {
        let hint = match (first, odd) {
            (Value::Int(_), Value::Real(_)) => format!("write every value with a decimal point, such as {first}.0"),
            (Value::Real(_), Value::Int(i)) => format!("write {i}.0"),
            (Value::Text(_), other) => format!("put it in quotes: \"{other}\""),
            _ => format!("make every value {}, as the first is", kind(first)),
        };
        let message = format!("`parameters.{name}` mixes kinds of values");
        let label = format!("{}, but the first is {}", kind(odd), kind(first));
        return Err(Problem::new(at, message, label, hint));
    }
    let mut sorted: Vec<&(Value, Range<usize>)> = listed.iter().collect();
    // A stable sort keeps duplicates in the order of the file, so that the caret points at the later one.
    sorted.sort_by(|(a, _), (b, _)| order(a, b));
    if let Some(twins) = sorted.windows(2).find(|pair| pair[0].0.same(&pair[1].0)) {
        let message = format!("`parameters.{name}` lists {} twice", twins[1].0);
        return Err(Problem::new(&twins[1].1, message, "again here", "remove one of them"));
    }
    let numeric = first.number().is_some();
    let values = if numeric { sorted } else { listed.iter().collect() };
    Ok(values.into_iter().map(|(value, _)| value.clone()).collect())
}

fn order(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Text(a), Value::Text(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Int(a), Value::Int(b)) => a.cmp(b),
        _ => a.number().partial_cmp(&b.number()).unwrap_or(Ordering::Equal),
    }
}

fn too_many(path: &str, span: &Range<usize>, hint: &str) -> Problem {
    Problem::new(span, format!("`{path}` has more than {MOST_VALUES} values"), "too many values", hint)
}

/// Expands `min`, `max` and `step`.
fn range(path: &str, fields: &Fields, whole: Range<usize>) -> Result<Vec<Value>, Problem> {
    let at = |name: &str| fields.span(name).unwrap_or_else(|| whole.clone());
    let (Some(min), Some(max)) = (fields.value("min"), fields.value("max")) else {
        return Err(Problem::new(&whole, format!("`{path}` has no bounds"), "incomplete", "give `min` and `max`"));
    };
    match min.compare(max) {
        Some(Ordering::Less) => {}
        Some(Ordering::Equal) => {
            let hint = format!("write {{ values = [{min}] }} for a single value");
            return Err(Problem::new(&at("max"), format!("`{path}` has equal bounds"), "the same as `min`", hint));
        }
        _ => {
            let label = format!("{min} is above {max}");
            return Err(Problem::new(
                &at("min"),
                format!("`{path}` has its `min` above its `max`"),
                label,
                "swap `min` and `max`",
            ));
        }
    }
    let step = match fields.value("step") {
        Some(step) => step.clone(),
        None if matches!((min, max), (Value::Int(_), Value::Int(_))) => Value::Int(1),
        None => {
            let message = format!("`{path}` needs a `step`: its bounds are real numbers");
            return Err(Problem::new(&whole, message, "no `step`", "add a step, such as step = 0.01"));
        }
    };
    let step_at = fields.span("step").unwrap_or_else(|| whole.clone());
    if step.number().is_none_or(|step| step <= 0.0) {
        let message = format!("the `step` of `{path}` is not positive");
        return Err(Problem::new(&step_at, message, "not above 0", "write a step above 0"));
    }
    let expanded = match (min, max, &step) {
        (Value::Int(min), Value::Int(max), Value::Int(step)) => integers(*min, *max, *step),
        _ => {
            let real = |value: &Value| value.number().unwrap_or_default();
            reals(real(min), real(max), real(&step))
        }
    };
    match expanded {
        Expanded::Values(values) => Ok(values),
        Expanded::StepTooLarge => {
            let message = format!("the `step` of `{path}` is larger than its range");
            let hint = format!("make the step at most the distance from {min} to {max}");
            Err(Problem::new(&step_at, message, "too large", hint))
        }
        Expanded::TooMany => Err(too_many(path, &step_at, "choose a larger `step`, or list the `values`")),
    }
}

enum Expanded {
    Values(Vec<Value>),
    StepTooLarge,
    TooMany,
}

fn integers(min: i64, max: i64, step: i64) -> Expanded {
    // The distance of two 64-bit integers needs 65 bits.
    let steps = (i128::from(max) - i128::from(min)) / i128::from(step);
    if steps == 0 {
        Expanded::StepTooLarge
    } else if steps >= MOST_VALUES as i128 {
        Expanded::TooMany
    } else {
        // The count is below `MOST_VALUES`, and the last value is not above `max`.
        let value = |i: i128| (i128::from(min) + i * i128::from(step)) as i64;
        Expanded::Values((0..=steps).map(|i| Value::Int(value(i))).collect())
    }
}

fn reals(min: f64, max: f64, step: f64) -> Expanded {
    // Nine decimals of a step are forgiven, so that 0.88 to 0.97 by 0.01 ends at 0.97 in spite of binary fractions.
    let steps = ((max - min) / step + 1e-9).floor();
    if steps < 1.0 {
        return Expanded::StepTooLarge;
    }
    if steps.is_nan() || steps >= MOST_VALUES as f64 {
        return Expanded::TooMany;
    }
    // Values have no more decimals than the start and the step; rounding to them removes 0.30000000000000004.
    let decimals = decimals(min).max(decimals(step));
    let value = |i: u32| {
        let exact = min + f64::from(i) * step;
        // Adding zero turns -0.0 into 0.0.
        format!("{exact:.decimals$}").parse().unwrap_or(exact).min(max) + 0.0
    };
    let mut values: Vec<f64> = (0..=steps as u32).map(value).collect();
    // Steps below the resolution of the numbers repeat values.
    values.dedup();
    Expanded::Values(values.into_iter().map(Value::Real).collect())
}

/// Decimals of the shortest spelling that is the same number.
fn decimals(number: f64) -> usize {
    number.to_string().split_once('.').map_or(0, |(_, decimals)| decimals.len())
}

fn stray_default(path: &str, default: &Value, values: &[Value], span: &Range<usize>) -> Problem {
    let nearest: Vec<String> = match default.number() {
        Some(wanted) if values.iter().any(|value| value.number().is_some()) => {
            let below = values.iter().rfind(|value| value.number().is_some_and(|n| n < wanted));
            let above = values.iter().find(|value| value.number().is_some_and(|n| n > wanted));
            below.into_iter().chain(above).map(Value::to_string).collect()
        }
        _ => {
            let texts: Vec<String> = values.iter().map(Value::to_string).collect();
            match suggest::closest(&default.to_string(), texts.iter().map(String::as_str)) {
                Some(near) => vec![near.to_owned()],
                // Enough to choose from without filling the screen.
                None => texts.into_iter().take(5).collect(),
            }
        }
    };
    let hint = match nearest.as_slice() {
        [one] => format!("the nearest value is {one}"),
        many => format!("the nearest values are {}", many.join(", ")),
    };
    let message = format!("the `default` of `{path}` is not one of its values");
    Problem::new(span, message, "not among the values", hint)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn numbers(expanded: Expanded) -> Vec<f64> {
        let Expanded::Values(values) = expanded else { panic!("not expanded") };
        values.iter().map(|value| value.number().unwrap()).collect()
    }

    #[test]
    fn reals_are_expanded_without_the_noise_of_binary_fractions() {
        let expected = [0.88, 0.89, 0.9, 0.91, 0.92, 0.93, 0.94, 0.95, 0.96, 0.97];
        assert_eq!(numbers(reals(0.88, 0.97, 0.01)), expected);
        assert_eq!(numbers(reals(0.1, 0.5, 0.2)), [0.1, 0.3, 0.5]);
        assert_eq!(numbers(reals(-0.5, 1.0, 0.5)), [-0.5, 0.0, 0.5, 1.0]);
        assert_eq!(numbers(reals(1.0, 2.0, 0.4)), [1.0, 1.4, 1.8]);
    }

    #[test]
    fn integers_reach_the_ends_of_their_type() {
        assert_eq!(numbers(integers(1, 10, 4)), [1.0, 5.0, 9.0]);
        assert!(matches!(integers(i64::MIN, i64::MAX, 1), Expanded::TooMany));
        assert!(matches!(integers(0, 3, i64::MAX), Expanded::StepTooLarge));
        assert!(matches!(integers(i64::MIN, i64::MAX, i64::MAX), Expanded::Values(values) if values.len() == 3));
        assert!(matches!(integers(1, 10_000, 1), Expanded::Values(values) if values.len() == MOST_VALUES));
        assert!(matches!(integers(0, 10_000, 1), Expanded::TooMany));
    }

    proptest! {
        #[test]
        fn expanded_reals_ascend_within_their_bounds(
            min in -1e9..1e9_f64, width in 1e-6..1e9_f64, steps in 1..9000_u32,
        ) {
            let max = min + width;
            if let Expanded::Values(values) = reals(min, max, width / f64::from(steps)) {
                prop_assert!(values.windows(2).all(|pair| order(&pair[0], &pair[1]) == Ordering::Less));
                prop_assert!(values.iter().all(|v| v.number().is_some_and(|n| n >= min && n <= max)));
            }
        }
    }
}
