//! The command line, without logic.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::twin::Profile;
use crate::twin::server::SimArgs;

/// Finds the arguments of an LLM inference server: the highest request rate that keeps its latency promises.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true, args_conflicts_with_subcommands = true, after_help = EXIT_CODES)]
pub struct Cli {
    /// What else than the main job.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The main job.
    #[command(flatten)]
    pub run: RunArgs,
}

const EXIT_CODES: &str = "Exit codes: 0 certified answer, 1 failed, 2 usage or space file, 3 promises not reachable at any rate, \
4 engine never started, 5 interrupted and resumable, 6 not certified";

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check a space file and say what a run would do, without starting anything
    Check(SpaceArgs),
    /// Simulate whole sessions with a space file: what they would cost and find, before a GPU is booked
    Rehearse(RehearseArgs),
    /// Print the JSON schema of the space file
    Schema,
    /// Serve the simulated engine: a process with vLLM's flags and endpoints, and no model
    SimEngine(SimArgs),
    /// Hold an engine's processes for the tuner (internal)
    #[command(hide = true)]
    Guardian(GuardianArgs),
}

/// Which space file.
#[derive(Debug, Args)]
pub struct SpaceArgs {
    /// The space file
    #[arg(long, value_name = "FILE")]
    pub space: PathBuf,
}

/// The flags of a rehearsal.
#[derive(Debug, Args)]
pub struct RehearseArgs {
    /// The space file; its engine is not started
    #[arg(long, value_name = "FILE")]
    pub space: PathBuf,
    /// The engine to simulate: quickstart, h200-llama8b, h200-llama70b, vllm-cpu-small, or a .toml file [default: that of a simulated engine]
    #[arg(long, value_name = "NAME|FILE", value_parser = Profile::find)]
    pub profile: Option<Profile>,
    /// How many sessions, each with another seed
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub seeds: u32,
    /// Engine time that each session may spend, such as 45m; overrides the space file
    #[arg(long, value_name = "TIME", value_parser = crate::settings::duration)]
    pub budget: Option<Duration>,
    /// Print everything as JSON, every session included
    #[arg(long)]
    pub json: bool,
}

/// The main job's flags.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The space file: the whole job in one TOML file
    #[arg(long, value_name = "FILE", required = true)]
    pub space: Option<PathBuf>,
    /// Where the journal and the results go [default: autotune-out/NAME-OF-THE-SPACE-FILE]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Engine time that may be spent, such as 45m; overrides the space file
    #[arg(long, value_name = "TIME", value_parser = crate::settings::duration)]
    pub budget: Option<Duration>,
    /// The seed of every draw; overrides the space file
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Continue an interrupted run in the same folder
    #[arg(long)]
    pub resume: bool,
    /// Put what is in the folder aside, and start again
    #[arg(long, conflicts_with = "resume")]
    pub fresh: bool,
    /// Print the result alone
    #[arg(long)]
    pub quiet: bool,
}

/// The guardian's flags.
#[derive(Debug, Args)]
pub struct GuardianArgs {
    /// The engine's private temporary folder, removed at the end
    #[arg(long)]
    pub scratch: PathBuf,
    /// Milliseconds between SIGTERM and SIGKILL
    #[arg(long)]
    pub grace_ms: u64,
    /// The engine's command
    #[arg(last = true, required = true)]
    pub command: Vec<String>,
}
