//! What A and B are: a server that runs, or an engine that is launched.

use std::path::{Path, PathBuf};

use super::vary::Vary;
use crate::cli::{CompareArgs, LoadArgs};
use crate::commands::export::read_outcome;
use crate::commands::report::read_journal;
use crate::commands::{Failed, read_plan};
use crate::settings::{Plan, REDACTED};
use crate::space::Point;

pub(in crate::commands) enum Side {
    /// The address of a server.
    Url(String),
    Engine(Box<Engine>),
}

/// An engine to launch.
pub(in crate::commands) struct Engine {
    pub(super) plan: Plan,
    pub(super) point: Point,
    /// The space file, whose traffic is sent unless the flags say another.
    space: PathBuf,
    pub(super) what: String,
    /// What it must show if it is what `--vary` says.
    requires: Option<&'static str>,
}

impl Side {
    pub(super) fn is_launched(&self) -> bool {
        matches!(self, Self::Engine(_))
    }

    pub(super) fn requires(&self) -> Option<&'static str> {
        if let Self::Engine(engine) = self { engine.requires } else { None }
    }
}

/// Both sides, as the command line names them.
pub(super) fn both(args: &CompareArgs) -> Result<[Side; 2], Failed> {
    let usage = |says: &str| Err(Failed::usage(format!("error: {says}")));
    match (args.sides.as_slice(), &args.vary) {
        ([a, b], None) => Ok([one(a)?, one(b)?]),
        ([_, _], Some(_)) => usage("--vary makes both sides from one space file: give one, or two without --vary"),
        ([only], Some(vary)) => {
            let vary = Vary::parse(vary)?;
            if is_url(only) {
                return usage("--vary launches engines, and a server that runs cannot be launched: give a space file");
            }
            let space = PathBuf::from(only);
            let plan = read_plan(&space)?;
            let side = |side: usize| {
                let (plan, point, words) = vary.applied(&plan, side);
                let what = format!("{only} with {words}").replace("with without", "without");
                let requires = vary.requires(side);
                Side::Engine(Box::new(Engine { plan, point, space: space.clone(), what, requires }))
            };
            Ok([side(0), side(1)])
        }
        _ => usage(
            "compare needs two sides: two addresses, two space files or runs, or one space file with --vary args.FLAG=A,B",
        ),
    }
}

fn is_url(word: &str) -> bool {
    word.contains("://")
}

fn one(word: &str) -> Result<Side, Failed> {
    if is_url(word) {
        return Ok(Side::Url(word.to_owned()));
    }
    let path = Path::new(word);
    let engine = if path.is_dir() {
        of_run(path)?
    } else {
        let plan = read_plan(path)?;
        let point = plan.space.baseline();
        Engine { plan, point, space: path.to_owned(), what: word.to_owned(), requires: None }
    };
    Ok(Side::Engine(Box::new(engine)))
}

/// The best point of a run, launched as it was. What is secret in its plan is only in its space file.
pub(in crate::commands) fn of_run(folder: &Path) -> Result<Engine, Failed> {
    let (outcome, _) = read_outcome(folder)?;
    let journal = read_journal(folder)?;
    let no_best = || Failed::usage(format!("error: the run in {} found no point to launch", folder.display()));
    let point = outcome.best.ok_or_else(no_best)?.parameters;
    let header = journal.header().ok_or_else(no_best)?;
    let space = PathBuf::from(&header.space_file);
    let secret = serde_json::to_string(&header.plan).is_ok_and(|plan| plan.contains(REDACTED));
    let plan = if secret { read_plan(&space)? } else { header.plan.clone() };
    let what = format!("{} ({point})", folder.display());
    Ok(Engine { plan, point, space, what, requires: None })
}

/// How load is driven: the traffic is that of the first space file, where the flags give none.
pub(in crate::commands) fn load_of(args: &LoadArgs, sides: &[Side]) -> LoadArgs {
    let mut load = args.clone();
    let traffic = &load.traffic;
    let given = traffic.dataset.is_some()
        || traffic.input_tokens.is_some()
        || traffic.output_tokens.is_some()
        || traffic.chat
        || !traffic.with.is_empty();
    let spaces = sides.iter().filter_map(|side| match side {
        Side::Engine(engine) => Some(engine.space.clone()),
        Side::Url(_) => None,
    });
    if load.workload.is_none() && !given {
        load.workload = spaces.into_iter().next();
    }
    load
}
