//! Seeded streams of requests: what is asked, how long the answer is, in which conversation, and when.
//!
//! What is asked (one file for each kind of workload) and what makes it due (arrivals, users, all at once) are apart and combine
//! freely. Pure but for [`Corpus::read`]: a source is driven by offsets of time that its caller measures or simulates. Two sources
//! of the same plan, material, pace and seeds give the same requests. Arrivals scale with the rate, so that probes at different
//! rates see the same bursts.

mod arrivals;
mod at_once;
mod capped;
mod closed;
mod content;
mod conversations;
mod corpus;
mod dialogue;
mod draw;
mod jsonl;
mod material;
mod open;
mod outline;
mod pace;
mod parsed;
mod planned;
mod random;
mod requests;
mod sharegpt;
mod sketch;
mod text;
mod trace;
mod vocabulary;

use autotune_plan::settings::{WorkloadKind, WorkloadPlan};
use autotune_records::units::{Rate, Seconds};

pub use autotune_numerics::seeds::mix;
pub use autotune_records::Resent;
pub use capped::capped;
pub use corpus::{Corpus, CorpusError};
pub use material::Material;
pub use outline::{Outline, outline};
pub use pace::{Demand, Pace};
pub use planned::{Message, Planned, Prompt, Source, Turn};
pub use sketch::{MESSAGE_TEMPLATE, sketched_blocks};
pub use vocabulary::Vocabulary;

use content::Content;
use corpus::Items;
use text::Pen;

/// The traffic of a plan at a pace. There is none where the material is not the plan's, and none at recorded times without a
/// trace.
pub fn source(plan: &WorkloadPlan, material: &Material, pace: Pace) -> Box<dyn Source> {
    let pen = Pen::new(plan.endpoint, &material.vocabulary);
    // Answers that are sent as drawn ids keep their length.
    let growth = if pen.resends_answers() { pace.growth } else { 1.0 };
    let resent = Resent { growth, ..pen.resent() };
    drawn(plan, material, pace, pen.resending(Some(resent)))
}

/// The traffic of a plan at a pace, with sketches for prompts. Answers come back as the material says, and not as the pace does; all else is that of
/// [`source`]. None for prompts from a file.
pub fn sketched(plan: &WorkloadPlan, material: &Material, pace: Pace) -> Option<Box<dyn Source>> {
    let pen = || Pen::new(plan.endpoint, &material.vocabulary).resending(material.resent).sketching();
    let is_drawn = !matches!(plan.kind, WorkloadKind::Sharegpt(_) | WorkloadKind::Jsonl(_));
    is_drawn.then(|| drawn(plan, material, pace, pen()))
}

fn drawn(plan: &WorkloadPlan, material: &Material, pace: Pace, pen: Pen) -> Box<dyn Source> {
    let Some(content) = content(plan, material, &pace, pen) else { return Box::new(Silence) };
    match pace.demand {
        Demand::AllAtOnce(count) => Box::new(at_once::AtOnce::new(content, count, pace.arrival_seed)),
        Demand::Closed { users, think } => Box::new(closed::ClosedLoop::new(content, users, think, pace.horizon)),
        Demand::Recorded => match &material.corpus.items {
            Items::Steps(steps) => {
                let times = Box::new(trace::recorded_times(steps.clone()));
                Box::new(open::OpenLoop::new(content, times, pace.horizon))
            }
            Items::None | Items::Requests(_) => Box::new(Silence),
        },
        Demand::Open(rate) => {
            let session_rate = Rate(rate.0 / content.mean_turns());
            let times: Vec<Seconds> = match &material.corpus.items {
                Items::Steps(steps) => steps.iter().map(|step| step.at).collect(),
                Items::None | Items::Requests(_) => Vec::new(),
            };
            let arrivals = arrivals::Arrivals::new(plan.arrivals, &times, session_rate, pace.arrival_seed);
            let open = open::OpenLoop::new(content, Box::new(arrivals), pace.horizon);
            Box::new(open.populated(session_rate, &pace, mean_output_tokens(plan, material)))
        }
    }
}

