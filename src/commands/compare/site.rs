//! One side at work: reached, launched and stopped again, or given its value.

use std::collections::BTreeMap;
use std::time::Duration;

use super::side::{Engine, Side};
use super::sweeps::Shared;
use crate::access::Access;
use crate::cli::inherited_secrets;
use crate::clock;
use crate::cluster::replicas::requests_by_pod;
use crate::cluster::{ClusterError, vary};
use crate::commands::job::failed;
use crate::commands::load::{Levels, Load, Ran, interrupts, reach};
use crate::commands::stop::Stop;
use crate::commands::{Failed, exit};
use crate::engine::api_key;
use crate::engine::effective::Effective;
use crate::progress::Event;
use crate::report::comparison::{SideSeen, facts};
use crate::rig::{RealRig, Rig, RigError, Spawned, Trial, Workplace};
use crate::settings::Secrets;

/// Between two attempts to reach an object that was given a value.
const AGAIN: Duration = Duration::from_secs(1);

pub(super) struct Site<'a> {
    name: &'static str,
    side: &'a Side,
    shared: &'a Shared<'a>,
    stop: Stop,
    open: Option<Open<'a>>,
    launches: u32,
    /// Windows since it was opened.
    windows: usize,
    seen: Option<SideSeen>,
}

struct Open<'a> {
    levels: Levels<'a>,
    rig: Option<RealRig>,
    /// The generation of a varied object; `None` without one.
    version: Option<i64>,
}

impl<'a> Site<'a> {
    pub(super) fn new(name: &'static str, side: &'a Side, shared: &'a Shared<'a>, stop: Stop) -> Self {
        Self { name, side, shared, stop, open: None, launches: 0, windows: 0, seen: None }
    }

    pub(super) fn stands_alone(&self) -> bool {
        self.side.stands_alone()
    }

    pub(super) fn is_launched(&self) -> bool {
        self.side.is_launched()
    }

    pub(super) fn is_object(&self) -> bool {
        matches!(self.side, Side::Object(_))
    }

    /// Whether both are the same address.
    pub(super) fn is_at_the_place_of(&self, other: &Self) -> bool {
        let place = |site: &Self| match site.side {
            Side::Url(url) => Some(url.trim_end_matches('/').trim_end_matches("/v1").to_owned()),
            Side::Engine(_) | Side::Object(_) => None,
        };
        place(self).is_some_and(|here| Some(here) == place(other))
    }

    /// What it is and says of itself; `None` if it was never reached.
    pub(super) fn seen(self) -> Option<SideSeen> {
        self.seen
    }

    /// How many requests each replica has had, where it runs and tells.
    pub(super) async fn requests_by_replica(&self) -> BTreeMap<String, f64> {
        match (&self.open, &self.shared.object) {
            (None, _) => BTreeMap::new(),
            // A Service hides its pods.
            (Some(Open { version: Some(_), .. }), Some((cluster, plan))) => {
                let told = requests_by_pod(cluster, plan.which()).await;
                told.unwrap_or_else(|why| {
                    if self.shared.replicas_unseen.set(why.clone()).is_ok() {
                        cluster.tell(&why);
                    }
                    BTreeMap::new()
                })
            }
            (Some(open), _) => open.levels.requests_by_replica().await,
        }
    }

    /// One window.
    pub(super) async fn run(&mut self, load: Load) -> Result<Ran, Failed> {
        if self.open.is_none() && !Box::pin(self.reach()).await? {
            return Ok(Ran { level: None, interrupted: true });
        }
        let Some(open) = &mut self.open else { return Ok(Ran { level: None, interrupted: true }) };
        let number = self.windows;
        self.windows += 1;
        let Some(warmed) = open.levels.warm().await? else { return Ok(Ran { level: None, interrupted: true }) };
        // Conversations that are under way at the start are those of one answer time, so that both sides have the same.
        let answer_time = Some(*self.shared.answer_time.get_or_init(|| warmed.answer_time));
        let ran = open.levels.run(number, Load { answer_time, ..load }).await;
        let ran = ran.map_err(|failed| Failed { message: format!("{}: {}", self.name, failed.message), ..failed })?;
        // A window of an object that somebody edited is of no side.
        if let Some((version, (cluster, plan))) =
            open.version.zip(self.shared.object.as_ref()).filter(|_| !ran.interrupted)
        {
            vary::stays(cluster, plan, version).await.map_err(failed)?;
        }
        Ok(ran)
    }

    /// Stops its engine; a server that runs stays, and an object keeps its value until it gets another.
    pub(super) async fn close(&mut self) -> Result<(), Failed> {
        if !self.stands_alone() {
            return Ok(());
        }
        match self.open.take() {
            Some(Open { rig: Some(mut rig), .. }) => stop_engine(&mut rig, &mut self.stop).await,
            _ => Ok(()),
        }
    }

    /// Gives the object this side's value; `None` if a signal came first.
    async fn set(&mut self, place: usize) -> Result<Option<i64>, Failed> {
        let Some((cluster, plan)) = &self.shared.object else { return Ok(None) };
        tokio::select! {
            version = vary::set(cluster, plan, place) => version.map(Some).map_err(|why| unready(self.name, why)),
            () = self.stop.told() => Err(interrupts::before_the_end()),
        }
    }

