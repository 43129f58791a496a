//! One plain line per event, for a pod's log.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

use super::painted::painted;
use super::{Event, Sink};
use crate::colour::Colour;
use crate::engine::diagnosis::{Consequence, Diagnosis};
use crate::journal::Purpose;
use crate::printable::printable;
use crate::rig::ProbeAsk;
use crate::search::Incumbent;
use crate::space::Point;
use crate::units::{Rate, Seconds};
use crate::verdict::paired::{Judge, Paired};
use crate::verdict::{LimitResult, Outcome, Verdict};

/// Another rate of the best point is said where it differs by this share.
const ANOTHER_RATE: f64 = 0.02;

pub struct Plain {
    lines: Mutex<Lines>,
    colour: Colour,
}

impl Plain {
    /// With the reasons of each decision where they are asked for.
    pub fn new(verbose: bool) -> Self {
        Self { lines: Mutex::new(Lines::new(verbose)), colour: Colour::NONE }
    }

    /// Sets the colours of its lines.
    #[must_use]
    pub(crate) fn coloured(self, colour: Colour) -> Self {
        Self { colour, ..self }
    }
}

impl Sink for Plain {
    fn take(&self, event: &Event<'_>) {
        let line = self.lines.lock().unwrap_or_else(PoisonError::into_inner).line(event);
        if let Some(line) = line {
            // Where nobody reads the log any more, the session goes on.
            let line = painted(self.colour, event, &line, |line| printable(line).into_owned());
            drop(writeln!(std::io::stderr().lock(), "{line}"));
        }
    }
}

/// Makes a line of each event, and remembers what later ones refer to.
pub(super) struct Lines {
    verbose: bool,
    /// The point of the first launch with all that its engine runs, and the rate that it is estimated to keep.
    defaults: Option<(Point, Option<Rate>)>,
    /// Whether a probe at a rate said something of the defaults.
    measured_defaults: bool,
    trials: BTreeMap<u32, Trial>,
    best: Option<(Point, Rate)>,
}

struct Trial {
    purpose: Purpose,
    /// The engine's log in the output folder; `None` if the engine of an earlier trial runs on.
    log: Option<String>,
}

impl Lines {
    pub(super) fn new(verbose: bool) -> Self {
        Self { verbose, defaults: None, measured_defaults: false, trials: BTreeMap::new(), best: None }
    }

