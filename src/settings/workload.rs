//! `[workload]`: what is asked of the engine.

use toml::de::DeTable;

use super::format::WORKLOAD;
use super::plan::{ConversationsPlan, RandomPlan, WorkloadKind, WorkloadPlan};
use super::problems::Problem;
use super::reader::{self, Fields, Place};

/// Reads the section; `None` after a mistake.
pub fn read(place: &Place, table: &DeTable, problems: &mut Vec<Problem>) -> Option<WorkloadPlan> {
    let fields = reader::fields(&WORKLOAD, place, table, problems);
    let kind = match fields.word::<String>("kind")?.as_str() {
        "conversations" => WorkloadKind::Conversations(conversations(&fields)?),
        _ => WorkloadKind::Random(random(&fields)?),
    };
    Some(WorkloadPlan { endpoint: fields.word("endpoint")?, ignore_eos: fields.switch("ignore_eos")?, kind })
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
