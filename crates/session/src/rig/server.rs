//! A running server under test: learns its vocabulary, warms it up, brings it to a known state, and drives load while its counters are read.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tracing::debug;

use super::telemetry::Telemetry;
use autotune_clock as clock;
use autotune_load::endpoints::Endpoints;
use autotune_load::{Client, Driven, RequestRecord, Schedule, Target, ToTheEnd, Unanswered, Watch, drive};
use autotune_plan::engine::telemetry::EngineSample;
use autotune_plan::settings::{Endpoint, WorkloadPlan};
use autotune_records::quantiles::median;
use autotune_records::units::{Rate, Seconds};
use autotune_workload::{
    self as workload, Corpus, Demand, Material, Message, Pace, Planned, Prompt, Source, Vocabulary,
};

/// How often a state is asked for that is waited for.
pub(super) const ASK_EVERY: Duration = Duration::from_millis(100);
/// Requests of the warm-up's burst: enough to fill a batch, few enough to be over soon.
pub(super) const BURST: u32 = 16;
/// Tokens of an answer in a short warm-up.
pub(super) const BEGUN: u32 = 16;
/// How often the server's counters are read; a vLLM metrics page costs it about 50 ms ...
pub const SAMPLE_EVERY: Duration = Duration::from_secs(2);
/// ... and when for the first time, so that even a short level is seen at work.
pub const FIRST_SAMPLE: Duration = Duration::from_millis(500);
/// How long a server may take to give up cut requests before the next probe.
const IDLE_WITHIN: Duration = Duration::from_secs(10);

/// The server and the traffic that is meant for it.
pub struct Server {
    endpoints: Endpoints,
    client: Client,
    workload: WorkloadPlan,
    material: Material,
    shared_seed: u64,
    stall_timeout: Duration,
    /// The most requests in flight; arrivals beyond are held back.
    most_in_flight: Option<u32>,
}

/// What the burst of the warm-up showed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Warmed {
    /// Whole answers per second in it: a first guess of the capacity.
    pub burst_rate: Rate,
    /// What one whole answer takes, the median.
    pub answer_time: Seconds,
}

impl Warmed {
    /// By requests sent at the same time, as if each answer had all its `asked` tokens; none where none was answered. The missing tokens of an
    /// answer come at the pace of the fastest answer: the others' first ones came while prompts were still computed.
    fn of(records: &[RequestRecord], asked: &[u32]) -> Option<Self> {
        let answered = || records.iter().filter(|r| r.complete());
        let pace = answered().filter_map(RequestRecord::tpot).map(|tpot| tpot.0).fold(f64::INFINITY, f64::min);
        let took = |r: &RequestRecord| {
            let missing = asked.get(r.id as usize)?.saturating_sub(r.asked_out);
            Some(r.e2e()?.0 + if missing > 0 { pace * f64::from(missing) } else { 0.0 })
        };
        let took: Vec<f64> = answered().filter_map(took).filter(|took| took.is_finite()).collect();
        let answer_time = Seconds(median(took.iter().copied())?);
        let ended = took.iter().copied().fold(0.0, f64::max);
        Some(Self { burst_rate: Rate(took.len() as f64 / ended.max(1e-3)), answer_time })
    }
}

/// Traffic whose answers end after a few tokens.
struct Begun(Box<dyn Source>);

impl Source for Begun {
    fn next_due(&self) -> Option<Seconds> {
        self.0.next_due()
    }

    fn take(&mut self) -> Option<Planned> {
        let planned = self.0.take()?;
        Some(Planned { output_tokens: planned.output_tokens.min(BEGUN), ..planned })
    }

    fn answered(&mut self, request: u32, at: Seconds, text: Option<&str>) {
        self.0.answered(request, at, text);
    }

    fn follows_answers(&self) -> bool {
        self.0.follows_answers()
    }
}

/// Why a single request had no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    #[error("the server refuses a request: {0}")]
    Refused(String),
    #[error("{0}")]
    Failed(String),
}

/// Refusals that pass: too slow, too early, too many.
const PASSING: [&str; 3] = ["HTTP 408", "HTTP 425", "HTTP 429"];

impl NoAnswer {
    fn of(unanswered: &Unanswered, otherwise: impl Fn(&Unanswered) -> String) -> Self {
        match unanswered.refusal().filter(|refusal| !PASSING.iter().any(|status| refusal.starts_with(status))) {
            Some(refusal) => Self::Refused(refusal.to_owned()),
            None => Self::Failed(otherwise(unanswered)),
        }
    }
}

/// The state that a server was brought to.
#[derive(Clone, Copy, Debug)]
pub struct Settled {
    /// Whether its prefix cache was emptied.
    pub reset: bool,
    /// Requests of others that it still works on.
    pub busy_with: f64,
}

