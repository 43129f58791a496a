//! Counts violations while a probe runs, so that a certain failure ends it at once.

use serde::{Deserialize, Serialize};

use super::count::{Observation, certain, observe};
use super::{Window, allowance};
use autotune_load::{ErrorClass, Open, RequestRecord, Tick, Watch};
use autotune_plan::settings::{Limit, Metric};
use autotune_records::units::{Rate, Seconds};

/// A probe is cut at this many times the violations that a promise absorbs: 1 where the count alone decides, more where a pair may find that the
/// arrivals were to blame, which takes the whole window. Failed requests are no luck, and have no slack.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Slack(pub f64);

impl Slack {
    /// No latency cuts the probe.
    pub const UNBOUNDED: Self = Self(1e9);

    pub fn is_unbounded(self) -> bool {
        self >= Self::UNBOUNDED
    }
}

impl Default for Slack {
    fn default() -> Self {
        Self(1.0)
    }
}

/// What a probe waits for behind its last request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Awaited {
    /// Every answer that can still tell something of a promise.
    #[default]
    All,
    /// The first token of every answer: by then every place of the batch was taken.
    Begun,
}

pub struct Counter {
    promises: Vec<Promise>,
    window: Window,
    slack: Slack,
    awaited: Awaited,
    /// Requests that ended, for whoever shows progress.
    pub ended: u64,
}

/// A limit, how many violations it absorbs, the latencies beyond it, and requests that failed.
struct Promise {
    limit: Limit,
    absorbs: f64,
    broken: u64,
    failed: u64,
}

impl Counter {
    /// For a probe at that rate. What the planned length can absorb is counted for a tenth more arrivals than the rate says. So luck in the number
    /// of arrivals never cuts a probe that would have passed.
    pub fn new(limits: &[Limit], window: Window, rate: Rate, mean_output_tokens: f64, slack: Slack) -> Self {
        let requests = rate.0 * window.length().0;
        let most = requests * 1.1 + 3.0 * requests.sqrt() + 1.0;
        let promise = |limit: &Limit| {
            let per_request = if limit.metric == Metric::Itl { mean_output_tokens.max(1.0) } else { 1.0 };
            let absorbs = allowance((most * per_request) as u64, limit.quantile);
            Promise { limit: limit.clone(), absorbs, broken: 0, failed: 0 }
        };
        Self { promises: limits.iter().map(promise).collect(), window, slack, awaited: Awaited::All, ended: 0 }
    }

    pub fn awaiting(self, awaited: Awaited) -> Self {
        Self { awaited, ..self }
    }
}

/// Whether an unanswered request can tell this promise nothing more.
fn settled(open: &Open, limit: &Limit, now: Seconds) -> bool {
    certain(open, limit, now) || (limit.metric == Metric::Ttft && open.first.is_some())
}

impl Watch for Counter {
    fn ended(&mut self, record: &RequestRecord) {
        self.ended += 1;
        if !self.window.holds(record.due) || record.error == Some(ErrorClass::Cut) {
            return;
        }
        for Promise { limit, broken, failed, .. } in &mut self.promises {
            observe(record, limit, Seconds(f64::MAX), &mut |observation| match observation {
                Observation::Latency(latency) => *broken += u64::from(latency > limit.at_most.0),
                Observation::Never => *failed += 1,
                Observation::Unknown => {}
            });
        }
    }

    fn tick(&mut self, now: Seconds, open: &mut dyn Iterator<Item = Open>) -> Tick {
        let open: Vec<Open> = open.filter(|o| self.window.holds(o.due)).collect();
        let sure = self.promises.iter().any(|Promise { limit, absorbs, broken, failed }| {
            let open = open.iter().filter(|o| certain(o, limit, now)).count() as u64;
            let violations = (broken + open) as f64 + *failed as f64;
            let cut = violations > absorbs * self.slack.0 && !self.slack.is_unbounded();
            cut || (*failed > 0 && violations > *absorbs)
        });
        // No answer that is still missing is awaited.
        let settled = |o: &Open| match self.awaited {
            Awaited::All => self.promises.iter().all(|promise| settled(o, &promise.limit, now)),
            Awaited::Begun => o.first.is_some(),
        };
        if sure {
            Tick::Decided
        } else if now.0 >= self.window.to.0 && open.iter().all(settled) {
            Tick::Settled
        } else {
            Tick::Continue
        }
    }
}
