//! Tests of the scheduler, one per rule of its module comment, and a random run that must lose no block.

use super::*;
use crate::costs::NO_COSTS;

const COSTS: StepCosts = StepCosts {
    base: 1.0,
    per_decode: 0.1,
    per_context_token: 0.0,
    per_prefill_token: 0.01,
    overhead: 0.0,
    ..NO_COSTS
};

fn scheduler(max_num_seqs: u32, max_num_batched_tokens: u32, num_blocks: u32) -> Scheduler {
    Scheduler::new(COSTS, Limits { max_num_seqs, max_num_batched_tokens, num_blocks, block_size: 4 })
}

fn plain(tokens: u32) -> PromptShape {
    PromptShape { tokens, blocks: Vec::new() }
}

/// A prompt of whole and half blocks whose hashes follow from a family name, so that families share their prefix.
fn named(tokens: u32, family: u64) -> PromptShape {
    PromptShape { tokens, blocks: (0..u64::from(tokens / 4)).map(|b| family * 1000 + b).collect() }
}

#[test]
fn nothing_to_do_is_no_step() {
    assert_eq!(scheduler(4, 16, 8).step(), None);
}

#[test]
fn a_prompt_is_split_by_the_token_budget() {
    let mut s = scheduler(4, 8, 16);
    assert!(s.admit(1, plain(20), 2));
    for _ in 0..2 {
        let step = s.step().unwrap();
        assert!(step.emitted.is_empty());
        assert!((step.seconds - 1.08).abs() < 1e-12);
    }
    let third = s.step().unwrap();
    assert_eq!((third.emitted.as_slice(), third.finished.len()), (&[1][..], 0));
    let fourth = s.step().unwrap();
    assert_eq!(fourth.finished, [1]);
    assert!((fourth.seconds - 1.1).abs() < 1e-12);
    assert_eq!(s.step(), None);
    s.check();
}

#[test]
fn decodes_take_from_the_budget_before_prefill() {
    let mut s = scheduler(4, 8, 32);
    s.admit(1, plain(8), 9);
    s.step();
    s.admit(2, plain(14), 1);
    let step = s.step().unwrap();
    assert_eq!(step.emitted, [1]);
    assert!((step.seconds - (1.0 + 0.1 + 0.07)).abs() < 1e-12, "one decode and seven prompt tokens");
    assert_eq!(s.step().unwrap().emitted, [1, 2]);
}

#[test]
fn the_sequence_cap_keeps_requests_waiting_first_come_first_served() {
    let mut s = scheduler(2, 64, 32);
    (1..=4).for_each(|id| assert!(s.admit(id, plain(4), 2)));
    assert_eq!(s.step().unwrap().emitted, [1, 2]);
    assert_eq!((s.counters().running, s.counters().waiting), (2, 2));
    assert_eq!(s.step().unwrap().finished, [1, 2]);
    assert_eq!(s.step().unwrap().emitted, [3, 4]);
    s.check();
}

#[test]
fn the_newest_is_preempted_and_recomputed_when_blocks_run_out() {
    let mut s = scheduler(4, 64, 4);
    s.admit(1, plain(8), 6);
    s.admit(2, plain(8), 6);
    assert_eq!(s.step().unwrap().emitted, [1, 2]);
    assert!((s.counters().kv_usage - 1.0).abs() < 1e-12);
    let second = s.step().unwrap();
    assert_eq!((second.emitted.as_slice(), second.preempted), (&[1][..], 1));
    assert_eq!((s.counters().running, s.counters().waiting, s.counters().preemptions), (1, 1, 1));
    s.check();
    let mut finished = Vec::new();
    let mut tokens = 3;
    while let Some(step) = s.step() {
        tokens += step.emitted.len();
        finished.extend(step.finished);
        s.check();
    }
    assert_eq!((finished, tokens), (vec![1, 2], 12));
    assert_eq!(s.counters().prompt_tokens, 16, "a recomputed prompt is counted once");
}

