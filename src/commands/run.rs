//! The main job: `autotune --space FILE`.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::lead::{Role, rigs, token};
use super::report::beside;
use super::stop::{Stop, UNHEARD};
use super::worker::serve_leader;
use super::{
    Failed, code_of, complain, corpus_says, exit, print, read_corpus, read_plan, runtime, simulated_profile, sink,
};
use crate::cli::{RunArgs, colour, inherited_secrets};
use crate::journal::{self, Conclusion, FORMAT, Header, Journal, JournalError, RECORDS_FORMAT};
use crate::progress::{About, Board, Both, Bound, Event, Listening, Sink};
use crate::report;
use crate::rig::{EitherRig, JobMark, Node, RealRig, Workplace};
use crate::search::MakeStrategy;
use crate::settings::redact_plan;
use crate::supervise::{remove_scratch, sweep};
use crate::tune::{Folder, RunnerError, Session, TrialRunner};
use crate::twin::Profile;

/// Runs, resumes or shows a session, and returns its exit code.
pub(super) fn run(args: RunArgs, make_strategy: MakeStrategy) -> Result<u8, Failed> {
    let token = token(&args)?;
    let role = Role::of(&args, token.as_ref())?;
    let space = args.space.path().to_owned();
    let mut plan = read_plan(&space)?;
    let corpus = read_corpus(&plan, &space)?;
    let simulated = simulated_profile(&plan)?;
    args.overrides.apply(&mut plan);
    let out = args.out.clone().unwrap_or_else(|| default_out(&space));
    let seed = args.seed.unwrap_or(plan.search.seed);
    let job = JobMark::of(&plan, &space.display().to_string(), seed, &corpus);
    let workplace = Workplace {
        binary: std::env::current_exe().map_err(Failed::own)?,
        folder: out.join("trials"),
        gpus: args.gpus.clone(),
        python_path: args.python_path.clone(),
        inherited: inherited_secrets(),
        node: args.node.clone().map(|name| Node { name, gpu_product: args.gpu_product.clone() }),
    };
    if let Some(place) = role.lends() {
        return serve_leader(place, token, job, (plan, corpus, seed), workplace, args.quiet);
    }
    // An address that cannot be had is said before anything is changed.
    let bound = args.listen.map(Bound::to).transpose().map_err(|e| Failed::usage(format!("error: {e}")))?;
    let mut aside = None;
    if args.fresh {
        aside = journal::put_aside(&out).map_err(unopened)?;
    }
    let header = Header {
        format: FORMAT,
        records_format: RECORDS_FORMAT,
        autotune: env!("CARGO_PKG_VERSION").to_owned(),
        space_file: space.display().to_string(),
        seed,
        plan: redact_plan(&plan),
        workload_digest: corpus.digest(),
        workers: args.workers.len().max(1),
    };
    let opened = journal::open(&out, header, args.resume).map_err(unopened)?;
    if let Some(conclusion) = opened.journal.conclusion() {
        if !args.quiet {
            complain(&format!("{} already holds the answer of this job; --fresh runs it again", out.display()));
        }
        let code = code_of(conclusion.status);
        runtime()?.block_on(role.dismiss());
        finish(&out, &opened.journal, &args)?;
        return Ok(code);
    }
    let simulates =
        |profile: &Profile| format!("simulated engine (profile {}): no number is a measurement", profile.name);
    let said = [simulated.as_ref().map(simulates), corpus_says(&plan.workload, &corpus)];
    said.iter().flatten().filter(|_| !args.quiet).for_each(|says| complain(says));
    let about = About {
        autotune: env!("CARGO_PKG_VERSION"),
        space_file: space.display().to_string(),
        out: out.display().to_string(),
        seed,
        simulated: simulated.is_some(),
    };
    let (sink, listening) = audience(bound, about, args.quiet, || sink(args.quiet, args.verbose, args.log));
    // As the parent of last resort we inherit what a dead guardian leaves, instead of losing sight of it.
    nix::sys::prctl::set_child_subreaper(true).map_err(Failed::own)?;
    let here = RealRig::new(plan.clone(), workplace, seed, corpus.clone());
    let resumed = opened.journal.entries.len() > 1;
    let folder = Folder { writer: Some(opened.writer), path: out.clone() };
    let runtime = runtime()?;
    let ended = runtime.block_on(async {
        if let Some(aside) = &aside {
            clean_up(aside).await;
        }
        if resumed {
            let swept = clean_up(&opened.journal).await;
            sink.take(&Event::Resumed { cost: opened.journal.cost(), swept });
        }
        let mut stop = Stop::listen().map_err(Failed::own)?;
        let last_resort = tokio::spawn(last_resort(stop.clone(), out.clone(), resume_command(&space, &out, &args)));
        let rigs = tokio::select! {
            rigs = rigs(here, role.workers(), &job, &corpus, &*sink) => rigs?,
            () = stop.told() => return Ok((Ended::Interrupted, opened.journal)),
        };
        let mut trial_runner = TrialRunner::new(rigs, &plan, seed, &*sink, Some(folder), opened.journal);
        if resumed {
            trial_runner.resumed(plan.budget.gpu_time.into()).map_err(|e| Failed::own(format!("error: {e}")))?;
        }
        let mut session = Session::new(trial_runner, &plan, &*sink).with_strategy(make_strategy);
        let ended = until_stopped(&mut session, &mut stop, &*sink).await;
        last_resort.abort();
        if matches!(ended, Ended::Concluded(_)) {
            role.dismiss().await;
        }
        Ok((ended, session.trial_runner().journal().clone()))
    });
    let (ended, journal) = ended?;
    drop((sink, listening));
    match ended {
        Ended::Concluded(conclusion) => {
            finish(&out, &journal, &args)?;
            Ok(code_of(conclusion.status))
        }
        Ended::Interrupted => {
            report::write(&out, &journal).map_err(|e| Failed::own(format!("error: {e}")))?;
            beside(&out, &journal);
            complain(&format!(
                "interrupted; the engine is stopped. To continue:\n  {}",
                resume_command(&space, &out, &args)
            ));
            Ok(exit::INTERRUPTED)
        }
        Ended::Failed(error) => {
            complain(&format!("error: {error}"));
            let kept = if journal.cost().probes > 0 { "what was measured is kept" } else { "nothing was measured yet" };
            complain(&format!("{kept}; to continue:\n  {}", resume_command(&space, &out, &args)));
            Ok(exit::FAILED)
        }
    }
}

