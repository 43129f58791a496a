//! Texts of an object that are files of their own: chart values, a configuration of Ray Serve, a patch, a script in a ConfigMap.

use super::walk;
use crate::export::yaml::{Node, Path, Step};

/// Keys of such texts: `helm.values` of an Argo Application, `valuesContent` of a HelmChart, `serveConfigV2` of a RayService, `patch` of a
/// Kustomization.
const KEYS: [&str; 4] = ["values", "valuesContent", "serveConfigV2", "patch"];

/// The places of such texts.
pub fn texts(root: &Node) -> Vec<Path> {
    let is_map = root.text_at("kind") == Some("ConfigMap");
    let data = [Step::Key("data".to_owned())];
    let mut found = Vec::new();
    walk(root, &Path::default(), &mut |node, at| {
        let holds = |key: &str| (is_map && at.0 == data) || KEYS.contains(&key);
        for (key, value) in node.entries() {
            match key.text() {
                Some(key) if value.text().is_some_and(|text| text.contains(char::is_whitespace)) && holds(key) => {
                    found.push(at.literal_key(key));
                }
                Some("patchesStrategicMerge") => {
                    let list = at.key("patchesStrategicMerge");
                    found.extend((0..value.items().len()).map(|index| list.item(index)));
                }
                _ => {}
            }
        }
    });
    found
}
