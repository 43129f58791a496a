//! A ladder of levels, and the highest one that its measurements support.

use serde::{Deserialize, Serialize};

use super::VERSION;
use super::level::{Meta, Offered};
use super::standing::Standing;
use super::summary::Summary;

/// Levels in the order of their load, the highest that held marked: `ladder.json`, version 1 of a public format.
///
/// More load is never easier. So the marked level is the highest that held *below the lowest that did not*. One that held above a failure
/// is no answer but a sign that one of the two misleads. Void, unresolved and interrupted levels neither count nor stop the climb.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ladder {
    /// [`VERSION`].
    pub version: u32,
    pub meta: Meta,
    /// The levels, from the lightest load to the heaviest; as they ran where their kinds differ.
    pub levels: Vec<Summary>,
    /// The place in `levels` of the highest that held, from 0.
    pub highest: Option<usize>,
    /// What the ladder shows, in sentences.
    pub because: Vec<String>,
}

impl Ladder {
    /// Of levels in any order.
    pub fn of(meta: Meta, mut levels: Vec<Summary>) -> Self {
        let one_kind = levels
            .windows(2)
            .all(|pair| std::mem::discriminant(&pair[0].offered) == std::mem::discriminant(&pair[1].offered));
        let size = |s: &Summary| s.offered.size().unwrap_or(0.0);
        if one_kind {
            levels.sort_by(|a, b| size(a).total_cmp(&size(b)));
        }
        // Loads of several kinds have no order, and so no highest.
        let ordered = one_kind && levels.iter().all(|s| s.offered.size().is_some());
        let failing = levels.iter().find(|s| s.standing.held() == Some(false)).filter(|_| ordered);
        let below = |s: &Summary| failing.is_none_or(|failing| size(s) < size(failing));
        let highest = levels.iter().rposition(|s| ordered && s.standing.held() == Some(true) && below(s));
        let because = if ordered { sentences(&levels, highest, failing) } else { Vec::new() };
        Self { version: VERSION, meta, highest, because, levels }
    }

    /// Whether the levels were judged by promises.
    pub fn has_promises(&self) -> bool {
        self.levels.iter().any(|s| s.goodput_limits.is_some())
    }
}

fn sentences(levels: &[Summary], highest: Option<usize>, failing: Option<&Summary>) -> Vec<String> {
    let named = |s: &Summary| format!("{} ({})", s.offered, s.standing.word());
    let highest = highest.map(|i| &levels[i]);
    let mut sentences = vec![match (highest, failing) {
        (Some(held), Some(failing)) => format!("the limit lies between {} and {}", named(held), named(failing)),
        (Some(held), None) => format!("no level failed: the limit lies at {} or above", named(held)),
        (None, Some(failing)) => format!("no level below {} held", named(failing)),
        (None, None) if levels.iter().all(|s| s.standing == Standing::Unjudged) => {
            let closed = levels.iter().any(|s| matches!(s.offered, Offered::Users(_)));
            let why = if closed { "a closed loop never asks faster than it is answered; " } else { "" };
            format!("no level is marked: {why}promises (--slo) would tell which level is too much")
        }
        (None, None) => "no level could be judged".to_owned(),
    }];
    let Some(failing) = failing else { return sentences };
    let above = levels.iter().filter(|s| s.standing.held() == Some(true) && s.offered.size() >= failing.offered.size());
    let above: Vec<String> = above.map(|s| s.offered.to_string()).collect();
    if !above.is_empty() {
        sentences.push(format!(
            "{} held although {} did not: more load is never easier, so one of them misleads (a cold start, a cache that was warm, \
             a window too short); run both again",
            above.join(" and "),
            failing.offered
        ));
    }
    sentences
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::at_rate;
    use super::*;
    use crate::report::pretty_json;
    use crate::units::Rate;

    fn ladder(standings: &[(f64, Standing)]) -> Ladder {
        let level = at_rate(5.0, 0.1, "ttft_p99=1s");
        let summary = Summary::of(&level);
        let summaries = standings.iter().map(|(rate, standing)| Summary {
            offered: Offered::Rate(Rate(*rate)),
            standing: *standing,
            ..summary.clone()
        });
        Ladder::of(level.meta.clone(), summaries.collect())
    }

    fn marked(standings: &[(f64, Standing)]) -> Option<f64> {
        let ladder = ladder(standings);
        ladder.highest.and_then(|i| ladder.levels[i].offered.size())
    }

    #[test]
    fn the_highest_that_held_below_the_first_failure_is_marked() {
        use Standing::{Fail, Partial, Pass, Unjudged, Unresolved, Void};
        assert_eq!(marked(&[(1.0, Pass), (2.0, Pass), (4.0, Fail)]), Some(2.0));
        // In any order, and two runs of one level that disagree hold nothing.
        assert_eq!(marked(&[(4.0, Fail), (1.0, Pass), (4.0, Pass)]), Some(1.0));
        assert_eq!(marked(&[(1.0, Fail), (2.0, Pass)]), None);
        // What says nothing neither counts nor stops the climb.
        assert_eq!(marked(&[(1.0, Void), (2.0, Pass), (3.0, Unresolved), (4.0, Pass), (8.0, Void)]), Some(4.0));
        assert_eq!(marked(&[(1.0, Pass), (2.0, Partial)]), Some(1.0));
        assert_eq!(marked(&[(1.0, Void), (2.0, Unjudged)]), None);
        assert_eq!(marked(&[]), None);
    }

    #[test]
    fn the_ladder_says_what_it_shows() {
        use Standing::{Fail, KeptUp, Pass, Saturated, Unjudged, Void};
        let says = |standings: &[(f64, Standing)]| ladder(standings).because.join(" | ");
        insta::assert_snapshot!(
            [
                says(&[(1.0, Pass), (2.0, Fail), (4.0, Pass)]),
                says(&[(1.0, KeptUp), (2.0, Saturated)]),
                says(&[(1.0, Pass), (2.0, Pass)]),
                says(&[(1.0, Fail)]),
                says(&[(1.0, Void)]),
                says(&[(1.0, Unjudged)]),
            ]
            .join("\n"),
            @r#"
        the limit lies between 1.00 req/s (pass) and 2.00 req/s (fail) | 4.00 req/s held although 2.00 req/s did not: more load is never easier, so one of them misleads (a cold start, a cache that was warm, a window too short); run both again
        the limit lies between 1.00 req/s (kept up) and 2.00 req/s (saturated)
        no level failed: the limit lies at 2.00 req/s (pass) or above
        no level below 1.00 req/s (fail) held
        no level could be judged
        no level is marked: promises (--slo) would tell which level is too much
        "#
        );
    }

    #[test]
    fn the_file_reads_back() {
        let ladder = ladder(&[(1.0, Standing::Pass), (2.0, Standing::Fail)]);
        let text = pretty_json(&ladder);
        assert_eq!(serde_json::from_str::<Ladder>(&text).unwrap(), ladder);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&value["version"], &value["highest"]), (&1.into(), &0.into()));
        assert_eq!(
            (&value["levels"][1]["offered"]["rate"], &value["levels"][1]["standing"]),
            (&2.0.into(), &"fail".into())
        );
    }
}
