//! Every mistake, with its place and its remedy.

use super::super::{EngineKind, parse};
use super::{FULL, SMALL};

/// One mistake: the part of [`FULL`] that it replaces, the mistake, and what must be read about it.
///
/// `at` is the text that the caret points at; the report must give its line and column.
struct Mistake {
    from: &'static str,
    to: &'static str,
    at: &'static str,
    message: &'static str,
    hint: &'static str,
}

const fn mistake(
    from: &'static str,
    to: &'static str,
    at: &'static str,
    message: &'static str,
    hint: &'static str,
) -> Mistake {
    Mistake { from, to, at, message, hint }
}

const SEQS: &str = "max-num-seqs = { values = [64, 32, 48], default = 64 }";
const GPU: &str = "gpu-memory-utilization = { min = 0.88, max = 0.91, step = 0.01, default = 0.9 }";
const INPUT: &str = "input_tokens = { distribution = \"lognormal\", median = 800, sigma = 0.8, min = 16, max = 8000 }";
const WORKLOAD: &str = "kind = \"random\"
endpoint = \"chat\"
ignore_eos = false
input_tokens = { distribution = \"lognormal\", median = 800, sigma = 0.8, min = 16, max = 8000 }
output_tokens = 256
shared_prefix_tokens = 512
shared_prefixes = 4
";
const CONSTRAINT: &str = "\"max-num-batched-tokens >= 4 * max-num-seqs\"";
const ARGS: &str = "\"--max-model-len\", \"16384\"";

#[rustfmt::skip]
const MISTAKES: &[Mistake] = &[
    // What the engine cannot take.
    mistake(SEQS, "max-num-seqs = { min = 0, max = 128, step = 16 }", "0, max", "the engine cannot take `max-num-seqs` 0", "an integer of at least 1"),
    mistake(SEQS, "max-num-seqs = { min = -8, max = 128, step = 8 }", "-8, max", "the engine cannot take `max-num-seqs` -8", "an integer of at least 1"),
    mistake(SEQS, "max-num-seqs = { values = [64, 0, 48] }", "0, 48", "the engine cannot take `max-num-seqs` 0", "an integer of at least 1"),
    mistake(GPU, "gpu-memory-utilization = { min = 0.9, max = 1.1, step = 0.1 }", "1.1, step", "the engine cannot take `gpu-memory-utilization` 1.1", "at most 1"),
    mistake(ARGS, "\"--max-model-len\", \"-16384\"", "\"-16384\"", "the engine cannot take `max-model-len` -16384", "at least -1"),
    // Variables of the environment, conditions and alternatives.
    mistake(SEQS, "max-num-seqs = { values = [64, 32], default = 64 }\n\"env.2X\" = { values = [1] }", "\"env.2X\"", "`env.2X` names no variable", "env.NAME in quotes"),
    mistake(SEQS, "max-num-seqs = { values = [64, 32], default = 64 }\n\"env.HF_HUB_OFFLINE\" = { values = [\"0\", \"1\"] }", "HF_HUB_OFFLINE = \"1\"", "`env.HF_HUB_OFFLINE` is tuned and also fixed in `engine.env`", "remove it here"),
    mistake(SEQS, "max-num-seqs = { values = [64, 32], default = 64 }\n\"env.CUDA_VISIBLE_DEVICES\" = { values = [\"0\", \"1\"] }", "\"env.CUDA_VISIBLE_DEVICES\"", "`env.CUDA_VISIBLE_DEVICES` cannot be tuned", "remove it"),
    mistake("HF_HUB_OFFLINE = \"1\"", "TMPDIR = \"/x\"", "TMPDIR", "`engine.env` sets TMPDIR, and every launch has another value", "remove it"),
    mistake(SEQS, "max-num-seqs = { values = [64, 32], when = \"attention-backend > FLASHINFER\" }", "\"attention-backend > FLASHINFER\"", "asks whether a word is larger", "== or !="),
    mistake(SEQS, "max-num-seqs = { values = [64, 32], when = \"attention-backend == FLASH\" }", "\"attention-backend == FLASH\"", "`FLASH` is not one of the parameters", "the parameters are"),
    mistake(SEQS, "max-num-seqs = { values = [64, 32], when = \"max-num-seqs > 32\" }", "\"max-num-seqs > 32\"", "names `max-num-seqs`, which has a condition itself", "always exist"),
    mistake(SEQS, "block-size = { values = [16, 32] }\nmax-num-seqs = { values = [64, 32], default = 64, when = \"block-size > 16\" }", "\"block-size > 16\"", "the default of `max-num-seqs` is never used: `block-size`, which decides it, has none", "give `block-size` a default, or remove that of `max-num-seqs`"),
    mistake(SEQS, "max-num-seqs = { values = [64, 32], when = \"gpu-memory-utilization > 2\" }", "\"gpu-memory-utilization > 2\"", "`max-num-seqs` never exists", "relax its condition"),
    mistake(CONSTRAINT, "\"max-num-batched-tokens < 8 or max-num-seqs < 8\"", "\"max-num-batched-tokens < 8 or max-num-seqs < 8\"", "excludes every point", "relax it"),
    // The syntax of TOML.
    mistake("port = 8011", "port = ", "\nstart_timeout", "not valid TOML", "write a value after `=`"),
    mistake("kind = \"vllm\"", "kind = vllm", "vllm\ncommand", "not valid TOML", "double quotes"),
    mistake("port = 8011", "port = 8011\nport = 8012", "port = 8012", "not valid TOML", "keep one of them"),
    mistake("[budget]", "[probe]", "probe]\ngpu_time", "not valid TOML", "keep one of them"),
    // Sections and keys.
    mistake("[budget]", "[budgte]", "budgte", "unknown section `budgte`", "did you mean `[budget]`?"),
    mistake("[budget]", "[kubernetes]", "kubernetes", "unknown section `kubernetes`", "the sections are `slo`, `engine`"),
    mistake("[slo]", "candidates = 3\n[slo]", "candidates = 3", "unknown key `candidates`", "belongs to `[search]`"),
    mistake("[budget]\ngpu_time = \"2h\"", "[[budget]]\ngpu_time = \"2h\"", "[[budget]]", "`budget` is no section", "write `[budget]` on a line of its own"),
    mistake("stall_timeout", "stal_timeout", "stal_timeout", "unknown key `stal_timeout` in `engine`", "did you mean `stall_timeout`?"),
    mistake("seed = 7", "seed = 7\nwindow = \"60s\"", "window = \"60s\"\ncon", "unknown key `window` in `search`", "`window` belongs to `[probe]`"),
    mistake("command = [", "comand = [", "comand", "unknown key `comand` in `engine`", "did you mean `command`?"),
    mistake("[engine]", "[engin]", "engin]", "unknown section `engin`", "did you mean `[engine]`?"),
    mistake("gpu_time = \"2h\"", "dollars = 3", "dollars", "unknown key `dollars` in `budget`", "`budget` takes `gpu_time`"),
    mistake("output_tokens = 256\n", "", "workload]", "`workload` lacks `output_tokens`", "add `output_tokens = 256`: tokens of an answer"),
    mistake("kind = \"vllm\"\n", "", "engine]", "`engine` lacks `kind`", "\"vllm\" or \"sglang\" or \"dynamo\" or \"simulated\""),
    mistake("command = [\"vllm\", \"serve\", \"/models/x\"]\n", "", "engine]", "`engine` lacks `command`", "add `command = [\"vllm\", \"serve\", \"MODEL\"]`"),
    mistake("shared_prefixes = 4", "turns = 4", "turns", "`turns` belongs to `kind = \"conversations\" or \"sharegpt\"`", "remove `turns`, or set `kind = \"conversations\" or \"sharegpt\"`"),
    // Types and words.
    mistake("kind = \"vllm\"", "kind = \"vlm\"", "\"vlm\"", "`engine.kind` cannot be \"vlm\"", "did you mean \"vllm\"?"),
    mistake("strategy = \"bisect\"", "strategy = \"annealing\"", "\"annealing\"", "`search.strategy` cannot be \"annealing\"", "write \"bayes\" or"),
    mistake("port = 8011", "port = \"8011\"", "\"8011\"", "wrong type for `engine.port`", "remove the quotes: 8011"),
    mistake("port = 8011", "port = 0", "0\nstart", "`engine.port` is out of range", "write an integer from 1 to 65535"),
    mistake("ignore_eos = false", "ignore_eos = \"false\"", "\"false\"", "wrong type for `workload.ignore_eos`", "remove the quotes: false"),
    mistake("seed = 7", "seed = -7", "-7", "`search.seed` is out of range", "an integer from 0"),
    mistake("candidates = 12", "candidates = 1.5", "1.5", "wrong type for `search.candidates`", "write an integer"),
    mistake("candidates = 12", "candidates = 0", "0\nfirst", "`search.candidates` is out of range", "write an integer"),
    mistake("first_rate = 2.5", "first_rate = 0", "0\nseed", "`search.first_rate` is not greater than 0", "above 0"),
    mistake("first_rate = 2.5", "first_rate = inf", "inf", "`search.first_rate` is not greater than 0", "above 0"),
    mistake("command = [\"vllm\", \"serve\", \"/models/x\"]", "command = \"vllm serve x\"", "\"vllm serve x\"", "wrong type for `engine.command`", "[\"vllm\", \"serve\", \"x\"]"),
    mistake("command = [\"vllm\", \"serve\", \"/models/x\"]", "command = []", "[]", "`engine.command` is empty", "name the program"),
    mistake("command = [\"vllm\", ", "command = [\"\", ", "\"\", ", "`engine.command` names no program", "name the program first"),
    mistake("\"vllm\", \"serve\", \"/models/x\"", "\"python3\", \"-m\", \"dynamo.vllm\"", "\"dynamo.vllm\"", "`dynamo.vllm` takes no --host and --port, which every launch sets", "write \"vllm\", \"serve\""),
    mistake("\"vllm\", \"serve\", \"/models/x\"", "\"python3\", \"-m\", \"sglang.launch_server\"", "\"sglang.launch_server\"", "the command starts SGLang, and `engine.kind` is that of vLLM", "write the kind of SGLang"),
    mistake("\"vllm\", \"serve\", \"/models/x\"", "\"sh\", \"-c\", \"python3 -m huggingfaceserver $@\"", "\"python3 -m", "`huggingfaceserver` takes no", "autotune export"),
    mistake("\"16384\"", "16384", "16384", "`engine.args` holds strings only", "put it in quotes: \"16384\""),
    mistake("HF_HUB_OFFLINE = \"1\"", "HF_HUB_OFFLINE = 1", "1 }", "`engine.env` holds strings only", "put it in quotes: \"1\""),
    mistake("HF_HUB_OFFLINE = \"1\"", "\"A=B\" = \"1\"", "\"A=B\"", "no environment variable", "letters, digits"),
    mistake("precision = \"2.5%\"", "precision = \"60%\"", "\"60%\"", "`search.precision` is out of range", "from \"0.1%\" to \"50%\""),
    mistake("precision = \"2.5%\"", "precision = \"3\"", "\"3\"", "`search.precision` is no percentage", "add the percent sign: \"3%\""),
    mistake("precision = \"2.5%\"", "precision = 3", "3\nmin_gain", "`search.precision` is too large", "write \"3%\" or 0.03"),
    // Durations.
    mistake("ttft_p99 = \"1s\"", "ttft_p99 = 1", "1\ntpot", "`slo.ttft_p99` has no unit", "add a unit: \"1s\" for seconds or \"1ms\" for milliseconds"),
    mistake("ttft_p99 = \"1s\"", "ttft_p99 = \"250\"", "\"250\"", "`slo.ttft_p99` has no unit", "\"250ms\" for milliseconds"),
    mistake("gpu_time = \"2h\"", "gpu_time = \"2 hours\"", "\"2 hours\"", "`budget.gpu_time` has an unknown unit", "write \"2h\""),
    mistake("gpu_time = \"2h\"", "gpu_time = \"30m2h\"", "\"30m2h\"", "`budget.gpu_time` is no duration", "\"1h30m\""),
    mistake("gpu_time = \"2h\"", "gpu_time = \"long\"", "\"long\"", "`budget.gpu_time` is no duration", "a number and a unit"),
    mistake("gpu_time = \"2h\"", "gpu_time = \"9999h\"", "\"9999h\"", "longer than a year", "at most \"8760h\""),
    mistake("gpu_time = \"2h\"", "gpu_time = true", "true\n", "wrong type for `budget.gpu_time`", "a number and a unit"),
    mistake("window = \"60s\"", "window = \"0s\"", "\"0s\"", "`probe.window` must be longer than zero", "above 0"),
    mistake("stop_timeout = \"25s\"", "stop_timeout = \"0ms\"", "\"0ms\"", "`engine.stop_timeout` must be longer than zero", "above 0"),
    mistake("ramp = \"10s\"", "ramp = \"-10s\"", "\"-10s\"", "`probe.ramp` cannot be negative", "write \"10s\""),
    // Promises.
    mistake("ttft_p99 ", "tfft_p99 ", "tfft_p99", "unknown metric `tfft`", "did you mean `ttft_p99`?"),
    mistake("ttft_p99 ", "throughput_p99 ", "throughput", "unknown metric `throughput`", "the metrics are `ttft`, `tpot`, `itl` and `e2e`"),
    mistake("ttft_p99 ", "ttft_p0 ", "ttft_p0", "`ttft_p0` has no valid percentile", "from p1 to p99_999"),
    mistake("ttft_p99 ", "ttft_mean ", "ttft_mean", "`ttft_mean` has no valid percentile", "such as ttft_p99"),
    mistake("ttft_p99 ", "ttft ", "ttft =", "`ttft` is no latency limit", "such as ttft_p99"),
    mistake("ttft_p99 ", "ttft_p99.9 ", "ttft_p99.9", "`ttft_p99` holds a table", "as in ttft_p99_9"),
    mistake("tpot_p99 ", "ttft_p99_0 ", "ttft_p99_0", "promises the same quantile", "keep one `ttft_p99`"),
    // Workload.
    mistake(INPUT, "input_tokens = 0", "0\noutput", "`workload.input_tokens` is out of range", "from 1 to 10000000"),
    mistake(INPUT, "input_tokens = \"800\"", "\"800\"", "wrong type for `workload.input_tokens`", "remove the quotes: 800"),
    mistake("min = 16, max = 8000", "min = 9000, max = 8000", "9000", "`workload.input_tokens` has its `min` above its `max`", "swap `min` and `max`"),
    mistake(", max = 8000", "", "{ distribution", "`workload.input_tokens` lacks `max`", "add `max = 8`: the largest count"),
    mistake("median = 800", "median = 800, mean = 800", "mean", "`mean` belongs to `distribution = \"normal\"`", "remove `mean`"),
    mistake("\"lognormal\"", "\"log-normal\"", "\"log-normal\"", "`workload.input_tokens.distribution` cannot be", "did you mean \"lognormal\"?"),
    mistake("sigma = 0.8", "sigma = 0", "0, min", "`workload.input_tokens.sigma` is not greater than 0", "above 0"),
    mistake(INPUT, "input_tokens = { distribution = \"histogram\", edges = [1, 9, 9], counts = [1, 1] }", "9], c", "`workload.input_tokens.edges` does not ascend", "each edge once"),
    mistake(INPUT, "input_tokens = { distribution = \"histogram\", edges = [1, 9], counts = [1, 1] }", "[1, 1]", "has 2 edges and 2 counts", "one count for each pair"),
    mistake(INPUT, "input_tokens = { distribution = \"histogram\", edges = [1, 9], counts = [0] }", "[0]", "`workload.input_tokens.counts` are all zero", "a count above 0"),
    mistake(INPUT, "input_tokens = { distribution = \"histogram\", edges = [0, 9], counts = [1] }", "0, 9", "`workload.input_tokens.edges` is out of range", "from 1 to"),
    mistake(INPUT, "input_tokens = { distribution = \"histogram\", edges = 9, counts = [1] }", "9, c", "wrong type for `workload.input_tokens.edges`", "a list of integers"),
    mistake(INPUT, "input_tokens = { distribution = \"histogram\", edges = [1, 9] }", "{ dist", "`workload.input_tokens` lacks `counts`", "add `counts = "),
    mistake(INPUT, "input_tokens = { distribution = \"histogram\", edges = [1, 9], counts = [1], max = 3 }", "max = 3", "`max` belongs to `distribution = \"uniform\", \"normal\" or \"lognormal\"`", "remove `max`"),
    mistake("ignore_eos", "file = \"x\"\nignore_eos", "file", "`file` belongs to `kind = \"sharegpt\", \"jsonl\" or \"trace\"`", "remove `file`"),
    mistake("ignore_eos", "arrivals = \"gama\"\nignore_eos", "\"gama\"", "`workload.arrivals` cannot be \"gama\"", "did you mean \"gamma\"?"),
    mistake("ignore_eos", "arrivals = \"recorded\"\nignore_eos", "\"recorded\"", "`workload.arrivals` cannot be \"recorded\"", "\"poisson\" or \"gamma\" or \"constant\""),
    mistake("ignore_eos", "arrivals = \"gamma\"\nignore_eos", "\"gamma\"", "without its `burstiness`", "add `burstiness = 0.5`"),
    mistake("ignore_eos", "arrivals = \"gamma\"\nburstiness = 0\nignore_eos", "0\nignore", "`workload.burstiness` is not greater than 0", "above 0"),
    mistake("ignore_eos", "burstiness = 2\nignore_eos", "2\nignore", "`burstiness` belongs to `arrivals = \"gamma\"`", "set `arrivals = \"gamma\"`"),
    mistake(WORKLOAD, "kind = \"sharegpt\"\n", "workload]", "`workload` lacks `file`", "add `file = \"requests.jsonl\"`: the file with a ShareGPT list"),
    mistake(WORKLOAD, "kind = \"jsonl\"\nfile = \"\"\n", "\"\"\n", "`workload.file` is empty", "write a string in quotes"),
    mistake(WORKLOAD, "kind = \"jsonl\"\nfile = 3\n", "3\n\n", "wrong type for `workload.file`", "\"requests.jsonl\""),
    mistake(WORKLOAD, "kind = \"trace\"\nfile = \"x\"\noutput_tokens = 5\n", "output_tokens", "`output_tokens` belongs to `kind = \"random\", \"conversations\", \"sharegpt\" or \"jsonl\"`", "remove `output_tokens`"),
    mistake(WORKLOAD, "kind = \"trace\"\nfile = \"x\"\ntime_unit = \"0s\"\n", "\"0s\"", "`workload.time_unit` must be longer than zero", "above 0"),
    mistake(WORKLOAD, "kind = \"trace\"\nfile = \"x\"\nblock_tokens = 0\n", "0\n\n[par", "`workload.block_tokens` is out of range", "from 1"),
    // Parameters.
    mistake("max-num-seqs = {", "--max-num-seqs = {", "--max-num-seqs", "`--max-num-seqs` begins with dashes", "write `max-num-seqs`"),
    mistake("max-num-seqs = {", "\"max num seqs\" = {", "\"max num seqs\"", "is no name of a flag", "without its dashes"),
    mistake("enable-prefix-caching = {", "max_num_seqs = {", "max_num_seqs", "`max-num-seqs` stands twice", "keep one of them"),
    mistake("max-num-seqs = {", "port = {", "port = {", "`port` cannot be tuned", "use engine.port"),
    mistake("enable-prefix-caching = {", "no-enable-prefix-caching = {", "no-enable-prefix-caching", "a switch turned around", "tune `enable-prefix-caching` instead"),
    mistake(SEQS, "max-num-seqs = 64", "64\n", "wrong type for `parameters.max-num-seqs`", "write { values = [64] } to tune it"),
    mistake(SEQS, "max-num-seqs = [64]", "[64]", "wrong type for `parameters.max-num-seqs`", "{ values = [...] }"),
    mistake(SEQS, "max-num-seqs = {}", "max-num-seqs = {}", "lacks `min` and `max`", "or list the choices with `values = [...]`"),
    mistake(SEQS, "max-num-seqs = { values = 64 }", "64 }", "wrong type for `parameters.max-num-seqs.values`", "list the choices in brackets"),
    mistake(SEQS, "max-num-seqs = { values = [64, 32], min = 3 }", "min = 3", "has both `values` and `min`", "either list the choices"),
    mistake(SEQS, "max-num-seqs = { vals = [64], min = 1, max = 3 }", "vals", "unknown key `vals`", "`parameters.max-num-seqs` takes"),
    mistake(SEQS, "max-num-seqs = { min = 64, max = 32 }", "64, max", "has its `min` above its `max`", "swap `min` and `max`"),
    mistake(SEQS, "max-num-seqs = { min = 64, max = 64 }", "64 }", "has equal bounds", "{ values = [64] }"),
    mistake(SEQS, "max-num-seqs = { min = 1, max = 9, step = 0 }", "0 }\nenable", "is not positive", "a step above 0"),
    mistake(SEQS, "max-num-seqs = { min = 1, max = 9, step = -1 }", "-1 }", "is not positive", "a step above 0"),
    mistake(SEQS, "max-num-seqs = { min = 1, max = 9, step = 9 }", "9 }\nenable", "is larger than its range", "at most the distance from 1 to 9"),
    mistake(SEQS, "max-num-seqs = { min = 1, max = 10001 }", "{ min = 1, ", "has more than 10000 values", "choose a larger `step`"),
    mistake(SEQS, "max-num-seqs = { min = 1, max = nan }", "nan", "`parameters.max-num-seqs.max` is out of range", "finite"),
    mistake(SEQS, "max-num-seqs = { values = [] }", "[] }", "has no values", "list at least one value"),
    mistake(SEQS, "max-num-seqs = { values = [1, 2.5] }", "2.5", "mixes kinds of values", "such as 1.0"),
    mistake(SEQS, "max-num-seqs = { values = [\"a\", 2] }", "2] }", "mixes kinds of values", "put it in quotes: \"2\""),
    mistake(SEQS, "max-num-seqs = { values = [[1]] }", "[1]]", "wrong type for", "an integer, a real number"),
    mistake(SEQS, "max-num-seqs = { values = [4, 8, 4] }", "4] }", "lists 4 twice", "remove one of them"),
    mistake("default = 64", "default = 50", "50 }", "is not one of its values", "the nearest values are 48, 64"),
    mistake("default = 64", "default = 128", "128 }", "is not one of its values", "the nearest value is 64"),
    mistake("default = 0.9 }", "default = 0.905 }", "0.905", "is not one of its values", "the nearest values are 0.9, 0.91"),
    mistake("\"FLASHINFER\"] }", "\"FLASHINFER\"], default = \"flash_attn\" }", "\"flash_attn\"", "is not one of its values", "the nearest value is FLASH_ATTN"),
    mistake(GPU, "gpu-memory-utilization = { min = 0.88, max = 0.91 }", "{ min = 0.88, max = 0.91 }", "needs a `step`", "step = 0.01"),
    // Constraints.
    mistake(CONSTRAINT, "\"max-num-seqs\"", "\"max-num-seqs\"", "`max-num-seqs` is no constraint", "write it as"),
    mistake(CONSTRAINT, "\"max-num-seq > 3\"", "\"max-num-seq > 3\"", "`max-num-seq` is not one of the parameters", "did you mean `max-num-seqs`?"),
    mistake(CONSTRAINT, "\"block-size > 3\"", "\"block-size > 3\"", "`block-size` is not one of the parameters", "the parameters are"),
    mistake(CONSTRAINT, "\"4 > 3\"", "\"4 > 3\"", "names no parameter", "name a parameter"),
    mistake(CONSTRAINT, "\"max-num-seqs < inf\"", "\"max-num-seqs < inf\"", "is no constraint", "finite"),
    mistake(CONSTRAINT, "\"attention-backend > 3\"", "\"attention-backend > 3\"", "has no numbers to compare", "whose values are numbers"),
    mistake(CONSTRAINT, "\"max-num-seqs > 64\"", "\"max-num-seqs > 64\"", "excludes every point", "relax it"),
    mistake(CONSTRAINT, "\"max-num-seqs < 64\"", "\"max-num-seqs < 64\"", "excludes the baseline of the given defaults", "change one of these defaults"),
    mistake(CONSTRAINT, "\"max-num-batched-tokens > 4096\", \"max-num-batched-tokens < 5000\"", "[\"max-num-batched", "together exclude every point", "relax or remove one"),
    // Fixed and tuned at once.
    mistake(ARGS, "\"--max-num-seqs\", \"8\"", "\"--max-num-seqs\"", "`max-num-seqs` is tuned and also fixed in `engine.args`", "remove --max-num-seqs here"),
    mistake(ARGS, "\"--max-num-seqs=8\"", "\"--max-num-seqs=8\"", "`max-num-seqs` is tuned and also fixed", "remove --max-num-seqs here"),
    mistake(ARGS, "\"--max_num_seqs\", \"8\"", "\"--max_num_seqs\"", "`max-num-seqs` is tuned and also fixed", "remove --max_num_seqs here"),
    mistake(ARGS, "\"--no-enable-prefix-caching\"", "\"--no-enable-prefix-caching\"", "`enable-prefix-caching` is tuned and also fixed", "from `[parameters]`"),
    mistake("\"/models/x\"]", "\"/models/x\", \"--max-num-seqs\", \"8\"]", "\"--max-num-seqs\"", "also fixed in `engine.command`", "remove --max-num-seqs here"),
    mistake(ARGS, "\"--port\", \"8000\"", "\"--port\"", "`engine.args` sets --port", "use engine.port"),
    mistake(ARGS, "\"--host=0.0.0.0\"", "\"--host=0.0.0.0\"", "`engine.args` sets --host", "the loopback address"),
];

#[test]
fn every_mistake_is_named_with_its_place_and_a_remedy() {
    let mut failures = Vec::new();
    for Mistake { from, to, at, message, hint } in MISTAKES {
        let text = FULL.replacen(from, to, 1);
        assert_ne!(text, FULL, "{from} stands in the file");
        let offset = text.find(at).unwrap_or_else(|| panic!("{at} stands in the broken file"));
        let line = text[..offset].matches('\n').count() + 1;
        let column = text[..offset].chars().rev().take_while(|c| *c != '\n').count() + 1;
        let problems = match parse("space.toml", &text) {
            Ok(_) => {
                failures.push(format!("`{to}` was accepted"));
                continue;
            }
            Err(problems) => problems,
        };
        let report = problems.render();
        let first = &problems.list[0];
        let place = format!("--> space.toml:{line}:{column}\n");
        let fits = report.contains(&place)
            && first.message.contains(message)
            && first.hint.contains(hint)
            && report.contains("= hint: ");
        if problems.list.len() != 1 || !fits {
            failures.push(format!("`{to}` should be at {line}:{column}: {message}; {hint}\n{report}\n"));
        }
    }
    assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), MISTAKES.len(), failures.join("\n"));
}

