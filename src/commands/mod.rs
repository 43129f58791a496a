//! One file per subcommand: the only place where the rooms are wired together, and where results are printed.

mod bench;
mod calibrate;
mod check;
mod compare;
mod completions;
mod export;
mod flags;
mod init;
mod job;
mod lead;
mod load;
mod rehearse;
mod report;
mod run;
mod status;
mod stop;
mod verify;
mod worker;

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};

use crate::cli::{Cli, Command, Format, JobCommand, LogFormat, asked_diagnostics, colour, moves_its_cursor};
use crate::colour::Tone;
use crate::diagnostics;
use crate::engine::PART;
use crate::journal::Status;
use crate::printable::printable;
use crate::progress::{JsonLines, Plain, Silent, Sink, Terminal, message};
use crate::search::{MakeStrategy, strategy};
use crate::settings::{EngineKind, Plan, WorkloadPlan, closest, parse, schema};
use crate::sim_engine::DEFAULT_PROFILE;
use crate::twin::Profile;
use crate::workload::Corpus;

/// Exit codes, documented in `docs/output-files.md` because a Job's failure policy reads them.
pub mod exit {
    /// A certified answer.
    pub const FOUND: u8 = 0;
    /// Our own part or the machine failed.
    pub const FAILED: u8 = 1;
    /// The command line, the space file or the output folder is wrong.
    pub const USAGE: u8 = 2;
    /// The promises hold at no rate that was tried.
    pub const NOT_REACHABLE: u8 = 3;
    /// No engine ever started; or by `check`, none can here.
    pub const NEVER_STARTED: u8 = 4;
    /// Stopped before the end; `--resume` continues.
    pub const INTERRUPTED: u8 = 5;
    /// Not certified: the budget is too small, or no rate held on fresh traffic.
    pub const UNCERTIFIED: u8 = 6;
    /// What was compared is not what `--require` asks for.
    pub const NOT_AS_REQUIRED: u8 = 7;
}

/// Whether standard error is a log of JSON, whose every line must be of it.
static LOGS_JSON: AtomicBool = AtomicBool::new(false);

/// The exit code of an answer.
fn code_of(status: Status) -> u8 {
    match status {
        Status::Certified => exit::FOUND,
        Status::Uncertified => exit::UNCERTIFIED,
        Status::NotReachable => exit::NOT_REACHABLE,
        Status::NeverStarted => exit::NEVER_STARTED,
        Status::Interrupted => exit::INTERRUPTED,
    }
}

/// What went wrong, with the exit code that says so.
struct Failed {
    code: u8,
    message: String,
}

impl Failed {
    fn usage(message: impl ToString) -> Self {
        Self { code: exit::USAGE, message: message.to_string() }
    }

    fn own(message: impl ToString) -> Self {
        Self { code: exit::FAILED, message: message.to_string() }
    }
}

/// The whole program: reads the command line, does the job, returns the exit code.
pub fn main() -> u8 {
    main_with(strategy)
}

