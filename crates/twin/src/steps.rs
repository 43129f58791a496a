//! Steps of an engine as its client sees them. Each running sequence gets one token in each step. So the time between two tokens of a stream is
//! that of one step. The tokens that arrive with the second one tell what the step computed.
//!
//! A fit that has such steps need not infer them from whole answers, which are means over hundreds of steps. Stairs of the step time show as
//! they are.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::costs::StepWork;
use autotune_records::quantiles::median;
use autotune_records::{ErrorClass, RequestRecord};

/// Steps of about the same content.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SeenSteps {
    /// What one of them computed, on average.
    pub work: StepWork,
    /// The median of their durations in seconds.
    pub seconds: f64,
    pub count: u32,
}

/// Streams whose tokens came one by one must be at least this share of all: an engine that sends several at once shows no steps.
const ONE_BY_ONE: f64 = 0.95;
/// Steps of about the same content, at least, for a median.
const LEAST: usize = 3;
/// Where cells of tokens of a step end: as fine as the sizes that vLLM captures CUDA graphs for, since steps are padded to these.
const FINE: [(u64, u64); 5] = [(128, 8), (256, 16), (512, 32), (1024, 64), (u64::MAX, 512)];
/// The resolution for the sequences that decode beside a prompt.
const COARSE: [(u64, u64); 3] = [(64, 16), (256, 64), (u64::MAX, 256)];

/// Steps follow each other where no more than this share of the later one lies between them.
const TOUCHING: f64 = 0.2;

/// A stream: its request, and when its tokens came.
struct Stream {
    request: usize,
    tokens: Vec<f64>,
}

impl TimedStep {
    fn seconds(&self) -> f64 {
        self.end - self.begin
    }

    /// Whether a prompt was computed in it beside the sequences that decode.
    fn is_mixed(&self) -> bool {
        !self.firsts.is_empty()
    }
}

impl Stream {
    fn first(&self) -> f64 {
        self.tokens.first().copied().unwrap_or(f64::INFINITY)
    }

    fn last(&self) -> f64 {
        self.tokens.last().copied().unwrap_or(f64::NEG_INFINITY)
    }
}

/// A step between two tokens of one stream.
#[derive(Clone, Debug, Default)]
struct TimedStep {
    begin: f64,
    end: f64,
    /// What neighbours took for it, in seconds.
    lent: f64,
    /// Whether a neighbour with a prompt took a part of it, or it of that one.
    disturbed: bool,
    decoding: u64,
    context: u64,
    /// The requests whose first token came with it.
    firsts: Vec<usize>,
    /// Whether a part of a prompt may have been computed in it of which nothing tells.
    unclear: bool,
}

/// The steps of an engine with that token budget, by the requests of a probe and the tokens of each that its cache held. Empty if its answers
/// do not come token by token.
pub fn seen_steps(records: &[RequestRecord], cached: &[u32], budget: u32) -> Vec<SeenSteps> {
    let Some(streams) = streams(records) else { return Vec::new() };
    let mut steps = clock(&streams);
    for stream in &streams {
        let prompt = u64::from(records[stream.request].tokens_in.unwrap_or(0));
        for (k, at) in (0..).zip(&stream.tokens) {
            let Some(step) = nearest(&mut steps, *at) else { continue };
            if k == 0 {
                step.firsts.push(stream.request);
            } else {
                (step.decoding, step.context) = (step.decoding + 1, step.context + prompt + k);
            }
        }
    }
    let computed = |r: usize| records[r].tokens_in.unwrap_or(records[r].asked_in).saturating_sub(cached[r]).max(1);
    mark_doubtful(&mut steps, records, computed, u64::from(budget));
    settle(&mut steps);
    let mut cells: Vec<((bool, u64, u64), StepWork, f64)> = Vec::new();
    for step in steps.iter().filter(|step| !step.unclear && !step.disturbed && step.decoding > 0) {
        let mut work = StepWork { decoding: step.decoding, context: step.context, ..StepWork::default() };
        step.firsts.iter().for_each(|r| work.add_prefill(cached[*r], computed(*r)));
        let total = work.decoding + work.prefill;
        let mixed = work.prefill > 0;
        let key = (mixed, if mixed { cell(work.decoding, &COARSE) } else { 0 }, cell(total, &FINE));
        cells.push((key, work, step.seconds() + step.lent));
    }
    cells.sort_by_key(|(key, ..)| *key);
    cells.chunk_by(|a, b| a.0 == b.0).filter(|cell| cell.len() >= LEAST).filter_map(typical).collect()
}