#[test]
fn missing_sections_are_missed_where_the_file_ends() {
    for section in ["slo", "engine", "workload", "parameters"] {
        let start = SMALL.find(&format!("[{section}]")).unwrap();
        let rest = &SMALL[start + 1..];
        let end = rest.find("\n[").map_or(SMALL.len(), |at| start + 1 + at + 1);
        let text = format!("{}{}", &SMALL[..start], &SMALL[end..]);
        let problems = parse("space.toml", &text).unwrap_err();
        assert_eq!(problems.list.len(), 1, "{problems}");
        let problem = &problems.list[0];
        assert_eq!(problem.message, format!("the section `[{section}]` is missing"));
        assert!(problem.hint.starts_with(&format!("add [{section}] with ")), "{}", problem.hint);
        let last_line = format!("space.toml:{}:", text.trim_end().lines().count());
        assert!(problems.render().contains(&last_line), "{problems}");
    }
    for (section, message) in [("slo", "promises nothing"), ("parameters", "tunes nothing")] {
        let start = SMALL.find(&format!("[{section}]")).unwrap() + section.len() + 3;
        let length = SMALL[start..].find('\n').unwrap();
        let text = format!("{}{}", &SMALL[..start], &SMALL[start + length..]);
        let problems = parse("space.toml", &text).unwrap_err();
        assert_eq!(problems.list.len(), 1, "{problems}");
        assert!(problems.render().contains(message), "{problems}");
    }
    assert_eq!(parse("space.toml", "").unwrap_err().list.len(), 4);
}

