//! A shell script: a file of one text, which starts the engine.

use super::{ArgumentLocation, Kind, Shape};
use crate::export::yaml::{Node, Path};

pub const SHAPE: Shape = Shape { name: "shell script", recognises, locations, kind: Kind::File };

fn recognises(root: &Node) -> bool {
    root.text().is_some()
}

fn locations(_: &Node) -> Vec<ArgumentLocation> {
    let args = Some(Path::default());
    vec![ArgumentLocation { name: "the script".to_owned(), args, ..ArgumentLocation::default() }]
}
