//! What the tests of this room share, and what holds for every kind of workload.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use super::planned::nanos;
use super::*;
use autotune_plan::settings::{
    ArrivalProcess, ConversationsPlan, Endpoint, JsonlPlan, LengthShape, Lengths, RandomPlan, SharegptPlan, TracePlan,
};

pub(super) fn fixed(tokens: u32) -> Lengths {
    Lengths { shape: LengthShape::Fixed, min: tokens, max: tokens }
}

fn plan(endpoint: Endpoint, arrivals: ArrivalProcess, kind: WorkloadKind) -> WorkloadPlan {
    WorkloadPlan { endpoint, ignore_eos: true, arrivals, kind }
}

pub(super) fn random() -> WorkloadPlan {
    let kind = RandomPlan {
        input_tokens: fixed(10),
        output_tokens: Lengths { shape: LengthShape::Uniform, min: 5, max: 9 },
        shared_prefix_tokens: 0,
        shared_prefixes: 1,
    };
    plan(Endpoint::Completions, ArrivalProcess::Poisson, WorkloadKind::Random(kind))
}

pub(super) fn conversations() -> WorkloadPlan {
    let kind = ConversationsPlan {
        starters: 3,
        starter_tokens: fixed(100),
        turns: 4,
        question_tokens: fixed(10),
        output_tokens: fixed(20),
        think_time: Duration::from_secs(1),
    };
    plan(Endpoint::Completions, ArrivalProcess::Poisson, WorkloadKind::Conversations(kind))
}

pub(super) fn sharegpt() -> WorkloadPlan {
    let kind = SharegptPlan { file: "x.jsonl".into(), output_tokens: None, turns: 1, think_time: Duration::ZERO };
    plan(Endpoint::Chat, ArrivalProcess::Poisson, WorkloadKind::Sharegpt(kind))
}

pub(super) fn jsonl() -> WorkloadPlan {
    let kind = JsonlPlan { file: "x.jsonl".into(), output_tokens: None };
    plan(Endpoint::Completions, ArrivalProcess::Poisson, WorkloadKind::Jsonl(kind))
}

pub(super) fn trace() -> WorkloadPlan {
    let kind = TracePlan { file: "x.jsonl".into(), block_tokens: 10, time_unit: Duration::from_millis(1) };
    plan(Endpoint::Completions, ArrivalProcess::Recorded, WorkloadKind::Trace(kind))
}

pub(super) fn material() -> Material {
    Material::default()
}

/// A template of three tokens before everything and five around each message.
pub(super) fn exact() -> Vocabulary {
    let words: Vec<String> = Vocabulary::candidates().split_whitespace().take(40).map(str::to_owned).collect();
    Vocabulary::measured(words, [Some(16 + 8), Some(32 + 13), Some(48 + 18)]).unwrap()
}

pub(super) fn pace(demand: Demand, horizon: f64) -> Pace {
    Pace { arrival_seed: 5, content_seed: 6, answer_time: Seconds(2.0), ..Pace::new(demand, Seconds(horizon), 7) }
}

pub(super) fn open(rate: f64, horizon: f64) -> Pace {
    pace(Demand::Open(Rate(rate)), horizon)
}

/// Everything that a content without follow-ups asks in an open loop.
pub(super) fn take_all(content: Box<dyn Content>, pace: &Pace) -> Vec<Planned> {
    let Demand::Open(rate) = pace.demand else { panic!("an open loop") };
    let arrivals = arrivals::Arrivals::new(ArrivalProcess::Poisson, &[], rate, pace.arrival_seed);
    let source = open::OpenLoop::new(content, Box::new(arrivals), pace.horizon);
    take_count(Box::new(source), usize::MAX)
}

pub(super) fn take_count(mut source: Box<dyn Source>, count: usize) -> Vec<Planned> {
    std::iter::from_fn(|| source.take()).take(count).collect()
}

/// Answers every request two seconds after it was due.
pub(super) fn drive(mut source: Box<dyn Source>, answer: Option<&str>) -> Vec<Planned> {
    let mut open: BinaryHeap<Reverse<(u64, u32)>> = BinaryHeap::new();
    let mut sent = Vec::new();
    loop {
        let next_end = open.peek().map(|Reverse((at, _))| Seconds(*at as f64 / 1e9));
        match (source.next_due(), next_end) {
            (Some(due), end) if end.is_none_or(|end| due.0 < end.0) => {
                let planned = source.take().unwrap();
                open.push(Reverse((nanos(planned.due + Seconds(2.0)), planned.id)));
                sent.push(planned);
            }
            (_, Some(end)) => {
                let Reverse((_, id)) = open.pop().unwrap();
                source.answered(id, end, answer);
            }
            (None, None) => return sent,
            (Some(_), None) => unreachable!("the first arm takes it"),
        }
    }
}

fn read(plan: &WorkloadPlan, text: &str) -> Material {
    Material { corpus: Corpus::parse(plan, text.as_bytes()).unwrap(), ..Material::default() }
}

fn every_kind() -> Vec<(WorkloadPlan, Material)> {
    let dialogue =
        "[{\"conversations\": [{\"from\": \"human\", \"value\": \"why?\"}, {\"from\": \"gpt\", \"value\": \"so\"}]}]";
    let line = "{\"prompt\": [1, 2], \"output_tokens\": 3}";
    let step = "{\"timestamp\": 1, \"input_length\": 7, \"output_length\": 2, \"hash_ids\": [4]}";
    let step = format!("{step}\n{}", step.replace(": 1,", ": 5,"));
    vec![
        (random(), material()),
        (conversations(), material()),
        (sharegpt(), read(&sharegpt(), dialogue)),
        (jsonl(), read(&jsonl(), line)),
        (trace(), read(&trace(), &step)),
    ]
}

#[test]
fn every_kind_goes_with_every_demand() {
    let closed = Demand::Closed { users: 3, think: Seconds(0.5) };
    for (plan, material) in every_kind() {
        for demand in [Demand::Open(Rate(2.0)), Demand::AllAtOnce(5), closed] {
            let sent = drive(source(&plan, &material, pace(demand, 20.0)), Some("an answer"));
            assert!(sent.len() >= 5, "{:?} at {demand:?}: {}", plan.kind, sent.len());
            assert!(sent.iter().enumerate().all(|(i, p)| p.id == i as u32));
            assert!(sent.array_windows().all(|[a, b]| a.due.0 <= b.due.0) && sent.iter().all(|p| p.due.0 < 20.0));
            assert!(sent.iter().all(|p| p.prompt_tokens > 0 && p.output_tokens > 0));
            assert!(sent.iter().all(|p| p.shared_tokens <= p.prompt_tokens), "{:?}", plan.kind);
            let again = drive(source(&plan, &material, pace(demand, 20.0)), Some("an answer"));
            assert_eq!(sent, again);
        }
        let mean = mean_output_tokens(&plan, &material);
        let sent = take_count(source(&plan, &material, open(5.0, 400.0)), 1000);
        let seen = sent.iter().map(|p| f64::from(p.output_tokens)).sum::<f64>() / sent.len() as f64;
        assert!((mean - seen).abs() < 0.2, "{:?}: {mean} {seen}", plan.kind);
    }
}

#[test]
fn without_its_material_a_plan_has_no_traffic() {
    for plan in [sharegpt(), jsonl(), trace()] {
        assert_eq!(take_count(source(&plan, &material(), open(5.0, 10.0)), 9), []);
        assert_eq!(shared_prompts(&plan, &material(), 1), []);
    }
    assert_eq!(take_count(source(&random(), &material(), pace(Demand::Recorded, 10.0)), 9), []);
}
