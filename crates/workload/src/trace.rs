//! Recorded traffic without its texts: times, lengths, and hash ids of blocks that prompts share.
//!
//! Each hash id stands for tokens that are drawn from the probe's seed and the id. Equal ids share a prefix within a probe. Nothing is shared with
//! another probe, nor with another pass through the file.

use std::collections::HashMap;
use std::io::BufRead;
use std::sync::Arc;

use autotune_numerics::seeds::mix;
use rand::RngExt;
use serde_json::{Map, Value};

use super::content::{Ask, Content};
use super::draw::{Purpose, stream};
use super::jsonl::for_each_line;
use super::parsed::{Mistake, Parsed};
use super::text::{Pen, Piece, less};
use autotune_records::units::{MOST_TOKENS, Seconds};

const FORM: &str = "write {\"timestamp\": 0, \"input_length\": 6758, \"output_length\": 500, \"hash_ids\": [0, 1]}";

#[derive(Clone, Debug, PartialEq)]
pub(super) struct TraceEntry {
    /// When it arrived, by the file's own clock.
    pub(super) at: Seconds,
    pub(super) input_tokens: u32,
    pub(super) output_tokens: u32,
    pub(super) hash_ids: Box<[u64]>,
}

/// Reads every line; times must not run backwards.
pub(super) fn parse(bytes: impl BufRead, unit: Seconds) -> Result<Parsed<TraceEntry>, Mistake> {
    let mut parsed = Parsed::default();
    let mut latest = f64::NEG_INFINITY;
    for_each_line(bytes, |object| {
        let at = object.get("timestamp").and_then(Value::as_f64).ok_or_else(|| wrong("timestamp", "a number"))?;
        if at < latest {
            let what = format!("`timestamp` {at} lies before that of the line before, {latest}");
            return Err((what, "sort the lines by `timestamp`"));
        }
        latest = at;
        let (input_tokens, output_tokens) = (count(&object, "input_length")?, count(&object, "output_length")?);
        let hash_ids = hash_ids(&object)?;
        parsed.add(match (input_tokens, output_tokens) {
            (0, _) => Err("without a prompt"),
            (_, 0) => Err("without an answer"),
            _ => Ok(TraceEntry { at: unit * at, input_tokens, output_tokens, hash_ids }),
        });
        Ok(())
    })?;
    Ok(parsed)
}

fn wrong(key: &str, what: &str) -> (String, &'static str) {
    (format!("`{key}` is missing or not {what}"), FORM)
}

fn count(object: &Map<String, Value>, key: &str) -> Result<u32, (String, &'static str)> {
    let count = object.get(key).and_then(Value::as_u64).and_then(|count| u32::try_from(count).ok());
    count.filter(|count| *count <= MOST_TOKENS).ok_or_else(|| wrong(key, "a count of tokens, at most 10 million"))
}

fn hash_ids(object: &Map<String, Value>) -> Result<Box<[u64]>, (String, &'static str)> {
    let ids = match object.get("hash_ids") {
        None | Some(Value::Null) => return Ok(Box::default()),
        Some(Value::Array(ids)) => ids,
        Some(_) => return Err(wrong("hash_ids", "a list of integers")),
    };
    // Some hashes are negative: only equality counts.
    let id = |id: &Value| id.as_u64().or_else(|| id.as_i64().map(i64::cast_unsigned));
    ids.iter().map(id).collect::<Option<_>>().ok_or_else(|| wrong("hash_ids", "a list of integers"))
}

/// Where a replay at a rate begins in a file of so many steps.
pub(super) fn first_step(steps: usize, arrival_seed: u64) -> usize {
    stream(arrival_seed, Purpose::Order, 0).random_range(0..steps.max(1))
}

/// The times of a replay that keeps the file's own, from its first step at time zero.
pub(super) fn recorded_times(steps: Arc<[TraceEntry]>) -> impl Iterator<Item = Seconds> + Send {
    let start = steps.first().map_or(Seconds(0.0), |step| step.at);
    (0..steps.len()).filter_map(move |i| steps.get(i).map(|step| step.at - start))
}

pub(super) struct Trace {
    steps: Arc<[TraceEntry]>,
    block_tokens: u32,
    pen: Pen,
    content_seed: u64,
    next: usize,
    pass: u64,
    /// How many tokens of each hash id were sent in this pass.
    sent: HashMap<u64, u32>,
}

impl Trace {
    pub(super) fn new(steps: Arc<[TraceEntry]>, block_tokens: u32, pen: Pen, content_seed: u64, first: usize) -> Self {
        Self { steps, block_tokens, pen, content_seed, next: first, pass: 0, sent: HashMap::new() }
    }

    /// The prompt's blocks, each with its seed and its length; what no hash id covers is a block of its own.
    fn blocks(&self, step: &TraceEntry, tokens: u32) -> Vec<(Option<u64>, u32)> {
        let mut blocks = Vec::with_capacity(step.hash_ids.len() + 1);
        let mut rest = tokens;
        for id in &step.hash_ids {
            let length = rest.min(self.block_tokens);
            if length == 0 {
                break;
            }
            blocks.push((Some(*id), length));
            rest -= length;
        }
        if rest > 0 {
            blocks.push((None, rest));
        }
        blocks
    }

