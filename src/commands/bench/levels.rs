//! The levels of a benchmark, one after the other: settled, driven, judged.

use std::sync::Arc;
use std::time::Duration;

use super::super::Failed;
use super::super::stop::Stop;
use super::interrupts;
use super::tally::Tally;
use super::traffic::Traffic;
use super::unanswered;
use crate::cli::{BenchArgs, Sought};
use crate::clock;
use crate::load::{Cut, Driven, Schedule};
use crate::progress::{Event, Sink};
use crate::report::bench::{Level, Meta, Offered};
use crate::rig::{CacheUse, NoAnswer, Server, Telemetry, Warmed};
use crate::settings::{ArrivalProcess, WorkloadKind};
use crate::units::{Rate, Seconds};
use crate::verdict::{Certainty, Counter, Course, Window, judge};
use crate::workload::{self, Demand, Pace};

/// How long no token may come from a server that owes some, before it counts as hung.
pub(super) const STALL_TIMEOUT: Duration = Duration::from_secs(60);
/// The window of a level where nothing else is asked for.
const DURATION: Duration = Duration::from_secs(60);
/// How often progress is told.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// More than any client sends.
const MOST_REQUESTS_PER_SECOND: f64 = 1e6;
/// Tokens of the prompts that may be held in memory at once: about 6 GB.
const MOST_TOKENS_HELD: u64 = 1_000_000_000;
/// How sure a level's pass or fail must be: it follows the count, as the plain benchmark that it is.
pub(super) const CERTAINTY: Certainty = Certainty(0.5);

/// The levels that the flags ask for.
pub(super) fn offered(args: &BenchArgs, traffic: &Traffic) -> Result<Vec<Offered>, Failed> {
    let wrong = |text: &str| Err(Failed::usage(format!("error: {text}")));
    let rates: Vec<f64> = args.rate.into_iter().chain(args.rates.iter().copied()).collect();
    if rates.iter().any(|rate| !(*rate > 0.0 && *rate <= MOST_REQUESTS_PER_SECOND)) {
        return wrong(
            "a rate is a number of requests per second above 0, at most 1000000; for all at once there is --at-once N",
        );
    }
    let is_trace = matches!(traffic.workload.kind, WorkloadKind::Trace(_));
    if args.recorded && !is_trace {
        return wrong("--recorded takes the times of a trace; give one with --dataset FILE");
    }
    let mut offered: Vec<Offered> = rates.into_iter().map(|rate| Offered::Rate(Rate(rate))).collect();
    offered.extend(args.concurrency.iter().map(|users| Offered::Users(*users)));
    offered.extend(args.at_once.map(Offered::AllAtOnce));
    if offered.is_empty() && args.find.is_none() && (args.recorded || is_trace) {
        offered.push(Offered::Recorded);
    }
    if args.think.is_some() && args.concurrency.is_empty() && args.find != Some(Sought::Users) {
        return wrong("--think is how long users think: it goes with --concurrency or --find users");
    }
    if args.max_concurrency.is_some() && args.find == Some(Sought::Users) {
        return wrong(
            "--max-concurrency holds back an open loop: it goes with --rate, --rates, --recorded or --find rate",
        );
    }
    let at_once = args.concurrency.iter().chain(&args.at_once).copied().max().unwrap_or(0);
    let longest = match &traffic.workload.kind {
        WorkloadKind::Random(plan) => u64::from(plan.input_tokens.max) + u64::from(plan.shared_prefix_tokens),
        _ => 0,
    };
    if u64::from(at_once) * longest > MOST_TOKENS_HELD {
        return wrong(&format!(
            "{at_once} prompts of up to {longest} tokens at once do not fit into memory: at most {MOST_TOKENS_HELD} tokens do; give fewer requests or shorter prompts"
        ));
    }
    if offered.is_empty() && args.find.is_none() {
        return wrong("how much load? --rate 2, --rates 1,2,4, --concurrency 20,40,80, --at-once 500 or --find users");
    }
    Ok(offered)
}

/// Runs levels against one server.
pub(super) struct Levels<'a> {
    args: &'a BenchArgs,
    traffic: &'a Traffic,
    server: Server,
    sink: Arc<dyn Sink>,
    stop: Stop,
    warmed: Option<Warmed>,
}

