//! What is searched: engines, traffic and promises, each with a name; one file for each model.

mod cpu;
mod llama70b;
mod llama8b;

use autotune::rehearsal::Quirks;
use autotune::settings::{Plan, parse};
use autotune::twin::{Foreign, Noise, Profile, Start};
use autotune::units::Seconds;

use crate::arms::Arm;

/// A job whose true answer is known.
pub struct Surface {
    /// Its name.
    pub name: &'static str,
    /// Its space file, but for the strategy.
    space: Space,
    /// The engine.
    pub profile: Profile,
    /// What that has beyond its profile.
    pub quirks: Quirks,
}

/// The parts of a space file that surfaces differ in.
struct Space {
    slo: &'static str,
    workload: &'static str,
    parameters: &'static str,
    probe: &'static str,
}

impl Surface {
    /// Its plan for an arm.
    ///
    /// # Panics
    /// Where the strategy is none that this build knows, or the surface is no valid space file.
    pub fn plan(&self, arm: &Arm) -> Plan {
        self.try_plan(arm).unwrap_or_else(|problems| panic!("{}: {problems}", self.name))
    }

    /// The same, or why it is refused.
    pub fn try_plan(&self, arm: &Arm) -> Result<Plan, String> {
        let Space { slo, workload, parameters, probe } = &self.space;
        let (strategy, twin) = (arm.strategy, arm.twin);
        let text = format!(
            "[slo]\n{slo}\n[engine]\nkind = \"simulated\"\nstart_estimate = \"60s\"\nlive = true\n[workload]\n{workload}\n\
             [parameters]\n{parameters}\n[search]\nstrategy = \"{strategy}\"\nprecision = \"3%\"\ncandidates = 24\n\
             constraints = [\"max-num-batched-tokens >= max-num-seqs\"]\n\
             [probe]\n{probe}\ntwin = {twin}\n[budget]\ngpu_time = \"24h\"\n"
        );
        parse(self.name, &text).map_err(|problems| problems.to_string())
    }

    /// Whether the engine is one that the twin does not match.
    pub fn is_foreign(&self) -> bool {
        self.quirks.foreign != Foreign::NONE
    }
}

/// Every surface.
pub fn surfaces() -> Vec<Surface> {
    let mut all = llama8b::surfaces();
    all.extend(llama70b::surfaces());
    all.extend(cpu::surfaces());
    all
}

/// A profile that comes with the program, with another start and other noise.
fn engine(name: &str, start: f64, noise: Noise) -> Profile {
    let profile = Profile::named(name).unwrap();
    Profile { start: Some(Start { seconds: start }), noise: Some(noise), ..profile }
}

fn quirks(first_start: f64, foreign: Foreign) -> Quirks {
    Quirks { foreign, first_start: Some(Seconds(first_start)) }
}

/// The surfaces of a quick run.
pub const QUICK_SURFACES: &[&str] = &["8b-short-chat", "8b-general", "8b-unreachable", "cpu-quiet"];
