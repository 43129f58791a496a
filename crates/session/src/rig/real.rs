//! The real rig: engine processes under supervision, real load over HTTP.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use tracing::debug;

use super::live::{Change, FrontendFile, LiveFile};
use super::server::{ASK_EVERY, NoAnswer};
use super::speculation::rarely_accepts;
use super::{CacheUse, EngineProcess, Failure, Measured, Node, ProbeAsk, Ready, Rig, RigError, Server, Spawned, Trial};
use crate::private::create_folder;
use crate::supervise::guardian::can_be_run;
use crate::supervise::{
    Child, GpuMemory, Gpus, Launch, SuperviseError, Unclean, free_port, gpu_clean, peak_memory, port_clean,
};
use crate::verdict::Counter;
use autotune_clock as clock;
use autotune_http::access::Access;
use autotune_load::endpoints::Endpoints;
use autotune_load::{Client, Cut, Schedule, Target};
use autotune_plan::engine::diagnosis::{Cause, Consequence, Diagnosis, Exit, diagnose, request_refused};
use autotune_plan::engine::effective::Effective;
use autotune_plan::engine::live::{LiveLimits, largest_graph, may_start_plainly, serves, widest};
use autotune_plan::engine::{
    api_key, command_line, devices, dialect, environment, frontend, is_left_out, is_parallel_size, telling, variable,
};
use autotune_plan::settings::{EngineKind, Plan, Secrets, VISIBLE_GPUS};
use autotune_plan::space::{Point, Value};
use autotune_records::units::Seconds;
use autotune_workload::{self as workload, Corpus, Material};

/// A dying engine breaks its connections first; its exit follows within this time.
const DEATH_SHOWS_WITHIN: Duration = Duration::from_secs(4);

/// Where a real rig works.
#[derive(Clone, Debug)]
pub struct Workplace {
    /// Our own binary: it is the guardian, and the simulated engine.
    pub binary: PathBuf,
    pub folder: PathBuf,
    /// The GPUs that engines see, unless the space file names others, as [`VISIBLE_GPUS`] does; all that there are where it is none.
    pub gpus: Option<String>,
    /// Where Python looks for modules, as `PYTHONPATH` says it.
    pub python_path: Option<String>,
    /// The secrets of our own environment, which engines inherit and may print.
    pub inherited: Secrets,
    /// Where in a cluster it is.
    pub node: Option<Node>,
}

/// Engines as processes on this machine.
pub struct RealRig {
    plan: Plan,
    place: Workplace,
    secrets: Secrets,
    shared_seed: u64,
    /// Before the first engine has told its vocabulary: the workload's file alone.
    material: Material,
    gpus: Gpus,
    gpu_before: Option<GpuMemory>,
    gpu_names: Vec<String>,
    /// How many GPUs an engine may have, where that is known.
    devices: Option<u64>,
    looked: bool,
    /// Why engines cannot alter their limits, once one was found unable to.
    live_unsupported_reason: Option<String>,
    /// The tokens of the largest step that had a CUDA graph on an engine that takes other limits.
    graph: Option<i64>,
    /// The switches with which engines are asked to tell more of themselves, without those that one did not know.
    telling: Vec<&'static str>,
    /// Whether its point drafts tokens in another way than the defaults do, which are measured whatever they draft.
    drafts_by_choice: bool,
    running: Option<Running>,
}

struct Running {
    child: Child,
    endpoints: Endpoints,
    port: u16,
    live: Option<Live>,
    /// Once it serves: how it is asked, and what it said.
    serving: Option<(Server, Ready)>,
}

impl Running {
    fn endpoints(&self) -> Endpoints {
        self.endpoints.clone().told_by(&self.child.output().text())
    }
}

/// An engine that takes other limits while it runs.
struct Live {
    /// The trial that it was started for.
    on: u32,
    /// The values that it was launched with.
    widest: Point,
    graph: Option<i64>,
    change: Change,
}

impl Running {
    fn server(&self) -> Option<&Server> {
        self.serving.as_ref().map(|(server, _)| server)
    }

