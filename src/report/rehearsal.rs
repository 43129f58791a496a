//! What a rehearsal says. Its first and its last line say that it is a simulation.

use super::bench::text::{entry, wrapped};
use crate::journal::Status;
use crate::rehearsal::{AgainstTruth, Rehearsal, Spread};
use crate::units::Rate;

/// Points that are listed at most; the rest is counted.
const POINTS_SHOWN: usize = 8;

/// Where sentences begin.
const INDENT: usize = 13;

/// A rehearsal of that space file for people, in 80 columns.
pub fn rehearsal(rehearsal: &Rehearsal, space_file: &str) -> String {
    let Rehearsal { profile, source, sessions, .. } = rehearsal;
    let mut text = String::new();
    let mut line = |name: &str, what: String| text += &entry(&format!("  {name}"), INDENT, &what);
    line(
        "sessions",
        format!("{} of {space_file}, each with another seed and a budget of {}", sessions.len(), rehearsal.budget),
    );
    if !rehearsal.not_simulated.is_empty() {
        line("left out", format!("not simulated, of the fixed arguments: {}", rehearsal.not_simulated.join(" ")));
    }
    let ended: Vec<String> =
        rehearsal.statuses.iter().map(|(status, count)| format!("{count} {}", name(*status))).collect();
    line("ended", ended.join(", "));
    if let Some(launches) = rehearsal.launches {
        line("launches", spread(launches, |v| format!("{v:.0}")));
    }
    if let Some(seconds) = rehearsal.gpu_seconds {
        line("GPU time", spread(seconds.times(1.0 / 60.0), |v| format!("{v:.1}")) + " minutes");
    }
    if let Some(seconds) = rehearsal.elapsed_seconds.filter(|_| rehearsal.workers > 1) {
        let lasts = spread(seconds.times(1.0 / 60.0), |v| format!("{v:.1}"));
        line("lasts", format!("{lasts} minutes on {} GPUs", rehearsal.workers));
    }
    match rehearsal.gain {
        Some(gain) => line(
            "gain",
            format!(
                "{} % over the defaults ({} of {} sessions certified both, the others estimate)",
                spread(gain.times(100.0), |v| format!("{v:+.0}")),
                rehearsal.gains_certified,
                sessions.len()
            ),
        ),
        None => line("gain", "unknown: no session had a rate for both the defaults and a chosen point".into()),
    }
    for (number, chosen) in rehearsal.chosen.iter().take(POINTS_SHOWN).enumerate() {
        let truth = chosen.true_rate.map_or(String::new(), |rate| format!(" | true limit {rate}"));
        line(if number == 0 { "chosen" } else { "" }, format!("{} x {}{truth}", chosen.sessions, chosen.point));
    }
    if let Some(more) = rehearsal.chosen.len().checked_sub(POINTS_SHOWN).filter(|more| *more > 0) {
        line("", format!("and {more} other points"));
    }
    match (&rehearsal.truth, &rehearsal.no_truth) {
        (Some(truth), _) => {
            for (number, what) in against(truth).into_iter().enumerate() {
                line(if number == 0 { "truth" } else { "" }, what);
            }
        }
        (None, Some(why)) => line("truth", format!("not computed: {why}")),
        (None, None) => line("truth", "no rate holds at any point of the grid".into()),
    }
    let first = format!("Simulation, not a measurement: {profile} ({source})");
    let last = format!("This was a simulation on profile {profile}, not a measurement.");
    format!("{}{text}{}", wrapped("", 0, &first), wrapped("", 0, &last))
}

fn against(truth: &AgainstTruth) -> Vec<String> {
    let of_defaults = truth.baseline_rate.map_or(String::new(), |rate: Rate| format!("; the defaults hold {rate}"));
    let mut lines = vec![format!(
        "of {} points the best holds {}: {}{of_defaults}; {} do not start ({} replayed requests each, without noise)",
        truth.points, truth.best_rate, truth.best, truth.not_starting, truth.requests
    )];
    if let Some(chosen) = truth.chosen {
        lines.push(format!(
            "the chosen point has {} % of the best one's limit, and at least 97 % in {:.0} % of the sessions",
            spread(chosen.times(100.0), |v| format!("{v:.0}")),
            truth.within_3_percent * 100.0
        ));
    }
    if truth.certified > 0 {
        lines.push(format!(
            "{} certified rates: {:.0} % of them above the true limit, {:.0} % by more than 3 %",
            truth.certified,
            truth.above_truth * 100.0,
            truth.above_truth_by_3_percent * 100.0
        ));
    }
    lines
}

/// `12 (10 to 14)`, the range without the lowest and highest tenth.
fn spread(spread: Spread, show: impl Fn(f64) -> String) -> String {
    let (median, low, high) = (show(spread.median), show(spread.low), show(spread.high));
    if low == high { median } else { format!("{median} ({low} to {high})") }
}

fn name(status: Status) -> &'static str {
    match status {
        Status::Certified => "certified",
        Status::Uncertified => "not certified",
        Status::NotReachable => "promises not reachable",
        Status::NeverStarted => "never started",
        Status::Interrupted => "interrupted",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rehearsal::{Job, rehearse};
    use crate::settings::parse;
    use crate::twin::Profile;
    use crate::workload::Material;

    #[test]
    fn a_range_without_width_is_one_number() {
        let show = |v: f64| format!("{v:.0}");
        assert_eq!(spread(Spread { median: 12.2, low: 10.0, high: 14.0 }, show), "12 (10 to 14)");
        assert_eq!(spread(Spread { median: 12.2, low: 12.0, high: 12.4 }, show), "12");
    }

    #[test]
    fn a_rehearsal_says_at_both_ends_that_it_is_a_simulation() {
        let space = include_str!("../../search-spaces/quickstart.toml").replace("[128, 256, 2048]", "[2048]");
        let (plan, profile) = (parse("quickstart.toml", &space).unwrap(), Profile::quickstart());
        let material = Material::default();
        let rehearsed = rehearse(Job::of(&plan, &profile, &material, 1500), &[1]).unwrap();
        let text = super::rehearsal(&rehearsed, "quickstart.toml");
        // It begins and ends with what it is, whatever lines that takes.
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let (first, last) = words.split_at(words.len() / 2);
        for part in [first, last] {
            assert!(part.contains("imulation") && part.contains("not a measurement"), "{text}");
            assert!(part.contains("quickstart"), "{text}");
        }
        assert!(
            first.starts_with("Simulation, not a measurement")
                && first.contains(&profile.source)
                && text.contains("GPU time")
                && text.contains("over the defaults")
                && text.contains("of 15 points"),
            "{text}"
        );
    }
}
