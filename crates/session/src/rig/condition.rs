//! Conditions on what an engine shows beside its latencies, such as `cached_share>=0.9`: whether what is judged is on.

use super::Telemetry;

/// What an engine shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
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

#[derive(Clone, Debug)]
pub struct Condition {
    pub quantity: Quantity,
    name: &'static str,
    untold: &'static str,
    comparison: &'static str,
    holds: Holds,
    number: f64,
}

impl Condition {
    /// Reads a condition such as `cached_share>=0.9`; `None` if it is not of that form.
    pub fn parse(text: &str) -> Option<Self> {
        let split = COMPARISONS.iter().find_map(|(sign, holds)| Some((text.split_once(sign)?, *sign, *holds)));
        let ((name, number), comparison, holds) = split?;
        let (name, quantity, untold) = QUANTITIES.into_iter().find(|(known, ..)| *known == name.trim())?;
        let number = number.trim().parse::<f64>().ok().filter(|n| n.is_finite())?;
        Some(Self { quantity, name, untold, comparison, holds, number })
    }

    /// What can be written, for whoever wrote something else.
    pub fn form() -> String {
        let names = QUANTITIES.map(|(name, ..)| name).join(", ");
        format!("write a condition such as B:cached_share>=0.9; there are {names}, with >=, <=, > and <")
    }

    /// What is seen instead; `None` if it holds. `cached_share` is of the prompt tokens.
    pub fn unmet(&self, telemetry: &Telemetry, cached_share: Option<f64>) -> Option<String> {
        let Self { name, untold, comparison, number, .. } = self;
        let seen = match self.quantity {
            Quantity::CachedShare => cached_share,
            Quantity::AcceptanceLength => telemetry.acceptance_length,
            Quantity::AcceptanceRate => telemetry.acceptance_rate,
            Quantity::KvEvents => telemetry.kv_events,
        };
        match seen {
            Some(seen) if (self.holds)(&seen, number) => None,
            Some(seen) => {
                Some(format!("{name} is {}, and {comparison}{number} is required", (seen * 1e3).round() / 1e3))
            }
            None => Some(format!("{name} is not told ({untold}), and {comparison}{number} is required")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_compares_what_is_seen_with_a_number() {
        let events = Condition::parse("kv_events > 0").unwrap();
        let seen = |kv_events| events.unmet(&Telemetry { kv_events, ..Telemetry::default() }, None);
        assert_eq!(seen(Some(1.0)), None);
        assert_eq!(seen(Some(0.0)).unwrap(), "kv_events is 0, and >0 is required");
        assert!(seen(None).unwrap().starts_with("kv_events is not told (its /metrics has no dynamo_"));
        let cached = Condition::parse("cached_share>=0.9").unwrap();
        assert_eq!(cached.unmet(&Telemetry::default(), Some(0.9)), None);
        for wrong in ["cached>=0.9", "cached_share=0.9", "cached_share>=much", ""] {
            assert!(Condition::parse(wrong).is_none(), "{wrong}");
        }
    }
}
