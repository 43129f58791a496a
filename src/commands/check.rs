//! `autotune check`: prints the plan of a space file and what this machine lacks for it. It asks the engine for its list of flags only.

use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use super::flags::compared;
use super::{Failed, corpus_says, exit, print, profile_says, read_corpus, read_space, runtime, simulated_profile};
use crate::cli::visible_gpus;
use crate::engine::{command_line, devices, dialect};
use crate::export::known::model_of;
use crate::printable::wrapped;
use crate::problems::list;
use crate::settings::{
    ArrivalProcess, EngineKind, LengthShape, Lengths, Plan, VISIBLE_GPUS, WorkloadKind, WorkloadPlan, program_fault,
    redact_plan,
};
use crate::space;
use crate::supervise::Gpus;
use crate::tune::{forecast, least};
use crate::units::Seconds;

/// A GPU with more memory in use is not free, in MiB. A driver and a desktop use less.
const IDLE_GPU: u64 = 1_024;
/// Where the second column begins, and where lines end.
const INDENT: usize = 15;
const WIDTH: usize = 80;
/// The most points that are counted.
const COUNTED: usize = 1_024;

pub(super) fn check(path: &Path, patience: Duration) -> Result<u8, Failed> {
    let (file, plan) = read_space(path)?;
    let corpus = read_corpus(&plan, path)?;
    let profile = simulated_profile(&plan)?;
    let runtime = runtime()?;
    let flags = runtime.block_on(compared(path, &file, &plan, patience))?;
    let shown = redact_plan(&plan);
    let baseline = plan.space.baseline();
    let launch = command_line(&shown.engine, Path::new("autotune"), plan.engine.port.unwrap_or(8000), &baseline);
    let mut rows: Vec<(&str, String)> = Vec::new();
    rows.extend(profile.map(|profile| ("engine", profile_says(&profile))));
    rows.push(("launched as", launch.join(" ")));
    rows.push(("flags", flags.says));
    let promises: Vec<String> = plan.slo.iter().map(|l| format!("{} <= {}", l.key(), l.at_most)).collect();
    rows.push(("promises", promises.join(", ")));
    rows.push(("workload", described(&plan.workload)));
    rows.extend(corpus_says(&plan.workload, &corpus).map(|says| ("", says)));
    for (i, parameter) in plan.space.parameters.iter().enumerate() {
        let values: Vec<String> = parameter.values.iter().map(ToString::to_string).collect();
        let default = parameter.default.as_ref().map_or("the engine's own".into(), ToString::to_string);
        let label = if i == 0 { "parameters" } else { "" };
        let when = parameter.when.as_ref().map_or_else(String::new, |when| format!(", when {when}"));
        rows.push((label, format!("{}: {} (default {default}){when}", parameter.name, values.join(" "))));
    }
    let admitted = space::candidates(&plan.space, &space::Point::default(), COUNTED, 0).len();
    let more = if admitted == COUNTED { " or more" } else { "" };
    rows.push(("points", format!("{} in the grid, {admitted}{more} keep the constraints", plan.space.size())));
    rows.push((
        "search",
        format!(
            "{}, until the limit is known to {:.1} %; seed {}",
            plan.search.strategy.name(),
            plan.search.precision * 100.0,
            plan.search.seed
        ),
    ));
    let (window, proof) = (Seconds::from(plan.probe.window), Seconds::from(plan.probe.certify_window));
    rows.push((
        "probes",
        format!("of {window} behind a ramp of {}, proofs of {proof}{}", Seconds::from(plan.probe.ramp), counted(&plan)),
    ));
    let whole = forecast(&plan);
    let budget = Seconds::from(plan.budget.gpu_time);
    rows.push(("forecast", format!("about {whole}")));
    rows.push(("budget", format!("{budget}{}", suffices(&plan))));
    let lacking = runtime.block_on(lacks(&plan));
    let found = if lacking.is_empty() { vec!["nothing that was looked for".to_owned()] } else { lacking };
    rows.extend(found.into_iter().enumerate().map(|(i, says)| (if i == 0 { "lacking here" } else { "" }, says)));
    let row = |(label, says): &(&str, String)| match *label {
        // Their commands can be copied.
        "launched as" | "flags" => format!("  {label:12} {says}\n"),
        _ => wrapped(&format!("  {label:12} "), INDENT, says, WIDTH),
    };
    let text: String = rows.iter().map(row).collect();
    print(&format!("{} is a valid space file\n{text}", path.display()))?;
    let Some(why) = flags.cannot_launch else { return Ok(exit::FOUND) };
    let hint = "activate its environment, or name it with its path; where the engine is elsewhere, check there as well";
    let problem = program_fault(
        &path.display().to_string(),
        &file,
        format!("{why}: a run here cannot launch the engine"),
        hint.to_owned(),
    );
    Err(Failed { code: exit::NEVER_STARTED, message: problem.render() })
}

/// A note for engines without a twin.
fn counted(plan: &Plan) -> String {
    let (engine, without) = (dialect(plan.engine.kind), plan.without_term());
    if !engine.is_modelled() {
        format!("; violations are counted: there is no model of {}", engine.name())
    } else if !without.is_empty() && plan.probe.twin {
        let names = list(without, "and");
        format!("; violations are counted, which takes more launches: the model of the engine has no term for {names}")
    } else {
        String::new()
    }
}

