//! The command line, without logic.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::calibration::{Configuration, Source};
use crate::colour::Colour;
use crate::export::yaml::Path as YamlPath;
use crate::rig::Address;
use crate::settings::{Plan, Secrets, StrategyKind};
use crate::sim_engine::SimArgs;
use crate::twin::Profile;

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

const OTHER_FLAGS: &str = "vLLM's other flags are accepted where they change nothing in a simulation (--dtype bfloat16, \
--tensor-parallel-size 1, --enforce-eager, --trust-remote-code and so on), and refused where they would; --help=all lists \
                           those that are accepted.";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write a commented space file for an engine that you run already
    Init(Box<InitArgs>),
    /// Check a space file and say what a run would do, without launching the engine
    Check(CheckArgs),
    /// Measure a server that already runs: one load, a ladder of loads, or the highest load within limits
    Bench(Box<BenchArgs>),
    /// Compare two servers, or an engine under two values of a flag: the highest level within limits on each side, and the difference
    Compare(Box<CompareArgs>),
    /// Measure an engine and compare it with its earlier outcome: as good, worse, or undecided
    Verify(Box<VerifyArgs>),
    /// Simulate whole sessions with a space file: what they would cost and find, before a GPU is booked
    Rehearse(Box<RehearseArgs>),
    /// Fit a profile of an engine to measured probes, and print predicted against measured
    Calibrate(Box<CalibrateArgs>),
    /// Write the winning arguments into your own manifest, and change nothing else
    Export(Box<ExportArgs>),
    /// Write report.html and report.md of a run anew; with a second folder, compare the two answers and their set-ups
    Report(ReportArgs),
    /// Show the progress of a run in another process, from its journal
    Status(StatusArgs),
    /// Tune in a cluster: borrow the GPU of a Deployment, and give it back
    #[command(subcommand)]
    Job(JobCommand),
    /// Give a Deployment its scale back that a run in the cluster left borrowed
    Restore(TargetArgs),
    /// Copy this program to a file (what the worker's init container does)
    #[command(hide = true)]
    Install(InstallArgs),
    /// Print the JSON schema of the space file, or of outcome.json
    Schema(SchemaArgs),
    /// Print completions of the command line for a shell, or a man page
    Completions(CompletionArgs),
    /// Serve the simulated engine: a process with vLLM's flags and endpoints, and no model
    #[command(after_help = OTHER_FLAGS)]
    SimEngine(Box<SimArgs>),
    /// Hold an engine's processes for the tuner (internal)
    #[command(hide = true)]
    Guardian(GuardianArgs),
    /// Be an engine of several processes: a frontend and its workers (internal)
    #[command(hide = true)]
    Graph(GraphArgs),
    /// Keep an engine for its guardian, or become one that ends with its keeper (internal)
    #[command(hide = true)]
    Engine(EngineArgs),
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct SpaceArgs {
    /// The space file: the whole job in one TOML file
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// The space file, as a named option
    #[arg(long, value_name = "FILE")]
    space: Option<PathBuf>,
}

impl SpaceArgs {
    /// The file, however it was given; clap asks for one.
    pub fn path(&self) -> &Path {
        self.file.as_deref().or(self.space.as_deref()).unwrap_or(Path::new(""))
    }
}

#[derive(Debug, Args)]
pub struct CheckArgs {
    #[command(flatten)]
    pub space: SpaceArgs,
    /// How long the engine's program may take to list its flags
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = crate::settings::duration)]
    pub help_timeout: Duration,
}

/// From what a space file is written.
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("deployed").required(true)))]
pub struct InitArgs {
    /// The file to write; - is standard output
    #[arg(value_name = "FILE", default_value = "space.toml")]
    pub file: PathBuf,
    /// Take model, flags and GPUs from a manifest, of any kind that `export` edits
    #[arg(long, value_name = "FILE", group = "deployed")]
    pub manifest: Option<PathBuf>,
    /// Which container of the manifest is the engine, where several may be it
    #[arg(long, value_name = "NAME", requires = "manifest")]
    pub container: Option<String>,
    /// Ask a server that runs, such as http://127.0.0.1:8000
    #[arg(long, value_name = "URL", group = "deployed")]
    pub url: Option<String>,
    /// Sent to the server as a bearer token
    #[arg(long, value_name = "KEY", env = "AUTOTUNE_API_KEY", hide_env_values = true)]
    pub api_key: Option<String>,
    /// Engine time that a session may spend, such as 45m [default: what the forecast asks for, and a quarter more]
    #[arg(long, value_name = "TIME", value_parser = crate::settings::duration)]
    pub budget: Option<Duration>,
    #[command(flatten)]
    pub traffic: TrafficArgs,
    /// Replace the file if it is there
    #[arg(long)]
    pub force: bool,
    /// The command that starts the engine, such as vllm serve MODEL --max-model-len 8192
    #[arg(last = true, value_name = "COMMAND", group = "deployed")]
    pub command: Vec<String>,
}

