//! Where the session stands, kept for whoever asks: a sink that remembers, fed by the events that people read.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde::Serialize;

use super::plain::Lines;
use super::{Event, Sink};
use crate::clock;
use crate::journal::{Cost, Purpose};
use crate::search::Incumbent;
use crate::space::Point;
use crate::units::{Rate, Seconds};
use crate::verdict::Outcome;

/// The version of what [`Standing`] looks like as JSON.
pub const VERSION: u32 = 1;

/// What does not change while a session runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct About {
    /// The version of this program.
    pub autotune: &'static str,
    pub space_file: String,
    /// The folder with journal and results.
    pub out: String,
    /// The seed of every draw.
    pub seed: u64,
    /// Whether the engine is the simulated one: then no number is a measurement of a real engine.
    pub simulated: bool,
}

/// What the current trial is for, or what comes before the first and after the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    #[default]
    Starting,
    Baseline,
    Memory,
    /// A candidate of the search.
    Search,
    /// The winner, on fresh traffic.
    Certify,
    /// The baseline, on fresh traffic.
    CertifyBaseline,
    Ended,
}

impl Phase {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Starting, Self::Baseline, Self::Memory, Self::Search, Self::Certify, Self::CertifyBaseline, Self::Ended];
}

impl From<Purpose> for Phase {
    fn from(purpose: Purpose) -> Self {
        match purpose {
            Purpose::Baseline => Self::Baseline,
            Purpose::Memory => Self::Memory,
            Purpose::Search => Self::Search,
            Purpose::Certify | Purpose::CertifyRunning => Self::Certify,
            Purpose::CertifyBaseline => Self::CertifyBaseline,
        }
    }
}

/// The best point so far.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Best {
    pub parameters: Point,
    /// Requests per second that it is estimated to keep.
    pub estimated_rate: Option<Rate>,
    /// Requests per second that held on fresh traffic; `None` before the end.
    pub certified_rate: Option<Rate>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LastProbe {
    pub trial: u32,
    /// Its rate in requests per second.
    pub rate: Rate,
    pub outcome: Outcome,
    /// One sentence that says why.
    pub because: String,
}

/// Where a session stands; the names are those of `outcome.json`, times are in seconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Standing {
    /// [`VERSION`].
    pub version: u32,
    /// What does not change.
    pub about: About,
    /// The model that is served, once an engine did.
    pub model: Option<String>,
    /// The engine's version, once one served.
    pub engine_version: Option<String>,
    pub gpus: Vec<String>,
    /// What the current trial is for.
    pub phase: Phase,
    /// What is being done, or was done last: the latest line about a trial.
    pub now: String,
    /// Since when, in seconds up to this answer.
    pub since: Seconds,
    /// How many trials there were, the current ones included; 0 before the first.
    pub trials: u32,
    /// The point that is launched or runs.
    pub point: Option<Point>,
    pub probing: Option<Rate>,
    pub last_probe: Option<LastProbe>,
    /// The best point so far.
    pub best: Option<Best>,
    /// Launches, probes and engine time; the time is counted at the end of each step.
    pub cost: Cost,
    /// Launches and probes in which the engine failed.
    pub failures: u32,
    /// What was forecast before the first launch.
    pub forecast: Option<Cost>,
    /// Engine time that the session may spend.
    pub budget: Option<Seconds>,
    /// Engine time that is expected to be needed still, as of the end of the last step.
    pub time_left: Option<Seconds>,
    /// When this process began, in seconds since the Unix epoch.
    pub begun: f64,
}

/// Remembers where the session stands. Taking an event costs a copy of what changed, whoever reads meanwhile.
pub struct Board(Mutex<Kept>);

struct Kept {
    standing: Standing,
    lines: Lines,
    said: Instant,
}

impl Board {
    /// The board of a session that has not begun.
    pub fn new(about: About) -> Self {
        let standing = Standing {
            version: VERSION,
            about,
            model: None,
            engine_version: None,
            gpus: Vec::new(),
            phase: Phase::Starting,
            now: String::new(),
            since: Seconds(0.0),
            trials: 0,
            point: None,
            probing: None,
            last_probe: None,
            best: None,
            cost: Cost::default(),
            failures: 0,
            forecast: None,
            budget: None,
            time_left: None,
            begun: clock::unix_seconds(),
        };
        Self(Mutex::new(Kept { standing, lines: Lines::new(true), said: clock::now() }))
    }

