//! LeaderWorkerSet: the leader runs the engine, workers join its cluster.

use super::{Kind, Seat, Shape, containers, is};
use crate::export::yaml::{Node, Path};

/// The row.
pub const SHAPE: Shape = Shape { name: "LeaderWorkerSet", recognises, seats, kind: Kind::Custom };

fn recognises(root: &Node) -> bool {
    is(root, "leaderworkerset.x-k8s.io", None, &["LeaderWorkerSet"])
}

/// Without a leader of its own, the worker's template is everybody's.
fn seats(root: &Node) -> Vec<Seat> {
    let template = Path::default().key("spec.leaderWorkerTemplate");
    let leader = containers(root, &template.key("leaderTemplate.spec"));
    if leader.is_empty() { containers(root, &template.key("workerTemplate.spec")) } else { leader }
}