    /// Whether the last limits, if any, are in force.
    fn holds_its_limits(&self) -> bool {
        self.live.as_ref().is_none_or(|live| live.change.holds())
    }
}

impl RealRig {
    /// A rig for the plan's engine and workload; `corpus` is the workload's file.
    pub fn new(plan: Plan, place: Workplace, shared_seed: u64, corpus: Corpus) -> Self {
        let secrets = Secrets::of(&plan).and(place.inherited.clone());
        let env = engine_environment(&plan, &place, &Point::default());
        let telling = telling(&plan.engine);
        let gpus = Gpus::named(env.get(VISIBLE_GPUS).map(String::as_str));
        Self {
            plan,
            place,
            secrets,
            shared_seed,
            material: Material { corpus, ..Material::default() },
            gpus,
            gpu_before: None,
            gpu_names: Vec::new(),
            devices: None,
            looked: false,
            live_unsupported_reason: None,
            graph: None,
            telling,
            drafts_by_choice: false,
            running: None,
        }
    }

    /// The address of the engine that runs.
    pub fn base_url(&self) -> Option<String> {
        self.running.as_ref().map(|running| format!("http://127.0.0.1:{}", running.port))
    }

    /// Its endpoints, by what its log says so far.
    pub fn endpoints(&self) -> Option<Endpoints> {
        self.running.as_ref().map(Running::endpoints)
    }

    fn access(&self) -> Access {
        Access { api_key: api_key(&self.plan.engine), hidden: self.secrets.clone(), ..Access::default() }
    }

    fn folder(&self, trial: Trial) -> PathBuf {
        self.place.folder.join(format!("t{:03}-{}", trial.number, trial.attempt))
    }

    /// The diagnosis of an engine that failed.
    fn diagnosis(&self, running: &Running, exit: Exit) -> Diagnosis {
        let (dialect, log) = (dialect(self.plan.engine.kind), running.child.output().text());
        let diagnosis = diagnose(dialect, &log, exit, &self.tuned());
        match dialect.part(&log) {
            Some(part) => Diagnosis { says: format!("{part}: {}", diagnosis.says), ..diagnosis },
            None => diagnosis,
        }
    }

    /// The diagnosis of an engine that serves and gives no answer.
    fn unanswered(&self, why: NoAnswer) -> Diagnosis {
        match why {
            NoAnswer::Refused(says) => request_refused(dialect(self.plan.engine.kind), &says, &self.tuned()),
            NoAnswer::Failed(says) => hung(says),
        }
    }

    /// Why the machine has too few GPUs for a point that says itself how many it takes, if it has. An engine that spans machines is left alone.
    fn too_few_gpus(&self, point: &Point) -> Option<Diagnosis> {
        let words = || self.plan.engine.command.iter().chain(&self.plan.engine.args);
        let spans = |word: &String| {
            let flag = word.split('=').next().unwrap_or(word).replace('_', "-");
            ["--nnodes", "--data-parallel-size-local", "-dpl", "--distributed-executor-backend"]
                .contains(&flag.as_str())
        };
        let tuned = point.0.keys().any(|name| is_parallel_size(name));
        if !tuned || words().any(spans) {
            return None;
        }
        let (needed, there) = (devices(&self.plan.engine, point), self.devices?);
        (needed > there).then(|| Diagnosis {
            cause: Cause::BadArgument,
            line: None,
            says: format!("it takes {needed} GPUs, and {there} are there: leave out larger sizes of parallelism"),
            consequence: Consequence::PointOnly,
        })
    }

    fn tuned(&self) -> Vec<&str> {
        self.plan.space.parameters.iter().map(|p| p.name.as_str()).collect()
    }

