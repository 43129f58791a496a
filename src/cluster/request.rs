//! What a run in a cluster is asked for, and what becomes of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::borrow::{LABEL, short_name};
use super::follow::Ended;
use super::target::{RUN, Which};
use super::worker::Order;
use crate::report::Outcome;

/// Keeps an outcome, and says where or why not.
pub type Keep = Arc<dyn Fn(&Outcome) -> Result<String, String> + Send + Sync>;

/// What a run is asked for.
pub struct Request {
    pub which: Which,
    /// The files of the ConfigMap: the space file, and the workload's.
    pub files: BTreeMap<String, String>,
    /// What the worker is made of.
    pub order: Order,
    /// Who we are, as others read it in the Lease.
    pub holder: String,
    /// How many pods of the target stay.
    pub keep: u64,
    /// Whether the target gets the arguments, and whether fields of other managers are taken over for that.
    pub apply: Option<bool>,
    /// How long pods may take to go, and the worker to begin.
    pub patience: Duration,
    /// Who asks, if it may ask again after it died: what it asked for is done once.
    pub once: Option<String>,
    /// Keeps an outcome as soon as there is one, whatever happens afterwards, and says where.
    pub found: Keep,
    /// Whether what is said goes to a log, which keeps the outcome too.
    pub logs: bool,
}

/// What became of the arguments.
#[derive(Clone, Debug, PartialEq)]
pub enum Arguments {
    /// Nobody asked for a change, or there is nothing to change.
    Left,
    /// They were changed, and the target serves with them.
    Applied,
    /// They are for the user to apply: a patch, and why.
    Patch(String, String),
    /// They were changed, and changed back: why.
    RolledBack(String),
}

/// How a run ended.
pub struct Done {
    /// What the worker found; `None` if it did not come to say so.
    pub ended: Ended,
    pub arguments: Arguments,
}

/// A ConfigMap of a run on a target.
pub(super) fn config_map(name: &str, target: &str, run: &str, data: Option<BTreeMap<String, String>>) -> ConfigMap {
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        labels: Some([(LABEL.to_owned(), short_name(target))].into()),
        annotations: Some([(RUN.to_owned(), run.to_owned())].into()),
        ..Default::default()
    };
    ConfigMap { metadata, data, ..Default::default() }
}
