//! The paired estimate: what was measured, minus the twin on the same arrivals, plus the twin on long traffic.
//!
//! The twin is a control variate: it removes the luck of the arrivals. What it explains badly stays in the error. The error comes from blocks of
//! time and from probe to probe, never from the twin's own belief. Failures are not explained away. With one in the window, or where the twin
//! leaves its scope, the plain count decides and the result says why.
//!
//! Later turns of a conversation follow the answers of the twin, in the window as in the long run.

mod long;
mod pairs;
mod quantile;

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, FisherSnedecor, StudentsT};

use crate::verdict::Window;
use crate::verdict::error_bar::{confidence, sorted};
use autotune_numerics::spread::{combined, jackknife, squares};
use autotune_plan::settings::Limit;
use autotune_records::quantiles::quantile_of_sorted;
use autotune_records::units::Seconds;
use autotune_twin::{Fit, Probe};

pub use long::{Flight, LongRunReplay, latency, log_quantile_of};
use pairs::{Block, Pairs, quantiles};

/// The twin must explain at least this share of the variance for its word to count.
const EXPLAINED_ENOUGH: f64 = 0.5;
/// The upper quantile by which blocks of time are compared ...
const OF_A_BLOCK: f64 = 0.9;
/// ... where they hold at least this many requests.
const LEAST_IN_A_BLOCK: usize = 8;
/// The same requests sent twice give p99s within about 3 % (measured on an H200 with vLLM 0.24). So each has an error of 2 % of its own, and no
/// probe is surer.
const FLOOR: f64 = 0.02;
/// By this factor the twin is slowed to see what a quantile makes of it.
const SLOWER: f64 = 1.03;
/// The spread of an engine's speed from probe to probe on a GPU of its own, in logarithms. Its weight beside what a session shows is in degrees of
/// freedom. In the last fits of 16 sessions on H200s the spread was 0.2 to 2.1 %. Of their squares over that of this spread, a distribution F with
/// this freedom has the largest likelihood.
const SPREAD_OF_SPEED: f64 = 0.0075;
const SPREAD_FREEDOM: f64 = 2.5;
/// An engine is steadier than this quantile of those on a GPU of their own, or other sessions say nothing of it.
const UNSTEADY: f64 = 0.95;
/// The degrees of freedom of an error that earlier runs told, such as these two: they stand on some dozen runs.
pub const FREEDOM_BEFOREHAND: f64 = 30.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Judge {
    Paired,
    PlainCount,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Paired {
    /// Such as `ttft_p99`.
    pub key: String,
    pub at_most: Seconds,
    pub requests: usize,
    /// The quantile as measured in the windows.
    pub measured: Seconds,
    /// The quantile that the twin replays for the same requests.
    pub replayed: Seconds,
    /// The quantile that the twin expects in a long run.
    pub long: Seconds,
    /// The quantile that the measurement implies for a long run.
    pub estimate: Seconds,
    /// The standard error of its logarithm.
    pub error: f64,
    pub freedom: f64,
    /// The standard error of the logarithm of the measured quantile alone, by the same blocks.
    pub direct_error: f64,
    /// The share of the variance from block to block of time, in the logarithm of an upper quantile, that the twin explains.
    pub explained: f64,
    /// log(estimate / limit): negative is inside.
    pub margin: f64,
    /// One-sided confidence that the promise holds in a long run.
    pub confidence: f64,
    pub judge: Judge,
    /// Why the plain count decides; empty where it does not.
    pub because: String,
}

impl Paired {
    /// The estimate with one more error, such as that of a load which nobody has measured.
    pub fn doubted(self, more: f64) -> Self {
        let (error, freedom) = combined(&[(self.error, self.freedom), (more, FREEDOM_BEFOREHAND)]);
        Self { error, freedom, confidence: confidence(self.margin, error, freedom), ..self }
    }

    /// Whether the twin decides, or explains too little to; `None` if something else lets the count decide.
    pub fn tells(&self) -> Option<bool> {
        match self.judge {
            Judge::Paired => Some(true),
            Judge::PlainCount => (self.explained < EXPLAINED_ENOUGH).then_some(false),
        }
    }

    /// The interval in seconds that holds the truth with this probability, such as 0.9.
    pub fn interval(&self, probability: f64) -> (Seconds, Seconds) {
        let t = StudentsT::new(0.0, 1.0, self.freedom.max(1.0)).map_or(2.0, |t| t.inverse_cdf(0.5 + 0.5 * probability));
        let width = (t * self.error).exp();
        (Seconds(self.estimate.0 / width), Seconds(self.estimate.0 * width))
    }
}

/// A twin, and the probes of its session by which it is checked: others than the judged one, each with its window, and no burst.
#[derive(Clone, Copy, Debug)]
pub struct CheckedTwin<'a> {
    pub fit: &'a Fit,
    pub others: &'a [(&'a Probe, Window)],
    /// Whether others may use the machine of the engine, so that its speed differs more than that of a GPU of its own.
    pub shared: bool,
}

