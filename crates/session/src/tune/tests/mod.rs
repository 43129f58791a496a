//! Whole sessions in virtual time: every decision, without a process or a clock.

mod accidents;
mod live;
mod opening;
mod paired;
mod scripted;
mod verdicts;
mod winner;
mod workers;

use self::scripted::{Memory, Script, Scripted, Uneventful};
use super::sample_sizes::Stress;
use super::*;
use crate::events::Silent;
use crate::journal::{Conclusion, Entry, Journal, Purpose, Record, Status, names_budget};
use crate::quickstart::quickstart as plan;
use crate::rig::Rig;
use autotune_plan::settings::{Plan, StrategyKind};
use autotune_plan::space::Point;
use autotune_records::units::Seconds;
use autotune_twin::{Bounds, Effort, Profile};
use autotune_workload::Material;

impl SampleSizes {
    /// For tests of what a session decides: their code is not optimized.
    pub const SMALL: Self = Self {
        long_run: 3_000,
        long_run_of_conversations: 3_000,
        long_run_in_blocks: 3_000,
        stress: Stress { requests: 2_000, streams: 1 },
        stress_in_search: Stress { requests: 2_000, streams: 1 },
        search: 2_000,
        draws_of_arrivals: 4,
        answer_time: 1_000,
        fit: Effort { steps: 2, hops: 0, polish: 0.0 },
    };
}

impl TwinEngine {
    /// Without a prefix cache, on a machine of its own.
    pub fn bare(bounds: Bounds) -> Self {
        Self { bounds, reused_block: None, shared: false }
    }
}

/// How a session over a journal ended, what it then knew, and what was paid for.
struct Run {
    answer: Result<Conclusion, RunnerError>,
    entries: Vec<Entry>,
    probes: u32,
}

/// A trial runner whose replays are short: what is tested is what a session decides, not how good its estimates are.
fn runner<'a, R: Rig>(
    rigs: Vec<R>,
    plan: &'a Plan,
    seed: u64,
    memory: &Memory,
    journal: Journal,
) -> TrialRunner<'a, R> {
    let trial_runner = TrialRunner::new(rigs, plan, seed, &Silent, Some(memory.folder()), journal);
    trial_runner.with_sample_sizes(SampleSizes::SMALL)
}

/// Runs a session on a rig to which that script happens.
async fn run_scripted(plan: &Plan, seed: u64, script: impl Script) -> Run {
    run_again(plan, seed, Vec::new(), script, &Memory::default()).await
}

/// The same over a journal. It shares what probes measured with other runs of the same plan and seed.
async fn run_again(plan: &Plan, seed: u64, entries: Vec<Entry>, script: impl Script, memory: &Memory) -> Run {
    run_on(vec![Scripted::new(plan, seed, script, memory.clone())], plan, seed, entries, memory).await
}

/// [`run_again`] with a worker for each rig.
async fn run_on<S: Script>(
    rigs: Vec<Scripted<S>>,
    plan: &Plan,
    seed: u64,
    entries: Vec<Entry>,
    memory: &Memory,
) -> Run {
    let trial_runner = runner(rigs, plan, seed, memory, Journal { entries, whole_bytes: 0 });
    let mut session = Session::new(trial_runner, plan, &Silent);
    let answer = session.run().await;
    let probes = session.trial_runner().rigs().map(|rig| rig.probes).sum();
    Run { answer, entries: session.trial_runner().journal().entries.clone(), probes }
}

/// Runs a session to which nothing happens; returns its answer, its journal and what was paid for.
async fn run(plan: &Plan, seed: u64) -> (Conclusion, Vec<Entry>, u32) {
    let Run { answer, entries, probes } = run_scripted(plan, seed, Uneventful).await;
    (answer.unwrap(), entries, probes)
}

/// A smaller quickstart without a twin, so that a session over every prefix of a journal stays a matter of seconds.
fn small() -> Plan {
    plan(&[
        ("[128, 256, 2048]", "[256, 2048]"),
        ("window = \"1500ms\"", "twin = false\nwindow = \"1s\""),
        ("certify_window = \"6s\"", "certify_window = \"8s\""),
        ("[search]", "[search]\nstrategy = \"bisect\""),
    ])
}

#[tokio::test]
async fn a_session_resumed_after_any_record_gives_the_same_answer_and_pays_for_nothing_twice() {
    let answer = resumes(&small(), 3, || Uneventful).await.answer.unwrap();
    assert_eq!(answer.status, Status::Certified, "{}", answer.because);
}

/// [`resumes_behind_every_record`] on a rig to which the same script happens each time.
async fn resumes<S: Script>(plan: &Plan, seed: u64, script: impl Fn() -> S) -> Run {
    let memory = Memory::default();
    resumes_behind_every_record(async |kept| run_again(plan, seed, kept, script(), &memory).await).await
}

