//! Flags: what they are judged by, and what is logged of them.

use super::*;

#[test]
fn flags_are_judged_as_vllm_judges_them() {
    let problem = |words: &str| start::invalid(&args(words).flags());
    assert_eq!(problem(""), None);
    let (config, text) = problem("--max-num-batched-tokens 64").unwrap();
    assert_eq!(config, "SchedulerConfig");
    assert!(text.contains("max_num_batched_tokens (64) must be greater than or equal to max_num_seqs (128)"));
    assert_eq!(problem("--gpu-memory-utilization 1.5").unwrap().0, "CacheConfig");
    assert!(problem("--max-num-seqs 0").unwrap().1.starts_with("max_num_seqs\n"));
    let given = args("--max-num-seqs 16 --gpu-memory-utilization 0.94");
    let dictionary = "{'model_tag': 'm', 'model': 'm', 'gpu_memory_utilization': 0.94, 'max_num_seqs': 16}";
    assert_eq!(given.non_default(), dictionary);
    let unknown = Cli::try_parse_from(["sim-engine", "--sim-profile", "h200"]).err().unwrap().to_string();
    assert!(autotune_twin::Profile::NAMES.iter().all(|name| unknown.contains(name)), "{unknown}");
    assert!(!args("--enable-prefix-caching --no-enable-prefix-caching").prefix_caching());
    assert!(args("--no-enable-prefix-caching --enable-prefix-caching").prefix_caching());
}

#[test]
fn ports_of_a_graph_concern_only_its_processes() {
    // As the variables of the same meaning, which may be empty.
    let words = ["sim-engine", "m", "--sim-system-port=", "--sim-http-port=x", "--sim-discovery="];
    assert!(Cli::try_parse_from(words).is_ok());
    let frontend = args("--sim-http-port=x --sim-dialect frontend");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let error = runtime.block_on(trtllm::frontend(&frontend)).unwrap_err();
    assert_eq!(error.to_string(), "'x' is no port");
}

#[test]
fn the_size_of_the_cache_can_be_given_in_bytes() {
    let given = args("--sim-profile vllm-cpu-small --kv-cache-memory-bytes 256M --max-model-len 8192");
    let limits = given.sim_profile.limits_under(&given.flags()).unwrap();
    assert_eq!(limits.kv_tokens(), 131_072);
    assert!(given.non_default().contains("'kv_cache_memory_bytes': 268435456"), "{}", given.non_default());
    assert!(Cli::try_parse_from(["sim-engine", "--kv-cache-memory-bytes", "lots"]).is_err());
}