/// The whole program, whose main job searches with `make_strategy`.
pub fn main_with(make_strategy: MakeStrategy) -> u8 {
    let words = crate::sim_engine::spelled_out(std::env::args_os());
    if let Some(help) = crate::sim_engine::whole_help(&words) {
        return print(&help).map_or_else(|failed| failed.code, |()| exit::FOUND);
    }
    let cli = match Cli::try_parse_from(&words) {
        Ok(cli) => cli,
        Err(error) => return refuse(error, &words),
    };
    LOGS_JSON.store(cli.run.log == Some(LogFormat::Json), Ordering::Relaxed);
    // Standard error of these is the log of an engine.
    let is_engine = matches!(
        cli.command,
        Some(Command::SimEngine(_) | Command::Graph(_) | Command::Engine(_) | Command::Guardian(_))
    );
    if let Some(asked) = asked_diagnostics().filter(|_| !is_engine)
        && let Err(why) = diagnostics::install(&asked)
    {
        complain(&format!("warning: RUST_LOG is ignored: {why}; write it as in RUST_LOG=autotune=debug"));
    }
    let done = match cli.command {
        None => run::run(cli.run, make_strategy),
        Some(Command::Init(args)) => init::init(&args),
        Some(Command::Check(args)) => check::check(args.space.path(), args.help_timeout),
        Some(Command::Bench(args)) => bench::bench(&args),
        Some(Command::Compare(args)) => compare::compare(&args),
        Some(Command::Verify(args)) => verify::verify(&args),
        Some(Command::Rehearse(args)) => rehearse::rehearse(*args),
        Some(Command::Calibrate(args)) => calibrate::calibrate(&args),
        Some(Command::Export(args)) => export::export(&args),
        Some(Command::Report(args)) => report::report(&args.folder, args.other.as_deref()),
        Some(Command::Status(args)) => status::status(&args.folder),
        Some(Command::Job(JobCommand::Run(args))) => job::run(&args),
        Some(Command::Job(JobCommand::Render(args))) => job::render(&args),
        Some(Command::Restore(args)) => job::restore(&args),
        Some(Command::Install(args)) => job::install(&args.to),
        Some(Command::Schema(args)) => print_schema(args.format),
        Some(Command::Completions(args)) => completions::completions(args.shell),
        Some(Command::SimEngine(args)) => runtime().map(|runtime| runtime.block_on(crate::sim_engine::run(*args))),
        Some(Command::Engine(args)) => match args.guardian {
            Some(guardian) => crate::supervise::guardian::keep(guardian, &args.command),
            None => crate::supervise::guardian::become_engine(args.keeper, &args.command).map(|never| match never {}),
        }
        .map_err(|e| Failed::own(format!("engine: {e}"))),
        Some(Command::Graph(args)) => {
            let mut parts = args.commands.split(|word| word == PART).map(<[String]>::to_vec);
            let (frontend, worker) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            let (workers, port, change) = (args.workers, args.port, args.change);
            let graph = crate::supervise::Graph { frontend, worker, workers, port, change };
            graph.run().map_err(|e| Failed::own(format!("graph: {e}")))
        }
        Some(Command::Guardian(args)) => {
            crate::supervise::guardian::run(&args.command, &args.scratch, Duration::from_millis(args.grace_ms))
                .map(|()| exit::FOUND)
                .map_err(|e| Failed::own(format!("guardian: {e}")))
        }
    };
    done.unwrap_or_else(|failed| {
        complain(&failed.message);
        failed.code
    })
}

/// Commands that take a file or a folder alone.
const OF_A_FILE: [&str; 5] = ["check", "init", "rehearse", "report", "status"];

/// Shows help or a usage mistake. The simulated engine complains in vLLM's words, as it does of all else.
fn refuse(mut error: clap::Error, words: &[OsString]) -> u8 {
    let is = |command: &str| words.get(1).is_some_and(|word| word == command);
    let simulated = is("sim-engine").then(|| crate::sim_engine::complaint(&error, words)).flatten();
    if let Some(complaint) = simulated.or_else(|| misplaced_command(words).filter(|_| error.use_stderr())) {
        complain(&complaint);
    } else {
        let tip = match error.kind() {
            ErrorKind::UnknownArgument if is("init") && is_word(&error) && !words.iter().any(|word| word == "--") => {
                Some("put `--` before the engine's command: autotune init FILE -- vllm serve MODEL")
            }
            ErrorKind::MissingRequiredArgument if is("export") => {
                Some("without a manifest, args.txt in the folder of the run has the arguments")
            }
            _ => None,
        };
        if let Some(tip) = tip {
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
        }
        // Where nobody reads it, there is nobody to tell.
        drop(error.print());
    }
    u8::try_from(error.exit_code()).unwrap_or(exit::USAGE)
}

/// Whether what is not expected is a word, and no flag.
fn is_word(error: &clap::Error) -> bool {
    matches!(error.get(ContextKind::InvalidArg), Some(ContextValue::String(word)) if !word.starts_with('-'))
}

/// What is wrong with a command that is misspelt, or stands behind the file: clap takes such a first word for the space file.
fn misplaced_command(words: &[OsString]) -> Option<String> {
    let mut cli = Cli::command();
    cli.build();
    let is_command = |word: &&str| cli.get_subcommands().any(|command| command.get_name() == *word);
    let word = |at: usize| words.get(at)?.to_str().filter(|word| !word.starts_with('-'));
    let first = word(1).filter(|first| !is_command(first))?;
    if let Some(command) = word(2).filter(|word| OF_A_FILE.contains(word)) {
        return Some(format!("error: the command stands before the file: autotune {command} {first}"));
    }
    let shown = cli.get_subcommands().filter(|command| !command.is_hide_set()).map(clap::Command::get_name);
    let near =
        closest(first, shown).map(|near| format!("error: there is no command `{first}`; did you mean `{near}`?"));
    near.filter(|_| !Path::new(first).exists())
}