/// Traffic and promises as flags.
#[derive(Clone, Debug, Default, Args)]
pub struct TrafficArgs {
    /// Prompts of a file: ShareGPT (.json), or JSON lines of prompts or of a trace (.jsonl)
    #[arg(long, value_name = "FILE", help_heading = "Workload", conflicts_with = "input_tokens")]
    pub dataset: Option<PathBuf>,
    /// Tokens of a random prompt: a number, or a range such as 100-200
    #[arg(long, value_name = "N", help_heading = "Workload")]
    pub input_tokens: Option<String>,
    /// Tokens of an answer: a number, or a range [default: what the file says]
    #[arg(long, value_name = "N", help_heading = "Workload")]
    pub output_tokens: Option<String>,
    /// Chats instead of completions
    #[arg(long, help_heading = "Workload")]
    pub chat: bool,
    /// Any key of the section `workload`, such as arrivals=gamma or shared_prefix_tokens=512
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Workload")]
    pub with: Vec<String>,
    /// Promises, such as ttft_p99=500ms,tpot_p99=50ms; may be given several times
    #[arg(long, value_name = "LIMITS", help_heading = "Workload")]
    pub slo: Vec<String>,
}

impl TrafficArgs {
    /// The promises as one text; `None` if none was given.
    pub fn promises(&self) -> Option<String> {
        (!self.slo.is_empty()).then(|| self.slo.join(","))
    }
}

/// What `bench --find` varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Sought {
    Users,
    Rate,
}

/// What the command line says instead of the space file.
#[derive(Clone, Debug, Default, Args)]
pub struct Overrides {
    /// Engine time that a session may spend, such as 45m; overrides the space file
    #[arg(long, value_name = "TIME", value_parser = crate::settings::duration)]
    pub budget: Option<Duration>,
    /// How the space is searched: bayes, or bisect, which has no model; overrides the space file
    #[arg(long, value_name = "NAME", value_parser = crate::settings::strategy)]
    pub strategy: Option<StrategyKind>,
    /// Stop refining the maximum rate at this standard error, such as 3%; overrides the space file
    #[arg(long, value_name = "SHARE", value_parser = crate::settings::precision)]
    pub precision: Option<f64>,
}

impl Overrides {
    pub fn apply(&self, plan: &mut Plan) {
        if let Some(budget) = self.budget {
            plan.budget.gpu_time = budget;
        }
        if let Some(strategy) = self.strategy {
            plan.search.strategy = strategy;
        }
        if let Some(precision) = self.precision {
            plan.search.precision = precision;
        }
    }

    /// The flags that another run must repeat, whatever its budget.
    pub fn repeated(&self) -> String {
        let strategy = self.strategy.map_or(String::new(), |s| format!(" --strategy {}", s.name()));
        let precision = self.precision.map_or(String::new(), |p| format!(" --precision {}%", p * 100.0));
        strategy + &precision
    }
}

/// The flags of a rehearsal.
#[derive(Debug, Args)]
pub struct RehearseArgs {
    /// The space file; its engine is not started
    #[command(flatten)]
    pub space: SpaceArgs,
    /// The engine to simulate: quickstart, h200-llama8b, h200-llama70b, vllm-cpu-small, or a .toml file [default: that of a simulated engine]
    #[arg(long, value_name = "NAME|FILE", value_parser = Profile::find)]
    pub profile: Option<Profile>,
    /// How many sessions, each with another seed
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub seeds: u32,
    /// How many GPUs a session has, each with an engine of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub workers: u32,
    /// What is changed of the space file
    #[command(flatten)]
    pub overrides: Overrides,
    /// Write report.html and report.md of the first session into this folder
    #[arg(long, value_name = "DIR", conflicts_with = "workers")]
    pub out: Option<PathBuf>,
    /// Print everything as JSON, every session included
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ReportArgs {
    /// The folder of a run
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// The folder of another run, or its outcome.json: then nothing is written, and the two are shown side by side
    #[arg(value_name = "OTHER")]
    pub other: Option<PathBuf>,
}

/// Which run to look at.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// The folder of a run
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
}