/// What a plan asks; `None` where the material holds no such file.
fn content(plan: &WorkloadPlan, material: &Material, pace: &Pace, pen: Pen) -> Option<Box<dyn Content>> {
    let vocabulary = &material.vocabulary;
    let requests = |requests: &std::sync::Arc<[parsed::Request]>, output_tokens: &Option<_>| {
        requests::Requests::new(requests.clone(), output_tokens.clone(), plan, vocabulary, pace)
    };
    Some(match (&plan.kind, &material.corpus.items) {
        (WorkloadKind::Random(kind), _) => Box::new(random::Random::new(kind.clone(), pen, pace)),
        (WorkloadKind::Conversations(kind), _) => {
            Box::new(conversations::Conversations::new(kind.clone(), plan, vocabulary, pen, pace))
        }
        (WorkloadKind::Sharegpt(kind), Items::Requests(read)) => {
            Box::new(requests(read, &kind.output_tokens).thinking(kind.think_time.into()))
        }
        (WorkloadKind::Jsonl(kind), Items::Requests(read)) => Box::new(requests(read, &kind.output_tokens)),
        (WorkloadKind::Trace(kind), Items::Steps(steps)) => {
            let first = match pace.demand {
                Demand::Open(_) => trace::first_step(steps.len(), pace.arrival_seed),
                Demand::Recorded | Demand::AllAtOnce(_) | Demand::Closed { .. } => 0,
            };
            Box::new(trace::Trace::new(steps.clone(), kind.block_tokens, pen, pace.content_seed, first))
        }
        (WorkloadKind::Sharegpt(_) | WorkloadKind::Jsonl(_), Items::None | Items::Steps(_))
        | (WorkloadKind::Trace(_), Items::None | Items::Requests(_)) => return None,
    })
}

struct Silence;

impl Source for Silence {
    fn next_due(&self) -> Option<Seconds> {
        None
    }

    fn take(&mut self) -> Option<Planned> {
        None
    }

    fn answered(&mut self, _request: u32, _at: Seconds, _text: Option<&str>) {}
}

/// What all requests share, one prompt for each shared prefix or starter. They are sent once before a probe, so that the
/// sharing that the workload means is warm and no probe pays for it. Requests of files share only what they send themselves.
pub fn shared_prompts(plan: &WorkloadPlan, material: &Material, shared_seed: u64) -> Vec<Prompt> {
    shared(plan, shared_seed, &Pen::new(plan.endpoint, &material.vocabulary))
}

/// [`shared_prompts`] as sketches.
pub fn sketched_shared_prompts(plan: &WorkloadPlan, material: &Material, shared_seed: u64) -> Vec<Prompt> {
    shared(plan, shared_seed, &Pen::new(plan.endpoint, &material.vocabulary).sketching())
}

fn shared(plan: &WorkloadPlan, shared_seed: u64, pen: &Pen) -> Vec<Prompt> {
    match &plan.kind {
        WorkloadKind::Random(kind) => random::shared(kind, pen, shared_seed),
        WorkloadKind::Conversations(kind) => conversations::shared(kind, pen, shared_seed),
        WorkloadKind::Sharegpt(_) | WorkloadKind::Jsonl(_) | WorkloadKind::Trace(_) => Vec::new(),
    }
}

/// The mean number of tokens of an answer, for forecasts.
pub fn mean_output_tokens(plan: &WorkloadPlan, material: &Material) -> f64 {
    let drawn = match &plan.kind {
        WorkloadKind::Random(kind) => Some(&kind.output_tokens),
        WorkloadKind::Conversations(kind) => Some(&kind.output_tokens),
        WorkloadKind::Sharegpt(kind) => kind.output_tokens.as_ref(),
        WorkloadKind::Jsonl(kind) => kind.output_tokens.as_ref(),
        WorkloadKind::Trace(_) => None,
    };
    match (&material.corpus.items, drawn) {
        (Items::Requests(read), drawn) => requests::mean_output(read, drawn, &material.vocabulary),
        (Items::Steps(steps), _) => trace::mean_output(steps),
        (Items::None, drawn) => drawn.map_or(1.0, draw::mean_length),
    }
}

#[cfg(test)]
mod tests;
