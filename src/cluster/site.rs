//! What the rules of a cluster ask of the objects that we make: labels, annotations, resources, secrets for pulling images.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};

type Pairs = BTreeMap<String, String>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// Of every object and pod.
    pub labels: Pairs,
    pub annotations: Pairs,
    /// With which our image is pulled.
    pub pull_secrets: Vec<String>,
    /// Of our own containers: the coordinator's, and the one that copies our program.
    pub requests: Pairs,
    pub limits: Pairs,
}

impl Site {
    /// Adds labels and annotations to an object; where it has one of the same key, that stays.
    pub fn mark(&self, object: &mut Value) {
        for (place, pairs) in [("labels", &self.labels), ("annotations", &self.annotations)] {
            for (key, value) in pairs {
                let there = &mut object["metadata"][place][key.as_str()];
                if there.is_null() {
                    *there = value.as_str().into();
                }
            }
        }
    }

    /// Adds the secrets to those of a pod.
    pub fn pull(&self, pod: &mut Value) {
        if self.pull_secrets.is_empty() {
            return;
        }
        let mut secrets = pod["imagePullSecrets"].as_array().cloned().unwrap_or_default();
        let missing = self.pull_secrets.iter().map(|name| json!({"name": name}));
        secrets.extend(missing.filter(|secret| !secrets.contains(secret)).collect::<Vec<_>>());
        pod["imagePullSecrets"] = secrets.into();
    }

    /// What a container of ours asks for and gets at most, unless something else is said.
    pub fn resources(&self, cpu: &str, memory: &str) -> Value {
        let mut resources = json!({
            // A quota may ask every container for them.
            "requests": {"cpu": cpu, "memory": memory},
            "limits": {"cpu": "1", "memory": "256Mi"},
        });
        for (place, pairs) in [("requests", &self.requests), ("limits", &self.limits)] {
            for (resource, quantity) in pairs {
                resources[place][resource.as_str()] = quantity.as_str().into();
            }
        }
        resources
    }

    /// The labels by which a Service selects pods, where they are nothing but labels that ours get: it would send them its traffic.
    pub fn selector_of<'s>(&self, service: &'s Service) -> Option<&'s Pairs> {
        let selector = service.spec.as_ref()?.selector.as_ref()?;
        let is_ours = !selector.is_empty() && selector.iter().all(|(key, value)| self.has(key, value));
        is_ours.then_some(selector)
    }

    /// Whether our pods get a label.
    pub fn has(&self, key: &str, value: &str) -> bool {
        self.labels.get(key).is_some_and(|ours| ours == value)
    }

    /// Labels and annotations as they are said on our command line.
    pub fn marks(&self) -> Vec<String> {
        let notes = said(&self.annotations).into_iter().map(|note| ("annotations", note));
        flags(list("labels", &self.labels).chain(notes))
    }

    /// All of it as it is said on our command line.
    pub fn words(&self) -> Vec<String> {
        let lists = list("requests", &self.requests).chain(list("limits", &self.limits));
        let secrets = self.pull_secrets.iter().map(|name| ("image-pull-secret", name.clone()));
        self.marks().into_iter().chain(flags(lists.chain(secrets))).collect()
    }
}

fn said(pairs: &Pairs) -> Vec<String> {
    pairs.iter().map(|(key, value)| format!("{key}={value}")).collect()
}

fn list(flag: &'static str, pairs: &Pairs) -> impl Iterator<Item = (&'static str, String)> {
    (!pairs.is_empty()).then(|| (flag, said(pairs).join(","))).into_iter()
}

fn flags(values: impl Iterator<Item = (&'static str, String)>) -> Vec<String> {
    values.flat_map(|(flag, value)| [format!("--{flag}"), value]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_selects_our_pods_where_all_that_it_asks_for_is_theirs() {
        let labels = [("app", "chat"), ("team", "ml")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        let site = Site { labels: labels.into(), ..Site::default() };
        let selects = |selector: Value| {
            let service = serde_json::from_value(json!({"spec": {"selector": selector}})).unwrap();
            site.selector_of(&service).is_some()
        };
        assert!(selects(json!({"app": "chat"})) && selects(json!({"app": "chat", "team": "ml"})));
        assert!(!selects(json!({"app": "other"})) && !selects(json!({"app": "chat", "track": "stable"})));
        // Without a selector, somebody else says where the traffic goes.
        assert!(!selects(json!({})) && !selects(Value::Null));
    }
}
