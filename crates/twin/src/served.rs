//! What an engine was really given: the prompt tokens that it found in its cache, request by request.
//!
//! An engine tells them in the usage of each answer, or as counters over a probe, or not at all. A later turn of a conversation resends
//! its history. An answer that a chat resends need not have the tokens that it had: tokenizers and templates change it. Then the engine
//! computes it again.

use std::collections::HashMap;

use autotune_records::RequestRecord;
use autotune_records::Resent;

/// Resent answers whose tokens differ in number by more than this share are other tokens, and no cache finds them.
const SAME_TOKENS: f64 = 0.02;
/// The engine's counters correct the sums where they differ by more than this share.
const COUNTERS_DIFFER: f64 = 0.01;

/// The cached tokens of the requests of a probe.
#[derive(Clone, Debug, PartialEq)]
pub struct Served {
    /// By request: tokens of its prompt that the cache held.
    pub cached: Vec<u32>,
    /// By request: those of them that other conversations share.
    pub shared: Vec<u32>,
    /// By request: the number of the document that these belong to; zero where that is not known, since counters corrected sums.
    pub document: Vec<u32>,
    /// What later turns resent; `None` if the probe has none.
    pub resent: Option<Resent>,
}

/// A later turn: its place, that of the turn before it, and the tokens that it asks anew.
struct Later {
    at: usize,
    before: usize,
    asks: u32,
    /// Whether the workload means the engine to know the answer before it.
    resends: bool,
}

impl Served {
    /// Of the requests of a probe. `counted_share` is the share of its prompt tokens that the engine's counters say were cached. `block` is
    /// the tokens of a KV block, `None` for an engine that reuses nothing.
    pub fn of(records: &[RequestRecord], counted_share: Option<f64>, block: Option<u32>) -> Self {
        let prompt = |i: usize| records[i].tokens_in.unwrap_or(records[i].asked_in);
        let meant = |i: usize| held(prompt(i), records[i].shared_in, block);
        let mut cached: Vec<u32> = (0..records.len()).map(meant).collect();
        let later = later_turns(records);
        let resent = resent(records, &later, prompt);
        if let Some(Resent { found, .. }) = resent {
            for turn in &later {
                let made = if turn.resends { records[turn.before].tokens_out.unwrap_or(0) } else { 0 };
                let known = prompt(turn.before).saturating_add((f64::from(made) * found) as u32);
                cached[turn.at] = held(prompt(turn.at), known, block);
            }
        }
        let by_answers = records.iter().any(|r| r.tokens_cached.is_some());
        let (mut resent, mut apart) = (resent, true);
        if by_answers {
            cached.iter_mut().zip(records).for_each(|(cached, r)| *cached = r.tokens_cached.unwrap_or(*cached));
            resent = resent.map(|resent| Resent { found: found(records, &later, &cached, prompt, block), ..resent });
        } else if let Some(share) = counted_share.filter(|_| block.is_some()) {
            apart = !correct(&mut cached, &later, share, prompt);
        }
        let (shared, numbers): (Vec<u32>, Vec<u32>) = shared(records, &cached).into_iter().unzip();
        let document = numbers.into_iter().map(|number| if apart { number } else { 0 }).collect();
        resent = resent.map(|resent| Resent { apart, ..resent });
        Self { cached, shared, document, resent }
    }
}

/// Tokens that a cache of blocks of that size holds of a prompt whose first `known` tokens it has seen: never the last token.
fn held(prompt: u32, known: u32, block: Option<u32>) -> u32 {
    block.map_or(0, |block| known.min(prompt.saturating_sub(1)) / block * block)
}

fn later_turns(records: &[RequestRecord]) -> Vec<Later> {
    let places: HashMap<(u32, u32), usize> =
        records.iter().enumerate().filter_map(|(i, r)| Some((r.turn?, i))).collect();
    let later = |(at, r): (usize, &RequestRecord)| {
        let (conversation, turn) = r.turn?;
        let before = *places.get(&(conversation, turn.checked_sub(1)?))?;
        let earlier = &records[before];
        (earlier.complete() && earlier.tokens_in.is_some() && r.tokens_in >= earlier.tokens_in).then(|| Later {
            at,
            before,
            asks: r.asked_in.saturating_sub(r.shared_in),
            resends: r.shared_in > earlier.asked_in,
        })
    };
    records.iter().enumerate().filter_map(later).collect()
}

