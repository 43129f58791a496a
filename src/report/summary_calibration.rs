//! What a calibration from summaries says: predicted against measured, the coefficients, and what is known of neither.

use super::calibration::{off_by, section, table};
use crate::calibration::{MEANINGS, SummaryCalibration};

/// A calibration from summaries for people.
pub fn summary_calibration(calibration: &SummaryCalibration) -> String {
    let mut lines =
        vec!["predicted against measured: ms, measured / predicted, and the logarithm of their ratio in %".to_owned()];
    lines.extend(table(&calibration.compared));
    lines.extend(off_by(&calibration.compared));
    lines.push("\ncoefficients of a step".to_owned());
    for (name, unit, meaning) in MEANINGS {
        if let Some(found) = calibration.coefficients.iter().find(|found| found.name == name) {
            let (value, origin) = (unit.value(found.value), found.origin());
            lines.push(format!("  {name:19} {value:>8}  {origin:6}   {meaning}"));
        }
    }
    lines.extend(section("notes", &calibration.notes));
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibration::{Beside, Compared, Estimated};
    use crate::twin::{Bounds, StepCosts, SummaryFit};
    use crate::units::{Rate, Seconds};

    #[test]
    fn a_calibration_from_summaries_reads_like_this() {
        let run = |name: &str, held_out: bool, predicted: f64| {
            let pair = Some(Beside { measured: Seconds(0.1), predicted: Seconds(predicted) });
            Compared {
                name: name.to_owned(),
                held_out,
                summary: true,
                rate: Rate(if held_out { 3e11 } else { 20.0 }),
                requests: 300,
                failures: 0,
                bounds: Bounds { max_num_seqs: 1024, max_num_batched_tokens: 8192, kv_tokens: Some(919_824) },
                ttft_p50: pair,
                ttft_p99: None,
                tpot_p50: pair,
                tpot_p99: pair,
                slower: None,
            }
        };
        let estimated = |name, value, fitted| Estimated { name, value, fitted };
        let made = SummaryCalibration {
            fit: SummaryFit { costs: StepCosts::default(), loss: 0.0, replays: 0 },
            coefficients: vec![estimated("base", 4.5e-3, true), estimated("overhead", 7e-3, false)],
            base: None,
            fitted: vec!["a.json".into()],
            held_out: vec!["inf.json".into()],
            compared: vec![run("a.json", false, 0.102), run("inf.json", true, 0.09)],
            notes: vec!["each summary is taken for a run of its own".into()],
        };
        insta::assert_snapshot!(summary_calibration(&made), @r#"
        predicted against measured: ms, measured / predicted, and the logarithm of their ratio in %
          probe                           req/s  requests  failed  seqs  tokens      KV             TTFT p50  TTFT p99               TPOT p50               TPOT p99
          a.json    summary, fitted        20.0       300       0  1024    8192  919824  100.0 / 102.0  +2 %         -  100.00 / 102.00  +2 %  100.00 / 102.00  +2 %
          inf.json  summary, predicted  at once       300       0  1024    8192  919824   100.0 / 90.0 -11 %         -   100.00 / 90.00 -11 %   100.00 / 90.00 -11 %
          summary, fitted     p50 off by: TTFT 2.0 %; TPOT 2.0 %
          summary, predicted  p50 off by: TTFT 10.5 %; TPOT 10.5 %

        coefficients of a step
          base                 4.50 ms  fitted   every step
          overhead             7.00 ms  kept     from sending to the waiting queue

        notes
          each summary is taken for a run of its own
        "#);
    }
}