#[test]
fn what_can_never_run_is_refused() {
    let mut s = scheduler(4, 64, 4);
    assert!(!s.admit(1, plain(15), 2));
    assert!(!s.admit(1, plain(0), 2));
    assert!(!s.admit(1, plain(4), 0));
    assert!(s.admit(1, plain(14), 2));
    assert!(!s.admit(1, plain(4), 2), "an id that is still known");
    assert_eq!(s.step().unwrap().emitted, [1]);
}

#[test]
fn a_prefix_is_reused_but_the_last_token_is_always_computed() {
    let mut s = scheduler(4, 64, 32);
    s.admit(1, named(12, 7), 1);
    s.step();
    assert_eq!(s.cached_tokens(1), Some(0));
    s.admit(2, named(12, 7), 1);
    s.admit(3, named(14, 7), 1);
    assert_eq!(s.cached_tokens(2), None);
    let step = s.step().unwrap();
    assert!((step.seconds - 1.06).abs() < 1e-12, "4 of 12 and 2 of 14 tokens are new");
    assert_eq!((s.cached_tokens(2), s.cached_tokens(3)), (Some(8), Some(12)));
    assert_eq!((s.counters().prefix_queries, s.counters().prefix_hits), (38, 20));
    s.check();
    assert!(s.reset_prefix_cache());
    s.admit(4, named(14, 7), 2);
    s.step();
    assert_eq!(s.cached_tokens(4), Some(0));
    assert!(!s.reset_prefix_cache(), "a block is in use");
}

#[test]
fn cached_blocks_are_evicted_when_others_need_them() {
    let mut s = scheduler(4, 64, 6);
    for (id, family) in [(1, 1), (2, 2), (3, 3)] {
        s.admit(id, named(12, family), 1);
        s.step();
        s.check();
    }
    // Three blocks were asked for three times out of six: the first family made room for the third.
    s.admit(4, named(12, 2), 1);
    s.step();
    assert_eq!(s.cached_tokens(4), Some(8));
    s.admit(5, named(12, 1), 1);
    s.step();
    assert_eq!(s.cached_tokens(5), Some(0));
    s.check();
}

#[test]
fn an_abort_frees_blocks_wherever_the_request_is() {
    let mut s = scheduler(1, 4, 8);
    s.admit(1, plain(12), 4);
    s.admit(2, plain(12), 4);
    s.step();
    s.abort(2);
    s.abort(1);
    s.abort(9);
    assert_eq!(s.counters(), Counters { prefix_queries: 12, ..Counters::default() });
    assert_eq!(s.step(), None);
    s.check();
}

#[test]
fn a_random_run_keeps_every_block() {
    let mut state = 3_u64;
    let mut roll = move |n: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    for round in 0..20 {
        let mut s = scheduler(1 + roll(6) as u32, 6 + roll(30) as u32, 12 + roll(12) as u32);
        let (mut tokens, mut wanted, mut next, mut aborted) = (0, 0, 0, false);
        for _ in 0..400 {
            match roll(10) {
                0..=3 => {
                    let output = 1 + roll(8) as u32;
                    if s.admit(next, named(1 + roll(36) as u32, roll(3)), output) {
                        wanted += u64::from(output);
                    }
                    next += 1;
                }
                // Half of the rounds never abort, so that their tokens can be counted.
                4 if round % 2 == 0 => {
                    s.abort(next.saturating_sub(1 + roll(4)));
                    aborted = true;
                }
                5 => drop(s.reset_prefix_cache()),
                _ => tokens += s.step().map_or(0, |step| step.emitted.len() as u64),
            }
            s.check();
        }
        while let Some(step) = s.step() {
            assert!(step.seconds >= COSTS.base);
            tokens += step.emitted.len() as u64;
            s.check();
        }
        let end = s.counters();
        assert_eq!((end.running, end.waiting, end.generation_tokens), (0, 0, tokens));
        assert!(end.kv_usage.abs() < 1e-12 && end.prefix_hits <= end.prefix_queries);
        assert!(aborted || tokens == wanted);
    }
}