/// Why there is no journal to work on, with the exit code that says whose part failed.
fn unopened(error: JournalError) -> Failed {
    let says = format!("error: {error}");
    if matches!(error, JournalError::Disk { .. }) { Failed::own(says) } else { Failed::usage(says) }
}

/// Whoever listens to the session: who shows progress, and where an address is given, whoever asks there.
fn audience(
    bound: Option<Bound>,
    about: About,
    quiet: bool,
    shows: impl FnOnce() -> Box<dyn Sink>,
) -> (Box<dyn Sink>, Option<Listening>) {
    let Some(bound) = bound else { return (shows(), None) };
    let board = Arc::new(Board::new(about));
    let (says, listening) = answering(bound, &board);
    // Before a terminal has a live line that this would tear.
    if !quiet || listening.is_none() {
        complain(&says);
    }
    (Box::new(Both(board, shows())), listening)
}

/// Answers whoever asks where the session stands, and says where. Whoever asks is not worth the session: what fails is a warning.
fn answering(bound: Bound, board: &Arc<Board>) -> (String, Option<Listening>) {
    let address = bound.address();
    match Listening::start(bound, Arc::clone(board)) {
        Ok(listening) => (format!("listening on http://{address}: /status, /metrics, /healthz"), Some(listening)),
        Err(e) => (format!("warning: nobody is answered on http://{address}: {e}; the session goes on"), None),
    }
}

enum Ended {
    Concluded(Box<Conclusion>),
    Interrupted,
    Failed(RunnerError),
}

/// Runs the session until it ends or a signal asks it to. The first SIGINT or SIGTERM stops the engine and syncs the journal; a
/// second one kills everything at once.
async fn until_stopped(session: &mut Session<'_, EitherRig>, stop: &mut Stop, sink: &dyn Sink) -> Ended {
    tokio::select! {
        ended = session.run() => match ended {
            Ok(conclusion) => return Ended::Concluded(Box::new(conclusion)),
            Err(error) => {
                let stopped = session.trial_runner().interrupt().await;
                return Ended::Failed(stopped.err().map_or(error, |_| RunnerError::Machine("the engine could not be stopped cleanly".into())));
            }
        },
        () = stop.told() => {}
    }
    // Through the sink: a live line would be torn.
    sink.take(&Event::Note("stopping the engine (interrupt again to kill it)"));
    let second = tokio::select! {
        stopped = session.trial_runner().interrupt() => match stopped {
            Ok(()) => return Ended::Interrupted,
            Err(error) => return Ended::Failed(error),
        },
        () = stop.told() => true,
    };
    if second {
        session.trial_runner().kill().await;
    }
    Ended::Interrupted
}

