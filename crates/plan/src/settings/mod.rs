//! The space file, from text to a checked plan: one TOML file is the whole job.
//!
//! Every mistake is reported with file, line, caret and a remedy, several at once. This module reads text that it
//! is given. It opens no file and knows no flag of an engine beyond those that the tuner sets itself.

mod constraints;
mod declared;
mod domain;
mod domains;
mod engine;
mod engine_kind;
mod flags;
mod format;
mod lengths;
mod measure;
mod parameters;
mod plan;
mod reader;
mod reading;
mod schema;
mod search;
mod secrets;
mod slo;
mod suggest;
mod syntax;
mod workload;

use std::ops::Range;
use std::time::Duration;

use toml::de::{DeTable, DeValue};

use crate::problems;
pub use crate::problems::{Problem, Problems};
pub use crate::space::plain_name as flag_name;
pub use domain::Domain;
pub use domains::refuses;
pub use engine::{EnginePlan, GraphPlan, OUR_FLAGS, VISIBLE_GPUS, serves_for_others};
pub use engine_kind::EngineKind;
pub use flags::{UsedFlag, faults, program_fault};
pub use lengths::{LengthShape, Lengths};
pub use plan::{Limit, Metric, Plan, redact_plan};
pub use schema::schema;
pub use search::{Budget, ProbePlan, SearchPlan, StrategyKind};
pub use secrets::{REDACTED, Secrets, holds_secret, redact_variable, redact_words};
pub use suggest::closest;
pub use workload::{
    ArrivalProcess, ConversationsPlan, Endpoint, JsonlPlan, RandomPlan, SharegptPlan, TracePlan, WorkloadKind,
    WorkloadPlan,
};

use crate::space::Space;
use format::{Content, SECTIONS, Section};
use reader::{Fields, Place};
use search::{BUDGET, PROBE, SEARCH};

/// Reads the text of a space file; `name` is the file's name in errors.
///
/// # Errors
/// Every mistake that was found, each with its place and a hint.
pub fn parse(name: &str, text: &str) -> Result<Plan, Problems> {
    let mut problems = Vec::new();
    let plan = match syntax::read(text) {
        Ok(document) => read(text, &document, &mut problems),
        Err(mistakes) => {
            problems = mistakes;
            None
        }
    };
    match plan {
        Some(plan) if problems.is_empty() => Ok(plan),
        _ => Err(Problems::new(name, &secrets::masked(text), problems)),
    }
}

/// Reads no more of a space file than what is asked and promised: `[workload]`, and `[slo]` where it is there. Other sections may
/// be missing and are not looked at.
pub fn traffic(name: &str, text: &str) -> Result<(WorkloadPlan, Vec<Limit>), Problems> {
    let mut problems = Vec::new();
    let mut read = |document: &DeTable| {
        let found = Sections::of(text, document, |section| section.name == "workload", &mut problems);
        let slo = found.required("slo").map(|(place, table)| slo::read(&place, table, &mut problems));
        let workload =
            found.required("workload").and_then(|(place, table)| workload::read(&place, table, &mut problems));
        Some((workload?, slo.unwrap_or_else(|| Some(Vec::new()))?))
    };
    let traffic = match syntax::read(text) {
        Ok(document) => read(&document),
        Err(mistakes) => {
            problems = mistakes;
            None
        }
    };
    match traffic {
        Some(traffic) if problems.is_empty() => Ok(traffic),
        _ => Err(Problems::new(name, &secrets::masked(text), problems)),
    }
}

/// Reads a duration as the space file spells it, such as `45m` or `1h30m`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "a duration is a number with a unit (us, ms, s, m, h), such as 45m or 1h30m".to_owned();
    measure::duration(text).ok().filter(|d| !d.is_zero()).ok_or_else(wrong)
}

/// Reads the strategy of a command-line flag.
pub fn strategy(text: &str) -> Result<StrategyKind, String> {
    let names = || StrategyKind::ALL.map(StrategyKind::name).join(", ");
    StrategyKind::ALL
        .into_iter()
        .find(|kind| kind.name() == text)
        .ok_or_else(|| format!("a strategy is one of {}", names()))
}

/// Reads the precision of a command-line flag, such as `3%` or `0.03`, with the bounds of `[search]`.
pub fn precision(text: &str) -> Result<f64, String> {
    let share = measure::percent(text).or_else(|| text.parse().ok());
    share
        .filter(|share| (0.001..=0.5).contains(share))
        .ok_or_else(|| "a precision lies between 0.1% and 50%, such as 3%".into())
}

/// Reads the limits of a command-line flag, such as `ttft_p99=500ms,tpot_p99=50ms`, with the keys and durations of `[slo]`.
pub fn limits(text: &str) -> Result<Vec<Limit>, String> {
    slo::from_flag(text)
}

/// The limits of a flag whose keys may have several, such as `ttft_p95=200ms,400ms`: those of each key, ascending.
pub fn limit_lists(text: &str) -> Result<Vec<Vec<Limit>>, String> {
    slo::lists_from_flag(text)
}