/// Prints a result. A pipe that was closed is no failure: whoever read it has enough.
fn print(text: &str) -> Result<(), Failed> {
    let failed = |e| Failed::own(format!("error: failed to write to standard output: {e}"));
    written(std::io::stdout().lock(), text).map_err(failed)
}

/// Says something to whoever runs us. Where nobody reads it, or it cannot be written, the work goes on: its files are the product.
fn complain(text: &str) {
    let text = printable(text.trim_end());
    let heads = [(Tone::Fail, "error"), (Tone::Warning, "warning")];
    let head = heads.into_iter().find(|(_, head)| text.starts_with(head));
    let text = match head {
        _ if LOGS_JSON.load(Ordering::Relaxed) => message(head.map_or("info", |(_, head)| head), &text),
        Some((tone, head)) => colour(std::io::stderr().is_terminal()).first(tone, head, &text),
        None => text.into_owned(),
    };
    drop(written(std::io::stderr().lock(), &format!("{text}\n")));
}

fn written(mut to: impl Write, text: &str) -> std::io::Result<()> {
    match to.write_all(text.as_bytes()).and_then(|()| to.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}

/// Who shows progress: nobody, a live line in a terminal that can move its cursor, plain lines elsewhere and among diagnostics.
fn sink(quiet: bool, verbose: bool, log: Option<LogFormat>) -> Box<dyn Sink> {
    let is_terminal = std::io::stderr().is_terminal();
    let colour = colour(is_terminal);
    match log {
        _ if quiet => Box::new(Silent),
        Some(LogFormat::Json) => Box::new(JsonLines::new(verbose)),
        None if is_terminal && moves_its_cursor() && !diagnostics::are_written() => {
            Box::new(Terminal::new(verbose, colour))
        }
        None | Some(LogFormat::Plain) => Box::new(Plain::new(verbose).coloured(colour)),
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, Failed> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(Failed::own)
}

fn print_schema(format: Format) -> Result<u8, Failed> {
    match format {
        Format::Space => print(&crate::report::pretty_json(&schema()))?,
        Format::Outcome => print(crate::report::OUTCOME_SCHEMA)?,
    }
    Ok(exit::FOUND)
}

fn read_plan(space: &Path) -> Result<Plan, Failed> {
    read_space(space).map(|(_, plan)| plan)
}

/// A space file's text, and the plan that it is.
fn read_space(space: &Path) -> Result<(String, Plan), Failed> {
    let text = std::fs::read_to_string(space).map_err(|e| {
        // A word that was meant as a command is taken for a file.
        let word = e.kind() == io::ErrorKind::NotFound && space.extension().is_none();
        let hint = if word { "; nor is that a command: autotune --help lists them" } else { "" };
        Failed::usage(format!("error: failed to read the space file {}: {e}{hint}", space.display()))
    })?;
    match parse(&space.display().to_string(), &text) {
        Ok(plan) => Ok((text, plan)),
        Err(problems) => Err(Failed::usage(problems.render())),
    }
}

/// Reads the workload's file, if it has one, beside the space file.
fn read_corpus(plan: &Plan, space: &Path) -> Result<Corpus, Failed> {
    let base = space.parent().unwrap_or(Path::new(""));
    Corpus::read(&plan.workload, base).map_err(|e| Failed::usage(format!("error: {e}")))
}

/// What the workload's file holds and what of it is left out, in a line.
fn corpus_says(workload: &WorkloadPlan, corpus: &Corpus) -> Option<String> {
    let file = workload.kind.file()?;
    let left_out = corpus.left_out().map_or(String::new(), |left_out| format!(", {left_out}"));
    Some(format!("{} requests in {}{left_out}", corpus.items(), file.display()))
}

/// The profile of the plan's simulated engine, as its fixed arguments name it; `None` if the engine is a real one.
fn simulated_profile(plan: &Plan) -> Result<Option<Profile>, Failed> {
    if plan.engine.kind != EngineKind::Simulated {
        return Ok(None);
    }
    let mut words = plan.engine.args.iter();
    let named = words.find_map(|word| word.strip_prefix("--sim-profile").map(|rest| rest.strip_prefix('=')));
    let name = match named {
        Some(Some(glued)) => glued,
        Some(None) => words.next().map_or("", String::as_str),
        None => DEFAULT_PROFILE,
    };
    Profile::find(name).map(Some).map_err(|error| Failed::usage(format!("error: engine.args: {error}")))
}

/// What a simulated engine simulates, in a line.
fn profile_says(profile: &Profile) -> String {
    format!("simulated: {} ({}); nothing it answers is a measurement", profile.name, profile.source)
}
