//! The limits of a running simulated engine, asked and told by the file that vLLM's live scheduler reads; see `engine/dialects/vllm/live_scheduler.py`.

use std::fs::File;
use std::io;
use std::path::Path;

use super::args::SimArgs;
use autotune_plan::engine::live::{LIVE_FILE, LIVE_SCHEDULER};
use autotune_plan::engine::live_file::{ANSWER, LiveWords};
use autotune_twin::{Limits, Scheduler, Step};

/// The file, and what is in force.
pub(super) struct LiveLimits {
    words: LiveWords,
    launched_with: Limits,
    change: i64,
    /// Since the last change: steps, the most sequences that ran, the most tokens of a step.
    seen: [i64; 3],
}

impl LiveLimits {
    /// Those of an engine with that scheduler; `None` if it has vLLM's own.
    pub(super) fn of(args: &SimArgs, launched_with: Limits) -> io::Result<Option<Self>> {
        if args.scheduler_cls.as_deref() != Some(LIVE_SCHEDULER) {
            return Ok(None);
        }
        let unnamed = || io::Error::other(format!("KeyError: '{LIVE_FILE}'"));
        Self::open(args.sim_live_limits.as_ref().ok_or_else(unnamed)?, launched_with).map(Some)
    }

    fn open(path: &Path, launched_with: Limits) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        let live = Self { words: LiveWords(file), launched_with, change: 0, seen: [0; 3] };
        live.words.write(ANSWER + 1, i64::from(launched_with.max_num_seqs))?;
        live.words.write(ANSWER + 2, i64::from(launched_with.max_num_batched_tokens))?;
        Ok(live)
    }

    /// Takes other limits where some were asked for.
    pub(super) fn look(&mut self, scheduler: &mut Scheduler) -> io::Result<()> {
        let change = self.words.read(0)?;
        if change == self.change {
            return Ok(());
        }
        self.change = change;
        let most = self.launched_with;
        let asked = |word: i64, most: u32| if word == 0 { Some(most) } else { u32::try_from(word).ok() };
        let seqs = asked(self.words.read(1)?, most.max_num_seqs).filter(|seqs| *seqs <= most.max_num_seqs);
        let tokens =
            asked(self.words.read(2)?, most.max_num_batched_tokens).filter(|t| *t <= most.max_num_batched_tokens);
        let Some((seqs, tokens)) = seqs.zip(tokens).filter(|(seqs, tokens)| seqs <= tokens) else {
            return self.words.write(ANSWER, -change);
        };
        scheduler.limit(seqs, tokens);
        self.seen = [0; 3];
        self.words.write(ANSWER, change)
    }

    pub(super) fn tell(&mut self, running: u32, step: &Step) -> io::Result<()> {
        // Those that ended ran in it.
        let ran = i64::from(running) + step.finished.len() as i64;
        let [steps, most_ran, most_tokens] = self.seen;
        self.seen = [steps + 1, most_ran.max(ran), most_tokens.max(step.scheduled as i64)];
        (ANSWER + 3..).zip(self.seen).try_for_each(|(word, value)| self.words.write(word, value))
    }
}
