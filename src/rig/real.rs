//! The real rig: engine processes under supervision, real load over HTTP.

use std::path::PathBuf;
use std::time::Duration;

use super::telemetry::Telemetry;
use super::{Failure, Measured, ProbeAsk, Ready, Rig, RigError, Spawned, Trial};
use crate::access::Access;
use crate::clock;
use crate::engine::diagnosis::{Cause, Consequence, Diagnosis, Exit, diagnose};
use crate::engine::telemetry::EngineSample;
use crate::engine::{Endpoints, api_key, command_line, environment};
use crate::load::{Client, Cut, Schedule, Target, ToTheEnd, drive};
use crate::settings::{Plan, Secrets};
use crate::space::Point;
use crate::supervise::{
    Child, GpuMemory, Launch, SuperviseError, free_port, gpu_clean, gpu_memory, gpu_names, port_is_free,
};
use crate::units::{Rate, Seconds};
use crate::verdict::Counter;
use crate::workload::{self, Corpus, Demand, Material, Pace, Prompt, Vocabulary};

/// How often readiness is asked for.
const ASK_EVERY: Duration = Duration::from_millis(100);
/// Requests of the warm-up's burst: enough to fill a batch, few enough to be over soon.
const BURST: u32 = 16;
/// How often the engine's counters are read; a vLLM metrics page costs it about 50 ms.
const SAMPLE_EVERY: Duration = Duration::from_secs(2);
/// How long after its connections broke the exit of a dying engine may take to be known.
const DEATH_SHOWS_WITHIN: Duration = Duration::from_secs(1);
/// How long an engine may take to give up cut requests before the next probe.
const IDLE_WITHIN: Duration = Duration::from_secs(10);

/// Where a real rig works.
#[derive(Clone, Debug)]
pub struct Workplace {
    /// Our own binary: it is the guardian, and the simulated engine.
    pub binary: PathBuf,
    /// The folder for logs.
    pub folder: PathBuf,
}

/// Engines as processes on this machine.
pub struct RealRig {
    plan: Plan,
    place: Workplace,
    secrets: Secrets,
    shared_seed: u64,
    corpus: Corpus,
    gpu_before: Option<GpuMemory>,
    gpus: Vec<String>,
    looked: bool,
    running: Option<Running>,
}

struct Running {
    child: Child,
    endpoints: Endpoints,
    client: Option<Client>,
    material: Material,
    port: u16,
}

impl RealRig {
    /// A rig for the plan's engine and workload; `corpus` is the workload's file.
    pub fn new(plan: Plan, place: Workplace, shared_seed: u64, corpus: Corpus) -> Self {
        let secrets = Secrets::of(&plan);
        Self {
            plan,
            place,
            secrets,
            shared_seed,
            corpus,
            gpu_before: None,
            gpus: Vec::new(),
            looked: false,
            running: None,
        }
    }

    fn pace(
        &self,
        demand: Demand,
        horizon: Seconds,
        arrival_seed: u64,
        content_seed: u64,
        answer_time: Seconds,
    ) -> Pace {
        Pace { demand, horizon, arrival_seed, content_seed, shared_seed: self.shared_seed, answer_time }
    }

    /// Why the engine that runs, or ran, is no use.
    fn diagnosis(&self, running: &Running, exit: Exit) -> Diagnosis {
        let tuned: Vec<&str> = self.plan.space.parameters.iter().map(|p| p.name.as_str()).collect();
        diagnose(&running.child.output().text(), exit, &tuned)
    }

