//! Levels of load on one server, one after the other: settled, driven, judged.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::super::Failed;
use super::super::stop::Stop;
use super::interrupts;
use super::tally::Tally;
use super::traffic::Traffic;
use super::unanswered;
use crate::cli::LoadArgs;
use crate::clock;
use crate::load::{Cut, Driven, Schedule};
use crate::progress::{Event, Sink};
use crate::report::bench::{Level, Meta, Offered};
use crate::rig::{CacheUse, NoAnswer, Server, Telemetry, Warmed};
use crate::settings::ArrivalProcess;
use crate::units::Seconds;
use crate::verdict::{Certainty, Counter, Course, Window, judge};
use crate::workload::{self, Demand, Pace};

/// How long no token may come from a server that owes some, before it counts as hung.
pub(in crate::commands) const STALL_TIMEOUT: Duration = Duration::from_secs(60);
/// How often progress is told.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// The certainty of a level's pass or fail: 0.5 follows the plain count of violations.
pub(in crate::commands) const CERTAINTY: Certainty = Certainty(0.5);

/// Runs levels against one server.
pub(in crate::commands) struct Levels<'a> {
    args: &'a LoadArgs,
    traffic: &'a Traffic,
    server: Server,
    label: Option<String>,
    sink: Arc<dyn Sink>,
    stop: Stop,
    warmed: Option<Warmed>,
}

/// What a level is driven with.
pub(in crate::commands) struct Load {
    pub(in crate::commands) offered: Offered,
    pub(in crate::commands) window: Window,
    /// The seed of its arrivals. Levels with the same seed have the same arrivals at another speed.
    pub(in crate::commands) arrival_seed: u64,
    /// The seed of its words.
    pub(in crate::commands) content_seed: u64,
    /// What an answer is taken to last where conversations are under way at the start; what the warm-up shows unless given.
    pub(in crate::commands) answer_time: Option<Seconds>,
    /// Where it begins in a file of prompts; in an order of its own unless given.
    pub(in crate::commands) first_place: Option<u32>,
    /// Ends the level once a promise is broken for certain.
    pub(in crate::commands) counter: Option<Counter>,
}

/// The result of a level.
pub(in crate::commands) struct Ran {
    /// `None` if it was interrupted before its traffic, or twice.
    pub(in crate::commands) level: Option<Level>,
    /// Whether nothing more is to be measured.
    pub(in crate::commands) interrupted: bool,
}

impl<'a> Levels<'a> {
    pub(in crate::commands) fn new(
        args: &'a LoadArgs,
        traffic: &'a Traffic,
        server: Server,
        label: Option<String>,
        sink: Arc<dyn Sink>,
        stop: Stop,
    ) -> Self {
        Self { args, traffic, server, label, sink, stop, warmed: None }
    }

    /// What the warm-up shows; `None` if it was interrupted.
    pub(in crate::commands) async fn warm(&mut self) -> Result<Option<Warmed>, Failed> {
        if self.warmed.is_none() {
            let wrong = |why: NoAnswer| unanswered(&self.server.target().base_url, &why);
            let patience = self.args.timeout.map_or(STALL_TIMEOUT, |timeout| timeout.min(STALL_TIMEOUT));
            let seed = workload::mix(self.args.seed, &[0, 0]);
            self.warmed = tokio::select! {
                warmed = self.server.warm(seed, patience.into(), None) => Some(warmed.map_err(wrong)?),
                () = self.stop.told() => None,
            };
        }
        Ok(self.warmed)
    }

    /// How many requests each replica has had, where the server tells.
    pub(in crate::commands) async fn requests_by_replica(&self) -> BTreeMap<String, f64> {
        self.server.endpoints().requests_by_replica().await
    }

    /// The mean number of tokens of an answer.
    pub(in crate::commands) fn mean_output_tokens(&self) -> f64 {
        workload::mean_output_tokens(&self.traffic.workload, self.server.material())
    }