/// Ends the program when a signal is not heard because the session computes. Engines end first. Then the results are written by what the
/// journal on the disk holds, which is whole behind every record.
async fn last_resort(stop: Stop, out: PathBuf, resume: String) {
    stop.unheard(UNHEARD).await;
    let kept = std::fs::read(out.join(journal::FILE)).ok().and_then(|text| journal::read(&text).ok());
    if let Some(journal) = &kept {
        clean_up(journal).await;
        drop(report::write(&out, journal));
        beside(&out, journal);
    }
    complain(&format!("interrupted while computing; the engine is ended. To continue:\n  {resume}"));
    #[expect(clippy::exit, reason = "the session's thread computes, and returns from nothing")]
    std::process::exit(exit::INTERRUPTED.into())
}

/// Ends what an earlier run of this journal may have left.
async fn clean_up(journal: &Journal) -> usize {
    let mut swept = 0;
    for spawned in journal.unstopped() {
        swept += sweep(&spawned.group, &spawned.scratch).await;
        remove_scratch(&spawned.scratch);
    }
    swept
}

fn finish(out: &Path, journal: &Journal, args: &RunArgs) -> Result<(), Failed> {
    report::write(out, journal).map_err(|e| Failed::own(format!("error: {e}")))?;
    let outcome = report::outcome(journal);
    if let Some(log) = &args.termination_log {
        std::fs::write(log, report::last_words(&outcome, out))
            .map_err(|e| Failed::own(format!("error: failed to write {}: {e}", log.display())))?;
    }
    beside(out, journal);
    // The files are the product: an answer that cannot be printed is an answer all the same.
    let says = match args.json {
        true => report::pretty_json(&outcome),
        false => {
            report::summary(&outcome, out, &repeated(args), args.verbose, colour(std::io::stdout().is_terminal()))
                + &report::failed_start(journal, out)
        }
    };
    if let Err(unprinted) = print(&says) {
        complain(&unprinted.message);
    }
    Ok(())
}

fn default_out(space: &Path) -> PathBuf {
    Path::new("autotune-out").join(space.file_stem().unwrap_or_default())
}

/// The flags that another run of the job must repeat, without its budget.
fn repeated(args: &RunArgs) -> String {
    let seed = args.seed.map_or(String::new(), |s| format!(" --seed {s}"));
    let gpus = args.gpus.as_ref().map_or(String::new(), |gpus| format!(" --gpus {}", report::shell_quoted(gpus)));
    seed + &args.overrides.repeated() + &Role::repeated(args) + &gpus
}

fn resume_command(space: &Path, out: &Path, args: &RunArgs) -> String {
    let [space, out] = [space, out].map(|path| report::shell_quoted(&path.display().to_string()));
    let budget = args.overrides.budget.map_or(String::new(), |budget| format!(" --budget {}s", budget.as_secs_f64()));
    format!("autotune --space {space}{}{budget} --out {out} --resume", repeated(args))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resumed_run_gets_the_flags_of_the_interrupted_one() {
        use clap::Parser as _;
        let line = "autotune a.toml --seed 4 --budget 90s --strategy bisect --precision 8% --gpus 0,1";
        let args = crate::cli::Cli::try_parse_from(line.split(' ')).unwrap().run;
        let says = resume_command(Path::new("my jobs/a.toml"), Path::new("out"), &args);
        let expected = "autotune --space 'my jobs/a.toml' --seed 4 --strategy bisect --precision 8% --gpus 0,1 --budget 90s --out out --resume";
        assert_eq!(says, expected);
        let args = crate::cli::Cli::try_parse_from(["autotune", "a.toml", "--gpus", ""]).unwrap().run;
        let says = resume_command(Path::new("a.toml"), Path::new("out"), &args);
        assert_eq!(says, "autotune --space a.toml --gpus '' --out out --resume");
    }

    #[test]
    fn a_status_that_cannot_be_served_is_a_warning_and_the_session_has_its_audience() {
        let about = || About { autotune: "", space_file: String::new(), out: String::new(), seed: 1, simulated: true };
        let (says, listening) = answering(Bound::that_cannot_be_polled(), &Arc::new(Board::new(about())));
        assert!(listening.is_none(), "{says}");
        assert!(
            says.starts_with("warning: nobody is answered on http://") && says.ends_with("the session goes on"),
            "{says}"
        );
        let (sink, listening) =
            audience(Some(Bound::that_cannot_be_polled()), about(), true, || sink(true, false, None));
        sink.take(&Event::Note("a session"));
        assert!(listening.is_none());
    }
}