#[derive(Debug, Args)]
pub struct SchemaArgs {
    /// The format
    #[arg(value_name = "FORMAT", value_enum, default_value_t = Format::Space)]
    pub format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// The space file.
    Space,
    /// outcome.json.
    Outcome,
}

/// What to print of the command line.
#[derive(Debug, Args)]
pub struct CompletionArgs {
    /// The shell, or `man` for a page that `man -l` shows
    #[arg(value_name = "SHELL", value_enum)]
    pub shell: Shell,
}

/// Who reads a description of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
    Man,
}

#[derive(Debug, Args)]
pub struct ExportArgs {
    /// The folder of a run, or its outcome.json
    #[arg(long, value_name = "DIR|FILE")]
    pub outcome: PathBuf,
    /// The manifest: a workload of Kubernetes, of Dynamo, KubeAI or KServe, a LeaderWorkerSet, or values of a Helm chart; - is standard input
    #[arg(long, value_name = "FILE")]
    pub manifest: PathBuf,
    /// What is printed: the whole file, a unified diff, a component for Kustomize, or a JSON patch
    #[arg(long, value_name = "FORM", value_enum, default_value_t = Form::File)]
    pub form: Form,
    /// Change the file itself; what it was is kept beside it as FILE.bak
    #[arg(long)]
    pub in_place: bool,
    /// Which container, component or service was measured, where several may be it; several times for several
    #[arg(long, value_name = "NAME")]
    pub container: Vec<String>,
    /// Where the arguments stand, if they are not found: `spec.template.spec.containers[0].args`
    #[arg(long, value_name = "PATH", conflicts_with = "container")]
    pub path: Option<YamlPath>,
    /// Export a best point that was never certified, and say so in the annotations
    #[arg(long)]
    pub uncertified: bool,
    /// Leave out the annotations that say where the arguments come from
    #[arg(long)]
    pub no_annotations: bool,
}

/// What an export prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Form {
    /// The whole manifest.
    File,
    /// A unified diff.
    Diff,
    /// A component for Kustomize.
    Kustomize,
    /// A JSON patch (RFC 6902).
    JsonPatch,
}

/// The subcommands of `autotune job`.
#[derive(Debug, Subcommand)]
pub enum JobCommand {
    /// Scale the target down, tune on its node in its own image, and scale it back
    Run(Box<JobRunArgs>),
    /// Print the manifests by which a Job does the same in the cluster: what it may do, the space file, where results stay, the Job
    Render(Box<JobArgs>),
}

#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("borrowed").args(["deployment", "statefulset", "dynamo_graph", "kubeai_model", "leader_worker_set"]).required(true)))]
pub struct TargetArgs {
    #[command(flatten)]
    pub object: ObjectArgs,
    /// The component of the graph [default: the only one that runs an engine]
    #[arg(long, value_name = "NAME", requires = "dynamo_graph")]
    pub component: Option<String>,
    #[command(flatten)]
    pub place: PlaceArgs,
}

/// Where an object is, and what its cluster asks for.
#[derive(Debug, Args)]
pub struct PlaceArgs {
    /// Its namespace [default: that of the kubeconfig, or of this pod]
    #[arg(short, long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Labels of every object and pod that is made, where a policy asks for them, such as team=ml,cost=7
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = pair)]
    pub labels: Vec<(String, String)>,
    /// An annotation of every object and pod that is made; several times for several
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    pub annotations: Vec<(String, String)>,
}

/// Which object: one of these at most.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub struct ObjectArgs {
    /// The Deployment that holds the GPU
    #[arg(long, value_name = "NAME")]
    pub deployment: Option<String>,
    /// The StatefulSet that holds the GPU
    #[arg(long, value_name = "NAME")]
    pub statefulset: Option<String>,
    /// The DynamoGraphDeployment with a component that holds the GPU; its other components stay
    #[arg(long, value_name = "NAME")]
    pub dynamo_graph: Option<String>,
    /// The Model of KubeAI that holds the GPU; its autoscalingDisabled must be true
    #[arg(long, value_name = "NAME")]
    pub kubeai_model: Option<String>,
    /// The LeaderWorkerSet that holds the GPU; its groups must be of size 1
    #[arg(long, value_name = "NAME")]
    pub leader_worker_set: Option<String>,
}

