//! What a leader and a worker, which lends it its engine, say to each other: JSON over plain HTTP.
//!
//! | request | answer |
//! |---|---|
//! | `GET /hello` | a [`Greeting`]: the worker's rank, and the job that it was started for |
//! | `PUT /tasks/N` with a [`Task`] | 202: it was begun, now or by an earlier request with the same number |
//! | `GET /tasks/N` | 200 with the [`TaskAnswer`] once there is one, 204 after [`WAIT`] without one: ask again |
//! | `POST /kill` | 202: every process of the engine is killed |
//! | `POST /end` | 202: the engine is stopped, and the worker's process ends |
//!
//! Every request bears the run's token (`Authorization: Bearer`), where the worker has one. Without it the answer is 401, and nothing else of
//! the request is read. The token is compared in constant time. The port speaks plain HTTP: the token can be read in the network's traffic.
//!
//! Every request bears the leader's session in the header [`SESSION`]. The leader numbers its tasks from 1. A request may be repeated when its
//! answer was lost. A later task ends an earlier one that still runs.
//!
//! A worker belongs to the session that first gave it a task. Another session, such as that of a restarted leader, takes over with its first task.
//! The old engine is stopped, and the old session gets 409 from then on. A worker that gets no request of its session for [`SILENCE`] stops its
//! engine and is free. It answers 404 if it does not know the task, or has no engine to probe: it was restarted, or had given the session up.
//! Answers 400, 401 and 409 have a sentence.
//!
//! A task names values of parameters, never a command line: the engine's command stands in the worker's own space file. Refused are points
//! with parameters or values that this file does not have, and rates and windows above a limit.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Failure, Measured, ProbeAsk, Ready, RigError, Trial};
use crate::digest::sha256;
use autotune_plan::engine::variable;
use autotune_plan::settings::{Plan, redact_plan, refuses};
use autotune_plan::space::{Point, Space, Value};
use autotune_records::units::Seconds;
use autotune_workload::{Corpus, Vocabulary};

/// The header with the leader's session.
pub const SESSION: &str = "autotune-session";
/// The remedy for a token that is wrong or missing.
pub const SAME_TOKEN: &str = "give all processes of a run the same --token-file, or the same AUTOTUNE_TOKEN";
/// How long a worker holds a question for an answer.
pub const WAIT: Duration = Duration::from_secs(20);
/// A worker is free after so long without a request of its leader.
pub const SILENCE: Duration = Duration::from_secs(120);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Greeting {
    pub rank: usize,
    pub job: JobMark,
}

/// Identifies a job, so that two processes can tell whether they were started for the same one. Fields that another version lacks are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobMark {
    pub autotune: String,
    /// The space file's name, for people.
    pub space_file: String,
    /// The digest of what a rig takes from the space file and the command line: promises, engine, workload, parameters, seed.
    pub plan: String,
    /// The digest of the workload's file, where it has one.
    pub workload: Option<u64>,
}

impl JobMark {
    /// Of a plan, the file it was read from, the seed of every draw, and the workload's file.
    pub fn of(plan: &Plan, space_file: &str, seed: u64, corpus: &Corpus) -> Self {
        // A secret may differ from machine to machine. Budget and search are the leader's alone: a resumed one may be given more.
        let plan = redact_plan(plan);
        let parts = (&plan.slo, &plan.engine, &plan.workload, &plan.space, seed);
        Self {
            autotune: env!("CARGO_PKG_VERSION").to_owned(),
            space_file: space_file.to_owned(),
            plan: sha256(&serde_json::to_vec(&parts).unwrap_or_default()),
            workload: corpus.digest(),
        }
    }

