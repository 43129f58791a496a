//! What a coefficient of a step means, in words and units for people.

use crate::twin::Coefficient;

/// Every coefficient, in the order in which people read them.
pub const MEANINGS: [(&str, Unit, &str); 17] = [
    ("base", Unit::Time, "every step"),
    ("per_decode", Unit::Time, "each sequence that decodes"),
    ("per_context_token", Unit::Time, "each token of context that is attended to"),
    ("per_prefill_token", Unit::Time, "each prompt token that is computed"),
    ("per_prefill_pair", Unit::Time, "each pair of a computed prompt token and one before it"),
    ("per_prefill_square", Unit::Time, "the square of a step's prompt tokens"),
    ("mixed", Unit::Time, "a step that computes prompt tokens"),
    ("above_16", Unit::Time, "a step of more than 16 tokens, those of prompts included"),
    ("above_64", Unit::Time, "again, above 64"),
    ("above_128", Unit::Time, "again, above 128"),
    ("per_256", Unit::Time, "again, above each multiple of 256"),
    ("fall", Unit::Share, "of the last two is gone at the next edge"),
    ("overlap", Unit::Share, "of the shorter of decoding and prefill hides behind the longer"),
    ("ahead", Unit::Share, "of a step has yet to run when the next one is composed"),
    ("overhead", Unit::Time, "from sending to the waiting queue"),
    ("delivery", Unit::Time, "from the end of a step to the client"),
    ("per_delivery", Unit::Time, "more for each sequence that is served before"),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Time,
    /// A part, 0 to 1.
    Share,
}

impl Unit {
    /// The value with three digits, in the unit that suits it.
    pub fn value(self, value: f64) -> String {
        match self {
            Self::Time => time(value),
            Self::Share => format!("{:.0} %", value * 100.0),
        }
    }

    /// The standard error: of a time in percent of it, of a share in percentage points.
    pub fn error(self, found: &Coefficient) -> String {
        let Coefficient { value, log_error, .. } = found;
        match self {
            Self::Time => format!("+- {:.0} %", log_error * 100.0),
            // The error is that of the log odds.
            Self::Share => format!("+- {:.1} points", (log_error * value * (1.0 - value) * 100.0).min(100.0)),
        }
    }
}

fn time(seconds: f64) -> String {
    let (scale, unit) = match seconds {
        s if s >= 1e-3 => (1e3, "ms"),
        s if s >= 1e-6 => (1e6, "us"),
        s if s >= 1e-9 => (1e9, "ns"),
        _ => (1e12, "ps"),
    };
    let value = seconds * scale;
    let digits = match value {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits() {
        let said = [4.826e-3, 23.14e-6, 251e-6, 1.2e-8, 3.4e-12, 0.0124].map(time);
        assert_eq!(said, ["4.83 ms", "23.1 us", "251 us", "12.0 ns", "3.40 ps", "12.4 ms"]);
    }

    #[test]
    fn a_share_has_its_error_in_points() {
        let ahead = Coefficient { name: "ahead".to_owned(), value: 0.9, log_error: 0.4 };
        assert_eq!(
            (Unit::Share.value(ahead.value), Unit::Share.error(&ahead)),
            ("90 %".into(), "+- 3.6 points".into())
        );
        assert_eq!(Unit::Time.error(&ahead), "+- 40 %");
    }

    #[test]
    fn every_coefficient_has_a_meaning() {
        let costs = crate::twin::Profile::named("h200-llama8b").unwrap().costs;
        let all = crate::twin::StepCosts {
            mixed: 1.0,
            overlap: 1.0,
            per_256: 1.0,
            fall: 1.0,
            ahead: 1.0,
            delivery: 1.0,
            ..costs
        };
        let named = |name: &String| MEANINGS.iter().any(|(known, ..)| known == name);
        let fields = serde_json::to_value(all).unwrap();
        assert!(fields.as_object().unwrap().keys().all(named), "{fields}");
    }
}
