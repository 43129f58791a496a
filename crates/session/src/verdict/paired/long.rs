//! Hours of traffic through the twin: the quantiles that luck has left, and the shares of windows that would hold a limit.

use super::quantile::log_quantile;
use autotune_numerics::spread::jackknife;
use autotune_plan::settings::Metric;
use autotune_records::quantiles::rank;
use autotune_records::units::Seconds;
use autotune_twin::{Answered, Bounds, FastReplay, Pressure, Sent, StepCosts, replay_faithfully};

/// Blocks of the long run, for the error that is left in it.
const BLOCKS: usize = 20;
/// The part of the long run that starts the engine up and does not count.
const WARM_UP: f64 = 0.02;

#[derive(Clone, Debug, PartialEq)]
pub struct LongRunReplay {
    latencies: Vec<Latencies>,
    /// Whether the replay left what the model knows.
    pub out_of_scope: bool,
    /// A part of the traffic, served block by block and by sums.
    apart: Option<[Vec<Latencies>; 2]>,
}

/// When a request was due, and its latencies; infinite where a token never came.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Latencies {
    due: f64,
    ttft: f64,
    /// None for an answer of one token.
    tpot: Option<f64>,
    e2e: f64,
}

impl Latencies {
    fn of((a, output): (Answered, u32)) -> Self {
        Self { due: a.at, ttft: a.first - a.at, tpot: a.tpot(output), e2e: a.last - a.at }
    }
}

impl LongRunReplay {
    /// The degrees of freedom of the error of a quantile.
    pub(super) const FREEDOM: f64 = BLOCKS as f64 - 1.0;

    /// Replays these requests, sorted by their time. They should be 100,000: fewer mislead near the limit.
    pub fn replay(costs: &StepCosts, bounds: Bounds, traffic: impl IntoIterator<Item = Sent>) -> Self {
        let sent: Vec<Sent> = traffic.into_iter().collect();
        let mut answers: Vec<Answered> = Vec::new();
        let fidelity = replay_faithfully(costs, bounds, &sent, &mut FastReplay::default(), &mut answers);
        Self { latencies: latencies(answered(&sent, &answers)), out_of_scope: fidelity.out_of_scope(), apart: None }
    }

    /// The long run, corrected by a part of the traffic that was also served block by block. Sums do not know which prefixes the cache loses, and blocks take too long
    /// for all requests. What `blocks` and `sums` of the same part differ by is added to the quantiles.
    #[must_use]
    pub fn corrected(self, blocks: Self, sums: Self) -> Self {
        Self { apart: Some([blocks.latencies, sums.latencies]), ..self }
    }

    /// From served requests: when each was due, its first and last token, and the tokens of its answer.
    pub fn served(served: &[(Answered, u32)]) -> Self {
        Self { latencies: latencies(served.iter().copied()), out_of_scope: false, apart: None }
    }

    /// A long run by sums alone, and its pressure: quicker, and cruder if the KV cache limits.
    pub fn by_sums(costs: &StepCosts, bounds: Bounds, sent: &[Sent], memory: &mut FastReplay) -> (Self, Pressure) {
        let mut answers: Vec<Answered> = Vec::new();
        let strain = memory.run(costs, bounds, sent, &mut answers);
        let out_of_scope = strain.preemptions > 0 || strain.kv_full > 0;
        (Self { latencies: latencies(answered(sent, &answers)), out_of_scope, apart: None }, strain)
    }

    fn latency(metric: Metric, l: &Latencies) -> Option<f64> {
        let latency = match metric {
            Metric::Ttft => Some(l.ttft),
            Metric::Tpot => l.tpot,
            Metric::E2e => Some(l.e2e),
            Metric::Itl => None,
        };
        latency.filter(|l| l.is_finite())
    }

    /// The logarithm of a quantile in seconds alone; none for a metric that the twin does not know.
    pub fn log_of(&self, metric: Metric, q: f64) -> Option<f64> {
        Some(Self::log_among(&self.latencies, metric, q)? + self.blocks_add(metric, q))
    }

    /// What blocks add to the logarithm of a quantile by sums.
    fn blocks_add(&self, metric: Metric, q: f64) -> f64 {
        let difference = |[blocks, sums]: &[Vec<Latencies>; 2]| {
            Some(Self::log_among(blocks, metric, q)? - Self::log_among(sums, metric, q)?)
        };
        self.apart.as_ref().and_then(difference).unwrap_or(0.0)
    }

    fn log_among(latencies: &[Latencies], metric: Metric, q: f64) -> Option<f64> {
        let mut values: Vec<f64> = latencies.iter().filter_map(|l| Self::latency(metric, l)).collect();
        let rank = values.len().checked_sub(1)? - above_quantile(values.len(), q);
        let (_, value, _) = values.select_nth_unstable_by(rank, f64::total_cmp);
        Some(value.max(1e-9).ln())
    }