/// What steps of a cell have in common.
fn typical(cell: &[((bool, u64, u64), StepWork, f64)]) -> Option<SeenSteps> {
    let n = cell.len() as u64;
    let mean = |of: fn(&StepWork) -> u64| (cell.iter().map(|(_, work, _)| of(work)).sum::<u64>() + n / 2) / n;
    let work = StepWork {
        decoding: mean(|w| w.decoding),
        context: mean(|w| w.context),
        prefill: mean(|w| w.prefill),
        pairs: cell.iter().map(|(_, work, _)| work.pairs).sum::<f64>() / n as f64,
    };
    Some(SeenSteps { work, seconds: median(cell.iter().map(|(.., seconds)| *seconds))?, count: cell.len() as u32 })
}

/// The number of the cell that so many tokens are in; cells end at multiples of a width that depends on their place.
fn cell(tokens: u64, widths: &[(u64, u64)]) -> u64 {
    let width = widths.iter().find(|(until, _)| tokens <= *until).map_or(1, |(_, width)| *width);
    tokens.div_ceil(width) * width
}

/// The streams with their tokens, by their first one; `None` if too many tokens come together.
fn streams(records: &[RequestRecord]) -> Option<Vec<Stream>> {
    let whole = |r: &&RequestRecord| r.complete() && r.tokens_out.is_some_and(|tokens| tokens > 1);
    let one_by_one = |r: &&RequestRecord| r.tokens_out == Some(r.gaps.len() as u32 + 1);
    let (all, single) = (records.iter().filter(whole).count(), records.iter().filter(whole).filter(one_by_one).count());
    if all == 0 || (single as f64) < ONE_BY_ONE * all as f64 {
        return None;
    }
    let stream = |(request, r): (usize, &RequestRecord)| {
        let first = r.first.filter(|_| r.complete() || r.error == Some(ErrorClass::Cut))?.0;
        let later = r.gaps.iter().scan(first, |at, gap| {
            *at += f64::from(*gap);
            Some(*at)
        });
        Some(Stream { request, tokens: std::iter::once(first).chain(later).collect() })
    };
    let mut streams: Vec<Stream> = records.iter().enumerate().filter_map(stream).collect();
    streams.sort_by(|a, b| a.first().total_cmp(&b.first()));
    Some(streams)
}

/// The steps by the tokens of one stream, and where that ends, of the one that runs on longest. The first token of a stream is delivered behind
/// those of all others, so the time to its second one is no step's.
fn clock(streams: &[Stream]) -> Vec<TimedStep> {
    let mut steps: Vec<TimedStep> = Vec::new();
    let (mut now, mut begun) = (f64::NEG_INFINITY, 0);
    loop {
        while streams.get(begun).is_some_and(|s| s.first() <= now) {
            begun += 1;
        }
        let running = streams[..begun].iter().filter(|s| s.last() > now && s.tokens.len() > 2);
        let Some(stream) = running.max_by(|a, b| a.last().total_cmp(&b.last())) else {
            let Some(next) = streams.get(begun) else { break };
            now = next.first();
            continue;
        };
        // The token that came with the last one of the stream before.
        let after = stream.tokens.partition_point(|at| *at <= now).max(1);
        let nearer = after > 1 && now - stream.tokens[after - 1] < stream.tokens.get(after).map_or(0.0, |at| at - now);
        let from = if nearer { after - 1 } else { after }.max(1);
        for pair in stream.tokens[from.min(stream.tokens.len() - 1)..].windows(2) {
            steps.push(TimedStep { begin: pair[0], end: pair[1], ..TimedStep::default() });
        }
        now = stream.last();
    }
    steps
}

