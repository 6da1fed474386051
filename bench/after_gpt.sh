#!/usr/bin/env bash
# The systems after GPT beside all others, in parts that each take less than ten minutes of one GPU.
#
#   bench/after_gpt.sh FOLDER tokens     all language models on WikiText-2 and Shakespeare's characters, at equal tokens,
#                                        three seeds, eight runs at a time
#   bench/after_gpt.sh FOLDER seconds    the same at equal seconds, one run after the other; both corpora side by side
#   bench/after_gpt.sh FOLDER laws       the fourteen laws of the three, and their tests on a GPU
#   bench/after_gpt.sh FOLDER claims     recall, no-waiting (32 to 65 536 words) and look-back, with their page
#   bench/after_gpt.sh FOLDER bench      training speed beside peers, and the papers' tasks
#
# FOLDER gets the logs and pages. REGARD_DATA names the folder of the corpora. A toy version of each, on any machine:
#   TOKENS=20k SECONDS_EACH=3s SEEDS=1 SIZE=tiny JOBS=2 QUICK=--quick STEPS=20 bench/after_gpt.sh /tmp/toy tokens
set -euo pipefail
out=$1 part=$2
here=$(cd "$(dirname "$0")/.." && pwd)
regard=${REGARD:-regard} python=${PYTHON:-python}
mkdir -p "$out"

compare() { # corpus, tokenizer, budget, name, further options
    local work
    work=$(mktemp -d)
    "$regard" compare --data "$1" --data.tokenizer "$2" --budget "$3" --seeds "${SEEDS:-3}" --size "${SIZE:-small}" \
        --run "$work/$4" --csv "$out/$4.csv" "${@:5}" >"$out/$4.txt" 2>"$out/$4.err"
    cp "$work/$4/report.html" "$out/$4.html"
    cat "$out/$4.txt"
}

case $part in
tokens)
    compare wikitext-2 bpe "${TOKENS:-3M}" wikitext-tokens --jobs "${JOBS:-8}"
    compare shakespeare char "${TOKENS:-3M}" shakespeare-tokens --jobs "${JOBS:-8}"
    ;;
seconds)
    compare wikitext-2 bpe "${SECONDS_EACH:-5s}" wikitext-seconds &
    compare shakespeare char "${SECONDS_EACH:-5s}" shakespeare-seconds
    wait $!
    ;;
laws)
    for system in llama linear-attention mingru; do
        echo "== $system"
        "$regard" laws "$system"
    done 2>/dev/null | tee "$out/laws.txt"
    "$python" -m pytest -q "$here/tests/cuda/test_systems_on_a_gpu.py" "$here/tests/unit/fast/test_table.py" \
        "$here/tests/unit/fast/test_minimal_gru.py" "$here/tests/unit/test_llama.py" 2>&1 | tee "$out/tests.txt"
    ;;
claims)
    "$regard" claims recall look-back ${QUICK:-} --jobs 2 --run "$out/cpu" 2>"$out/claims.err" | tee "$out/claims.txt"
    "$regard" claims no-waiting ${QUICK:-} --device "${DEVICE:-cuda}" --run "$out/gpu" 2>>"$out/claims.err" |
        tee -a "$out/claims.txt"
    ;;
bench)
    "$regard" bench llama-train linear-attention-train mingru-train ${QUICK:-} | tee "$out/bench.txt"
    "$python" "$here/bench/paper_tasks.py" copy --length 128 --steps "${STEPS:-3000}" | tee "$out/copy.jsonl"
    "$python" "$here/bench/paper_tasks.py" selective --length 256 --steps "${STEPS:-5000}" | tee "$out/selective.jsonl"
    ;;
*)
    echo "there is no part $part" >&2
    exit 2
    ;;
esac
