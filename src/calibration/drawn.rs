//! The requests of a run that only its summary is left of, drawn anew from the workload that was asked.
//!
//! Many draws are looked at, and those are taken whose mean lengths are the summary's: what is known of a run should hold in its replay.

use crate::rig::prompt_shape;
use crate::settings::{ArrivalProcess, Endpoint, WorkloadKind, WorkloadPlan};
use crate::twin::Arrival;
use crate::units::Seconds;
use crate::workload::{Corpus, Demand, Material, Pace, Planned, Prompt, mix, outline, source};

use super::bench_summary::Summary;

/// Draws of a run that are replayed, so that the luck of one counts less.
pub const DRAWS: usize = 3;
/// Draws that are looked at.
const TRIES: u64 = 60;
/// How far the mean lengths of a draw may be from those of the run.
const TOLERANCE: f64 = 0.05;

/// What was asked of the engine in runs that only summaries are left of.
#[derive(Clone, Debug)]
pub struct Asked {
    plan: WorkloadPlan,
    material: Material,
}

/// Why a run cannot be drawn anew.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DrawError {
    /// Later requests follow from answers.
    #[error(
        "the later turns of conversations follow from answers, which a summary does not tell\n\
         hint: a [workload] of kind random, sharegpt, jsonl or trace"
    )]
    Conversations,
    /// The workload is not what was asked.
    #[error(
        "the workload has {drawn_input:.0} tokens a prompt and {drawn_output:.0} an answer where this run had {input:.0} and \
         {output:.0}: no draw is within 5 %\n\
         hint: the lengths of [workload] must be those that were sent, a shared prefix included, such as input_tokens = {input:.0} \
         and output_tokens = {output:.0}"
    )]
    Lengths {
        /// Tokens of a drawn prompt, the mean.
        drawn_input: f64,
        /// Tokens of a drawn answer, the mean.
        drawn_output: f64,
        /// Tokens of a prompt of the run, the mean.
        input: f64,
        /// Tokens of an answer of the run, the mean.
        output: f64,
    },
    /// The engine did not answer.
    #[error("{completed} of {prompts} requests were answered, and what became of the others is not told")]
    Failures { completed: u32, prompts: u32 },
}

impl Asked {
    /// A workload and its file. When requests come is no part of it: that is each summary's.
    ///
    /// # Errors
    /// Conversations.
    pub fn new(plan: WorkloadPlan, corpus: Corpus) -> Result<Self, DrawError> {
        // Drawn prompts have the same lengths at both endpoints, and blocks are told by their token ids alone.
        let endpoint = match &plan.kind {
            WorkloadKind::Conversations(_) => return Err(DrawError::Conversations),
            WorkloadKind::Random(_) | WorkloadKind::Trace(_) => Endpoint::Completions,
            WorkloadKind::Sharegpt(_) | WorkloadKind::Jsonl(_) => plan.endpoint,
        };
        Ok(Self { plan: WorkloadPlan { endpoint, ..plan }, material: Material { corpus, ..Material::default() } })
    }

    /// Whether its prompts may be texts, of which nobody here knows the tokens.
    pub(super) fn has_texts(&self) -> bool {
        matches!(self.plan.kind, WorkloadKind::Sharegpt(_) | WorkloadKind::Jsonl(_))
    }

    /// Up to [`DRAWS`] draws of a run, at least one. `block` is the engine's block of the prefix cache, in tokens; none where it has
    /// no such cache.
    ///
    /// # Errors
    /// Mean lengths that no draw comes near, or too many failures.
    pub(super) fn draw(&self, run: &Summary, block: Option<u32>) -> Result<Vec<Vec<Arrival>>, DrawError> {
        let (prompts, completed) = (run.prompts, run.completed);
        if f64::from(completed) < (1.0 - TOLERANCE) * f64::from(prompts) {
            return Err(DrawError::Failures { completed, prompts });
        }
        let arrivals = if (run.burstiness - 1.0).abs() < 1e-9 {
            ArrivalProcess::Poisson
        } else {
            ArrivalProcess::Gamma { burstiness: run.burstiness }
        };
        let plan = WorkloadPlan { arrivals, ..self.plan.clone() };
        let (mut draws, mut input, mut output) = (Vec::new(), 0.0, 0.0);
        for seed in 1..=TRIES {
            let drawn = outline(&plan, &self.material, pace(run, seed), prompts as usize, |_| Seconds(0.0));
            let mean = |tokens: f64| tokens / drawn.len().max(1) as f64;
            let means = (
                mean(drawn.iter().map(|r| f64::from(r.prompt_tokens)).sum()),
                mean(drawn.iter().map(|r| f64::from(r.output_tokens)).sum()),
            );
            (input, output) = (input + means.0 / TRIES as f64, output + means.1 / TRIES as f64);
            let near = |drawn: f64, told: f64| (drawn / told - 1.0).abs() <= TOLERANCE;
            if near(means.0, run.input_tokens) && near(means.1, run.output_tokens) {
                draws.push(self.arrivals(&plan, run, seed, block));
            }
            if draws.len() == DRAWS {
                break;
            }
        }
        if draws.is_empty() {
            let (drawn_input, drawn_output) = (input, output);
            let (input, output) = (run.input_tokens, run.output_tokens);
            return Err(DrawError::Lengths { drawn_input, drawn_output, input, output });
        }
        Ok(draws)
    }

