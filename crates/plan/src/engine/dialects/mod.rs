//! What differs between engines, one file an engine. A file tells how the engine spells what is tuned, and how it looks when it serves. It
//! also tells what its counters are called, and which lines of its log tell a failure. Nothing else in the program knows an engine by name.

mod dynamo;
mod sglang;
mod trtllm;
pub mod vllm;

pub use dynamo::{FRONTEND, is_of_frontend};
use serde_json::Value as Json;

use super::effective::Effective;
use super::metrics::Page;
use super::symptoms::Symptom;
use super::telemetry::EngineSample;
use crate::settings::{Domain, EngineKind};

/// A tuned quantity that more than one engine has. Each spells it with a flag of its own, and a value means something in its own engine alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// The share of the device's memory that the engine plans with. Its highest working value is found by bisection before the search:
    /// more of it never serves worse.
    MemoryShare,
    /// Sequences that run at the same time, at most.
    Sequences,
    /// Tokens of a step, or of a chunk of prompts, at most.
    Tokens,
    /// Prompt and answer of a request together, at most.
    Length,
}

impl Quantity {
    /// What a flag sets. Engines share no flag that means different things to them. All of these ask for more memory the larger they are.
    pub fn of(flag: &str) -> Option<Self> {
        let mut all = DIALECTS.iter().flat_map(|dialect| dialect.quantities());
        all.find(|(_, name)| *name == flag).map(|(quantity, _)| *quantity)
    }

    /// The placeholder of each quantity's flag in sentences about failures.
    const PLACES: [(Self, &'static str); 4] = [
        (Self::MemoryShare, "{memory}"),
        (Self::Sequences, "{sequences}"),
        (Self::Tokens, "{tokens}"),
        (Self::Length, "{length}"),
    ];
}

/// An engine's own words.
pub trait Dialect: Sync {
    /// The engine, as a person says it.
    fn name(&self) -> &'static str;
    /// Of which release the list of flags is.
    fn release(&self) -> &'static str;
    /// Every flag without its dashes, one in each line.
    fn flags(&self) -> &'static str;
    /// The flags of common quantities.
    fn quantities(&self) -> &'static [(Quantity, &'static str)];
    /// The values that flags take.
    fn domains(&self) -> &'static [(&'static str, Domain)];
    /// Switches with which it tells more of itself. A launch has them unless the engine does not know them.
    fn telling(&self) -> &'static [&'static str] {
        &[]
    }
    /// Variables of a launch; the space file may say otherwise.
    fn environment(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }
    /// The variable with the key that clients must have.
    fn api_key_variable(&self) -> Option<&'static str> {
        None
    }
    /// Whether the twin models its scheduler.
    fn is_modelled(&self) -> bool {
        false
    }
    /// How a switch is turned off; `None` if that is said by leaving it out.
    fn off(&self, switch: &str) -> Option<String> {
        Some(format!("--no-{switch}"))
    }
    /// Flags that lose against another way to say the same, each with the tuned one.
    fn weaker(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }
    /// Why a flag or a variable cannot be among those of a launch, and the remedy; `all` are the flags of the space file.
    fn refuses(&self, _flag: &str, _all: &[&str]) -> Option<(String, String)> {
        None
    }
    /// What answers 200 once it serves. A hung engine may do so, too: this is necessary, never enough.
    fn health(&self) -> &'static str;
    /// Where it tells its configuration, the newest place first.
    fn server_info(&self) -> &'static [&'static str] {
        &[]
    }
    /// What empties its prefix cache when it is posted to.
    fn empties_cache(&self) -> Option<&'static str> {
        None
    }
    /// The configuration that the log of a start tells.
    fn of_log(&self, log: &str) -> Effective;
    /// The configuration that a page of metrics tells.
    fn of_metrics(&self, _page: &Page) -> Effective {
        Effective::default()
    }
    /// The configuration that the server information tells.
    fn of_server_info(&self, _info: &Json) -> Effective {
        Effective::default()
    }
    /// What a page of metrics says of its state.
    fn sample(&self, page: &Page) -> EngineSample;
    /// Its own error messages, before those that all engines share.
    fn symptoms(&self) -> &'static [Symptom];
    /// Errors that repeat the failure of another process or follow a shutdown, in lower case. They are never the reason.
    fn echoes(&self) -> &'static [&'static str];
    /// The programs whose command lines complain as `PROGRAM: error: …`.
    fn programs(&self) -> &'static [&'static str];
    /// Whether a line says that a process of the engine was killed.
    fn tells_lost_process(&self, line: &str) -> bool;

    /// Whether what its health endpoint answered says that so many workers serve.
    fn serves(&self, _health: &str, _workers: u32) -> bool {
        true
    }

    /// More pages of metrics, by the log of its start.
    fn pages(&self, _log: &str) -> Vec<String> {
        Vec::new()
    }

    /// The part of it that ended, where it has several.
    fn part(&self, _log: &str) -> Option<String> {
        None
    }

    /// The flag of a quantity.
    fn flag(&self, quantity: Quantity) -> Option<&'static str> {
        self.quantities().iter().find(|(of, _)| *of == quantity).map(|(_, flag)| *flag)
    }

    /// A sentence about a failure with the engine's flags in it.
    fn worded(&self, says: &str) -> String {
        Quantity::PLACES.iter().fold(says.to_owned(), |says, (quantity, place)| match self.flag(*quantity) {
            Some(flag) => says.replace(place, flag),
            None => says,
        })
    }
}

/// Every engine that is known.
pub const DIALECTS: [&dyn Dialect; 3] = [&vllm::Vllm, &sglang::Sglang, &trtllm::Trtllm];

/// What an engine speaks; the simulated one speaks as vLLM does.
pub fn dialect(kind: EngineKind) -> &'static dyn Dialect {
    match kind {
        EngineKind::Vllm | EngineKind::Simulated => &vllm::Vllm,
        EngineKind::Sglang => &sglang::Sglang,
        EngineKind::DynamoMocker => &dynamo::MOCKER,
        EngineKind::DynamoVllm => &dynamo::VLLM,
        EngineKind::DynamoSglang => &dynamo::SGLANG,
        EngineKind::DynamoTrtllm => &dynamo::TRTLLM,
    }
}