impl ObjectArgs {
    /// The kind, as the flag spells it, and the name.
    pub fn chosen(&self) -> (&'static str, &str) {
        let flags = [
            ("deployment", &self.deployment),
            ("statefulset", &self.statefulset),
            ("dynamo-graph", &self.dynamo_graph),
            ("kubeai-model", &self.kubeai_model),
            ("leader-worker-set", &self.leader_worker_set),
        ];
        let chosen = flags.into_iter().find_map(|(flag, name)| Some((flag, name.as_deref()?)));
        // clap asks for one of them.
        chosen.unwrap_or_default()
    }
}

/// What a run in a cluster is.
#[derive(Debug, Args)]
pub struct JobArgs {
    #[command(flatten)]
    pub target: TargetArgs,
    /// The space file; its engine's command runs in the target's own image. A workload's file goes with it into a ConfigMap
    #[arg(long, value_name = "FILE")]
    pub space: PathBuf,
    /// An image that holds this program as /autotune
    #[arg(long, value_name = "IMAGE", env = "AUTOTUNE_IMAGE")]
    pub image: String,
    /// A Secret with which that image is pulled; several times for several. Those of the target's pods are there too
    #[arg(long, value_name = "NAME")]
    pub image_pull_secret: Vec<String>,
    /// What our own containers ask for, such as cpu=100m,memory=64Mi: the coordinator's, and the one that copies this program
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = pair)]
    pub requests: Vec<(String, String)>,
    /// What they get at most [default: cpu=1,memory=256Mi]
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = pair)]
    pub limits: Vec<(String, String)>,
    /// The container that is the engine [default: the only one, or the only one with a GPU]
    #[arg(long, value_name = "NAME")]
    pub container: Option<String>,
    /// A PersistentVolumeClaim that keeps journal and results, so that a worker that was evicted goes on where it was. The engine's user must be allowed to write there. With several workers it is ReadWriteMany, or all their GPUs are on one node
    #[arg(long, value_name = "CLAIM")]
    pub results: Option<String>,
    /// So many pods work at once, each on as many GPUs as a pod of the target has; GPUs that the target does not give must be free elsewhere. For the strategy bayes
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    pub workers: u8,
    /// Give the target its scale back with the certified arguments in it (server-side apply), and the former ones if it does not get ready
    #[arg(long)]
    pub apply: bool,
    /// With --apply: take over arguments that another field manager owns, such as kubectl-client-side-apply
    #[arg(long, requires = "apply")]
    pub force_conflicts: bool,
    /// Pods of the target that stay and serve; the worker needs the GPU of one that goes
    #[arg(long, value_name = "PODS", default_value_t = 0)]
    pub keep_replicas: u64,
    /// Where the worker serves /status and /metrics, such as 0.0.0.0:9090
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub listen: Option<SocketAddr>,
    /// How long pods may take to go, and the worker to begin
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = crate::settings::duration)]
    pub patience: Duration,
    /// What is changed of the space file
    #[command(flatten)]
    pub overrides: Overrides,
}

