//! (b) Each promise over the rate: what was measured, what that means in a long run, what certification expects, and the limit.

use autotune_numerics::Z_95;

use super::chart::{Axis, Chart, number};
use super::{BOX, CIRCLE, DASH, DIAMOND, UP, UPRIGHT, figure, legend, promise, shape, unit};
use crate::report::data::{Probe, ReportData, Trial};
use crate::settings::Limit;
use crate::units::Rate;
use crate::verdict::{LimitResult, Outcome, Verdict};

/// Latencies above so many limits are drawn at the upper end.
const HIGHEST: f64 = 4.0;

pub(super) fn section(data: &ReportData<'_>) -> String {
    let charts: String = data.limits().iter().map(|limit| one(data, limit)).collect();
    let key = legend(
        &[
            ("defaults hollow", CIRCLE, "defaults, measured"),
            ("defaults full", CIRCLE, "defaults, in a long run"),
            ("tuned hollow", DIAMOND, "tuned, measured"),
            ("tuned full", DIAMOND, "tuned, in a long run"),
            ("other hollow", CIRCLE, "other candidates"),
            ("limit hollow", UP, "above the limit, then cut"),
            ("bar", UPRIGHT, "90 % interval"),
            ("line limit", DASH, "limit of the promise"),
            ("band defaults", BOX, "defaults, expected (90 %)"),
            ("band tuned", BOX, "tuned, expected (90 %)"),
        ],
        &charts,
    );
    let mut says = "A hollow mark is what one probe measured; a pale one is void. A full mark is the paired estimate: what the measurement implies \
         for a long run, whatever the luck of its arrivals. Without a full mark, the plain count decides."
        .to_owned();
    if charts.contains("class=\"band ") {
        says += " A band is what all certifying probes together expect of another launch.";
    }
    let says = super::paragraph(&says);
    format!("{says}{key}<div class=\"figures\">{charts}</div>")
}

/// The part of a band between two rates, its ends by straight lines.
fn within((from, to): (f64, f64), band: &[(f64, f64, f64)]) -> Vec<(f64, f64, f64)> {
    let cut = |end: f64| {
        let pair = band.windows(2).find(|pair| pair[0].0 < end && end < pair[1].0)?;
        let share = (end - pair[0].0) / (pair[1].0 - pair[0].0);
        let between = |a: f64, b: f64| a + (b - a) * share;
        Some((end, between(pair[0].1, pair[1].1), between(pair[0].2, pair[1].2)))
    };
    let inside = band.iter().filter(|(rate, ..)| *rate >= from && *rate <= to).copied();
    cut(from).into_iter().chain(inside).chain(cut(to)).collect()
}

