#!/usr/bin/env bash
# Review a model in CI: budgets, and what changed against the model it replaces.
#
# Reads MODEL, BEFORE, BUDGET, HARDWARE (separated by spaces) and FAIL_ABOVE from the environment.
# Writes onnxroof-report.md and onnxroof-junit.xml to OUTPUT (the current folder by default), adds
# the report to the job's summary, and ends with 1 when a limit is exceeded or latency grew more
# than allowed.
set -euo pipefail

output="${OUTPUT:-.}"
report="$output/onnxroof-report.md"
mkdir -p "$output"
: > "$report"
status=0

# Runs a command, keeps its report, and remembers that it failed; anything worse than a failed
# check (a model that cannot be read) ends the review with that code.
review() {
    local code=0
    "$@" >> "$report" || code=$?
    if [ "$code" -gt 1 ]; then
        cat "$report"
        exit "$code"
    fi
    [ "$code" -eq 0 ] || status=1
    echo >> "$report"
}

if [ -n "${BUDGET:-}" ]; then
    review onnxroof check "$MODEL" --budget "$BUDGET" --format markdown \
        --junit "$output/onnxroof-junit.xml"
fi

if [ -n "${BEFORE:-}" ] && [ -s "$BEFORE" ]; then
    devices=()
    for device in ${HARDWARE:-}; do
        devices+=(--hw "$device")
    done
    limit=()
    if [ -n "${FAIL_ABOVE:-}" ]; then
        limit=(--fail-above "$FAIL_ABOVE")
    fi
    review onnxroof compare "$BEFORE" "$MODEL" "${devices[@]+"${devices[@]}"}" \
        "${limit[@]+"${limit[@]}"}" --format markdown
fi

cat "$report"
if [ -n "${GITHUB_STEP_SUMMARY:-}" ]; then
    cat "$report" >> "$GITHUB_STEP_SUMMARY"
fi
if [ -n "${GITHUB_OUTPUT:-}" ]; then
    echo "report=$report" >> "$GITHUB_OUTPUT"
fi
exit "$status"
