//! Helm values of any chart: mappings with a list of arguments.

use super::{ArgumentLocation, Kind, Shape, walk};
use crate::export::yaml::{Node, Path};

/// It comes last: charts that have a meaning of their own are known by their keys.
pub const SHAPE: Shape = Shape { name: "Helm values", recognises, locations, kind: Kind::File };

fn recognises(root: &Node) -> bool {
    root.get("kind").is_none() && root.get("apiVersion").is_none() && !locations(root).is_empty()
}

fn locations(root: &Node) -> Vec<ArgumentLocation> {
    const LISTS: [&str; 4] = ["args", "extraArgs", "vllmArgs", "command"];
    let mut found = Vec::new();
    walk(root, &Path::default(), &mut |node, at| {
        let holds =
            |key: &&&str| node.get(key).is_some_and(|list| list.items().iter().any(|item| item.text().is_some()));
        if let Some(key) = LISTS.iter().find(holds) {
            let list = if *key == "command" { "args" } else { key };
            let image =
                if node.at(&Path::default().key("image.repository")).is_some() { "image.repository" } else { "image" };
            let name = at.0.last().map_or_else(|| "values".to_owned(), |_| at.to_string());
            found.push(ArgumentLocation {
                args: Some(at.key(list)),
                image: Some(at.key(image)),
                ..ArgumentLocation::container(name, at)
            });
        }
    });
    found
}