/// The step whose end is nearest to that time, if one is near.
fn nearest(steps: &mut [TimedStep], at: f64) -> Option<&mut TimedStep> {
    let after = steps.partition_point(|step| step.end < at);
    let away = |i: usize| steps.get(i).map_or(f64::INFINITY, |step| (step.end - at).abs());
    let i = if after > 0 && away(after - 1) < away(after) { after - 1 } else { after };
    steps.get_mut(i).filter(|step| (step.end - at).abs() <= 0.5 * step.seconds())
}

/// Marks the steps that may have computed a part of a prompt other than its last. They are steps where prompts did not fit into one, and steps
/// during which a request waited that never got a token.
fn mark_doubtful(steps: &mut [TimedStep], records: &[RequestRecord], computed: impl Fn(usize) -> u32, budget: u64) {
    let prefill = |step: &TimedStep| step.firsts.iter().map(|r| u64::from(computed(*r))).sum::<u64>();
    let mut since: Vec<(f64, usize)> = Vec::new();
    for i in 0..steps.len() {
        let own = prefill(&steps[i]);
        let before = i.checked_sub(1).map_or(0, |before| prefill(&steps[before]));
        if own > 0 && steps[i].decoding + own + before > budget {
            since.extend(steps[i].firsts.iter().map(|r| (records[*r].sent.0, i)));
        }
    }
    let seen = |r: &RequestRecord| r.first.is_some() && (r.complete() || r.error == Some(ErrorClass::Cut));
    since.extend(records.iter().filter(|r| !seen(r)).map(|r| (r.sent.0, steps.len().saturating_sub(1))));
    for (sent, until) in since {
        let from = steps.partition_point(|step| step.end <= sent);
        if from <= until {
            steps[from..=until].iter_mut().for_each(|step| step.unclear = true);
        }
    }
}

