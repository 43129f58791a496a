//! Who is at a target: a Lease, so that two runs never meet.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1 as k8s;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};

use super::api::{Cluster, ClusterError};
use super::borrow::LOOK;
use crate::clock;
use crate::rig::Worker;

/// A holder that has not renewed for so long is gone.
pub(super) const SECONDS: u16 = 60;

/// Who we are: the machine and the process, or the pod, and which start of it, since the number of a process is given again.
pub fn holder() -> String {
    let host = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok()).unwrap_or_default();
    format!("autotune on {host}, process {}, run {}", std::process::id(), Worker::new_session())
}

#[derive(Clone, Debug)]
pub struct Lease {
    name: String,
    holder: String,
}

impl Lease {
    /// Takes the lease of a target. One whose holder does not renew it is taken over, after as long as a lease lasts. Whether the holder
    /// lives is seen by its renewals and not by its clock, which may differ from ours.
    ///
    /// # Errors
    /// Who holds it.
    pub async fn take(cluster: &Cluster, name: &str, holder: &str) -> Result<Self, ClusterError> {
        let lease = Self { name: name.to_owned(), holder: holder.to_owned() };
        let mut seen: Option<(k8s::Lease, tokio::time::Instant)> = None;
        loop {
            let now = clock::timestamp();
            let Some(there) = cluster.read::<k8s::Lease>(name).await? else {
                match cluster.make(&lease.object(now, None)).await {
                    Ok(_) => return Ok(lease),
                    Err(error) if error.is_conflict() => continue,
                    Err(error) => return Err(error),
                }
            };
            if let Some(other) = held_by_another(&there, holder) {
                match &seen {
                    None => {
                        cluster.tell(&format!(
                            "{other} holds the lease {name}; waiting up to {} s to see whether it still lives",
                            lasts(&there).as_secs()
                        ));
                        seen = Some((there, clock::ticks()));
                    }
                    Some((first, _)) if first.spec != there.spec => {
                        return Err(ClusterError::Wrong(format!("{other} is at it (lease {name}); wait for its end")));
                    }
                    Some((_, since)) if since.elapsed() > lasts(&there) => {
                        match cluster.replace(name, &lease.object(now, Some(there))).await {
                            Ok(_) => return Ok(lease),
                            Err(error) if error.is_conflict() => seen = None,
                            Err(error) => return Err(error),
                        }
                    }
                    Some(_) => {}
                }
                tokio::time::sleep(LOOK).await;
                continue;
            }
            match cluster.replace(name, &lease.object(now, Some(there))).await {
                Ok(_) => return Ok(lease),
                Err(error) if error.is_conflict() || error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Says that the holder still lives. A lease that somebody deleted is made again.
    ///
    /// # Errors
    /// [`ClusterError::Wrong`] if somebody else has taken it over; those of the server.
    pub async fn renew(&self, cluster: &Cluster) -> Result<(), ClusterError> {
        loop {
            let now = clock::timestamp();
            let renewed = match cluster.read::<k8s::Lease>(&self.name).await? {
                None => cluster.make(&self.object(now, None)).await,
                Some(there) => {
                    if let Some(holder) = held_by_another(&there, &self.holder) {
                        return Err(ClusterError::Wrong(format!(
                            "{holder} has taken over (lease {}), and gives the GPU back",
                            self.name
                        )));
                    }
                    // Ours, or emptied by somebody who does not give the GPU back.
                    cluster.replace(&self.name, &self.object(now, Some(there))).await
                }
            };
            match renewed {
                // Somebody was at it since it was read: who, the next look tells.
                Err(error) if error.is_conflict() => {}
                done => return done.map(drop),
            }
        }
    }

    /// Gives it up, unless it is somebody else's by now.
    pub async fn release(self, cluster: &Cluster) -> Result<(), ClusterError> {
        match cluster.read::<k8s::Lease>(&self.name).await? {
            Some(there) if held_by_another(&there, &self.holder).is_none() => {
                cluster.delete::<k8s::Lease>(&self.name).await
            }
            _ => Ok(()),
        }
    }

    /// Whether somebody holds the lease of a target, or died holding it.
    pub async fn is_there(cluster: &Cluster, name: &str) -> Result<bool, ClusterError> {
        Ok(cluster.read::<k8s::Lease>(name).await?.is_some())
    }

    fn object(&self, now: Timestamp, there: Option<k8s::Lease>) -> k8s::Lease {
        // Only the version that was read may be replaced.
        let resource_version = there.and_then(|there| there.metadata.resource_version);
        k8s::Lease {
            metadata: ObjectMeta { name: Some(self.name.clone()), resource_version, ..Default::default() },
            spec: Some(k8s::LeaseSpec {
                holder_identity: Some(self.holder.clone()),
                lease_duration_seconds: Some(SECONDS.into()),
                renew_time: Some(MicroTime(now)),
                ..Default::default()
            }),
        }
    }
}

/// How long a lease lasts without a renewal.
fn lasts(lease: &k8s::Lease) -> Duration {
    let said = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
    Duration::from_secs(said.and_then(|seconds| seconds.try_into().ok()).unwrap_or(SECONDS.into()))
}

/// Who else holds a lease. Whether it lives is not read from its times: the clocks of two machines may differ by any amount.
fn held_by_another(lease: &k8s::Lease, us: &str) -> Option<String> {
    let holder = lease.spec.as_ref()?.holder_identity.as_ref();
    holder.filter(|holder| !holder.is_empty() && *holder != us).cloned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::world::World;

    /// Two pods have the same process number, and one that is started again has the same name too.
    #[tokio::test(start_paused = true)]
    async fn two_coordinators_of_the_same_name_are_told_apart() {
        let (ours, theirs) = (holder(), holder());
        let name = |holder: &str| holder.split(", run ").next().unwrap().to_owned();
        assert!(name(&ours) == name(&theirs) && ours != theirs, "{ours}, {theirs}");
        let (cluster, world) = World::new(0);
        let lease = Lease::take(&cluster, "l", &ours).await.unwrap();
        let rival = Lease { name: "l".into(), holder: theirs.clone() };
        let lost = rival.renew(&cluster).await.unwrap_err().to_string();
        assert!(lost.contains(&ours), "{lost}");
        rival.release(&cluster).await.unwrap();
        assert!(Lease::is_there(&cluster, "l").await.unwrap(), "it is not theirs to give up");
        let renewing = async {
            while lease.renew(&cluster).await.is_ok() {
                tokio::time::sleep(LOOK / 4).await;
            }
        };
        tokio::select! {
            taken = Lease::take(&cluster, "l", &theirs) => {
                let says = taken.unwrap_err().to_string();
                assert!(says.contains(&format!("{ours} is at it (lease l); wait for its end")), "{says}");
                let waits = "holds the lease l; waiting up to 60 s to see whether it still lives";
                assert!(world.lock().unwrap().said.iter().any(|said| said.contains(waits)));
            }
            () = renewing => panic!("the lease was lost"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_policy_asks_for_is_still_on_a_lease_that_was_renewed() {
        let (mut cluster, world) = World::new(0);
        cluster.site.labels = [("team".to_owned(), "ml".to_owned())].into();
        let lease = Lease::take(&cluster, "l", "a").await.unwrap();
        lease.renew(&cluster).await.unwrap();
        assert_eq!(world.lock().unwrap().objects["leases/l"]["metadata"]["labels"]["team"], "ml");
    }

    /// A holder whose clock is a day behind renews, and keeps its lease; one that does not renew loses it.
    #[tokio::test(start_paused = true)]
    async fn a_lease_ends_with_its_renewals_whatever_its_times_say() {
        let (cluster, world) = World::new(0);
        let lease = Lease { name: "l".into(), holder: "a".into() };
        let behind: Timestamp = "2020-11-22T10:00:00Z".parse().unwrap();
        cluster.make(&lease.object(behind, None)).await.unwrap();
        let begun = clock::ticks();
        Lease::take(&cluster, "l", "b").await.unwrap();
        assert!(begun.elapsed() > Duration::from_secs(60), "it was waited for a renewal");
        let lost = lease.renew(&cluster).await.unwrap_err().to_string();
        assert!(lost.contains("b has taken over"), "{lost}");
        let emptied = |world: &mut World| world.edit("leases/l", json!({"spec": {"holderIdentity": ""}}));
        emptied(&mut world.lock().unwrap());
        lease.renew(&cluster).await.unwrap();
        assert_eq!(world.lock().unwrap().objects["leases/l"]["spec"]["holderIdentity"], "a");
        emptied(&mut world.lock().unwrap());
        lease.release(&cluster).await.unwrap();
        assert!(!Lease::is_there(&cluster, "l").await.unwrap(), "one that is nobody's is not left");
    }
}
