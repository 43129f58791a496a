//! One plain line per event, for a pod's log.

use std::io::Write;

use super::{Event, Sink};
use crate::printable::printable;
use crate::verdict::paired::{Judge, Paired};

/// Prints to standard error.
pub struct Plain;

impl Sink for Plain {
    fn take(&self, event: &Event<'_>) {
        if let Some(line) = line(event) {
            // Where nobody reads the log any more, the session goes on.
            drop(writeln!(std::io::stderr().lock(), "{}", printable(&line)));
        }
    }
}

/// The event as a sentence; none for those that a log need not show.
pub(super) fn line(event: &Event<'_>) -> Option<String> {
    Some(match event {
        Event::Begun { forecast, budget } => format!(
            "forecast: about {} launches and {} probes, {} of engine time (budget {budget})",
            forecast.launches, forecast.probes, forecast.engine_seconds
        ),
        Event::Resumed { cost, swept } => {
            let swept =
                if *swept > 0 { format!("; {swept} processes of the earlier run were ended") } else { String::new() };
            format!("resumed: {} probes are in the journal and are not paid again{swept}", cost.probes)
        }
        Event::Launching { trial, attempt, purpose, point, alters } => {
            let again = if *attempt > 1 { format!(" (attempt {attempt})") } else { String::new() };
            format!("trial {trial} ({}){again}: {} {point}", purpose.name(), begins(*alters))
        }
        Event::Ready { trial, ready, mismatches } => {
            let kv = ready.effective.kv_cache_tokens.map_or(String::new(), |t| format!(", {t} KV tokens"));
            let differs: String = mismatches
                .iter()
                .map(|(name, asked, runs)| format!("; WARNING: asked for {name} {asked}, it runs {runs}"))
                .collect();
            let stays = ready.process.stays.as_ref().map_or(String::new(), |why| {
                format!("; it cannot alter its limits while it runs, so every point is launched ({why})")
            });
            format!("trial {trial}: ready in {}{kv}{differs}{stays}", ready.took)
        }
        Event::Failed { trial, diagnosis, again } => {
            let quote = diagnosis.line.as_ref().map_or(String::new(), |l| format!("\n    the log says: {l}"));
            let again = if *again { "; trying once more" } else { "" };
            format!("trial {trial}: {}{again}{quote}", diagnosis.says)
        }
        Event::Probing { trial, rate, length } => format!("trial {trial}: probing {rate} for {length}"),
        Event::Probed { trial, rate, verdict } => {
            let values: Vec<String> = verdict
                .limits
                .iter()
                .map(|l| {
                    format!("{} {} of {}", l.key, l.measured.map_or("beyond".into(), |m| m.to_string()), l.at_most)
                })
                .collect();
            let outcome = format!("{:?}", verdict.outcome).to_lowercase();
            let paired: String = verdict.limits.iter().filter_map(|l| l.paired.as_ref()).map(paired).collect();
            format!("trial {trial}: {outcome} at {rate} ({}): {}{paired}", values.join(", "), verdict.because)
        }
        Event::Fitted(fit) => {
            let r = &fit.residuals;
            format!(
                "the twin of the engine is fitted to {} answers of {} probes: off by {:.0} % in the time to first token and by {:.0} % per token, typically",
                r.answers,
                r.probes.len(),
                r.ttft_sd * 100.0,
                r.tpot_sd * 100.0
            )
        }
        Event::Improved(incumbent) => format!("best so far: {} with {}", incumbent.rate, incumbent.point),
        Event::Note(text) => (*text).to_owned(),
        Event::Standing { spent, left, budget } => {
            format!("spent {spent} of {budget} engine time, about {left} left to do")
        }
        Event::Loading { level, elapsed, length, answered, failed, open } => {
            // A log shows every tenth second of it.
            if !(elapsed.0.round() as u64).is_multiple_of(10) {
                return None;
            }
            let left = *length - *elapsed;
            let left = if left.0 > 0.0 { format!("{left} to go") } else { "draining".to_owned() };
            format!("{level}: {answered} answered, {failed} failed, {open} in flight; {left}")
        }
        Event::Ended(conclusion) => conclusion.because.clone(),
    })
}

/// What the twin makes of a promise.
/// What is done to come to a point.
pub(super) fn begins(alters: bool) -> &'static str {
    if alters { "altering the running engine to" } else { "launching" }
}

fn paired(p: &Paired) -> String {
    let explains = format!("the twin explains {:.0} %", p.explained * 100.0);
    match p.judge {
        Judge::Paired => format!("; {} over hours: {} +-{:.0} % ({explains})", p.key, p.estimate, p.error * 100.0),
        Judge::PlainCount => format!("; {}: the count decides, since {}", p.key, p.because),
    }
}
