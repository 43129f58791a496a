//! The fit: probes as they were sent and answered -> the coefficients of the engine's steps, how sure they are, and what is left over.
//!
//! Failed requests load the engine of the replay and are no evidence of how fast it is; they are counted. The search starts from
//! several guesses, since whether the engine composes its steps ahead makes local minima of its own.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::coefficients::{self, AHEAD, COUNT, OVERHEAD};
use super::costs::StepCosts;
use super::loss::Loss;
use super::observed::Probe;
use super::residuals::Residuals;
use super::uncertainty;
use autotune_numerics::parallel;
use autotune_numerics::simplex::minimize;
use autotune_numerics::spread::squares;

/// Fewer answers than this say too little about so many coefficients.
const LEAST_ANSWERS: usize = 100;
/// The starts search on this many probes, spread over the load; the best goes on with all.
const PROBES_OF_A_START: usize = 3;
/// How far a hop goes, in logarithms, and the downhill steps after it.
const HOP: f64 = 1.5;
const STEPS_OF_A_HOP: usize = 6;
/// The loss is jagged by about as much: what differs by less is as good.
const JAGS: f64 = 15.0;
/// Another round of hops wants this gain in the log likelihood of the last one.
const WORTH_A_ROUND: f64 = 2.0;
/// Downhill steps to the steps that were seen: each costs next to nothing.
const STEPS_TO_SEEN: usize = 60;
/// A simplex moves at most so often; with fewer moves than the least it has not even turned around.
const MOST_MOVES: f64 = 1500.0;
const LEAST_MOVES: u64 = 50;
/// Downhill steps where a simplex was before, and little is left to gain.
const LAST_STEPS: usize = 8;

/// What a fit may cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effort {
    /// Downhill steps of a descent from each first guess; most end earlier, when they gain nothing more.
    pub steps: usize,
    /// Rounds of hops from the best descent: each coefficient is set far off, and the others follow.
    pub hops: usize,
    /// Requests that the polish may replay, not counting the descents.
    pub polish: f64,
}

impl Effort {
    /// For an answer that stays: some seconds of a core for ten probes.
    pub const FULL: Self = Self { steps: 30, hops: 1, polish: 1e7 };
    /// For a session, which fits again and again while an engine waits.
    pub const SESSION: Self = Self { steps: 15, hops: 1, polish: 5e5 };
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Coefficient {
    /// The field of [`StepCosts`].
    pub name: String,
    /// Its value in the unit of the field.
    pub value: f64,
    /// The standard error of its logarithm, or of its log odds if it is a share. It comes from blocks of time, and from how far the value can move
    /// without a larger loss. It is too small for terms that make up for each other, such as overlap and those of prefill. On an engine with known
    /// coefficients their sum is right and each of them is not (commit d2c0404: `cargo run --release --example paired_coverage -- coefficients`).
    pub log_error: f64,
}

/// What probes say about an engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    pub costs: StepCosts,
    /// Each coefficient with its error, from the spread over blocks of time.
    pub coefficients: Vec<Coefficient>,
    /// What the data leave open, in words: coefficients that they are silent on, and pairs that they cannot tell apart.
    pub open: Vec<String>,
    /// What the twin does not explain.
    pub residuals: Residuals,
    /// The negative log likelihood; comparable between fits to the same probes alone.
    pub loss: f64,
    /// How often the probes were replayed.
    pub replays: u64,
}

impl Fit {
    /// The standard deviation from probe to probe of the logarithm of the engine's speed, and its degrees of freedom. No arrival
    /// explains it, and no single probe shows it.
    pub fn run_to_run(&self) -> (f64, f64) {
        let logs: Vec<f64> = self.residuals.probes.iter().map(|p| p.slower.ln()).collect();
        let freedom = logs.len() as f64 - 1.0;
        if freedom < 1.0 { (0.0, 0.0) } else { ((squares(&logs) / freedom).sqrt(), freedom) }
    }
}