    async fn become_ready(&mut self, trial: Trial, point: &Point) -> Result<Ready, Diagnosis> {
        let begun = clock::now();
        let Some(running) = &self.running else { return Err(hung("no engine was started".into())) };
        let timeout = self.plan.engine.start_timeout;
        let ready = tokio::select! {
            ready = tokio::time::timeout(timeout, model_served(&running.endpoints)) => ready.ok(),
            exit = running.child.exited() => {
                // The last output may still be in the pipe.
                tokio::time::sleep(Duration::from_millis(50)).await;
                return Err(self.diagnosis(running, exit.unwrap_or(Exit::Signal(9))));
            }
        };
        let Some(model) = ready else { return Err(self.diagnosis(running, Exit::StillRunning)) };
        let target = Target {
            base_url: format!("http://127.0.0.1:{}", running.port),
            model: model.clone(),
            endpoint: self.plan.workload.endpoint,
            ignore_eos: self.plan.workload.ignore_eos,
            access: self.access(),
            extra_body: serde_json::Map::new(),
        };
        let client = Client::new(target).map_err(|e| hung(e.to_string()))?;
        let seed = workload::mix(self.shared_seed, &[u64::from(trial.number), u64::from(trial.attempt)]);
        let served = begun.elapsed();
        debug!(trial = trial.number, model, took = ?served, "the engine serves");
        let prepared = async {
            let server = Server::learn(
                running.endpoints(),
                client,
                self.plan.workload.clone(),
                self.material.corpus.clone(),
                self.shared_seed,
                self.plan.engine.stall_timeout,
            );
            let server = server.await;
            server.warm(seed, timeout.into(), trial.warmed).await.map(|warmed| (server, warmed))
        };
        let warmed = tokio::select! {
            warmed = tokio::time::timeout(timeout, prepared) => warmed,
            exit = running.child.exited() => {
                return Err(self.diagnosis(running, exit.unwrap_or(Exit::Signal(9))));
            }
        };
        let (server, warmed) = match warmed {
            Ok(Ok(warmed)) => warmed,
            Ok(Err(why)) => return Err(self.unanswered(why)),
            Err(_) => return Err(self.diagnosis(running, Exit::StillRunning)),
        };
        if !running.holds_its_limits() {
            return Err(unmoved());
        }
        let effective = running.endpoints.effective(&running.child.output().text()).await.without(&self.secrets);
        let space = &self.plan.space;
        let widest = running.live.as_ref().map(|live| effective.complete(space, live.widest.clone()));
        let graph = widest.as_ref().and_then(|_| largest_graph(&self.plan, &effective));
        let ready = Ready {
            took: begun.elapsed().into(),
            effective: if widest.is_some() { with_limits(effective, point) } else { effective },
            model,
            gpus: self.gpu_names.clone(),
            shared: self.gpu_names.is_empty() && self.plan.engine.kind != EngineKind::Simulated,
            warm_up: Some(begun.elapsed().saturating_sub(served).into()),
            warmed,
            host_memory: peak_memory(&running.child.group),
            process: EngineProcess {
                altered: false,
                widest,
                graph,
                live_unsupported_reason: self.live_unsupported_reason.clone().filter(|_| trial.on.is_some()),
            },
            node: self.place.node.clone(),
        };
        if let Some(running) = &mut self.running {
            running
                .live
                .iter_mut()
                .zip(&ready.process.widest)
                .for_each(|(live, widest)| (live.widest, live.graph) = (widest.clone(), graph));
            running.serving = Some((server, ready.clone()));
        }
        Ok(ready)
    }