/// The flags of a run in a cluster.
#[derive(Debug, Args)]
pub struct JobRunArgs {
    #[command(flatten)]
    pub job: JobArgs,
    /// Where outcome.json goes [default: autotune-out/NAME-OF-THE-TARGET]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Who asks, such as the UID of a Job. What it asked for before is not begun again where it ended, and goes on where it did not
    #[arg(long, value_name = "ID", env = "AUTOTUNE_ONCE")]
    pub once: Option<String>,
    /// Say what would happen, and touch nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// The flags of the copy.
#[derive(Debug, Args)]
pub struct InstallArgs {
    /// The file
    pub to: PathBuf,
}

/// The flags of a calibration.
#[derive(Debug, Args)]
pub struct CalibrateArgs {
    /// Folders of runs, CSVs of requests (also of bench --out), or JSON results of vllm bench serve --save-detailed. What a file does
    /// not tell may follow it, such as requests.csv,max-num-seqs=32,kv-tokens=919824
    #[arg(value_name = "SOURCE", required = true, value_parser = Source::parse)]
    pub sources: Vec<Source>,
    /// Only predict these, which are not fitted even if they are also among the sources
    #[arg(long, value_name = "SOURCE", value_parser = Source::parse)]
    pub hold_out: Vec<Source>,
    /// Where memory, defaults and all else comes from that requests do not tell. One of quickstart, h200-llama8b,
    /// h200-llama70b, vllm-cpu-small, or a .toml file [default: the profile of a simulated engine's run]
    #[arg(long, value_name = "NAME|FILE", value_parser = Profile::find)]
    pub base: Option<Profile>,
    /// A flag of the engine, for all sources that do not tell it
    #[arg(long, value_name = "FLAG=VALUE", value_parser = Configuration::parse)]
    pub set: Vec<Configuration>,
    /// The size of the KV cache in tokens as the engine logged it, for all sources that do not tell it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub kv_tokens: Option<u64>,
    /// Write the profile to this file, for rehearse --profile and sim-engine --sim-profile
    #[arg(long, value_name = "FILE.toml")]
    pub out: Option<PathBuf>,
    /// The profile's name [default: that of its file]
    #[arg(long, value_name = "NAME", requires = "out")]
    pub name: Option<String>,
    /// Replace the file if it is there
    #[arg(long, requires = "out")]
    pub force: bool,
    /// Print everything as JSON
    #[arg(long)]
    pub json: bool,
}

/// The main job's flags.
#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub space: SpaceArgs,
    /// Where the journal and the results go [default: autotune-out/NAME-OF-THE-SPACE-FILE]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// What is changed of the space file
    #[command(flatten)]
    pub overrides: Overrides,
    /// The GPUs of the engine, such as 1 or 0,1, or '' for an engine on the CPU; all that there are unless given. The space file's engine.env comes first
    #[arg(long, value_name = "N,...", env = "CUDA_VISIBLE_DEVICES", hide_env_values = true)]
    pub gpus: Option<String>,
    /// Where the engine's Python looks for modules, to which the one is added that lets a running engine change its limits
    #[arg(long, value_name = "PATH", env = "PYTHONPATH", hide = true)]
    pub python_path: Option<String>,
    /// The seed of traffic and search, in place of the space file's; probes are timed, so runs with one seed still differ
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Continue an interrupted run in the same folder
    #[arg(long)]
    pub resume: bool,
    /// Move earlier results to a backup folder and start over
    #[arg(long, conflicts_with = "resume")]
    pub fresh: bool,
    /// Serve the progress at this address while the session runs, such as 0.0.0.0:9090: /status (JSON), /metrics (Prometheus) and /healthz.
    /// Port 0 takes any free port
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub listen: Option<SocketAddr>,
    /// Tune on several machines at once: the addresses of all processes, in the order of their ranks, such as http://a:7787,http://b:7787
    #[arg(long, value_name = "URL,URL", value_delimiter = ',', requires = "rank")]
    pub workers: Vec<Address>,
    /// The rank of this process in --workers: rank 0 runs the session, the others run engines for it
    #[arg(long, value_name = "N", requires = "workers")]
    pub rank: Option<usize>,
    /// A file with the token that all processes of --workers share; without one, a worker listens on loopback only. The variable
    /// AUTOTUNE_TOKEN may hold it instead
    #[arg(long, value_name = "FILE", requires = "workers")]
    pub token_file: Option<PathBuf>,
    /// Print the result alone
    #[arg(long)]
    pub quiet: bool,
    /// Print outcome.json instead of the result in words
    #[arg(long)]
    pub json: bool,
    /// Say why: the fit of the twin, the estimate of each promise with its error, the limits behind the certified rates
    #[arg(short, long, conflicts_with = "quiet")]
    pub verbose: bool,
    /// How progress is written to standard error [default: a live line in a terminal, plain lines elsewhere]
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub log: Option<LogFormat>,
    /// The node of a cluster that this runs on, for the outcome
    #[arg(long, value_name = "NAME", env = "AUTOTUNE_NODE", hide = true)]
    pub node: Option<String>,
    /// What that node's label nvidia.com/gpu.product says
    #[arg(long, value_name = "NAME", env = "AUTOTUNE_GPU_PRODUCT", hide = true)]
    pub gpu_product: Option<String>,
    /// Write the outcome in at most 4,096 bytes to this file too: a container's termination log
    #[arg(long, value_name = "FILE", hide = true)]
    pub termination_log: Option<PathBuf>,
}

/// How progress is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// One line of words per event.
    Plain,
    /// One JSON object per line and event.
    Json,
}

/// The token of a run in our own environment.
pub fn token_variable() -> Option<String> {
    std::env::var_os(crate::token::VARIABLE).map(|text| text.to_string_lossy().into_owned())
}

/// The events that a developer asks for; nothing is asked for without it.
pub fn asked_diagnostics() -> Option<OsString> {
    std::env::var_os("RUST_LOG")
}

