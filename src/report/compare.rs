//! Two outcomes side by side, and what differs in their set-ups.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value as Json;

use super::bench::text::wrapped;
use super::outcome::{Answer, Outcome};
use super::summary::{Row, aligned, defaults_win, percent};
use super::word;
use crate::journal::Header;

/// An outcome and the name that heads its column.
pub struct Compared {
    pub name: String,
    pub outcome: Outcome,
    /// What its journal begins with, where there is one.
    pub header: Option<Header>,
}

type AnswerOf = fn(&Outcome) -> Option<&Answer>;

/// The most characters of a name at the head of a column.
const NAME: usize = 24;

/// Both answers as a table, then each thing that differs in what was run.
pub fn compare(a: &Compared, b: &Compared) -> String {
    let both = [a, b];
    let mut rows: Vec<Row> = vec![(String::new(), both.map(|one| Some(short(&one.name))).to_vec())];
    let mut row = |label: &str, cell: &dyn Fn(&Outcome) -> Option<String>| {
        let cells = both.map(|one| cell(&one.outcome)).to_vec();
        if cells.iter().any(Option::is_some) {
            rows.push((label.to_owned(), cells));
        }
    };
    row("status", &|o| Some(word(o.status)));
    let of_defaults: AnswerOf = |o| o.baseline.as_ref();
    let of_best: AnswerOf = |o| o.best.as_ref();
    for (name, of) in [("defaults", of_defaults), ("best", of_best)] {
        row(&format!("{name}, certified"), &|o| of(o)?.certified_rate.map(|rate| rate.to_string()));
        row("  confidence", &|o| of(o).and_then(|a| a.certified_rate.and(a.confidence)).map(percent));
        row("  limit in rate", &|o| {
            let answer = of(o)?;
            Some(format!("{} +-{:.1} %", answer.limit?, answer.limit_error? * 100.0))
        });
        row("  breaks first", &|o| of(o)?.binding.clone());
    }
    let gains = |o: &Outcome| (!defaults_win(o)).then_some((o.gain, o.gain_interval));
    row("gain", &|o| Some(format!("{:+.0} %", gains(o)?.0? * 100.0)));
    row("  90 % interval", &|o| {
        let [from, to] = gains(o)?.1?.map(|share| share * 100.0);
        Some(format!("{from:+.0} to {to:+.0} %"))
    });
    let best = |one: &Compared| one.outcome.best.as_ref().map(|best| best.parameters.0.clone()).unwrap_or_default();
    let names: BTreeSet<String> = both.iter().flat_map(|one| best(one).into_keys()).collect();
    for name in &names {
        row(name, &|o| o.best.as_ref()?.parameters.get(name).map(ToString::to_string));
    }
    row("engine time", &|o| Some(o.cost.engine_seconds.to_string()));
    row("launches", &|o| Some(o.cost.launches.to_string()));
    row("probes", &|o| Some(o.cost.probes.to_string()));
    let mut text = format!("\n{}\n", aligned(&rows));
    let plans = both.iter().all(|one| one.header.is_some());
    let setups = both.map(|one| setup(one, plans));
    text += &wrapped("", 0, &said(both, &setups, plans));
    text + "\n" + &differences(both, &setups)
}

/// What was run, by name.
type Setup = BTreeMap<String, String>;

/// A sentence that names the better outcome, where both had the same task. `plans` says whether the plans of both are known.
fn said([a, b]: [&Compared; 2], [here, there]: &[Setup; 2], plans: bool) -> String {
    let rate = |one: &Compared| one.outcome.best.as_ref()?.certified_rate;
    let (Some(first), Some(second)) = (rate(a), rate(b)) else {
        return "Not both are certified, so the rates are not compared.".to_owned();
    };
    let job = |key: &&String| ["model", "limit", "plan.slo", "plan.workload"].iter().any(|part| key.starts_with(part));
    if here.keys().chain(there.keys()).filter(job).any(|key| here.get(key) != there.get(key)) {
        return "Model, promises or traffic differ, so the rates are not compared.".to_owned();
    }
    let share = (second.0 / first.0 - 1.0) * 100.0;
    let how = if share < 0.0 { "less" } else { "more" };
    let traffic = if plans { "" } else { ", if both had the same traffic" };
    format!("{} serves {:.0} % {how} than {}, by the certified rates{traffic}.", b.name, share.abs(), a.name)
}

/// The end of a name that is too long says most of it.
fn short(name: &str) -> String {
    let count = name.chars().count();
    if count <= NAME {
        name.to_owned()
    } else {
        format!("…{}", name.chars().skip(count - NAME + 1).collect::<String>())
    }
}