    /// The event as a line; none for those that need not be shown.
    pub(super) fn line(&mut self, event: &Event<'_>) -> Option<String> {
        Some(match event {
            Event::Begun { forecast, budget } if forecast.engine_seconds > *budget => {
                format!("budget {budget}, less than a whole search is expected to take: {forecast}")
            }
            Event::Begun { forecast, budget } => format!("budget {budget}; expected: {forecast}"),
            Event::Resumed { cost, swept } => {
                let swept = match swept {
                    0 => String::new(),
                    swept => format!("; {swept} processes of the earlier run were ended"),
                };
                format!("resumed: {} probes are taken from the journal{swept}", cost.probes)
            }
            Event::Launching { trial, attempt, purpose, point, alters } => {
                let log = (!alters).then(|| format!("trials/t{trial:03}-{attempt}/engine.log"));
                self.trials.insert(*trial, Trial { purpose: *purpose, log });
                let again = if *attempt > 1 { format!(", attempt {attempt}") } else { String::new() };
                let how = if *alters { "changing the running engine to" } else { "starting with" };
                let point = match (&self.defaults, purpose) {
                    (None, Purpose::Baseline) => {
                        self.defaults = Some((Point::clone(point), None));
                        point.to_string()
                    }
                    _ => self.beside_defaults(point),
                };
                format!("trial {trial}, {}{again}: {how} {point}", purpose.name())
            }
            Event::Ready { trial, ready, mismatches } => {
                // What they leave to the engine differs from other points too.
                if let Some((defaults, _)) = self
                    .defaults
                    .as_mut()
                    .filter(|_| self.trials.get(trial).is_some_and(|t| t.purpose == Purpose::Baseline))
                {
                    *defaults = Point(ready.effective.values.clone()).holding(defaults);
                }
                let mut said = Vec::new();
                if self.verbose {
                    let kv = ready.effective.kv_cache_tokens.map_or(String::new(), |t| format!(", {t} KV tokens"));
                    said.push(format!("ready in {}{kv}", ready.took));
                }
                let differs = |(name, asked, runs): &(String, _, _)| {
                    format!("WARNING: {name} is {runs} in the engine, {asked} was asked for")
                };
                said.extend(mismatches.iter().map(differs));
                said.extend(ready.process.live_unsupported_reason.as_ref().map(|why| {
                    format!("the running engine cannot change its limits, so every point needs a launch ({why})")
                }));
                if said.is_empty() {
                    return None;
                }
                format!("trial {trial}: {}", said.join("; "))
            }
            Event::Failed { trial, diagnosis, again } => self.failed(*trial, diagnosis, *again),
            Event::Probing { trial, ask } if self.verbose && ask.is_burst() => {
                format!("trial {trial}: sending requests at once")
            }
            Event::Probing { trial, ask } if self.verbose => {
                format!("trial {trial}: probing {} for {}", ask.rate, ask.window.to)
            }
            Event::Probed { trial, ask, verdict } => {
                let is_baseline = self.trials.get(trial).is_some_and(|trial| trial.purpose == Purpose::Baseline);
                self.measured_defaults |= is_baseline && !ask.is_burst() && verdict.outcome != Outcome::Void;
                format!("trial {trial}: {}", self.probed(*trial, ask, verdict))
            }
            Event::Fitted(fit) if self.verbose => {
                let r = &fit.residuals;
                format!(
                    "twin fitted to {} requests of {} probes: typical error {:.0} % in TTFT, {:.0} % in TPOT",
                    r.answers,
                    r.probes.len(),
                    r.ttft_sd * 100.0,
                    r.tpot_sd * 100.0
                )
            }
            Event::Improved { best: Incumbent { point, rate }, defaults } => {
                if let Some((_, estimate)) = &mut self.defaults {
                    *estimate = *defaults;
                }
                let same =
                    |(before, was): &(Point, Rate)| before == point && (rate.0 / was.0).ln().abs() < ANOTHER_RATE;
                if self.best.as_ref().is_some_and(same) {
                    return None;
                }
                self.best = Some((point.clone(), *rate));
                format!("{} with {}", self.best_so_far()?, self.beside_defaults(point))
            }
            Event::Note(text) => (*text).to_owned(),
            Event::Detail(text) if self.verbose => (*text).to_owned(),
            Event::Standing { spent, left, budget } => format!("engine time: {}", time(*spent, *left, *budget)),
            Event::Loading { level, elapsed, length, answered, failed, open } => {
                // A log shows every tenth second of it.
                if !(elapsed.0.round() as u64).is_multiple_of(10) {
                    return None;
                }
                let left = *length - *elapsed;
                let left = if left.0 > 0.0 { format!("{left} to go") } else { "draining".to_owned() };
                format!("{level}: {answered} answered, {failed} failed, {open} in flight; {left}")
            }
            // The summary says it.
            Event::Ended(_) => return None,
            Event::Probing { .. } | Event::Fitted(_) | Event::Detail(_) => return None,
        })
    }

    /// The best estimate beside that of the defaults.
    pub(super) fn best_so_far(&self) -> Option<String> {
        let (point, rate) = self.best.as_ref()?;
        Some(match &self.defaults {
            _ if self.is_defaults(point) => format!("best so far: about {rate}"),
            // The journal of a resumed session has them.
            None => format!("best so far: about {rate},"),
            Some((_, Some(defaults))) => format!("best so far: about {rate}, defaults {defaults},"),
            _ if self.measured_defaults => format!("best so far: about {rate}, no rate of the defaults holds,"),
            _ => format!("best so far: about {rate}, defaults not measured,"),
        })
    }

    pub(super) fn best_rate(&self) -> Option<Rate> {
        self.best.as_ref().map(|(_, rate)| *rate)
    }

    /// The values in which a point differs from the defaults; all values where a resumed session has not launched them.
    fn beside_defaults(&self, point: &Point) -> String {
        let Some((defaults, _)) = &self.defaults else { return point.to_string() };
        let differs = point.0.iter().filter(|(name, value)| defaults.get(name) != Some(*value));
        let differs: BTreeMap<_, _> = differs.map(|(name, value)| (name.clone(), value.clone())).collect();
        if differs.is_empty() { "the defaults".to_owned() } else { Point(differs).to_string() }
    }

    fn is_defaults(&self, point: &Point) -> bool {
        let defaults = self.defaults.as_ref().map(|(defaults, _)| defaults);
        defaults.is_some_and(|defaults| point.0.iter().all(|(name, value)| defaults.get(name) == Some(value)))
    }

    fn failed(&self, number: u32, diagnosis: &Diagnosis, again: bool) -> String {
        let trial = self.trials.get(&number);
        let quote = diagnosis.line.as_ref().map_or(String::new(), |l| format!("\n    the log says: {l}"));
        let of_memory = trial.is_some_and(|trial| trial.purpose == Purpose::Memory);
        if of_memory && diagnosis.consequence == Consequence::MemoryBound {
            let quote = if self.verbose { quote } else { String::new() };
            return format!("trial {number}: out of memory: this share of the memory is too large{quote}");
        }
        let log = trial.and_then(|trial| trial.log.as_ref()).map_or(String::new(), |log| format!("\n    log: {log}"));
        let again = if again { "; trying once more" } else { "" };
        format!("trial {number}: {}{again}{quote}{log}", diagnosis.says)
    }