impl CheckedTwin<'_> {
    /// The standard deviation of the logarithm of the engine's speed from probe to probe, and its degrees of freedom. Three probes alone say little
    /// of a spread. So on a GPU of its own the fit's is weighed with that of other sessions, unless it is above what 95 % of them show.
    fn spread_of_speed(&self) -> (f64, f64) {
        let (spread, freedom) = self.fit.run_to_run();
        let beside_others = (spread / SPREAD_OF_SPEED).powi(2);
        let is_unsteady = FisherSnedecor::new(freedom, SPREAD_FREEDOM).is_ok_and(|f| f.cdf(beside_others) > UNSTEADY);
        if self.shared || is_unsteady {
            return (spread, freedom);
        }
        let both = freedom + SPREAD_FREEDOM;
        (((freedom * spread.powi(2) + SPREAD_FREEDOM * SPREAD_OF_SPEED.powi(2)) / both).sqrt(), both)
    }
}

/// The paired estimates of a probe that is not in the fit.
///
/// A promise that the twin cannot replay (gaps between tokens), or of which no answer was measured, has none: the plain count decides it.
pub fn estimate(
    probe: &Probe,
    window: Window,
    twin: CheckedTwin,
    long: &LongRunReplay,
    limits: &[Limit],
) -> Vec<Paired> {
    let costs = &twin.fit.costs;
    let pairs = Pairs::new(probe, window, costs);
    let slower = Pairs::new(probe, window, &costs.slower(SLOWER));
    let others = twin.others.iter().map(|(other, window)| Pairs::new(other, *window, costs));
    let others: Vec<Pairs> = others.filter(|other| !other.out_of_scope).collect();
    let speed = twin.spread_of_speed();
    limits.iter().filter_map(|limit| one(&pairs, &slower, &others, speed, long, limit)).collect()
}

fn one(
    pairs: &Pairs,
    slower: &Pairs,
    others: &[Pairs],
    (speed, speed_freedom): (f64, f64),
    long: &LongRunReplay,
    limit: &Limit,
) -> Option<Paired> {
    let blocks = pairs.blocks(limit.metric);
    let q = limit.quantile;
    let [measured, replayed] = quantiles(&blocks, None, q)?;
    let (expected, long_error) = long.log_quantile(limit.metric, q)?;
    let without: Vec<[f64; 2]> = (0..blocks.len()).map(|b| quantiles(&blocks, Some(b), q)).collect::<Option<_>>()?;
    let error =
        |of: fn(&[f64; 2]) -> f64| jackknife(&without.iter().map(of).collect::<Vec<f64>>()).unwrap_or(f64::INFINITY);
    let (direct_error, left) = (error(|w| w[0]), error(|w| w[0] - w[1]));
    let explained = explained(&blocks, q);
    let shift = expected - replayed;
    let [_, replayed_slower] = quantiles(&slower.blocks(limit.metric), None, q)?;
    let by_speed = (replayed_slower - replayed) / SLOWER.ln();
    let between = (by_speed * speed).abs();
    let of_blocks = blocks.len() as f64 - 1.0;
    // What all blocks of a probe have in common.
    let shared = if between > FLOOR { (between, speed_freedom) } else { (FLOOR, FREEDOM_BEFOREHAND) };
    let residual = if left > shared.0 { (left, of_blocks) } else { shared };
    // What the twin explains badly of how calm and busy times differ, it also explains badly of the way from here to a long run.
    let others = others.iter().filter(|other| other.failures(limit.metric) == 0);
    let probes = others.map(|other| by_block(&other.blocks(limit.metric), q)).chain([by_block(&blocks, q)]);
    let (slope_error, slope_freedom) = slope_error(&probes.collect::<Vec<_>>(), shared);
    let (error, freedom) =
        combined(&[residual, (long_error, LongRunReplay::FREEDOM), (slope_error * shift, slope_freedom)]);
    let estimate = measured + shift;
    let margin = estimate - limit.at_most.0.ln();
    let confidence = confidence(margin, error, freedom);
    let because = objection(pairs.failures(limit.metric), pairs.out_of_scope || long.out_of_scope, explained);
    let all = sorted(blocks.iter().map(|b| &b.measured), None);
    Some(Paired {
        key: limit.key(),
        at_most: limit.at_most,
        requests: all.len(),
        measured: Seconds(quantile_of_sorted(&all, q)?),
        replayed: Seconds(replayed.exp()),
        long: Seconds(expected.exp()),
        estimate: Seconds(estimate.exp()),
        error,
        freedom,
        direct_error,
        explained,
        margin,
        confidence,
        judge: if because.is_empty() { Judge::Paired } else { Judge::PlainCount },
        because,
    })
}

