"""A logits processor of vLLM: each step of a sequence ends it with a probability of 1/250, as a trained model ends its answers."""
import torch
from vllm.v1.sample.logits_processor import LogitsProcessor


class EarlyStop(LogitsProcessor):
    def __init__(self, vllm_config, device, is_pin_memory):
        self.end = vllm_config.model_config.hf_config.eos_token_id

    def is_argmax_invariant(self):
        return False

    def update_state(self, batch_update):
        pass

    def apply(self, logits):
        logits[:, self.end].masked_fill_(torch.rand(logits.shape[0], device=logits.device) < 1 / 250, 1e4)
        return logits
