"""`--track`: the curves that a tracker holds are those of metrics.jsonl, also after a kill, read by its own reader."""

import importlib
import json
import signal

import pytest

from interrupted import wait_for_step
from regard.runs.store.history import read_metrics
from regard.runs.tracking import scalars
from torchrun_command import ended, torchrun

TINY = [
    "--size", "tiny", "--data.tokenizer", "char", "--training.batch-tokens", "256", "--training.threads", "1",
    "--training.device", "cpu", "--training.evaluate-every", "5", "--training.checkpoint-every", "5",
    "--model.dropout", "0.0", "--model.width", "16",
]  # fmt: skip


def accumulated(run):
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = reader.EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0, "tensors": 0})
    return found.Reload()


def curves(run):
    found = accumulated(run)
    return {tag: [(event.step, event.value) for event in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def assert_same(run):
    """Every number of metrics.jsonl is in the event file, in its order, up to 32 bits, and nothing else."""
    wanted = {}
    for row in read_metrics(run / "metrics.jsonl"):
        for name, value in scalars(row).items():
            wanted.setdefault(name, []).append((row["step"], value))
    found = curves(run)
    assert found.keys() == wanted.keys()
    for name, points in wanted.items():
        assert [step for step, _ in found[name]] == [step for step, _ in points], name
        assert [value for _, value in found[name]] == pytest.approx([value for _, value in points], rel=1e-6)
    assert "valid/loss" in found


@pytest.fixture(scope="module")
def tracked(tmp_path_factory, text_file):
    pytest.importorskip("tensorboard")
    from regard.cli import main

    run = tmp_path_factory.mktemp("tracked") / "lstm"
    words = ["train", "lstm", "--data", text_file, "--run", run, *TINY, "--training.steps", "15"]
    main([*map(str, words), "--track", "tensorboard"])
    return run


def test_the_event_file_holds_metrics_jsonl_the_settings_and_what_it_writes(tracked):
    assert_same(tracked)
    found = accumulated(tracked)
    texts = {tag: b"".join(e.tensor_proto.string_val[0] for e in found.Tensors(tag)) for tag in found.Tags()["tensors"]}
    assert 'system = "lstm"' in texts["recipe/text_summary"].decode()
    assert texts["what it writes/text_summary"]
    plugin = importlib.import_module("tensorboard.plugins.hparams.plugin_data_pb2").HParamsPluginData()
    content = found.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    plugin.ParseFromString(content)
    settings = plugin.session_start_info.hparams
    assert settings["system"].string_value == "lstm"
    assert settings["model.width"].number_value == 16


def test_what_was_killed_and_resumed_has_one_curve(process, regard, text_file, tmp_path):
    pytest.importorskip("tensorboard")
    run = tmp_path / "killed"
    words = ["train", "lstm", "--data", text_file, "--run", run, *TINY, "--training.steps", "100000"]
    training = process(*words, "--track", "tensorboard")
    wait_for_step(run, 10, training)
    training.send_signal(signal.SIGKILL)
    training.communicate()
    going_on = process("resume", run, "--track", "tensorboard")
    wait_for_step(run, json.loads((run / "metrics.jsonl").read_text().strip().split("\n")[-1])["step"] + 10, going_on)
    going_on.send_signal(signal.SIGINT)
    _, errors = going_on.communicate()
    assert going_on.returncode == 130, errors
    assert_same(run)
    assert len(list((run / "tensorboard").iterdir())) == 1
    assert (run / "report.html").exists()  # also of a run that was stopped
    assert regard("runs", "remove", run, "--yes")[:2] == (0, f"{run}\n")
    assert not run.exists()


def test_a_run_can_be_tracked_from_the_middle(regard, text_file, tmp_path):
    run = tmp_path / "late"
    stop = {"count": 0}

    def callback(row):
        stop["count"] += row.get("split") == "valid"
        if stop["count"] == 2:
            raise RuntimeError("enough")

    from regard.runs.resume import resume
    from regard.runs.train import train

    settings = {
        "data": {"tokenizer": "char"},
        "model": {"width": 16},
        "training": {"steps": 20, "batch_tokens": 256, "evaluate_every": 5, "threads": 1, "device": "cpu"},
    }
    with pytest.raises(RuntimeError, match="enough"):
        train("lstm", data=str(text_file), run=run, size="tiny", settings=settings, callbacks=[callback])
    pytest.importorskip("tensorboard")
    resume(run, track="tensorboard")
    assert_same(run)
    assert [step for step, _ in curves(run)["valid/loss"]] == [5, 10, 15, 20]


@pytest.mark.slow
def test_of_several_processes_the_first_one_writes(text_file, tmp_path):
    pytest.importorskip("tensorboard")
    words = ["train", "lstm", "--data", text_file, *TINY, "--training.steps", "10", "--training.batch-tokens", "512"]
    code, _, errors = ended(torchrun(tmp_path, *words, "--run", "two", "--track", "tensorboard"))
    assert code == 0, errors
    assert_same(tmp_path / "two")
    assert len(list((tmp_path / "two" / "tensorboard").iterdir())) == 1


def test_a_missing_tracker_is_one_sentence_before_anything_is_trained(wrong, text_file, tmp_path, monkeypatch):
    words = ["train", "lstm", "--data", text_file, "--run", tmp_path / "run"]
    assert "--track must be one of tensorboard, mlflow" in wrong(*words, "--track", "paper")
    monkeypatch.setattr("regard.runs.tracking.find_spec", lambda name: None)
    assert "pip install 'regard[tensorboard]'" in wrong(*words, "--track", "tensorboard")
    assert "has no curves" in wrong("train", "ngram", "--data", text_file, "--track", "tensorboard")
    assert not (tmp_path / "run").exists()


def test_a_tracker_that_fails_does_not_end_the_training(regard, text_file, tmp_path, monkeypatch):
    pytest.importorskip("tensorboard")
    from regard.runs.tracking import TensorBoard

    def fail(self, row, when=None):
        raise OSError("no space")

    monkeypatch.setattr(TensorBoard, "add", fail)
    words = ["train", "lstm", "--data", text_file, "--run", tmp_path / "run", *TINY, "--training.steps", "5"]
    code, _, errors = regard(*words, "--track", "tensorboard")
    assert code == 0, errors
    assert errors.count("the curves are no longer logged (OSError: no space)") == 1


def test_mlflow_holds_the_same_without_a_network(regard, text_file, tmp_path, monkeypatch):
    pytest.importorskip("mlflow", reason="MLflow is not installed: pip install 'regard[mlflow]'")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    run = tmp_path / "runs" / "mine"
    words = ["train", "lstm", "--data", text_file, "--run", run, *TINY, "--training.steps", "10"]
    code, _, errors = regard(*words, "--track", "mlflow")
    assert code == 0, errors
    assert regard("resume", run, "--track", "mlflow")[0] == 0  # finished already: nothing is added
    from mlflow import MlflowClient

    noted = json.loads((run / "mlflow.json").read_text())
    client = MlflowClient(noted["tracking_uri"])
    found = client.get_run(noted["run_id"])
    assert found.data.params["model.width"] == "16"
    wanted = {}
    for row in read_metrics(run / "metrics.jsonl"):
        for name, value in scalars(row).items():
            wanted.setdefault(name, []).append((row["step"], value))
    for name, points in wanted.items():
        history = client.get_metric_history(noted["run_id"], name)
        assert sorted((metric.step, metric.value) for metric in history) == points
    assert [artifact.path for artifact in client.list_artifacts(noted["run_id"])] == ["what it writes.md"]
