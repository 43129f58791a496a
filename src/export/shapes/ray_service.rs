//! RayService: Ray starts the engine as its `serveConfigV2` says, a text that is read as a file of its own; its pods run Ray alone.

use super::{Kind, Shape, is};

pub const SHAPE: Shape = Shape {
    name: "RayService",
    recognises: |root| is(root, "ray.io", None, &["RayService"]),
    locations: |_| Vec::new(),
    kind: Kind::Custom,
};