/// Gives steps with a prompt what their neighbours took for them. An engine with asynchronous scheduling delivers the tokens of a step after it has
/// launched the next one. A step with a prompt takes long to launch, so it shifts time between its neighbours. On an H200 (vLLM 0.24, an 8B model,
/// 42 decoding) the gap before a step of 1,500 tokens was 14.9 ms instead of 7.1. Its own gap was 29.4 ms, and the one after it 5.7 ms. Taken
/// alone, such steps seemed up to a fifth too fast.
fn settle(steps: &mut [TimedStep]) {
    let adjoin = |a: &TimedStep, b: &TimedStep| (b.begin - a.end).abs() <= TOUCHING * b.seconds();
    let beside = |i: usize| {
        let before = i.checked_sub(1).filter(|b| steps[*b].is_mixed() && adjoin(&steps[*b], &steps[i]));
        let behind = steps.get(i + 1).filter(|b| b.is_mixed() && adjoin(&steps[i], b)).map(|_| i + 1);
        behind.or(before)
    };
    let decodes = |i: &usize| !steps[*i].is_mixed() && !steps[*i].unclear && steps[*i].decoding > 0;
    let plain: Vec<usize> = (0..steps.len()).filter(decodes).collect();
    let (disturbed, calm): (Vec<usize>, Vec<usize>) = plain.into_iter().partition(|i| beside(*i).is_some());
    let mut alone: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for i in calm {
        alone.entry(cell(steps[i].decoding, &FINE)).or_default().push(steps[i].seconds());
    }
    let alone: BTreeMap<u64, f64> = alone.into_iter().filter_map(|(cell, all)| Some((cell, median(all)?))).collect();
    let lent: Vec<(usize, usize, f64)> = disturbed
        .into_iter()
        .filter_map(|i| {
            let usual = alone.get(&cell(steps[i].decoding, &FINE))?;
            Some((i, beside(i)?, steps[i].seconds() - usual))
        })
        .collect();
    for (i, to, seconds) in lent {
        steps[i].disturbed = true;
        steps[to].lent += seconds;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use autotune_records::units::Seconds;

    /// A request of so many prompt tokens, sent then, whose tokens come at these times.
    fn record(id: u32, sent: f64, prompt: u32, tokens: &[f64]) -> RequestRecord {
        let gaps = tokens.windows(2).map(|pair| (pair[1] - pair[0]) as f32).collect();
        let [first, last] = [tokens.first(), tokens.last()].map(|token| token.map(|at| Seconds(*at)));
        RequestRecord { first, last, gaps, ..RequestRecord::answered(id, sent, 0.0, 0.0, prompt, tokens.len() as u32) }
    }

    /// Two streams of an engine whose steps take 10 ms, and 40 ms where a prompt of 300 tokens comes in.
    fn two() -> Vec<RequestRecord> {
        let mut ends = vec![0.1];
        for step in 1..60 {
            ends.push(ends[step - 1] + if step == 20 { 0.04 } else { 0.01 });
        }
        // Its tokens arrive a millisecond behind those of the other, the first one two.
        let mut second: Vec<f64> = ends[20..50].iter().map(|at| at + 0.001).collect();
        second[0] += 0.001;
        vec![record(0, 0.0, 100, &ends), record(1, ends[18] + 0.004, 300, &second)]
    }

    #[test]
    fn steps_are_what_passes_between_tokens_and_know_what_they_computed() {
        let mut records = two();
        let seen = seen_steps(&records, &[0, 0], 2048);
        let of = |decoding: u64| seen.iter().find(|s| s.work.decoding == decoding && s.work.prefill == 0);
        // One and two sequences share a cell of eight.
        let decode = of(1).or_else(|| of(2)).unwrap();
        assert!((decode.seconds - 0.01).abs() < 2e-4 && decode.count > 50, "{seen:?}");
        assert_eq!(seen.len(), 1, "a single step with a prompt has no median");
        // Three prompts like it have one.
        for id in 2..4 {
            let mut more = two();
            more.iter_mut().for_each(|r| {
                r.id += id * 2;
                r.sent.0 += f64::from(id);
                r.due.0 += f64::from(id);
                r.first = r.first.map(|at| Seconds(at.0 + f64::from(id)));
            });
            records.extend(more);
        }
        let seen = seen_steps(&records, &[0; 6], 2048);
        let mixed = seen.iter().find(|s| s.work.prefill > 0).unwrap();
        assert_eq!((mixed.work.decoding, mixed.work.prefill, mixed.count), (1, 300, 3));
        assert!((mixed.seconds - 0.04).abs() < 2e-4, "{mixed:?}");
        // With a budget of 256 the prompt takes two steps, and which is not seen.
        assert!(seen_steps(&records, &[0; 6], 256).iter().all(|s| s.work.prefill == 0));
    }

    #[test]
    fn a_step_with_a_prompt_gets_back_what_its_neighbours_took() {
        // The tokens before it come 8 ms late, its own and those behind it 1 ms.
        let late = |mut records: Vec<RequestRecord>, id: u32| {
            for r in &mut records {
                (r.id, r.sent, r.due) = (r.id + 2 * id, Seconds(r.sent.0 + f64::from(id)), r.sent);
                r.first = r.first.map(|at| Seconds(at.0 + f64::from(id)));
            }
            let gaps = &mut records[0].gaps;
            (gaps[18], gaps[19], gaps[20]) = (gaps[18] + 8e-3, gaps[19] - 7e-3, gaps[20] - 1e-3);
            records
        };
        let records: Vec<RequestRecord> = (0..3).flat_map(|id| late(two(), id)).collect();
        let seen = seen_steps(&records, &[0; 6], 2048);
        let mixed = seen.iter().find(|s| s.work.prefill > 0).unwrap();
        assert!((mixed.seconds - 0.04).abs() < 5e-4, "{seen:?}");
        let decode = seen.iter().find(|s| s.work.prefill == 0).unwrap();
        assert!((decode.seconds - 0.01).abs() < 2e-4, "{seen:?}");
    }

    #[test]
    fn an_engine_that_sends_several_tokens_at_once_shows_no_steps() {
        let mut records = two();
        records.iter_mut().for_each(|r| r.tokens_out = r.tokens_out.map(|n| 2 * n));
        assert!(seen_steps(&records, &[0, 0], 2048).is_empty());
        assert!(seen_steps(&[], &[], 2048).is_empty());
    }

    #[test]
    fn while_a_request_waits_that_gets_no_token_steps_say_nothing() {
        let mut records = two();
        records.push(RequestRecord { first: None, error: Some(ErrorClass::Timeout), ..record(2, 0.0, 500, &[]) });
        assert!(seen_steps(&records, &[0; 3], 2048).is_empty());
    }
}
