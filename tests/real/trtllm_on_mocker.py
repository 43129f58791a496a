"""`python -m dynamo.trtllm` without TensorRT-LLM: the real command line of Dynamo's wheel, and its mocker in the engine's place.

    trtllm_on_mocker.py -m dynamo.trtllm --model-path FOLDER --trtllm.max_batch_size 64 ...

The wheel's own parser reads the arguments, and its own merge says which of them win. TensorRT-LLM itself is stubbed by the four defaults that
the parser asks it for. The mocker runs what came of it with `--engine-type trtllm`. Its KV cache has the tuned share of BLOCKS blocks; a share
above MOST ends as TensorRT-LLM ends when memory runs out. Any other module is run as it is.
"""

import json
import os
import sys
import types

BLOCKS = 512
MOST = 0.95


def stubbed():
    """TensorRT-LLM, as far as the parser asks."""
    field = lambda default: types.SimpleNamespace(default=default)
    defaults = {"max_batch_size": 2048, "max_num_tokens": 8192, "max_seq_len": None, "max_beam_width": 1}
    llmapi = types.ModuleType("tensorrt_llm.llmapi")
    llmapi.BuildConfig = types.SimpleNamespace(model_fields={name: field(value) for name, value in defaults.items()})
    sys.modules.update({"tensorrt_llm": types.ModuleType("tensorrt_llm"), "tensorrt_llm.llmapi": llmapi})


def engine_args(words):
    """What came of the arguments, in the order of `dynamo/trtllm/workers/llm_worker.py`."""
    from dynamo.trtllm.args import parse_args
    from dynamo.trtllm.utils.trtllm_utils import deep_update

    config = parse_args(words)
    merged = {
        "model": config.model,
        "tensor_parallel_size": config.tensor_parallel_size,
        "kv_cache_config": {"free_gpu_memory_fraction": config.free_gpu_memory_fraction},
        "max_num_tokens": config.max_num_tokens,
        "max_seq_len": config.max_seq_len,
        "max_batch_size": config.max_batch_size,
        "enable_iter_perf_stats": config.publish_metrics,
    }
    if config.override_engine_args:
        overrides = json.loads(config.override_engine_args)
        # The real worker has an object there, which an override replaces as a whole.
        if "kv_cache_config" in overrides:
            del merged["kv_cache_config"]
        deep_update(merged, overrides)
    return config, merged


def main(words):
    module, words = words[1], words[2:]
    if module != "dynamo.trtllm":
        os.execv(sys.executable, [sys.executable, "-m", module, *words])
    stubbed()
    from dynamo._core import log_message
    from dynamo.runtime.logging import configure_dynamo_logging

    configure_dynamo_logging()
    config, merged = engine_args(words)
    log_message("info", f"TensorRT-LLM engine args: {merged}", "llm_worker.init_llm_worker", __file__, 0)
    share = merged["kv_cache_config"].get("free_gpu_memory_fraction", 0.9)
    if share > MOST:
        sys.exit("RuntimeError: Executor creation failed due to insufficient GPU memory.")
    mocked = {
        "--model-path": config.model,
        "--model-name": config.served_model_name or config.model,
        "--engine-type": "trtllm",
        "--block-size": config.kv_block_size,
        "--max-num-seqs": merged["max_batch_size"],
        "--max-num-batched-tokens": merged["max_num_tokens"],
        "--num-gpu-blocks-override": int(BLOCKS * share),
    }
    words = [str(word) for pair in mocked.items() for word in pair]
    os.execv(sys.executable, [sys.executable, "-m", "dynamo.mocker", *words])


main(sys.argv[1:])
