//! `--require`: whether what is compared is on, by what the first window shows.

use super::side::Side;
use crate::cli::CompareArgs;
use crate::commands::Failed;
use crate::report::bench::Level;
use crate::rig::Condition;

/// A condition on what a side shows in its first window.
#[derive(Clone, Debug)]
pub(in crate::commands) struct Requirement {
    sides: [bool; 2],
    condition: Condition,
}

/// Those of the flags, and what a side must show of the value that `--vary` gives it, unless a flag asks for the same quantity.
pub(super) fn all(args: &CompareArgs, sides: &[Side; 2]) -> Result<Vec<Requirement>, Failed> {
    let mut all: Vec<Requirement> = args.require.iter().map(|text| parse(text)).collect::<Result<_, _>>()?;
    for (place, (name, side)) in ["A", "B"].into_iter().zip(sides).enumerate() {
        if let Some(condition) = side.requires() {
            let own = parse(&format!("{name}:{condition}"))?;
            if !all.iter().any(|r| r.condition.quantity == own.condition.quantity && r.is_of(place)) {
                all.push(own);
            }
        }
    }
    Ok(all)
}

fn parse(text: &str) -> Result<Requirement, Failed> {
    let (sides, condition) = match text.split_once(':').map(|(side, condition)| (side.trim(), condition)) {
        Some(("A", condition)) => ([true, false], condition),
        Some(("B", condition)) => ([false, true], condition),
        // A condition has no colon.
        _ => ([true, true], text),
    };
    let condition = Condition::parse(condition);
    let wrong = || Failed::usage(format!("error: --require {text}: {}", Condition::form()));
    Ok(Requirement { sides, condition: condition.ok_or_else(wrong)? })
}

impl Requirement {
    pub(super) fn is_of(&self, side: usize) -> bool {
        self.sides[side]
    }

    /// What was seen instead; `None` if it holds.
    pub(super) fn unmet(&self, level: &Level) -> Option<String> {
        self.condition.unmet(&level.telemetry, level.cache.measured_share)
    }
}

/// What ends the run.
pub(super) fn says(name: &str, unmet: &[String], level: &Level) -> String {
    let answered = level.records.iter().filter(|r| r.complete()).count();
    format!(
        "error: {name} is not what was to be compared: {}; seen over {answered} answers at {}. Is it on, and does the traffic give it something to do?",
        unmet.join("; "),
        level.offered
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_of_a_side_or_of_both() {
        let sides = |text: &str| parse(text).map(|requirement| requirement.sides).map_err(|failed| failed.message);
        assert_eq!(sides("B:cached_share>=0.9").unwrap(), [false, true]);
        assert_eq!(sides("kv_events > 0").unwrap(), [true, true]);
        for wrong in ["C:cached_share>=0.9", "B:"] {
            let says = sides(wrong).unwrap_err();
            assert!(says.contains("write a condition such as B:cached_share>=0.9; there are cached_share, "), "{says}");
        }
    }
}