    pub fn standing(&self) -> Standing {
        let kept = self.lock();
        Standing { since: kept.said.elapsed().into(), ..kept.standing.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sink for Board {
    fn take(&self, event: &Event<'_>) {
        let mut kept = self.lock();
        kept.standing.take(event);
        let line = match event {
            Event::Ended(conclusion) => Some(conclusion.because.clone()),
            event => kept.lines.line(event),
        };
        // The others are about what was learnt, not about what is done.
        let learnt = matches!(
            event,
            Event::Standing { .. } | Event::Improved { .. } | Event::Fitted(_) | Event::Note(_) | Event::Detail(_)
        );
        if let Some(line) = line.filter(|_| !learnt) {
            (kept.standing.now, kept.said) = (line, clock::now());
        }
    }
}

impl Standing {
    fn take(&mut self, event: &Event<'_>) {
        match event {
            Event::Begun { forecast, budget } => {
                (self.forecast, self.budget) = (Some(*forecast), Some(*budget));
                self.time_left = Some(Seconds(forecast.engine_seconds.0.min(budget.0)));
            }
            Event::Resumed { cost, .. } => self.cost = *cost,
            Event::Launching { trial, purpose, point, .. } => {
                (self.phase, self.trials) = ((*purpose).into(), self.trials.max(*trial));
                self.point = Some((*point).clone());
                self.cost.launches += 1;
            }
            Event::Ready { ready, .. } => {
                // What was announced as a launch needed none.
                self.cost.launches -= u32::from(ready.process.altered);
                self.model = Some(ready.model.clone());
                self.engine_version.clone_from(&ready.effective.version);
                self.gpus.clone_from(&ready.gpus);
            }
            Event::Failed { .. } => {
                self.failures += 1;
                // It failed under load: a probe that was paid for.
                self.cost.probes += u32::from(self.probing.take().is_some());
            }
            Event::Probing { ask, .. } => self.probing = Some(ask.rate),
            Event::Probed { trial, ask, verdict } => {
                self.probing = None;
                self.cost.probes += 1;
                let (outcome, because) = (verdict.outcome, verdict.because.clone());
                self.last_probe = Some(LastProbe { trial: *trial, rate: ask.rate, outcome, because });
            }
            Event::Improved { best: Incumbent { point, rate }, .. } => {
                let (parameters, estimated_rate) = (point.clone(), Some(*rate));
                self.best = Some(Best { parameters, estimated_rate, certified_rate: None });
            }
            Event::Standing { spent, left, budget } => {
                // A resumed session comes anew to what it had spent already.
                self.cost.engine_seconds.0 = self.cost.engine_seconds.0.max(spent.0);
                (self.time_left, self.budget) = (Some(*left), Some(*budget));
            }
            Event::Ended(conclusion) => {
                (self.phase, self.time_left, self.point) = (Phase::Ended, Some(Seconds(0.0)), None);
                self.best = conclusion.best.as_ref().map(|best| Best {
                    parameters: best.point.clone(),
                    estimated_rate: best.estimated_rate,
                    certified_rate: best.certified_rate,
                });
            }
            Event::Fitted(_) | Event::Note(_) | Event::Detail(_) | Event::Loading { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::diagnosis::{Cause, Consequence, Diagnosis};

    fn about() -> About {
        About { autotune: "1.0", space_file: "a.toml".into(), out: "out".into(), seed: 1, simulated: true }
    }

    #[test]
    fn what_is_asked_is_what_the_events_said() {
        let board = Board::new(about());
        assert_eq!(board.standing().phase, Phase::Starting);
        let forecast = Cost { launches: 4, probes: 9, engine_seconds: Seconds(80.0) };
        board.take(&Event::Begun { forecast, budget: Seconds(60.0) });
        assert_eq!(board.standing().time_left, Some(Seconds(60.0)), "no longer than the budget");
        let cost = Cost { launches: 2, probes: 5, engine_seconds: Seconds(9.0) };
        board.take(&Event::Resumed { cost, swept: 0 });
        // The records are gone through again, from the first.
        board.take(&Event::Standing { spent: Seconds(3.0), left: Seconds(40.0), budget: Seconds(60.0) });
        assert_eq!(board.standing().cost, cost);
        let point = Point::default();
        let diagnosis = Diagnosis {
            cause: Cause::Silent,
            line: None,
            says: "it died without a word".into(),
            consequence: Consequence::Retry,
        };
        board.take(&Event::Launching { trial: 3, attempt: 1, purpose: Purpose::Memory, point: &point, alters: false });
        board.take(&Event::Probing { trial: 3, ask: &crate::progress::ask_at(Rate(7.0)) });
        let standing = board.standing();
        assert_eq!((standing.phase, standing.trials, standing.probing), (Phase::Memory, 3, Some(Rate(7.0))));
        assert!(standing.now.contains("probing 7.00 req/s"), "{}", standing.now);
        // Once under load, and once at its start.
        board.take(&Event::Failed { trial: 3, diagnosis: &diagnosis, again: false });
        board.take(&Event::Failed { trial: 3, diagnosis: &diagnosis, again: false });
        board.take(&Event::Improved { best: &Incumbent { point, rate: Rate(6.5) }, defaults: None });
        let standing = board.standing();
        assert_eq!((standing.cost.launches, standing.cost.probes, standing.failures), (3, 6, 2));
        assert_eq!(standing.best.unwrap().estimated_rate, Some(Rate(6.5)));
    }
}
