"""What the benchmarks measure, as docs/benchmarks.md reports it: shapes, contenders, costs and calls of every row.

At every size, also that for a GPU, which no CPU measures: the rows are made, and none is opened. They are compared with
tests/golden/bench_rows.json; `python tests/unit/bench/test_notices_bench.py` writes it anew.
"""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from regard.bench.all_benchmarks import BENCHES, SERVE
from regard.bench.contenders import SIZES, BenchPlace, Contender
from regard.bench.plain_gpt import PlainGPT
from regard.bench.sizes import _is_a_page
from regard.bench.turns import BenchResult, TimedContender, spread
from regard.systems.gpt import Settings

GOLDEN = Path(__file__).parents[2] / "golden" / "bench_rows.json"
LEFT_OUT = {SERVE.name, "sizes", "demo"}  # which need a server, and many models
ROWS = [bench for bench in BENCHES if bench.name not in LEFT_OUT]


def made(bench, size):
    found = []
    for row in bench.rows(BenchPlace(torch.device("cpu"), size)):
        contenders = [[each.name, [*each.needs], each.needs_gpu] for each in row.contenders]
        cost = row.cost and list(asdict(row.cost).values())
        found.append([row.name, row.work, row.unit, row.warm_up, row.calls, contenders, cost])
    return found


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("bench", ROWS, ids=lambda bench: bench.name)
def test_what_is_measured_changes_only_on_purpose(bench, size):
    found, known = made(bench, size), json.loads(GOLDEN.read_text(encoding="utf-8"))[bench.name][size]
    assert [row[:-1] for row in found] == [row[:-1] for row in known]
    for (*_, cost), (*_, wanted) in zip(found, known, strict=True):
        assert cost == (wanted and pytest.approx(wanted, rel=1e-9))


def test_a_spread_is_half_the_range_as_a_share_of_the_median():
    assert spread([80.0, 100.0, 120.0]) == pytest.approx(0.2)
    assert spread([5.0]) == 0.0
    assert spread([]) is None


def test_a_ratio_is_the_median_of_the_turns_ratios_and_a_share_is_of_the_limit():
    ours, theirs, silent = (
        TimedContender(Contender(name, object), rates=rates)
        for name, rates in (("Regard", [10.0, 20.0, 60.0]), ("B", [5.0, 5.0, 60.0]), ("C", []))
    )

    class Limited(BenchResult):
        limit = (40.0, "operations")

    result = Limited(None, None, [ours, theirs, silent])
    assert (result.ratio(theirs), result.ratio(silent)) == (2.0, None)
    assert (result.share(ours), result.share(silent)) == (0.5, None)


def test_the_plain_page_drops_in_training_alone_and_stands_in_only_for_what_it_can():
    page = PlainGPT(11, layers=1, width=8, heads=2, context=4, dropout=0.5).blocks[0]
    ones = torch.ones(400)
    assert torch.equal(page.eval().drop(ones), ones)
    assert sorted(page.train().drop(ones).unique().tolist()) == [0.0, 2.0]
    assert _is_a_page(Settings(layers=3, width=32, heads=4, context=9, dropout=0.1))
    assert not _is_a_page(Settings(norm="post"))


if __name__ == "__main__":
    of_sizes = {bench.name: {size: made(bench, size) for size in SIZES} for bench in ROWS}
    lines = [f" {json.dumps(name)}: {json.dumps(found, ensure_ascii=False)}" for name, found in of_sizes.items()]
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
