//! What a simulation leaves out of a space file, and what it cannot do at all.

use autotune_plan::settings::{EngineKind, Plan};
use autotune_twin::{EngineFlags, FlagError, Profile};

/// What the model cannot do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScopeError {
    #[error(
        "the simulation does not know {}; it knows {}\n  = hint: leave these parameters out of a copy of the space file, or fix them in engine.args",
        .0.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "),
        EngineFlags::KNOWN.join(", ")
    )]
    Parameters(Vec<String>),
    /// A value that the engine would refuse.
    #[error("{place}: {error}")]
    Value { place: &'static str, error: FlagError },
}

/// The fixed arguments that the simulation leaves out of account.
pub fn not_simulated(plan: &Plan, profile: &Profile) -> Result<Vec<String>, ScopeError> {
    let unknown: Vec<String> = plan
        .space
        .parameters
        .iter()
        .filter(|p| !EngineFlags::KNOWN.contains(&p.name.as_str()))
        .map(|p| p.name.clone())
        .collect();
    if !unknown.is_empty() {
        return Err(ScopeError::Parameters(unknown));
    }
    let mut flags = EngineFlags::from(profile.defaults);
    for parameter in &plan.space.parameters {
        for value in parameter.values.iter().chain(&parameter.default) {
            flags
                .set(&parameter.name, &value.to_string())
                .map_err(|error| ScopeError::Value { place: "parameters", error })?;
        }
    }
    let left_out =
        flags.set_all(&plan.engine.args).map_err(|error| ScopeError::Value { place: "engine.args", error })?;
    // Which profile a simulated engine has was decided before.
    let decided = |flag: &String| plan.engine.kind == EngineKind::Simulated && flag == "--sim-profile";
    Ok(left_out.into_iter().filter(|flag| !decided(flag)).collect())
}
