//! DynamoGraphDeployment of `nvidia.com/v1beta1`: components with pod templates, whose container `main` is the engine.

use super::{Kind, Seat, Shape, framework, is, named};
use crate::export::yaml::{Node, Path};

/// The row.
pub const SHAPE: Shape = Shape { name: "DynamoGraphDeployment v1beta1", recognises, seats, kind: Kind::Custom };

/// Components that run no engine.
const OTHERS: [&str; 3] = ["frontend", "planner", "epp"];

fn recognises(root: &Node) -> bool {
    is(root, "nvidia.com", Some("v1beta1"), &["DynamoGraphDeployment"])
}

fn seats(root: &Node) -> Vec<Seat> {
    let components = named(root, &Path::default().key("spec.components"));
    let engines = components.filter(|(_, at)| {
        let kind = root.at(&at.key("type")).and_then(Node::text).unwrap_or_default();
        !OTHERS.contains(&kind)
    });
    let seat = |(component, at): (String, Path)| {
        let (_, main) = named(root, &at.key("podTemplate.spec.containers")).find(|(name, _)| name == "main")?;
        Some(Seat { engine: framework(root), ..Seat::container(component, &main) })
    };
    engines.filter_map(seat).collect()
}
