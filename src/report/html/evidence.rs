//! (f) Why believe it: what was asked and what arrived, what the cache held, our own client, who judged, and what was left out.

use super::{list, missing, paragraph, promise, table};
use crate::report::data::{Probe, ReportData, Trial};
use crate::report::summary::{left_out, percent};
use crate::verdict::paired::Judge;
use crate::verdict::{LimitResult, Outcome};

pub(super) fn section(data: &ReportData<'_>) -> String {
    let proofs: Vec<(&Trial<'_>, &Probe<'_>)> = data.at_rates().filter(|(t, _)| t.purpose.certifies()).collect();
    let mut html = String::new();
    if proofs.is_empty() {
        let rates = if data.at_rates().next().is_some() { " All rates above are estimates of the search." } else { "" };
        html += &missing(&format!("Nothing was certified.{rates}"));
    } else {
        html += &paragraph(
            "A certified rate weighs all probes of its point together. It can hold where one of them alone is too near to say.",
        );
    }
    for (trial, probe) in &proofs {
        html += &format!(
            "<h3>{}</h3>{}",
            super::escaped(&format!(
                "{} at {}: {}",
                trial.whose.words(),
                probe.ask.rate,
                judged(probe.verdict.outcome)
            )),
            list(&facts(data, trial, probe))
        );
    }
    let failures: Vec<String> = data
        .trials
        .iter()
        .flat_map(|t| {
            t.failures.iter().map(move |(what, f)| format!("trial {}, {what}: {}", t.number, f.diagnosis.says))
        })
        .collect();
    html += &titled("Starts and probes that failed", &failures, "None.");
    html += &titled("Left out", &left_out(&data.outcome), "Nothing.");
    html += "<h3>Every probe at a rate</h3>";
    html += &every(data);
    html
}

fn titled(title: &str, items: &[String], none: &str) -> String {
    let items = if items.is_empty() { paragraph(none) } else { list(items) };
    format!("<h3>{title}</h3>{items}")
}

fn judged(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Pass => "held",
        Outcome::Fail => "did not hold",
        Outcome::Unresolved => "too near to say",
        Outcome::Void => "void",
    }
}

fn share(share: Option<f64>) -> String {
    share.map_or_else(|| "not told".to_owned(), |share| format!("{:.0} %", share * 100.0))
}

fn facts(data: &ReportData<'_>, trial: &Trial<'_>, probe: &Probe<'_>) -> Vec<String> {
    let (verdict, client, cache) = (probe.verdict, probe.client, probe.cache);
    if verdict.outcome == Outcome::Void {
        return vec![format!("It says nothing of the engine: {}.", verdict.because)];
    }
    let off = (verdict.offered.0 / probe.ask.rate.0 - 1.0) * 100.0;
    let engine = if trial.altered { "on an engine that ran already" } else { "on an engine launched for it" };
    let errors = verdict.errors.iter().map(|(class, n)| format!("{n} {class}")).collect::<Vec<_>>().join(", ");
    let late =
        client.backlog_p99.map_or_else(|| "reads: not told".to_owned(), |late| format!("reads waited {late} (p99)"));
    let sure = match verdict.because.contains("% sure") {
        true => String::new(),
        false => format!(" Confidence that every promise holds: {}.", percent(verdict.confidence)),
    };
    let mut facts = vec![
        format!("Verdict: {}.{sure}", verdict.because),
        format!(
            "Arrivals: {} asked, {} arrived ({off:+.1} %), {} requests count.",
            probe.ask.rate, verdict.offered, verdict.counted
        ),
        format!(
            "Answers: {}.",
            if errors.is_empty() { "every one is whole".to_owned() } else { format!("not whole: {errors}") }
        ),
        format!("Engine: trial {}, {engine}.", trial.number),
        format!(
            "Prefix sharing: {} of the prompt tokens meant, {} served.",
            share(cache.expected_share),
            share(cache.measured_share)
        ),
    ];
    // The file of requests is read only where there is a warning to explain.
    let warning = cache.warning(&[]).and_then(|_| cache.warning(&data.requests(probe).unwrap_or_default()));
    facts.extend(warning.iter().map(|warning| format!("Warning: {warning}.")));
    facts.push(format!("Our own client: sends lagged {} (p99); {late}.", client.lag_p99));
    facts.extend(verdict.limits.iter().map(judge));
    facts
}

/// Who decided a promise, and why.
fn judge(limit: &LimitResult) -> String {
    let key = promise(&limit.key);
    match &limit.paired {
        Some(p) if p.judge == Judge::Paired => {
            let (low, high) = p.interval(0.9);
            format!(
                "{key}, judged by the paired estimate: {} in a long run (90 %: {low} to {high}) of {}; the twin explains {:.0} % of the variance.",
                p.estimate,
                p.at_most,
                p.explained * 100.0
            )
        }
        Some(p) => format!(
            "{key}, judged by the plain count ({} of {} broke it): {}.",
            limit.violations, limit.observations, p.because
        ),
        None => format!("{key}, judged by the plain count: {} of {} broke it.", limit.violations, limit.observations),
    }
}

fn every(data: &ReportData<'_>) -> String {
    let mut head =
        ["trial", "purpose", "asked", "arrived", "counted", "verdict", "confidence"].map(str::to_owned).to_vec();
    head.extend(data.limits().iter().map(|l| promise(&l.key())));
    head.extend(["shared, meant", "served", "send lag", "KV use"].map(str::to_owned));
    let row = |(trial, probe): (&Trial<'_>, &Probe<'_>)| {
        let verdict = probe.verdict;
        let mut row = vec![
            format!("{}.{}", trial.number, probe.number),
            trial.purpose.name().to_owned(),
            probe.ask.rate.to_string(),
            verdict.offered.to_string(),
            verdict.counted.to_string(),
            judged(verdict.outcome).to_owned(),
            if verdict.outcome == Outcome::Void { "void".to_owned() } else { percent(verdict.confidence) },
        ];
        row.extend(data.limits().iter().map(|limit| {
            let result = verdict.limits.iter().find(|l| l.key == limit.key());
            result.and_then(|l| l.measured).map_or_else(|| "not measured".to_owned(), |m| m.to_string())
        }));
        row.extend([
            share(probe.cache.expected_share),
            share(probe.cache.measured_share),
            probe.client.lag_p99.to_string(),
            share(probe.telemetry.peak_kv_usage),
        ]);
        row
    };
    let rows: Vec<Vec<String>> = data.at_rates().map(row).collect();
    let bursts = data.trials.iter().flat_map(|t| &t.probes).filter(|p| p.ask.is_burst()).count();
    if rows.is_empty() {
        return missing("None was measured.");
    }
    let says = paragraph(&format!(
        "Trial 2.1 is the first probe of trial 2. A probe of the search held at 50 % sure or more, and did not below. A certifying probe held at 95 % or more, did not at 5 % or less, and is too near to say between these. Where the queue grew, or a promise broke before the end, a probe did not hold at any share. Latencies are as measured; the verdict is on a long run where the paired estimate judges, so the two may differ. Send lag is a p99, KV use a peak. {bursts} bursts are not listed: they test memory and batch, not a rate."
    ));
    table(&head, &rows) + &says
}
