//! Helm values of llm-d's model service: the containers of `decode` and `prefill`.

use super::{ArgumentLocation, Engine, Kind, Shape, named};
use crate::export::yaml::{Node, Path};

pub const SHAPE: Shape = Shape { name: "llm-d Helm values", recognises, locations, kind: Kind::File };

const ROLES: [&str; 2] = ["decode", "prefill"];

fn recognises(root: &Node) -> bool {
    let has = |role: &&str| root.at(&Path::default().key(role).key("containers")).is_some();
    root.get("kind").is_none() && ROLES.iter().any(has)
}

fn locations(root: &Node) -> Vec<ArgumentLocation> {
    let of_role = |role: &'static str| {
        let containers = named(root, &Path::default().key(role).key("containers"));
        let runs = |at: &Path| {
            let command = root.at(&at.key("modelCommand")).and_then(Node::text);
            matches!(command, Some("vllmServe" | "imageDefault"))
        };
        containers.map(move |(_, at)| ArgumentLocation {
            engine: runs(&at).then_some(Engine::Vllm),
            ..ArgumentLocation::container(role, &at)
        })
    };
    ROLES.into_iter().flat_map(of_role).collect()
}