    async fn become_ready(&mut self, trial: Trial) -> Result<Ready, Diagnosis> {
        let begun = clock::now();
        let Some(running) = &self.running else { return Err(hung("no engine was started".into())) };
        let timeout = self.plan.engine.start_timeout;
        let ready = tokio::select! {
            ready = tokio::time::timeout(timeout, serves(&running.endpoints)) => ready.ok(),
            exit = running.child.exited() => {
                // The last words may still be on their way through the pipe.
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
            access: Access { api_key: api_key(&self.plan.engine), ..Access::default() },
            extra_body: serde_json::Map::new(),
        };
        let client = Client::new(target).map_err(|e| hung(e.to_string()))?;
        let prepared = async {
            let vocabulary = self.vocabulary(&running.endpoints, &model).await;
            let material = Material { corpus: self.corpus.clone(), vocabulary };
            self.warm(&client, &material, trial).await.map(|(rate, time)| (rate, time, material))
        };
        let warmed = tokio::select! {
            warmed = tokio::time::timeout(timeout, prepared) => warmed,
            exit = running.child.exited() => {
                return Err(self.diagnosis(running, exit.unwrap_or(Exit::Signal(9))));
            }
        };
        let (burst_rate, answer_time, material) = match warmed {
            Ok(Ok(warmed)) => warmed,
            Ok(Err(why)) => return Err(hung(why)),
            Err(_) => return Err(self.diagnosis(running, Exit::StillRunning)),
        };
        let effective = running.endpoints.effective(&running.child.output().text()).await;
        let ready =
            Ready { took: begun.elapsed().into(), effective, model, gpus: self.gpus.clone(), burst_rate, answer_time };
        if let Some(running) = &mut self.running {
            (running.client, running.material) = (Some(client), material);
        }
        Ok(ready)
    }

    /// The words of this engine's prompts, as far as it tells; a fixed list of them where words or texts play no part.
    async fn vocabulary(&self, endpoints: &Endpoints, model: &str) -> Vocabulary {
        let vocabulary = match self.plan.workload.endpoint {
            crate::settings::Endpoint::Chat => endpoints.vocabulary(model).await.unwrap_or_default(),
            crate::settings::Endpoint::Completions => Vocabulary::default(),
        };
        let (tokens, characters) = endpoints.tokens_and_characters(model, &self.corpus.sample()).await;
        vocabulary.with_ratio(tokens, characters)
    }

    /// One real completion, then a burst whose latencies are discarded.
    async fn warm(&self, client: &Client, material: &Material, trial: Trial) -> Result<(Rate, Seconds), String> {
        let seed = workload::mix(self.shared_seed, &[u64::from(trial.number), u64::from(trial.attempt)]);
        let pace = |count| self.pace(Demand::AllAtOnce(count), Seconds(1e9), seed, seed, Seconds(0.0));
        let mut first = workload::source(&self.plan.workload, material, pace(1));
        let prompt = first.take().ok_or("the workload has no request")?;
        client
            .answers(&prompt.prompt, prompt.output_tokens)
            .await
            .map_err(|e| format!("its first completion failed ({e}); is the workload longer than max-model-len?"))?;
        let source = workload::source(&self.plan.workload, material, pace(BURST));
        let schedule = Schedule {
            window_ends: Seconds(0.0),
            stall_timeout: self.plan.engine.start_timeout.into(),
            request_timeout: None,
        };
        let driven = drive(client, source, schedule, Box::new(ToTheEnd)).await;
        let mut latencies: Vec<f64> = driven.records.iter().filter_map(|r| r.e2e()).map(|l| l.0).collect();
        latencies.sort_by(f64::total_cmp);
        let median = latencies.get(latencies.len() / 2).ok_or("none of its first completions was answered")?;
        Ok((Rate(latencies.len() as f64 / driven.ended.0), Seconds(*median)))
    }

    /// Brings the engine to a known state: idle, its prefix cache emptied where it offers that, shared prompts warm.
    async fn settle(&self, running: &Running, client: &Client) -> Result<(), Diagnosis> {
        let mut waited = Duration::ZERO;
        while waited < IDLE_WITHIN {
            let Some(sample) = running.endpoints.sample().await else { break };
            if sample.running.unwrap_or(0.0) + sample.waiting.unwrap_or(0.0) == 0.0 {
                break;
            }
            tokio::time::sleep(ASK_EVERY).await;
            waited += ASK_EVERY;
        }
        running.endpoints.reset_prefix_cache().await;
        let mut prompts = workload::shared_prompts(&self.plan.workload, &running.material, self.shared_seed);
        if prompts.is_empty() {
            prompts.push(sign_of_life(self.plan.workload.endpoint));
        }
        for prompt in &prompts {
            // The health endpoint of a hung engine says 200: only an answer shows that it lives.
            let answer = tokio::time::timeout(self.plan.engine.stall_timeout, client.answers(prompt, 1));
            if !matches!(answer.await, Ok(Ok(()))) {
                let stall = Seconds::from(self.plan.engine.stall_timeout);
                return Err(hung(format!("it gave no answer to a single request within {stall}")));
            }
        }
        Ok(())
    }

    async fn measure(&self, running: &Running, ask: &ProbeAsk) -> Result<Measured, Diagnosis> {
        let begun = clock::now();
        let Some(client) = &running.client else { return Err(hung("it never became ready".into())) };
        self.settle(running, client).await?;
        let demand = Demand::Open(ask.rate);
        let pace = self.pace(demand, ask.window.to, ask.arrival_seed, ask.content_seed, ask.answer_time);
        let source = workload::source(&self.plan.workload, &running.material, pace);
        let mean_output = workload::mean_output_tokens(&self.plan.workload, &running.material);
        let watch = Counter::new(&self.plan.slo, ask.window, ask.rate, mean_output);
        let schedule = Schedule {
            window_ends: ask.window.to,
            stall_timeout: self.plan.engine.stall_timeout.into(),
            request_timeout: None,
        };
        let mut samples: Vec<EngineSample> = running.endpoints.sample().await.into_iter().collect();
        let driven = {
            let driving = drive(client, source, schedule, Box::new(watch));
            tokio::pin!(driving);
            let mut every =
                tokio::time::interval_at(tokio::time::Instant::from_std(clock::now()) + SAMPLE_EVERY, SAMPLE_EVERY);
            every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    driven = &mut driving => break driven,
                    _ = every.tick() => {
                        // Beside the load, never instead of it: both futures advance.
                        tokio::select! {
                            driven = &mut driving => break driven,
                            sample = running.endpoints.sample() => samples.extend(sample),
                        }
                    }
                }
            }
        };
        if driven.cut == Some(Cut::Hung) {
            let stall = Seconds::from(self.plan.engine.stall_timeout);
            return Err(hung(format!("requests waited and no token came for {stall}")));
        }
        samples.extend(running.endpoints.sample().await);
        if driven.cut == Some(Cut::Decided) {
            // An engine that hangs or dies breaks promises too; that is its failure, not the point's.
            self.settle(running, client).await?;
        }
        Ok(Measured {
            records: driven.records,
            ended: driven.ended,
            complete: driven.cut.is_none(),
            telemetry: Telemetry::of(&samples),
            client: driven.health,
            took: begun.elapsed().into(),
        })
    }
}