/// What a level is driven with.
pub(super) struct Load {
    pub(super) offered: Offered,
    pub(super) window: Window,
    /// What its arrivals are drawn from. Levels with the same share their luck: the same arrivals at another speed.
    pub(super) arrival_seed: u64,
    /// Ends the level once a promise is broken for certain.
    pub(super) counter: Option<Counter>,
}

/// What came of a level.
pub(super) struct Ran {
    /// None where it was interrupted before its traffic, or twice.
    pub(super) level: Option<Level>,
    /// Whether nothing more is to be measured.
    pub(super) interrupted: bool,
}

impl<'a> Levels<'a> {
    pub(super) fn new(
        args: &'a BenchArgs,
        traffic: &'a Traffic,
        server: Server,
        sink: Arc<dyn Sink>,
        stop: Stop,
    ) -> Self {
        Self { args, traffic, server, sink, stop, warmed: None }
    }

    /// The load of one of the levels that the flags ask for.
    pub(super) fn load(&self, offered: Offered) -> Load {
        let arrival_seed = workload::mix(self.args.seed, &[1]);
        Load { offered, window: self.window(offered), arrival_seed, counter: None }
    }

    /// What the warm-up shows; none where it was interrupted.
    pub(super) async fn warm(&mut self) -> Result<Option<Warmed>, Failed> {
        if self.warmed.is_none() {
            let wrong = |why: NoAnswer| unanswered(&self.args.url, &why);
            let patience = self.args.timeout.map_or(STALL_TIMEOUT, |timeout| timeout.min(STALL_TIMEOUT));
            let seed = workload::mix(self.args.seed, &[0, 0]);
            self.warmed = tokio::select! {
                warmed = self.server.warm(seed, patience.into(), None) => Some(warmed.map_err(wrong)?),
                () = self.stop.told() => None,
            };
        }
        Ok(self.warmed)
    }

    /// The mean number of tokens of an answer.
    pub(super) fn mean_output_tokens(&self) -> f64 {
        workload::mean_output_tokens(&self.traffic.workload, self.server.material())
    }

    /// One level: the server settled, the ramp, the window, the drain; then the verdict. It rests before every level but the first.
    pub(super) async fn run(&mut self, number: usize, load: Load) -> Result<Ran, Failed> {
        let nothing = Ran { level: None, interrupted: true };
        let Load { offered, mut window, arrival_seed, counter } = load;
        let content_seed = workload::mix(self.args.seed, &[2, number as u64]);
        let Some(warmed) = self.warm().await? else { return Ok(nothing) };
        let rest = if number > 0 { self.args.cool_down } else { Duration::ZERO };
        let settling = async {
            tokio::time::sleep(rest).await;
            self.server.settle(!self.args.keep_cache).await.map_err(|why| unanswered(&self.args.url, &why))
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
            answer_time: warmed.answer_time,
        };
        let started = clock::unix_seconds();
        let tally = Tally::default();
        let Some((driven, telemetry, interrupted)) = self.drive(offered, pace, window, &tally, counter).await else {
            return Ok(nothing);
        };
        let Driven { records, ended, cut, health } = driven;
        // A level that had ended by itself lacks nothing.
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

    fn window(&self, offered: Offered) -> Window {
        let length = Seconds::from(self.args.duration.unwrap_or(DURATION));
        match offered {
            Offered::Rate(_) | Offered::Users(_) => {
                let from = self.args.ramp.map_or(length * 0.1, Seconds::from);
                Window { from, to: from + length }
            }
            // Everything is due at the beginning; the window becomes what it took.
            Offered::AllAtOnce(_) => Window { from: Seconds(0.0), to: Seconds(1e9) },
            Offered::Recorded => {
                let span = self.traffic.corpus.span().unwrap_or(length) + Seconds(1e-3);
                let to = Seconds(span.0.min(length.0));
                Window { from: Seconds(0.0), to }
            }
        }
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
        // Whoever sends everything at once wants to see it all answered.
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
            label: self.args.label.clone(),
            max_concurrency: self.args.max_concurrency,
        }
    }
}