impl Server {
    /// Around a server that answers; asks it for the words of its prompts where the workload needs them.
    pub async fn learn(
        endpoints: Endpoints,
        client: Client,
        workload: WorkloadPlan,
        corpus: Corpus,
        shared_seed: u64,
        stall_timeout: Duration,
    ) -> Self {
        let model = &client.target().model;
        let vocabulary = match workload.endpoint {
            Endpoint::Chat => endpoints.vocabulary(model).await.unwrap_or_default(),
            Endpoint::Completions => Vocabulary::default(),
        };
        let (tokens, characters) = endpoints.tokens_and_characters(model, &corpus.sample()).await;
        let material = Material { corpus, vocabulary: vocabulary.with_ratio(tokens, characters), resent: None };
        Self { endpoints, client, workload, material, shared_seed, stall_timeout, most_in_flight: None }
    }

    #[must_use]
    pub fn with_at_most(self, most_in_flight: Option<u32>) -> Self {
        Self { most_in_flight, ..self }
    }

    pub fn target(&self) -> &Target {
        self.client.target()
    }

    /// What it says beside the load.
    pub fn endpoints(&self) -> &Endpoints {
        &self.endpoints
    }

    /// What its traffic is made from.
    pub fn material(&self) -> &Material {
        &self.material
    }

    /// One real answer, then a burst whose latencies are discarded. A few tokens of each are enough where an earlier launch `showed` how
    /// long answers take, or answers are as long as was asked. They compile and touch what whole answers do.
    pub async fn warm(&self, seed: u64, patience: Seconds, showed: Option<Warmed>) -> Result<Warmed, NoAnswer> {
        let is_short = showed.is_some() || self.workload.ignore_eos;
        let whole = |count| {
            let pace = Pace {
                arrival_seed: seed,
                content_seed: seed,
                ..Pace::new(Demand::AllAtOnce(count), Seconds(1e9), self.shared_seed)
            };
            workload::source(&self.workload, &self.material, pace)
        };
        let source = |count| {
            if is_short { Box::new(Begun(whole(count))) as Box<dyn Source> } else { whole(count) }
        };
        let failed = |why: &str| NoAnswer::Failed(why.to_owned());
        let first = source(1).take().ok_or_else(|| failed("the workload has no request"))?;
        tokio::time::timeout(patience.duration(), self.client.answers(&first.prompt, first.output_tokens))
            .await
            .map_err(|_| NoAnswer::Failed(format!("it gave no answer to its first request within {patience}")))?
            .map_err(|e| NoAnswer::of(&e, |e| format!("its first completion failed ({e})")))?;
        let schedule = Schedule { window_ends: Seconds(0.0), stall_timeout: patience, request_timeout: None };
        let driven = drive(&self.client, source(BURST), schedule, Box::new(ToTheEnd)).await;
        let mut whole = whole(BURST);
        let asked: Vec<u32> = std::iter::from_fn(|| Some(whole.take()?.output_tokens)).collect();
        let warmed =
            Warmed::of(&driven.records, &asked).ok_or_else(|| failed("none of its first completions was answered"))?;
        debug!(is_short, burst_rate = %warmed.burst_rate, answer_time = %warmed.answer_time, took = %driven.ended, "warmed up");
        Ok(showed.unwrap_or(warmed))
    }

    /// Brings it to a known state: idle, its prefix cache emptied where it offers that and `reset` asks for it, shared prompts warm.
    pub async fn settle(&self, reset: bool) -> Result<Settled, NoAnswer> {
        let mut waited = Duration::ZERO;
        let busy_with = loop {
            let sample = self.endpoints.sample().await.unwrap_or_default();
            let busy_with = sample.running.unwrap_or(0.0) + sample.waiting.unwrap_or(0.0);
            if busy_with == 0.0 || waited >= IDLE_WITHIN {
                break busy_with;
            }
            tokio::time::sleep(ASK_EVERY).await;
            waited += ASK_EVERY;
        };
        let reset = reset && self.endpoints.empty_prefix_cache().await;
        let mut prompts = workload::shared_prompts(&self.workload, &self.material, self.shared_seed);
        if prompts.is_empty() {
            prompts.push(sign_of_life(self.workload.endpoint));
        }
        for prompt in &prompts {
            // The health endpoint of a hung engine says 200: only an answer shows that it lives.
            match tokio::time::timeout(self.stall_timeout, self.client.answers(prompt, 1)).await {
                Ok(Ok(())) => {}
                Ok(Err(unanswered)) => {
                    return Err(NoAnswer::of(&unanswered, |e| format!("it failed a single request ({e})")));
                }
                Err(_) => {
                    let stall = Seconds::from(self.stall_timeout);
                    return Err(NoAnswer::Failed(format!("it gave no answer to a single request within {stall}")));
                }
            }
        }
        debug!(cache_emptied = reset, busy_with, ?waited, prompts = prompts.len(), "settled");
        Ok(Settled { reset, busy_with })
    }

