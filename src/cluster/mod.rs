//! Kubernetes: the object that holds the GPU is scaled down, and a worker Job tunes on its node. Then the service comes back, or a better one.
//!
//! The coordinator is anybody with the rights of [`rights`]: a terminal, or a Job without a GPU. What has to survive it stands in the cluster. The
//! original scale is in annotations of the target ([`target`]), the coordinator in a Lease. The worker and what undoes a change are in objects of our
//! own. [`plan`](coordinate::plan) looks, [`run`](coordinate::run) does, and [`borrow`] gives back whatever an earlier coordinator left.

pub mod api;
pub mod apply;
pub mod borrow;
pub mod coordinate;
mod events;
pub mod follow;
pub mod indexed;
pub mod kinds;
pub mod lease;
mod owners;
mod place;
mod record;
pub mod render;
pub mod replicas;
pub mod request;
pub mod rights;
pub mod rollout;
pub mod site;
pub mod target;
mod template;
pub mod vary;
pub mod worker;

#[cfg(test)]
mod scenarios;
#[cfg(test)]
mod world;

pub use api::{Cluster, ClusterError};
