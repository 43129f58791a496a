//! The difference in a sentence.

use super::NAMES;
use super::data::{Difference, Equality};
use crate::levels::CONFIDENCE;
use crate::report::bench::{Answer, Offered, Status};

/// A share with its sign and what its size asks for: `+67 %`, `-2.4 %`.
pub(in crate::report) fn signed(share: f64) -> String {
    // Without a negative zero.
    let percent = (share * 1e3).round() / 10.0 + 0.0;
    format!("{percent:+.*} %", usize::from(percent.abs() < 9.95))
}

/// The interval of a difference, with its confidence.
pub(in crate::report) fn interval(difference: &Difference) -> String {
    format!("{:.0} %: {} to {}", CONFIDENCE * 100.0, signed(difference.from), signed(difference.to))
}

/// How much more B keeps than A, or why nobody can say.
pub(super) fn because(
    unit: Offered,
    answers: &[Answer; 2],
    difference: Option<&Difference>,
    asked: Option<(f64, Equality)>,
) -> String {
    let kind = if matches!(unit, Offered::Users(_)) { "users" } else { "requests per second" };
    let said = match difference {
        Some(difference) => {
            let how = if difference.ratio < 0.0 { "fewer" } else { "more" };
            let share = signed(difference.ratio.abs());
            let seen = if difference.is_seen() { "" } else { "no difference is seen: " };
            format!("{seen}B keeps {} {how} {kind} than A ({})", share.trim_start_matches('+'), interval(difference))
        }
        None => format!("no percentage can be told: {}", without(answers)),
    };
    let Some((share, equality)) = asked else { return said };
    format!("{said}; {}", word(share, equality, difference.is_some()))
}

/// What `--equal-within` is answered.
pub(super) fn word(share: f64, equality: Equality, is_known: bool) -> String {
    let within = format!("{:.*} %", usize::from(share * 100.0 % 1.0 != 0.0), share * 100.0);
    match equality {
        Equality::SameOrBetter if !is_known => {
            "same or better: every rate that was measured keeps the limits".to_owned()
        }
        Equality::Worse if !is_known => "worse: no rate that was measured keeps the limits".to_owned(),
        Equality::Same => format!("same: the whole interval lies within {within}"),
        Equality::SameOrBetter => format!("same or better: the whole interval lies above -{within}"),
        Equality::Worse => format!("worse: the whole interval lies below -{within}"),
        Equality::Unknown if is_known => {
            format!("unknown: the interval reaches across -{within}, and more --sweeps make it narrower")
        }
        Equality::Unknown => "unknown".to_owned(),
    }
}

/// Which side has no limit between the levels, and what it keeps.
fn without(answers: &[Answer; 2]) -> String {
    let of = |status: Status| -> Vec<&str> {
        let sides = answers.iter().zip(NAMES).filter(|(answer, _)| answer.status == status);
        sides.map(|(_, name)| name).collect()
    };
    let said = [
        (Status::NothingKept, "the limits at no level that was measured; add lower ones"),
        (Status::AllKept, "the limits at every level that was measured; add higher ones"),
    ]
    .into_iter()
    .map(|(status, what)| (of(status), what))
    .filter(|(sides, _)| !sides.is_empty())
    .map(|(sides, what)| format!("{} {} {what}", sides.join(" and "), if sides.len() > 1 { "keep" } else { "keeps" }));
    let vague = of(Status::NotBracketed);
    let vague = (!vague.is_empty())
        .then(|| format!("the data do not show that the limit of {} lies between the levels", vague.join(" and ")));
    let parts: Vec<String> = said.chain(vague).collect();
    if parts.is_empty() { "the sweeps scatter too much; add --sweeps".to_owned() } else { parts.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_have_the_digits_that_their_size_asks_for() {
        let difference = Difference { ratio: 0.67, from: -0.0123, to: 0.95 };
        assert_eq!(interval(&difference), "90 %: -1.2 % to +95 %");
        assert_eq!([signed(0.0), signed(-1e-9)], ["+0.0 %", "+0.0 %"]);
    }
}
