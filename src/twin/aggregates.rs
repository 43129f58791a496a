//! The aggregates of a run, in the terms and by the rules of `vllm bench serve`.

use super::replay::Replayed;

/// The mean and some quantiles of a latency, in seconds; none where a file does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Aggregate {
    pub mean: Option<f64>,
    pub p50: Option<f64>,
    /// The 95th percentile.
    pub p95: Option<f64>,
    /// The 99th percentile.
    pub p99: Option<f64>,
}

impl Aggregate {
    /// Of values with the number of times that each occurs; all none where there are none.
    pub fn of(mut values: Vec<(f64, u64)>) -> Self {
        values.retain(|(_, count)| *count > 0);
        values.sort_by(|a, b| a.0.total_cmp(&b.0));
        let count: u64 = values.iter().map(|(_, count)| count).sum();
        if count == 0 {
            return Self::default();
        }
        let mean = values.iter().map(|(value, count)| value * *count as f64).sum::<f64>() / count as f64;
        let at = |q| Some(between(&values, q * (count - 1) as f64));
        Self { mean: Some(mean), p50: at(0.5), p95: at(0.95), p99: at(0.99) }
    }

    /// The mean, p50, p95 and p99.
    pub fn values(&self) -> [Option<f64>; 4] {
        [self.mean, self.p50, self.p95, self.p99]
    }
}

/// The value at that rank from zero, interpolated between neighbours as NumPy's `percentile` does it.
fn between(sorted: &[(f64, u64)], rank: f64) -> f64 {
    let (whole, part) = (rank.floor() as u64, rank.fract());
    let value = |rank: u64| {
        let mut before = 0;
        let found = sorted.iter().find(|(_, count)| {
            before += count;
            rank < before
        });
        found.or(sorted.last()).map_or(0.0, |(value, _)| *value)
    };
    let low = value(whole);
    if part > 0.0 { low + part * (value(whole + 1) - low) } else { low }
}

/// What a run took, as its file tells it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Aggregates {
    /// From the send to the first token.
    pub ttft: Aggregate,
    /// Per token of an answer after its first; an answer of one token has none and is left out.
    pub tpot: Aggregate,
    /// Between two tokens of a stream, over all tokens.
    pub itl: Aggregate,
}

impl Aggregates {
    /// Of a replay: what became of each request, the tokens of each answer, and the gaps between tokens with their number.
    pub(super) fn of(requests: &[Replayed], output_tokens: &[u32], gaps: Vec<(f64, u64)>) -> Self {
        let ttft = requests.iter().map(|r| (r.first - r.due, 1)).collect();
        let tpot = requests.iter().zip(output_tokens).filter(|(_, tokens)| **tokens > 1);
        let tpot = tpot.map(|(r, tokens)| ((r.last - r.first) / f64::from(tokens - 1), 1)).collect();
        Self { ttft: Aggregate::of(ttft), tpot: Aggregate::of(tpot), itl: Aggregate::of(gaps) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_two_values_as_numpy_has_them() {
        let plain = Aggregate::of((0..300).map(|i| (f64::from(i), 1)).collect());
        assert!((plain.p99.unwrap() - 296.01).abs() < 1e-9 && (plain.p50.unwrap() - 149.5).abs() < 1e-9);
        let counted = Aggregate::of(vec![(2.0, 1), (1.0, 2), (9.0, 0)]);
        assert_eq!((counted.p50, counted.mean), (Some(1.0), Some(4.0 / 3.0)));
        assert!((counted.p95.unwrap() - 1.9).abs() < 1e-9);
        assert_eq!(Aggregate::of(Vec::new()), Aggregate::default());
    }
}