    /// One level: the server settled, the ramp, the window, the drain; then the verdict. It rests before every level but the first.
    pub(in crate::commands) async fn run(&mut self, number: usize, load: Load) -> Result<Ran, Failed> {
        let nothing = Ran { level: None, interrupted: true };
        let Load { offered, mut window, arrival_seed, content_seed, answer_time, first_place, counter } = load;
        let Some(warmed) = self.warm().await? else { return Ok(nothing) };
        let rest = if number > 0 { self.args.cool_down } else { Duration::ZERO };
        let settling = async {
            tokio::time::sleep(rest).await;
            self.server
                .settle(!self.args.keep_cache)
                .await
                .map_err(|why| unanswered(&self.server.target().base_url, &why))
        };
        let settled = tokio::select! {
            settled = settling => settled?,
            () = self.stop.told() => return Ok(nothing),
        };
        let mut warnings = Vec::new();
        if settled.busy_with > 0.0 {
            warnings.push(format!("the server was working on {:.0} requests of others", settled.busy_with));
        }
        let pace = Pace {
            demand: match offered {
                Offered::Rate(rate) => Demand::Open(rate),
                Offered::Users(users) => Demand::Closed { users, think: self.args.think.unwrap_or_default().into() },
                Offered::AllAtOnce(requests) => Demand::AllAtOnce(requests),
                Offered::Recorded => Demand::Recorded,
            },
            horizon: window.to,
            arrival_seed,
            content_seed,
            shared_seed: self.args.seed,
            answer_time: answer_time.unwrap_or(warmed.answer_time),
            growth: 1.0,
            first_place,
        };
        let started = clock::unix_seconds();
        let tally = Tally::default();
        let Some((driven, telemetry, interrupted)) = self.drive(offered, pace, window, &tally, counter).await else {
            return Ok(nothing);
        };
        let Driven { records, ended, cut, health } = driven;
        // A level that had ended before the interrupt is whole.
        let partial = interrupted && cut.is_some();
        match cut {
            Some(Cut::Hung) => warnings
                .push(format!("no token came for {} while requests waited: it hangs", Seconds::from(STALL_TIMEOUT))),
            Some(Cut::Decided) if !partial && !tally.broken() => {
                let patience = Seconds::from(self.args.drain);
                warnings.push(format!(
                    "answers were waited for {patience} after the last arrival; --drain says for how long"
                ));
            }
            _ => {}
        }
        if let Offered::AllAtOnce(_) = offered {
            window.to = ended;
        }
        let whys = records.iter().filter(|r| r.error.is_some()).filter_map(|r| r.why.as_deref());
        warnings.extend(whys.take(1).map(|why| format!("the first failure says: {why}")));
        let limits = self.traffic.limits().to_vec();
        let judged = !limits.is_empty() && !partial;
        let steady = matches!(offered, Offered::Rate(_)) && self.args.max_concurrency.is_none();
        let course = Course { window, ended, complete: cut.is_none(), steady };
        let verdict = judged.then(|| judge(&records, &limits, course, &health, CERTAINTY));
        let cache = CacheUse::of(&records, window, &telemetry, settled.reset);
        let (offered, meta) = (offered, self.meta(started));
        let level = Level {
            offered,
            window,
            records,
            ended,
            partial,
            verdict,
            limits,
            telemetry,
            client: health,
            cache,
            exact: self.traffic.workload.ignore_eos,
            warnings,
            meta,
        };
        Ok(Ran { level: Some(level), interrupted })
    }

    /// Drives one level, tells how it goes, and ends it at an interrupt; none at a second one.
    async fn drive(
        &mut self,
        offered: Offered,
        pace: Pace,
        window: Window,
        tally: &Tally,
        counter: Option<Counter>,
    ) -> Option<(Driven, Telemetry, bool)> {
        let all_at_once = matches!(offered, Offered::AllAtOnce(_));
        let sent_until = if all_at_once { Seconds(0.0) } else { window.to };
        let schedule = Schedule {
            window_ends: sent_until,
            stall_timeout: STALL_TIMEOUT.into(),
            request_timeout: self.args.timeout.map(Seconds::from),
        };
        let patience = Seconds::from(self.args.drain);
        // A burst is measured until its last answer.
        let patience_ends = if all_at_once { Seconds(f64::INFINITY) } else { sent_until + patience };
        let driving = self.server.drive(pace, schedule, tally.watch(patience_ends, counter));
        tokio::pin!(driving);
        let begun = clock::now();
        let mut tell = tokio::time::interval(TELL_EVERY);
        tell.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let mut interrupted = false;
        let name = offered.to_string();
        loop {
            tokio::select! {
                (driven, telemetry) = &mut driving => return Some((driven, telemetry, interrupted)),
                () = self.stop.told() => {
                    if interrupted {
                        return None;
                    }
                    interrupted = true;
                    interrupts::in_a_level();
                    tally.stop();
                }
                _ = tell.tick() => {
                    let (answered, failed, open) = tally.read();
                    let elapsed = begun.elapsed().into();
                    self.sink.take(&Event::Loading { level: &name, elapsed, length: sent_until, answered, failed, open });
                }
            }
        }
    }

    fn meta(&self, started: f64) -> Meta {
        let target = self.server.target();
        Meta {
            url: target.base_url.clone(),
            model: target.model.clone(),
            endpoint: target.endpoint,
            workload: self.traffic.described.clone(),
            burstiness: match self.traffic.workload.arrivals {
                ArrivalProcess::Poisson | ArrivalProcess::Recorded => 1.0,
                ArrivalProcess::Gamma { burstiness } => burstiness,
                ArrivalProcess::Constant => f64::INFINITY,
            },
            seed: self.args.seed,
            started,
            label: self.label.clone(),
            max_concurrency: self.args.max_concurrency,
        }
    }
}