/// Whether the terminal, by its name, can move its cursor.
pub fn moves_its_cursor() -> bool {
    std::env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb")
}

/// Whether a stream gets colour, by whether it is a terminal and by the environment.
pub(crate) fn colour(is_terminal: bool) -> Colour {
    Colour::of(is_terminal, |name| std::env::var_os(name))
}

/// The GPUs that CUDA may use, as our own environment names them.
pub fn visible_gpus() -> Option<String> {
    std::env::var_os(crate::settings::VISIBLE_GPUS).map(|named| named.to_string_lossy().into_owned())
}

/// The secrets of our own environment: whatever we start inherits it.
pub fn inherited_secrets() -> Secrets {
    let text = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    Secrets::of_variables(std::env::vars_os().filter_map(text))
}

/// A key and its value.
fn pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
    pair.map(|(key, value)| (key.to_owned(), value.to_owned())).ok_or_else(|| "hint: KEY=VALUE".to_owned())
}

/// One number, not a ladder of them.
fn one_rate(text: &str) -> Result<f64, String> {
    let why = if text.contains(',') { "this is one rate; --rates takes several" } else { "not a number" };
    text.parse().map_err(|_| why.to_owned())
}

/// An address to listen on; a name would have to be looked up, and could mean several.
fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| "hint: an IP address and a port, such as 127.0.0.1:9090, 0.0.0.0:9090 or [::]:9090".to_owned())
}

/// How load is driven, and what is asked.
#[derive(Clone, Debug, Args)]
pub struct LoadArgs {
    /// Send no request of an open loop while so many wait for their answer; it is sent once one has it
    #[arg(long, value_name = "N", help_heading = "Load", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub max_concurrency: Option<u32>,
    /// How long a user of a closed loop thinks between an answer and the next request
    #[arg(long, value_name = "TIME", value_parser = crate::settings::duration, help_heading = "Load")]
    pub think: Option<Duration>,
    /// Traffic before anything counts [default: a tenth of --duration]
    #[arg(long, value_name = "TIME", value_parser = crate::settings::duration, help_heading = "Load")]
    pub ramp: Option<Duration>,
    /// How long answers are waited for once nothing is sent any more
    #[arg(long, value_name = "TIME", value_parser = crate::settings::duration, default_value = "2m", help_heading = "Load")]
    pub drain: Duration,
    /// Give a request up after this time, as a failure [default: never]
    #[arg(long, value_name = "TIME", value_parser = crate::settings::duration, help_heading = "Load")]
    pub timeout: Option<Duration>,
    /// Rest between levels, beyond waiting until the server is idle
    #[arg(long, value_name = "TIME", value_parser = crate::settings::duration, default_value = "2s", help_heading = "Load")]
    pub cool_down: Duration,
    /// The seed of every draw
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Load")]
    pub seed: u64,

    /// A space file, of which the sections `workload` and `slo` are taken
    #[arg(long, value_name = "FILE", help_heading = "Workload", conflicts_with_all = ["dataset", "input_tokens", "output_tokens", "chat", "with"])]
    pub workload: Option<PathBuf>,
    #[command(flatten)]
    pub traffic: TrafficArgs,
    /// Leave the server's prefix cache as it is
    #[arg(long, help_heading = "Workload")]
    pub keep_cache: bool,
}

/// How a server is spoken to.
#[derive(Clone, Debug, Default, Args)]
pub struct AccessArgs {
    /// The model's name in requests [default: the first that the server lists]
    #[arg(long, value_name = "NAME", help_heading = "Access")]
    pub model: Option<String>,
    /// Sent as a bearer token
    #[arg(long, value_name = "KEY", env = "AUTOTUNE_API_KEY", hide_env_values = true, help_heading = "Access")]
    pub api_key: Option<String>,
    /// One more header of every request, as NAME: VALUE
    #[arg(long, value_name = "HEADER", help_heading = "Access")]
    pub header: Vec<String>,
    /// Trust the certificates of this PEM file instead of the system's
    #[arg(long, value_name = "FILE", help_heading = "Access")]
    pub ca_cert: Option<PathBuf>,
    /// Trust any certificate
    #[arg(long, help_heading = "Access")]
    pub insecure: bool,
    /// More fields of every request's body, as a JSON object
    #[arg(long, value_name = "JSON", help_heading = "Access")]
    pub extra_body: Option<String>,
}