    fn probed(&self, trial: u32, ask: &ProbeAsk, verdict: &Verdict) -> String {
        let rate = ask.rate;
        let purpose = self.trials.get(&trial).map(|trial| trial.purpose);
        let limits: Vec<String> = verdict.limits.iter().map(LimitResult::beside_its_limit).collect();
        let limits = limits.join(", ");
        let said = if ask.is_burst() {
            // Answers that were not awaited are cut.
            let failed: u64 = verdict.errors.iter().filter(|(class, _)| *class != "cut").map(|(_, count)| count).sum();
            let failed = if failed > 0 { format!("{failed} failed") } else { "no error".to_owned() };
            let why = if purpose == Some(Purpose::Memory) { "to check the memory" } else { "to see the largest batch" };
            format!("{} requests at once, {why}: {failed}", verdict.counted)
        } else if verdict.outcome == Outcome::Void {
            format!("{rate}: void, {}", verdict.because)
        } else if verdict.saturated {
            format!("{rate} fails, the queue grows: {limits}")
        } else if !verdict.complete && verdict.outcome == Outcome::Fail {
            format!("{rate} fails, stopped early: {}", verdict.because)
        } else if purpose.is_some_and(Purpose::certifies) || verdict.outcome == Outcome::Unresolved {
            format!("{rate}, {:.0} % sure: {limits}", (verdict.confidence * 100.0).floor())
        } else if verdict.outcome == Outcome::Pass {
            format!("{rate} holds: {limits}")
        } else {
            format!("{rate} fails: {limits}")
        };
        if !self.verbose {
            return said;
        }
        let paired: String = verdict.limits.iter().filter_map(|l| l.paired.as_ref()).map(paired).collect();
        format!("{said}\n    {}{paired}", verdict.because)
    }
}

/// What was spent of the budget, and what is still needed.
pub(super) fn time(spent: Seconds, left: Seconds, budget: Seconds) -> String {
    let left = if left.0 < 1.0 { String::new() } else { format!(", about {left} to go") };
    format!("{spent} of {budget}{left}")
}

