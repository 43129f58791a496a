//! Values of a Helm chart within another object: `values` of a HelmRelease, `valuesObject` of an Argo Application, `valuesInline` of a
//! Kustomization.

use super::{ArgumentLocation, Kind, SHAPES, Shape, is, walk};
use crate::export::yaml::{Node, Path, Step};

pub const SHAPE: Shape = Shape { name: "Helm values in an object", recognises, locations, kind: Kind::Custom };

fn recognises(root: &Node) -> bool {
    is(root, "helm.toolkit.fluxcd.io", None, &["HelmRelease"])
        || is(root, "argoproj.io", None, &["Application", "ApplicationSet"])
        || is(root, "kustomize.config.k8s.io", None, &["Kustomization", "Component"])
}

fn locations(root: &Node) -> Vec<ArgumentLocation> {
    const KEYS: [&str; 3] = ["values", "valuesObject", "valuesInline"];
    let mut found = Vec::new();
    walk(root, &Path::default(), &mut |values, at| {
        if !matches!(at.0.last(), Some(Step::Key(key)) if KEYS.contains(&key.as_str())) {
            return;
        }
        // The shape of an object has no values of a chart in it.
        let of_chart = |shape: &&Shape| shape.name != SHAPE.name && (shape.recognises)(values);
        if let Some(shape) = SHAPES.iter().find(of_chart) {
            found.extend((shape.locations)(values).into_iter().map(|location| location.below(at)));
        }
    });
    found
}