    fn arrivals(&self, plan: &WorkloadPlan, run: &Summary, seed: u64, block: Option<u32>) -> Vec<Arrival> {
        let mut source = source(plan, &self.material, pace(run, seed));
        let planned: Vec<Planned> = std::iter::from_fn(|| source.take()).take(run.prompts as usize).collect();
        // `vllm bench serve` stretches its gaps so that the last request is due when the rate says.
        let last = planned.last().map_or(0.0, |planned| planned.due.0);
        let stretch = match run.rate {
            Some(rate) if last > 0.0 => f64::from(run.prompts) / rate.0 / last,
            _ => 1.0,
        };
        let arrival = |planned: &Planned| {
            let mut prompt = match (&planned.prompt, block) {
                (Prompt::Tokens(_), Some(block)) => prompt_shape(&planned.prompt, block, true),
                _ => crate::twin::PromptShape::default(),
            };
            prompt.tokens = planned.prompt_tokens.max(1);
            let output_tokens = planned.output_tokens.max(1);
            Arrival { id: u64::from(planned.id), due_s: planned.due.0 * stretch, prompt, output_tokens }
        };
        planned.iter().map(arrival).collect()
    }
}

fn pace(run: &Summary, seed: u64) -> Pace {
    Pace {
        demand: run.rate.map_or(Demand::AllAtOnce(run.prompts), Demand::Open),
        horizon: Seconds(1e12),
        arrival_seed: mix(seed, &[1]),
        content_seed: mix(seed, &[2]),
        shared_seed: mix(seed, &[3]),
        answer_time: Seconds(0.0),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::units::Rate;

    /// A workload of uniform lengths behind a shared prefix of 64 tokens.
    pub(in crate::calibration) fn asked() -> Asked {
        let text = "[workload]\nkind = \"random\"\ninput_tokens = { distribution = \"uniform\", min = 100, max = 300 }\noutput_tokens = 16\n\
                    shared_prefix_tokens = 64\nendpoint = \"chat\"\n";
        Asked::new(crate::settings::traffic("a", text).unwrap().0, Corpus::default()).unwrap()
    }

    pub(in crate::calibration) fn run(rate: Option<Rate>) -> Summary {
        let measured = crate::twin::Aggregates::default();
        Summary {
            rate,
            burstiness: 1.0,
            prompts: 60,
            completed: 60,
            input_tokens: 264.0,
            output_tokens: 16.0,
            measured,
        }
    }

    #[test]
    fn draws_have_the_rate_and_the_lengths_of_the_run_and_its_sharing() {
        let draws = asked().draw(&run(Some(Rate(20.0))), Some(16)).unwrap();
        assert_eq!(draws.len(), DRAWS);
        assert_ne!(draws[0], draws[1]);
        for draw in &draws {
            let mean = draw.iter().map(|a| f64::from(a.prompt.tokens)).sum::<f64>() / 60.0;
            assert!(draw.len() == 60 && (mean / 264.0 - 1.0).abs() <= TOLERANCE, "{mean}");
            assert!((draw[59].due_s - 3.0).abs() < 1e-9 && draw.is_sorted_by_key(|a| a.due_s));
            assert!(draw.iter().all(|a| a.prompt.blocks[..4] == draw[0].prompt.blocks[..4]));
            assert_ne!(draw[0].prompt.blocks[4], draw[1].prompt.blocks[4]);
        }
        let at_once = asked().draw(&run(None), None).unwrap();
        assert!(at_once[0].iter().all(|a| a.due_s == 0.0 && a.prompt.blocks.is_empty()));
        let bursty = Summary { burstiness: 0.1, ..run(Some(Rate(20.0))) };
        let within = |draws: &[Vec<Arrival>]| draws[0].windows(2).filter(|w| w[1].due_s - w[0].due_s < 5e-3).count();
        assert!(within(&asked().draw(&bursty, None).unwrap()) > 2 * within(&draws));
    }

    #[test]
    fn a_workload_that_was_not_asked_is_refused_with_both_numbers() {
        let longer = Summary { input_tokens: 400.0, ..run(Some(Rate(20.0))) };
        let said = asked().draw(&longer, None).unwrap_err().to_string();
        assert!(said.contains("400") && said.contains("hint: the lengths of [workload]"), "{said}");
        let failing = Summary { completed: 40, ..run(None) };
        assert!(asked().draw(&failing, None).unwrap_err().to_string().contains("40 of 60"));
    }

    #[test]
    fn conversations_are_refused() {
        let text = "[workload]\nkind = \"conversations\"\nstarters = 2\nstarter_tokens = 100\nturns = 3\nquestion_tokens = 20\n\
                    output_tokens = 10\nthink_time = \"1s\"\n";
        let plan = crate::settings::traffic("a", text).unwrap().0;
        assert_eq!(Asked::new(plan, Corpus::default()).unwrap_err(), DrawError::Conversations);
    }
}
