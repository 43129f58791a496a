//! `search.constraints`: comparisons between parameters. The baseline and at least one other point must keep all of them.

use std::ops::Range;

use super::parameters::Parameters;
use super::suggest;
use crate::problems::{self, Problem};
use crate::space::{Comparison, Constraint, Parameter, Point, Space, Value};

/// The most evaluations of constraints, each well below a microsecond. A larger space is accepted unchecked.
const CHECKS: u32 = 500_000;

const FORM: &str = "write it as \"max-num-batched-tokens >= 4 * max-num-seqs\"";

/// Reads and checks every constraint; the sound ones with their places.
pub fn read(
    texts: &[(String, Range<usize>)],
    parameters: &Parameters,
    problems: &mut Vec<Problem>,
) -> Vec<(Constraint, Range<usize>)> {
    let mut sound = Vec::new();
    for (text, span) in texts {
        match one(text, span, parameters) {
            Ok(constraint) => sound.push((constraint, span.clone())),
            Err(problem) => problems.push(problem),
        }
    }
    sound
}

/// Reads a constraint, or a condition, between parameters that are known.
pub fn one(text: &str, span: &Range<usize>, parameters: &Parameters) -> Result<Constraint, Problem> {
    let constraint = Constraint::parse(text)
        .map_err(|reason| Problem::new(span, format!("`{text}` is no constraint"), reason, FORM))?
        .with_words(&parameters.sound);
    if constraint.alternatives().any(|one| !one.left.factor.is_finite() || !one.right.factor.is_finite()) {
        let hint = "write finite numbers";
        return Err(Problem::new(span, format!("`{text}` is no constraint"), "not a finite number", hint));
    }
    if constraint.alternatives().any(|one| one.left.parameter.is_none() && one.right.parameter.is_none()) {
        let hint = format!("name a parameter; {FORM}");
        return Err(Problem::new(span, format!("`{text}` names no parameter"), "two numbers", hint));
    }
    for name in constraint.names() {
        let known = || parameters.names.iter().map(String::as_str);
        // A name that could not be read may well be this one; one mistake is reported once.
        if !parameters.nameless && !known().any(|other| other == name) {
            let hint = match suggest::closest(name, known()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("the parameters are {}", problems::list(known(), "and")),
            };
            let message = format!("`{name}` is not one of the parameters");
            return Err(Problem::new(span, message, "unknown parameter", hint));
        }
    }
    for one in constraint.alternatives() {
        let by_word = one.left.word.is_some() || one.right.word.is_some();
        if by_word {
            if !matches!(one.comparison, Comparison::Equal | Comparison::NotEqual) {
                let message = format!("`{one}` asks whether a word is larger");
                return Err(Problem::new(span, message, "a word", "compare words with == or !="));
            }
            continue;
        }
        for name in [&one.left, &one.right].into_iter().filter_map(|term| term.parameter.as_ref()) {
            let words = |parameter: &&Parameter| parameter.name == *name && numbers(parameter).next().is_none();
            if parameters.sound.iter().find(words).is_some() {
                let message = format!("`{name}` has no numbers to compare");
                let hint =
                    "constrain parameters whose values are numbers, or compare with one of its values by == or !=";
                return Err(Problem::new(span, message, "not a number", hint));
            }
        }
    }
    Ok(constraint)
}

fn numbers(parameter: &Parameter) -> impl Iterator<Item = &Value> {
    parameter.values.iter().filter(|value| value.number().is_some())
}

/// Reports constraints that forbid the baseline or leave no point at all. `whole` is the place of the list.
pub fn check(
    parameters: &[Parameter],
    constraints: &[(Constraint, Range<usize>)],
    whole: &Range<usize>,
    problems: &mut Vec<Problem>,
) {
    let before = problems.len();
    let space = Space { parameters: parameters.to_vec(), constraints: Vec::new() };
    let baseline = space.baseline();
    for (constraint, span) in constraints {
        if !possible(parameters, &[constraint]) {
            let hint = "relax it, or widen the values of the parameters that it names";
            problems.push(Problem::new(span, format!("`{constraint}` excludes every point"), "never true", hint));
        } else if !constraint.holds(&baseline) {
            let named = |name: &str| baseline.get(name).map(|value| format!("{name} = {value}"));
            let defaults: Vec<String> = constraint.names().filter_map(named).collect();
            let message = format!("`{constraint}` excludes the baseline of the given defaults");
            let label = format!("the defaults are {}", defaults.join(", "));
            problems.push(Problem::new(span, message, label, "relax it, or change one of these defaults"));
        }
    }
    let all: Vec<&Constraint> = constraints.iter().map(|(constraint, _)| constraint).collect();
    if problems.len() == before && !possible(parameters, &all) {
        let hint = "relax or remove one of them";
        problems.push(Problem::new(whole, "the constraints together exclude every point", "contradictory", hint));
    }
}

