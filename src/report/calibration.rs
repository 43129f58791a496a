//! What a calibration says: predicted against measured, the coefficients in units for people, and what the data leave open.

use std::fmt::Write;

use crate::calibration::{Beside, Calibration, Compared};
use crate::order::median;
use crate::twin::Coefficient;

/// What a coefficient is in, and what it means.
const MEANINGS: [(&str, Unit, &str); 15] = [
    ("base", Unit::Time, "every step"),
    ("per_decode", Unit::Time, "each sequence that decodes"),
    ("per_context_token", Unit::Time, "each token of context that is attended to"),
    ("per_prefill_token", Unit::Time, "each prompt token that is computed"),
    ("per_prefill_pair", Unit::Time, "each pair of a computed prompt token and one before it"),
    ("per_prefill_square", Unit::Time, "the square of a step's prompt tokens"),
    ("mixed", Unit::Time, "a step that computes prompt tokens"),
    ("above_16", Unit::Time, "a step of more than 16 sequences"),
    ("above_64", Unit::Time, "again, above 64"),
    ("above_128", Unit::Time, "again, above 128"),
    ("overlap", Unit::Share, "of the shorter of decoding and prefill hides behind the longer"),
    ("ahead", Unit::Share, "of a step has yet to run when the next one is composed"),
    ("overhead", Unit::Time, "from sending to the waiting queue"),
    ("delivery", Unit::Time, "from the end of a step to the client"),
    ("per_delivery", Unit::Time, "more for each sequence that is served before"),
];

/// What a coefficient is in.
#[derive(Clone, Copy)]
enum Unit {
    Time,
    Share,
}

/// A calibration for people.
pub fn calibration(calibration: &Calibration) -> String {
    let mut text = String::new();
    let mut line = |what: &str| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}", what.trim_end());
    };
    line("predicted against measured: ms, measured / predicted, and the logarithm of their ratio in %");
    table(calibration).iter().for_each(|row| line(row));
    for (held_out, name) in [(false, "fitted"), (true, "held out")] {
        if let Some(says) = off_by(calibration, held_out) {
            line(&format!("  {name:9} {says}"));
        }
    }
    line("\ncoefficients of a step");
    for (name, unit, meaning) in MEANINGS {
        if let Some(found) = calibration.fit.coefficients.iter().find(|found| found.name == name) {
            line(&format!("  {}", coefficient(found, unit, meaning)));
        }
    }
    section("what the data leave open", &calibration.fit.open).iter().for_each(|row| line(row));
    line("\nwhat the twin leaves unexplained");
    residuals(calibration).iter().for_each(|row| line(row));
    section("KV cache, as logged and as the base profile predicts", &memory(calibration))
        .iter()
        .for_each(|row| line(row));
    section("left out", &calibration.left_out).iter().for_each(|row| line(row));
    section("notes", &calibration.notes).iter().for_each(|row| line(row));
    text
}

/// A heading and its lines; nothing where there are none.
fn section(heading: &str, lines: &[String]) -> Vec<String> {
    if lines.is_empty() {
        return Vec::new();
    }
    std::iter::once(format!("\n{heading}")).chain(lines.iter().map(|line| format!("  {line}"))).collect()
}

fn table(calibration: &Calibration) -> Vec<String> {
    let width = calibration.compared.iter().map(|probe| probe.name.len()).max().unwrap_or(0).max(5);
    let mut rows = vec![format!(
        "  {:width$}  {:8}  {:>5}  {:>8}  {:>4}  {:>6}  {:>8}  {:^24}  {:^24}  {:^22}  {:^22}  {:>6}",
        "probe",
        "",
        "req/s",
        "requests",
        "seqs",
        "tokens",
        "KV",
        "TTFT p50",
        "TTFT p99",
        "TPOT p50",
        "TPOT p99",
        "slower"
    )];
    for probe in &calibration.compared {
        let Compared { name, rate, requests, bounds, .. } = probe;
        let kv = bounds.kv_tokens.map_or("-".to_owned(), |tokens| tokens.to_string());
        let slower = probe.slower.map_or(String::new(), |factor| format!("{:+.1} %", factor.ln() * 100.0));
        rows.push(format!(
            "  {name:width$}  {:8}  {:>5.1}  {requests:>8}  {:>4}  {:>6}  {kv:>8}  {}  {}  {}  {}  {slower:>6}",
            if probe.held_out { "held out" } else { "fitted" },
            rate.0,
            bounds.max_num_seqs,
            bounds.max_num_batched_tokens,
            beside(probe.ttft_p50, 7, 1),
            beside(probe.ttft_p99, 7, 1),
            beside(probe.tpot_p50, 6, 2),
            beside(probe.tpot_p99, 6, 2),
        ));
        if probe.failures > 0 {
            rows.push(format!("  {:width$}  {} of them without a whole answer", "", probe.failures));
        }
    }
    rows
}