/// What became of resent answers by the lengths of prompts alone.
fn resent(records: &[RequestRecord], later: &[Later], prompt: impl Fn(usize) -> u32) -> Option<Resent> {
    let (mut came, mut made, mut resends) = (0.0, 0.0, false);
    for turn in later {
        let answer = f64::from(records[turn.before].tokens_out.unwrap_or(0));
        let grew = f64::from(prompt(turn.at)) - f64::from(prompt(turn.before));
        // Where the workload does not mean the answer to be known, it is part of what is asked anew.
        came += (grew - f64::from(turn.asks) + if turn.resends { 0.0 } else { answer }).max(0.0);
        made += answer;
        resends |= turn.resends;
    }
    (made > 0.0).then(|| {
        let growth = came / made;
        let found = if resends && (growth - 1.0).abs() <= SAME_TOKENS { 1.0 } else { 0.0 };
        Resent { growth, found, apart: true }
    })
}

/// The share of resent answers that the cache held, by what each answer told, of the whole blocks that it could hold.
fn found(
    records: &[RequestRecord],
    later: &[Later],
    cached: &[u32],
    prompt: impl Fn(usize) -> u32,
    block: Option<u32>,
) -> f64 {
    let (mut found, mut could) = (0.0, 0.0);
    for turn in later {
        let (now, before) = (prompt(turn.at), prompt(turn.before));
        let answer = records[turn.before].tokens_out.unwrap_or(0);
        // A cache holds no half block: counting it as lost, at 16 tokens a block, would call 3 % of answers of 270 tokens lost.
        let most = f64::from(held(now, before.saturating_add(answer), block).saturating_sub(before));
        found += f64::from(cached[turn.at].saturating_sub(before)).min(most);
        could += most;
    }
    if could > 0.0 { (found / could).clamp(0.0, 1.0) } else { 0.0 }
}

/// Brings the sum of computed tokens to what the counters say: first prompts are corrected before later turns, whose lengths say more. Whether
/// first prompts were.
fn correct(cached: &mut [u32], later: &[Later], share: f64, prompt: impl Fn(usize) -> u32) -> bool {
    let mut first = false;
    let mut is_later = vec![false; cached.len()];
    later.iter().for_each(|turn| is_later[turn.at] = true);
    let prompts: f64 = (0..cached.len()).map(|i| f64::from(prompt(i))).sum();
    let counted = (1.0 - share) * prompts;
    for of_later in [false, true] {
        let computed = |later: bool, cached: &[u32]| -> f64 {
            (0..cached.len())
                .filter(|i| is_later[*i] == later)
                .map(|i| f64::from(prompt(i) - cached[i].min(prompt(i))))
                .sum()
        };
        let (own, others) = (computed(of_later, cached), computed(!of_later, cached));
        if own <= 0.0 || ((own + others) / counted.max(1.0) - 1.0).abs() <= COUNTERS_DIFFER {
            continue;
        }
        first |= !of_later;
        let factor = ((counted - others) / own).max(0.0);
        for i in (0..cached.len()).filter(|i| is_later[*i] == of_later) {
            let now = f64::from(prompt(i) - cached[i].min(prompt(i)));
            let most = f64::from(prompt(i));
            cached[i] = prompt(i) - (now * factor).round().clamp(most.min(1.0), most) as u32;
        }
    }
    first
}

/// What other conversations share of the cached tokens, and the number of the document that it belongs to. That number is the length that the
/// workload means the document to have.
///
/// A conversation shares at most what its first turn found. A cache that was not emptied can hold more of an opening, from an earlier run of the
/// same traffic. So what most openings with the same document found is a second bound.
fn shared(records: &[RequestRecord], cached: &[u32]) -> Vec<(u32, u32)> {
    let mut openings: HashMap<u32, Opening> = HashMap::new();
    for (r, cached) in records.iter().zip(cached) {
        if let Some((conversation, turn)) = r.turn {
            let opening = Opening { turn, meant: r.shared_in, cached: *cached };
            let first = openings.entry(conversation).or_insert(opening);
            if turn < first.turn {
                *first = opening;
            }
        }
    }
    let mut found: HashMap<u32, Vec<u32>> = HashMap::new();
    // An opening that is not meant to share has no document, and one that missed the cache does not tell how long its document is.
    for opening in openings.values().filter(|opening| opening.meant > 0 && opening.cached > 0) {
        found.entry(opening.meant).or_default().push(opening.cached);
    }
    let usual: HashMap<u32, u32> = found.into_iter().map(|(meant, found)| (meant, of_most(found))).collect();
    let of =
        |(r, cached): (&RequestRecord, &u32)| match r.turn.and_then(|(conversation, _)| openings.get(&conversation)) {
            Some(opening) => {
                let most = usual.get(&opening.meant).copied().unwrap_or(opening.cached);
                let shared = opening.cached.min(most).min(*cached);
                (shared, if shared == 0 || opening.meant == 0 { shared } else { opening.meant })
            }
            None => (*cached, *cached),
        };
    records.iter().zip(cached).map(of).collect()
}

/// The first turn of a conversation: what the workload means it to share, and what the cache held of it.
#[derive(Clone, Copy)]
struct Opening {
    turn: u32,
    meant: u32,
    cached: u32,
}