/// Why there is no fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FitError {
    /// The probes hold too few whole answers.
    TooFewAnswers { answers: usize },
}

impl fmt::Display for FitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::TooFewAnswers { answers } = self;
        write!(f, "{answers} whole answers are too few for a fit, which wants {LEAST_ANSWERS}")
    }
}

impl std::error::Error for FitError {}

/// Fits the engine's steps to these probes.
pub fn fit(probes: &[Probe], effort: Effort) -> Result<Fit, FitError> {
    fit_anew(probes, None, effort)
}

/// Fits to probes with an earlier fit among the starts. What that found is not lost. If new probes say otherwise, it holds nothing back.
pub fn fit_anew(probes: &[Probe], earlier: Option<&Fit>, effort: Effort) -> Result<Fit, FitError> {
    enough(probes)?;
    let center = center(probes);
    let some = spread_over_load(probes);
    // The log odds of composing ahead: no, half, yes; and yes with a quicker way into the queue, which looks alike.
    let guesses = [(-3.0, 0.0), (0.0, 0.0), (3.0, 0.0), (3.0, -1.0)].map(|(ahead, overhead)| {
        let mut start = moved(&center, OVERHEAD, overhead);
        start[AHEAD] = ahead;
        start
    });
    let starts: Vec<_> =
        guesses.into_iter().chain(earlier.map(|fit| coefficients::pack(&fit.costs).to_vec())).collect();
    let (mut best, mut replays) = ((center.to_vec(), f64::INFINITY), 0);
    for (found, took) in descents(&some, center, &starts, effort.steps) {
        if found.1 < best.1 {
            best = found;
        }
        replays += took;
    }
    // Where steps were seen, they have led to the right local minimum.
    let hops = if probes.iter().all(|probe| probe.steps().is_empty()) { effort.hops } else { 0 };
    let (reach, of_hops) = hop(&some, center, &mut best, hops);
    let loss = Loss::new(probes, center, coefficients::prior_sd());
    let best = polish(&loss, probes, &best.0, &[0.4, 0.2], effort);
    let mut covariance = uncertainty::covariance(&loss, &best.0, probes);
    reach.iter().enumerate().for_each(|(i, reach)| covariance[i][i] += reach.powi(2));
    let of = |i: usize| Coefficient {
        name: coefficients::name(i).to_owned(),
        value: coefficients::value(&best.0, i),
        log_error: covariance[i][i].max(0.0).sqrt(),
    };
    Ok(Fit {
        costs: coefficients::unpack(&best.0),
        coefficients: (0..COUNT).map(of).collect(),
        open: uncertainty::open(&covariance),
        residuals: Residuals::of(&loss, &best.0, probes),
        loss: best.1,
        replays: replays + of_hops + loss.replays(),
    })
}

/// Leaves a local minimum for a better one. Overlap, mixed steps and what prompts cost make up for each other along curves that no downhill
/// step follows. One of them is set far off, the others follow, and whatever ends lower stays. All hops of a round begin at the same place, on
/// every core. Returns how far each coefficient got from the best while the loss hardly rose, and how often the probes were replayed.
fn hop(probes: &[Probe], center: [f64; COUNT], best: &mut (Vec<f64>, f64), rounds: usize) -> ([f64; COUNT], u64) {
    let (mut visited, mut replays) = (Vec::new(), 0);
    let hops: Vec<(usize, f64)> = (0..COUNT).flat_map(|i| [(i, -HOP), (i, HOP)]).collect();
    for _ in 0..rounds {
        let before = best.clone();
        let starts: Vec<_> = hops.iter().map(|(i, by)| moved(&before.0, *i, *by)).collect();
        for (found, took) in descents(probes, center, &starts, STEPS_OF_A_HOP) {
            if found.1 < best.1 {
                *best = found.clone();
            }
            visited.push(found);
            replays += took;
        }
        if before.1 - best.1 < WORTH_A_ROUND {
            break;
        }
    }
    let as_good = || visited.iter().filter(|(_, loss)| *loss < best.1 + JAGS);
    (std::array::from_fn(|i| as_good().map(|(x, _)| (x[i] - best.0[i]).abs()).fold(0.0, f64::max)), replays)
}