    /// Drives traffic at that pace, and samples the server's counters meanwhile.
    pub async fn drive(&self, pace: Pace, schedule: Schedule, watch: Box<dyn Watch>) -> (Driven, Telemetry) {
        debug!(demand = ?pace.demand, until = %schedule.window_ends, "load begins");
        let mut source = workload::source(&self.workload, &self.material, pace);
        if let Some(most) = self.most_in_flight {
            source = workload::capped(source, most, pace.horizon);
        }
        let sampled = self.endpoints.sample().await.map(|sample| (Seconds(0.0), sample));
        let mut samples: Vec<(Seconds, EngineSample)> = sampled.into_iter().collect();
        let begun = clock::now();
        let driven = {
            let driving = drive(&self.client, source, schedule, watch);
            tokio::pin!(driving);
            let mut every =
                tokio::time::interval_at(tokio::time::Instant::from_std(clock::now()) + FIRST_SAMPLE, SAMPLE_EVERY);
            every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    driven = &mut driving => break driven,
                    _ = every.tick() => {
                        // Beside the load, never instead of it: both futures advance.
                        tokio::select! {
                            driven = &mut driving => break driven,
                            sample = self.endpoints.sample() => {
                                samples.extend(sample.map(|sample| (begun.elapsed().into(), sample)));
                            }
                        }
                    }
                }
            }
        };
        samples.extend(self.endpoints.sample().await.map(|sample| (begun.elapsed().into(), sample)));
        (driven, Telemetry::of(&samples))
    }
}

fn sign_of_life(endpoint: Endpoint) -> Prompt {
    match endpoint {
        Endpoint::Completions => Prompt::Tokens(vec![300, 301, 302, 303]),
        Endpoint::Chat => Prompt::Messages(vec![Message { role: "user", content: "hello there".into() }]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quickstart::quickstart;

    #[test]
    fn what_is_missing_of_an_answer_comes_as_fast_as_the_tokens_of_the_fastest() {
        let record = |id, first, last, tokens| RequestRecord::answered(id, 0.0, first, last, 100, tokens);
        // Prompts were computed meanwhile, but for the last one's tokens: 10 ms each.
        let records = [record(0, 0.1, 1.6, 16), record(1, 0.5, 1.6, 16), record(2, 1.45, 1.6, 16)];
        let warmed = Warmed::of(&records, &[116, 216, 16]).unwrap();
        assert!((warmed.answer_time.0 - 2.6).abs() < 1e-9, "{warmed:?}");
        assert!((warmed.burst_rate.0 - 3.0 / 3.6).abs() < 1e-9, "{warmed:?}");
        let whole = Warmed::of(&records, &[16, 16, 16]).unwrap();
        assert!((whole.answer_time.0 - 1.6).abs() < 1e-9, "{whole:?}");
        assert_eq!(Warmed::of(&[], &[16]), None);
    }

    #[test]
    fn short_answers_are_those_of_the_same_requests() {
        let plan = quickstart(&[]);
        let pace = Pace { arrival_seed: 1, content_seed: 2, ..Pace::new(Demand::AllAtOnce(BURST), Seconds(1e9), 3) };
        let whole = || workload::source(&plan.workload, &Material::default(), pace);
        let taken = |mut source: Box<dyn Source>| std::iter::from_fn(move || source.take()).collect::<Vec<Planned>>();
        let (whole, begun) = (taken(whole()), taken(Box::new(Begun(whole()))));
        assert_eq!((whole.len(), begun.len()), (BURST as usize, BURST as usize));
        for (whole, begun) in whole.iter().zip(&begun) {
            assert_eq!((whole.id, whole.prompt_tokens), (begun.id, begun.prompt_tokens));
            assert_eq!(begun.output_tokens, whole.output_tokens.min(BEGUN));
        }
    }

    #[tokio::test]
    async fn a_server_that_answers_nothing_is_not_waited_for_without_end() {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let base_url = format!("http://{}", listener.local_addr().unwrap());
        let silent = tokio::spawn(async move {
            let mut held = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut method = [0; 4];
                let read = tokio::io::AsyncReadExt::read_exact(&mut stream, &mut method).await;
                held.extend((read.is_ok() && &method == b"POST").then_some(stream));
            }
        });
        let plan = quickstart(&[]);
        let access = autotune_http::access::Access::default();
        let target = Target {
            base_url: base_url.clone(),
            model: "m".to_owned(),
            endpoint: plan.workload.endpoint,
            ignore_eos: true,
            access: access.clone(),
            extra_body: serde_json::Map::new(),
        };
        let server = Server {
            endpoints: Endpoints::new(base_url, &access, autotune_plan::engine::dialect(plan.engine.kind)).unwrap(),
            client: Client::new(target).unwrap(),
            workload: plan.workload,
            material: Material::default(),
            shared_seed: 1,
            stall_timeout: Duration::from_millis(100),
            most_in_flight: None,
        };
        let why = server.settle(false).await.unwrap_err().to_string();
        assert_eq!(why, "it gave no answer to a single request within 100 ms");
        silent.abort();
    }
}