fn differences(both: [&Compared; 2], [first, second]: &[Setup; 2]) -> String {
    let keys: BTreeSet<&String> = first.keys().chain(second.keys()).collect();
    let shown = |value: Option<&String>| value.cloned().unwrap_or_else(|| "nothing".to_owned());
    let differing = keys.into_iter().filter(|key| first.get(*key) != second.get(*key));
    let lines: String =
        differing.map(|key| format!("  {key}: {} | {}\n", shown(first.get(key)), shown(second.get(key)))).collect();
    let unknown: Vec<&str> = both.into_iter().filter(|one| one.header.is_none()).map(|o| o.name.as_str()).collect();
    let unknown = match unknown.as_slice() {
        [] => String::new(),
        names => {
            wrapped("", 0, &format!("The plans are not compared: no journal lies beside {}.", names.join(" and ")))
        }
    };
    let head = if lines.is_empty() { "The set-ups do not differ.\n" } else { "What differs in the set-up:\n" };
    format!("{head}{lines}{unknown}")
}

/// The set-up of a run, as names and values. Without `plans` it has only what the outcome tells.
fn setup(one: &Compared, plans: bool) -> Setup {
    let outcome = &one.outcome;
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let mut all = BTreeMap::from([
        ("simulated".to_owned(), outcome.simulated.to_string()),
        ("model".to_owned(), text(&outcome.model)),
        ("engine version".to_owned(), text(&outcome.engine_version)),
        ("GPUs".to_owned(), outcome.gpus.join(", ")),
        ("engines at a time".to_owned(), outcome.workers.map_or(String::new(), |n| n.to_string())),
        ("seed".to_owned(), outcome.seed.to_string()),
    ]);
    match one.header.as_ref().filter(|_| plans) {
        Some(header) => {
            all.insert("autotune".to_owned(), header.autotune.clone());
            all.insert(
                "workload's file".to_owned(),
                header.workload_digest.map_or(String::new(), |d| format!("{d:016x}")),
            );
            flatten(&serde_json::to_value(&header.plan).unwrap_or_default(), "plan", &mut all);
        }
        None => {
            all.extend(outcome.limits.iter().map(|(key, limit)| (format!("limit of {key}"), limit.to_string())));
            all.insert("fixed arguments".to_owned(), outcome.fixed_arguments.join(" "));
        }
    }
    all.retain(|_, value| !value.is_empty());
    all
}

/// Lists of words are one value: what a line of a space file says.
fn flatten(value: &Json, at: &str, into: &mut BTreeMap<String, String>) {
    match value {
        Json::Object(map) => map.iter().for_each(|(key, value)| flatten(value, &format!("{at}.{key}"), into)),
        Json::Array(items) if items.iter().any(Json::is_object) => {
            for (i, item) in items.iter().enumerate() {
                let name = item["name"].as_str().map_or_else(|| i.to_string(), str::to_owned);
                flatten(item, &format!("{at}.{name}"), into);
            }
        }
        value => {
            into.insert(at.to_owned(), value.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::read;
    use crate::report::outcome;

    fn stored(name: &str) -> Compared {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("results").join(name);
        let journal = read(&std::fs::read(folder.join("journal.jsonl")).unwrap()).unwrap();
        Compared { name: name.to_owned(), outcome: outcome(&journal), header: journal.header().cloned() }
    }

    #[test]
    fn two_answers_stand_side_by_side_with_what_was_run_otherwise() {
        let (small, large) = (stored("h200-8b"), stored("h200-70b"));
        let text = compare(&small, &large);
        for part in [
            "h200-8b",
            "14.88 req/s",
            "1.416 req/s",
            "What differs in the set-up",
            "  plan.budget.gpu_time.secs: 720 | 1200",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        assert!(text.contains("plan.slo.") && !text.contains("plan.engine.kind"), "{text}");
        assert!(text.contains("Model, promises or traffic differ"), "{text}");
        let same = compare(&small, &stored("h200-8b"));
        assert!(same.contains("The set-ups do not differ.") && same.contains("serves 0 % more"), "{same}");
        let alone = compare(&small, &Compared { header: None, ..large });
        assert!(alone.contains("no journal lies beside h200-70b"), "{alone}");
        assert!(!alone.contains("plan.") && alone.contains("Model, promises or traffic differ"), "{alone}");
        let copy = compare(&small, &Compared { header: None, ..stored("h200-8b") });
        let words = copy.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("if both had the same traffic") && words.contains("do not differ"), "{copy}");
    }
}
