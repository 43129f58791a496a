//! DynamoGraphDeployment of `nvidia.com/v1alpha1`: services by name, whose `extraPodSpec.mainContainer` is the engine.

use super::{ArgumentLocation, Kind, Shape, is, named};
use crate::export::yaml::{Node, Path};

pub const SHAPE: Shape = Shape { name: "DynamoGraphDeployment v1alpha1", recognises, locations, kind: Kind::Custom };

/// Services that run no engine.
const OTHERS: [&str; 2] = ["frontend", "planner"];

fn recognises(root: &Node) -> bool {
    is(root, "nvidia.com", Some("v1alpha1"), &["DynamoGraphDeployment"])
}

fn locations(root: &Node) -> Vec<ArgumentLocation> {
    let services = Path::default().key("spec.services");
    let entries = root.at(&services).map_or(&[][..], Node::entries);
    let locations = |(key, service): &(Node, Node)| {
        let name = key.text().unwrap_or_default();
        let at = services.literal_key(name);
        let kind = service.text_at("componentType").unwrap_or_default();
        let main = at.key("extraPodSpec.mainContainer");
        let main = (!OTHERS.contains(&kind) && root.at(&main).is_some()).then(|| ArgumentLocation {
            env: vec![main.key("env"), at.key("envs")],
            gpus: Some(at.key("resources.limits.gpu")),
            memory: Some(at.key("resources.limits.memory")),
            ..ArgumentLocation::container(name, &main)
        });
        let beside = named(root, &at.key("extraPodSpec.containers")).filter(|_| !OTHERS.contains(&kind));
        let beside = beside.map(|(container, at)| ArgumentLocation::container(format!("{name}/{container}"), &at));
        main.into_iter().chain(beside).collect::<Vec<_>>()
    };
    entries.iter().flat_map(locations).collect()
}
