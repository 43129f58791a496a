//! The flags of a space file beside those that its engine lists: `check` asks the engine for its help, once.
//!
//! A run asks for nothing: it launches the engine, and says why a launch failed.

use std::path::Path;
use std::time::Duration;

use super::{Failed, complain};
use crate::cli::inherited_secrets;
use crate::clock;
use crate::engine::diagnosis::Exit;
use crate::engine::programs::{basename, engine_in};
use crate::engine::{KnownFlags, Refusal, dialect, environment, is_of_frontend, program};
use crate::printable::printable;
use crate::settings::{EngineKind, OUR_FLAGS, Plan, Secrets, UsedFlag, faults, redact_words};
use crate::space::Point;
use crate::supervise::guardian::can_be_run;
use crate::supervise::{Launch, Unanswered, answer};
use crate::units::Seconds;

/// The questions, in their order. vLLM lists a part of its flags in its plain help, and an older one does not know `all`.
const QUESTIONS: [&str; 2] = ["--help=all", "--help"];
/// After this long without an answer, we say that we are waiting.
const SILENT: Duration = Duration::from_secs(1);
/// Characters of another program's text that we quote, at most.
const SHOWN: usize = 160;
/// Exit codes of shells and of `env`: a file that is no program, and no such file.
const NOT_EXECUTABLE: i32 = 126;
const NOT_FOUND: i32 = 127;
/// Programs that start an engine elsewhere.
const CONTAINERS: [&str; 3] = ["docker", "podman", "nerdctl"];

/// Why an engine did not list its flags.
struct NotAsked {
    why: String,
    /// Whether a launch would fail for the same reason.
    lacks_program: bool,
}

impl From<String> for NotAsked {
    fn from(why: String) -> Self {
        Self { why, lacks_program: false }
    }
}

/// By which list the flags of a space file were compared, in a line, and why the engine cannot be launched, if that is known.
pub(super) struct Compared {
    pub says: String,
    pub cannot_launch: Option<String>,
}

/// Compares the flags of a space file with its engine's. Where the engine does not tell, mistakes are warnings by the list of vLLM 0.32.
pub(super) async fn compared(path: &Path, text: &str, plan: &Plan, patience: Duration) -> Result<Compared, Failed> {
    let name = path.display().to_string();
    let words: Vec<&str> = plan.engine.command.iter().map(String::as_str).collect();
    let from = engine_in(&words).map_or(words.len(), |(_, first)| first);
    let problems = |known: &KnownFlags, engine: &str| {
        // Flags that need no check: a switch that is off by being left out, and flags of a graph's frontend, which are not the worker's.
        let of_frontend = |name: &str| plan.engine.graph.is_some() && is_of_frontend(name);
        let exempt = |flag: &UsedFlag| match &flag.off {
            Some(switch) => dialect(plan.engine.kind).off(switch).is_none() || of_frontend(switch),
            None => of_frontend(&flag.name),
        };
        faults(&name, text, from, |flag| fault(flag, known.refuses(&flag.name).filter(|_| !exempt(flag)), engine))
    };
    match asked(plan, patience).await {
        Ok((known, question)) => match problems(&known, "the engine") {
            None => Ok(Compared { says: format!("`{question}` lists every flag of this file"), cannot_launch: None }),
            Some(problems) => {
                Err(Failed::usage(format!("{}\n\n{question} lists what the engine takes", problems.render())))
            }
        },
        Err(NotAsked { why, lacks_program }) if plan.engine.kind == EngineKind::Simulated => {
            let says = format!("not compared with the engine's: {why}");
            Ok(Compared { says, cannot_launch: lacks_program.then_some(why) })
        }
        Err(NotAsked { why, lacks_program }) => {
            let dialect = dialect(plan.engine.kind);
            let release = format!("{} {}", dialect.name(), dialect.release());
            let known = KnownFlags::of(dialect);
            let known = if plan.engine.graph.is_some() { known.and(KnownFlags::of_frontend()) } else { known };
            let found = problems(&known, &release);
            found.iter().for_each(|problems| complain(&problems.render_as_warnings()));
            let all = if found.is_none() { "all are" } else { "not all are" };
            let says = format!("{all} flags of {release}; the engine was not asked: {why}");
            Ok(Compared { says, cannot_launch: lacks_program.then_some(why) })
        }
    }
}

/// What is wrong with a flag: message, label and hint.
fn fault(flag: &UsedFlag, refusal: Option<Refusal>, engine: &str) -> Option<(String, String, String)> {
    let name = &flag.name;
    if flag.joined {
        let message = format!("`--{name}` and what follows are one word to the engine");
        return Some((message, "one word".to_owned(), "write the flag and its value as two words".to_owned()));
    }
    let message = format!("{engine} has no flag `--{name}`");
    let hint = match (&flag.off, refusal?) {
        // The engine accepts a shortened flag. A tuned one must be written in full, because fixed arguments and manifests are searched for its
        // full name.
        (_, Refusal::Short(whole)) => {
            let message = format!("`{name}` is short for `{whole}`");
            return flag.tuned.then(|| (message, "not its name".to_owned(), "write it in full".to_owned()));
        }
        (Some(switch), _) => format!("`false` writes --{name}: leave it out of the values of `{switch}`"),
        (None, Refusal::Unknown(Some(near))) => format!("did you mean `{near}`?"),
        (None, Refusal::Unknown(None)) => "remove it, or use a version of the engine that has it".to_owned(),
        (None, Refusal::Ambiguous(several)) => format!("write it in full: {}", several.join(", ")),
    };
    Some((message, "unknown flag".to_owned(), hint))
}

