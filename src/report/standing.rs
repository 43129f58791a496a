//! Where a run stands, as its journal tells: for whoever did not start it.

use super::bench::text::entry;
use super::data::{Probe, ReportData, Trial, Whose};
use super::summary::{columns, headline};
use crate::journal::{Journal, Record};
use crate::problems::join;
use crate::units::Seconds;

/// The run in some lines; `now` is the time since the Unix epoch, `at_work` whether a process works on it.
pub fn standing(journal: &Journal, folder: &std::path::Path, now: f64, at_work: bool) -> String {
    let data = ReportData::new(journal, folder);
    let last = journal.entries.last().map_or(now, |entry| entry.at);
    let ago = Seconds((now - last).max(0.0));
    let mut rows: Vec<(&str, String)> = Vec::new();
    if journal.conclusion().is_some() {
        rows.push(("ended", format!("{ago} ago: {}", headline(&data.outcome))));
    } else if at_work {
        rows.push(("now", format!("{}, for {ago}", doing(journal, &data))));
    } else {
        rows.push(("stopped", format!("{ago} ago, before its end; no process works on it, and --resume continues it")));
    }
    if journal.conclusion().is_some() {
        // What the search saw kept would be another rate for the same thing.
        let certified = columns(&data.outcome).into_iter();
        let certified = certified.filter_map(|(name, answer)| Some(format!("{name} {}", answer.certified_rate?)));
        let certified = join(certified, "and");
        rows.extend((!certified.is_empty()).then_some(("certified", certified)));
    } else {
        let said = |(trial, probe): (&Trial<'_>, &Probe<'_>)| {
            format!("trial {} at {}: {}", trial.number, probe.ask.rate, probe.verdict.because)
        };
        rows.extend(data.at_rates().last().map(|last| ("last probe", said(last))));
        rows.extend(best_so_far(&data).map(|says| ("best so far", says)));
    }
    let cost = journal.cost();
    let of = data.budget.map_or(String::new(), |budget| {
        format!(", {:.0} % of the budget of {budget}", 100.0 * cost.engine_seconds.0 / budget.0.max(1e-9))
    });
    rows.push(("spent", format!("{cost}{of}")));
    rows.iter().map(|(label, says)| entry(label, 12, says)).collect()
}

/// The highest rate that held before there is an answer, and with which point.
pub(super) fn best_so_far(data: &ReportData<'_>) -> Option<String> {
    let brackets = data.brackets();
    let kept = |whose: Option<Whose>| {
        let of = brackets.iter().filter(|(trial, _)| whose.is_none_or(|whose| trial.whose == whose));
        of.filter_map(|(trial, bracket)| Some((trial, bracket.kept?))).max_by(|a, b| a.1.0.total_cmp(&b.1.0))
    };
    let (trial, rate) = kept(None)?;
    let defaults = match kept(Some(Whose::Defaults)) {
        Some(_) if trial.whose == Whose::Defaults => ", by the defaults".to_owned(),
        Some((_, rate)) => format!(" with {}; the defaults held {rate}", trial.point),
        None => {
            let probed = brackets.iter().any(|(trial, _)| trial.whose == Whose::Defaults);
            let defaults = if probed { "no rate of the defaults held" } else { "the defaults are not measured" };
            format!(" with {}; {defaults}", trial.point)
        }
    };
    Some(format!("{rate} held{defaults}"))
}

/// What the records say is under way: a probe has one once it has ended.
fn doing(journal: &Journal, data: &ReportData<'_>) -> String {
    let steps = journal.entries.iter().rev().map(|entry| &entry.record);
    let mut steps = steps.filter(|record| !matches!(record, Record::Words(_) | Record::Fitted { .. }));
    let of = |number: &u32| {
        let trial = data.trials.iter().find(|trial| trial.number == *number);
        trial.map_or(String::new(), |trial| format!("{} (trial {number}): {}, ", trial.purpose.name(), trial.point))
    };
    match steps.next() {
        Some(Record::Launching { trial, .. } | Record::Spawned { trial, .. }) => format!("{}launching", of(trial)),
        Some(Record::Ready { trial, .. }) => format!("{}probing", of(trial)),
        Some(Record::Probed { trial, ask, .. }) if ask.is_burst() => format!("{}behind a burst", of(trial)),
        Some(Record::Probed { trial, .. }) => format!("{}probing again or choosing the next point", of(trial)),
        Some(Record::Stopped { .. } | Record::NotReady { .. } | Record::Broken { .. }) => {
            "between two engines".to_owned()
        }
        _ => "starting".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::journal::read;

    #[test]
    fn a_run_tells_where_it_stands_at_each_of_its_records() {
        let whole = read(include_bytes!("../../results/h200-8b/journal.jsonl")).unwrap();
        let said = |records: usize, at_work: bool| {
            let journal = Journal { entries: whole.entries[..records].to_vec(), ..Journal::default() };
            let now = journal.entries.last().map_or(0.0, |entry| entry.at) + 12.0;
            standing(&journal, Path::new("run"), now, at_work)
        };
        let all = whole.entries.len();
        assert!(
            said(all, false).contains("ended       12.0 s ago: The defaults are the best point"),
            "{}",
            said(all, false)
        );
        assert!(said(all, false).contains("certified   defaults 14.88 req/s\n"), "{}", said(all, false));
        assert!(!said(all, false).contains("so far"), "{}", said(all, false));
        let words = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let cut = words(said(all - 1, false));
        for part in
            ["--resume continues it", "best so far 14.41 req/s held, by the defaults", "69 % of the budget of 12 min"]
        {
            assert!(cut.contains(part), "{part} is missing in {cut}");
        }
        for records in 1..all {
            let text = said(records, true);
            assert!(text.starts_with("now ") && text.contains("spent"), "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        }
        assert!(words(said(2, true)).contains("launching, for 12.0 s"), "{}", said(2, true));
    }
}
