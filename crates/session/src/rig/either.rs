//! The rigs of a session that several machines tune together are of one type: here, or there.

use super::{Measured, ProbeAsk, Ready, RealRig, RemoteRig, Rig, RigError, Spawned, Trial};
use autotune_plan::space::Point;
use autotune_records::units::Seconds;
use autotune_workload::Material;

/// A rig of this machine or of a worker.
pub enum EitherRig {
    /// Engines as processes on this machine.
    Here(Box<RealRig>),
    /// The engine of a worker.
    There(Box<RemoteRig>),
}

impl Rig for EitherRig {
    async fn launch(
        &mut self,
        trial: Trial,
        point: &Point,
        spawned: &mut (dyn FnMut(&Spawned) + Send),
    ) -> Result<Ready, RigError> {
        match self {
            Self::Here(rig) => rig.launch(trial, point, spawned).await,
            Self::There(rig) => rig.launch(trial, point, spawned).await,
        }
    }

    fn material(&self) -> &Material {
        match self {
            Self::Here(rig) => rig.material(),
            Self::There(rig) => rig.material(),
        }
    }

    async fn probe(&mut self, ask: &ProbeAsk) -> Result<Measured, RigError> {
        match self {
            Self::Here(rig) => rig.probe(ask).await,
            Self::There(rig) => rig.probe(ask).await,
        }
    }

    async fn stop(&mut self) -> Result<Seconds, RigError> {
        match self {
            Self::Here(rig) => rig.stop().await,
            Self::There(rig) => rig.stop().await,
        }
    }

    async fn kill(&mut self) {
        match self {
            Self::Here(rig) => rig.kill().await,
            Self::There(rig) => rig.kill().await,
        }
    }
}