/// The share of the variance between blocks of time that the twin explains, by the upper quantile that a block is large enough for.
fn explained(blocks: &[Block], q: f64) -> f64 {
    let each = by_block(blocks, q);
    let measured = variation(&each, |e| e[0]);
    if each.len() < 4 || measured <= 0.0 {
        0.0
    } else {
        (1.0 - variation(&each, |e| e[0] - e[1]) / measured).clamp(0.0, 1.0)
    }
}

/// The error of the slope of measured over replayed quantiles, from block to block of all these probes, and its degrees of freedom.
///
/// The twin takes the slope to be one. So the error is the least squares' standard error, or the distance of their slope from one where that is
/// more. It is one at most. Blocks of one probe have an error in common besides their own: `shared`, with its degrees of freedom.
fn slope_error(probes: &[Vec<[f64; 2]>], shared: (f64, f64)) -> (f64, f64) {
    let each: Vec<[f64; 2]> = probes.concat();
    let replayed = variation(&each, |e| e[1]);
    if each.len() < 4 || replayed <= 0.0 {
        return (1.0, FREEDOM_BEFOREHAND);
    }
    // Of two sums of squares and that of the difference: 2 Σxy = Σx² + Σy² − Σ(x − y)².
    let (measured, left) = (variation(&each, |e| e[0]), variation(&each, |e| e[0] - e[1]));
    let slope = (measured + replayed - left) / 2.0 / replayed;
    let (rest, freedom) = ((measured - slope.powi(2) * replayed).max(0.0), each.len() as f64 - 2.0);
    let mean = each.iter().map(|e| e[1]).sum::<f64>() / each.len() as f64;
    let leverage = |probe: &Vec<[f64; 2]>| probe.iter().map(|e| e[1] - mean).sum::<f64>() / replayed;
    let by_probe = shared.0 * probes.iter().map(|probe| leverage(probe).powi(2)).sum::<f64>().sqrt();
    let (error, freedom) = combined(&[((rest / freedom / replayed).sqrt(), freedom), (by_probe, shared.1)]);
    (error.max((slope - 1.0).abs()).min(1.0), freedom)
}

/// The logarithms of the upper quantile of each block that is large enough for one: measured, and replayed.
fn by_block(blocks: &[Block], q: f64) -> Vec<[f64; 2]> {
    let enough = blocks.iter().filter(|b| b.measured.len() >= LEAST_IN_A_BLOCK);
    enough.filter_map(|b| quantiles(std::slice::from_ref(b), None, q.min(OF_A_BLOCK))).collect()
}

/// The sum of the squared distances from the mean.
fn variation(each: &[[f64; 2]], of: fn(&[f64; 2]) -> f64) -> f64 {
    squares(&each.iter().map(of).collect::<Vec<f64>>())
}

fn objection(failures: usize, out_of_scope: bool, explained: f64) -> String {
    if failures > 0 {
        format!("{failures} requests have no whole answer, which no arrival explains")
    } else if out_of_scope {
        "the KV cache fills, and the replay does not know which shared prefixes it then loses".to_owned()
    } else if explained < EXPLAINED_ENOUGH {
        format!("the twin explains only {:.0} % of the variance", explained * 100.0)
    } else {
        String::new()
    }
}

#[cfg(test)]
mod tests;
