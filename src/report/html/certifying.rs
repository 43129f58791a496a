//! (e) The requests of the probe that the answer rests on: each of them over time, and their distribution against the limit.

use super::chart::{Axis, Chart};
use super::{BOX, DASH, DOT, figure, legend, missing, paragraph, promise, unit};
use crate::load::RequestRecord;
use crate::report::bench::peaks::flight;
use crate::report::data::{Probe, ReportData, Whose};
use crate::settings::{Limit, Metric};
use crate::units::Seconds;

/// Of the requests within the limit, about so many are drawn; those beyond it up to twice as many.
const DOTS: usize = 1_500;
/// With fewer samples of the KV cache, a line would only seem to tell its course.
const ENOUGH: usize = 6;
/// Columns of a histogram.
const COLUMNS: usize = 48;
/// Moments at which requests in flight are counted.
const MOMENTS: usize = 300;
/// Latencies above so many limits are drawn at the upper end.
const HIGHEST: f64 = 3.0;

pub(super) fn section(data: &ReportData<'_>) -> String {
    let Some(proof) = data.proof() else { return String::new() };
    let probe = proof.probe;
    let what =
        if proof.purpose.certifies() { "a certifying probe" } else { "the last probe (nothing is certified yet)" };
    let intro = paragraph(&format!(
        "Trial {}, probe {}, with the {}: {what} at {}. {} requests count, those due between {} and {}.",
        proof.trial,
        probe.number,
        match proof.whose {
            Whose::Other => "point of a candidate",
            Whose::Defaults => "defaults",
            Whose::Tuned => "tuned arguments",
        },
        probe.ask.rate,
        probe.verdict.counted,
        probe.ask.window.from,
        probe.ask.window.to,
    ));
    let records = match data.requests(probe) {
        Ok(records) if records.is_empty() => return intro + &missing("Its file holds no requests."),
        Ok(records) => records,
        Err(why) => return intro + &missing(&format!("Its requests cannot be shown: {why}.")),
    };
    let charts: String = data.limits().iter().map(|limit| promised(limit, probe, &records)).collect();
    let (flight, cache) = (in_flight(probe, &records), kv_cache(probe));
    let key = legend(
        &[
            ("dots inside", DOT, "request within the limit"),
            ("dots outside", DOT, "request beyond it"),
            ("ramp", BOX, "ramp, does not count"),
            ("line limit", DASH, "limit of the promise"),
            ("line ink", DASH, "quantile as measured"),
        ],
        &charts,
    );
    format!("{intro}{key}<div class=\"figures\">{charts}{flight}{cache}</div>")
}

fn latency(metric: Metric, record: &RequestRecord) -> Option<Seconds> {
    match metric {
        Metric::Ttft => record.ttft(),
        Metric::Tpot => record.tpot(),
        Metric::E2e => record.e2e(),
        // A request file keeps the largest gap alone.
        Metric::Itl => record.gaps.iter().copied().reduce(f32::max).map(|gap| Seconds(f64::from(gap))),
    }
}

fn promised(limit: &Limit, probe: &Probe<'_>, records: &[RequestRecord]) -> String {
    let name = promise(&limit.key());
    let window = probe.ask.window;
    let (unit, scale) = unit(limit.at_most.0);
    let of = |r: &RequestRecord| Some((r.due.0, latency(limit.metric, r)?.0));
    let seen: Vec<(f64, f64)> = records.iter().filter_map(of).collect();
    if seen.is_empty() {
        return figure(&name, "", "No request tells this latency.");
    }
    let what = if limit.metric == Metric::Itl { "largest gap of each request" } else { "each request" };
    let result = probe.verdict.limits.iter().find(|l| l.key == limit.key());
    let measured = result.and_then(|l| l.measured);
    let end = records.iter().map(|r| r.due.0).fold(window.to.0, f64::max);
    let drawn = |v: f64| v.min(limit.at_most.0 * HIGHEST) * scale;
    let label = format!("{}, {unit}", limit.metric.name().to_uppercase());
    let top = seen.iter().map(|(_, v)| drawn(*v)).fold(limit.at_most.0 * scale * 1.05, f64::max);
    let mut over_time = Chart::new(
        &format!("{name}, {what}"),
        Axis::between("seconds of the probe", 0.0, end),
        Axis::between(&label, 0.0, top * 1.06),
        280.0,
    );
    over_time.area((0.0, 0.0), (window.from.0, top * 1.06), "ramp", "ramp");
    let (inside, outside): (Vec<_>, Vec<_>) =
        seen.iter().map(|(t, v)| (*t, *v)).partition(|(_, v)| *v <= limit.at_most.0);
    let thin = |points: &[(f64, f64)], most: usize| -> Vec<(f64, f64)> {
        let step = points.len().div_ceil(most).max(1);
        points.iter().step_by(step).map(|(t, v)| (*t, drawn(*v))).collect()
    };
    over_time.dots(thin(&inside, DOTS), "inside");
    over_time.dots(thin(&outside, 2 * DOTS), "outside");
    over_time.level(limit.at_most.0 * scale, &format!("limit {}", limit.at_most), "limit", false);
    let thinned = if inside.len() > DOTS {
        format!(" {DOTS} at most of the {} within the limit are drawn.", inside.len())
    } else {
        String::new()
    };
    let counted = result.map_or(String::new(), |l| {
        let of = if limit.metric == Metric::Itl { "gaps" } else { "requests" };
        format!("{} of {} {of} that count broke the promise.", l.violations, l.observations)
    });
    let none = records.iter().filter(|r| window.holds(r.due) && !r.complete()).count();
    let none = if none == 0 { String::new() } else { format!(" {none} have no whole answer.") };
    let over_time =
        figure(&format!("{name}: {what} over time"), &over_time.svg(), &format!("{counted}{none}{thinned}"));
    let values: Vec<f64> = seen.iter().filter(|(t, _)| window.holds(Seconds(*t))).map(|(_, v)| drawn(*v)).collect();
    format!("{over_time}{}", histogram(limit, &values, measured, (&label, scale, what)))
}