/// A descent from each start, on every core: the point that it comes to with its loss, and how often it replayed the probes.
fn descents(probes: &[Probe], center: [f64; COUNT], starts: &[Vec<f64>], steps: usize) -> Vec<((Vec<f64>, f64), u64)> {
    let descend = |start: &Vec<f64>| {
        let loss = Loss::new(probes, center, coefficients::prior_sd());
        (loss.descend(start, steps), loss.replays())
    };
    parallel::map(starts, descend, |_| ())
}

fn moved(from: &[f64], coefficient: usize, by: f64) -> Vec<f64> {
    let mut moved = from.to_vec();
    moved[coefficient] += by;
    moved
}

/// The step times by other probes than those of an earlier fit. It goes downhill from that fit: quick, and it stays in its local minimum.
pub fn refit(probes: &[Probe], earlier: &Fit, effort: Effort) -> Result<StepCosts, FitError> {
    enough(probes)?;
    let loss = Loss::new(probes, center(probes), coefficients::prior_sd());
    let effort = Effort { polish: effort.polish / 2.0, ..effort };
    Ok(coefficients::unpack(&polish(&loss, probes, &coefficients::pack(&earlier.costs), &[0.15], effort).0))
}

/// Where the search begins, and where coefficients stay that the data are silent on: the first guess, and where steps were seen, what fits them.
fn center(probes: &[Probe]) -> [f64; COUNT] {
    let guess = coefficients::pack(&coefficients::guess(probes));
    if probes.iter().all(|probe| probe.steps().is_empty()) {
        return guess;
    }
    let (found, _) = Loss::of_steps(probes, guess, coefficients::prior_sd()).descend(&guess, STEPS_TO_SEEN);
    std::array::from_fn(|i| found[i])
}

fn enough(probes: &[Probe]) -> Result<(), FitError> {
    let answers: usize = probes.iter().map(|p| p.requests().len() - p.failures()).sum();
    if answers < LEAST_ANSWERS { Err(FitError::TooFewAnswers { answers }) } else { Ok(()) }
}

/// Polishes with simplexes of these edges: the best point and its loss.
fn polish(loss: &Loss, probes: &[Probe], start: &[f64], edges: &[f64], effort: Effort) -> (Vec<f64>, f64) {
    let requests: usize = probes.iter().map(|p| p.requests().len()).sum();
    let steps = LAST_STEPS.min(effort.steps);
    let moves = (effort.polish / requests as f64 / edges.len() as f64).min(MOST_MOVES) as u64;
    let mut best = loss.descend(start, steps);
    for edge in edges.iter().filter(|_| moves >= LEAST_MOVES) {
        let found = minimize(|x| loss.at(x), &best.0, &[*edge; COUNT], moves);
        if found.1 < best.1 {
            best = found;
        }
        best = loss.descend(&best.0, steps);
    }
    best
}

/// A few of the probes, from the least to the most loaded.
fn spread_over_load(probes: &[Probe]) -> Vec<Probe> {
    let mut order: Vec<&Probe> = probes.iter().collect();
    order.sort_by(|a, b| a.rate().total_cmp(&b.rate()));
    let last = order.len().saturating_sub(1);
    let mut chosen: Vec<usize> = (0..PROBES_OF_A_START).map(|i| i * last / (PROBES_OF_A_START - 1)).collect();
    chosen.dedup();
    chosen.into_iter().filter_map(|i| order.get(i).map(|p| (*p).clone())).collect()
}

#[cfg(test)]
mod tests;
