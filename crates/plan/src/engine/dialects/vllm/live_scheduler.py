"""vLLM's own scheduler, with limits that are read from a file before each step, so that one launch serves many configurations.

Loaded by `--scheduler-cls autotune_live.Scheduler`; AUTOTUNE_LIVE_LIMITS names the file. It holds native 64-bit integers. Asked, from word 0:
  0 number of the change   1 max_num_seqs   2 max_num_batched_tokens (0: as at the launch)
Answered, from word 16:
  16 number of the change in force (negative: refused)   17, 18 the limits of the launch
  and since that change: 19 steps   20 the most requests that ran   21 the most tokens of a step
Whoever asks writes the limits first and the number last. An idle engine makes no step: a request makes it look.

Written for the scheduler of vLLM 0.24 to 0.33, which is no public interface: who asks must see the answer.
"""

import copy
import mmap
import os

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler as SyncScheduler

ASKED, TOLD, WORDS = slice(0, 3), 16, 512


class _Live:
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        with open(os.environ["AUTOTUNE_LIVE_LIMITS"], "r+b") as file:
            file.truncate(8 * WORDS)
            self._words = memoryview(mmap.mmap(file.fileno(), 8 * WORDS)).cast("q")
        # Its own copy: buffers were sized by the original, which must not change.
        self.scheduler_config = copy.copy(self.scheduler_config)
        config = self.scheduler_config
        self._launched_with = (config.max_num_seqs, config.max_num_batched_tokens)
        # Admission apart from the slots of a batch, which 0.24 does not have.
        self._admits_apart = hasattr(self, "max_num_active_reqs")
        self._change, self._seqs = 0, config.max_num_seqs
        self._words[TOLD + 1], self._words[TOLD + 2] = self._launched_with

    def _look(self):
        change, seqs, tokens = self._words[ASKED].tolist()
        if change == self._change:
            return
        self._change = change
        most_seqs, most_tokens = self._launched_with
        seqs, tokens = seqs or most_seqs, tokens or most_tokens
        if not (1 <= seqs <= most_seqs and seqs <= tokens <= most_tokens):
            self._words[TOLD] = -change
            return
        self._seqs = seqs
        if self._admits_apart:
            self.max_num_active_reqs = seqs
        self.scheduler_config.max_num_batched_tokens = tokens
        self.max_num_scheduled_tokens = tokens
        for word in (3, 4, 5):
            self._words[TOLD + word] = 0
        self._words[TOLD] = change

    def schedule(self, *args, **kwargs):
        self._look()
        if not self._admits_apart:
            # It asserts that no more run than may: those that run already end first.
            self.max_num_running_reqs = max(self._seqs, len(self.running))
        scheduled = super().schedule(*args, **kwargs)
        told = self._words
        told[TOLD + 3] += 1
        told[TOLD + 4] = max(told[TOLD + 4], len(self.running))
        told[TOLD + 5] = max(told[TOLD + 5], scheduled.total_num_scheduled_tokens)
        return scheduled


def Scheduler(*args, vllm_config, **kwargs):
    """vLLM only calls what --scheduler-cls names: a function may choose the class that fits."""
    base = AsyncScheduler if vllm_config.scheduler_config.async_scheduling else SyncScheduler
    return type("LiveScheduler", (_Live, base), {})(*args, vllm_config=vllm_config, **kwargs)