    /// The logarithm of a quantile in seconds, and its standard error by blocks of time; none for a metric that the twin does not know.
    pub fn log_quantile(&self, metric: Metric, q: f64) -> Option<(f64, f64)> {
        let n = self.latencies.len().max(1);
        let with_block = |(i, l)| Some((Self::latency(metric, l)?, i * BLOCKS / n));
        let mut values: Vec<(f64, usize)> = self.latencies.iter().enumerate().filter_map(with_block).collect();
        let mut sizes = [0; BLOCKS];
        values.iter().for_each(|(_, block)| sizes[*block] += 1);
        // The values above the quantile and as many again are mostly enough for the quantile without any one block. If the slow ones stand close
        // together, one block takes them all with it.
        let few = ((1.0 - q) * values.len() as f64 * 2.0) as usize + BLOCKS;
        let of = |above: usize, values: &mut [(f64, usize)]| {
            let tail = values.len().saturating_sub(above);
            if tail > 0 {
                values.select_nth_unstable_by(tail, |a, b| a.0.total_cmp(&b.0));
            }
            let tail = &mut values[tail..];
            tail.sort_by(|a, b| b.0.total_cmp(&a.0));
            let without = |block: Option<usize>| {
                let kept = sizes.iter().enumerate().filter(|(b, _)| Some(*b) != block).map(|(_, size)| size).sum();
                let found = tail.iter().filter(|v| Some(v.1) != block).nth(above_quantile(kept, q));
                found.map(|v| v.0.max(1e-9).ln())
            };
            let each: Vec<f64> = (0..BLOCKS).map(|b| without(Some(b))).collect::<Option<_>>()?;
            Some((without(None)? + self.blocks_add(metric, q), jackknife(&each).unwrap_or(f64::INFINITY)))
        };
        of(few, &mut values).or_else(|| of(usize::MAX, &mut values))
    }

    /// How many requests had their tokens streamed at the same time, in all but this share of the time: the sizes that batches come to.
    pub fn batch(&self, q: f64) -> u32 {
        let changes = self.latencies.iter().flat_map(|l| [(l.due + l.ttft, 1), (l.due + l.e2e, -1)]);
        // Those that ever come. Of two at the same time, the one that begins is the first.
        let mut changes: Vec<(f64, i32)> = changes.filter(|(at, _)| at.is_finite()).collect();
        changes.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
        let (mut open, mut since, mut times) = (0_i32, 0.0, Vec::new());
        for (at, change) in changes {
            let size = open.max(0) as usize;
            times.resize(times.len().max(size + 1), 0.0);
            times[size] += if open > 0 { at - since } else { 0.0 };
            (open, since) = (open + change, at);
        }
        let (total, mut below): (f64, f64) = (times.iter().sum(), 0.0);
        let reached = times.iter().position(|time| {
            below += time;
            below >= q * total
        });
        reached.unwrap_or(0) as u32
    }

    /// The share of windows of that length in which the quantile stays within the limit, when every latency is `correction` (a
    /// logarithm) longer than the twin says.
    pub fn windows_that_hold(
        &self,
        metric: Metric,
        q: f64,
        limit: Seconds,
        correction: f64,
        length: Seconds,
    ) -> Option<f64> {
        let begin = self.latencies.first()?.due;
        let allowed = limit.0 / (correction + self.blocks_add(metric, q)).exp();
        // By window: how many latencies there are, and how many are above what is allowed.
        let mut windows: Vec<(usize, usize)> = Vec::new();
        for l in &self.latencies {
            let window = ((l.due - begin) / length.0) as usize;
            windows.resize(windows.len().max(window + 1), (0, 0));
            if let Some(latency) = Self::latency(metric, l) {
                windows[window].0 += 1;
                windows[window].1 += usize::from(latency > allowed);
            }
        }
        // The last one is not whole.
        windows.pop();
        windows.retain(|(requests, _)| *requests > 0);
        let held = windows.iter().filter(|(requests, above)| *above <= above_quantile(*requests, q)).count();
        (!windows.is_empty()).then(|| held as f64 / windows.len() as f64)
    }
}

fn answered(sent: &[Sent], answers: &[Answered]) -> impl ExactSizeIterator<Item = (Answered, u32)> {
    sent.iter().zip(answers).map(|(s, a)| (*a, s.output))
}

fn latencies(served: impl ExactSizeIterator<Item = (Answered, u32)>) -> Vec<Latencies> {
    let skipped = (served.len() as f64 * WARM_UP) as usize;
    served.skip(skipped).map(Latencies::of).collect()
}

/// The logarithm of a quantile in seconds of the answers of a window, each with its tokens. None for a metric that the twin does not know.
pub fn log_quantile_of(window: &[(Answered, u32)], metric: Metric, q: f64) -> Option<f64> {
    let all = window.iter().map(|served| Latencies::of(*served));
    let mut values: Vec<f64> = all.filter_map(|l| LongRunReplay::latency(metric, &l)).collect();
    values.sort_unstable_by(f64::total_cmp);
    log_quantile(&values, q)
}

/// How many of so many values lie above their quantile.
fn above_quantile(values: usize, q: f64) -> usize {
    values.saturating_sub(rank(values, q))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_requests_that_stand_close_together_have_a_quantile_too() {
        let wait = |i: u32| if (500..530).contains(&i) { 9.0 } else { 0.1 + f64::from(i % 7) * 0.01 };
        let latencies =
            (0..1000).map(|i| Latencies { due: f64::from(i), ttft: wait(i), tpot: None, e2e: wait(i) }).collect();
        let long = LongRunReplay { latencies, out_of_scope: false, apart: None };
        let (log, error) = long.log_quantile(Metric::Ttft, 0.99).unwrap();
        assert!((log - 9f64.ln()).abs() < 1e-9 && error > 1.0, "one block makes the quantile: {error}");
        assert_eq!(long.log_of(Metric::Ttft, 0.99), Some(log));
    }

    #[test]
    fn batches_are_as_large_as_answers_overlap() {
        // Ten requests a second, each streamed for two seconds: twenty at a time.
        let latencies =
            (0..2000).map(|i| Latencies { due: f64::from(i) * 0.1, ttft: 0.05, tpot: None, e2e: 2.051 }).collect();
        let long = LongRunReplay { latencies, out_of_scope: false, apart: None };
        assert!((20..=21).contains(&long.batch(0.99)), "{}", long.batch(0.99));
    }
}