fn one(data: &ReportData<'_>, limit: &Limit) -> String {
    let key = limit.key();
    let result = |verdict: &'_ Verdict| verdict.limits.iter().find(|l| l.key == key).cloned();
    let seen = data.at_rates().filter_map(|(trial, probe)| Some((trial, probe, result(probe.verdict)?)));
    let mut seen: Vec<(&Trial<'_>, &Probe<'_>, LimitResult)> = seen.collect();
    // The answer is drawn above the others.
    seen.sort_by_key(|(trial, ..)| trial.whose);
    let certified = crate::report::summary::columns(&data.outcome).into_iter();
    let certified: Vec<(&str, f64)> = certified.filter_map(|(name, a)| Some((name, a.certified_rate?.0))).collect();
    let (name, scale) = unit(limit.at_most.0);
    let top = limit.at_most.0 * HIGHEST;
    let values = seen.iter().flat_map(|(.., l)| {
        let interval = l.decided_by_pair().map(|p| p.interval(0.9));
        [
            l.measured.map(|m| m.0),
            interval.map(|(low, _)| low.0.max(limit.at_most.0 / HIGHEST)),
            interval.map(|(_, high)| high.0),
        ]
    });
    let values = values.flatten().map(|s| s.min(top)).chain([limit.at_most.0 * 1.05]);
    let title = format!("{} against its limit", promise(&key));
    let drawn = |l: &LimitResult| l.measured.is_some() || l.broken();
    if !seen.iter().any(|(.., l)| drawn(l)) {
        return figure(&title, "", "Not measured: every probe was cut before.");
    }
    let rates = seen.iter().map(|(_, probe, _)| probe.ask.rate.0).chain(certified.iter().map(|c| c.1));
    let x = Axis::over("requests per second", rates);
    let y = Axis::over(&format!("{}, {name}", promise(&key)), values.map(|v| v * scale));
    let span = x.span();
    let mut chart = Chart::new(&title, x, y, 300.0);
    if !certified.is_empty() {
        chart = chart.named();
    }
    let at_most = limit.at_most.0 * scale;
    for (name, expected) in data.expected() {
        let Some(quantile) = expected.iter().find(|quantile| quantile.key == key) else { continue };
        let at = |(rate, margin, error): &(Rate, f64, f64)| {
            let of = |errors: f64| (at_most * (margin + errors * error).exp()).min(top * scale);
            (rate.0, of(-Z_95), of(Z_95))
        };
        // What lies beyond the marks would only stretch the axis, and is cut there.
        let band = within(span, &quantile.margins.iter().map(at).collect::<Vec<_>>());
        if band.len() > 1 {
            chart.band(&band, name, &format!("{name}: expected, 90 %"));
        }
    }
    for (name, rate) in &certified {
        chart.upright(*rate, &format!("{name}: {} certified", Rate(*rate)), name);
    }
    // Below the marks, which its name would hide.
    let cut = seen.iter().any(|(.., l)| l.measured.is_none() && l.broken());
    chart.level(at_most, &format!("limit {}", limit.at_most), "limit", cut);
    let mut unknown = 0;
    for (trial, probe, result) in &seen {
        let (class, Rate(rate)) = (trial.whose.name(), probe.ask.rate);
        let at = format!("trial {}, probe {}, {}", trial.number, probe.number, Rate(rate));
        let void = probe.verdict.outcome == Outcome::Void;
        let (said, pale) = if void { (", void", " faint") } else { ("", "") };
        let Some(measured) = result.measured else {
            if result.broken() {
                let says = format!("{at}: above the limit, then cut");
                chart.mark((rate, at_most), 0.0, UP, "limit hollow", &says);
            } else {
                unknown += 1;
            }
            continue;
        };
        let paired = result.decided_by_pair().filter(|_| !void);
        if let Some(paired) = paired {
            let (low, high) = paired.interval(0.9);
            chart.error_bar(rate, 4.0, (low.0 * scale, high.0 * scale), class);
            let says = format!("{at}: {} in a long run, 90 %: {low} to {high}", paired.estimate);
            chart.mark((rate, paired.estimate.0 * scale), 4.0, shape(trial.whose), &format!("{class} full"), &says);
        } else if let Some(error) = result.margin_error.filter(|_| !void) {
            let width = (Z_95 * error).exp();
            chart.error_bar(
                rate,
                0.0,
                (measured.0 / width * scale, measured.0 * width * scale),
                &format!("{class} faint"),
            );
        }
        let aside = if paired.is_some() { -4.0 } else { 0.0 };
        let says = format!("{at}: {measured} measured over {} requests{said}", result.observations);
        chart.mark((rate, measured.0 * scale), aside, shape(trial.whose), &format!("{class} hollow{pale}"), &says);
    }
    let note = match unknown {
        0 => String::new(),
        1 => "One probe is not drawn: it was cut before this was known.".to_owned(),
        n => format!("{n} probes are not drawn: they were cut before this was known."),
    };
    let far =
        |l: &LimitResult| [l.measured, l.decided_by_pair().map(|p| p.estimate)].iter().flatten().any(|s| s.0 > top);
    let above = match seen.iter().filter(|(.., l)| far(l)).count() {
        0 => String::new(),
        n => format!(" Probes above {} limits are drawn at the top: {n}.", number(HIGHEST)),
    };
    figure(&title, &chart.svg(), format!("{note}{above}").trim())
}