/// Runs a session, cuts its journal behind every record and resumes it: each comes to the same answer, and pays for no probe twice.
async fn resumes_behind_every_record(run: impl AsyncFn(Vec<Entry>) -> Run) -> Run {
    // A resumed session launches once more, which the budget that would be enough holds.
    let without_budget = |answer: &Conclusion| Conclusion { enough_budget: None, ..answer.clone() };
    let whole = run(Vec::new()).await;
    let answer = whole.answer.as_ref().unwrap();
    for cut in 0..whole.entries.len() {
        let kept = whole.entries[..cut].to_vec();
        let known = kept.iter().filter(|e| matches!(e.record, Record::Probed { .. })).count() as u32;
        let resumed = run(kept).await;
        let again = resumed.answer.unwrap();
        assert_eq!(without_budget(&again), without_budget(answer), "cut behind record {cut}");
        assert_eq!(again.enough_budget.is_some(), answer.enough_budget.is_some(), "cut behind record {cut}");
        assert_eq!(resumed.probes, whole.probes - known, "cut behind record {cut}: nothing is paid twice");
    }
    whole
}

/// Each record of a session of one worker, with the purpose and the point of its trial.
fn by_trial(entries: &[Entry]) -> impl Iterator<Item = (Purpose, &Point, &Record)> {
    let mut trial = None;
    entries.iter().filter_map(move |entry| {
        if let Record::Launching { purpose, point, .. } = &entry.record {
            trial = Some((*purpose, point));
        }
        trial.map(|(purpose, point)| (purpose, point, &entry.record))
    })
}

/// The launches of a session: what for, which attempt it is, and the point.
fn launches(entries: &[Entry]) -> Vec<(Purpose, u32, Point)> {
    let launch = |(purpose, point, record): (Purpose, &Point, &Record)| match record {
        Record::Launching { attempt, .. } => Some((purpose, *attempt, point.clone())),
        _ => None,
    };
    by_trial(entries).filter_map(launch).collect()
}

#[tokio::test]
async fn a_journal_of_other_decisions_is_an_error_not_an_answer() {
    let plan = small();
    let (_, entries, _) = run(&plan, 3).await;
    let half = entries[..entries.len() / 2].to_vec();
    let error = run_again(&plan, 4, half, Uneventful, &Memory::default()).await.answer.unwrap_err();
    assert!(error.to_string().starts_with("the journal does not fit this program: "), "{error}");
}

#[tokio::test]
async fn a_budget_too_small_for_everything_says_what_was_left_out_and_proves_the_defaults_if_it_can() {
    for (seconds, certifies) in [(12, true), (5, false)] {
        let plan = plan(&[("gpu_time = \"85s\"", &format!("gpu_time = \"{seconds}s\""))]);
        let (answer, entries, _) = run(&plan, 1).await;
        assert!(!answer.left_out.is_empty(), "{answer:?}");
        assert_eq!(answer.best.is_some_and(|best| best.certified_rate.is_some()), certifies, "{}", answer.because);
        assert!(answer.left_out.iter().any(|what| what.starts_with("all candidates: ")), "{:?}", answer.left_out);
        let spent = Journal { entries, whole_bytes: 0 }.cost().engine_seconds;
        assert!(spent.0 <= f64::from(seconds) + 1.0, "spent {spent} of {seconds} s");
    }
}

#[tokio::test]
async fn the_budget_that_is_named_is_enough_for_most_sessions_and_no_more_than_they_need_and_a_half() {
    let (mut enough, mut named, mut used) = (0, Seconds(0.0), Seconds(0.0));
    for (seed, seconds) in (1..).zip(["6s", "12s", "25s", "6s", "12s"]) {
        let mut plan = plan(&[("gpu_time = \"85s\"", &format!("gpu_time = \"{seconds}\""))]);
        let (answer, _, _) = run(&plan, seed).await;
        let lacks_budget = |answer: &Conclusion| answer.left_out.iter().any(|what| names_budget(what));
        assert!(lacks_budget(&answer) && answer.left_out.iter().all(|what| !what.contains("--budget")), "{answer:?}");
        named += answer.enough_budget.unwrap();
        plan.budget.gpu_time = answer.enough_budget.unwrap().duration();
        let (again, entries, _) = run(&plan, seed).await;
        used += Journal { entries, whole_bytes: 0 }.cost().engine_seconds;
        enough += u32::from(!lacks_budget(&again));
    }
    assert!(enough >= 3, "{enough} of 5");
    assert!(named.0 <= 1.5 * used.0, "{named} for {used}");
}

#[tokio::test]
async fn a_budget_that_ends_before_the_first_probe_says_nothing_of_the_promises() {
    let (answer, _, _) = run(&plan(&[("gpu_time = \"85s\"", "gpu_time = \"2s\"")]), 1).await;
    assert_eq!(answer.status, Status::Uncertified, "{}", answer.because);
    let begins = "nothing was measured: the budget of 2.0 s is too small for a probe at a rate; it took ";
    assert!(answer.best.is_none() && answer.because.starts_with(begins), "{}", answer.because);
    assert!(answer.because.contains(" to start and warm up the engine"), "{}", answer.because);
}

