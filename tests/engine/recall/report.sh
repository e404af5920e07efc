#!/usr/bin/env bash
# The report on recall: report.sh BINARIES FOLDER [baton needle flags ...]
# Clusters with each index format, engines under exact numerics, and builds with a fault put in: the same needles for all.
set -euo pipefail
cd "$(dirname "$0")/../../.."
binaries=$1
folder=$2
shift 2
faulty() { echo "--engine=fault: $1=$binaries/recall_mutant_$2${3:+,$3}"; }
exact() { echo "--engine=exact numerics, index $1=$binaries/baton-recall,--numerics=exact,--index-cache-dtype=$1"; }
status=0
"$binaries/baton" needle --model-dir=models/needle-17m --index=bf16,fp8,fp4 --explain --report="$folder" \
  "$(exact bf16)" "$(exact fp8)" "$(exact fp4)" \
  "$(faulty 'fp8 page read as interleaved' read_as_interleaved --index-cache-dtype=fp8)" \
  "$(faulty 'fp8 scale of the next row' scale_of_next_row --index-cache-dtype=fp8)" \
  "$(faulty 'Hadamard on keys only' query_not_rotated)" \
  "$(faulty 'Hadamard on queries only' key_not_rotated)" \
  "$(faulty 'no ReLU' no_relu)" \
  "$(faulty 'wrong RoPE base' wrong_rope_base)" \
  "$(faulty 'stale index pages' stale_page --handoff)" \
  "$(faulty 'states not sent' states_not_sent --handoff)" "$@" || status=$?
# 1: a needle was missed, which the faulty builds do.
[ "$status" -le 1 ] && [ -s "$folder/README.md" ]