/// Reads every section before the plan is put together, so that a mistake in one hides no mistake in another.
fn read(text: &str, document: &DeTable, problems: &mut Vec<Problem>) -> Option<Plan> {
    let found = Sections::of(text, document, |section| section.required, problems);
    let slo = found.required("slo").and_then(|(place, table)| slo::read(&place, table, problems));
    let engine = found.required("engine").map(|(place, table)| engine::read(&place, table, problems));
    let workload = found.required("workload").and_then(|(place, table)| workload::read(&place, table, problems));
    let parameters = found.required("parameters").map(|(place, table)| parameters::read(&place, table, problems));
    let search_fields = found.fields("search", &SEARCH, problems);
    let probe = found.fields("probe", &PROBE, problems);
    let budget = found.fields("budget", &BUDGET, problems);

    if let (Some(fields), Some(parameters)) = (&engine, &parameters) {
        engine::check_fixed_flags(fields, &parameters.names, problems);
        let tuned: Vec<_> = parameters.names.iter().zip(&parameters.spans).collect();
        let variables = variables(&found);
        engine::check_dialect(fields, &variables, &tuned, &probe, problems);
        engine::check_graph(fields, problems);
        engine::check_variables(fields, &variables, &tuned, problems);
    }
    let space = parameters.map(|parameters| space(parameters, &search_fields, problems));
    Some(Plan {
        slo: slo?,
        engine: EnginePlan::read(&engine?)?,
        workload: workload?,
        space: space?,
        probe: ProbePlan::read(&probe)?,
        search: SearchPlan::read(&search_fields)?,
        budget: Budget::read(&budget)?,
    })
}

/// The variables of `engine.env`, with their places.
fn variables(found: &Sections) -> Vec<(String, Range<usize>)> {
    let table = found.required("engine").and_then(|(_, table)| table.get("env")?.get_ref().as_table());
    let named = |table| reader::in_order(table).into_iter().map(|(name, span, _)| (name.to_owned(), span)).collect();
    table.map_or_else(Vec::new, named)
}

fn space(parameters: parameters::Parameters, search: &Fields, problems: &mut Vec<Problem>) -> Space {
    let texts = search.texts("constraints").unwrap_or_default();
    let constraints = constraints::read(texts, &parameters, problems);
    // A refused parameter would make its constraints look impossible.
    if parameters.sound.len() == parameters.names.len()
        && !parameters.nameless
        && let Some(whole) = search.span("constraints")
    {
        constraints::check(&parameters.sound, &constraints, &whole, problems);
    }
    Space { parameters: parameters.sound, constraints: constraints.into_iter().map(|(c, _)| c).collect() }
}

struct Sections<'d, 't> {
    tables: Vec<(&'static str, Range<usize>, &'d DeTable<'t>)>,
    nothing: DeTable<'t>,
}

impl<'d, 't> Sections<'d, 't> {
    /// Finds the sections, and reports unknown ones, those that are needed and missing, and those that are no tables.
    fn of(
        text: &str,
        document: &'d DeTable<'t>,
        needed: impl Fn(&Section) -> bool,
        problems: &mut Vec<Problem>,
    ) -> Self {
        let mut tables = Vec::new();
        let mut slips = Vec::new();
        for (name, span, value) in reader::in_order(document) {
            let Some(section) = SECTIONS.iter().find(|section| section.name == name) else {
                slips.extend(suggest::closest(name, SECTIONS.iter().map(|section| section.name)));
                problems.push(unknown_section(name, &span, value.get_ref()));
                continue;
            };
            match value.get_ref() {
                DeValue::Table(table) => tables.push((section.name, span, table)),
                other => {
                    let hint = format!("write `[{name}]` on a line of its own, and its keys below");
                    let label = format!("this is {}", reading::article(other));
                    problems.push(Problem::new(&value.span(), format!("`{name}` is no section"), label, hint));
                }
            }
        }
        for section in SECTIONS.iter().filter(|section| needed(section) && !document.contains_key(section.name)) {
            // A misspelt section is one mistake, not two.
            if !slips.contains(&section.name) {
                problems.push(missing_section(section, text));
            }
        }
        Self { tables, nothing: DeTable::new() }
    }

    fn required(&self, name: &'static str) -> Option<(Place<'static>, &DeTable<'t>)> {
        let (_, span, table) = self.tables.iter().find(|(other, ..)| *other == name)?;
        Some((Place { path: name, span: span.clone() }, table))
    }

    /// The values of a section that may be absent.
    fn fields(&self, name: &'static str, table: &'static format::Table, problems: &mut Vec<Problem>) -> Fields {
        let absent = || (Place { path: name, span: 0..0 }, &self.nothing);
        let (place, found) = self.required(name).unwrap_or_else(absent);
        reader::fields(table, &place, found, problems)
    }
}

fn unknown_section(name: &str, span: &Range<usize>, value: &DeValue) -> Problem {
    let sections = || SECTIONS.iter().map(|section| section.name);
    let table = matches!(value, DeValue::Table(_));
    let what = if table { "section" } else { "key" };
    let hint = match (suggest::closest(name, sections()), suggest::home(name)) {
        (Some(near), _) if table => format!("did you mean `[{near}]`?"),
        (_, Some(home)) => format!("`{name}` belongs to `[{home}]`"),
        _ => format!("the sections are {}", problems::list(sections(), "and")),
    };
    Problem::new(span, format!("unknown {what} `{name}`"), format!("unknown {what}"), hint)
}

/// A missing section is missed at the end of the file, which is where it would be added.
fn missing_section(section: &Section, text: &str) -> Problem {
    let first = match &section.content {
        Content::Limits => "ttft_p99 = \"1s\"".to_owned(),
        Content::Parameters => "max-num-seqs = { values = [32, 64, 128] }".to_owned(),
        Content::Keys(table) => {
            let first = table.keys().find(|key| matches!(key.need, format::Need::Required));
            first.map(|key| format!("{} = {}", key.name, key.kind.example())).unwrap_or_default()
        }
    };
    let end = text.trim_end().len();
    let message = format!("the section `[{}]` is missing", section.name);
    Problem::new(&(end..end), message, "the file ends here", format!("add [{}] with {first}", section.name))
}

#[cfg(test)]
mod tests;
