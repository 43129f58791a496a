//! What A and B are: a server that runs, an engine that is launched, or an object of a cluster with one of two values.

use std::path::{Path, PathBuf};

use super::vary::Vary;
use crate::cli::{CompareArgs, LoadArgs};
use crate::clock;
use crate::cluster::borrow::run_name;
use crate::cluster::lease::holder;
use crate::cluster::site::Site as ClusterSite;
use crate::cluster::vary::Varying;
use crate::commands::export::read_outcome;
use crate::commands::job;
use crate::commands::load::Traffic;
use crate::commands::report::read_journal;
use crate::commands::{Failed, read_plan};
use crate::journal::Header;
use crate::report::Outcome;
use crate::settings::{EnginePlan, Plan, REDACTED};
use crate::space::Point;

pub(in crate::commands) enum Side {
    /// The address of a server.
    Url(String),
    Engine(Box<Engine>),
    Object(Box<Object>),
}

/// An object of a cluster with the value of one side.
pub(in crate::commands) struct Object {
    /// Both values, and what they are of.
    pub(super) varying: Varying,
    pub(super) namespace: Option<String>,
    pub(super) site: ClusterSite,
    /// 0 is A, 1 is B.
    pub(super) place: usize,
    /// The address by which it is measured.
    pub(super) url: String,
    pub(super) what: String,
    requires: Option<&'static str>,
}

/// An engine to launch.
pub(in crate::commands) struct Engine {
    pub(super) plan: Plan,
    pub(super) point: Point,
    /// Whose traffic is sent unless the flags say another.
    origin: Origin,
    pub(super) what: String,
    /// What it must show if it is what `--vary` says.
    requires: Option<&'static str>,
}

/// Where an engine's traffic stands.
enum Origin {
    Space(PathBuf),
    Run(Box<Header>, PathBuf),
}

impl Side {
    pub(super) fn is_launched(&self) -> bool {
        matches!(self, Self::Engine(_))
    }

    /// Whether it stands only while the other side does not.
    pub(super) fn stands_alone(&self) -> bool {
        !matches!(self, Self::Url(_))
    }

    pub(super) fn requires(&self) -> Option<&'static str> {
        match self {
            Self::Url(_) => None,
            Self::Engine(engine) => engine.requires,
            Self::Object(object) => object.requires,
        }
    }
}

/// Both sides, as the command line names them.
pub(super) fn both(args: &CompareArgs) -> Result<[Side; 2], Failed> {
    let usage = |says: &str| Err(Failed::usage(format!("error: {says}")));
    if args.object.is_none() && args.container.is_some() {
        return usage("--container is of an object of a cluster: name the object, such as --deployment NAME");
    }
    match (args.sides.as_slice(), &args.vary) {
        ([a, b], None) => Ok([one(a)?, one(b)?]),
        ([_, _], Some(_)) => usage("--vary makes both sides from one space file: give one, or two without --vary"),
        ([url], Some(vary)) if args.object.is_some() => objects(args, url, &Vary::parse(vary, true)?),
        _ if args.object.is_some() => usage(
            "an object of a cluster is compared under two values: give the one address by which it is reached, and --vary NAME=A,B",
        ),
        ([only], Some(vary)) => {
            let vary = Vary::parse(vary, false)?;
            if is_url(only) {
                return usage(
                    "a server that runs cannot be launched with another value: give a space file, or the object in the cluster, such as --deployment NAME",
                );
            }
            let space = PathBuf::from(only);
            let plan = read_plan(&space)?;
            let side = |side: usize| {
                let (plan, point, words) = vary.applied(&plan, side);
                let what = format!("{only} with {words}").replace("with without", "without");
                let requires = vary.requires(side);
                Side::Engine(Box::new(Engine { plan, point, origin: Origin::Space(space.clone()), what, requires }))
            };
            Ok([side(0), side(1)])
        }
        _ => usage(
            "compare needs two sides: two addresses, two space files or runs, or one space file with --vary args.FLAG=A,B",
        ),
    }
}

/// An object under both values.
fn objects(args: &CompareArgs, url: &str, vary: &Vary) -> Result<[Side; 2], Failed> {
    if !is_url(url) {
        return Err(Failed::usage(format!(
            "error: {url} is no address: an object is measured through its Service, such as http://chat:8000"
        )));
    }
    let Some(object) = &args.object else { return Err(Failed::usage("error: say which object is varied")) };
    let which = job::which(object, vary.component.clone())?;
    let [(a, with_a), (b, with_b)] = [0, 1].map(|side| vary.wanted(side));
    let varying = Varying {
        container: args.container.clone(),
        wanted: [a, b],
        holder: holder(),
        run: run_name(clock::timestamp()),
        patience: args.patience,
        which,
    };
    Ok([(0, with_a), (1, with_b)].map(|(place, with)| {
        Side::Object(Box::new(Object {
            namespace: args.place.namespace.clone(),
            site: job::marks(&args.place),
            place,
            url: url.to_owned(),
            what: format!("{} {with}", varying.which.title()),
            requires: vary.requires(place),
            varying: varying.clone(),
        }))
    }))
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
        of_run(path, read_outcome(path)?.0)?
    } else {
        let plan = read_plan(path)?;
        let point = plan.space.baseline();
        Engine { plan, point, origin: Origin::Space(path.to_owned()), what: word.to_owned(), requires: None }
    };
    Ok(Side::Engine(Box::new(engine)))
}

/// The best point of a run, launched as it was. What is secret in its plan is only in its space file.
pub(in crate::commands) fn of_run(folder: &Path, outcome: Outcome) -> Result<Engine, Failed> {
    let journal = read_journal(folder)?;
    let no_best = || Failed::usage(format!("error: the run in {} found no point to launch", folder.display()));
    let point = outcome.best.ok_or_else(no_best)?.parameters;
    let header = journal.header().ok_or_else(no_best)?;
    let mut plan = header.plan.clone();
    if serde_json::to_string(&plan).is_ok_and(|plan| plan.contains(REDACTED)) {
        let EnginePlan { command, args, env, .. } = read_plan(Path::new(&header.space_file))?.engine;
        plan.engine = EnginePlan { command, args, env, ..plan.engine };
    }
    let what = format!("{} ({point})", folder.display());
    let origin = Origin::Run(Box::new(header.clone()), folder.to_owned());
    Ok(Engine { plan, point, origin, what, requires: None })
}

/// The traffic that is sent: that of the flags, and else that of the first engine's space file, or of its run.
pub(in crate::commands) fn traffic_of(load: &mut LoadArgs, sides: &[Side], closed: bool) -> Result<Traffic, Failed> {
    let traffic = &load.traffic;
    let given = traffic.dataset.is_some()
        || traffic.input_tokens.is_some()
        || traffic.output_tokens.is_some()
        || traffic.chat
        || !traffic.with.is_empty();
    if load.workload.is_none() && !given {
        let mut origins = sides.iter().filter_map(|side| match side {
            Side::Engine(engine) => Some(&engine.origin),
            Side::Url(_) | Side::Object(_) => None,
        });
        match origins.next() {
            Some(Origin::Run(header, folder)) => return Traffic::of_run(load, header, folder),
            Some(Origin::Space(space)) => load.workload = Some(space.clone()),
            None => {}
        }
    }
    Traffic::of(load, closed, false)
}