fn beside(pair: Option<Beside>, width: usize, digits: usize) -> String {
    let Some(pair) = pair else { return format!("{:^1$}", "-", 2 * width + 10) };
    let percent = format!("{:+.0} %", pair.log_difference() * 100.0);
    format!("{:>width$.digits$} / {:>width$.digits$} {percent:>6}", pair.measured.millis(), pair.predicted.millis())
}

/// How far the p99s are off, in the median and at worst.
fn off_by(calibration: &Calibration, held_out: bool) -> Option<String> {
    let of = |quantile: fn(&Compared) -> Option<Beside>| {
        let probes = calibration.compared.iter().filter(|probe| probe.held_out == held_out);
        let off: Vec<f64> = probes.filter_map(quantile).map(|pair| pair.log_difference().abs() * 100.0).collect();
        let worst = off.iter().copied().reduce(f64::max)?;
        let middle = median(off.iter().copied())?;
        Some(if off.len() == 1 {
            format!("{worst:.1} %")
        } else {
            format!("{middle:.1} % in the median, {worst:.1} % at worst")
        })
    };
    Some(format!("p99 off by: TTFT {}; TPOT {}", of(|probe| probe.ttft_p99)?, of(|probe| probe.tpot_p99)?))
}

fn coefficient(found: &Coefficient, unit: Unit, meaning: &str) -> String {
    let Coefficient { name, value, log_error } = found;
    let (value, error) = match unit {
        Unit::Time => (time(*value), format!("+- {:.0} %", log_error * 100.0)),
        // The error is that of the log odds.
        Unit::Share => (
            format!("{:.0} %  ", value * 100.0),
            format!("+- {:.0} points", (log_error * value * (1.0 - value) * 100.0).min(100.0)),
        ),
    };
    format!("{name:19} {value:>10}  {error:>12}   {meaning}")
}

/// A time of three digits, in the unit that suits it.
fn time(seconds: f64) -> String {
    let (scale, unit) = match seconds {
        s if s >= 1e-3 => (1e3, "ms"),
        s if s >= 1e-6 => (1e6, "us"),
        s if s >= 1e-9 => (1e9, "ns"),
        _ => (1e12, "ps"),
    };
    let value = seconds * scale;
    let digits = match value {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.digits$} {unit}")
}

fn residuals(calibration: &Calibration) -> Vec<String> {
    let residuals = &calibration.fit.residuals;
    let mut lines = vec![
        format!(
            "  of {} answers {} far off; {} requests without a whole answer load the twin and are not fitted",
            residuals.answers, residuals.outliers, residuals.failures
        ),
        format!(
            "  standard deviation of the logarithm: TTFT {:.3}, TPOT {:.3}; correlation with the twin: {:.3}, {:.3}",
            residuals.ttft_sd, residuals.tpot_sd, residuals.ttft_correlation, residuals.tpot_correlation
        ),
    ];
    lines.extend(calibration.run_to_run.map(|spread| {
        format!("  the engine's speed from probe to probe: {:.1} % (standard deviation)", spread * 100.0)
    }));
    lines.extend(calibration.start.map(|start| {
        let which = if start.warm { "warm, median" } else { "the first one, with cold caches" };
        format!("  a start and its stop took {} ({which})", start.seconds)
    }));
    lines
}

fn memory(calibration: &Calibration) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for size in &calibration.memory {
        let predicted = match (size.predicted, size.error()) {
            (Some(tokens), Some(error)) => format!("{tokens} predicted, {:+.1} %", error * 100.0),
            _ => "the base says that this does not start".to_owned(),
        };
        lines.push(format!(
            "gpu-memory-utilization {}, max-num-seqs {}, max-num-batched-tokens {}: {} tokens, {predicted}",
            size.gpu_memory_utilization, size.max_num_seqs, size.max_num_batched_tokens, size.logged
        ));
    }
    let wrong = calibration.memory.iter().filter(|size| size.is_wrong()).count();
    if let Some(base) = calibration.base.as_ref().filter(|_| wrong > 0) {
        lines.push(format!(
            "the memory of {base} is wrong for this engine: {wrong} of {} are more than 1 % off; correct [memory] by hand",
            calibration.memory.len()
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits() {
        let said = [4.826e-3, 23.14e-6, 251e-6, 1.2e-8, 3.4e-12, 0.0124].map(time);
        assert_eq!(said, ["4.83 ms", "23.1 us", "251 us", "12.0 ns", "3.40 ps", "12.4 ms"]);
    }

    #[test]
    fn a_share_has_its_error_in_points() {
        let ahead = Coefficient { name: "ahead".to_owned(), value: 0.9, log_error: 0.4 };
        let said = coefficient(&ahead, Unit::Share, "of a step");
        assert!(said.contains("90 %") && said.contains("+- 4 points"), "{said}");
    }
}
