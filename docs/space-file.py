#!/usr/bin/env python3
"""Writes docs/space-file.md from search-spaces/space.schema.json. With --check it writes nothing and fails where the file differs."""
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SCHEMA = json.loads((ROOT / "search-spaces/space.schema.json").read_text())
PAGE = ROOT / "docs/space-file.md"
ORDER = ["slo", "engine", "workload", "parameters", "search", "probe", "budget"]

HEAD = """# The space file

<!-- Made by docs/space-file.py from search-spaces/space.schema.json. Change the rows in crates/plan/src/settings. Write the schema anew with UPDATE=1 cargo test --test cli, and run the script. -->

One TOML file is the whole job. `search-spaces/*.toml` teach it by example, and `autotune check --space FILE` shows mistakes with file, line, caret and a hint, all at once.
It also asks the engine's program for its help, for at most `--help-timeout` (60 s). Flags of `engine.args` and `[parameters]` that are not listed there are refused.
Where the engine cannot be asked, the flags of vLLM 0.32, SGLang 0.5.23 or Dynamo 1.6.1 decide, with warnings. Flags with one dash, such as `-tp`, are not compared.
An editor that reads `search-spaces/space.schema.json` completes keys; put `#:schema ./space.schema.json` in the first line.

| value | how it is written |
|---|---|
| duration | number and unit: `us`, `ms`, `s`, `m`, `h`; `"90s"`, `"1.5m"`, `"1h30m"` |
| share | `"3%"` or `0.03` |
| lengths | tokens: a number, or a table such as `{ distribution = "uniform", min = 150, max = 250 }` |

Units: rates are requests per second, lengths are tokens.

## Lengths

| `distribution` | keys |
|---|---|
LENGTHS
Draws are limited to `min` and `max`.
"""

SLO = """Each key is `METRIC_pQUANTILE`, each value a duration. Metrics are `ttft`, `tpot`, `itl` and `e2e`; quantiles have one or two digits, perhaps with decimals: `ttft_p99`, `e2e_p99.9`
(in quotes) or `e2e_p99_9`. At least one promise is required. The run certifies a rate at which all of them hold."""

PARAMETERS = """Each key is a flag of the engine without its dashes, or `env.NAME` for a variable of its environment. Each value is a table with these keys: either `values`, or `min` and `max`.
A parameter without `default` takes the running engine's own value as the baseline. The word `off` leaves the flag or the variable out of the launch.

```toml
speculative-config = { values = ["off", '{"method":"ngram","num_speculative_tokens":4}'], default = "off" }
block-size = { values = [16, 32], default = 16, when = "speculative-config != off" }
"env.VLLM_ATTENTION_BACKEND" = { values = ["FLASH_ATTN", "FLASHINFER"], default = "FLASH_ATTN" }
tensor-parallel-size = { values = [1, 2, 4], default = 1 }
```

`when` compares other parameters as a constraint does. A point where the condition fails has no value of the parameter. Its flag is left out, and points that differ in it alone are one. With a `default` of its own it needs one of each parameter that the condition names.
The twin has a term for `max-num-seqs`, `max-num-batched-tokens`, `gpu-memory-utilization`, `max-model-len`, `kv-cache-memory-bytes`, `enable-prefix-caching` and `block-size`.
Where another parameter has several values, the session has no twin. Violations are counted, and a Gaussian process learns what every parameter does. Each word or switch without a term is launched at least once.
A value of `tensor-parallel-size` that takes more GPUs than there are is left out. They are counted by `nvidia-smi`, or by `CUDA_VISIBLE_DEVICES`; `check` says so before a run."""

TRTLLM = """

With `backend = "trtllm"`, a setting of TensorRT-LLM is `"trtllm.KEY"` in quotes, with dots between nested keys. A launch writes `--trtllm.KEY VALUE`, which wins over every other way:

```toml
"trtllm.max_batch_size" = { values = [32, 64, 128], default = 64 }
"trtllm.max_num_tokens" = { values = [4096, 8192], default = 8192 }
"trtllm.kv_cache_config.free_gpu_memory_fraction" = { min = 0.7, max = 0.95, step = 0.05, default = 0.9 }
```

The fraction is that of the memory which is free once the model is loaded: values of `gpu-memory-utilization` do not carry over. `--max-batch-size` and the worker's other flags for settings,
`--override-engine-args`, and `--extra-engine-args` beside a nested setting are refused, since one would overrule or drop the other. What came of all arguments is read from the worker's log.
A launch has `--publish-metrics`, which costs some time in each step; `--no-publish-metrics` in `engine.args` turns it off, and with it the counters of running and waiting requests."""