    /// Lets the engine that runs take the limits of a point, where it can and may; `None` if it has to be launched.
    async fn alter(&mut self, trial: Trial, point: &Point) -> Option<Ready> {
        let Running { child, live: Some(live), serving: Some((server, launched)), endpoints, .. } =
            self.running.as_mut()?
        else {
            return None;
        };
        if trial.on != Some(live.on) || !serves(&live.widest, live.graph, point) {
            return None;
        }
        let altered = async {
            // Running requests end under the old limits. Then a request makes the engine read the new ones.
            server.settle(false).await.ok()?;
            match &mut live.change {
                Change::Limits(file) => file.ask(LiveLimits::of(point)).ok()?,
                Change::Frontend(file) => {
                    let graph = self.plan.engine.graph.as_ref()?;
                    file.ask(&frontend(&self.plan.engine, graph, point)).ok()?;
                    let started = async {
                        while !file.holds() {
                            tokio::time::sleep(ASK_EVERY).await;
                        }
                        model_served(endpoints).await;
                    };
                    tokio::time::timeout(self.plan.engine.start_timeout, started).await.ok()?;
                }
            }
            server.settle(false).await.ok()?;
            live.change.holds().then_some(())
        };
        tokio::select! {
            altered = altered => altered?,
            _ = child.exited() => return None,
        }
        debug!(trial = trial.number, on = live.on, %point, "the engine that runs takes other limits");
        let process = EngineProcess { altered: true, ..launched.process.clone() };
        let effective = with_limits(launched.effective.clone(), point);
        let warmed = trial.warmed.unwrap_or(launched.warmed);
        Some(Ready { effective, process, warmed, warm_up: None, ..launched.clone() })
    }

    /// What to start instead of that wide point, since a launch of the point itself has fewer CUDA graphs; `None` if it has as many.
    fn narrowed(&self, wide: &Point, point: &Point) -> Option<Point> {
        widest(&self.plan, self.graph, point).filter(|narrow| narrow != wide)
    }

    /// Starts an engine with the arguments of a wider point whose limits it then lowers. The first such engine tells its CUDA graphs. If a launch of
    /// the point itself has fewer, an engine is started with its own cap on sequences.
    async fn launch_wide(
        &mut self,
        trial: Trial,
        point: &Point,
        (on, wide): (u32, Point),
        spawned: &mut (dyn FnMut(&Spawned) + Send),
    ) -> Result<Ready, RigError> {
        let ready = self.launch_one(trial, point, Some((on, wide.clone())), spawned).await?;
        self.graph = self.graph.max(ready.process.graph);
        let Some(narrow) = self.narrowed(&wide, point) else { return Ok(ready) };
        debug!(trial = trial.number, %narrow, "a launch of the point has fewer CUDA graphs");
        self.stop().await?;
        self.launch_one(trial, point, Some((on, narrow)), spawned).await
    }

