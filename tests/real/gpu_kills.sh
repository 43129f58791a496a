#!/usr/bin/env bash
# SIGKILL of the tuner with its guardian, of the guardian, and of the engine's first process, each on an engine that holds GPU memory:
# how long until no process of the engine and none of its GPU memory is left. Needs an NVIDIA GPU that nobody else uses meanwhile (that of
# CUDA_VISIBLE_DEVICES, or all), and vllm on the PATH. Takes less than 200 s, and exits 1 where a process or memory is left after 10 s.
#   tests/real/gpu_kills.sh SPACE.toml          AUTOTUNE=target/release/autotune is the program
set -euo pipefail
space=$1 program=${AUTOTUNE:-target/release/autotune} tuner= guardian= failed=0
work=$(mktemp -d /tmp/kills.XXXXXX)
mkdir "$work/t"
smi() { nvidia-smi ${CUDA_VISIBLE_DEVICES:+"--id=$CUDA_VISIBLE_DEVICES"} "--query-$1" --format=csv,noheader,nounits; }
memory() { smi gpu=memory.used | awk '{ sum += $1 } END { print sum + 0 }'; }
computing() { smi compute-apps=pid | grep -c '[0-9]' || true; }
# Living processes of a session, that of the guardian.
session() { { cat /proc/[0-9]*/stat 2> /dev/null || true; } | sed -nE "s/^([0-9]+) \(.*\) [^Z] [0-9]+ [0-9]+ $1 .*/\1/p"; }
now() { echo "${EPOCHREALTIME/[.,]/}"; }
seconds() { awk "BEGIN { printf \"%.1f\", ($(now) - $1) / 1000000 }"; }
# Waits at most $1 seconds for the command behind it.
within() { local until=$(($(now) + $1 * 1000000)); shift; while ! "$@"; do [ "$(now)" -lt "$until" ] || return 1; sleep 0.05; done; }
# Drivers keep some memory that no process owns.
free() { [ "$(memory)" -le $((before + 64)) ] && [ "$(computing)" -le "$computing_before" ]; }
ended() { ! kill -0 "$tuner" 2> /dev/null; }
holds() { ended || [ "$(memory)" -ge $((before + 1024)) ]; }
gone() {
  [ -n "$left" ] || [ -n "$(session "$guardian")" ] || left=$(seconds "$start")
  [ -n "$freed" ] || ! free || freed=$(seconds "$start")
  [ -n "$left" ] && [ -n "$freed" ]
}
finish() {
  [ -z "$tuner" ] || ended || { kill -TERM "$tuner"; within 5 ended || kill -KILL "$tuner"; wait "$tuner" || true; } 2> /dev/null
  tuner=
}
trap 'finish; for pid in ${guardian:+$(session "$guardian")}; do kill -KILL "$pid" 2> /dev/null; done; rm -rf "$work"' EXIT

before=$(memory) computing_before=$(computing)
echo "before: $before MiB of GPU memory in use, $computing_before compute processes"
printf '%-22s %14s %12s %18s %17s\n' killed "memory held" processes "processes left for" "memory held for"
for victims in "tuner and guardian" guardian engine; do
  out=$work/${victims// /-}
  TMPDIR=$work/t "$program" --space "$space" --out "$out" --quiet > "$out.log" 2>&1 & tuner=$!
  if ! within 120 holds || ended; then
    echo "$victims: no engine held GPU memory within 120 s"; tail -n 20 "$out.log"; cat "$out"/trials/*/engine.log 2> /dev/null | tail -n 20; exit 2
  fi
  sleep 1
  group=$(grep -o '"group":{[^}]*}' "$out/journal.jsonl" | tail -n 1)
  guardian=$(sed -E 's/.*"guardian":([0-9]+).*/\1/' <<< "$group") engine=$(sed -E 's/.*"engine":([0-9]+).*/\1/' <<< "$group")
  held=$(($(memory) - before)) processes=$(session "$guardian" | wc -l) freed='' left=''
  case $victims in guardian) pids=$guardian ;; engine) pids=$engine ;; *) pids="$tuner $guardian" ;; esac
  start=$(now)
  # shellcheck disable=SC2086
  kill -KILL $pids
  within 10 gone || failed=1
  printf '%-22s %10s MiB %12s %16s s %15s s\n' "$victims" "$held" "$processes" "${left:-> 10}" "${freed:-> 10}"
  finish
  within 10 free || { echo "GPU memory is still held, and would be counted with the next engine's"; exit 1; }
done
exit $failed