/// A note for a budget that is too small.
fn suffices(plan: &Plan) -> String {
    let (budget, least, whole) = (Seconds::from(plan.budget.gpu_time), least(plan), forecast(plan).engine_seconds);
    if budget < least {
        format!(": not enough to certify the defaults, which takes about {least}")
    } else if budget < whole {
        ": enough for an answer, not for the whole search".to_owned()
    } else {
        String::new()
    }
}

/// What a run would miss on this machine; a rehearsal and a run in a cluster need none of it here.
async fn lacks(plan: &Plan) -> Vec<String> {
    let mut lacking = Vec::new();
    if let Some(port) = plan.engine.port
        && TcpListener::bind(("127.0.0.1", port)).is_err()
    {
        lacking.push(format!("port {port} is taken: free it, or leave engine.port out"));
    }
    let inherited = visible_gpus();
    let gpus = Gpus::named(plan.engine.env.get(VISIBLE_GPUS).or(inherited.as_ref()).map(String::as_str));
    if let Some(there) = gpus.count().await {
        lacking.extend(too_large(plan, there));
    }
    if plan.engine.kind == EngineKind::Simulated {
        return lacking;
    }
    let words: Vec<String> = plan.engine.command.iter().chain(&plan.engine.args).cloned().collect();
    if let Some(model) = model_of(&words).filter(|model| model.starts_with(['/', '.']) && !Path::new(model).exists()) {
        lacking.push(format!("the model {model} is not there"));
    }
    match gpus.memory().await {
        None if plan.engine.kind.is_simulated() => {}
        None => {
            let place = if plan.engine.env.contains_key(VISIBLE_GPUS) { "engine.env" } else { "the environment" };
            let why = match gpus {
                Gpus::Hidden => format!("{VISIBLE_GPUS} in {place} hides all GPUs"),
                Gpus::All | Gpus::Named(_) => "nvidia-smi tells no GPU".to_owned(),
            };
            lacking.push(format!("{why}, which only an engine for a CPU can do without"));
        }
        Some(used) if used.0 > IDLE_GPU => {
            let names = gpus.names().await.join(", ");
            lacking.push(format!("{names}: {} MiB of its memory are in use, and a run needs a free GPU", used.0));
        }
        Some(_) => {}
    }
    lacking
}

/// The points that take more GPUs than there are.
fn too_large(plan: &Plan, there: u64) -> Option<String> {
    let points = space::candidates(&plan.space, &space::Point::default(), COUNTED, 0);
    let most = points.iter().chain([&plan.space.baseline()]).map(|point| devices(&plan.engine, point)).max()?;
    (most > there).then(|| {
        format!(
            "some points take {most} GPUs, and {there} are there: a run leaves them out, where the defaults take fewer"
        )
    })
}

fn described(workload: &WorkloadPlan) -> String {
    let kind = match &workload.kind {
        WorkloadKind::Random(plan) => {
            let shared = match plan.shared_prefix_tokens {
                0 => String::new(),
                n => format!(" behind {} shared prefixes of {n}", plan.shared_prefixes),
            };
            format!(
                "independent requests, {} tokens in{shared}, {} out",
                tokens(&plan.input_tokens),
                tokens(&plan.output_tokens)
            )
        }
        WorkloadKind::Conversations(plan) => format!(
            "conversations of {} turns on {} documents of {} tokens, {} in and {} out each turn",
            plan.turns,
            plan.starters,
            tokens(&plan.starter_tokens),
            tokens(&plan.question_tokens),
            tokens(&plan.output_tokens)
        ),
        WorkloadKind::Sharegpt(plan) if plan.turns > 1 => format!("recorded dialogues of up to {} turns", plan.turns),
        WorkloadKind::Sharegpt(_) => "first questions of recorded dialogues".to_owned(),
        WorkloadKind::Jsonl(_) => "recorded requests".to_owned(),
        WorkloadKind::Trace(_) => "recorded lengths and shared blocks".to_owned(),
    };
    let arrivals = match workload.arrivals {
        ArrivalProcess::Poisson => "Poisson arrivals".to_owned(),
        ArrivalProcess::Gamma { burstiness } => format!("gamma arrivals of burstiness {burstiness}"),
        ArrivalProcess::Constant => "even arrivals".to_owned(),
        ArrivalProcess::Recorded => "recorded arrivals".to_owned(),
    };
    let eos = if workload.ignore_eos { "" } else { "; answers may end early" };
    format!("{kind}; {arrivals}{eos}")
}

fn tokens(lengths: &Lengths) -> String {
    let range = format!("{} to {}", lengths.min, lengths.max);
    match lengths.shape {
        LengthShape::Fixed => lengths.min.to_string(),
        LengthShape::Uniform | LengthShape::Histogram { .. } => range,
        LengthShape::Normal { mean: middle, .. } | LengthShape::Lognormal { median: middle, .. } => {
            format!("about {middle} ({range})")
        }
    }
}
