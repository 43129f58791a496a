//! `[workload]`: what is asked of the engine.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use toml::de::DeTable;

use super::declared::plan;
use super::format::{Key, Kind, POSITIVE_TIME, Table, Variant};
use super::lengths::Lengths;
use super::reader::{self, Fields, Place};
use crate::problems::Problem;
use autotune_records::units::MOST_TOKENS;

const ENDPOINT: Kind = Kind::Word(&["completions", "chat"]);
/// Each of them is held in memory.
const COUNT: Kind = Kind::Integer { min: 1, max: 1_000_000 };
const TURNS: Kind = Kind::Integer { min: 1, max: 10_000 };
const TOKENS: i64 = MOST_TOKENS as i64;
const BURSTINESS: &str =
    "The shape of `arrivals = \"gamma\"`: 1 is as bursty as Poisson, lower is burstier, higher is smoother.";

pub static WORKLOAD: Table = Table {
    variant: Variant::Word("kind"),
    rows: &[
        WORKLOAD_ROWS,
        &[Key::optional(Kind::Positive).named("burstiness", BURSTINESS)],
        RANDOM_ROWS,
        CONVERSATIONS_ROWS,
        SHAREGPT_ROWS,
        JSONL_ROWS,
        TRACE_ROWS,
    ],
};

plan! {
    /// What is asked of the engine.
    pub struct WorkloadPlan of &[], rows WORKLOAD_ROWS {
        /// The HTTP endpoint that carries the load.
        endpoint: Endpoint = [
            Key::default(ENDPOINT, "\"completions\"").within(&["random", "trace"]),
            Key::default(ENDPOINT, "\"chat\"").within(&["conversations", "sharegpt", "jsonl"])
        ];
        /// Whether every answer has exactly the drawn length.
        ignore_eos: bool = [Key::default(Kind::Switch, "true")];
        /// How requests arrive at a rate; `recorded` keeps the file's own times, faster or slower.
        arrivals: ArrivalProcess where serde(default) = [
            Key::default(Kind::Word(&["poisson", "gamma", "constant"]), "\"poisson\"")
                .says("How requests arrive at a rate.")
                .within(&["random", "conversations", "sharegpt", "jsonl"]),
            Key::default(Kind::Word(&["poisson", "gamma", "constant", "recorded"]), "\"recorded\"").within(&["trace"])
        ], read by arrivals;
        /// Independent requests, conversations that resend their history, or requests from a file.
        kind: WorkloadKind = [
            Key::required(Kind::Word(&["random", "conversations", "sharegpt", "jsonl", "trace"]))
        ], read by kind;
    }
}

plan! {
    /// Independent requests with drawn lengths.
    pub struct RandomPlan of &["random"], rows RANDOM_ROWS {
        /// Tokens of a prompt, without the shared prefix.
        input_tokens: Lengths = [Key::required(Kind::Lengths)];
        /// Tokens of an answer.
        output_tokens: Lengths = [Key::required(Kind::Lengths)];
        /// Tokens that prompts of the same prefix begin with.
        shared_prefix_tokens: u32 = [Key::default(Kind::Integer { min: 0, max: TOKENS }, "0")];
        /// How many different shared prefixes there are.
        shared_prefixes: u32 = [Key::default(COUNT, "1")];
    }
}

plan! {
    /// Conversations whose turns resend their history.
    pub struct ConversationsPlan of &["conversations"], rows CONVERSATIONS_ROWS {
        /// How many different documents conversations start from.
        starters: u32 = [Key::required(COUNT)];
        /// Tokens of a starter. Each has the middle of an equal part of the distribution, so that a few are as long on average as many.
        starter_tokens: Lengths = [Key::required(Kind::Lengths)];
        /// Turns of every conversation; of recorded dialogues the most of each, and with 1 the first question alone.
        turns: u32 = [Key::required(TURNS)];
        /// Tokens that the user adds in each turn.
        question_tokens: Lengths = [Key::required(Kind::Lengths)];
        /// Tokens of an answer.
        output_tokens: Lengths = [Key::required(Kind::Lengths)];
        /// Time between an answer and the next turn.
        think_time: Duration = [Key::default(Kind::Time { zero: true }, "\"0s\"")];
    }
}

plan! {
    /// Recorded dialogues in the form of the ShareGPT collection: their first questions, or all of their turns.
    pub struct SharegptPlan of &["sharegpt"], rows SHAREGPT_ROWS {
        /// The file with a ShareGPT list; a relative path counts from the folder of this space file.
        file: PathBuf = [Key::required(Kind::Text)];
        /// Tokens of an answer; without it those of the answers in the file.
        output_tokens: Option<Lengths> = [Key::optional(Kind::Lengths)];
        /// Turns of every conversation; of recorded dialogues the most of each, and with 1 the first question alone.
        turns: u32 = [Key::default(TURNS, "1")];
        /// Time between an answer and the next turn.
        think_time: Duration = [Key::default(Kind::Time { zero: true }, "\"0s\"")];
    }
}