/// What the twin makes of a promise.
fn paired(p: &Paired) -> String {
    let explains = format!("the twin explains {:.0} % of the variance", p.explained * 100.0);
    match p.judge {
        Judge::Paired => format!("\n    {}, long run: {} +-{:.0} % ({explains})", p.key, p.estimate, p.error * 100.0),
        Judge::PlainCount => format!("\n    {}: the count decides, since {}", p.key, p.because),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::diagnosis::Cause;
    use crate::journal::{self, Record};
    use crate::space::Value;

    fn point(seqs: i64) -> Point {
        Point::default().with("max-num-batched-tokens", Value::Int(2048)).with("max-num-seqs", Value::Int(seqs))
    }

    fn launching(trial: u32, purpose: Purpose, point: &Point) -> Event<'_> {
        Event::Launching { trial, attempt: 1, purpose, point, alters: false }
    }

    #[test]
    fn a_trial_is_a_short_line_and_the_reasons_need_verbose() {
        let mut lines = Lines::new(false);
        let mut said = |event: &Event<'_>| lines.line(event).unwrap_or_default();
        let (defaults, other) = (point(128), point(16));
        let first = said(&launching(1, Purpose::Baseline, &defaults));
        assert_eq!(first, "trial 1, baseline: starting with max-num-batched-tokens 2048, max-num-seqs 128");
        let incumbent = Incumbent { point: defaults.clone(), rate: Rate(68.3) };
        let of_defaults = Event::Improved { best: &incumbent, defaults: Some(Rate(68.3)) };
        assert_eq!(said(&of_defaults), "best so far: about 68.3 req/s with the defaults");
        let incumbent = Incumbent { rate: Rate(68.4), ..incumbent };
        let of_defaults = Event::Improved { best: &incumbent, defaults: Some(Rate(68.4)) };
        assert_eq!(said(&of_defaults), "", "nothing new");
        assert_eq!(said(&launching(2, Purpose::Search, &other)), "trial 2, search: starting with max-num-seqs 16");
        let better = Incumbent { point: other, rate: Rate(89.5) };
        assert_eq!(
            said(&Event::Improved { best: &better, defaults: Some(Rate(66.1)) }),
            "best so far: about 89.5 req/s, defaults 66.1 req/s, with max-num-seqs 16",
            "both as they are estimated now"
        );
        assert_eq!(
            said(&Event::Detail("why")) + &said(&Event::Probing { trial: 2, ask: &crate::progress::ask_at(Rate(1.0)) }),
            ""
        );
        // Before a probe at a rate said something of the defaults.
        let mut early = Lines::new(false);
        early.line(&launching(1, Purpose::Baseline, &defaults));
        let unmeasured = "best so far: about 89.5 req/s, defaults not measured, with max-num-seqs 16";
        assert_eq!(early.line(&Event::Improved { best: &better, defaults: None }).as_deref(), Some(unmeasured));
        let (spent, left, budget) = (Seconds(480.0), Seconds(0.0), Seconds(720.0));
        assert_eq!(said(&Event::Standing { spent, left, budget }), "engine time: 8 min of 12 min");
    }

    #[test]
    fn a_memory_check_that_runs_out_is_expected_and_another_failure_names_its_log() {
        let mut lines = Lines::new(false);
        let diagnosis = Diagnosis {
            cause: Cause::OutOfMemory,
            line: Some("torch.OutOfMemoryError".into()),
            says: "The device ran out of memory.".into(),
            consequence: Consequence::MemoryBound,
        };
        for (trial, purpose, expected) in [
            (1, Purpose::Memory, "trial 1: out of memory: this share of the memory is too large"),
            (
                2,
                Purpose::Search,
                "trial 2: The device ran out of memory.\n    the log says: torch.OutOfMemoryError\n    log: trials/t002-1/engine.log",
            ),
        ] {
            lines.line(&launching(trial, purpose, &point(16)));
            let said = lines.line(&Event::Failed { trial, diagnosis: &diagnosis, again: false });
            assert_eq!(said.as_deref(), Some(expected));
        }
    }

    #[test]
    fn a_burst_is_called_one_and_no_line_contradicts_itself() {
        let journal = journal::read(include_bytes!("../../tests/data/h200-turns/journal.jsonl")).unwrap();
        let (mut lines, mut bursts) = (Lines::new(false), 0);
        for entry in &journal.entries {
            let Record::Probed { trial, ask, verdict, .. } = &entry.record else { continue };
            let said = lines.line(&Event::Probed { trial: *trial, ask, verdict }).unwrap();
            assert!(!said.contains("1000 req/s") && !said.contains('?') && !said.contains('\n'), "{said}");
            bursts += u32::from(said.contains("requests at once, to see the largest batch: no error"));
        }
        assert!(bursts > 0);
    }

    #[test]
    fn a_probe_says_whether_its_rate_holds_and_with_verbose_who_judged() {
        let journal = journal::read(include_bytes!("../../results/h200-8b/journal.jsonl")).unwrap();
        let probe = journal.entries.iter().find_map(|entry| match &entry.record {
            Record::Probed { ask, verdict, .. } if verdict.by_count.is_some() => Some((ask, verdict)),
            _ => None,
        });
        let (ask, verdict) = probe.unwrap();
        let said = |purpose: Purpose, ask: &ProbeAsk, of: &dyn Fn(&mut Verdict)| {
            let mut verdict = verdict.clone();
            of(&mut verdict);
            let mut lines = Lines::new(true);
            lines.line(&launching(1, purpose, &point(16)));
            lines.line(&Event::Probed { trial: 1, ask, verdict: &verdict }).unwrap()
        };
        let failed = said(Purpose::Search, ask, &|v| v.outcome = Outcome::Fail);
        assert!(failed.starts_with("trial 1: 15.93 req/s fails: ttft_p99 "), "{failed}");
        let queue = said(Purpose::Search, ask, &|v| v.saturated = true);
        assert!(queue.starts_with("trial 1: 15.93 req/s fails, the queue grows: ttft_p99 "), "{queue}");
        let proof = said(Purpose::Certify, ask, &|v| v.confidence = 0.959);
        assert!(proof.starts_with("trial 1: 15.93 req/s, 95 % sure: ttft_p99 "), "{proof}");
        let counted = said(Purpose::Search, ask, &|v| {
            for paired in v.limits.iter_mut().filter_map(|limit| limit.paired.as_mut()) {
                (paired.judge, paired.because) = (Judge::PlainCount, "the test says so".to_owned());
            }
        });
        assert!(counted.contains("ttft_p99: the count decides, since the test says so"), "{counted}");
        let burst = ProbeAsk { slack: crate::verdict::Slack::UNBOUNDED, ..*ask };
        let soak = said(Purpose::Memory, &burst, &|v| (v.counted, v.errors) = (136, BTreeMap::new()));
        assert!(soak.starts_with("trial 1: 136 requests at once, to check the memory: no error"), "{soak}");
    }
}
