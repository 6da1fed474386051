"""What the benchmarks measure, as docs/benchmarks.md reports it: shapes, contenders, costs and calls of every row.

At every size, also that for a GPU, which no CPU measures: the rows are made, and none is opened. They are compared with
tests/golden/bench_rows.json, and the work of the rows of fast code with bench_work.json;
`python tests/unit/bench/test_notices_bench.py` writes both anew.
"""

import json
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from regard.bench import fast_rows, gpt2
from regard.bench.all_benchmarks import BENCHES, SERVE
from regard.bench.contenders import SIZES, BenchPlace, Contender
from regard.bench.plain_gpt import PlainGPT
from regard.bench.sizes import _is_a_page
from regard.bench.turns import BenchResult, TimedContender, spread
from regard.systems.gpt import Settings

GOLDEN_WORK = Path(__file__).parents[2] / "golden" / "bench_work.json"
GOLDEN = Path(__file__).parents[2] / "golden" / "bench_rows.json"
LEFT_OUT = {SERVE.name, "sizes", "demo"}  # which need a server, and many models
ROWS = [bench for bench in BENCHES if bench.name not in LEFT_OUT]


def made(bench, size):
    with torch.device("meta"):  # models are counted and not computed with
        return of_rows(bench, size)


def of_rows(bench, size):
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


def work(name, size):
    """What the work of a row of fast code is made of: shapes alone, so that also a GPU's takes no memory here."""
    noted = {}

    def training(model, batches, settings, place):
        batch = batches.batch(0)
        names = getattr(batch, "_fields", None) or batch.__dataclass_fields__
        parts = [getattr(batch, name) for name in names]
        shapes = [list(part.shape) for part in parts if getattr(part, "ndim", 0) == 2]
        own = vars(settings)
        noted.update(model=type(model).__name__, weights=sum(weight.numel() for weight in model.parameters()),
                     tokens=own["batch_tokens"], window=own.get("window"), rate=own["learning_rate"], shapes=shapes,
                     settings={key: str(value) for key, value in vars(model.settings).items()})  # fmt: skip
        return SimpleNamespace(parameters=0)

    def generation(place, rows, new, *sampling):
        noted.update(rows=rows, new=new, sampling=str(sampling))
        return SimpleNamespace(parameters=0)

    def engine(model, **how):
        noted.update(model=type(model).__name__, weights=sum(weight.numel() for weight in model.parameters()),
                     engine={key: str(value) for key, value in how.items() if key != "install"})  # fmt: skip
        return SimpleNamespace(texts=lambda prompts, **limits: noted.update(prompts=np.shape(prompts), **limits) or [])

    def search(model, sources, **how):
        noted.update(
            sources=np.shape(sources), width=how["beam"].width, least=how["min_tokens"], most=how["max_tokens"]
        )
        return []

    with pytest.MonkeyPatch.context() as patch, torch.device("meta"):
        patch.setattr(fast_rows, "RegardTraining", training)
        patch.setattr(gpt2, "RegardGeneration", generation)
        patch.setattr(gpt2, "regard_gpt", partial(gpt2.regard_gpt, on="meta"))
        for other in ("Engine", "BeamEngine"):
            patch.setattr(fast_rows, other, engine)
        patch.setattr(fast_rows, "translate", search)
        patch.setattr(fast_rows, "install", lambda model: None)
        place = SimpleNamespace(device=torch.device("meta"), dtype=torch.float32, size=size,
                                of=BenchPlace(torch.device("cpu"), size).of)  # fmt: skip
        opened = fast_rows.TRIALS[name].open(place)
        if callable(opened):
            opened()
    return json.loads(json.dumps(noted))


WORKS = {  # one row for each kind of work; those of size medium and of n-grams are benchmarks of their own
    trial.work: name for name, trial in fast_rows.TRIALS.items()
    if not trial.work.endswith(("size medium", "5-gram scores text"))
}  # fmt: skip


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", WORKS.values(), ids=WORKS.keys())
def test_the_work_of_a_fast_row_changes_only_on_purpose(name, size):
    assert work(name, size) == json.loads(GOLDEN_WORK.read_text(encoding="utf-8"))[name][size]


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
    works = {name: {size: work(name, size) for size in SIZES} for name in WORKS.values()}
    lines = [f" {json.dumps(name)}: {json.dumps(found)}" for name, found in works.items()]
    GOLDEN_WORK.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