    /// Starts an engine with the point's arguments, or with those of a wider one whose limits it then lowers.
    async fn launch_one(
        &mut self,
        trial: Trial,
        point: &Point,
        live: Option<(u32, Point)>,
        spawned: &mut (dyn FnMut(&Spawned) + Send),
    ) -> Result<Ready, RigError> {
        let begun = clock::now();
        debug!(trial = trial.number, attempt = trial.attempt, live = live.is_some(), %point, "launch");
        let machine = |e: std::io::Error| RigError::Machine(format!("failed to find a free port: {e}"));
        let port = self.plan.engine.port.map_or_else(free_port, Ok).map_err(machine)?;
        port_clean(port).map_err(|e| RigError::Machine(e.to_string()))?;
        let folder = self.folder(trial);
        let failed = |e: std::io::Error| RigError::Machine(format!("failed to write into {}: {e}", folder.display()));
        create_folder(&folder).map_err(failed)?;
        let again = live.clone();
        let mut command = command_line(&self.plan.engine, &self.place.binary, port, point);
        let mut env = engine_environment(&self.plan, &self.place, point);
        let live = match live {
            Some((on, widest)) if self.plan.engine.graph.is_some() => {
                let path = folder.canonicalize().map_err(failed)?.join("frontend");
                let at = command.iter().position(|word| word == "--").unwrap_or(command.len());
                command.splice(at..at, ["--change".to_owned(), path.display().to_string()]);
                Some(Live { on, widest, graph: None, change: Change::Frontend(FrontendFile::of(path)) })
            }
            Some((on, widest)) => {
                let mut file = LiveFile::create(&folder.join("live")).map_err(failed)?;
                file.ask(LiveLimits::of(point)).map_err(failed)?;
                command = command_line(&self.plan.engine, &self.place.binary, port, &widest);
                command.extend(file.arguments());
                let python_path = env.get("PYTHONPATH").or(self.place.python_path.as_ref()).cloned();
                env.extend(file.environment(python_path.as_deref()));
                Some(Live { on, widest, graph: None, change: Change::Limits(file) })
            }
            None => None,
        };
        command.extend(self.telling.iter().map(|flag| format!("--{flag}")));
        // The processes of a graph are started below the guardian, which looks for its own program alone.
        let of_graph = self.plan.engine.graph.as_ref().and(self.plan.engine.command.first());
        if let Some(program) = of_graph.filter(|program| !can_be_run(program)) {
            let failure = Failure {
                diagnosis: no_program(&format!("{program}: there is no such program")),
                took: begun.elapsed().into(),
            };
            return Err(RigError::Engine(Box::new(failure)));
        }
        let launch = Launch {
            guardian: self.place.binary.clone(),
            command,
            unset: unset(&self.plan, point).filter(|name| !env.contains_key(*name)).map(str::to_owned).collect(),
            env,
            log: Some(folder.join("engine.log")),
            grace: self.plan.engine.stop_timeout,
        };
        let child = match Child::spawn(launch, self.secrets.clone()).await {
            Ok(child) => child,
            Err(error @ SuperviseError::NotSpawned(_)) => {
                let failure = Failure { diagnosis: no_program(&error.to_string()), took: begun.elapsed().into() };
                return Err(RigError::Engine(Box::new(failure)));
            }
            Err(error) => return Err(RigError::Machine(error.to_string())),
        };
        spawned(&Spawned { group: child.group.clone(), scratch: child.scratch.clone() });
        let access = self.access();
        let endpoints = Endpoints::new(format!("http://127.0.0.1:{port}"), &access, dialect(self.plan.engine.kind))
            .map_err(|e| RigError::Machine(e.to_string()))?
            .of_workers(self.plan.engine.graph.as_ref().map_or(1, |graph| graph.workers));
        self.running = Some(Running { child, endpoints, port, live, serving: None });
        match self.become_ready(trial, point).await {
            Ok(ready) => Ok(ready),
            Err(diagnosis) => {
                let log = self.running.as_ref().map(|running| running.child.output().text()).unwrap_or_default();
                debug!(trial = trial.number, cause = ?diagnosis.cause, says = diagnosis.says, "the launch failed");
                self.stop().await?;
                let asked = self.telling.len();
                self.telling.retain(|flag| !names_unknown(&log, flag));
                if self.telling.len() < asked {
                    return Box::pin(self.launch_one(trial, point, again, spawned)).await;
                }
                Err(RigError::Engine(Box::new(Failure { diagnosis, took: begun.elapsed().into() })))
            }
        }
    }

    async fn measure(&self, running: &Running, ask: &ProbeAsk) -> Result<Measured, Diagnosis> {
        let begun = clock::now();
        let Some(server) = running.server() else { return Err(hung("it never became ready".into())) };
        let settled = server.settle(true).await.map_err(|why| self.unanswered(why))?;
        let mean_output = workload::mean_output_tokens(&self.plan.workload, server.material());
        let watch = Counter::new(&self.plan.slo, ask.window, ask.rate, mean_output, ask.slack).awaiting(ask.awaited);
        let schedule = Schedule {
            window_ends: ask.window.to,
            stall_timeout: self.plan.engine.stall_timeout.into(),
            request_timeout: None,
        };
        let (driven, telemetry) = server.drive(ask.pace(self.shared_seed), schedule, Box::new(watch)).await;
        if driven.cut == Some(Cut::Hung) {
            let stall = Seconds::from(self.plan.engine.stall_timeout);
            return Err(hung(format!("requests waited and no token came for {stall}")));
        }
        if driven.cut == Some(Cut::Decided) {
            // An engine that hangs or dies also breaks promises, but that is a failure of the engine.
            server.settle(true).await.map_err(|why| self.unanswered(why))?;
        }
        if !running.holds_its_limits() {
            return Err(unmoved());
        }
        let cache = CacheUse::of(&driven.records, ask.window, &telemetry, settled.reset);
        Ok(Measured {
            records: driven.records,
            ended: driven.ended,
            complete: driven.cut.is_none(),
            telemetry,
            cache,
            client: driven.health,
            took: begun.elapsed().into(),
        })
    }