    /// Reaches the server, or launches the engine; false where a signal came first.
    async fn reach(&mut self) -> Result<bool, Failed> {
        let (mut patience, mut version) = (Duration::ZERO, None);
        let (url, access, rig, effective) = match self.side {
            Side::Url(url) => (url.clone(), self.shared.access.clone(), None, Effective::default()),
            Side::Object(object) => {
                version = self.set(object.place).await?;
                patience = object.varying.patience;
                (object.url.clone(), self.shared.access.clone(), None, Effective::default())
            }
            Side::Engine(engine) => {
                let Some((rig, effective)) = self.launch(engine).await? else { return Ok(false) };
                let given = self.shared.access.clone();
                let hidden = Secrets::of(&engine.plan).and(inherited_secrets()).and(given.hidden.clone());
                let access = Access { api_key: api_key(&engine.plan.engine), hidden, ..given };
                let url = rig.base_url().unwrap_or_default();
                (url, access, Some(rig), effective)
            }
        };
        let endpoints = rig.as_ref().and_then(RealRig::endpoints);
        let Shared { args, load, traffic, sink, object, .. } = self.shared;
        let begun = clock::ticks();
        let name = self.name;
        let reaching = async {
            loop {
                match (reach(&url, &args.access, &access, load, traffic, endpoints.clone(), &**sink).await, object) {
                    // A Service follows its pods, and a frontend its workers, a moment later.
                    (Err(_), Some((cluster, plan))) if begun.elapsed() < patience => {
                        tokio::time::sleep(AGAIN).await;
                        vary::serves(cluster, plan).await.map_err(|why| unready(name, why))?;
                    }
                    (done, _) => break done,
                }
            }
        };
        let reached = tokio::select! {
            server = reaching => Some(server),
            () = self.stop.told() => None,
        };
        let server = match reached {
            Some(Ok(server)) => server,
            other => {
                if let Some(mut rig) = rig {
                    stop_engine(&mut rig, &mut self.stop).await?;
                }
                return match other {
                    Some(Err(failed)) => {
                        Err(Failed { message: format!("{}: {}", self.name, failed.message), ..failed })
                    }
                    _ => Err(interrupts::before_the_end()),
                };
            }
        };
        let longest = server.endpoints().served().await.ok().and_then(|served| served.longest);
        let effective = effective.merge(server.endpoints().effective("").await.without(&access.hidden));
        let what = match self.side {
            Side::Url(_) => server.target().base_url.clone(),
            Side::Engine(engine) => engine.what.clone(),
            Side::Object(object) => object.what.clone(),
        };
        let facts = facts(&server.target().model, longest, &effective);
        self.seen.get_or_insert(SideSeen { what, facts });
        let label = Some(self.name.to_owned());
        let levels = Levels::new(load, traffic, server, label, sink.clone(), self.stop.clone());
        self.windows = 0;
        self.open = Some(Open { levels, rig, version });
        Ok(true)
    }

    /// Launches the engine; `None` if a signal came first.
    async fn launch(&mut self, engine: &Engine) -> Result<Option<(RealRig, Effective)>, Failed> {
        let Shared { args, load, traffic, trials, sink, .. } = self.shared;
        self.launches += 1;
        sink.take(&Event::Note(&format!("launching {}: {}", self.name, engine.what)));
        let workplace = Workplace {
            binary: std::env::current_exe().map_err(Failed::own)?,
            folder: trials.join(self.name),
            gpus: args.gpus.clone(),
            python_path: None,
            inherited: inherited_secrets(),
            node: None,
        };
        let mut plan = engine.plan.clone();
        plan.workload = traffic.workload.clone();
        let mut rig = RealRig::new(plan, workplace, load.seed, traffic.corpus.clone());
        let trial = Trial { number: self.launches, attempt: 1, warmed: None, on: None };
        let mut spawned = |_: &Spawned| {};
        let launched = tokio::select! {
            ready = rig.launch(trial, &engine.point, &mut spawned) => Some(ready),
            () = self.stop.told() => None,
        };
        match launched {
            Some(Ok(ready)) => Ok(Some((rig, ready.effective))),
            Some(Err(error)) => {
                stop_engine(&mut rig, &mut self.stop).await?;
                let line = match &error {
                    RigError::Engine(failure) => {
                        failure.diagnosis.line.clone().map_or(String::new(), |line| format!("; it said: {line}"))
                    }
                    RigError::Machine(_) => String::new(),
                };
                let message = format!("error: the engine of {} did not start: {error}{line}", self.name);
                Err(Failed { code: exit::NEVER_STARTED, message })
            }
            None => {
                stop_engine(&mut rig, &mut self.stop).await?;
                Ok(None)
            }
        }
    }
}

/// An object that does not serve with the value of a side.
fn unready(name: &str, why: ClusterError) -> Failed {
    Failed { code: exit::NEVER_STARTED, message: format!("{} ({name})", failed(why).message) }
}

/// Stops an engine, or kills it at another signal.
async fn stop_engine(rig: &mut RealRig, stop: &mut Stop) -> Result<(), Failed> {
    let stopped = tokio::select! {
        stopped = rig.stop() => Some(stopped),
        () = stop.told() => None,
    };
    match stopped {
        Some(stopped) => stopped.map(|_| ()).map_err(|e| Failed::own(format!("error: {e}"))),
        None => {
            rig.kill().await;
            Ok(())
        }
    }
}