SEARCH = """`constraints` are comparisons such as `"max-num-batched-tokens >= max-num-seqs"`. Points that break one are never launched. Words and switches are compared with `==` and `!=`.
One of several comparisons is enough where `or` stands between them: `"max-num-seqs <= 64 or max-num-batched-tokens >= 4096"`."""


def kind_of(schema):
    """What a value is, in a few words."""
    if "enum" in schema:
        return ", ".join(f"`{word}`" for word in schema["enum"])
    if "$ref" in schema:
        return {"duration": "duration", "positive_duration": "duration", "lengths": "lengths"}[schema["$ref"].split("/")[-1]]
    if "anyOf" in schema:
        return "share"
    kind = schema.get("type", "")
    if kind == "array":
        items = schema.get("items", {}).get("type", "")
        return "list of strings" if items == "string" else "list"
    if kind == "object":
        return "table of strings"
    if isinstance(kind, list):
        return "number, string or boolean"
    words = {"integer": "integer", "number": "number", "boolean": "boolean", "string": "string"}.get(kind, "")
    low, high = schema.get("minimum"), schema.get("maximum")
    if kind == "integer" and low is not None and high is not None and high < 10**12:
        words += f", {low} to {high}"
    elif "exclusiveMinimum" in schema:
        words += f" above {schema['exclusiveMinimum']}"
    return words


def default_of(schema):
    value = schema.get("default")
    if "default" not in schema or value in ([], {}):
        return ""
    return f"`{json.dumps(value)}`"


def decider(variant):
    """The value of the deciding key for which a variant holds."""
    (key, rule), *_ = variant["if"].get("properties", {"": {}}).items()
    return key, rule.get("const")


def rows(table):
    variants = [(decider(v)[1], v["then"]) for v in table.get("allOf", [])]
    for name, schema in table["properties"].items():
        required = name in table.get("required", [])
        kinds, defaults, words, needed = [], [], [], []
        for word, then in variants:
            own = then.get("properties", {}).get(name, {})
            if own is False or word is None:
                continue
            words.append(word)
            if own:
                kinds.append((kind_of(own), word))
                defaults.append((default_of(own), word))
            if name in then.get("required", []):
                needed.append(word)
        kind, default = kind_of(schema), default_of(schema)
        if kinds:
            kind = same(kinds)
            default = same(defaults)
        only = "" if len(words) == len(variants) or not words else ", ".join(f"`{w}`" for w in words)
        must = "yes" if required or (needed and needed == words) else ", ".join(f"`{w}`" for w in needed)
        yield [f"`{name}`", schema.get("description", ""), kind, default, must, only]


def same(pairs):
    values = [value for value, _ in pairs]
    if len(set(values)) == 1:
        return values[0]
    groups = {}
    for value, word in pairs:
        groups.setdefault(value, []).append(f"`{word}`")
    return "; ".join(f"{value or 'none'} ({', '.join(words)})" for value, words in groups.items())


def table(schema):
    lines = [["key", "meaning", "value", "default", "required", "only for"], ["---"] * 6, *rows(schema)]
    keep = [i for i in range(6) if any(line[i] for line in lines[2:])]
    return "\n".join("| " + " | ".join(line[i] for i in keep) + " |" for line in lines)


def lengths():
    made = []
    for variant in SCHEMA["$defs"]["lengths"]["anyOf"][1]["allOf"]:
        _, word = decider(variant)
        forbidden = {key for key, rule in variant["then"]["properties"].items() if rule is False}
        keys = [k for k in SCHEMA["$defs"]["lengths"]["anyOf"][1]["properties"] if k not in forbidden and k != "distribution"]
        must = variant["then"].get("required", [])
        made.append(f"| `{word}` | " + ", ".join(f"`{k}`" + ("" if k in must else " (optional)") for k in keys) + " |")
    return "\n".join(made) + "\n"


def page():
    parts = [HEAD.replace("LENGTHS\n", lengths() + "\n")]
    for name in ORDER + [n for n in SCHEMA["properties"] if n not in ORDER]:
        section = SCHEMA["properties"][name]
        parts.append(f"## `[{name}]`" + (" (required)" if name in SCHEMA["required"] else ""))
        parts.append(section["description"])
        if name == "slo":
            parts.append(SLO)
        elif name == "parameters":
            parts += [PARAMETERS + TRTLLM, table(SCHEMA["$defs"]["parameter"])]
        else:
            if name == "search":
                parts.append(SEARCH)
            parts.append(table(section))
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


if __name__ == "__main__":
    if "--check" in sys.argv:
        if not PAGE.exists() or PAGE.read_text() != page():
            sys.exit(f"{PAGE.relative_to(ROOT)} differs from the schema: run docs/space-file.py")
    else:
        PAGE.write_text(page())
