#!/usr/bin/env bash
# --shrink on a run that really fails, of a mutant: what it ends with fails in fewer requests, and its command fails
# again in the same way.
set -euo pipefail
cd "$(dirname "$0")/.."
mutant=(--mutant reveal-before-gate --scenario mixed)

fail() {
  echo "shrink: $*" >&2
  exit 1
}
requests_of() { sed -n 's/^ *\([0-9]*\) requests to the bucket.*/\1/p' <<<"$1"; }
broken_by() { sed -n 's/^FAILED \([a-z-]*\) .*/\1/p' <<<"$1" | head -1; }

found=$(sim/run "${mutant[@]}" --seeds 200 || true)
seed=$(sed -n 's/^  sim\/run --seed \([0-9]*\) .*/\1/p' <<<"$found" | head -1)
[ -n "$seed" ] || fail "no run of 200 fails"
before=$(sim/run "${mutant[@]}" --seed "$seed" || true)
shrunk=$(sim/run "${mutant[@]}" --seed "$seed" --shrink || true)
command=$(sed -n 's/^ *\(sim\/run --seed .*--set .*\)/\1/p' <<<"$shrunk" | tail -1)
[ -n "$command" ] || fail "it prints no command: $shrunk"
status=0
after=$(eval "$command") || status=$?
[ "$status" = 1 ] || fail "its command ends with $status: $command"
[ -n "$(broken_by "$after")" ] || fail "its command breaks nothing: $command"
smaller=$(requests_of "$after")
larger=$(requests_of "$before")
[ "$smaller" -lt "$larger" ] || fail "$smaller requests, before $larger"
echo "shrink: from $larger requests of seed $seed to $smaller, $(broken_by "$before") to $(broken_by "$after"): ok"