/// The value that more than half of them have, or else the largest.
fn of_most(mut values: Vec<u32>) -> u32 {
    values.sort_unstable();
    let median = values[values.len() / 2];
    let alike = values.iter().filter(|value| **value == median).count();
    if alike * 2 > values.len() { median } else { values[values.len() - 1] }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A turn of conversation 0. Its prompt has `tokens_in` tokens by the engine and `asked_in` by the workload, `shared_in` meant to be known.
    fn turn(turn: u32, tokens_in: u32, asked_in: u32, shared_in: u32, tokens_out: u32) -> RequestRecord {
        let due = f64::from(turn);
        let whole = RequestRecord::answered(turn, due, due + 0.1, due + 0.9, tokens_in, tokens_out);
        RequestRecord { asked_in, shared_in, turn: Some((0, turn)), ..whole }
    }

    #[test]
    fn an_answer_that_comes_back_whole_is_found() {
        let served = Served::of(&[turn(0, 1000, 1000, 960, 400), turn(1, 1440, 1440, 1400, 9)], None, Some(16));
        assert_eq!(served.cached, [960, 1392]);
        assert_eq!(served.shared, [960, 960], "the history is the conversation's own");
        assert_eq!(served.resent, Some(Resent::WHOLE));
    }

    #[test]
    fn an_answer_of_other_tokens_is_computed_again() {
        let served = Served::of(&[turn(0, 1000, 1000, 960, 400), turn(1, 1264, 1440, 1400, 9)], None, Some(16));
        assert_eq!(served.cached, [960, 992]);
        assert_eq!(served.resent, Some(Resent { growth: 0.56, found: 0.0, apart: true }));
    }

    #[test]
    fn counters_correct_first_prompts_before_later_turns() {
        let records = [turn(0, 1000, 1000, 0, 400), turn(1, 1264, 1440, 1400, 9)];
        let served = Served::of(&records, Some(1.0 - 322.0 / 2264.0), Some(16));
        assert_eq!(served.cached, [950, 992], "of 322 computed tokens 272 are the later turn's");
        assert_eq!(served.document, [0, 0], "whose document the first turn found nobody says");
        assert_eq!(Served::of(&records, Some(0.0), None).cached, [0, 0], "an engine without a prefix cache");
    }

    #[test]
    fn what_the_engine_tells_of_each_request_is_believed() {
        let mut records = [turn(0, 1000, 1000, 960, 400), turn(1, 1440, 1440, 1400, 9)];
        records[0].tokens_cached = Some(0);
        records[1].tokens_cached = Some(1200);
        let served = Served::of(&records, Some(0.9), Some(16));
        assert_eq!((served.cached, served.resent.unwrap().found), (vec![0, 1200], 200.0 / 392.0));
    }

    #[test]
    fn an_opening_that_an_earlier_run_left_in_the_cache_is_no_other_document() {
        let opening = |conversation: u32, tokens_cached: u32| {
            let turn = turn(0, 1000, 1000, 970, 400);
            RequestRecord { turn: Some((conversation, 0)), tokens_cached: Some(tokens_cached), ..turn }
        };
        let served = Served::of(
            &[opening(0, 0), opening(1, 960), opening(2, 992), opening(3, 960), opening(4, 960)],
            None,
            Some(16),
        );
        assert_eq!(served.shared, [0, 960, 960, 960, 960], "none of the one that came first: the cache was empty");
        assert_eq!(served.document, [0, 970, 970, 970, 970]);
        let missed = Served::of(&[opening(0, 0), opening(1, 0), opening(2, 960)], None, Some(16));
        assert_eq!(missed.shared, [0, 0, 960]);
        let all_alike = Served::of(&[opening(0, 960), opening(1, 992), opening(2, 976)], None, Some(16));
        assert_eq!(all_alike.shared, [960, 992, 976], "a tokenizer may make the same tokens of whole openings");
    }

    #[test]
    fn counts_that_no_engine_has_are_no_overflow() {
        let mut records = [turn(0, u32::MAX, 1000, 960, u32::MAX), turn(1, u32::MAX, 1440, 1400, 9)];
        records[1].tokens_cached = Some(u32::MAX);
        assert_eq!(Served::of(&records, None, Some(16)).cached[1], u32::MAX);
    }

    #[test]
    fn an_engine_that_tells_all_whole_blocks_lost_nothing() {
        let mut records = [turn(0, 1000, 1000, 960, 400), turn(1, 1440, 1440, 1400, 9)];
        records[0].tokens_cached = Some(960);
        records[1].tokens_cached = Some(1392);
        assert_eq!(Served::of(&records, Some(0.9), Some(16)).resent, Some(Resent::WHOLE));
    }
}
