//! Replays long traffic through the twin. Estimates quantiles and batch sizes.

use super::quantile::log_quantile;
use autotune_numerics::spread::jackknife;
use autotune_plan::settings::Metric;
use autotune_records::quantiles::rank;
use autotune_twin::{Answered, Bounds, FastReplay, Pressure, Sent, StepCosts, replay_faithfully};

/// Blocks of the long run, for the error that is left in it.
const BLOCKS: usize = 20;
/// The part of the long run that starts the engine up and does not count.
const WARM_UP: f64 = 0.02;

#[derive(Clone, Debug, PartialEq)]
pub struct LongRunReplay {
    flights: Vec<Flight>,
    /// Whether the replay left what the model knows.
    pub out_of_scope: bool,
    /// A part of the traffic, served block by block and by sums.
    apart: Option<[Vec<Flight>; 2]>,
}

/// A request of a long run: when it was due, its first and last token (infinite if they never came), and its answer's tokens.
pub type Flight = (Answered, u32);

/// Infinite where a token never came. `None` for a metric that the twin does not know, and for the TPOT of an answer of one token.
pub fn latency(metric: Metric, (a, output): Flight) -> Option<f64> {
    match metric {
        Metric::Ttft => Some(a.first - a.at),
        Metric::Tpot => a.tpot(output),
        Metric::E2e => Some(a.last - a.at),
        Metric::Itl => None,
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
        Self { flights: warm(answered(&sent, &answers)), out_of_scope: fidelity.out_of_scope(), apart: None }
    }

    /// The long run, corrected by a part of the traffic that was also served block by block. Sums do not know which prefixes the cache loses, and
    /// blocks take too long for all requests. What `blocks` and `sums` of the same part differ by is added to the quantiles.
    pub fn corrected(self, blocks: Self, sums: Self) -> Self {
        Self { apart: Some([blocks.flights, sums.flights]), ..self }
    }

    pub fn served(served: &[Flight]) -> Self {
        Self { flights: warm(served.iter().copied()), out_of_scope: false, apart: None }
    }

    /// A long run by sums alone, and its pressure: quicker, and cruder if the KV cache limits.
    pub fn by_sums(costs: &StepCosts, bounds: Bounds, sent: &[Sent], memory: &mut FastReplay) -> (Self, Pressure) {
        let mut answers: Vec<Answered> = Vec::new();
        let strain = memory.run(costs, bounds, sent, &mut answers);
        let out_of_scope = strain.preemptions > 0 || strain.kv_full > 0;
        (Self { flights: warm(answered(sent, &answers)), out_of_scope, apart: None }, strain)
    }

    fn latency(metric: Metric, flight: &Flight) -> Option<f64> {
        latency(metric, *flight).filter(|l| l.is_finite())
    }

    /// The logarithm of a quantile in seconds alone; none for a metric that the twin does not know.
    pub fn log_of(&self, metric: Metric, q: f64) -> Option<f64> {
        Some(Self::log_among(&self.flights, metric, q)? + self.blocks_add(metric, q))
    }

    /// What blocks add to the logarithm of a quantile by sums.
    fn blocks_add(&self, metric: Metric, q: f64) -> f64 {
        let difference = |[blocks, sums]: &[Vec<Flight>; 2]| {
            Some(Self::log_among(blocks, metric, q)? - Self::log_among(sums, metric, q)?)
        };
        self.apart.as_ref().and_then(difference).unwrap_or(0.0)
    }

    fn log_among(flights: &[Flight], metric: Metric, q: f64) -> Option<f64> {
        let mut values: Vec<f64> = flights.iter().filter_map(|l| Self::latency(metric, l)).collect();
        let rank = values.len().checked_sub(1)? - above_quantile(values.len(), q);
        let (_, value, _) = values.select_nth_unstable_by(rank, f64::total_cmp);
        Some(value.max(1e-9).ln())
    }

    /// The logarithm of a quantile in seconds, and its standard error by blocks of time; none for a metric that the twin does not know.
    pub fn log_quantile(&self, metric: Metric, q: f64) -> Option<(f64, f64)> {
        let n = self.flights.len().max(1);
        let with_block = |(i, l)| Some((Self::latency(metric, l)?, i * BLOCKS / n));
        let mut values: Vec<(f64, usize)> = self.flights.iter().enumerate().filter_map(with_block).collect();
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
        let changes =
            self.flights.iter().flat_map(|(a, _)| [(a.at + (a.first - a.at), 1), (a.at + (a.last - a.at), -1)]);
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
}

fn answered(sent: &[Sent], answers: &[Answered]) -> impl ExactSizeIterator<Item = Flight> {
    sent.iter().zip(answers).map(|(s, a)| (*a, s.output))
}

/// Those of a warm engine.
fn warm(served: impl ExactSizeIterator<Item = Flight>) -> Vec<Flight> {
    let skipped = (served.len() as f64 * WARM_UP) as usize;
    served.skip(skipped).collect()
}

/// The logarithm of a quantile in seconds of the answers of a window, each with its tokens. None for a metric that the twin does not know.
pub fn log_quantile_of(window: &[Flight], metric: Metric, q: f64) -> Option<f64> {
    let mut values: Vec<f64> = window.iter().filter_map(|l| LongRunReplay::latency(metric, l)).collect();
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
        let at = |i: u32| Answered { at: f64::from(i), first: f64::from(i) + wait(i), last: f64::from(i) + wait(i) };
        let flights = (0..1000).map(|i| (at(i), 1)).collect();
        let long = LongRunReplay { flights, out_of_scope: false, apart: None };
        let (log, error) = long.log_quantile(Metric::Ttft, 0.99).unwrap();
        assert!((log - 9f64.ln()).abs() < 1e-9 && error > 1.0, "one block makes the quantile: {error}");
        assert_eq!(long.log_of(Metric::Ttft, 0.99), Some(log));
    }

    #[test]
    fn batches_are_as_large_as_answers_overlap() {
        // Ten requests a second, each streamed for two seconds: twenty at a time.
        let at = |at: f64| (Answered { at, first: at + 0.05, last: at + 2.051 }, 1);
        let flights = (0..2000).map(|i| at(f64::from(i) * 0.1)).collect();
        let long = LongRunReplay { flights, out_of_scope: false, apart: None };
        assert!((20..=21).contains(&long.batch(0.99)), "{}", long.batch(0.99));
    }
}