fn histogram(
    limit: &Limit,
    values: &[f64],
    measured: Option<Seconds>,
    (label, scale, what): (&str, f64, &str),
) -> String {
    let name = promise(&limit.key());
    let at_most = limit.at_most.0 * scale;
    let top = values.iter().copied().fold(at_most * 1.05, f64::max) * 1.02;
    let mut columns = [0_usize; COLUMNS];
    for value in values {
        if let Some(column) = columns.get_mut((value / top * COLUMNS as f64) as usize) {
            *column += 1;
        }
    }
    let highest = columns.iter().copied().max().unwrap_or(1).max(1) as f64;
    let mut chart = Chart::new(
        &format!("Distribution of {name}"),
        Axis::between(label, 0.0, top),
        Axis::between("requests", 0.0, highest * 1.05),
        280.0,
    )
    .named();
    let wide = top / COLUMNS as f64;
    for (i, count) in columns.iter().enumerate().filter(|(_, count)| **count > 0) {
        let (from, to) = (i as f64 * wide, (i + 1) as f64 * wide);
        let class = if from >= at_most { "fill outside" } else { "fill inside" };
        let says = format!("{} to {}: {count}", Seconds(from / scale), Seconds(to / scale));
        chart.area((from, 0.0), (to - 0.1 * wide, *count as f64), class, &says);
    }
    chart.upright(at_most, &format!("limit {}", limit.at_most), "limit");
    if let Some(measured) = measured {
        let quantile = name.split_whitespace().last().unwrap_or_default().to_owned();
        chart.upright(measured.0 * scale, &format!("{quantile} {measured}"), "ink");
    }
    let says = match measured {
        Some(measured) => format!("{measured} measured, {:.0} % of the limit.", measured.0 / limit.at_most.0 * 100.0),
        None => "The quantile is not known: the probe was cut, or it lies among requests without an answer.".to_owned(),
    };
    figure(&format!("{name}: distribution, {what}"), &chart.svg(), &says)
}

/// The used share of the KV cache over time; nothing where the journal holds the peak alone.
fn kv_cache(probe: &Probe<'_>) -> String {
    let seen: Vec<(f64, f64)> = probe.telemetry.kv_usage.iter().map(|(at, share)| (at.0, share * 100.0)).collect();
    let (Some(end), true) = (seen.last().map(|(at, _)| *at), seen.len() >= ENOUGH) else { return String::new() };
    let top = seen.iter().map(|(_, share)| *share).fold(1.0, f64::max);
    let top = if top > 50.0 { 100.0 } else { top * 1.2 };
    let mut chart = Chart::new(
        "Use of the KV cache",
        Axis::between("seconds of the probe", 0.0, end),
        Axis::between("% in use", 0.0, top),
        280.0,
    );
    chart.area((0.0, 0.0), (probe.ask.window.from.0, top), "ramp", "ramp");
    chart.line(seen, "inside");
    let peak = probe.telemetry.peak_kv_usage.map_or(String::new(), |peak| format!("{:.0} % at most.", peak * 100.0));
    figure("Use of the KV cache", &chart.svg(), &peak)
}

fn in_flight(probe: &Probe<'_>, records: &[RequestRecord]) -> String {
    let end = records.iter().map(|r| r.last.or(r.first).unwrap_or(r.sent).0).fold(0.0, f64::max);
    let spans = records.iter().map(|r| flight(r, Seconds(end)));
    let spans: Vec<(f64, f64)> = spans.map(|(from, to)| (from.0, to.0)).collect();
    let moments = (0..=MOMENTS).map(|i| end * i as f64 / MOMENTS as f64);
    let counts: Vec<(f64, f64)> =
        moments.map(|t| (t, spans.iter().filter(|(from, to)| *from <= t && t < *to).count() as f64)).collect();
    let top = counts.iter().map(|c| c.1).fold(1.0, f64::max);
    let mut chart = Chart::new(
        "Requests in flight",
        Axis::between("seconds of the probe", 0.0, end),
        Axis::between("requests", 0.0, top * 1.08),
        280.0,
    );
    chart.area((0.0, 0.0), (probe.ask.window.from.0, top * 1.08), "ramp", "ramp");
    chart.line(counts, "inside");
    let t = probe.telemetry;
    let said = [
        t.peak_running.map(|n| format!("{n:.0} running at most")),
        t.peak_waiting.map(|n| format!("{n:.0} waiting at most")),
        t.peak_kv_usage.map(|share| format!("{:.0} % of the KV cache used at most", share * 100.0)),
        t.preemptions.map(|n| format!("{n:.0} preemptions")),
    ];
    let said: Vec<String> = said.into_iter().flatten().collect();
    let said = if said.is_empty() {
        "The engine's counters told nothing.".to_owned()
    } else {
        format!("By the engine's counters: {}.", said.join(", "))
    };
    figure("Requests in flight", &chart.svg(), &said)
}
