//! Names are resolved once: a slow resolver must not count as a slow engine.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::failures::Unresolved;

/// Remembers the addresses of every name for as long as the client lives; a failure is not remembered.
#[derive(Clone, Default)]
pub(super) struct Resolver(Arc<Mutex<HashMap<String, Vec<SocketAddr>>>>);

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let known = self.0.clone();
        Box::pin(async move {
            let name = name.as_str().to_owned();
            let remembered = known.lock().unwrap_or_else(PoisonError::into_inner).get(&name).cloned();
            let addresses = match remembered {
                Some(addresses) => addresses,
                None => {
                    let found = tokio::net::lookup_host((name.as_str(), 0)).await;
                    let found: Vec<SocketAddr> =
                        found.map_err(|source| Unresolved { name: name.clone(), source })?.collect();
                    known.lock().unwrap_or_else(PoisonError::into_inner).insert(name, found.clone());
                    found
                }
            };
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}
