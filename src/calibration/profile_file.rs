//! A calibration as a profile: the fitted costs, with what the base profile knows besides, and the TOML file of it.

use std::fmt::Write;

use serde_json::Value;

use super::calibrate::Calibration;
use super::coefficient_words::MEANINGS;
use crate::twin::{Noise, Profile, Start};

/// Sources that the profile's line names; more are counted.
const NAMED: usize = 4;

/// The profile: costs, start and spread from run to run of the calibration, memory and defaults of the base.
pub fn profile(calibration: &Calibration, base: &Profile, name: &str) -> Profile {
    let thousandth = |value: f64| (value * 1e3).round() / 1e3;
    let start = calibration.start.map(|start| Start { seconds: thousandth(start.seconds.0) }).or(base.start);
    let noise = match calibration.run_to_run {
        Some(spread) => Some(Noise { run_to_run: thousandth(spread), ..base.noise.unwrap_or_default() }),
        None => base.noise,
    };
    Profile {
        name: name.to_owned(),
        source: source(calibration, base),
        costs: calibration.fit.costs,
        kernels: None,
        noise,
        start,
        ..base.clone()
    }
}

/// The first names, and how many there are more.
fn named(all: &[String]) -> String {
    let mut names: Vec<&str> = all.iter().map(String::as_str).take(NAMED).collect();
    let more = format!("{} more", all.len().saturating_sub(NAMED));
    if all.len() > NAMED {
        names.push(&more);
    }
    names.join(", ")
}

/// Where the numbers come from, in a line.
fn source(calibration: &Calibration, base: &Profile) -> String {
    let fitted: Vec<_> = calibration.compared.iter().filter(|probe| !probe.held_out).collect();
    let requests: usize = fitted.iter().map(|probe| probe.requests).sum();
    let engine =
        if calibration.engines.is_empty() { String::new() } else { format!(" on {}", calibration.engines.join(", ")) };
    let from_base = match (calibration.start, calibration.run_to_run) {
        (Some(_), Some(_)) => "memory and defaults",
        (Some(_), None) => "memory, defaults and noise",
        (None, Some(_)) => "memory, defaults and start",
        (None, None) => "memory, defaults, noise and start",
    };
    format!(
        "fitted by autotune calibrate to {} probes with {requests} requests{engine} ({}); {from_base} of {}",
        fitted.len(),
        named(&calibration.fitted),
        base.name
    )
}

