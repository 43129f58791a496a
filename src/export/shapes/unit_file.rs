//! A unit of systemd, whose `ExecStart` is a command line, and a quadlet of Podman, whose `Exec` holds the words behind its image.

use super::{ArgumentLocation, Kind, Shape};
use crate::export::yaml::{Node, Path};

pub const SHAPE: Shape = Shape { name: "systemd unit", recognises, locations, kind: Kind::File };

const START: &str = "Service.ExecStart";
const EXEC: &str = "Container.Exec";

fn recognises(root: &Node) -> bool {
    let there = |path: &str| root.get("kind").is_none() && root.at(&Path::default().key(path)).is_some();
    there(START) || there("Container.Image")
}

fn locations(root: &Node) -> Vec<ArgumentLocation> {
    // The last one of a key counts: a drop-in empties it first.
    let last = |path: &str| {
        let path = Path::default().key(path);
        let items = root.at(&path)?.items().len();
        Some(if items > 0 { path.item(items - 1) } else { path })
    };
    let start = last(START).map(|args| ArgumentLocation {
        name: "ExecStart".to_owned(),
        args: Some(args),
        ..ArgumentLocation::default()
    });
    let exec = last("Container.Image").map(|image| ArgumentLocation {
        name: "Exec".to_owned(),
        command: last("Container.Entrypoint"),
        args: Some(last(EXEC).unwrap_or_else(|| Path::default().key(EXEC))),
        image: Some(image),
        ..ArgumentLocation::default()
    });
    start.into_iter().chain(exec).collect()
}
