//! What a calibration says: predicted against measured, the coefficients in units for people, and what the data leave open.

use std::fmt::Write;

use crate::calibration::{Beside, Calibration, Compared, MEANINGS};
use crate::quantiles::median;
use crate::twin::Bounds;

pub fn calibration(calibration: &Calibration) -> String {
    let mut text = String::new();
    let mut line = |what: &str| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}", what.trim_end());
    };
    line(
        "predicted against measured: ms, measured / predicted, and the logarithm of their ratio in %; slower: the engine in this probe",
    );
    table(&calibration.compared).iter().for_each(|row| line(row));
    off_by(&calibration.compared).iter().for_each(|row| line(row));
    line("\ncoefficients of a step");
    for (name, unit, meaning) in MEANINGS {
        if let Some(found) = calibration.fit.coefficients.iter().find(|found| found.name == name) {
            line(&format!("  {name:19} {:>8}  {:>11}   {meaning}", unit.value(found.value), unit.error(found)));
        }
    }
    line(
        "  (the errors are of scatter; overlap, mixed, the stairs and the terms of prefill also make up for each other)",
    );
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

fn role(probe: &Compared) -> &'static str {
    if probe.held_out { "held out" } else { "fitted" }
}

fn table(compared: &[Compared]) -> Vec<String> {
    let mut rows = vec![
        [
            "probe", "", "req/s", "requests", "failed", "seqs", "tokens", "KV", "TTFT p50", "TTFT p99", "TPOT p50",
            "TPOT p99", "slower",
        ]
        .map(str::to_owned),
    ];
    for probe in compared {
        let Bounds { max_num_seqs, max_num_batched_tokens, kv_tokens } = probe.bounds;
        // Requests that are sent within a tenth of a second have no rate to speak of.
        let at_once = probe.rate.0 > 10.0 * probe.requests as f64;
        rows.push([
            probe.name.clone(),
            role(probe).to_owned(),
            if at_once { "at once".to_owned() } else { format!("{:.1}", probe.rate.0) },
            probe.requests.to_string(),
            probe.failures.to_string(),
            max_num_seqs.to_string(),
            max_num_batched_tokens.to_string(),
            kv_tokens.map_or("-".to_owned(), |tokens| tokens.to_string()),
            beside(probe.ttft_p50, 1),
            beside(probe.ttft_p99, 1),
            beside(probe.tpot_p50, 2),
            beside(probe.tpot_p99, 2),
            probe.slower.map_or(String::new(), |factor| format!("{:+.1} %", factor.ln() * 100.0)),
        ]);
    }
    let widths: [usize; 13] = std::array::from_fn(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0));
    let line = |row: &[String; 13]| {
        let cell = |(column, cell): (usize, &String)| {
            let width = widths[column];
            // Names stand on the left, numbers on the right.
            if column < 2 { format!("  {cell:width$}") } else { format!("  {cell:>width$}") }
        };
        row.iter().enumerate().map(cell).collect()
    };
    rows.iter().map(line).collect()
}

fn beside(pair: Option<Beside>, digits: usize) -> String {
    let Some(pair) = pair else { return "-".to_owned() };
    let percent = format!("{:+.0} %", pair.log_difference() * 100.0);
    format!("{:.digits$} / {:.digits$} {percent:>5}", pair.measured.millis(), pair.predicted.millis())
}

