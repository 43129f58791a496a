//! LeaderWorkerSet: the leader runs the engine; workers join its cluster, or run the engine as well.

use super::{ArgumentLocation, Kind, Shape, containers, is};
use crate::export::yaml::{Node, Path};

pub const SHAPE: Shape = Shape { name: "LeaderWorkerSet", recognises, locations, kind: Kind::Custom };

fn recognises(root: &Node) -> bool {
    is(root, "leaderworkerset.x-k8s.io", None, &["LeaderWorkerSet"])
}

/// If there is no leaderTemplate, LeaderWorkerSet uses workerTemplate for the leader too. If a leader and a worker container have the same
/// name, all names get their role as a prefix.
fn locations(root: &Node) -> Vec<ArgumentLocation> {
    let template = Path::default().key("spec.leaderWorkerTemplate");
    let leaders = containers(root, &template.key("leaderTemplate.spec"));
    let workers = containers(root, &template.key("workerTemplate.spec"));
    let alike = leaders.iter().any(|leader| workers.iter().any(|worker| worker.name == leader.name));
    let of_role = |role: &'static str, locations: Vec<ArgumentLocation>| {
        locations.into_iter().map(move |location| ArgumentLocation {
            name: if alike { format!("{role}/{}", location.name) } else { location.name.clone() },
            group: Some("group"),
            ..location
        })
    };
    of_role("leader", leaders).chain(of_role("worker", workers)).collect()
}