    /// Tokens of the leading blocks that were sent before; remembers these.
    fn shared(&mut self, blocks: &[(Option<u64>, u32)]) -> u32 {
        let (mut shared, mut leading) = (0, true);
        for (id, length) in blocks {
            let Some(id) = id else { break };
            let sent = self.sent.entry(*id).or_default();
            if leading {
                shared += (*length).min(*sent);
                leading = *sent >= *length;
            }
            *sent = (*sent).max(*length);
        }
        shared
    }
}

impl Content for Trace {
    fn open(&mut self) -> Option<Ask> {
        if self.next >= self.steps.len() {
            (self.next, self.pass) = (0, self.pass + 1);
            self.sent.clear();
        }
        let steps = self.steps.clone();
        let step = steps.get(self.next)?;
        let tokens = less(step.input_tokens, self.pen.alone());
        let blocks = self.blocks(step, tokens);
        let shared_tokens = self.shared(&blocks);
        let pieces: Vec<Piece> = blocks
            .into_iter()
            .map(|(id, length)| {
                // Which step a fresh block belongs to, and which id a shared one has, are numbers of different kinds.
                let parts = id.map_or([self.pass, 0, self.next as u64], |id| [self.pass, 1, id]);
                self.pen.draw(length, &mut stream(mix(self.content_seed, &parts), Purpose::Content, 0))
            })
            .collect();
        self.next += 1;
        let prompt = self.pen.join(pieces).into_prompt("user");
        let prompt_tokens = tokens + self.pen.alone();
        Some(Ask { prompt, prompt_tokens, shared_tokens, output_tokens: step.output_tokens, turn: None })
    }
}

