"""The lab looks again while a run trains: new weights, and curves whose last line was only half there."""

import json
import os

import pytest
import torch

import regard
from regard.base.errors import RegardError
from regard.training.checkpoint import load_tensors, save_tensors
from regard.web.lab import opened_runs
from regard.web.lab.live_curve import LiveCurve, last_row
from regard.web.lab.opened_runs import MOST_OPEN, open_run
from regard.web.lab.runs_folder import RunsFolder

# -- weights -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A folder with a run that has best weights, last ones and two snapshots."""
    folder = tmp_path_factory.mktemp("lab")
    (folder / "text.txt").write_text("".join(f"the ship {n} left\n" for n in range(60)))
    training = {"steps": 4, "evaluate_every": 2, "checkpoint_every": 2, "snapshots": 2, "threads": 1, "device": "cpu"}
    settings = {"training": training, "data": {"tokenizer": "char"}, "model": {"width": 8}}
    regard.train("lstm", data=folder / "text.txt", size="tiny", run=folder / "runs" / "lstm", settings=settings)
    return RunsFolder(folder / "runs")


@pytest.fixture(autouse=True)
def nothing_open():
    opened_runs._open.clear()
    yield
    opened_runs._open.clear()


def weights(run):
    return torch.cat([weight.flatten() for weight in run.model.parameters()])


def files(lab):
    found = {"best": "model.safetensors", "last": "training.safetensors"}
    steps = sorted((lab.root / "lstm" / "snapshots").glob("*.safetensors"))
    return found | {str(int(path.stem)): f"snapshots/{path.name}" for path in steps}


def test_a_run_is_opened_once_and_again_whenever_its_weights_were_written(lab):
    for which, name in files(lab).items():
        path = lab.root / "lstm" / name
        first = open_run(lab, "lstm", which)
        assert open_run(lab, "lstm", which) is first
        before, (tensors, note) = weights(first), load_tensors(path)
        written = path.stat().st_mtime_ns
        save_tensors(
            path, {key: value * 2 if value.is_floating_point() else value for key, value in tensors.items()}, note
        )
        os.utime(path, ns=(written + 1, written + 1))  # as little later as the system can tell
        second = open_run(lab, "lstm", which)
        torch.testing.assert_close(weights(second), 2 * before)
        assert open_run(lab, "lstm", which) is second


def test_each_kind_of_weights_is_a_run_of_its_own(lab):
    found = [weights(open_run(lab, "lstm", which)) for which in files(lab)]
    assert len(found) >= 3
    assert not torch.equal(found[0], found[2])
    again = [open_run(lab, "lstm", which) for which in files(lab)]
    assert [torch.equal(weights(run), before) for run, before in zip(again, found, strict=True)] == [True] * len(found)


def test_so_many_runs_stay_open_and_those_looked_at_last(lab, monkeypatch):
    monkeypatch.setattr(opened_runs, "load", lambda path, weights: (path.name, weights))
    for number in range(MOST_OPEN + 2):
        run = lab.root / f"run{number}"
        run.mkdir(exist_ok=True)
        (run / "run.json").write_text("{}")
        (run / "model.safetensors").touch()
    for number in range(MOST_OPEN):
        open_run(lab, f"run{number}")
    open_run(lab, "run0")
    open_run(lab, f"run{MOST_OPEN}")
    names = [path.name for path, _ in opened_runs._open]
    assert names == [*(f"run{n}" for n in range(2, MOST_OPEN)), "run0", f"run{MOST_OPEN}"]


def test_a_run_that_has_no_weights_yet_is_one_sentence(lab):
    young = lab.root / "young"
    young.mkdir()
    (young / "run.json").write_text("{}")
    with pytest.raises(RegardError, match="young has no saved weights yet"):
        open_run(lab, "young")


# -- curves ------------------------------------------------------------------------------------------------------------

ROWS = [
    {"step": n, "tokens": 10.0 * n, "seconds": 0.5 * n, "loss": 2.0 / n, "perplexity": 7.4, "learning_rate": 0.1}
    | ({"split": "valid"} if n % 2 == 0 else {})
    for n in range(1, 5)
]  # fmt: skip
CONTENT = "".join(json.dumps(row) + "\n" for row in ROWS).encode()


def losses(curve):
    return list(curve.columns["loss"])


def test_a_line_that_was_half_written_is_whole_at_the_next_look(tmp_path):
    """Wherever a look falls between two writes, nothing is lost, nothing counts twice and nothing seems damaged."""
    for cut in range(0, len(CONTENT) + 1, 3):
        path = tmp_path / f"{cut}.jsonl"
        path.write_bytes(CONTENT[:cut])
        curve = LiveCurve(path)
        curve.read()
        assert curve.rows == CONTENT[:cut].count(b"\n")
        for end in (cut + 3, len(CONTENT)):
            with open(path, "ab") as stream:
                stream.write(CONTENT[path.stat().st_size : end])
            curve.read()
        assert losses(curve) == [row["loss"] for row in ROWS]
        assert curve.valid == [row.get("split") == "valid" for row in ROWS]
        assert (curve.damaged, curve.age) == (0, 0)
        assert [row[0] for row in curve.since(2)] == curve.valid[2:]


def test_the_newest_row_is_the_last_whole_one(tmp_path):
    path = tmp_path / "metrics.jsonl"
    for cut in range(CONTENT.index(b"\n") + 1, len(CONTENT) + 1, 5):
        path.write_bytes(CONTENT[:cut])
        whole = CONTENT[:cut].count(b"\n")
        assert last_row(path)["step"] == whole


def test_a_file_that_was_cut_or_replaced_is_read_anew(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(CONTENT)
    curve = LiveCurve(path)
    curve.read()
    path.write_bytes(CONTENT[: CONTENT.index(b"\n") + 1])  # a run that begins again
    curve.read()
    assert (losses(curve), curve.age) == ([ROWS[0]["loss"]], 1)
    (tmp_path / "new").write_bytes(CONTENT.replace(b"2.0", b"9.0"))  # longer, and another file
    os.replace(tmp_path / "new", path)
    curve.read()
    assert (losses(curve)[0], curve.rows, curve.age) == (9.0, 4, 2)
    path.unlink()
    curve.read()
    assert curve.rows == 0
