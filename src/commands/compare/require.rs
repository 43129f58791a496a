//! `--require`: whether what is compared is on, by what the first window shows.

use super::side::Side;
use crate::cli::CompareArgs;
use crate::commands::Failed;
use crate::report::bench::Level;

/// What a window shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quantity {
    CachedShare,
    AcceptanceLength,
    AcceptanceRate,
    KvEvents,
}

const QUANTITIES: [(&str, Quantity, &str); 4] = [
    ("cached_share", Quantity::CachedShare, "neither the usage of answers nor /metrics tells cached tokens"),
    ("acceptance_length", Quantity::AcceptanceLength, "its /metrics counts no drafts of speculative decoding"),
    ("acceptance_rate", Quantity::AcceptanceRate, "its /metrics counts no drafts of speculative decoding"),
    ("kv_events", Quantity::KvEvents, "its /metrics has no dynamo_component_kv_cache_events_applied"),
];

type Holds = fn(&f64, &f64) -> bool;
/// The longer ones first, since the others begin them.
const COMPARISONS: [(&str, Holds); 4] = [(">=", f64::ge), ("<=", f64::le), (">", f64::gt), ("<", f64::lt)];

/// A condition on what a side shows in its first window.
#[derive(Clone, Debug)]
pub(in crate::commands) struct Requirement {
    sides: [bool; 2],
    name: &'static str,
    quantity: Quantity,
    untold: &'static str,
    comparison: &'static str,
    holds: Holds,
    number: f64,
}

/// Those of the flags, and what a side must show of the value that `--vary` gives it, unless a flag asks for the same quantity.
pub(super) fn all(args: &CompareArgs, sides: &[Side; 2]) -> Result<Vec<Requirement>, Failed> {
    let mut all: Vec<Requirement> = args.require.iter().map(|text| parse(text)).collect::<Result<_, _>>()?;
    for (place, (name, side)) in ["A", "B"].into_iter().zip(sides).enumerate() {
        if let Some(condition) = side.requires() {
            let own = parse(&format!("{name}:{condition}"))?;
            if !all.iter().any(|r| r.quantity == own.quantity && r.is_of(place)) {
                all.push(own);
            }
        }
    }
    Ok(all)
}

fn parse(text: &str) -> Result<Requirement, Failed> {
    let wrong = || {
        let names = QUANTITIES.map(|(name, ..)| name).join(", ");
        Failed::usage(format!(
            "error: --require {text}: write a condition such as B:cached_share>=0.9; there are {names}, with >=, <=, > and <"
        ))
    };
    let (sides, condition) = match text.split_once(':') {
        Some((side, condition)) => match side.trim() {
            "A" => ([true, false], condition),
            "B" => ([false, true], condition),
            _ => return Err(wrong()),
        },
        None => ([true, true], text),
    };
    let split = COMPARISONS.iter().find_map(|(sign, holds)| Some((condition.split_once(sign)?, *sign, *holds)));
    let ((name, number), comparison, holds) = split.ok_or_else(wrong)?;
    let known = QUANTITIES.iter().find(|(known, ..)| *known == name.trim());
    let (name, quantity, untold) = known.copied().ok_or_else(wrong)?;
    let number = number.trim().parse::<f64>().ok().filter(|n| n.is_finite()).ok_or_else(wrong)?;
    Ok(Requirement { sides, name, quantity, untold, comparison, holds, number })
}

impl Requirement {
    pub(super) fn is_of(&self, side: usize) -> bool {
        self.sides[side]
    }

    /// What was seen instead; none where it holds.
    pub(super) fn unmet(&self, level: &Level) -> Option<String> {
        let telemetry = &level.telemetry;
        let seen = match self.quantity {
            Quantity::CachedShare => level.cache.measured_share,
            Quantity::AcceptanceLength => telemetry.acceptance_length,
            Quantity::AcceptanceRate => telemetry.acceptance_rate,
            Quantity::KvEvents => telemetry.kv_events,
        };
        let (name, comparison, number) = (self.name, self.comparison, self.number);
        match seen {
            Some(seen) if (self.holds)(&seen, &number) => None,
            Some(seen) => Some(format!("{name} is {}, and {comparison}{number} is required", short(seen))),
            None => Some(format!("{name} is not told ({}), and {comparison}{number} is required", self.untold)),
        }
    }
}

fn short(number: f64) -> String {
    format!("{}", (number * 1e3).round() / 1e3)
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

    fn parsed(text: &str) -> Result<Requirement, String> {
        parse(text).map_err(|failed| failed.message)
    }

    #[test]
    fn a_condition_names_a_side_a_quantity_and_a_number() {
        let of_b = parsed("B:cached_share>=0.9").unwrap();
        assert_eq!((of_b.sides, of_b.name, of_b.comparison, of_b.number), ([false, true], "cached_share", ">=", 0.9));
        let both = parsed("kv_events > 0").unwrap();
        assert!(both.is_of(0) && both.is_of(1) && (both.holds)(&1.0, &0.0) && !(both.holds)(&0.0, &0.0));
        for wrong in ["C:cached_share>=0.9", "cached>=0.9", "cached_share=0.9", "cached_share>=much", "B:"] {
            let says = parsed(wrong).unwrap_err();
            assert!(says.contains("write a condition such as B:cached_share>=0.9; there are cached_share, "), "{says}");
        }
    }
}