#[tokio::test]
async fn promises_that_nothing_keeps_are_told_with_what_binds() {
    let plan = plan(&[("tpot_p99 = \"7ms\"", "tpot_p99 = \"1ms\""), ("[search]", "[search]\ncandidates = 2")]);
    let (answer, _, _) = run(&plan, 1).await;
    assert_eq!(answer.status, Status::NotReachable);
    let because = &answer.because;
    assert!(because.starts_with("no point keeps the promises at any rate tried; at "), "{because}");
    assert!(because.contains(", the lowest rate tried, ") && because.contains("tpot_p99 breaks first"), "{because}");
    // What it says could be promised instead can be.
    let instead = because.split("limits of tpot_p99 ").nth(1).or(because.split(" and tpot_p99 ").nth(1)).unwrap();
    assert!(instead.contains(" with the defaults, by the simulation"), "{because}");
    let value: f64 = instead.split(" ms").next().unwrap().parse().unwrap();
    let mut other = plan.clone();
    for limit in other.slo.iter_mut().filter(|limit| limit.key() == "tpot_p99") {
        limit.at_most = Seconds(value / 1e3);
    }
    assert_eq!(run(&other, 1).await.0.status, Status::Certified, "{because}");
}

#[tokio::test]
async fn an_engine_without_memory_for_anything_never_started() {
    let plan = plan(&[("[0.80, 0.85, 0.90, 0.94, 0.98], default = 0.85", "[0.98, 0.99], default = 0.98")]);
    let (answer, _, _) = run(&plan, 1).await;
    assert_eq!(answer.status, Status::NeverStarted, "{}", answer.because);
}

/// What a session says of its decisions.
#[derive(Default)]
struct Notes(std::sync::Mutex<Vec<String>>);

impl crate::events::Sink for Notes {
    fn take(&self, event: &crate::events::Event<'_>) {
        if let crate::events::Event::Note(text) = event {
            self.0.lock().unwrap().push((*text).to_owned());
        }
    }
}

/// Runs a session to which nothing happens on the engine of a profile; returns its answer and its notes.
async fn run_with_notes(profile: Profile, plan: &Plan, seed: u64) -> (Conclusion, Vec<String>) {
    let (memory, notes) = (Memory::default(), Notes::default());
    let rig = Scripted::of(profile, plan, seed, Uneventful, memory.clone());
    let runner = TrialRunner::new(vec![rig], plan, seed, &notes, Some(memory.folder()), Journal::default());
    let answer = Session::new(runner.with_sample_sizes(SampleSizes::SMALL), plan, &notes).run().await.unwrap();
    (answer, notes.0.into_inner().unwrap())
}

#[tokio::test]
async fn a_cache_that_is_never_full_is_given_no_more_memory() {
    let plan = plan(&[
        ("min = 150, max = 250", "min = 8, max = 16"),
        ("min = 16, max = 32", "min = 4, max = 8"),
        // Long enough for gauges that are read every two seconds to see a peak.
        ("window = \"1500ms\"", "window = \"24s\""),
        ("gpu_time = \"85s\"", "gpu_time = \"10m\""),
    ]);
    let (_, notes) = run_with_notes(Profile::quickstart(), &plan, 1).await;
    let said = |note: &&String| {
        note.starts_with("memory: the KV cache was never fuller than ")
            && note.ends_with(" %, so more of it cannot help")
    };
    assert_eq!(notes.iter().filter(said).count(), 1, "{notes:?}");
}

#[tokio::test]
async fn a_cache_whose_peak_nobody_saw_is_given_more_memory_only_where_simulation_says_that_it_helps() {
    let plan = plan(&[("gpu_time = \"85s\"", "gpu_time = \"10m\"")]);
    let quickstart = Profile::quickstart();
    let says = "memory: in simulation, a KV cache of 4 times the size gains less than 1.0 %";
    for (times, suffices) in [(8, true), (1, false)] {
        let mut profile = quickstart.clone();
        profile.memory.per_kv_token /= times;
        let (_, notes) = run_with_notes(profile, &plan, 1).await;
        assert_eq!(notes.iter().any(|note| note == says), suffices, "{notes:?}");
    }
}

#[tokio::test]
async fn the_memory_knob_is_held_at_the_highest_value_that_starts() {
    let (answer, entries, _) = run(&plan(&[]), 2).await;
    let launched = launches(&entries).into_iter().filter(|(purpose, ..)| *purpose == Purpose::Search);
    let searched: Vec<f64> = launched.filter_map(|(.., point)| point.get("gpu-memory-utilization")?.number()).collect();
    assert!(!searched.is_empty() && searched.iter().all(|m| *m == 0.94), "{searched:?}: {}", answer.because);
}