    /// Why a worker with that mark cannot work for this one. The text follows the worker's name: what it is, what this is, and the remedy.
    pub fn refuses(&self, worker: &Self) -> Option<String> {
        if worker.autotune != self.autotune {
            let (theirs, ours) = (&worker.autotune, &self.autotune);
            return Some(format!(
                "runs autotune {theirs}, and this is autotune {ours}; start all with the same program"
            ));
        }
        let short = |digest: &str| digest.get(..12).unwrap_or(digest).to_owned();
        if worker.plan != self.plan {
            return Some(format!(
                "was started for {} (plan {}), and this process for {} (plan {}); start all with the same space file and --seed",
                worker.space_file,
                short(&worker.plan),
                self.space_file,
                short(&self.plan)
            ));
        }
        let digest = |workload: Option<u64>| workload.map_or("none".to_owned(), |digest| format!("{digest:016x}"));
        (worker.workload != self.workload).then(|| {
            let (theirs, ours) = (digest(worker.workload), digest(self.workload));
            format!("has another workload file (digest {theirs}) than this process ({ours}); give all the same file")
        })
    }
}

/// What a leader asks of a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Task {
    Launch { trial: Trial, point: Point },
    Probe(ProbeAsk),
    Stop,
}

/// What came of a task.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaskAnswer {
    Ready {
        ready: Box<Ready>,
        /// Its words, from which traffic is made.
        vocabulary: Vocabulary,
    },
    Measured(Box<Measured>),
    /// The engine is stopped and the machine clean; what that took.
    Stopped(Seconds),
    Failed(Box<Failure>),
    /// The worker's machine or our own part there failed.
    Machine(String),
}

impl From<RigError> for TaskAnswer {
    fn from(error: RigError) -> Self {
        match error {
            RigError::Engine(failure) => Self::Failed(failure),
            RigError::Machine(what) => Self::Machine(what),
        }
    }
}

/// Why a point is none of that space; `None` if it is one. A value is one that the space lists. A parameter without a default may also have
/// the value that the engine told. That is a number or a switch that the flag takes, or a plain word, which is no path and no other flag.
pub fn foreign(point: &Point, space: &Space) -> Option<String> {
    point.0.iter().find_map(|(name, value)| {
        let Some(parameter) = space.parameter(name) else {
            return Some(format!("the space has no parameter `{name}`"));
        };
        let listed = parameter.values.iter().any(|known| known.same(value));
        let plain = !matches!(value, Value::Text(word) if !is_plain_word(word));
        // No engine tells the variables of its environment.
        let told = parameter.default.is_none() && variable(name).is_none() && refuses(name, value).is_none() && plain;
        (!listed && !told).then(|| format!("`{value}` is no value of `{name}`"))
    })
}

/// Whether a word is a name such as `fcfs` or `fp8_e4m3`.
fn is_plain_word(word: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-' || c == '.';
    word.len() <= 64 && word.starts_with(|c: char| c.is_ascii_alphanumeric()) && word.chars().all(plain)
}

/// Why a probe is refused; `None` if it is not. Each of its requests is held in memory.
pub fn unreasonable(ask: &ProbeAsk) -> Option<String> {
    let (rate, until) = (ask.rate.0, ask.window.to.0);
    let within = |number: f64, most: f64| (0.0..=most).contains(&number);
    if !(within(rate, FASTEST) && rate > 0.0) {
        return Some(format!("a probe has a rate above 0 and at most {FASTEST} requests per second"));
    }
    if !(within(until, LONGEST_PROBE) && within(ask.window.from.0, until) && within(ask.answer_time.0, LONGEST_PROBE)) {
        return Some(format!("a probe has a window that ends after it begins, and within {LONGEST_PROBE} s"));
    }
    if !within(ask.growth, 1.0) {
        return Some("a probe has a growth of answers between 0 and 1".to_owned());
    }
    (rate * until > MOST_REQUESTS).then(|| format!("a probe has at most {MOST_REQUESTS} requests"))
}

/// Requests per second that no engine of ours comes near.
const FASTEST: f64 = 100_000.0;
/// A day, in seconds.
const LONGEST_PROBE: f64 = 86_400.0;
const MOST_REQUESTS: f64 = 10_000_000.0;

/// Requests as the file that keeps them has them, so that a leader learns what a resumed session would read back.
pub(super) mod as_file {
    use serde::de::Error as _;
    use serde::ser::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    use autotune_load::{RequestRecord, read_records, write_records};