/// The flags of `autotune bench`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 measured (and, with promises, some level kept them; with --find, every limit was found), 1 failed, \
2 usage, 3 no level kept the promises, 5 interrupted, 6 with --find: a limit was not bracketed"
)]
pub struct BenchArgs {
    /// The server: scheme, host and port, such as http://127.0.0.1:8000
    #[arg(long, value_name = "URL")]
    pub url: String,

    /// Requests per second, open loop
    #[arg(long, value_name = "R", help_heading = "Load", group = "load", value_parser = one_rate)]
    pub rate: Option<f64>,
    /// A ladder of rates, such as 1,2,4
    #[arg(long, value_name = "R,R", value_delimiter = ',', help_heading = "Load", group = "load")]
    pub rates: Vec<f64>,
    /// Users of a closed loop, each waiting for its answer; several make a ladder, such as 20,40,80
    #[arg(long, value_name = "N,N", value_delimiter = ',', help_heading = "Load", group = "load", conflicts_with = "max_concurrency", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub concurrency: Vec<u32>,
    /// So many requests all at once, for the saturated rate
    #[arg(long, value_name = "N", help_heading = "Load", group = "load", conflicts_with_all = ["max_concurrency", "duration", "ramp", "drain"], value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub at_once: Option<u32>,
    /// The recorded times of a trace
    #[arg(long, help_heading = "Load", group = "load", conflicts_with = "ramp")]
    pub recorded: bool,
    /// The time whose arrivals count, of each level [default: 60s; with --find at least 10s]
    #[arg(long, value_name = "TIME", value_parser = crate::settings::duration, help_heading = "Load")]
    pub duration: Option<Duration>,

    /// Find the most users, or the highest rate, within --slo; several limits of one key make a curve, such as ttft_p95=200ms,400ms
    #[arg(long, value_name = "WHAT", help_heading = "Find the limit", group = "load", value_enum)]
    pub find: Option<Sought>,
    /// The lowest and the highest level that may be tried [default: 1,1000 users; 0.01,1000 requests per second]
    #[arg(long, value_name = "A,B", requires = "find", help_heading = "Find the limit")]
    pub between: Option<String>,
    /// End at this standard error of the level [default: 4%]
    #[arg(long, value_name = "SHARE", requires = "find", value_parser = crate::settings::precision, help_heading = "Find the limit")]
    pub precision: Option<f64>,
    /// End after this time, whatever is known by then [default: 10m]
    #[arg(long, value_name = "TIME", requires = "find", value_parser = crate::settings::duration, help_heading = "Find the limit")]
    pub budget: Option<Duration>,

    /// How load is driven, and what is asked
    #[command(flatten)]
    pub load: LoadArgs,

    /// Write results to this folder: JSON with the keys of `vllm bench serve`, a CSV of requests, the ladder
    #[arg(long, value_name = "DIR", help_heading = "Results")]
    pub out: Option<PathBuf>,
    /// Print JSON instead of a table
    #[arg(long, help_heading = "Results")]
    pub json: bool,
    /// A name for the results
    #[arg(long, value_name = "TEXT", help_heading = "Results")]
    pub label: Option<String>,
    /// No progress
    #[arg(long, help_heading = "Results")]
    pub quiet: bool,

    /// How the server is spoken to
    #[command(flatten)]
    pub access: AccessArgs,
}

/// The flags of `autotune compare`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 compared (with --equal-within: B is the same or better), 1 failed, 2 usage, 3 neither side keeps the \
limits (with --equal-within: B is worse), 4 an engine never started, 5 interrupted, 6 the difference is not known, 7 a --require is not met",
    group(clap::ArgGroup::new("levels").args(["users", "rates"]).required(true))
)]
pub struct CompareArgs {
    /// A and B: the addresses of two servers, two space files, or two folders of runs. With --vary one space file, or the address of an object
    #[arg(value_name = "SIDE", required = true, num_args = 1..=2)]
    pub sides: Vec<String>,
    /// One engine or object under two values of a flag or a variable: args.FLAG=A,B or env.NAME=A,B. An empty value leaves it out
    #[arg(long, value_name = "NAME=A,B")]
    pub vary: Option<String>,

    /// The object in a cluster that --vary changes and brings back
    #[command(flatten)]
    pub object: Option<ObjectArgs>,
    /// The container of the object whose flag or variable it is [default: the only one, or the only one with a GPU]
    #[arg(long, value_name = "NAME")]
    pub container: Option<String>,
    #[command(flatten)]
    pub place: PlaceArgs,
    /// How long the object's pods may take to become ready with a value
    #[arg(long, value_name = "TIME", default_value = "20m", value_parser = crate::settings::duration)]
    pub patience: Duration,