#[test]
fn several_mistakes_come_at_once() {
    let text = r#"[slo]
ttft_p99 = 1
tpot_p101 = "60ms"
[engine]
kind = "vllm"
comand = ["vllm"]
args = ["--max-num-seqs", "8"]
[workload]
kind = "random"
input_tokens = 10
turns = 3
output_tokens = 256
[parameters]
max-num-seqs = { values = [4, 8] }
block-size = { min = 32, max = 16 }
[search]
constraints = ["block-size > max-num-seq"]
"#;
    let problems = parse("space.toml", text).unwrap_err();
    insta::assert_snapshot!(problems, @r#"
    error: `slo.ttft_p99` has no unit
     --> space.toml:2:12
      |
    2 | ttft_p99 = 1
      |            ^ a bare number
      |
      = hint: add a unit: "1s" for seconds or "1ms" for milliseconds

    error: `tpot_p101` has no valid percentile
     --> space.toml:3:1
      |
    3 | tpot_p101 = "60ms"
      | ^^^^^^^^^ out of range
      |
      = hint: write a percentile from p1 to p99_999, such as tpot_p99 or tpot_p99_9

    error: unknown key `comand` in `engine`
     --> space.toml:6:1
      |
    6 | comand = ["vllm"]
      | ^^^^^^ unknown
      |
      = hint: did you mean `command`?

    error: `max-num-seqs` is tuned and also fixed in `engine.args`
     --> space.toml:7:9
      |
    7 | args = ["--max-num-seqs", "8"]
      |         ^^^^^^^^^^^^^^^^ fixed here
      |
      = hint: remove --max-num-seqs here, or remove `max-num-seqs` from `[parameters]`

    error: `turns` belongs to `kind = "conversations" or "sharegpt"`
      --> space.toml:11:1
       |
    11 | turns = 3
       | ^^^^^ but `kind` is "random"
       |
       = hint: remove `turns`, or set `kind = "conversations" or "sharegpt"`

    error: `parameters.block-size` has its `min` above its `max`
      --> space.toml:15:22
       |
    15 | block-size = { min = 32, max = 16 }
       |                      ^^ 32 is above 16
       |
       = hint: swap `min` and `max`

    error: `max-num-seq` is not one of the parameters
      --> space.toml:17:16
       |
    17 | constraints = ["block-size > max-num-seq"]
       |                ^^^^^^^^^^^^^^^^^^^^^^^^^^ unknown parameter
       |
       = hint: did you mean `max-num-seqs`?
    "#);
}

#[test]
fn an_engine_is_asked_for_nothing_of_another_one() {
    let text = |more: &str, parameter: &str, probe: &str| {
        format!(
            "[slo]\nttft_p99 = \"1s\"\n[engine]\nkind = \"sglang\"\ncommand = [\"python3\", \"-m\", \"sglang.launch_server\"]\n{more}\n\
             [workload]\nkind = \"random\"\ninput_tokens = 8\noutput_tokens = 8\n[parameters]\n{parameter}\n[probe]\n{probe}\n\
             [budget]\ngpu_time = \"1h\"\n"
        )
    };
    let own = "max-running-requests = { values = [8, 16] }\nmem-fraction-static = { values = [0.8, 0.9] }";
    let plan = parse("space.toml", &text("args = [\"--model-path\", \"m\"]", own, "")).unwrap();
    assert_eq!(plan.memory_share().map(|share| share.name.as_str()), Some("mem-fraction-static"));
    assert!(!plan.with_twin() && !plan.engine.live, "there is no model of it, and its limits stay");
    let share = "gpu-memory-utilization = { values = [0.8, 0.9] }";
    let other = "write `mem-fraction-static`, with values for SGLang: those of another engine do not carry over";
    for (text, words) in [
        (text("", share, ""), ["SGLang has no flag `--gpu-memory-utilization`", other]),
        (text("args = [\"--max_model_len=512\"]", own, ""), ["no flag `--max-model-len`", "write `context-length`"]),
        (text("", "enable-metrics = { values = [true, false] }", ""), ["sets it for every launch", "remove it"]),
        (text("", own, "twin = true"), ["there is no model of SGLang", "violations are counted"]),
        (text("live = true", own, ""), ["`live` belongs to", "remove `live`"]),
        (
            text("", "chunked-prefill-size = { values = [0.5] }", ""),
            ["cannot take `chunked-prefill-size` 0.5", "at least 1"],
        ),
    ] {
        let says = parse("space.toml", &text).unwrap_err().render();
        assert!(words.iter().all(|word| says.contains(word)), "{words:?}: {says}");
    }
}

#[test]
fn a_graph_has_the_engine_of_its_workers() {
    let text = |backend: &str, workers: u32| {
        format!(
            "[slo]\nttft_p99 = \"1s\"\n[engine]\nkind = \"dynamo\"\nbackend = \"{backend}\"\nworkers = {workers}\nargs = [\"--model-path\", \"m\"]\n\
             frontend_args = [\"--router-temperature\", \"0.5\"]\n[workload]\nkind = \"random\"\ninput_tokens = 8\noutput_tokens = 8\n\
             [parameters]\nrouter-mode = {{ values = [\"kv\", \"round-robin\"], default = \"kv\" }}\npage-size = {{ values = [16], default = 16 }}\n\
             [budget]\ngpu_time = \"1h\"\n"
        )
    };
    let plan = parse("space.toml", &text("sglang", 1)).unwrap();
    assert_eq!(plan.engine.kind, EngineKind::DynamoSglang);
    let words = crate::engine::command_line(&plan.engine, std::path::Path::new("autotune"), 7, &plan.space.baseline());
    let expected = "autotune graph --port 7 --workers 1 -- python3 -m dynamo.frontend --router-temperature 0.5 --router-mode kv --- \
                    python3 -m dynamo.sglang --model-path m --page-size 16";
    assert_eq!(words.join(" "), expected);
    assert_eq!(parse("space.toml", &text("mocker", 4)).unwrap().engine.kind, EngineKind::DynamoMocker);
    let addressed = text("mocker", 4).replace("--router-temperature", "--http-port");
    let tuned =
        |name| text("mocker", 4).replace("[budget]", &format!("\"env.{name}\" = {{ values = [\"a\"] }}\n[budget]"));
    for (text, words) in [
        (text("vllm", 2), "several workers with `backend = \"vllm\"` would share one GPU"),
        (
            text("vllm", 1).replace("workers = 1", "command = [\"vllm\", \"serve\", \"m\"]\nworkers = 1"),
            "the command starts vLLM, and a graph of Dynamo starts its workers itself",
        ),
        (addressed, "`engine.frontend_args` sets --http-port"),
        (
            text("mocker", 4).replace("[workload]", "env = { DYN_ROUTER_MODE = \"kv\" }\n[workload]"),
            "`router-mode` is tuned and also fixed in `engine.env`",
        ),
        (tuned("DYN_ROUTER_MODE"), "`env.DYN_ROUTER_MODE` and `router-mode` are both tuned, and set the same option"),
        (
            tuned("DYN_ROUTER_TEMPERATURE"),
            "`env.DYN_ROUTER_TEMPERATURE` is tuned and also fixed in `engine.frontend_args`",
        ),
    ] {
        let refused = parse("space.toml", &text).unwrap_err().render();
        assert!(refused.contains(words), "{refused}");
    }
}

#[test]
fn a_setting_of_tensorrt_llm_has_one_name_and_what_would_overrule_it_is_refused() {
    let text = |args: &str, name: &str, values: &str| {
        format!(
            "[slo]\nttft_p99 = \"1s\"\n[engine]\nkind = \"dynamo\"\nbackend = \"trtllm\"\nargs = [\"--model-path\", \"m\", {args}]\n\
             [workload]\nkind = \"random\"\ninput_tokens = 8\noutput_tokens = 8\n[parameters]\n\"{name}\" = {{ values = {values} }}\n\
             [budget]\ngpu_time = \"1h\"\n"
        )
    };
    let plan = parse("space.toml", &text("", "trtllm.enable_chunked_prefill", "[true, false]")).unwrap();
    assert_eq!(plan.engine.kind, EngineKind::DynamoTrtllm);
    let point = crate::space::Point::default().with("trtllm.enable_chunked_prefill", crate::space::Value::Bool(false));
    let words = crate::engine::command_line(&plan.engine, std::path::Path::new("autotune"), 7, &point);
    assert!(
        words.join(" ").ends_with("-m dynamo.trtllm --model-path m --trtllm.enable_chunked_prefill false"),
        "{words:?}"
    );
    let share = "trtllm.kv_cache_config.free_gpu_memory_fraction";
    let with_variable = text("", share, "[0.9]")
        .replace("[workload]", "env = { DYN_TRTLLM_OVERRIDE_ENGINE_ARGS = \"{}\" }\n[workload]");
    for (text, words) in [
        (text("", "max-batch-size", "[64]"), "write `trtllm.max_batch_size`, which wins"),
        (
            text("\"--free_gpu_memory_fraction\", \"0.8\"", "trtllm.max_batch_size", "[64]"),
            "write `trtllm.kv_cache_config.",
        ),
        (text("", "env.DYN_TRTLLM_MAX_BATCH_SIZE", "[64]"), "write `trtllm.max_batch_size`, which wins"),
        (text("", "env.DYN_TRTLLM_OVERRIDE_ENGINE_ARGS", "[\"{}\"]"), "takes no --override-engine-args beside"),
        (text("", "max-num-seqs", "[64]"), "write `trtllm.max_batch_size`, with values for TensorRT-LLM behind Dynamo"),
        (text("", "trtllm.max_batch_size", "[0]"), "an integer of at least 1"),
        (text("", share, "[1.5]"), "a number above 0 and at most 1"),
        (
            text("\"--extra-engine-args\", \"f.yaml\"", share, "[0.9]"),
            "may drop what the file of --extra-engine-args says",
        ),
        (
            text("\"--override-engine-args={}\"", "trtllm.max_batch_size", "[64]"),
            "takes no --override-engine-args beside",
        ),
        (with_variable, "takes no --override-engine-args beside"),
        (text("", "publish-metrics", "[true]"), "`publish-metrics` cannot be tuned"),
    ] {
        let refused = parse("space.toml", &text).unwrap_err().render();
        assert!(refused.contains(words), "{refused}");
    }
    parse("space.toml", &text("\"--extra-engine-args\", \"f.yaml\"", "trtllm.max_batch_size", "[64]")).unwrap();
}
