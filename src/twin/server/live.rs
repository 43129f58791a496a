//! The limits of a running simulated engine, asked and told by the file that vLLM's live scheduler reads; see `engine/live_scheduler.py`.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::args::SimArgs;
use crate::engine::live::LIVE_FILE;
use crate::twin::{Limits, Scheduler, Step};

/// What `--scheduler-cls` names where limits are live.
pub(super) const SCHEDULER: &str = "autotune_live.Scheduler";

/// The first word of the engine's answer.
const TOLD: u64 = 16;

/// The file, and what is in force.
pub(super) struct LiveLimits {
    file: File,
    launched_with: Limits,
    change: i64,
    /// Since the last change: steps, the most sequences that ran, the most tokens of a step.
    seen: [i64; 3],
}

impl LiveLimits {
    /// Those of an engine with that scheduler; none where it has vLLM's own.
    pub(super) fn of(args: &SimArgs, launched_with: Limits) -> io::Result<Option<Self>> {
        if args.scheduler_cls.as_deref() != Some(SCHEDULER) {
            return Ok(None);
        }
        let unnamed = || io::Error::other(format!("KeyError: '{LIVE_FILE}'"));
        Self::open(args.sim_live_limits.as_ref().ok_or_else(unnamed)?, launched_with).map(Some)
    }

    fn open(path: &Path, launched_with: Limits) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        let live = Self { file, launched_with, change: 0, seen: [0; 3] };
        live.write(TOLD + 1, i64::from(launched_with.max_num_seqs))?;
        live.write(TOLD + 2, i64::from(launched_with.max_num_batched_tokens))?;
        Ok(live)
    }

    /// Takes other limits where some were asked for.
    pub(super) fn look(&mut self, scheduler: &mut Scheduler) -> io::Result<()> {
        let change = self.read(0)?;
        if change == self.change {
            return Ok(());
        }
        self.change = change;
        let most = self.launched_with;
        let asked = |word: i64, most: u32| if word == 0 { Some(most) } else { u32::try_from(word).ok() };
        let seqs = asked(self.read(1)?, most.max_num_seqs).filter(|seqs| *seqs <= most.max_num_seqs);
        let tokens = asked(self.read(2)?, most.max_num_batched_tokens).filter(|t| *t <= most.max_num_batched_tokens);
        let Some((seqs, tokens)) = seqs.zip(tokens).filter(|(seqs, tokens)| seqs <= tokens) else {
            return self.write(TOLD, -change);
        };
        scheduler.limit(seqs, tokens);
        self.seen = [0; 3];
        self.write(TOLD, change)
    }

    /// Tells what a step did.
    pub(super) fn tell(&mut self, running: u32, step: &Step) -> io::Result<()> {
        // Those that ended ran in it.
        let ran = i64::from(running) + step.finished.len() as i64;
        let [steps, most_ran, most_tokens] = self.seen;
        self.seen = [steps + 1, most_ran.max(ran), most_tokens.max(step.scheduled as i64)];
        (TOLD + 3..).zip(self.seen).try_for_each(|(word, value)| self.write(word, value))
    }

    fn write(&self, word: u64, value: i64) -> io::Result<()> {
        self.file.write_all_at(&value.to_ne_bytes(), 8 * word)
    }

    fn read(&self, word: u64) -> io::Result<i64> {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, 8 * word)?;
        Ok(i64::from_ne_bytes(bytes))
    }
}