/// Health, the model listed, and then a real completion (in the warm-up).
async fn serves(endpoints: &Endpoints) -> String {
    loop {
        if endpoints.healthy().await
            && let Some(model) = endpoints.model().await
        {
            return model;
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}

fn sign_of_life(endpoint: crate::settings::Endpoint) -> Prompt {
    match endpoint {
        crate::settings::Endpoint::Completions => Prompt::Tokens(vec![300, 301, 302, 303]),
        crate::settings::Endpoint::Chat => {
            Prompt::Messages(vec![workload::Message { role: "user", content: "hello there".into() }])
        }
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
        self.stop().await?;
        if !self.looked {
            (self.gpu_before, self.gpus, self.looked) = (gpu_memory().await, gpu_names().await, true);
        }
        let machine = |e: std::io::Error| RigError::Machine(format!("failed to find a free port: {e}"));
        let port = self.plan.engine.port.map_or_else(free_port, Ok).map_err(machine)?;
        if !port_is_free(port) {
            return Err(RigError::Machine(crate::supervise::Unclean::Port(port).to_string()));
        }
        let folder = self.place.folder.join(format!("t{:03}-{}", trial.number, trial.attempt));
        std::fs::create_dir_all(&folder)
            .map_err(|e| RigError::Machine(format!("failed to make {}: {e}", folder.display())))?;
        let launch = Launch {
            guardian: self.place.binary.clone(),
            command: command_line(&self.plan.engine, &self.place.binary, port, point),
            env: environment(&self.plan.engine),
            log: folder.join("engine.log"),
            grace: self.plan.engine.stop_timeout,
        };
        let child = match Child::spawn(launch, self.secrets.clone()).await {
            Ok(child) => child,
            Err(error @ SuperviseError::NotSpawned(_)) => {
                let diagnosis = Diagnosis {
                    cause: Cause::Environment,
                    line: None,
                    says: format!("{error}; is engine.command right, and the program on the PATH?"),
                    consequence: Consequence::Abort,
                };
                return Err(RigError::Engine(Box::new(Failure { diagnosis, took: begun.elapsed().into() })));
            }
            Err(error) => return Err(RigError::Machine(error.to_string())),
        };
        spawned(&Spawned { group: child.group.clone(), scratch: child.scratch.clone() });
        let access = Access { api_key: api_key(&self.plan.engine), ..Access::default() };
        let endpoints = Endpoints::new(format!("http://127.0.0.1:{port}"), &access)
            .map_err(|e| RigError::Machine(e.to_string()))?;
        self.running = Some(Running { child, endpoints, client: None, material: Material::default(), port });
        match self.become_ready(trial).await {
            Ok(ready) => Ok(Ready { took: begun.elapsed().into(), ..ready }),
            Err(diagnosis) => {
                self.stop().await?;
                Err(RigError::Engine(Box::new(Failure { diagnosis, took: begun.elapsed().into() })))
            }
        }
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
            exit = running.child.exited() => {
                tokio::time::sleep(Duration::from_millis(50)).await;
                died(self.diagnosis(running, exit.unwrap_or(Exit::Signal(9))))
            }
        };
        self.stop().await?;
        Err(RigError::Engine(Box::new(Failure { diagnosis: broken, took: begun.elapsed().into() })))
    }

    async fn stop(&mut self) -> Result<Seconds, RigError> {
        let begun = clock::now();
        if let Some(running) = self.running.take() {
            let port = running.port;
            drop(running.client);
            running.child.stop().await;
            gpu_clean(self.gpu_before).await.map_err(|e| RigError::Machine(e.to_string()))?;
            if self.plan.engine.port == Some(port) && !port_is_free(port) {
                return Err(RigError::Machine(crate::supervise::Unclean::Port(port).to_string()));
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