/// The mean length of an answer.
pub(super) fn mean_output(steps: &[TraceEntry]) -> f64 {
    steps.iter().map(|step| f64::from(step.output_tokens)).sum::<f64>() / steps.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::{exact, open, pace, take_count, trace};
    use super::super::{Corpus, Demand, Material, Planned, Prompt, source};
    use super::*;
    use crate::Pace;
    use autotune_plan::settings::{ArrivalProcess, Endpoint, WorkloadPlan};
    use autotune_records::units::Rate;

    /// Blocks of ten tokens in the tests' plan.
    const FILE: &str = "{\"timestamp\": 1000, \"input_length\": 25, \"output_length\": 5, \"hash_ids\": [1, 2, 3]}\n\
        {\"timestamp\": 1500, \"input_length\": 30, \"output_length\": 6, \"hash_ids\": [1, 2, 3]}\n\
        {\"timestamp\": 1500, \"input_length\": 40, \"output_length\": 7, \"hash_ids\": [1, 2, -4, 3], \"type\": \"x\"}\n\
        {\"timestamp\": 4000, \"input_length\": 12, \"output_length\": 8}\n";

    fn material() -> Material {
        let corpus = Corpus::parse(&trace(), FILE.as_bytes()).unwrap();
        Material { corpus, vocabulary: exact(), resent: None }
    }

    fn replay(demand: Demand, count: usize, content_seed: u64) -> Vec<Planned> {
        take_count(source(&trace(), &material(), Pace { content_seed, ..pace(demand, 1e6) }), count)
    }

    fn ids(planned: &Planned) -> &[u32] {
        if let Prompt::Tokens(ids) = &planned.prompt { ids } else { panic!("completions take ids") }
    }

    #[test]
    fn equal_hash_ids_share_their_tokens_within_a_pass_and_nowhere_else() {
        let sent = replay(Demand::AllAtOnce(8), 8, 1);
        assert!(sent.iter().zip([25, 30, 40, 12].iter().cycle()).all(|(p, length)| ids(p).len() == *length));
        assert_eq!(ids(&sent[0])[..], ids(&sent[1])[..25], "the last block is cut");
        assert_eq!(ids(&sent[1])[..20], ids(&sent[2])[..20]);
        assert_eq!(ids(&sent[1])[20..], ids(&sent[2])[30..]);
        assert_ne!(ids(&sent[1])[20..], ids(&sent[2])[20..30]);
        let shared: Vec<u32> = sent.iter().map(|p| p.shared_tokens).collect();
        assert_eq!(
            shared,
            [0, 25, 20, 0, 0, 25, 20, 0],
            "a cut block shares what was sent of it; a second pass is fresh"
        );
        assert_ne!(ids(&sent[0])[..10], ids(&sent[4])[..10]);
        let fresh = replay(Demand::AllAtOnce(8), 8, 2);
        assert!(sent.iter().zip(&fresh).all(|(a, b)| ids(a)[..10] != ids(b)[..10]));
        assert_eq!(sent, replay(Demand::AllAtOnce(8), 8, 1));
    }

    #[test]
    fn a_recorded_replay_keeps_the_files_times_and_ends_with_it() {
        let sent = replay(Demand::Recorded, 99, 1);
        let seen: Vec<(f64, u32)> = sent.iter().map(|p| (p.due.0, p.output_tokens)).collect();
        assert_eq!(seen, [(0.0, 5), (0.5, 6), (0.5, 7), (3.0, 8)]);
        assert_eq!(material().corpus.span(), Some(Seconds(3.0)));
    }

    #[test]
    fn a_replay_at_a_rate_begins_anywhere_and_keeps_gaps_with_their_requests() {
        let sent = replay(Demand::Open(Rate(1.0)), 40, 1);
        // The mean gap of the file is one second: scaled to one request a second, its gaps stay what they are.
        for [before, next] in sent.array_windows() {
            let gap = next.due.0 - before.due.0;
            let expected = match next.output_tokens {
                5 => 1.0,
                6 => 0.5,
                7 => 0.0,
                _ => 2.5,
            };
            assert!((gap - expected).abs() < 1e-9, "{gap} before {}", next.output_tokens);
        }
        let first = |arrival_seed| {
            let pace = Pace { arrival_seed, ..open(1.0, 1e6) };
            take_count(source(&trace(), &material(), pace), 1)[0].output_tokens
        };
        let firsts: Vec<u32> = (0..30).map(first).collect();
        assert!([5, 6, 7, 8].iter().all(|output| firsts.contains(output)));
    }

    #[test]
    fn other_arrivals_can_carry_a_trace_and_chat_its_words() {
        let plan = WorkloadPlan { endpoint: Endpoint::Chat, arrivals: ArrivalProcess::Constant, ..trace() };
        let sent = take_count(source(&plan, &material(), pace(Demand::AllAtOnce(4), 9.0)), 4);
        for (planned, length) in sent.iter().zip([25, 30, 40, 12]) {
            let Prompt::Messages(messages) = &planned.prompt else { panic!("chat takes messages") };
            assert_eq!((messages.len(), planned.prompt_tokens), (1, length));
            assert_eq!(messages[0].content.split(' ').count() as u32 + 8, length, "eight tokens of template");
        }
        let text = |p: &Planned| if let Prompt::Messages(m) = &p.prompt { m[0].content.clone() } else { String::new() };
        assert!(text(&sent[1]).starts_with(&text(&sent[0])));
        assert_eq!(sent[1].shared_tokens, 17);
        let times = take_count(source(&plan, &material(), open(2.0, 9.0)), 9);
        assert!(times.array_windows().all(|[a, b]| (b.due.0 - a.due.0 - 0.5).abs() < 1e-9));
    }

    #[test]
    fn wrong_lines_are_errors_and_empty_requests_are_counted() {
        let unit = Seconds(1.0);
        let parsed = parse(
            "{\"timestamp\": 0.5, \"input_length\": 0, \"output_length\": 1}\n{\"timestamp\": 1, \"input_length\": 1, \"output_length\": 0}\n".as_bytes(),
            unit,
        )
        .unwrap();
        assert_eq!(
            parsed.left_out.into_iter().collect::<Vec<_>>(),
            [("without a prompt", 1), ("without an answer", 1)]
        );
        for (line, says) in [
            ("{\"input_length\": 1, \"output_length\": 1}", "`timestamp` is missing"),
            ("{\"timestamp\": 1e9, \"input_length\": -1, \"output_length\": 1}", "`input_length` is missing or not"),
            ("{\"timestamp\": 1e9, \"input_length\": 4294967295, \"output_length\": 1}", "at most 10 million"),
            ("{\"timestamp\": 1e9, \"input_length\": 1}", "`output_length` is missing or not"),
            ("{\"timestamp\": 1e9, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [1.5]}", "`hash_ids` is"),
            ("{\"timestamp\": 3, \"input_length\": 1, \"output_length\": 1}", "lies before"),
        ] {
            let error = parse(format!("{FILE}{line}").as_bytes(), unit).unwrap_err();
            assert!(matches!(&error, Mistake::Line { line: 5, what, .. } if what.contains(says)), "{line}: {error:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(
            text in "\\PC*", key in 0..4_usize, value in "-?[0-9]{1,20}(\\.[0-9]|e[0-9]{1,3})?|\\[[0-9,-]{0,9}\\]",
        ) {
            let _ = parse(text.as_bytes(), Seconds(1.0));
            let keys = ["timestamp", "input_length", "output_length", "hash_ids"];
            let line = format!("{{\"timestamp\": 1, \"input_length\": 1, \"output_length\": 1, \"{}\": {value}}}", keys[key]);
            let _ = parse(line.as_bytes(), Seconds(1e-3));
        }
    }

    #[test]
    fn fuzz_traces() {
        autotune_fuzz::fuzz(5, [FILE], |input, _| {
            let Ok(corpus) = Corpus::parse(&trace(), input) else { return };
            let _ = (corpus.span(), corpus.left_out());
            if let super::super::corpus::Items::Steps(steps) = &corpus.items {
                mean_output(steps);
                recorded_times(Arc::clone(steps)).take(4).for_each(drop);
            }
        });
    }
}