/// How far the p99s of the probes of each role are off, in the median and at worst.
fn off_by(compared: &[Compared]) -> Vec<String> {
    let line = |role_is: &str| {
        let probes: Vec<&Compared> = compared.iter().filter(|probe| role(probe) == role_is).collect();
        let of = |quantile: fn(&Compared) -> Option<Beside>| {
            let pairs = probes.iter().filter_map(|probe| quantile(probe));
            let off: Vec<f64> = pairs.map(|pair| pair.log_difference().abs() * 100.0).collect();
            let worst = off.iter().copied().reduce(f64::max)?;
            let middle = median(off.iter().copied())?;
            Some(if off.len() == 1 {
                format!("{worst:.1} %")
            } else {
                format!("{middle:.1} % in the median, {worst:.1} % at worst")
            })
        };
        let (ttft, tpot) = (of(|probe| probe.ttft_p99)?, of(|probe| probe.tpot_p99)?);
        Some(format!("  {role_is:9} p99 off by: TTFT {ttft}; TPOT {tpot}"))
    };
    ["fitted", "held out"].into_iter().filter_map(line).collect()
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
    use crate::calibration::{CacheSize, Start};
    use crate::twin::{Coefficient, Fit, Residuals, StepCosts};
    use crate::units::{Rate, Seconds};

    fn probe(name: &str, held_out: bool, predicted: f64) -> Compared {
        let pair = Some(Beside { measured: Seconds(0.1), predicted: Seconds(predicted) });
        Compared {
            name: name.to_owned(),
            held_out,
            rate: Rate(15.16),
            requests: 606,
            failures: 2,
            bounds: Bounds { max_num_seqs: 1024, max_num_batched_tokens: 8192, kv_tokens: None },
            ttft_p50: pair,
            ttft_p99: pair,
            tpot_p50: None,
            tpot_p99: pair,
            slower: (!held_out).then_some(1.01),
        }
    }

    #[test]
    fn a_calibration_reads_like_this() {
        let residuals = Residuals {
            answers: 1210,
            failures: 2,
            outliers: 3,
            ttft_sd: 0.068,
            tpot_sd: 0.015,
            ttft_correlation: 0.98,
            tpot_correlation: 0.99,
            probes: vec![],
        };
        let size = CacheSize {
            gpu_memory_utilization: 0.9,
            max_num_seqs: 1024,
            max_num_batched_tokens: 8192,
            logged: 919_824,
            predicted: Some(950_000),
        };
        let made = Calibration {
            fit: Fit {
                costs: StepCosts::default(),
                coefficients: vec![Coefficient { name: "base".into(), value: 4.5e-3, log_error: 0.01 }],
                open: vec!["nothing in these probes shows mixed: it stays near its first guess".into()],
                residuals,
                loss: 0.0,
                replays: 0,
            },
            base: Some("h200-llama8b".into()),
            fitted: vec!["a.csv".into()],
            held_out: vec!["long-name.csv".into()],
            engines: vec![],
            compared: vec![probe("a.csv", false, 0.102), probe("long-name.csv", true, 0.08)],
            memory: vec![size],
            start: Some(Start { seconds: Seconds(43.0), warm: true }),
            run_to_run: Some(0.012),
            left_out: vec!["starts that failed: 1 (run)".into()],
            notes: vec!["one probe alone".into()],
        };
        insta::assert_snapshot!(calibration(&made), @r#"
        predicted against measured: ms, measured / predicted, and the logarithm of their ratio in %; slower: the engine in this probe
          probe                    req/s  requests  failed  seqs  tokens  KV             TTFT p50             TTFT p99  TPOT p50               TPOT p99  slower
          a.csv          fitted     15.2       606       2  1024    8192   -  100.0 / 102.0  +2 %  100.0 / 102.0  +2 %         -  100.00 / 102.00  +2 %  +1.0 %
          long-name.csv  held out   15.2       606       2  1024    8192   -   100.0 / 80.0 -22 %   100.0 / 80.0 -22 %         -   100.00 / 80.00 -22 %
          fitted    p99 off by: TTFT 2.0 %; TPOT 2.0 %
          held out  p99 off by: TTFT 22.3 %; TPOT 22.3 %

        coefficients of a step
          base                 4.50 ms       +- 1 %   every step
          (the errors are of scatter; overlap, mixed, the stairs and the terms of prefill also make up for each other)

        what the data leave open
          nothing in these probes shows mixed: it stays near its first guess

        what the twin leaves unexplained
          of 1210 answers 3 far off; 2 requests without a whole answer load the twin and are not fitted
          standard deviation of the logarithm: TTFT 0.068, TPOT 0.015; correlation with the twin: 0.980, 0.990
          the engine's speed from probe to probe: 1.2 % (standard deviation)
          a start and its stop took 43.0 s (warm, median)

        KV cache, as logged and as the base profile predicts
          gpu-memory-utilization 0.9, max-num-seqs 1024, max-num-batched-tokens 8192: 919824 tokens, 950000 predicted, +3.3 %
          the memory of h200-llama8b is wrong for this engine: 1 of 1 are more than 1 % off; correct [memory] by hand

        left out
          starts that failed: 1 (run)

        notes
          one probe alone
        "#);
    }
}
