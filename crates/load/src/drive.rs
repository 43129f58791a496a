//! Sends every request at its scheduled time, whether or not earlier ones were answered, and records each answer.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tracing::debug;

use super::alarm::Alarm;
use super::answer::Answer;
use super::client::Client;
use super::health::ClientHealth;
use super::lateness::quantile;
use autotune_clock as clock;
use autotune_records::units::Seconds;
use autotune_records::{ErrorClass, RequestRecord};
use autotune_workload::{Planned, Source, Turn};

/// How often the watch looks at the unanswered requests.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Request bodies are prepared this long before they are due, when the thread is idle ...
const AHEAD: Duration = Duration::from_millis(100);
/// ... and at most this many, since later requests may depend on answers.
const MOST_PREPARED: usize = 64;

/// The times of a probe.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// The end of the window: nothing is sent after it, and the drain begins.
    pub window_ends: Seconds,
    /// The engine counts as hung when requests wait and no token has arrived for this time.
    pub stall_timeout: Seconds,
    /// A request fails after this time; without it, none does.
    pub request_timeout: Option<Seconds>,
}

/// A request whose answer is not complete.
#[derive(Clone, Copy, Debug)]
pub struct Open {
    /// When it was to be sent.
    pub due: Seconds,
    /// When its first token arrived.
    pub first: Option<Seconds>,
    /// Answer tokens that were asked for.
    pub asked_out: u32,
}

/// Decides when a probe is over.
pub trait Watch: Send {
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tick {
    Continue,
    /// The unanswered requests cannot change the verdict: a drain may end.
    Settled,
    /// The verdict is certain: stop at once.
    Decided,
}

/// Why a probe ended before its last answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    Decided,
    /// No token arrived for the stall timeout while requests waited.
    Hung,
}

#[derive(Debug, Default)]
pub struct Driven {
    /// Every request that was due, in the order of their times; those unanswered at the end have the error `cut`.
    pub records: Vec<RequestRecord>,
    /// When the last answer came or the probe was cut.
    pub ended: Seconds,
    /// Why it was cut, if it was.
    pub cut: Option<Cut>,
    /// How well the client itself kept up.
    pub health: ClientHealth,
}

enum News {
    Sent(u32, Instant),
    First(u32, Instant),
    Ended(u32, Box<Answer>),
}

/// A request that is on its way.
struct Flight {
    id: u32,
    due: Seconds,
    asked_in: u32,
    shared_in: u32,
    asked_out: u32,
    turn: Option<Turn>,
    /// When it was sent; none while it waits for its thread.
    sent: Option<Seconds>,
    first: Option<Seconds>,
    task: AbortHandle,
}

/// A request with its body, ready to be sent.
struct Prepared {
    planned: Planned,
    request: Vec<u8>,
}

