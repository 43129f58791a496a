//! Kubernetes: the Deployment that holds the GPU is scaled down, a worker Job tunes on its node, and the service comes back.
//!
//! The coordinator is anybody with the rights of [`rights`]: a terminal, or a Job without a GPU. What has to survive it stands in the cluster:
//! the original scale in an annotation of the target, who is at it in a Lease. [`borrow`] gives back whatever an earlier coordinator left.

pub mod api;
pub mod borrow;
pub mod coordinate;
mod lease;
mod rights;
pub mod target;
pub mod worker;

pub use api::{Cluster, ClusterError};
