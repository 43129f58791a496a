//! Noise of simulated engines: each launch has its own speed, which may wander and fall, and steps jitter and sometimes stall.
//!
//! The twin that replays measured requests has no noise.

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use serde::{Deserialize, Serialize};

/// The noise of an engine; zero is none of that kind.
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
    /// The share by which the speed of a launch swings to both sides.
    #[serde(skip_serializing_if = "is_zero")]
    pub wander: f64,
    /// The seconds that a swing there and back takes.
    #[serde(skip_serializing_if = "is_zero")]
    pub wander_seconds: f64,
    /// The share by which steps are longer in the end than after the launch.
    #[serde(skip_serializing_if = "is_zero")]
    pub ageing: f64,
    /// The seconds after which all but 1/e of that has come.
    #[serde(skip_serializing_if = "is_zero")]
    pub ageing_seconds: f64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

/// How a launch differs from the median launch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Launch {
    /// The factor on the duration of every step.
    pub factor: f64,
    /// Where in its swing the speed is at the launch, 0 to 1.
    pub phase: f64,
}

impl Launch {
    pub const MEDIAN: Self = Self { factor: 1.0, phase: 0.0 };
}

/// Spreads beyond this are a mistake: with a spread of 1, one launch in six would be 2.7 times slower than the median.
const LARGEST_SPREAD: f64 = 1.0;

impl Noise {
    /// The first value that no engine can have, in words.
    pub(super) fn mistake(&self) -> Option<String> {
        [
            ("run_to_run", self.run_to_run, LARGEST_SPREAD),
            ("step_to_step", self.step_to_step, LARGEST_SPREAD),
            ("stall_chance", self.stall_chance, 1.0),
            ("stall_seconds", self.stall_seconds, f64::MAX),
            ("wander", self.wander, LARGEST_SPREAD / 2.0),
            ("wander_seconds", self.wander_seconds, f64::MAX),
            ("ageing", self.ageing, LARGEST_SPREAD),
            ("ageing_seconds", self.ageing_seconds, f64::MAX),
        ]
        .into_iter()
        .find(|(_, value, most)| !(0.0..=*most).contains(value))
        .map(|(key, value, _)| format!("`noise.{key}` is {value}, which is too large or negative"))
    }

    pub fn of_launch(&self, seed: u64) -> Launch {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        Launch { factor: (self.run_to_run * normal(&mut rng)).exp(), phase: rng.random() }
    }

    pub fn keeps_speed(&self) -> bool {
        self.wander == 0.0 && self.ageing == 0.0
    }

    /// The factor on the duration of a step, so many seconds after the launch.
    fn drift(&self, launch: Launch, age: f64) -> f64 {
        if self.keeps_speed() {
            return 1.0;
        }
        let swing = (std::f64::consts::TAU * (launch.phase + age / self.wander_seconds.max(1.0))).sin();
        let aged = 1.0 - (-age / self.ageing_seconds.max(1.0)).exp();
        (1.0 + self.wander * swing) * (1.0 + self.ageing * aged)
    }
}

/// Draws the durations of steps, one after the other.
#[derive(Clone, Debug)]
pub struct Unsteady(Option<(Noise, Launch, ChaCha8Rng)>);

impl Unsteady {
    /// For the steps of one launch. Without noise, every step lasts as the model says.
    pub fn new(noise: Option<Noise>, launch: Launch, seed: u64) -> Self {
        Self(noise.map(|noise| (noise, launch, ChaCha8Rng::seed_from_u64(seed))))
    }

    /// The duration of a step, `age` seconds after the launch, for which the model says `seconds`.
    pub fn seconds(&mut self, seconds: f64, age: f64) -> f64 {
        let Some((noise, launch, rng)) = &mut self.0 else { return seconds };
        let jitter = (noise.step_to_step * normal(rng)).exp();
        let stalls = rng.random::<f64>() < noise.stall_chance;
        let stall = if stalls { 2.0 * noise.stall_seconds * rng.random::<f64>() } else { 0.0 };
        seconds * launch.factor * noise.drift(*launch, age) * jitter + stall
    }
}

fn normal(rng: &mut impl Rng) -> f64 {
    rng.sample(StandardNormal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise() -> Noise {
        Noise { run_to_run: 0.05, step_to_step: 0.1, stall_chance: 0.01, stall_seconds: 0.1, ..Noise::default() }
    }

    fn spread(values: &[f64]) -> f64 {
        let logs: Vec<f64> = values.iter().map(|v| v.ln()).collect();
        let mean = logs.iter().sum::<f64>() / logs.len() as f64;
        (logs.iter().map(|l| (l - mean).powi(2)).sum::<f64>() / logs.len() as f64).sqrt()
    }

    #[test]
    fn launches_and_steps_spread_as_the_profile_says() {
        let launches: Vec<f64> = (0..4000).map(|seed| noise().of_launch(seed).factor).collect();
        assert!((spread(&launches) / 0.05 - 1.0).abs() < 0.05, "{}", spread(&launches));
        let steady = Noise { stall_chance: 0.0, ..noise() };
        let mut unsteady = Unsteady::new(Some(steady), Launch::MEDIAN, 7);
        let steps: Vec<f64> = (0..4000).map(|_| unsteady.seconds(0.02, 0.0)).collect();
        assert!((spread(&steps) / 0.1 - 1.0).abs() < 0.05, "{}", spread(&steps));
    }

    #[test]
    fn stalls_are_as_rare_and_as_long_as_the_profile_says() {
        let mut unsteady = Unsteady::new(Some(Noise { step_to_step: 0.0, ..noise() }), Launch::MEDIAN, 1);
        let stalls: Vec<f64> = (0..100_000).map(|_| unsteady.seconds(0.0, 0.0)).filter(|s| *s > 0.0).collect();
        assert!((900..1100).contains(&stalls.len()), "{}", stalls.len());
        let mean = stalls.iter().sum::<f64>() / stalls.len() as f64;
        assert!((mean - 0.1).abs() < 0.01, "{mean}");
    }

    #[test]
    fn the_same_seed_is_the_same_noise_and_no_noise_changes_nothing() {
        let run = |seed| {
            let mut unsteady = Unsteady::new(Some(noise()), noise().of_launch(seed), seed);
            (0..50).map(|_| unsteady.seconds(0.01, 0.0)).collect::<Vec<f64>>()
        };
        assert_eq!(run(3), run(3));
        assert_ne!(run(3), run(4));
        assert_eq!(Unsteady::new(None, Launch::MEDIAN, 3).seconds(0.01, 0.0), 0.01);
    }

    #[test]
    fn the_speed_of_a_launch_wanders_and_ages() {
        let wander = Noise { wander: 0.05, wander_seconds: 600.0, ..Noise::default() };
        let at = |noise, launch, age| Unsteady::new(Some(noise), launch, 1).seconds(1.0, age);
        assert!((at(wander, Launch::MEDIAN, 150.0) - 1.05).abs() < 1e-9);
        assert!((at(wander, Launch::MEDIAN, 450.0) - 0.95).abs() < 1e-9);
        assert!((at(wander, Launch { phase: 0.5, ..Launch::MEDIAN }, 150.0) - 0.95).abs() < 1e-9);
        let ageing = Noise { ageing: 0.06, ageing_seconds: 600.0, ..Noise::default() };
        assert!((at(ageing, Launch::MEDIAN, 0.0) - 1.0).abs() < 1e-9);
        assert!((at(ageing, Launch::MEDIAN, 1e6) - 1.06).abs() < 1e-9);
    }
}