/// The file: comments say how it was made and how sure each coefficient is. [`Profile::find`] reads it back, costs with five digits.
pub fn to_toml(profile: &Profile, calibration: &Calibration) -> String {
    let residuals = &calibration.fit.residuals;
    let residuals = format!(
        "Residuals of {} answers: standard deviation of the logarithm {:.3} for TTFT, {:.3} for TPOT; {} far off.",
        residuals.answers, residuals.ttft_sd, residuals.tpot_sd, residuals.outliers
    );
    let mut text = String::from("# Made by `autotune calibrate`; made again, it may be replaced.\n");
    // Writing to a String cannot fail.
    let mut line = |what: &str| {
        let _ = writeln!(text, "{what}");
    };
    let head = std::iter::once(&residuals).chain(&calibration.fit.open).chain(&calibration.notes);
    head.for_each(|what| line(&format!("# {what}")));
    let Ok(Value::Object(sections)) = serde_json::to_value(profile) else { return text };
    for (key, value) in sections.iter().filter(|(_, value)| !value.is_object() && !value.is_null()) {
        line(&format!("{key} = {value}"));
    }
    let place = |key: &str| MEANINGS.iter().position(|(name, ..)| *name == key);
    for (section, fields) in &sections {
        let Value::Object(fields) = fields else { continue };
        line(&format!("\n[{section}]"));
        let mut fields: Vec<(&String, &Value)> = fields.iter().filter(|(_, value)| !value.is_null()).collect();
        fields.sort_by_key(|(key, _)| place(key));
        for (key, value) in fields {
            let coefficient = place(key).filter(|_| section == "costs").map(|place| MEANINGS[place]);
            let fitted = calibration.fit.coefficients.iter().find(|c| c.name == *key);
            match (coefficient, fitted, value.as_f64()) {
                (Some((_, unit, meaning)), Some(fitted), Some(value)) => {
                    let value = format!("{key} = {value:.4e}");
                    line(&format!("{value:34} # {}: {meaning}", unit.error(fitted)));
                }
                // What JSON writes of numbers, switches and texts is TOML too.
                _ => line(&format!("{key} = {value}")),
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibration::calibrate::Start as Measured;
    use crate::calibration::compared::Compared;
    use crate::twin::{Bounds, Coefficient, Fit, Probe, Residuals, StepCosts};
    use crate::units::Seconds;

    fn calibration() -> Calibration {
        let bounds = Bounds { max_num_seqs: 8, max_num_batched_tokens: 512, kv_tokens: None };
        let costs = StepCosts { base: 4.826_713e-3, per_decode: 2e-5, overlap: 0.25, ..Profile::quickstart().costs };
        let coefficient = |name: &str| Coefficient { name: name.to_owned(), value: 1.0, log_error: 0.031 };
        let residuals = Residuals {
            answers: 300,
            failures: 0,
            outliers: 2,
            ttft_sd: 0.1,
            tpot_sd: 0.02,
            ttft_correlation: 0.99,
            tpot_correlation: 0.98,
            probes: vec![],
        };
        let coefficients = ["base", "per_decode", "overlap"].map(coefficient).to_vec();
        Calibration {
            fit: Fit { costs, coefficients, open: vec!["a and b".to_owned()], residuals, loss: 0.0, replays: 1 },
            base: Some("quickstart".to_owned()),
            fitted: ["a.csv", "b.csv", "c.csv", "d.csv", "e.csv", "f.csv"].map(str::to_owned).to_vec(),
            held_out: vec![],
            engines: vec!["vLLM 0.24.0".to_owned()],
            compared: vec![Compared::of("a.csv", &Probe::new(vec![], bounds), &costs, Some(1.0))],
            memory: vec![],
            start: Some(Measured { seconds: Seconds(12.5), warm: true }),
            run_to_run: Some(0.02),
            left_out: vec![],
            notes: vec!["assumed \"nothing\"".to_owned()],
        }
    }

    #[test]
    fn the_file_is_read_back_and_says_how_it_was_made() {
        let (calibration, base) = (calibration(), Profile::quickstart());
        let made = profile(&calibration, &base, "mine");
        assert_eq!((made.start.unwrap().seconds, made.noise.unwrap().run_to_run), (12.5, 0.02));
        assert_eq!((made.memory, made.defaults), (base.memory, base.defaults));
        for part in ["1 probes", "vLLM 0.24.0", "a.csv", "2 more", "memory and defaults of quickstart"] {
            assert!(made.source.contains(part), "{part} is missing in {}", made.source);
        }
        let text = to_toml(&made, &calibration);
        assert!(text.contains("base = 4.8267e-3 ") && text.contains("# +- 3 %: every step\n"), "{text}");
        assert!(text.contains("# a and b\n"), "{text}");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.toml");
        std::fs::write(&path, &text).unwrap();
        let read = Profile::find(path.to_str().unwrap()).unwrap();
        assert!((read.costs.base / made.costs.base - 1.0).abs() < 1e-4);
        assert_eq!(Profile { costs: made.costs, ..read }, made);
    }

    #[test]
    fn every_profile_that_comes_with_the_program_survives_the_form() {
        for name in Profile::NAMES {
            let made = Profile::named(name).unwrap();
            let nothing = Calibration { fit: Fit { coefficients: vec![], ..calibration().fit }, ..calibration() };
            assert_eq!(Profile::parse(name, &to_toml(&made, &nothing)).unwrap(), made);
        }
    }
}
