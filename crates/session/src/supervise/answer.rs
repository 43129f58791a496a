//! Runs a program and returns what it prints, within limits of time and bytes. No process of it is left running.

use std::time::Duration;

use super::child::{Child, Launch, SuperviseError};
use super::output::{Output, WHOLE};
use autotune_plan::engine::diagnosis::Exit;
use autotune_plan::settings::Secrets;

/// How often the length of the output is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Once no process is left, its last output is read within this time.
const READ_WITHIN: Duration = Duration::from_secs(2);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Unanswered {
    #[error(transparent)]
    NotStarted(#[from] SuperviseError),
    #[error("did not end in time")]
    Slow,
    #[error("printed more than {} KiB", WHOLE >> 10)]
    Endless,
}

/// How the program ended, and all that it printed.
pub async fn answer(launch: Launch, secrets: Secrets, patience: Duration) -> Result<(Exit, String), Unanswered> {
    let child = Child::spawn(launch, secrets).await?;
    let output = child.output().clone();
    let ended = tokio::select! {
        exit = child.exited() => Ok(exit.unwrap_or(Exit::StillRunning)),
        () = until(&output, |written, _| written > WHOLE) => Err(Unanswered::Endless),
        () = tokio::time::sleep(patience) => Err(Unanswered::Slow),
    };
    child.kill().await;
    let exit = ended?;
    // The last of it may still be in the pipe.
    drop(tokio::time::timeout(READ_WITHIN, until(&output, |_, ended| ended)).await);
    match output.progress() {
        (written, _) if written > WHOLE => Err(Unanswered::Endless),
        _ => Ok((exit, output.text())),
    }
}

async fn until(output: &Output, so: impl Fn(usize, bool) -> bool) {
    loop {
        let (written, ended) = output.progress();
        if so(written, ended) {
            return;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