    /// Levels of users of a closed loop, such as 20,30,40
    #[arg(long, value_name = "N,N", value_delimiter = ',', help_heading = "Load", conflicts_with = "max_concurrency", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub users: Vec<u32>,
    /// Levels of requests per second, open loop, such as 1,2,3
    #[arg(long, value_name = "R,R", value_delimiter = ',', help_heading = "Load", conflicts_with = "think")]
    pub rates: Vec<f64>,
    /// Say whether B is the same as A within this share of the limit, such as 3%, or worse; the exit code says so too
    #[arg(long, value_name = "SHARE", value_parser = crate::settings::precision, help_heading = "Answer")]
    pub equal_within: Option<f64>,
    /// End within the first minute unless this holds, such as B:cached_share>=0.9, acceptance_length>=1.3 or kv_events>0; several times for several
    #[arg(long, value_name = "CONDITION", help_heading = "Answer")]
    pub require: Vec<String>,

    /// How both sides are measured
    #[command(flatten)]
    pub sweeps: SweepArgs,
}

/// The flags of `autotune verify`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 the same or better, 1 failed, 2 usage, 3 worse, 4 the engine never started, 5 interrupted, 6 not known"
)]
pub struct VerifyArgs {
    /// The folder of the earlier run, or its outcome.json
    #[arg(long, value_name = "DIR|FILE")]
    pub against: PathBuf,
    /// A server that runs [default: the outcome's best point is launched, from the journal beside it]
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// Rates to measure [default: 0.8, 0.9, 1, 1.1 and 1.25 times the outcome's limit]
    #[arg(long, value_name = "R,R", value_delimiter = ',', help_heading = "Load")]
    pub rates: Vec<f64>,
    /// By which share of the limit the engine may differ
    #[arg(long, value_name = "SHARE", value_parser = crate::settings::precision, default_value = "5%", help_heading = "Answer")]
    pub equal_within: f64,
    #[command(flatten)]
    pub sweeps: SweepArgs,
}

/// How sides are measured, sweep by sweep.
#[derive(Debug, Args)]
pub struct SweepArgs {
    /// How often every level is measured, each time with other arrivals and words; of two sides, an even number balances the order
    #[arg(long, value_name = "N", default_value_t = 4, help_heading = "Load", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub sweeps: u32,
    /// The time whose arrivals count, of each window
    #[arg(long, value_name = "TIME", value_parser = crate::settings::duration, default_value = "30s", help_heading = "Load")]
    pub duration: Duration,
    /// How load is driven, and what is asked
    #[command(flatten)]
    pub load: LoadArgs,
    /// The GPUs of engines that are launched, such as 1 or 0,1, or '' for engines on the CPU; all that there are unless given. The space file's engine.env comes first
    #[arg(long, value_name = "N,...", env = "CUDA_VISIBLE_DEVICES", hide_env_values = true)]
    pub gpus: Option<String>,

    /// Write the results to this folder, and the logs of engines
    #[arg(long, value_name = "DIR", help_heading = "Results")]
    pub out: Option<PathBuf>,
    /// Print JSON instead of a table
    #[arg(long, help_heading = "Results")]
    pub json: bool,
    /// No progress
    #[arg(long, help_heading = "Results")]
    pub quiet: bool,

    /// How servers are spoken to
    #[command(flatten)]
    pub access: AccessArgs,
}

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

#[derive(Debug, Args)]
pub struct GraphArgs {
    /// The frontend's port
    #[arg(long)]
    pub port: u16,
    #[arg(long)]
    pub workers: u32,
    /// A file with another command for the frontend
    #[arg(long)]
    pub change: Option<PathBuf>,
    /// The frontend's command, `---`, and that of each worker
    #[arg(last = true, required = true)]
    pub commands: Vec<String>,
}

/// The flags of the processes between a guardian and an engine.
#[derive(Debug, Args)]
pub struct EngineArgs {
    /// The number of the guardian's process: keep an engine for it
    #[arg(long, required_unless_present = "keeper")]
    pub guardian: Option<i32>,
    /// The number of the keeper's process: become its engine
    #[arg(long, conflicts_with = "guardian", default_value_t = 0)]
    pub keeper: i32,
    /// The engine's command
    #[arg(last = true, required = true)]
    pub command: Vec<String>,
}
