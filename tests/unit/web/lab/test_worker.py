"""The process that opens models: its answers, its limits, and that it comes back."""

import asyncio
import json
import sys

import numpy as np
import pytest

from regard.base.errors import RegardError
from regard.report.packed_arrays import in_bytes, pack
from regard.web.lab.downsampling import in_buckets
from regard.web.lab.worker import WAITING, Busy, LabWorker, Overtaken

ECHO = """
import json, sys, time
for line in sys.stdin.buffer:
    asked = json.loads(line)
    body = asked["body"]
    if body.get("sleep"):
        time.sleep(body["sleep"])
    if body.get("die"):
        sys.exit(3)
    kind = body.get("kind", "json")
    content = json.dumps(body).encode() if kind in ("json", "binary") else b"It was refused."
    sys.stdout.buffer.write(json.dumps({"kind": kind, "bytes": len(content)}).encode() + b"\\n" + content)
    sys.stdout.buffer.flush()
"""


class Echo(LabWorker):
    """A worker whose process answers with the question: the protocol without torch."""

    async def _start(self):
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(sys.executable, "-c", ECHO, stdin=pipe, stdout=pipe)


def run(test, tmp_path):
    async def whole():
        worker = Echo(tmp_path)
        try:
            return await test(worker)
        finally:
            await worker.close()

    return asyncio.run(whole())


def test_questions_are_answered_and_refusals_are_sentences(tmp_path):
    async def test(worker):
        assert (await worker.ask("a.b", {"text": "é\n"})).value == {"text": "é\n"}
        with pytest.raises(RegardError, match="It was refused"):
            await worker.ask("a.b", {"kind": "refused"})
        assert (await worker.ask("a.b", {"kind": "binary"})).kind == "binary"

    run(test, tmp_path)


def test_a_process_that_died_or_takes_too_long_is_replaced(tmp_path, monkeypatch):
    monkeypatch.setattr("regard.web.lab.worker.START", 0)

    async def test(worker):
        await worker.ask("a.b", {}, seconds=60)
        with pytest.raises(RegardError, match="ended"):
            await worker.ask("a.b", {"die": 1}, seconds=60)
        assert (await worker.ask("a.b", {"x": 1}, seconds=60)).value == {"x": 1}
        with pytest.raises(RegardError, match=r"longer than 0.2 seconds"):
            await worker.ask("a.b", {"sleep": 100}, seconds=0.2)
        assert (await worker.ask("a.b", {"x": 2}, seconds=60)).value == {"x": 2}

    run(test, tmp_path)


def test_of_questions_that_are_typed_only_the_newest_is_answered(tmp_path):
    async def test(worker):
        first = asyncio.create_task(worker.ask("a.b", {"sleep": 0.3}))
        await asyncio.sleep(0)
        typed = [asyncio.create_task(worker.ask("a.b", {"n": n}, only="form")) for n in range(4)]
        answers = await asyncio.gather(first, *typed, return_exceptions=True)
        assert [isinstance(answer, Overtaken) for answer in answers] == [False, True, True, True, False]
        assert answers[-1].value == {"n": 3}

    run(test, tmp_path)


def test_more_than_a_few_questions_at_once_are_refused(tmp_path):
    async def test(worker):
        asked = [asyncio.create_task(worker.ask("a.b", {"sleep": 0.01})) for _ in range(WAITING + 3)]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert sum(isinstance(answer, Busy) for answer in answers) == 3

    run(test, tmp_path)


def test_arrays_are_packed_with_their_shapes_and_bounds():
    weights, bounds = in_bytes(np.array([[0.0, 0.5], [1.0, np.nan]]), 0, 1)
    content = pack({"a": weights, "b": np.ones(3, np.float16)}, {"x": float("inf")}, {"a": bounds})
    length = int.from_bytes(content[:4], "little")
    assert (4 + length) % 8 == 0
    assert b'"x": null' in content[4 : 4 + length]
    assert content[4 + length : 8 + length] == bytes([0, 128, 255, 0])
    assert len(content) == 4 + length + 8 + 8


def unpacked(content):
    """What a page reads, by the description of the format."""
    begin = 4 + int.from_bytes(content[:4], "little")
    header, numbers = json.loads(content[4:begin]), content[begin:]
    assert begin % 8 == 0
    assert len(numbers) % 8 == 0
    found = {}
    for each in header["arrays"]:
        assert each["offset"] % 8 == 0
        count = int(np.prod(each["shape"]))
        flat = np.frombuffer(numbers, dtype=each["type"], count=count, offset=each["offset"])
        found[each["name"]] = (flat.reshape(each["shape"]), (each["low"], each["high"]))
    return header["about"], found


def test_what_was_packed_is_read_back_wherever_it_lies():
    arrays = {
        "bytes": np.arange(5, dtype=np.uint8), "halves": np.arange(6, dtype=np.float16).reshape(2, 3),
        "turned": np.arange(6, dtype=np.float32).reshape(2, 3).T, "whole": np.arange(16, dtype=np.int32),
        "none": np.zeros((0, 3), np.float32), "last": np.ones(1, np.uint8),
    }  # fmt: skip
    for about in ("é", "ab", "abc", None):  # a header of any length
        content = pack(arrays, about, {"halves": (-1.0, 7.0)})
        said, found = unpacked(content)
        assert said == about
        assert about is None or about.encode() in content
        assert {name: bounds for name, (_, bounds) in found.items()} == {
            name: (-1.0, 7.0) if name == "halves" else (0.0, 1.0) for name in arrays
        }
        for name, array in arrays.items():
            assert found[name][0].dtype == array.dtype
            assert (found[name][0] == array).all()
    assert unpacked(pack(arrays))[0] is None


@pytest.mark.parametrize(
    ("values", "given", "found", "bounds"),
    [
        ([2.0, 4.0], (), [128, 255], (0.0, 4.0)),
        ([-1.0, 3.0], (), [0, 255], (-1.0, 3.0)),
        ([-3.0, -1.0], (), [0, 255], (-3.0, -1.0)),
        ([0.0, 0.0], (), [0, 0], (0.0, 0.0)),
        ([], (), [], (0.0, 0.0)),
        ([0.0, 1.0, 2.0, 5.0], (1.0, 3.0), [0, 0, 128, 255], (1.0, 3.0)),
        ([6.0, 5.0], (5.0, 5.0), [255, 0], (5.0, 5.0)),
        ([np.nan, np.inf, -np.inf, 1.0], (), [0, 0, 0, 255], (0.0, 1.0)),
    ],
)
def test_numbers_are_bytes_between_their_bounds(values, given, found, bounds):
    content, ends = in_bytes(np.array(values), *given)
    assert (content.tolist(), ends) == (found, bounds)


@pytest.mark.parametrize("log", [False, True])
def test_a_curve_in_pixels_keeps_its_ends_its_mean_and_its_extremes(log):
    x = np.arange(1.0, 10_001)
    y = np.sin(x) + x / 1000
    across, mean, low, high = in_buckets(x, y, 300, log)
    assert len(across) <= 300
    assert low.min() == np.float32(y.min())
    assert high.max() == np.float32(y.max())
    assert (low <= mean).all()
    assert (mean <= high).all()
    assert (np.diff(across) > 0).all()
    few = in_buckets(x[:5], np.array([1, np.nan, 3, np.inf, 5.0]), 300, log)
    assert few[1].tolist() == [1, 3, 5]