/// The flags that the engine lists, with the command that it was asked by; or why it does not list them.
async fn asked(plan: &Plan, patience: Duration) -> Result<(KnownFlags, String), NotAsked> {
    let guardian =
        std::env::current_exe().map_err(|e| format!("failed to find the path of autotune's own program: {e}"))?;
    let command = program(&plan.engine, &guardian);
    let Some(graph) = &plan.engine.graph else {
        return ask(plan, &guardian, &command, &QUESTIONS, &OUR_FLAGS, patience).await;
    };
    let module = |name: &str| [command.clone(), vec!["-m".to_owned(), name.to_owned()]].concat();
    let plain_help = &["--help"];
    let (worker, shown) = ask(plan, &guardian, &module(&graph.module), plain_help, &["help"], patience).await?;
    let (frontend, _) = ask(plan, &guardian, &module("dynamo.frontend"), plain_help, &["help"], patience).await?;
    Ok((worker.and(frontend), shown))
}

/// The flags that a program lists, with the command that it was asked by, or why it does not list them. It must list those `needed`.
async fn ask(
    plan: &Plan,
    guardian: &Path,
    command: &[String],
    questions: &[&str],
    needed: &[&str],
    patience: Duration,
) -> Result<(KnownFlags, String), NotAsked> {
    let first = command.first().map_or("", String::as_str);
    if !can_be_run(first) {
        let place = if first.contains('/') { "is no program here" } else { "is not on the PATH" };
        return Err(NotAsked { why: format!("{first} {place}"), lacks_program: true });
    }
    if CONTAINERS.contains(&basename(first)) {
        return Err(format!("{first} would start a container").into());
    }
    let secrets = Secrets::of(plan).and(inherited_secrets());
    let mut env = environment(&plan.engine, &Point::default());
    env.insert("NO_COLOR".to_owned(), "1".to_owned());
    let begun = clock::now();
    let (mut why, mut lacks_program) = (String::new(), false);
    for question in questions {
        let command = [command, &[(*question).to_owned()]].concat();
        let shown = brief(&redact_words(&command).join(" "));
        let (guardian, env, unset) = (guardian.to_owned(), env.clone(), Vec::new());
        let launch = Launch { guardian, command, env, unset, log: None, grace: Duration::ZERO };
        let mut answer = std::pin::pin!(answer(launch, secrets.clone(), patience.saturating_sub(begun.elapsed())));
        let answer = tokio::select! {
            answer = &mut answer => answer,
            () = tokio::time::sleep(SILENT), if *question == questions[0] => {
                complain(&format!("waiting up to {} for the flags of the engine: {shown}", Seconds::from(patience)));
                answer.await
            }
        };
        why = match answer {
            Ok((Exit::Code(0), help)) => match KnownFlags::of_help(&help, needed) {
                Some(known) => return Ok((known, shown)),
                None if needed == OUR_FLAGS => {
                    format!("`{shown}` does not list --host and --port, which every launch sets")
                }
                None => format!("`{shown}` does not list its flags"),
            },
            Ok((exit, said)) => {
                let how = match exit {
                    Exit::Code(code) => format!("ended with exit code {code}"),
                    Exit::Signal(signal) => format!("was killed by signal {signal}"),
                    Exit::StillRunning => "was lost".to_owned(),
                };
                let last = said.lines().rev().find(|line| !line.trim().is_empty());
                // A shell or `env` that finds no program, and Python that does not find a module or a part of it.
                lacks_program = matches!(exit, Exit::Code(NOT_EXECUTABLE | NOT_FOUND))
                    || last.is_some_and(|last| last.contains("No module named") || last.starts_with("ImportError: "));
                format!("`{shown}` {how}{}", last.map_or(String::new(), |last| format!(": {}", brief(last))))
            }
            // What was too slow or without an end would be so again.
            Err(Unanswered::Slow) => {
                let why = format!("`{shown}` did not end within {} (--help-timeout)", Seconds::from(patience));
                return Err(why.into());
            }
            Err(error @ Unanswered::Endless) => return Err(format!("`{shown}` {error}").into()),
            Err(error @ Unanswered::NotStarted(_)) => return Err(error.to_string().into()),
        };
    }
    Err(NotAsked { why, lacks_program })
}

/// The beginning of what others say, in one line.
fn brief(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let end = line.char_indices().nth(SHOWN).map_or(line.len(), |(at, _)| at);
    let more = if end < line.len() { "…" } else { "" };
    format!("{}{more}", printable(&line[..end]))
}
