//! Who is at a target: a Lease, so that two runs never meet.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::api::{Cluster, ClusterError};

const COORDINATION: &str = "apis/coordination.k8s.io/v1";
/// A holder that has not renewed for so long is gone.
pub(super) const SECONDS: i64 = 60;

/// A lease that is held.
#[derive(Clone, Debug)]
pub struct Lease {
    name: String,
    holder: String,
}

impl Lease {
    /// Takes the lease of a target; one whose holder is gone is taken over.
    ///
    /// # Errors
    /// Who holds it, and for how long already.
    pub async fn take(cluster: &Cluster, name: &str, holder: &str, now: Timestamp) -> Result<Self, ClusterError> {
        let lease = Self { name: name.to_owned(), holder: holder.to_owned() };
        for _ in 0..2 {
            match cluster.find(COORDINATION, "leases", name).await? {
                None => match cluster.create(COORDINATION, "leases", &lease.object(now, None)).await {
                    Ok(_) => return Ok(lease),
                    Err(error) if error.is_conflict() => {}
                    Err(error) => return Err(error),
                },
                Some(there) => {
                    if let Some(holder) = held_by_another(&there, holder, now) {
                        return Err(ClusterError::Wrong(format!(
                            "{holder} is at it (lease {name}); wait for its end, or end it and wait a minute"
                        )));
                    }
                    match cluster.replace(COORDINATION, "leases", name, &lease.object(now, Some(&there))).await {
                        Ok(_) => return Ok(lease),
                        Err(error) if error.is_conflict() => {}
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        Err(ClusterError::Wrong(format!("somebody else takes the lease {name} at the same moment; try again")))
    }

    /// Says that the holder still lives.
    ///
    /// # Errors
    /// If somebody else has taken it over.
    pub async fn renew(&self, cluster: &Cluster, now: Timestamp) -> Result<(), ClusterError> {
        let there = cluster.get(COORDINATION, "leases", &self.name).await?;
        if let Some(holder) = held_by_another(&there, &self.holder, now) {
            return Err(ClusterError::Wrong(format!("{holder} has taken over (lease {})", self.name)));
        }
        match cluster.replace(COORDINATION, "leases", &self.name, &self.object(now, Some(&there))).await {
            // The next renewal will see who it was.
            Err(error) if error.is_conflict() => Ok(()),
            done => done.map(drop),
        }
    }

    /// Gives it up.
    ///
    /// # Errors
    /// Those of the server.
    pub async fn release(self, cluster: &Cluster) -> Result<(), ClusterError> {
        cluster.delete(COORDINATION, "leases", &self.name).await
    }

    fn object(&self, now: Timestamp, there: Option<&Value>) -> Value {
        let mut object = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self.name},
            "spec": {
                "holderIdentity": self.holder,
                "leaseDurationSeconds": SECONDS,
                "renewTime": format!("{now:.6}"),
            },
        });
        if let Some(there) = there {
            // Only the version that was read may be replaced.
            object["metadata"]["resourceVersion"] = there["metadata"]["resourceVersion"].clone();
        }
        object
    }
}

/// Who else holds a lease and has renewed it lately.
fn held_by_another(lease: &Value, us: &str, now: Timestamp) -> Option<String> {
    let spec = &lease["spec"];
    let holder = spec["holderIdentity"].as_str().filter(|holder| !holder.is_empty() && *holder != us)?;
    let renewed: Timestamp = spec["renewTime"].as_str()?.parse().ok()?;
    let lasts = SignedDuration::from_secs(spec["leaseDurationSeconds"].as_i64().unwrap_or(SECONDS));
    (now.duration_since(renewed) < lasts).then(|| holder.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_ends_with_its_holder() {
        let now: Timestamp = "2026-11-22T10:00:00Z".parse().unwrap();
        let lease = Lease { name: "l".into(), holder: "a".into() }.object(now, None);
        assert_eq!(lease["spec"]["renewTime"], "2026-11-22T10:00:00.000000Z");
        let later = |seconds| now + SignedDuration::from_secs(seconds);
        assert_eq!(held_by_another(&lease, "b", later(59)), Some("a".to_owned()));
        assert_eq!(held_by_another(&lease, "b", later(60)), None);
        assert_eq!(held_by_another(&lease, "a", later(1)), None);
    }
}
