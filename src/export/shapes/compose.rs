//! Docker Compose: services by name, whose `command` is a list or one text, and `environment` a list or a mapping.

use super::{ArgumentLocation, Kind, Shape};
use crate::export::yaml::{Node, Path};

pub const SHAPE: Shape = Shape { name: "Docker Compose", recognises, locations, kind: Kind::File };

fn recognises(root: &Node) -> bool {
    let runs = |(_, service): &(Node, Node)| ["image", "build", "command"].iter().any(|key| service.get(key).is_some());
    root.get("kind").is_none() && root.get("services").is_some_and(|services| services.entries().iter().any(runs))
}

fn locations(root: &Node) -> Vec<ArgumentLocation> {
    let services = Path::default().key("services");
    let names = root.at(&services).map_or(&[][..], Node::entries).iter().filter_map(|(name, _)| name.text());
    let location = |name: &str| {
        let at = services.literal_key(name);
        ArgumentLocation {
            name: name.to_owned(),
            command: Some(at.key("entrypoint")),
            args: Some(at.key("command")),
            env: vec![at.key("environment")],
            image: Some(at.key("image")),
            memory: None,
            gpus: None,
            ..ArgumentLocation::container(name, &at)
        }
    };
    names.map(location).collect()
}