/// Whether some point keeps all constraints, as far as a bounded number of checks can tell; in doubt, it is possible.
///
/// Values that no value of the other side can satisfy are removed until nothing changes. That alone decides every
/// system of inequalities with positive factors; what remains of a small space is then tried point by point.
pub fn possible(parameters: &[Parameter], constraints: &[&Constraint]) -> bool {
    let mut checks = 0;
    let named = |parameter: &Parameter, by: &Constraint| by.names().any(|name| name == parameter.name);
    let conditions = || parameters.iter().filter_map(|p| p.when.as_ref());
    // Of comparisons that are enough, and of parameters that may not exist, only whole points tell.
    let is_plain = |c: &Constraint| c.or.is_empty() && !parameters.iter().any(|p| p.when.is_some() && named(p, c));
    let mut domains: Vec<(&str, Vec<Value>)> = parameters
        .iter()
        .filter(|p| constraints.iter().copied().chain(conditions()).any(|c| named(p, c)))
        .map(|parameter| (parameter.name.as_str(), parameter.values.clone()))
        .collect();
    loop {
        let mut changed = false;
        for constraint in constraints.iter().filter(|c| is_plain(c)) {
            for index in 0..domains.len() {
                let (name, values) = &domains[index];
                if !constraint.names().any(|other| other == *name) {
                    continue;
                }
                let partner =
                    domains.iter().find(|(other, _)| other != name && constraint.names().any(|n| n == *other));
                let kept: Vec<Value> =
                    values.iter().filter(|v| supported(constraint, name, v, partner, &mut checks)).cloned().collect();
                if checks > CHECKS {
                    return true;
                }
                if kept.is_empty() {
                    return false;
                }
                changed |= kept.len() != values.len();
                domains[index].1 = kept;
            }
        }
        if !changed {
            return any_point(parameters, &domains, constraints, checks);
        }
    }
}

fn supported(
    constraint: &Constraint,
    name: &str,
    value: &Value,
    partner: Option<&(&str, Vec<Value>)>,
    checks: &mut u32,
) -> bool {
    let point = Point::default().with(name, value.clone());
    let Some((other, choices)) = partner else {
        *checks += 1;
        return constraint.holds(&point);
    };
    // An inequality is easiest to keep at one end of the other side, an inequation at one of two different values.
    let ends = [choices.first(), choices.last()].into_iter().flatten();
    let mut keeps = |choice: &Value| {
        *checks += 1;
        *checks > CHECKS || constraint.holds(&point.with(other, choice.clone()))
    };
    match constraint.comparison {
        Comparison::Equal => choices.iter().any(keeps),
        _ => ends.into_iter().any(&mut keeps),
    }
}

/// Tries every point of a small space; `true` where a point keeps all constraints or the space is too large to try.
fn any_point(
    parameters: &[Parameter],
    domains: &[(&str, Vec<Value>)],
    constraints: &[&Constraint],
    checks: u32,
) -> bool {
    let space = Space { parameters: parameters.to_vec(), constraints: Vec::new() };
    let size = domains.iter().try_fold(1_u32, |size, (_, values)| size.checked_mul(u32::try_from(values.len()).ok()?));
    let Some(size) = size.filter(|size| *size <= CHECKS.saturating_sub(checks)) else { return true };
    (0..size).any(|number| {
        let mut rest = number as usize;
        let mut point = Point::default();
        for (name, values) in domains {
            point.0.insert((*name).to_owned(), values[rest % values.len()].clone());
            rest /= values.len();
        }
        let point = space.settled(point);
        constraints.iter().all(|constraint| constraint.holds(&point))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parameter(name: &str, values: impl IntoIterator<Item = i64>) -> Parameter {
        Parameter { name: name.into(), values: values.into_iter().map(Value::Int).collect(), default: None, when: None }
    }

    fn possible_with(parameters: &[Parameter], texts: &[&str]) -> bool {
        let constraints: Vec<Constraint> = texts.iter().map(|text| Constraint::parse(text).unwrap()).collect();
        possible(parameters, &constraints.iter().collect::<Vec<_>>())
    }

    #[test]
    fn contradictions_are_found_even_in_large_spaces() {
        let large = [parameter("a", 0..10_000), parameter("b", 0..10_000), parameter("c", 0..10_000)];
        assert!(possible_with(&large, &["a > b", "b > c"]));
        assert!(!possible_with(&large, &["a > 2 * b", "b > 6000"]));
        assert!(!possible_with(&large, &["a > 10000"]));
        assert!(possible_with(&large, &["a == b"]));
        let small = [parameter("a", 0..2), parameter("b", 0..2), parameter("c", 0..2)];
        assert!(!possible_with(&small, &["a != b", "b != c", "a != c"]), "needs every point to be tried");
        assert!(!possible_with(&small, &["a < a"]));
    }

    proptest! {
        #[test]
        fn agrees_with_trying_every_point(
            sides in proptest::collection::vec((0..3_usize, -2..3_i64, 0..6_usize, 0..3_usize), 1..4),
        ) {
            let names = ["a", "b", "c"];
            let signs = ["<", "<=", "==", "!=", ">=", ">"];
            let texts: Vec<String> =
                sides.iter().map(|(l, f, s, r)| format!("{f} * {} {} {}", names[*l], signs[*s], names[*r])).collect();
            let space = [parameter("a", [1, 2, 5]), parameter("b", [0, 2]), parameter("c", [-1, 4])];
            let constraints: Vec<Constraint> = texts.iter().map(|text| Constraint::parse(text).unwrap()).collect();
            let mut brute = false;
            for a in [1, 2, 5] { for b in [0, 2] { for c in [-1, 4] {
                let point = Point::default()
                    .with("a", Value::Int(a)).with("b", Value::Int(b)).with("c", Value::Int(c));
                brute |= constraints.iter().all(|constraint| constraint.holds(&point));
            } } }
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            prop_assert_eq!(possible_with(&space, &texts), brute);
        }
    }
}
