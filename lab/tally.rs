//! What very many requests say of the promises, without a record of each token.

use autotune::quantiles::quantile_of_sorted;
use autotune::rig::ServeObserver;
use autotune::settings::{Limit, Metric};
use autotune::tune::Flights;
use autotune::twin::Answered;
use autotune::workload::Planned;

/// The share of requests at the start that say nothing: the engine was empty.
const WARMING: f64 = 0.02;
/// More violations than this many times what a promise absorbs, and the rest need not be seen.
const BEYOND_DOUBT: f64 = 8.0;
/// The margin of a promise that is broken hopelessly; margins beyond it are not measured.
pub(super) const FAR: f64 = 5.0;
/// Latencies below this are as good as none, in seconds.
const LEAST: f64 = 1e-6;

/// The latencies of a long run, counted as they come.
pub(super) struct Tally<'a> {
    slo: &'a [Limit],
    flights: Flights,
    /// Those who come before are not counted.
    from: u32,
    absorbs: Vec<f64>,
    broken: Vec<f64>,
    latencies: Vec<Vec<f64>>,
    hopeless: bool,
}

impl<'a> Tally<'a> {
    pub(super) fn new(slo: &'a [Limit], requests: u32) -> Self {
        let from = (f64::from(requests) * WARMING) as u32;
        Self {
            slo,
            flights: Flights(Vec::with_capacity(requests as usize)),
            from,
            absorbs: slo.iter().map(|limit| (1.0 - limit.quantile) * f64::from(requests - from)).collect(),
            broken: vec![0.0; slo.len()],
            latencies: slo.iter().map(|_| Vec::with_capacity((requests - from) as usize)).collect(),
            hopeless: false,
        }
    }

    /// The largest log(quantile / limit) over the promises: above zero, one is broken.
    pub(super) fn margin(mut self) -> f64 {
        if self.hopeless {
            return FAR;
        }
        let margin = |(limit, latencies): (&Limit, &mut Vec<f64>)| {
            latencies.sort_unstable_by(f64::total_cmp);
            let quantile = quantile_of_sorted(latencies, limit.quantile);
            quantile.map_or(FAR, |quantile| (quantile.max(LEAST) / limit.at_most.0).ln().min(FAR))
        };
        self.slo.iter().zip(&mut self.latencies).map(margin).fold(f64::NEG_INFINITY, f64::max)
    }

    pub(super) fn answered(&mut self, id: u32, due: f64, answer: Answered, output: u32) {
        self.count(id, |metric| match metric {
            Metric::Ttft => Some(answer.first - due),
            Metric::E2e => Some(answer.last - due),
            // The gaps themselves are not kept; whoever asks for them is refused before.
            Metric::Tpot | Metric::Itl => answer.tpot(output),
        });
    }

    fn count(&mut self, id: u32, latency: impl Fn(Metric) -> Option<f64>) {
        if id < self.from {
            return;
        }
        for (i, limit) in self.slo.iter().enumerate() {
            if let Some(latency) = latency(limit.metric) {
                self.latencies[i].push(latency);
                self.broken[i] += f64::from(u8::from(latency > limit.at_most.0));
                self.hopeless |= self.broken[i] > BEYOND_DOUBT * self.absorbs[i].max(1.0);
            }
        }
    }
}

impl ServeObserver for Tally<'_> {
    const EVERY_TOKEN: bool = false;

    fn sent(&mut self, planned: &Planned, tokens: u32) {
        self.flights.sent(planned, tokens);
    }

    fn refused(&mut self, id: u32, _now: f64) {
        self.count(id, |_| Some(f64::INFINITY));
    }

    fn token(&mut self, id: u32, first: f64, later: f64) {
        self.flights.token(id, first, later);
    }

    fn finished(&mut self, id: u32, _cached: Option<u32>) -> u32 {
        let (answer, output) = self.flights.0[id as usize];
        self.answered(id, answer.at, answer, output);
        output
    }

    fn go_on(&mut self, _now: f64, _more_is_due: bool) -> Result<(), bool> {
        if self.hopeless { Err(false) } else { Ok(()) }
    }
}
