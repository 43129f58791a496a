//! One engine under its guardian, as a handle: start it, know how it ended, stop it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::watch;
use tracing::debug;

use super::guardian::Report;
use super::output::Output;
use super::processes::{Group, boot_id, stat, sweep};
use super::scratch;
use crate::token;
use autotune_plan::engine::diagnosis::Exit;
use autotune_plan::settings::{Secrets, redact_words};

/// Beyond the engine's own grace, what a guardian may take to end everything before we do it ourselves.
const GUARDIAN_GRACE: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub struct Launch {
    /// Our own binary, which knows `guardian`.
    pub guardian: PathBuf,
    /// The engine's program and arguments.
    pub command: Vec<String>,
    /// Variables added to our environment.
    pub env: BTreeMap<String, String>,
    /// Variables taken from it.
    pub unset: Vec<String>,
    /// The file that keeps its output; the ends of it are in memory all the same.
    pub log: Option<PathBuf>,
    /// How long after SIGTERM it may take.
    pub grace: Duration,
}

pub struct Child {
    /// The process group, for the journal.
    pub group: Group,
    /// Its private temporary folder, removed when it has ended.
    pub scratch: PathBuf,
    output: Output,
    orders: Option<ChildStdin>,
    guardian: tokio::process::Child,
    state: watch::Receiver<State>,
    grace: Duration,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct State {
    exit: Option<Exit>,
    empty: bool,
}

/// Why an engine could not be supervised.
#[derive(Debug, thiserror::Error)]
pub enum SuperviseError {
    #[error("failed to start the guardian process {program}: {source}")]
    Guardian { program: PathBuf, source: std::io::Error },
    #[error("failed to prepare the trial's files: {0}")]
    Files(#[source] std::io::Error),
    #[error("failed to start the engine: {0}")]
    NotSpawned(String),
}

impl Child {
    /// Starts an engine under a guardian of its own.
    ///
    /// # Errors
    /// Where guardian, files or engine cannot be started; nothing is left running then.
    pub async fn spawn(launch: Launch, secrets: Secrets) -> Result<Self, SuperviseError> {
        let command = secrets.redact(&redact_words(&launch.command).join(" "));
        let output = Output::kept(launch.log.as_deref(), secrets).map_err(SuperviseError::Files)?;
        let scratch = scratch::make().map_err(SuperviseError::Files)?;
        let failed = |source| SuperviseError::Guardian { program: launch.guardian.clone(), source };
        #[expect(clippy::disallowed_methods, reason = "supervise is where processes are started")]
        let mut command_of_guardian = tokio::process::Command::new(&launch.guardian);
        for name in &launch.unset {
            command_of_guardian.env_remove(name);
        }
        let mut guardian = command_of_guardian
            .arg("guardian")
            .arg("--scratch")
            .arg(scratch.path())
            .args(["--grace-ms", &launch.grace.as_millis().to_string(), "--"])
            .args(&launch.command)
            .envs(&launch.env)
            .env_remove(token::VARIABLE)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let (Some(orders), Some(reports), Some(errors)) =
            (guardian.stdin.take(), guardian.stdout.take(), guardian.stderr.take())
        else {
            return Err(failed(std::io::Error::other("its pipes are missing")));
        };
        tokio::spawn(output.clone().drain(errors));
        let mut reports = BufReader::new(reports);
        let engine = match next_report(&mut reports).await {
            Some(Report::Spawned(engine)) => engine,
            Some(Report::NotSpawned(why)) => return Err(SuperviseError::NotSpawned(why)),
            _ => return Err(failed(std::io::Error::other(format!("it ended at once: {}", output.text().trim())))),
        };
        let pid = guardian.id().unwrap_or_default() as i32;
        let group =
            Group { guardian: pid, guardian_started: stat(pid).map_or(0, |s| s.started), engine, boot: boot_id() };
        debug!(guardian = pid, engine, ?command, log = ?launch.log, "the engine is started");
        let (tell, state) = watch::channel(State::default());
        tokio::spawn(follow(engine, reports, tell));
        let scratch = scratch.keep();
        Ok(Self { group, scratch, output, orders: Some(orders), guardian, state, grace: launch.grace })
    }

    /// Waits until the engine's first process has ended.
    pub async fn exited(&self) -> Option<Exit> {
        let mut state = self.state.clone();
        let ended = state.wait_for(|s| s.exit.is_some() || s.empty).await;
        ended.ok().and_then(|s| s.exit)
    }

    pub fn output(&self) -> &Output {
        &self.output
    }

    /// Asks the whole group to end, kills it where it does not, and returns when no process is left.
    pub async fn stop(mut self) {
        self.order("term").await;
        if !self.empty_within(self.grace + GUARDIAN_GRACE).await {
            self.order("kill").await;
        }
        self.end().await;
    }

    /// Ends everything now, for a second interrupt: SIGKILL to every process.
    pub async fn kill(mut self) {
        self.order("kill").await;
        self.end().await;
    }

    /// Waits for the guardian to report that no process is left. A guardian that died cannot: then the processes and the folder are removed here.
    async fn end(&mut self) {
        if !self.empty_within(GUARDIAN_GRACE).await {
            let killed = sweep(&self.group, &self.scratch).await;
            debug!(
                engine = self.group.engine,
                killed, "the guardian does not answer: its processes are ended without it"
            );
        }
        drop(self.orders.take());
        drop(tokio::time::timeout(GUARDIAN_GRACE, self.guardian.wait()).await);
        drop(std::fs::remove_dir_all(&self.scratch));
    }

    async fn order(&mut self, word: &str) {
        if let Some(orders) = &mut self.orders {
            debug!(engine = self.group.engine, word, "an order to the guardian");
            // A guardian that died reads no orders: `end` does its work.
            drop(orders.write_all(format!("{word}\n").as_bytes()).await);
            drop(orders.flush().await);
        }
    }

    async fn empty_within(&self, patience: Duration) -> bool {
        let mut state = self.state.clone();
        let empty = tokio::time::timeout(patience, state.wait_for(|s| s.empty)).await;
        matches!(empty, Ok(Ok(_)))
    }
}

async fn next_report(reports: &mut BufReader<ChildStdout>) -> Option<Report> {
    let mut line = String::new();
    reports.read_line(&mut line).await.ok()?;
    serde_json::from_str(&line).ok()
}

/// Follows the guardian's reports to their end. A guardian that dies ends them without "empty".
async fn follow(engine: i32, mut reports: BufReader<ChildStdout>, tell: watch::Sender<State>) {
    while let Some(report) = next_report(&mut reports).await {
        debug!(engine, ?report, "the guardian reports");
        tell.send_modify(|state| match report {
            Report::Exited(exit) => state.exit = Some(exit),
            Report::Empty => state.empty = true,
            Report::Spawned(_) | Report::NotSpawned(_) => {}
        });
    }
}
