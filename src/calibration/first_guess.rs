//! Where a fit to summaries sets out, and which coefficients so few numbers can move.

use serde_json::Value;

use super::bench_summary::Summary;
use crate::twin::{Aggregate, StepCosts};

/// Numbers that were measured, for each coefficient that is fitted. Mean, median and p99 of a latency tell nearly the same.
const NUMBERS_PER_COEFFICIENT: usize = 4;
/// Without these two nothing can be replayed.
const LEAST_COEFFICIENTS: usize = 2;
/// The coefficients, those first that latencies under load depend on most.
pub(super) const ORDER: [&str; 17] = [
    "base",
    "per_prefill_token",
    "per_decode",
    "overhead",
    "per_context_token",
    "mixed",
    "above_16",
    "above_64",
    "above_128",
    "per_256",
    "fall",
    "delivery",
    "overlap",
    "per_prefill_square",
    "per_prefill_pair",
    "per_delivery",
    "ahead",
];

/// Where a fit sets out.
pub(super) struct Outset {
    /// The best of these counts.
    pub(super) starts: Vec<StepCosts>,
    /// The coefficients that are fitted, by their names.
    pub(super) moving: Vec<&'static str>,
    /// The numbers that were measured.
    pub(super) numbers: usize,
}

/// From the costs of a base, of which those are kept that the numbers are too few for; without a base from a guess, where those are zero.
pub(super) fn outset(runs: &[&Summary], base: Option<&StepCosts>) -> Outset {
    let numbers: usize = runs.iter().map(|run| run.numbers()).sum();
    let whole = base.map_or_else(|| guess(runs), |base| *base);
    let there: Vec<&str> = ORDER.into_iter().filter(|name| value(&whole, name) > 0.0).collect();
    let most = (numbers / NUMBERS_PER_COEFFICIENT).max(LEAST_COEFFICIENTS);
    let moving: Vec<&str> = there.iter().copied().take(most).collect();
    let start = if base.is_some() { whole } else { only(&whole, &moving) };
    // Another machine than the base's is quicker or slower in all; where some coefficients are kept, that would change these too.
    let whole = base.is_none() || moving.len() == there.len();
    let starts = if whole { vec![start, start.slower(0.5), start.slower(2.0)] } else { vec![start] };
    Outset { starts, moving, numbers }
}

/// A first guess from the latencies alone: the quickest median gap is a step of few sequences, the quickest median TTFT mostly prefill, and
/// what a token takes longer in another run is shared out to the sequences that run at the same time, by Little's law.
fn guess(runs: &[&Summary]) -> StepCosts {
    let typical = |latency: &Aggregate| latency.p50.or(latency.mean);
    let least = |values: &mut dyn Iterator<Item = f64>, otherwise: f64| {
        let least = values.fold(f64::INFINITY, f64::min);
        if least.is_finite() { least } else { otherwise }
    };
    let measured = || runs.iter().map(|run| &run.measured);
    let gap = least(&mut measured().filter_map(|m| typical(&m.itl).or_else(|| typical(&m.tpot))), 1e-2);
    let first = least(&mut measured().filter_map(|m| typical(&m.ttft)), 5.0 * gap);
    let tokens = least(&mut runs.iter().map(|run| run.input_tokens), 1e3).max(1.0);
    let running = |run: &Summary| Some((run.rate?.0 * run.output_tokens * typical(&run.measured.tpot)?).max(1.0));
    let batch = least(&mut runs.iter().filter_map(|run| running(run)), 10.0).min(256.0);
    StepCosts {
        base: 0.8 * gap,
        per_prefill_token: 0.5 * first / tokens,
        per_decode: 0.1 * gap / batch,
        overhead: 0.2 * first,
        per_context_token: 0.05 * gap / batch / tokens,
        mixed: 0.1 * gap,
        above_16: 0.03 * gap,
        above_64: 0.03 * gap,
        above_128: 0.03 * gap,
        delivery: 0.1 * first,
        ..StepCosts::default()
    }
}

/// A coefficient by its name; zero for one that is left out.
pub(super) fn value(costs: &StepCosts, name: &str) -> f64 {
    serde_json::to_value(costs).ok().and_then(|all| all.get(name)?.as_f64()).unwrap_or(0.0)
}

/// These coefficients, and zero for all others.
fn only(costs: &StepCosts, names: &[&str]) -> StepCosts {
    let Ok(Value::Object(mut all)) = serde_json::to_value(costs) else { return *costs };
    for (name, value) in &mut all {
        if !names.contains(&name.as_str()) {
            *value = Value::from(0.0);
        }
    }
    serde_json::from_value(Value::Object(all)).unwrap_or(*costs)
}

#[cfg(test)]
mod tests {
    use super::super::drawn::tests::run;
    use super::*;
    use crate::twin::{Aggregates, Profile};
    use crate::units::Rate;

    /// A run of which so many medians are known.
    fn told(medians: usize) -> Summary {
        let median =
            |known| Aggregate { p50: (medians > known).then_some(0.01 * (known + 1) as f64), ..Aggregate::default() };
        let measured = Aggregates { tpot: median(0), ttft: median(1), itl: median(2) };
        Summary { measured, ..run(Some(Rate(20.0))) }
    }

    #[test]
    fn four_numbers_move_a_coefficient_of_the_base_and_the_others_are_kept() {
        let (base, told) = (Profile::named("h200-llama8b").unwrap().costs, told(3));
        let found = outset(&[&told; 4], Some(&base));
        assert_eq!((found.numbers, found.moving.join(" ")), (12, "base per_prefill_token per_decode".to_owned()));
        assert_eq!(found.starts, [base]);
        let all = outset(&[&told; 8], Some(&base));
        assert_eq!((all.moving.len(), all.starts.len()), (5, 3));
    }

    #[test]
    fn without_a_base_there_is_a_guess_of_the_right_order() {
        for medians in 1..=3 {
            let found = outset(&[&told(medians)], None);
            let start = found.starts[0];
            assert_eq!(found.moving, ["base", "per_prefill_token"]);
            assert!(
                (5e-3..30e-3).contains(&start.base) && (1e-5..3e-4).contains(&start.per_prefill_token),
                "{start:?}"
            );
            assert_eq!((start.per_decode, start.overhead), (0.0, 0.0));
        }
    }
}
