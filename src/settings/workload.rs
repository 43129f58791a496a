//! `[workload]`: what is asked of the engine.

use toml::de::DeTable;

use super::format::WORKLOAD;
use super::plan::{
    ArrivalProcess, ConversationsPlan, JsonlPlan, RandomPlan, SharegptPlan, TracePlan, WorkloadKind, WorkloadPlan,
};
use super::reader::{self, Fields, Place};
use crate::problems::Problem;

/// Reads the section; `None` after a mistake.
pub fn read(place: &Place, table: &DeTable, problems: &mut Vec<Problem>) -> Option<WorkloadPlan> {
    let fields = reader::fields(&WORKLOAD, place, table, problems);
    let arrivals = arrivals(&fields, table, problems);
    let kind = match fields.word::<String>("kind")?.as_str() {
        "conversations" => WorkloadKind::Conversations(conversations(&fields)?),
        "sharegpt" => WorkloadKind::Sharegpt(SharegptPlan {
            file: fields.text("file")?.into(),
            output_tokens: fields.lengths("output_tokens"),
            turns: fields.integer("turns")?,
            think_time: fields.time("think_time")?,
        }),
        "jsonl" => WorkloadKind::Jsonl(JsonlPlan {
            file: fields.text("file")?.into(),
            output_tokens: fields.lengths("output_tokens"),
        }),
        "trace" => WorkloadKind::Trace(trace(&fields)?),
        _ => WorkloadKind::Random(random(&fields)?),
    };
    let (endpoint, ignore_eos) = (fields.word("endpoint")?, fields.switch("ignore_eos")?);
    Some(WorkloadPlan { endpoint, ignore_eos, arrivals: arrivals?, kind })
}

/// The arrival process, with the burstiness that belongs to one of them alone.
fn arrivals(fields: &Fields, table: &DeTable, problems: &mut Vec<Problem>) -> Option<ArrivalProcess> {
    let (process, burstiness) = (fields.word::<String>("arrivals")?, fields.real("burstiness"));
    match (process.as_str(), burstiness) {
        ("gamma", Some(burstiness)) => Some(ArrivalProcess::Gamma { burstiness }),
        ("gamma", None) => {
            // A burstiness that was refused is one mistake, not two.
            if let Some(span) = fields.span("arrivals").filter(|_| !table.contains_key("burstiness")) {
                let hint = "add `burstiness = 0.5`: 1 is as bursty as Poisson, lower is burstier";
                let message = "`workload.arrivals` is \"gamma\" without its `burstiness`";
                problems.push(Problem::new(&span, message, "incomplete", hint));
            }
            None
        }
        (other, Some(_)) => {
            let hint = "remove `burstiness`, or set `arrivals = \"gamma\"`";
            let message = "`burstiness` belongs to `arrivals = \"gamma\"`";
            let span = fields.span("burstiness").unwrap_or_default();
            problems.push(Problem::new(&span, message, format!("but `arrivals` is \"{other}\""), hint));
            None
        }
        ("constant", None) => Some(ArrivalProcess::Constant),
        ("recorded", None) => Some(ArrivalProcess::Recorded),
        (_, None) => Some(ArrivalProcess::Poisson),
    }
}

fn trace(fields: &Fields) -> Option<TracePlan> {
    Some(TracePlan {
        file: fields.text("file")?.into(),
        block_tokens: fields.integer("block_tokens")?,
        time_unit: fields.time("time_unit")?,
    })
}

fn random(fields: &Fields) -> Option<RandomPlan> {
    Some(RandomPlan {
        input_tokens: fields.lengths("input_tokens")?,
        output_tokens: fields.lengths("output_tokens")?,
        shared_prefix_tokens: fields.integer("shared_prefix_tokens")?,
        shared_prefixes: fields.integer("shared_prefixes")?,
    })
}

fn conversations(fields: &Fields) -> Option<ConversationsPlan> {
    Some(ConversationsPlan {
        starters: fields.integer("starters")?,
        starter_tokens: fields.lengths("starter_tokens")?,
        turns: fields.integer("turns")?,
        question_tokens: fields.lengths("question_tokens")?,
        output_tokens: fields.lengths("output_tokens")?,
        think_time: fields.time("think_time")?,
    })
}
