//! A file of JSON patch operations, as Kustomize applies them: each that gives a container its `args` or `command` as a whole.

use super::{ArgumentLocation, Kind, Shape};
use crate::export::yaml::{Node, Path};

pub const SHAPE: Shape = Shape { name: "JSON patch", recognises, locations, kind: Kind::File };

fn recognises(root: &Node) -> bool {
    root.items().iter().any(|item| item.get("op").is_some() && item.get("path").is_some())
}

fn locations(root: &Node) -> Vec<ArgumentLocation> {
    let location = |(index, item): (usize, &Node)| {
        let path = item.get("path")?.text()?;
        let value = Path::default().item(index).key("value");
        let name = format!("[{index}]");
        let list = ArgumentLocation { name: name.clone(), args: Some(value.clone()), ..ArgumentLocation::default() };
        match path.rsplit('/').next()? {
            "args" | "command" => Some(list),
            // A container as a whole.
            _ if item.get("value")?.get("image").is_some() => Some(ArgumentLocation::container(name, &value)),
            _ => None,
        }
    };
    root.items().iter().enumerate().filter_map(location).collect()
}