    /// Ends once the engine's drafts are accepted too rarely for its point to be worth a trial.
    async fn rarely_accepts(&self, running: &Running, ask: &ProbeAsk) -> Diagnosis {
        match running.server() {
            Some(server) if self.drafts_by_choice && !ask.is_burst() => {
                rarely_accepts(server, self.plan.probe.acceptance_length).await
            }
            _ => std::future::pending().await,
        }
    }
}

/// Whether a parameter is of speculative decoding, as vLLM and SGLang name theirs.
fn is_of_drafts(name: &str) -> bool {
    name.starts_with("speculative")
}

fn engine_environment(plan: &Plan, place: &Workplace, point: &Point) -> BTreeMap<String, String> {
    let mut env = environment(&plan.engine, point);
    if let Some(gpus) = &place.gpus {
        env.entry(VISIBLE_GPUS.to_owned()).or_insert_with(|| gpus.clone());
    }
    env
}

/// Variables that are off at a point, or do not exist there: ours must not reach the engine in their place.
fn unset<'p>(plan: &'p Plan, point: &'p Point) -> impl Iterator<Item = &'p str> {
    let off = point.0.iter().filter(|(_, value)| is_left_out(value)).map(|(name, _)| name.as_str());
    let missing = plan.space.parameters.iter().filter(|p| p.when.is_some() && point.get(&p.name).is_none());
    off.chain(missing.map(|p| p.name.as_str())).filter_map(variable)
}

