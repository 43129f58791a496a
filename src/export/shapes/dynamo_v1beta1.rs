//! DynamoGraphDeployment of `nvidia.com/v1beta1`: components with pod templates, whose container `main` is the engine.

use super::{ArgumentLocation, Kind, Shape, is, named};
use crate::export::yaml::{Node, Path};

pub const SHAPE: Shape = Shape { name: "DynamoGraphDeployment v1beta1", recognises, locations, kind: Kind::Custom };

/// Components that run no engine.
const OTHERS: [&str; 3] = ["frontend", "planner", "epp"];

fn recognises(root: &Node) -> bool {
    is(root, "nvidia.com", Some("v1beta1"), &["DynamoGraphDeployment"])
}

fn locations(root: &Node) -> Vec<ArgumentLocation> {
    let components = named(root, &Path::default().key("spec.components"));
    let engines = components.filter(|(_, at)| {
        let kind = root.at(&at.key("type")).and_then(Node::text).unwrap_or_default();
        !OTHERS.contains(&kind)
    });
    let locations = |(component, at): (String, Path)| {
        let containers = named(root, &at.key("podTemplate.spec.containers"));
        containers.map(move |(name, at)| {
            let main = name == "main";
            ArgumentLocation::container(if main { component.clone() } else { format!("{component}/{name}") }, &at)
        })
    };
    engines.flat_map(locations).collect()
}
