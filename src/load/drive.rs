//! The open loop: every request leaves at its time, whatever the answers do.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::client::{Answer, Client};
use super::record::{ErrorClass, RequestRecord};
use crate::clock;
use crate::units::Seconds;
use crate::workload::{Planned, Source};

/// How often the watch looks at what is still unanswered.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The times of a probe.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// The end of the window: nothing is sent after it, and the drain begins.
    pub window_ends: Seconds,
    /// How long no token may arrive while requests wait, before the engine counts as hung.
    pub stall_timeout: Seconds,
}

/// A request without its whole answer yet.
#[derive(Clone, Copy, Debug)]
pub struct Open {
    /// When it was to be sent.
    pub due: Seconds,
    /// When its first token arrived.
    pub first: Option<Seconds>,
    /// Answer tokens that were asked for.
    pub asked_out: u32,
}

/// Who decides when a probe is over.
pub trait Watch: Send {
    /// A request ended.
    fn ended(&mut self, record: &RequestRecord);

    /// Called many times a second with what is unanswered.
    fn tick(&mut self, now: Seconds, open: &mut dyn Iterator<Item = Open>) -> Tick;
}

/// Watches nothing: a warm-up runs to its end.
pub struct ToTheEnd;

impl Watch for ToTheEnd {
    fn ended(&mut self, _record: &RequestRecord) {}
    fn tick(&mut self, _now: Seconds, _open: &mut dyn Iterator<Item = Open>) -> Tick {
        Tick::Continue
    }
}

/// What a watch says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tick {
    /// Go on.
    Continue,
    /// What is still unanswered can tell nothing more: a drain may end.
    Settled,
    /// The verdict is certain: stop at once.
    Decided,
}

/// Why a probe ended before its last answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The watch was certain.
    Decided,
    /// No token arrived for the stall timeout while requests waited.
    Hung,
}

/// What was driven.
#[derive(Debug)]
pub struct Driven {
    /// Every request that was due, in the order of their times; those unanswered at the end have the error `cut`.
    pub records: Vec<RequestRecord>,
    /// When the last answer came or the probe was cut.
    pub ended: Seconds,
    /// Why it was cut, if it was.
    pub cut: Option<Cut>,
}

enum News {
    First(u32, Instant),
    Ended(u32, Box<Answer>),
}

struct Flight {
    planned: Planned,
    sent: Seconds,
    first: Option<Seconds>,
}

/// Sends the source's requests at their times and reads all answers, until the watch has seen enough.
pub async fn drive(client: &Client, mut source: Box<dyn Source>, schedule: Schedule, watch: &mut dyn Watch) -> Driven {
    let start = clock::now();
    let since = |at: Instant| Seconds(at.saturating_duration_since(start).as_secs_f64());
    let (news_in, mut news) = mpsc::unbounded_channel::<News>();
    let mut flights: BTreeMap<u32, Flight> = BTreeMap::new();
    let mut tasks: BTreeMap<u32, tokio::task::AbortHandle> = BTreeMap::new();
    let mut records = Vec::new();
    // Microseconds since the start of the last sign of life: a token, an answer, or the end of idleness.
    let last_sign = Arc::new(AtomicU64::new(0));
    let sign = move |at: Instant| at.saturating_duration_since(start).as_micros() as u64;
    let mut look = tokio::time::interval(LOOK_EVERY);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let cut = loop {
        let due = source.next_due();
        if due.is_none() && flights.is_empty() {
            break None;
        }
        let send_at = start + due.unwrap_or_default().duration();
        tokio::select! {
            biased;
            () = tokio::time::sleep_until(send_at.into()), if due.is_some() => {
                let Some(planned) = source.take() else { continue };
                if flights.is_empty() {
                    // Silence counts from the moment that somebody waits.
                    last_sign.fetch_max(sign(clock::now()), Ordering::Relaxed);
                }
                let (id, sent) = (planned.id, since(clock::now()));
                let (client, news, last_sign) = (client.clone(), news_in.clone(), last_sign.clone());
                let body = client.body(&planned.prompt, planned.output_tokens);
                let task = tokio::spawn(async move {
                    let arrival = |at: Instant, is_first: bool| {
                        last_sign.fetch_max(sign(at), Ordering::Relaxed);
                        if is_first {
                            drop(news.send(News::First(id, at)));
                        }
                    };
                    let answer = client.ask(body, arrival).await;
                    drop(news.send(News::Ended(id, Box::new(answer))));
                });
                tasks.insert(id, task.abort_handle());
                flights.insert(id, Flight { planned, sent, first: None });
            }
            Some(event) = news.recv() => {
                match event {
                    News::First(id, at) => {
                        if let Some(flight) = flights.get_mut(&id) {
                            flight.first = Some(since(at));
                        }
                    }
                    News::Ended(id, answer) => {
                        last_sign.fetch_max(sign(clock::now()), Ordering::Relaxed);
                        tasks.remove(&id);
                        if let Some(flight) = flights.remove(&id) {
                            let record = record(&flight, *answer, since, &mut *source);
                            watch.ended(&record);
                            records.push(record);
                        }
                    }
                }
            }
            _ = look.tick() => {
                let now = since(clock::now());
                let mut open = flights.values().map(|f| Open { due: f.planned.due, first: f.first, asked_out: f.planned.output_tokens });
                match watch.tick(now, &mut open) {
                    Tick::Decided => break Some(Cut::Decided),
                    Tick::Settled if now.0 >= schedule.window_ends.0 && source.next_due().is_none() => break None,
                    Tick::Settled | Tick::Continue => {}
                }
                if !flights.is_empty() && now.0 - last_sign.load(Ordering::Relaxed) as f64 / 1e6 > schedule.stall_timeout.0 {
                    break Some(Cut::Hung);
                }
            }
        }
    };
    for task in tasks.values() {
        task.abort();
    }
    let ended = since(clock::now());
    records.extend(flights.into_values().map(|flight| {
        let unanswered = Answer { error: Some(ErrorClass::Cut), ..Answer::default() };
        let mut record = record(&flight, unanswered, since, &mut NoFollowUp);
        record.first = flight.first;
        record
    }));
    records.sort_by(|a, b| a.due.0.total_cmp(&b.due.0));
    Driven { records, ended, cut }
}

/// Stands in for the source once nothing more is to be sent.
struct NoFollowUp;

impl Source for NoFollowUp {
    fn next_due(&self) -> Option<Seconds> {
        None
    }
    fn take(&mut self) -> Option<Planned> {
        None
    }
    fn answered(&mut self, _request: u32, _at: Seconds, _text: Option<&str>) {}
}

fn record(
    flight: &Flight,
    answer: Answer,
    since: impl Fn(Instant) -> Seconds,
    source: &mut dyn Source,
) -> RequestRecord {
    let last = answer.last.map(&since);
    let text = answer.error.is_none().then_some(answer.text.as_str());
    // A request that failed without a word ended now: in a closed loop its user asks again from here.
    source.answered(flight.planned.id, last.unwrap_or_else(|| since(clock::now())), text);
    RequestRecord {
        id: flight.planned.id,
        due: flight.planned.due,
        sent: flight.sent,
        first: answer.first.map(&since),
        last,
        tokens_in: answer.tokens_in,
        tokens_cached: answer.tokens_cached,
        tokens_out: answer.tokens_out,
        asked_out: flight.planned.output_tokens,
        error: answer.error,
        turn: flight.planned.turn.map(|t| (t.conversation, t.turn)),
        gaps: answer.gaps,
    }
}