/// Health, the model listed, and then a real completion (in the warm-up).
async fn model_served(endpoints: &Endpoints) -> String {
    loop {
        if endpoints.healthy().await
            && let Ok(model) = endpoints.model().await
        {
            return model;
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}

/// The configuration of an engine whose limits were altered; the engine itself tells the limits of its launch.
fn with_limits(mut effective: Effective, point: &Point) -> Effective {
    let altered = LiveLimits::of(point).named().map(|(name, limit)| (name.to_owned(), Value::Int(limit)));
    effective.values.extend(altered);
    effective
}

/// Whether an engine's log says that it does not know a flag.
fn names_unknown(log: &str, flag: &str) -> bool {
    log.lines().any(|line| line.contains("unrecognized arguments") && line.contains(flag))
}

/// The diagnosis of an engine that does not keep the limits it was given while it ran.
fn unmoved() -> Diagnosis {
    Diagnosis {
        cause: Cause::Crashed,
        line: None,
        says: "it did not take the limits that it was told, or did not keep to them".to_owned(),
        consequence: Consequence::Retry,
    }
}

/// The diagnosis of an engine whose program is not there.
fn no_program(why: &str) -> Diagnosis {
    Diagnosis {
        cause: Cause::Environment,
        line: None,
        says: format!("{why}; is engine.command right, and the program on the PATH?"),
        consequence: Consequence::Abort,
    }
}

/// A failure that the log does not tell.
fn hung(says: String) -> Diagnosis {
    Diagnosis {
        cause: Cause::Timeout,
        line: None,
        says: format!("the engine hangs: {says}"),
        consequence: Consequence::Retry,
    }
}

impl Rig for RealRig {
    async fn launch(
        &mut self,
        trial: Trial,
        point: &Point,
        spawned: &mut (dyn FnMut(&Spawned) + Send),
    ) -> Result<Ready, RigError> {
        let begun = clock::now();
        let defaults = self.plan.space.baseline();
        let is_choice = |(name, value): (&String, &Value)| {
            is_of_drafts(name) && !is_left_out(value) && defaults.get(name) != Some(value)
        };
        self.drafts_by_choice = point.0.iter().any(is_choice);
        if let Some(ready) = self.alter(trial, point).await {
            return Ok(Ready { took: begun.elapsed().into(), ..ready });
        }
        self.stop().await?;
        if !self.looked {
            (self.gpu_before, self.gpu_names, self.looked) = (self.gpus.memory().await, self.gpus.names().await, true);
            self.devices = self.gpus.count().await;
        }
        if let Some(diagnosis) = self.too_few_gpus(point) {
            return Err(RigError::Engine(Box::new(Failure { diagnosis, took: begun.elapsed().into() })));
        }
        let live = trial
            .on
            .filter(|_| self.live_unsupported_reason.is_none())
            .and_then(|on| Some((on, widest(&self.plan, self.graph, point)?)));
        if let Some((on, widest)) = live {
            match self.launch_wide(trial, point, (on, widest.clone()), spawned).await {
                Err(RigError::Engine(failure))
                    if self.plan.engine.graph.is_none()
                        && may_start_plainly(&failure.diagnosis, &widest, point)
                        && self.narrowed(&widest, point).is_none() =>
                {
                    let Diagnosis { says, line, .. } = failure.diagnosis;
                    self.live_unsupported_reason = Some(line.map_or(says.clone(), |line| format!("{says} {line}")));
                    let log = self.folder(trial).join("engine.log");
                    drop(std::fs::rename(&log, log.with_file_name("engine-live.log")));
                }
                answer => return answer.map(|ready| Ready { took: begun.elapsed().into(), ..ready }),
            }
        }
        match self.launch_one(trial, point, None, spawned).await {
            Ok(ready) => Ok(Ready { took: begun.elapsed().into(), ..ready }),
            Err(RigError::Engine(failure)) => {
                // It fails without live limits too, so they are not the reason.
                self.live_unsupported_reason = self.live_unsupported_reason.take().filter(|_| trial.on.is_none());
                Err(RigError::Engine(Box::new(Failure { took: begun.elapsed().into(), ..*failure })))
            }
            Err(error) => Err(error),
        }
    }

    fn material(&self) -> &Material {
        self.running.as_ref().and_then(Running::server).map_or(&self.material, Server::material)
    }

    async fn probe(&mut self, ask: &ProbeAsk) -> Result<Measured, RigError> {
        let begun = clock::now();
        let Some(running) = &self.running else {
            return Err(RigError::Machine("a probe was asked of an engine that does not run".into()));
        };
        let broken = tokio::select! {
            measured = self.measure(running, ask) => match measured {
                Ok(measured) => return Ok(measured),
                // A dying engine refuses connections before its exit is known: give the exit a moment to be seen.
                Err(diagnosis) => match tokio::time::timeout(DEATH_SHOWS_WITHIN, running.child.exited()).await {
                    Ok(exit) => died(self.diagnosis(running, exit.unwrap_or(Exit::Signal(9)))),
                    Err(_) => diagnosis,
                },
            },
            rarely = self.rarely_accepts(running, ask) => rarely,
            exit = running.child.exited() => {
                tokio::time::sleep(Duration::from_millis(50)).await;
                died(self.diagnosis(running, exit.unwrap_or(Exit::Signal(9))))
            }
        };
        debug!(cause = ?broken.cause, says = broken.says, "the engine failed under load");
        if !running.holds_its_limits() {
            self.live_unsupported_reason = Some(unmoved().says);
        }
        self.stop().await?;
        Err(RigError::Engine(Box::new(Failure { diagnosis: broken, took: begun.elapsed().into() })))
    }

    async fn stop(&mut self) -> Result<Seconds, RigError> {
        let begun = clock::now();
        if let Some(running) = self.running.take() {
            let port = running.port;
            drop(running.serving);
            running.child.stop().await;
            let unclean = |e: Unclean| RigError::Machine(e.to_string());
            gpu_clean(&self.gpus, self.gpu_before).await.map_err(unclean)?;
            if self.plan.engine.port == Some(port) {
                port_clean(port).map_err(unclean)?;
            }
        }
        Ok(begun.elapsed().into())
    }

    async fn kill(&mut self) {
        if let Some(running) = self.running.take() {
            running.child.kill().await;
        }
    }
}

/// What a death under load is called.
fn died(mut diagnosis: Diagnosis) -> Diagnosis {
    diagnosis.says = format!("the engine died under load: {}", diagnosis.says);
    diagnosis
}
