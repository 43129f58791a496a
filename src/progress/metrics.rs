//! The state of a session as Prometheus metrics.

use super::board::{Phase, Standing};
use super::exposition::{Labels, Page};
use crate::report::word;
use crate::units::{Rate, Seconds};

pub(super) fn page(standing: &Standing) -> String {
    let mut page = Page::default();
    let Standing { about, cost, .. } = standing;
    let unknown = String::new();
    let labels: Labels<'_> = &[
        ("version", about.autotune),
        ("space_file", &about.space_file),
        ("simulated", if about.simulated { "true" } else { "false" }),
        ("model", standing.model.as_ref().unwrap_or(&unknown)),
        ("engine_version", standing.engine_version.as_ref().unwrap_or(&unknown)),
    ];
    page.gauges("autotune_info", "The session; always 1.", &[(labels, 1.0)]);
    let names = Phase::ALL.map(word);
    let named = names.each_ref().map(|name| [("phase", name.as_str())]);
    let phases: Vec<(Labels<'_>, f64)> = Phase::ALL
        .iter()
        .zip(&named)
        .map(|(phase, labels)| (labels.as_slice(), f64::from(u8::from(*phase == standing.phase))))
        .collect();
    page.gauges("autotune_phase", "What the current trial is for: 1 for that phase, 0 for the others.", &phases);
    for (name, help, count) in [
        ("autotune_trials_total", "Trials, the current one included.", standing.trials),
        ("autotune_launches_total", "Starts of an engine.", cost.launches),
        ("autotune_probes_total", "Probes that ended.", cost.probes),
        ("autotune_engine_failures_total", "Launches and probes in which the engine failed.", standing.failures),
    ] {
        page.counter(name, help, f64::from(count));
    }
    let spent = "Seconds that engines were up, as of the end of the last step.";
    page.counter("autotune_engine_seconds_total", spent, cost.engine_seconds.0);
    let seconds = |of: Option<Seconds>| of.map(|s| s.0);
    let rate = |of: Option<Rate>| of.map(|r| r.0);
    let best = standing.best.as_ref();
    for (name, help, value) in [
        ("autotune_budget_seconds", "Engine time that the session may spend.", seconds(standing.budget)),
        (
            "autotune_time_left_seconds",
            "Engine time that is expected to be needed still, as of the end of the last step.",
            seconds(standing.time_left),
        ),
        (
            "autotune_best_rate_requests_per_second",
            "Requests per second that the best point so far is estimated to keep.",
            rate(best.and_then(|best| best.estimated_rate)),
        ),
        (
            "autotune_certified_rate_requests_per_second",
            "Requests per second that held on fresh traffic.",
            rate(best.and_then(|best| best.certified_rate)),
        ),
        (
            "autotune_probe_rate_requests_per_second",
            "Requests per second of the probe that is under way.",
            rate(standing.probing),
        ),
        (
            "autotune_start_time_seconds",
            "When this process began the session, in seconds since the Unix epoch.",
            Some(standing.begun),
        ),
    ] {
        page.gauge(name, help, value);
    }
    page.text()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::{About, Board, Event, Sink};

    #[test]
    fn every_metric_has_help_and_type_and_its_unit_in_its_name() {
        let about =
            About { autotune: "1.0", space_file: "a \"b\".toml".into(), out: "out".into(), seed: 1, simulated: true };
        let board = Board::new(about);
        board.take(&Event::Standing { spent: Seconds(1.5), left: Seconds(f64::NAN), budget: Seconds(60.0) });
        let text = page(&board.standing());
        assert!(text.contains("\nautotune_engine_seconds_total 1.5\n"), "{text}");
        assert!(text.contains("space_file=\"a \\\"b\\\".toml\",simulated=\"true\""), "{text}");
        assert!(text.contains("\nautotune_phase{phase=\"starting\"} 1\n"), "{text}");
        assert!(!text.contains("time_left") && !text.contains("NaN"), "{text}");
        for line in text.lines().filter(|line| line.starts_with("# TYPE ")) {
            let [_, _, name, kind] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
            assert!(text.contains(&format!("# HELP {name} ")), "{name}");
            assert_eq!(name.ends_with("_total"), kind == "counter", "{name}");
        }
    }
}
