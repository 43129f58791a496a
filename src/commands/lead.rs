//! Leading: the processes that tune together, as the command line names them, and the rigs of a session that runs on all of them.

use futures_util::future::try_join_all;

use super::{Failed, exit};
use crate::cli::{RunArgs, token_variable};
use crate::progress::{Event, Sink};
use crate::rig::{Address, EitherRig, JobMark, RealRig, RemoteRig, WORKER_AWAY, Worker, WorkerError};
use crate::token::{Token, VARIABLE};
use crate::workload::Corpus;

/// The token of the run, from a file or the environment; `None` if neither has one.
pub(super) fn token(args: &RunArgs) -> Result<Option<Token>, Failed> {
    let (text, place) = match &args.token_file {
        Some(file) => {
            let place = format!("--token-file {}", file.display());
            let read = std::fs::read_to_string(file);
            (read.map_err(|e| Failed::usage(format!("error: failed to read {place}: {e}")))?, place)
        }
        None => match token_variable().filter(|_| args.rank.is_some()) {
            Some(text) => (text, VARIABLE.to_owned()),
            None => return Ok(None),
        },
    };
    Token::parse(&text).map(Some).map_err(|why| Failed::usage(format!("error: {place}: {why}")))
}

/// A place among the processes that tune together.
#[derive(Debug, PartialEq)]
pub(super) struct Place {
    /// The rank, from 1.
    pub(super) rank: usize,
    /// Where the leader reaches it.
    pub(super) address: Address,
}

/// The processes that tune together; one alone where the command line names no others.
#[derive(Debug)]
pub(super) enum Role {
    /// This process leads these; the list may be empty.
    Leads(Vec<Worker>),
    /// This process lends its rig.
    Lends(Place),
}

impl Role {
    /// As the command line has it.
    pub(super) fn of(args: &RunArgs, token: Option<&Token>) -> Result<Self, Failed> {
        let (workers, rank) = (&args.workers, args.rank.unwrap_or(0));
        let usage = |what: String| Failed::usage(format!("error: {what}"));
        if let Some((place, twice)) = workers.iter().enumerate().find(|(i, worker)| workers[..*i].contains(worker)) {
            return Err(usage(format!("--workers names {twice} twice, the second time as rank {place}")));
        }
        match workers.get(rank) {
            Some(address) if rank > 0 => return Ok(Self::Lends(Place { rank, address: address.clone() })),
            None if args.rank.is_some() => {
                let (count, last) = (workers.len(), workers.len().saturating_sub(1));
                return Err(usage(format!("--rank {rank} is not among {count} --workers: ranks are 0 to {last}")));
            }
            Some(_) | None => {}
        }
        let session = Worker::new_session();
        let others = workers.iter().cloned().enumerate().skip(1);
        let led = others.map(|(rank, address)| Worker::new(rank, address, &session, token, WORKER_AWAY));
        led.collect::<Result<_, _>>().map(Self::Leads).map_err(|e| usage(e.to_string()))
    }

    /// Where this process lends its rig; `None` if it leads.
    pub(super) fn lends(&self) -> Option<&Place> {
        match self {
            Self::Lends(place) => Some(place),
            Self::Leads(_) => None,
        }
    }

    /// Whom this process leads.
    pub(super) fn workers(&self) -> &[Worker] {
        match self {
            Self::Leads(workers) => workers,
            Self::Lends(_) => &[],
        }
    }

    /// Asks the workers to end: the job has its answer. One that hears nothing of this waits for another session.
    pub(super) async fn dismiss(&self) {
        futures_util::future::join_all(self.workers().iter().map(Worker::dismiss)).await;
    }

    /// The flags that a resumed run must repeat.
    pub(super) fn repeated(args: &RunArgs) -> String {
        let urls: Vec<String> = args.workers.iter().map(Address::to_string).collect();
        let token = args.token_file.as_ref().map_or(String::new(), |file| format!(" --token-file {}", file.display()));
        args.rank.map_or(String::new(), |rank| format!(" --workers {} --rank {rank}{token}", urls.join(",")))
    }
}

/// The rigs of a session, that of this machine first: waits until every worker answers, and refuses one that was started for another job.
pub(super) async fn rigs(
    here: RealRig,
    workers: &[Worker],
    job: &JobMark,
    corpus: &Corpus,
    sink: &dyn Sink,
) -> Result<Vec<EitherRig>, Failed> {
    let greeted = workers.iter().map(|worker| worker.greet(job, |waiting| sink.take(&Event::Note(waiting))));
    try_join_all(greeted).await.map_err(|error| {
        let code = match error {
            WorkerError::Unfit(_) => exit::USAGE,
            WorkerError::Away(_) => exit::FAILED,
        };
        Failed { code, message: format!("error: {error}") }
    })?;
    let there = workers
        .iter()
        .map(|worker| EitherRig::There(Box::new(RemoteRig::new(worker.clone(), job.clone(), corpus.clone()))));
    Ok(std::iter::once(EitherRig::Here(Box::new(here))).chain(there).collect())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Cli;

    /// What the command line makes of a rank among these workers.
    fn role(flags: &[&str]) -> Result<Role, String> {
        let words = ["autotune", "--space", "f.toml"].iter().chain(flags);
        let args = Cli::try_parse_from(words).map_err(|e| e.to_string())?.run;
        Role::of(&args, None).map_err(|failed| {
            assert_eq!(failed.code, exit::USAGE);
            failed.message
        })
    }

    #[tokio::test]
    async fn the_rank_tells_who_leads_and_who_lends() {
        let both = "http://a:7787,http://b:7787";
        let led = role(&["--workers", both, "--rank", "0"]).unwrap();
        assert_eq!(led.workers().iter().map(Worker::name).collect::<Vec<_>>(), ["worker 1 at http://b:7787"]);
        let lends = role(&["--workers", both, "--rank", "1"]).unwrap();
        let place = Place { rank: 1, address: "http://b:7787".parse().unwrap() };
        assert_eq!((lends.lends(), lends.workers().len()), (Some(&place), 0));
        let alone = role(&[]).unwrap();
        assert!(alone.lends().is_none() && alone.workers().is_empty());
        let args = ["autotune", "--space", "f.toml", "--workers", both, "--rank", "0"];
        assert_eq!(Role::repeated(&Cli::parse_from(args).run), format!(" --workers {both} --rank 0"));
    }

    #[test]
    fn a_place_that_is_none_is_a_mistake_of_the_command_line() {
        for (flags, part) in [
            (&["--rank", "1"][..], "--workers"),
            (&["--workers", "http://a:1"], "--rank"),
            (&["--workers", "http://a:1,http://b:1", "--rank", "2"], "ranks are 0 to 1"),
            (&["--workers", "http://a:1,http://a:1/", "--rank", "0"], "http://a:1 twice"),
            (&["--workers", "a:1", "--rank", "0"], "http://HOST:PORT"),
        ] {
            let said = role(flags).unwrap_err();
            assert!(said.contains(part), "{said}");
        }
    }
}