plan! {
    /// Requests from a file, one JSON object a line.
    pub struct JsonlPlan of &["jsonl"], rows JSONL_ROWS {
        /// The file with one request a line; a relative path counts from the folder of this space file.
        file: PathBuf = [Key::required(Kind::Text)];
        /// Tokens of an answer, for lines that do not say.
        output_tokens: Option<Lengths> = [Key::optional(Kind::Lengths)];
    }
}

plan! {
    /// Lengths, times and shared blocks of recorded traffic, without its texts.
    pub struct TracePlan of &["trace"], rows TRACE_ROWS {
        /// The file with one arrival a line; a relative path counts from the folder of this space file.
        file: PathBuf = [Key::required(Kind::Text)];
        /// Tokens that one of the file's hash ids stands for.
        block_tokens: u32 = [Key::default(Kind::Integer { min: 1, max: TOKENS }, "512")];
        /// What one unit of the file's `timestamp` is.
        time_unit: Duration = [Key::default(POSITIVE_TIME, "\"1ms\"")];
    }
}

impl WorkloadPlan {
    /// Whether prompts may share a prefix, or follow from answers.
    pub fn connects_requests(&self) -> bool {
        !matches!(&self.kind, WorkloadKind::Random(kind) if kind.shared_prefix_tokens == 0)
    }
}

/// The HTTP endpoint that carries the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Endpoint {
    /// `POST /v1/completions`, prompts as token ids: exact lengths without a tokenizer.
    Completions,
    /// `POST /v1/chat/completions`, prompts as words; the engine's usage tells the length.
    Chat,
}

/// The gaps between arrivals in an open loop, their mean being one over the rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ArrivalProcess {
    #[default]
    Poisson,
    Gamma {
        /// Their shape: 1 is Poisson, lower is burstier.
        burstiness: f64,
    },
    Constant,
    /// Those of the trace's file.
    Recorded,
}

/// The kinds of traffic, each with its own settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkloadKind {
    Random(RandomPlan),
    Conversations(ConversationsPlan),
    Sharegpt(SharegptPlan),
    Jsonl(JsonlPlan),
    Trace(TracePlan),
}

impl WorkloadKind {
    /// The file that it reads, as the space file names it; `None` if it draws all by itself.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::Random(_) | Self::Conversations(_) => None,
            Self::Sharegpt(kind) => Some(&kind.file),
            Self::Jsonl(kind) => Some(&kind.file),
            Self::Trace(kind) => Some(&kind.file),
        }
    }
}

/// Reads the section; `None` after a mistake.
pub fn read(place: &Place, table: &DeTable, problems: &mut Vec<Problem>) -> Option<WorkloadPlan> {
    let fields = reader::fields(&WORKLOAD, place, table, problems);
    check_burstiness(&fields, table, problems);
    WorkloadPlan::read(&fields)
}

fn kind(fields: &Fields) -> Option<WorkloadKind> {
    match fields.word::<String>("kind")?.as_str() {
        "conversations" => ConversationsPlan::read(fields).map(WorkloadKind::Conversations),
        "sharegpt" => SharegptPlan::read(fields).map(WorkloadKind::Sharegpt),
        "jsonl" => JsonlPlan::read(fields).map(WorkloadKind::Jsonl),
        "trace" => TracePlan::read(fields).map(WorkloadKind::Trace),
        _ => RandomPlan::read(fields).map(WorkloadKind::Random),
    }
}

fn arrivals(fields: &Fields) -> Option<ArrivalProcess> {
    Some(match fields.word::<String>("arrivals")?.as_str() {
        "gamma" => ArrivalProcess::Gamma { burstiness: fields.get("burstiness")? },
        "constant" => ArrivalProcess::Constant,
        "recorded" => ArrivalProcess::Recorded,
        _ => ArrivalProcess::Poisson,
    })
}

/// Reports `gamma` without its burstiness, and a burstiness beside any other arrivals.
fn check_burstiness(fields: &Fields, table: &DeTable, problems: &mut Vec<Problem>) {
    let Some(process) = fields.word::<String>("arrivals") else { return };
    // A burstiness that was refused is one mistake, not two.
    if process == "gamma"
        && !table.contains_key("burstiness")
        && let Some(span) = fields.span("arrivals")
    {
        let hint = "add `burstiness = 0.5`: 1 is as bursty as Poisson, lower is burstier";
        let message = "`workload.arrivals` is \"gamma\" without its `burstiness`";
        problems.push(Problem::new(&span, message, "incomplete", hint));
    } else if process != "gamma"
        && let Some(span) = fields.span("burstiness")
    {
        let hint = "remove `burstiness`, or set `arrivals = \"gamma\"`";
        let message = "`burstiness` belongs to `arrivals = \"gamma\"`";
        problems.push(Problem::new(&span, message, format!("but `arrivals` is \"{process}\""), hint));
    }
}