/// Sends the source's requests at their times and reads all answers, until the watch has seen enough. Everything happens on the
/// client's own threads and ends when the future is dropped.
pub async fn drive(client: &Client, source: Box<dyn Source>, schedule: Schedule, watch: Box<dyn Watch>) -> Driven {
    let mut pacing = JoinSet::new();
    pacing.spawn_on(Drive::run(client.clone(), source, schedule, watch), client.pacer());
    match pacing.join_next().await {
        Some(Ok(driven)) => {
            let failed = driven.records.iter().filter(|record| record.error.is_some()).count();
            let Driven { records, ended, cut, health } = &driven;
            debug!(requests = records.len(), failed, ?cut, %ended, ?health, "load ended");
            driven
        }
        Some(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        _ => Driven::default(),
    }
}

/// A running probe, on the pacer's thread.
struct Drive {
    client: Client,
    source: Box<dyn Source>,
    start: Instant,
    prepared: VecDeque<Prepared>,
    flights: BTreeMap<u32, Flight>,
    records: Vec<RequestRecord>,
    streams: JoinSet<()>,
    news_in: mpsc::UnboundedSender<News>,
    /// Microseconds since the start of the last sign of life: a token, an answer, or the end of idleness.
    last_sign: Arc<AtomicU64>,
}

impl Drive {
    async fn run(client: Client, source: Box<dyn Source>, schedule: Schedule, mut watch: Box<dyn Watch>) -> Driven {
        let Ok(alarm) = Alarm::new() else { return Driven::default() };
        let (late, used) = (client.lateness(), client.usage());
        client.set_hurry(source.follows_answers());
        let (news_in, mut news) = mpsc::unbounded_channel::<News>();
        let mut drive = Self {
            client,
            source,
            start: clock::now(),
            prepared: VecDeque::new(),
            flights: BTreeMap::new(),
            records: Vec::new(),
            streams: JoinSet::new(),
            news_in,
            last_sign: Arc::default(),
        };
        // The bodies of a burst at time 0 are prepared before the clock starts, so that writing them delays no request.
        while drive.source.next_due().is_some_and(|due| due.0 <= 0.0) && drive.prepare() {}
        drive.start = clock::now();
        let mut look = tokio::time::interval(LOOK_EVERY);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut looked = drive.start;
        let cut = loop {
            let at = clock::now();
            let now = drive.since(at);
            drive.send_due(now);
            // By the clock: a flood of other events could starve a timer's event.
            if at.saturating_duration_since(looked) >= LOOK_EVERY {
                looked = at;
                while let Ok(event) = news.try_recv() {
                    drive.take(event, &mut *watch);
                }
                while drive.streams.try_join_next().is_some() {}
                drive.time_out(now, schedule.request_timeout, &mut *watch);
                let nothing_to_send = drive.prepared.is_empty() && drive.source.next_due().is_none();
                match drive.look(now, &mut *watch) {
                    Tick::Decided => break Some(Cut::Decided),
                    Tick::Settled if now.0 >= schedule.window_ends.0 && nothing_to_send => break None,
                    Tick::Settled | Tick::Continue => {}
                }
                let silent = now.0 - drive.last_sign.load(Ordering::Relaxed) as f64 / 1e6;
                if !drive.flights.is_empty() && silent > schedule.stall_timeout.0 {
                    break Some(Cut::Hung);
                }
                // A drive that was dropped ends here, also while it is busy.
                tokio::task::yield_now().await;
            }
            if drive.prepare_one(now) {
                // A long prompt takes time to write: look at the clock before the next one.
                continue;
            }
            let (due, next) = (drive.prepared.front().map(|next| next.planned.due), drive.source.next_due());
            if due.is_none() && next.is_none() && drive.flights.is_empty() {
                break None;
            }
            // Later requests are prepared when they are nearly due. A follow-up may be due before those that are prepared.
            let soonest = match (due, next) {
                (Some(due), Some(next)) => Some(if next < due { next } else { due }),
                (Some(due), None) => Some(due),
                (None, next) => next.map(|next| next - Seconds::from(AHEAD)),
            };
            tokio::select! {
                biased;
                () = alarm.at(drive.start + soonest.unwrap_or_default().duration()), if soonest.is_some() => {}
                Some(event) = news.recv() => drive.take(event, &mut *watch),
                _ = look.tick() => {}
            }
        };
        drive.streams.abort_all();
        let ended = drive.since(clock::now());
        let open = std::mem::take(&mut drive.flights);
        drive.records.extend(open.into_values().map(|flight| cut_off(&flight, ended)));
        drive.records.sort_by(|a, b| a.due.0.total_cmp(&b.due.0).then(a.id.cmp(&b.id)));
        let health = ClientHealth::of(&drive.records)
            .with(quantile(&late, &drive.client.lateness(), 0.99), drive.client.usage().since(used));
        Driven { records: drive.records, ended, cut, health }
    }

    fn since(&self, at: Instant) -> Seconds {
        Seconds(at.saturating_duration_since(self.start).as_secs_f64())
    }

    fn send_due(&mut self, now: Seconds) {
        while let Some(next) = self.prepared.pop_front_if(|next| next.planned.due.0 <= now.0) {
            self.send(next);
        }
    }

    /// Prepares the next request if it is due soon. Returns whether it did.
    fn prepare_one(&mut self, now: Seconds) -> bool {
        let soon = |due: Seconds| due.0 <= now.0 + Seconds::from(AHEAD).0 && self.prepared.len() < MOST_PREPARED;
        // A turn that follows an answer may be due before the requests that are prepared.
        let earlier = |due: Seconds| self.prepared.back().is_none_or(|last| due.0 < last.planned.due.0);
        if !self.source.next_due().is_some_and(|due| soon(due) || (earlier(due) && due.0 <= now.0)) {
            return false;
        }
        self.prepare()
    }

    /// Prepares the next request. Returns false where there is none.
    fn prepare(&mut self) -> bool {
        let Some(planned) = self.source.take() else { return false };
        let request = self.client.request(&planned.prompt, planned.output_tokens);
        let place = self.prepared.partition_point(|other| other.planned.due.0 <= planned.due.0);
        self.prepared.insert(place, Prepared { planned, request });
        true
    }

    fn send(&mut self, Prepared { planned, request }: Prepared) {
        let start = self.start;
        if self.flights.is_empty() {
            // The stall timeout counts from the first request that waits.
            self.last_sign.fetch_max(micros(start, clock::now()), Ordering::Relaxed);
        }
        let (id, turn, reader) = (planned.id, planned.turn, self.client.turn());
        let (client, news, last_sign) = (self.client.clone(), self.news_in.clone(), self.last_sign.clone());
        let asked_out = planned.output_tokens;
        let asking = async move {
            let arrival = |at: Instant, is_first: bool| {
                last_sign.fetch_max(micros(start, at), Ordering::Relaxed);
                if is_first {
                    drop(news.send(News::First(id, at)));
                }
            };
            drop(news.send(News::Sent(id, clock::now())));
            let answer = client.ask(reader, request, (asked_out, turn.is_some()), arrival).await;
            drop(news.send(News::Ended(id, Box::new(answer))));
        };
        let lane = self.client.reader(reader);
        let task = self.streams.spawn_on(asking, lane.handle());
        lane.wake();
        let Planned { due, prompt_tokens: asked_in, shared_tokens: shared_in, .. } = planned;
        self.flights
            .insert(id, Flight { id, due, asked_in, shared_in, asked_out, turn, sent: None, first: None, task });
    }

    fn take(&mut self, event: News, watch: &mut dyn Watch) {
        match event {
            News::Sent(id, at) => {
                let at = self.since(at);
                if let Some(flight) = self.flights.get_mut(&id) {
                    flight.sent = Some(at);
                }
            }
            News::First(id, at) => {
                let at = self.since(at);
                if let Some(flight) = self.flights.get_mut(&id) {
                    flight.first = Some(at);
                }
            }
            News::Ended(id, answer) => {
                self.last_sign.fetch_max(micros(self.start, clock::now()), Ordering::Relaxed);
                if let Some(flight) = self.flights.remove(&id) {
                    self.end(&flight, *answer, watch);
                }
            }
        }
    }

    /// Records an answer, and hands it to the source.
    fn end(&mut self, flight: &Flight, answer: Answer, watch: &mut dyn Watch) {
        let since = |at: Instant| self.since(at);
        let (last, ended) = (answer.last.map(since), since(clock::now()));
        let text = answer.error.is_none().then_some(answer.text.as_str());
        let Answer { tokens_in, tokens_cached, tokens_out, error, why, gaps, .. } = answer;
        let first = answer.first.map(since);
        let record = RequestRecord {
            first,
            last,
            tokens_in,
            tokens_cached,
            tokens_out,
            error,
            why,
            gaps,
            ..cut_off(flight, ended)
        };
        self.source.answered(flight.id, last.filter(|_| text.is_some()).unwrap_or(ended), text);
        watch.ended(&record);
        self.records.push(record);
    }

    /// Ends requests that exceed the time limit, and records them as failures.
    fn time_out(&mut self, now: Seconds, limit: Option<Seconds>, watch: &mut dyn Watch) {
        let Some(limit) = limit else { return };
        let late: Vec<u32> = self.flights.values().filter(|f| (now - f.due).0 > limit.0).map(|f| f.id).collect();
        for flight in late.iter().filter_map(|id| self.flights.remove(id)).collect::<Vec<_>>() {
            flight.task.abort();
            let mut record = cut_off(&flight, now);
            record.error = Some(ErrorClass::Timeout);
            self.source.answered(flight.id, now, None);
            watch.ended(&record);
            self.records.push(record);
        }
    }

    fn look(&self, now: Seconds, watch: &mut dyn Watch) -> Tick {
        let mut open = self.flights.values().map(|f| Open { due: f.due, first: f.first, asked_out: f.asked_out });
        watch.tick(now, &mut open)
    }
}

fn micros(start: Instant, at: Instant) -> u64 {
    at.saturating_duration_since(start).as_micros() as u64
}

/// The record of a request that is given up without its whole answer; an answer that came sets what it knows over it.
fn cut_off(flight: &Flight, now: Seconds) -> RequestRecord {
    RequestRecord {
        id: flight.id,
        due: flight.due,
        // A request that was never sent counts as late until now: the delay is the client's.
        sent: flight.sent.unwrap_or(now),
        first: flight.first,
        last: None,
        tokens_in: None,
        tokens_cached: None,
        tokens_out: None,
        asked_out: flight.asked_out,
        asked_in: flight.asked_in,
        shared_in: flight.shared_in,
        error: Some(ErrorClass::Cut),
        turn: flight.turn.map(|t| (t.conversation, t.turn)),
        why: None,
        gaps: Vec::new(),
    }
}