    pub(in crate::rig) fn serialize<S: Serializer>(records: &[RequestRecord], to: S) -> Result<S::Ok, S::Error> {
        let mut file = Vec::new();
        write_records(records, &mut file).map_err(S::Error::custom)?;
        to.serialize_str(&String::from_utf8(file).map_err(S::Error::custom)?)
    }

    pub(in crate::rig) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<RequestRecord>, D::Error> {
        read_records(String::deserialize(from)?.as_bytes()).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quickstart::quickstart;
    use crate::rig::BURST_RATE;
    use crate::verdict::Window;
    use autotune_plan::space::Parameter;
    use autotune_records::units::Rate;

    #[test]
    fn what_differs_is_named_with_both_sides_and_the_remedy() {
        let plan = quickstart(&[]);
        let mark = |plan: &Plan, seed| JobMark::of(plan, "a.toml", seed, &Corpus::default());
        let own = mark(&plan, 1);
        assert_eq!(own.refuses(&own), None);
        let mut richer = plan.clone();
        richer.budget.gpu_time *= 2;
        assert_eq!(own.refuses(&mark(&richer, 1)), None, "a resumed leader may be given more");
        let mut other = plan.clone();
        other.engine.args.push("--enforce-eager".into());
        for (worker, parts) in [
            (JobMark { autotune: "9.9.9".into(), ..own.clone() }, ["9.9.9", env!("CARGO_PKG_VERSION"), "same program"]),
            (JobMark { space_file: "b.toml".into(), ..mark(&other, 1) }, ["b.toml", "a.toml", "same space file"]),
            (mark(&plan, 2), [&mark(&plan, 2).plan[..12], &own.plan[..12], "--seed"]),
            (JobMark { workload: Some(5), ..own.clone() }, ["0000000000000005", "none", "same file"]),
        ] {
            let says = own.refuses(&worker).unwrap();
            assert!(parts.iter().all(|part| says.contains(part)), "{says}");
        }
        let older: Greeting = serde_json::from_str(r#"{"job": {"autotune": "0.0.1"}, "more": 1}"#).unwrap();
        assert!(own.refuses(&older.job).unwrap().contains("0.0.1"), "also of a version that says other things");
    }

    #[test]
    fn a_point_has_the_parameters_of_the_space_and_brings_no_flag() {
        let space = quickstart(&[]).space;
        let why = |name: &str, value| foreign(&Point::default().with(name, value), &space);
        assert_eq!(foreign(&space.baseline(), &space), None);
        assert_eq!(why("max-num-seqs", Value::Int(16)), None);
        assert!(why("max-num-seqs", Value::Int(12_345)).unwrap().contains("12345"), "the space has a default");
        assert!(why("host", Value::Text("0.0.0.0".into())).unwrap().contains("`host`"));
        assert!(why("max-num-seqs", Value::Int(0)).is_some() && why("max-num-seqs", Value::Int(i64::MAX)).is_some());
        assert!(why("max-num-seqs", Value::Text("--model=other".into())).unwrap().contains("--model"));
        let mut space = space;
        for parameter in &mut space.parameters {
            parameter.default = None;
        }
        let told = |value| foreign(&Point::default().with("max-num-seqs", value), &space);
        assert_eq!(told(Value::Int(12_345)), None, "the engine told it");
        assert!(told(Value::Int(0)).is_some(), "no engine tells that");
        let texts = |words: &[&str]| words.iter().map(|word| Value::Text((*word).into())).collect();
        for (name, default) in [("chat-template", Some(Value::Text("/a".into()))), ("scheduling-policy", None)] {
            space.parameters.push(Parameter { name: name.into(), values: texts(&["/a", "/b"]), default, when: None });
        }
        let why = |name: &str, word: &str| foreign(&Point::default().with(name, Value::Text(word.into())), &space);
        assert_eq!((why("chat-template", "/b"), why("scheduling-policy", "fcfs")), (None, None));
        for (name, word) in
            [("chat-template", "/etc/shadow"), ("chat-template", "c"), ("scheduling-policy", "/etc/shadow")]
        {
            assert!(why(name, word).unwrap().contains(word), "{name} {word}");
        }
    }

    #[test]
    fn a_probe_beyond_reason_is_refused() {
        let ask = |rate, from, to| ProbeAsk {
            window: Window { from: Seconds(from), to: Seconds(to) },
            ..ProbeAsk::at(Rate(rate))
        };
        assert_eq!(unreasonable(&ask(BURST_RATE.0, 0.0, 60.0)), None);
        assert_eq!(unreasonable(&ask(20.0, 10.0, 3600.0)), None);
        for (rate, from, to) in [
            (1e300, 0.0, 1.0),
            (0.0, 0.0, 1.0),
            (-1.0, 0.0, 1.0),
            (1.0, 0.0, 1e300),
            (1.0, 2.0, 1.0),
            (90_000.0, 0.0, 3600.0),
            (f64::NAN, 0.0, 1.0),
        ] {
            assert!(unreasonable(&ask(rate, from, to)).is_some(), "{rate} {from} {to}");
        }
        for growth in [-1.0, 1.5, f64::NAN] {
            assert!(unreasonable(&ProbeAsk { growth, ..ask(1.0, 0.0, 1.0) }).is_some(), "{growth}");
        }
    }

    #[test]
    fn a_task_with_more_in_it_is_none() {
        let task =
            Task::Launch { trial: Trial { number: 3, attempt: 1, warmed: None, on: None }, point: Point::default() };
        let text = serde_json::to_string(&task).unwrap();
        assert_eq!(serde_json::from_str::<Task>(&text).unwrap(), task);
        let more = text.replace("\"point\"", "\"command\":[\"sh\"],\"point\"");
        assert!(serde_json::from_str::<Task>(&more).unwrap_err().to_string().contains("command"));
    }

    #[test]
    fn fuzz_messages() {
        let plan = quickstart(&[]);
        let point = plan.space.baseline();
        let greeting = Greeting { rank: 1, job: JobMark::of(&plan, "a.toml", 1, &Corpus::default()) };
        let trial = Trial { number: 3, attempt: 1, warmed: None, on: None };
        let probe = r#"{"probe": {"rate": 2.0, "window": {"from": 0.5, "to": 60.0}, "arrival_seed": 1, "content_seed": 2, "answer_time": 0.5,
            "slack": 1.0, "awaited": "all"}}"#;
        let mut valid = vec![serde_json::to_string(&greeting).unwrap(), probe.to_owned()];
        valid.extend([Task::Launch { trial, point }, Task::Stop].map(|task| serde_json::to_string(&task).unwrap()));
        let journal = crate::journal::read(include_bytes!("../../../../tests/data/h200-turns/journal.jsonl")).unwrap();
        let engine = journal.entries.iter().find_map(crate::journal::Entry::ready).cloned();
        let words = journal.entries.iter().find_map(crate::journal::Entry::words).cloned();
        let answers = [
            TaskAnswer::Stopped(Seconds(1.5)),
            TaskAnswer::Machine("the disk is full".into()),
            TaskAnswer::Ready { ready: Box::new(engine.unwrap()), vocabulary: words.unwrap() },
        ];
        valid.extend(answers.map(|answer| serde_json::to_string(&answer).unwrap()));
        autotune_fuzz::fuzz(10, valid, |input, _| {
            if let Ok(said) = serde_json::from_slice::<Greeting>(input) {
                greeting.job.refuses(&said.job);
            }
            match serde_json::from_slice(input) {
                Ok(Task::Launch { point, .. }) => drop(foreign(&point, &plan.space)),
                Ok(Task::Probe(ask)) => drop(unreasonable(&ask)),
                Ok(Task::Stop) | Err(_) => {}
            }
            drop(serde_json::from_slice::<TaskAnswer>(input));
        });
    }
}
