//! How unsteady an engine is: a speed of its own in every launch, and steps that jitter and sometimes stall.
//!
//! For simulated engines alone: the twin that replays measured requests has none.

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use serde::{Deserialize, Serialize};

/// The unsteadiness of an engine. A value that is absent is none of its kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Noise {
    /// Standard deviation of the logarithm of a launch's speed.
    pub run_to_run: f64,
    /// Standard deviation of the logarithm of a step's duration, around its launch's speed.
    pub step_to_step: f64,
    /// The share of steps that stall, 0 to 1.
    pub stall_chance: f64,
    /// Mean seconds of a stall; each lasts up to twice as long.
    pub stall_seconds: f64,
}

/// Spreads beyond this are a mistake: with a spread of 1, one launch in six would be 2.7 times slower than the median.
const LARGEST_SPREAD: f64 = 1.0;

impl Noise {
    /// What no engine can have.
    pub(super) fn mistake(&self) -> Option<String> {
        [
            ("run_to_run", self.run_to_run, LARGEST_SPREAD),
            ("step_to_step", self.step_to_step, LARGEST_SPREAD),
            ("stall_chance", self.stall_chance, 1.0),
            ("stall_seconds", self.stall_seconds, f64::MAX),
        ]
        .into_iter()
        .find(|(_, value, most)| !(0.0..=*most).contains(value))
        .map(|(key, value, _)| format!("`noise.{key}` is {value}, which is too large or negative"))
    }

    /// The factor on the duration of every step of the launch with that seed.
    pub fn of_launch(&self, seed: u64) -> f64 {
        (self.run_to_run * normal(&mut ChaCha8Rng::seed_from_u64(seed))).exp()
    }
}

/// What becomes of the durations of steps, one after the other.
#[derive(Clone, Debug)]
pub struct Unsteady(Option<(Noise, f64, ChaCha8Rng)>);

impl Unsteady {
    /// For steps of an engine with that factor from its launch; without noise, every step lasts as the model says.
    pub fn new(noise: Option<Noise>, launch_factor: f64, seed: u64) -> Self {
        Self(noise.map(|noise| (noise, launch_factor, ChaCha8Rng::seed_from_u64(seed))))
    }

    /// Seconds that a step takes which the model says takes `seconds`.
    pub fn seconds(&mut self, seconds: f64) -> f64 {
        let Some((noise, launch_factor, rng)) = &mut self.0 else { return seconds };
        let jitter = (noise.step_to_step * normal(rng)).exp();
        let stalls = rng.random::<f64>() < noise.stall_chance;
        let stall = if stalls { 2.0 * noise.stall_seconds * rng.random::<f64>() } else { 0.0 };
        seconds * *launch_factor * jitter + stall
    }
}

fn normal(rng: &mut impl Rng) -> f64 {
    rng.sample(StandardNormal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise() -> Noise {
        Noise { run_to_run: 0.05, step_to_step: 0.1, stall_chance: 0.01, stall_seconds: 0.1 }
    }

    fn spread(values: &[f64]) -> f64 {
        let logs: Vec<f64> = values.iter().map(|v| v.ln()).collect();
        let mean = logs.iter().sum::<f64>() / logs.len() as f64;
        (logs.iter().map(|l| (l - mean).powi(2)).sum::<f64>() / logs.len() as f64).sqrt()
    }

    #[test]
    fn launches_and_steps_spread_as_the_profile_says() {
        let launches: Vec<f64> = (0..4000).map(|seed| noise().of_launch(seed)).collect();
        assert!((spread(&launches) / 0.05 - 1.0).abs() < 0.05, "{}", spread(&launches));
        let steady = Noise { stall_chance: 0.0, ..noise() };
        let mut unsteady = Unsteady::new(Some(steady), 1.0, 7);
        let steps: Vec<f64> = (0..4000).map(|_| unsteady.seconds(0.02)).collect();
        assert!((spread(&steps) / 0.1 - 1.0).abs() < 0.05, "{}", spread(&steps));
    }

    #[test]
    fn stalls_are_as_rare_and_as_long_as_the_profile_says() {
        let mut unsteady = Unsteady::new(Some(Noise { step_to_step: 0.0, ..noise() }), 1.0, 1);
        let stalls: Vec<f64> = (0..100_000).map(|_| unsteady.seconds(0.0)).filter(|s| *s > 0.0).collect();
        assert!((900..1100).contains(&stalls.len()), "{}", stalls.len());
        let mean = stalls.iter().sum::<f64>() / stalls.len() as f64;
        assert!((mean - 0.1).abs() < 0.01, "{mean}");
    }

    #[test]
    fn the_same_seed_is_the_same_noise_and_no_noise_changes_nothing() {
        let run = |seed| {
            let mut unsteady = Unsteady::new(Some(noise()), noise().of_launch(seed), seed);
            (0..50).map(|_| unsteady.seconds(0.01)).collect::<Vec<f64>>()
        };
        assert_eq!(run(3), run(3));
        assert_ne!(run(3), run(4));
        assert_eq!(Unsteady::new(None, 1.0, 3).seconds(0.01), 0.01);
    }
}
