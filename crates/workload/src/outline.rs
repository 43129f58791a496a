//! Requests without their words: arrival times and lengths.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::text::Pen;
use super::{Material, Pace, Planned, Turn, drawn, planned::nanos};
use autotune_plan::settings::{WorkloadKind, WorkloadPlan};
use autotune_records::units::Seconds;

/// A request without its words.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outline {
    /// When it is sent, from the start of the traffic.
    pub due: Seconds,
    /// The place of the turn before it, where it is a later turn.
    pub follows: Option<u32>,
    pub prompt_tokens: u32,
    /// How many of these an engine with an endless prefix cache already holds because the workload means it. The lines of a file are
    /// taken for samples of what comes: that the file ends and begins again shares nothing.
    pub shared_tokens: u32,
    /// Tokens of its answer.
    pub output_tokens: u32,
}

/// The first so many requests at a pace, in the order of their times. `answer` says what an answer takes from the send to its end,
/// since later turns of a conversation follow from it.
pub fn outline(
    plan: &WorkloadPlan,
    material: &Material,
    pace: Pace,
    requests: usize,
    answer: impl Fn(&Planned) -> Seconds,
) -> Vec<Outline> {
    let sampled = matches!(plan.kind, WorkloadKind::Sharegpt(_) | WorkloadKind::Jsonl(_));
    let mut source =
        drawn(plan, material, pace, Pen::new(plan.endpoint, &material.vocabulary).resending(material.resent).dry());
    let mut answers: BinaryHeap<Reverse<(u64, u32)>> = BinaryHeap::new();
    let mut outlines = Vec::new();
    let mut places: HashMap<Turn, u32> = HashMap::new();
    while outlines.len() < requests {
        let due = source.next_due();
        if let Some(Reverse((at, id))) = answers.peek().copied()
            && due.is_none_or(|due| at <= nanos(due))
        {
            answers.pop();
            source.answered(id, Seconds(at as f64 / 1e9), Some(""));
            continue;
        }
        let Some(planned) = source.take() else { break };
        if planned.turn.is_some() {
            answers.push(Reverse((nanos(planned.due + answer(&planned)), planned.id)));
        }
        let before = planned.turn.and_then(|t| Some(Turn { turn: t.turn.checked_sub(1)?, ..t }));
        let follows = before.and_then(|turn| places.remove(&turn));
        places.extend(planned.turn.map(|turn| (turn, outlines.len() as u32)));
        outlines.push(Outline {
            due: planned.due,
            follows,
            prompt_tokens: planned.prompt_tokens,
            shared_tokens: if sampled && planned.turn.is_none_or(|t| t.turn == 0) { 0 } else { planned.shared_tokens },
            output_tokens: planned.output_tokens,
        });
    }
    outlines
}

#[cfg(test)]
mod tests {
    use super::super::tests::{conversations, drive, material, open, random};
    use super::super::{Planned, Resent, mean_output_tokens, source};
    use super::*;
    use autotune_plan::settings::{ConversationsPlan, Endpoint, LengthShape, Lengths};

    #[test]
    fn it_is_the_traffic_itself_without_its_words() {
        for plan in [random(), conversations()] {
            // The driver of the tests answers every request two seconds after its send.
            let whole = drive(source(&plan, &material(), open(4.0, 60.0)), Some(""));
            let outlined = outline(&plan, &material(), open(4.0, 60.0), usize::MAX, |_| Seconds(2.0));
            let before = |p: &Planned| p.turn.and_then(|t| Some(Turn { turn: t.turn.checked_sub(1)?, ..t }));
            let of = |p: &Planned| Outline {
                due: p.due,
                follows: before(p).and_then(|turn| whole.iter().position(|p| p.turn == Some(turn))).map(|i| i as u32),
                prompt_tokens: p.prompt_tokens,
                shared_tokens: p.shared_tokens,
                output_tokens: p.output_tokens,
            };
            assert!(whole.len() > 150);
            assert_eq!(outlined, whole.iter().map(of).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_rate_holds_from_the_start_also_where_answers_differ_in_length() {
        let WorkloadKind::Conversations(kind) = conversations().kind else { panic!("conversations") };
        let output_tokens = Lengths { shape: LengthShape::Lognormal { median: 100.0, sigma: 0.7 }, min: 5, max: 1000 };
        let kind = WorkloadKind::Conversations(ConversationsPlan { output_tokens, ..kind });
        let plan = WorkloadPlan { kind, ..conversations() };
        let pace = |seed| Pace { arrival_seed: seed, content_seed: seed, ..open(20.0, 6.0) };
        let per_token = pace(0).answer_time.0 / mean_output_tokens(&plan, &material());
        let answer = |p: &Planned| Seconds(per_token * f64::from(p.output_tokens));
        let came: Vec<Outline> =
            (0..60).flat_map(|seed| outline(&plan, &material(), pace(seed), usize::MAX, answer)).collect();
        // A turn takes three seconds.
        for part in 0..6 {
            let (from, to) = (f64::from(part), f64::from(part + 1));
            let rate = came.iter().filter(|o| (from..to).contains(&o.due.0)).count() as f64 / 60.0;
            assert!((rate / 20.0 - 1.0).abs() < 0.1, "{rate} from {from} s on");
        }
    }

    #[test]
    fn later_turns_resend_what_the_engine_was_seen_to_get() {
        let resent = Resent { growth: 0.5, found: 0.0, apart: true };
        let cases = [(Endpoint::Chat, true), (Endpoint::Chat, false), (Endpoint::Completions, true)];
        for (endpoint, ignore_eos) in cases {
            let plan = WorkloadPlan { endpoint, ignore_eos, ..conversations() };
            let of = |resent| {
                let material = Material { resent, ..material() };
                outline(&plan, &material, open(4.0, 60.0), 200, |_| Seconds(0.0))
            };
            let (seen, meant) = (of(Some(resent)), of(None));
            let later: Vec<(usize, usize)> =
                (0..seen.len()).filter_map(|i| Some((i, seen[i].follows? as usize))).collect();
            assert!(later.len() > 50);
            for (at, before) in later {
                assert_eq!(seen[at].shared_tokens, seen[before].prompt_tokens, "the answer is computed again");
                let grew = |of: &[Outline]| of[at].prompt_tokens - of[before].prompt_tokens;
                let answer = seen[before].output_tokens;
                let less = answer - resent.tokens(answer);
                assert_eq!(grew(&meant) - grew(&seen), less, "{endpoint:?}, ignore_eos {ignore_eos}");
            }
        }
    }
}
