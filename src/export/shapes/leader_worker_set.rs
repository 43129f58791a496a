//! LeaderWorkerSet: the leader runs the engine; workers join its cluster, or run the engine as well.

use super::{Kind, Seat, Shape, containers, is};
use crate::export::yaml::{Node, Path};

pub const SHAPE: Shape = Shape { name: "LeaderWorkerSet", recognises, seats, kind: Kind::Custom };

fn recognises(root: &Node) -> bool {
    is(root, "leaderworkerset.x-k8s.io", None, &["LeaderWorkerSet"])
}

/// Without a leader of its own, the worker's template is everybody's. Containers of one name have their role before it.
fn seats(root: &Node) -> Vec<Seat> {
    let template = Path::default().key("spec.leaderWorkerTemplate");
    let leaders = containers(root, &template.key("leaderTemplate.spec"));
    let workers = containers(root, &template.key("workerTemplate.spec"));
    let alike = leaders.iter().any(|leader| workers.iter().any(|worker| worker.name == leader.name));
    let of_role = |role: &'static str, seats: Vec<Seat>| {
        seats.into_iter().map(move |seat| Seat {
            name: if alike { format!("{role}/{}", seat.name) } else { seat.name.clone() },
            group: Some("group"),
            ..seat
        })
    };
    of_role("leader", leaders).chain(of_role("worker", workers)).collect()
}
