//! Arrival processes on an open-loop clock.

use std::sync::Arc;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp1, Gamma};

use super::draw::{Purpose, stream};
use super::trace::first_step;
use autotune_plan::settings::ArrivalProcess;
use autotune_records::units::{Rate, Seconds};

/// Times of an arrival process. The gaps at unit rate depend on the seed alone and are divided by the rate. So two rates see
/// the same bursts at another speed: common random numbers for comparisons.
pub(super) struct Arrivals {
    rng: ChaCha8Rng,
    gaps: Gaps,
    rate: Rate,
    unit_time: f64,
}

enum Gaps {
    Poisson,
    Gamma(Gamma<f64>),
    /// The first gap is a part of one, so that probes do not all begin in step with the window.
    Constant {
        begun: bool,
    },
    Recorded(Recorded),
}

/// The gaps of a file, over and over, with a mean of one.
struct Recorded {
    gaps: Arc<[f64]>,
    next: usize,
}

impl Arrivals {
    /// `times` are those of the trace, where there is one; without them `Recorded` is `Poisson`.
    pub(super) fn new(process: ArrivalProcess, times: &[Seconds], rate: Rate, seed: u64) -> Self {
        let rng = stream(seed, Purpose::Arrivals, 0);
        let gaps = match process {
            ArrivalProcess::Gamma { burstiness } => {
                Gamma::new(burstiness, 1.0 / burstiness).map_or(Gaps::Poisson, Gaps::Gamma)
            }
            ArrivalProcess::Constant => Gaps::Constant { begun: false },
            ArrivalProcess::Recorded if !times.is_empty() => {
                Gaps::Recorded(Recorded { gaps: unit_gaps(times), next: first_step(times.len(), seed) })
            }
            ArrivalProcess::Poisson | ArrivalProcess::Recorded => Gaps::Poisson,
        };
        Self { rng, gaps, rate, unit_time: 0.0 }
    }
}

/// The gap before each time of a file, scaled to a mean of one. The gap before the first closes the circle: a mean one; where
/// all times are the same, it holds the whole time.
fn unit_gaps(times: &[Seconds]) -> Arc<[f64]> {
    let count = times.len() as f64;
    let span = times.last().map_or(0.0, |last| last.0 - times[0].0);
    let mean = span / (count - 1.0);
    let (closing, scale) = if span > 0.0 { (1.0, 1.0 / mean) } else { (count, 0.0) };
    std::iter::once(closing).chain(times.array_windows().map(|[before, at]| (at.0 - before.0) * scale)).collect()
}

impl Iterator for Arrivals {
    type Item = Seconds;

    fn next(&mut self) -> Option<Seconds> {
        let gap: f64 = match &mut self.gaps {
            Gaps::Poisson => Exp1.sample(&mut self.rng),
            Gaps::Gamma(gamma) => gamma.sample(&mut self.rng),
            Gaps::Constant { begun } if *begun => 1.0,
            Gaps::Constant { begun } => {
                *begun = true;
                self.rng.random_range(0.0..1.0)
            }
            Gaps::Recorded(Recorded { gaps, next }) => {
                let gap = gaps.get(*next).copied().unwrap_or(1.0);
                *next = (*next + 1) % gaps.len().max(1);
                gap
            }
        };
        self.unit_time += gap;
        Some(Seconds(self.unit_time / self.rate.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: [Seconds; 5] = [Seconds(3.0), Seconds(3.0), Seconds(7.0), Seconds(8.0), Seconds(23.0)];

    fn arrivals(process: ArrivalProcess, rate: f64, seed: u64) -> Arrivals {
        Arrivals::new(process, &FILE, Rate(rate), seed)
    }

    #[test]
    fn every_process_keeps_the_rate_and_rates_share_their_luck() {
        for process in [
            ArrivalProcess::Poisson,
            ArrivalProcess::Gamma { burstiness: 0.25 },
            ArrivalProcess::Gamma { burstiness: 4.0 },
            ArrivalProcess::Constant,
            ArrivalProcess::Recorded,
        ] {
            let times: Vec<Seconds> = arrivals(process, 5.0, 1).take(40_000).collect();
            let rate = 40_000.0 / times[39_999].0;
            assert!((rate - 5.0).abs() < 0.1, "{process:?}: {rate}");
            let doubled: Vec<Seconds> = arrivals(process, 10.0, 1).take(100).collect();
            assert!(times.iter().zip(&doubled).all(|(a, b)| (a.0 - 2.0 * b.0).abs() < 1e-9), "{process:?}");
        }
    }

    #[test]
    fn burstiness_is_the_shape_of_the_gaps() {
        for burstiness in [0.25, 1.0, 4.0] {
            let times: Vec<Seconds> = arrivals(ArrivalProcess::Gamma { burstiness }, 2.0, 7).take(40_000).collect();
            let gaps: Vec<f64> = times.array_windows().map(|[a, b]| b.0 - a.0).collect();
            let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
            let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
            let cv = variance.sqrt() / mean;
            assert!((cv * burstiness.sqrt() - 1.0).abs() < 0.04, "{burstiness}: {cv}");
        }
    }

    #[test]
    fn gaps_are_exponential_not_renormalised() {
        // The count in a fixed time must vary as a Poisson count does: variance equal to the mean.
        let count = |seed| arrivals(ArrivalProcess::Poisson, 10.0, seed).take_while(|t| t.0 < 10.0).count() as f64;
        let counts: Vec<f64> = (0..400).map(count).collect();
        let mean = counts.iter().sum::<f64>() / 400.0;
        let variance = counts.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / 399.0;
        assert!((mean - 100.0).abs() < 3.0 && (70.0..140.0).contains(&variance), "mean {mean}, variance {variance}");
    }

    #[test]
    fn constant_gaps_are_equal() {
        let times: Vec<Seconds> = arrivals(ArrivalProcess::Constant, 4.0, 3).take(50).collect();
        assert!(times[0].0 < 0.25 && times.array_windows().all(|[a, b]| (b.0 - a.0 - 0.25).abs() < 1e-9));
    }

    #[test]
    fn recorded_gaps_are_the_files_own_again_and_again() {
        // A span of 20 s over four gaps: the mean of 5 s is one unit.
        assert_eq!(*unit_gaps(&FILE), [1.0, 0.0, 0.8, 0.2, 3.0]);
        assert_eq!(*unit_gaps(&[Seconds(2.0)]), [1.0]);
        assert_eq!(*unit_gaps(&[Seconds(2.0); 3]), [3.0, 0.0, 0.0]);
        let times: Vec<Seconds> = arrivals(ArrivalProcess::Recorded, 1.0, 5).take(12).collect();
        assert!(times.iter().skip(5).zip(&times).all(|(b, a)| (b.0 - a.0 - 5.0).abs() < 1e-9));
    }
}
