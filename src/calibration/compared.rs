//! One probe: what was measured beside what the fitted twin answers to the same requests.

use serde::Serialize;

use crate::quantiles::quantile;
use crate::twin::{Answered, Bounds, FastReplay, Observed, Probe, StepCosts};
use crate::units::{Rate, Seconds};

/// A latency's quantile, measured and predicted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Beside {
    pub measured: Seconds,
    pub predicted: Seconds,
}

impl Beside {
    /// The logarithm of predicted over measured.
    pub fn log_difference(self) -> f64 {
        (self.predicted.0 / self.measured.0).ln()
    }
}

/// A probe, measured and predicted. Latencies are of the requests with a whole answer, from the intended send; missing if there are none.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    pub name: String,
    /// Whether the fit did not see it.
    pub held_out: bool,
    /// Requests sent, per second.
    pub rate: Rate,
    pub requests: usize,
    /// Those without a whole answer.
    pub failures: usize,
    /// The limits under which it ran and was replayed.
    pub bounds: Bounds,
    /// Median time to first token.
    pub ttft_p50: Option<Beside>,
    /// p99 of the time to first token.
    pub ttft_p99: Option<Beside>,
    /// Median time per output token.
    pub tpot_p50: Option<Beside>,
    /// p99 of the time per output token.
    pub tpot_p99: Option<Beside>,
    /// By which factor the engine's steps took longer in it than in all that was fitted; `None` if it was held out.
    pub slower: Option<f64>,
}

impl Compared {
    /// Replays a probe. `slower` is the fit's, where it saw the probe.
    pub fn of(name: &str, probe: &Probe, costs: &StepCosts, slower: Option<f64>) -> Self {
        let mut answers = Vec::new();
        FastReplay::default().run(costs, probe.bounds(), probe.sent(), &mut answers);
        let pairs = |latency: fn(&Observed, &Answered) -> Option<(f64, f64)>| -> Vec<(f64, f64)> {
            probe.requests().iter().zip(&answers).filter_map(|(request, answer)| latency(request, answer)).collect()
        };
        let ttft = pairs(|request, answer| Some((request.ttft()?, answer.first - request.due.0)));
        let tpot = pairs(|request, answer| Some((request.tpot()?, answer.tpot(request.tokens_out)?)));
        Self {
            name: name.to_owned(),
            held_out: slower.is_none(),
            rate: Rate(probe.rate()),
            requests: probe.requests().len(),
            failures: probe.failures(),
            bounds: probe.bounds(),
            ttft_p50: beside(&ttft, 0.5),
            ttft_p99: beside(&ttft, 0.99),
            tpot_p50: beside(&tpot, 0.5),
            tpot_p99: beside(&tpot, 0.99),
            slower,
        }
    }
}

fn beside(pairs: &[(f64, f64)], q: f64) -> Option<Beside> {
    let at = |of: fn(&(f64, f64)) -> f64| quantile(pairs.iter().map(of), q).map(Seconds);
    Some(Beside { measured: at(|pair| pair.0)?, predicted: at(|pair| pair.1)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::twin::{NO_COSTS, Sent};

    #[test]
    fn an_engine_beside_a_twin_that_is_a_tenth_quicker() {
        let bounds = Bounds { max_num_seqs: 8, max_num_batched_tokens: 512, kv_tokens: None };
        let engine = StepCosts { base: 0.01, ..NO_COSTS };
        let sent: Vec<Sent> = (0..20)
            .map(|i| Sent { at: f64::from(i), prompt: 100, output: 1 + i as u32 % 5, ..Sent::default() })
            .collect();
        let probe = Probe::replayed(&engine, bounds, &sent);
        let same = Compared::of("a", &probe, &engine, Some(1.0));
        assert!(!same.held_out && same.ttft_p99.unwrap().log_difference().abs() < 1e-9);
        let quicker = Compared::of("a", &probe, &engine.slower(0.9), None);
        assert!(quicker.held_out && (quicker.tpot_p50.unwrap().log_difference() - 0.9_f64.ln()).abs() < 1e-9);
        assert_eq!((quicker.requests, quicker.failures), (20, 0));
    }
}