#[test]
fn accepted_drafts_come_with_their_token_and_cost_what_decoding_costs() {
    let mut s = scheduler(4, 64, 32).speculating(Some(Speculation::new(3, 1.0, 1)));
    s.admit(1, plain(8), 7);
    assert_eq!(s.step().unwrap().emitted, [1], "a prompt is not speculated on");
    let step = s.step().unwrap();
    assert_eq!(step.emitted, [1; 4]);
    assert!((step.seconds - 1.4).abs() < 1e-12, "the token and a draft of three");
    let last = s.step().unwrap();
    assert_eq!((last.emitted.as_slice(), last.finished.as_slice()), (&[1, 1][..], &[1][..]), "never beyond the answer");
    assert_eq!(s.counters().generation_tokens, 7);
    let drafted = s.drafted().unwrap();
    assert_eq!((drafted.drafts, drafted.tokens, drafted.accepted_at.as_slice()), (2, 4, &[2, 1, 1][..]));
    assert_eq!(s.step(), None);
    s.check();
}

#[test]
fn drafts_that_are_never_right_change_the_price_alone() {
    let run = |speculation| {
        let mut s = scheduler(4, 10, 6).speculating(speculation);
        s.admit(1, plain(6), 8);
        s.admit(2, plain(7), 8);
        let mut emitted = Vec::new();
        while let Some(step) = s.step() {
            s.check();
            emitted.extend(step.emitted);
        }
        (emitted.iter().filter(|id| **id == 1).count(), emitted.len(), s.counters().preemptions)
    };
    assert_eq!(run(Some(Speculation::new(2, 0.0, 1))), (8, 16, 1));
    assert_eq!(run(None), (8, 16, 1));
}

#[test]
fn a_sparing_scheduler_does_the_same_and_tells_first_and_last_tokens() {
    let mut uniform = autotune_numerics::repeatable::uniform(5);
    let mut roll = move |n: u32| (uniform() * f64::from(n)) as u32;
    for _ in 0..60 {
        let limits = (1 + roll(12), 6 + roll(30), 12 + roll(60));
        let (mut full, mut sparing) =
            (scheduler(limits.0, limits.1, limits.2), scheduler(limits.0, limits.1, limits.2).sparing(true));
        let mut counts: HashMap<u64, (u32, u32)> = HashMap::new();
        for id in 0..400 {
            if roll(3) == 0 {
                let (prompt, output) = (named(1 + roll(36), u64::from(roll(3))), 1 + roll(40));
                assert_eq!(full.admit(id, prompt.clone(), output), sparing.admit(id, prompt, output));
            } else if roll(20) == 0 {
                let aborted = id.saturating_sub(u64::from(roll(9)));
                full.abort(aborted);
                sparing.abort(aborted);
            }
            let (all, some) = (full.step(), sparing.step());
            let same = |step: &Option<Step>| step.clone().map(|step| Step { emitted: Vec::new(), ..step });
            assert_eq!(same(&all), same(&some));
            assert_eq!(full.counters(), sparing.counters());
            sparing.check();
            let (Some(all), Some(some)) = (all, some) else { continue };
            assert_eq!(all.tokens, all.emitted.len() as u64);
            for id in all.emitted {
                let (listed, left_out) = counts.entry(id).or_default();
                let first_or_last = *listed + *left_out == 0 || all.finished.contains(&id);
                assert!(some.emitted.contains(&id) || !first_or_last);
                *(if some.emitted.contains(&id) { listed } else { left_out }) += 1;
                assert_eq!(full.cached_tokens(id), sparing.cached_tokens(id));
            }
        }
        let left_out: u32 = counts.values().map(|(_, left_out)| left_out).sum();
        assert!(left_out > 20, "{left_out}");
    }
}
