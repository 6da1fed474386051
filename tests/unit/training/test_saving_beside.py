"""Files written beside the training, as on a GPU: they hold what was, in the same order, and no error is lost."""

import threading

import pytest
import torch

from regard.base.errors import RegardError, Stopped
from regard.training import background_files, checkpointing
from regard.training.checkpoint import load_tensors, save_tensors
from regard.training.checkpointing import all_finite
from small_trainers import bits, trainer

ASGD = {"optimizer": "asgd", "learning_rate": 4.0, "evaluate_every": 1, "steps": 20, "snapshots": 3}


@pytest.fixture
def beside(monkeypatch):
    """No checkpoint is left out, however busy this machine is."""
    monkeypatch.setattr(background_files, "BESIDE", ("cpu",))
    monkeypatch.setattr(background_files.FileWriter, "is_busy", lambda writer, kind: False)


class Disk:
    """Writes when it may, and notes what; fails from the file of this number on."""

    def __init__(self, fails=1000):
        self.may_write, self.fails, self.written = threading.Event(), fails, []

    def __call__(self, path, tensors, note=None):
        assert self.may_write.wait(60)
        if len(self.written) >= self.fails:
            raise RegardError(f"The disk is full, so '{path}' was not saved.")
        save_tensors(path, tensors, note)
        self.written.append(path.name)


@pytest.fixture
def disk(beside, monkeypatch):
    disk = Disk()
    monkeypatch.setattr(checkpointing, "save_tensors", disk)
    return disk


def ready(folder, **settings):
    one = trainer(folder, **settings)
    one.files.keep = 2
    return one


@pytest.mark.parametrize("settings", [{}, ASGD], ids=["adamw", "asgd"])
def test_the_files_are_those_that_are_written_at_once(tmp_path, monkeypatch, settings):
    found = []
    for devices in ((), ("cpu",)):
        monkeypatch.setattr(background_files, "BESIDE", devices)
        monkeypatch.setattr(background_files.FileWriter, "is_busy", lambda writer, kind: False)
        one = ready(tmp_path / f"{len(devices)}", **settings)
        one.save()
        one.train()
        assert one.files.writer.thread is None
        names = sorted(str(path.relative_to(one.folder)) for path in one.folder.rglob("*.safetensors"))
        found.append({name: bits(one.folder, name) for name in names})
    assert {"kept", "snapshots"} & {name.split("/")[0] for name in found[0]} == {"kept"} | {"snapshots"} & {*settings}
    assert found[0] == found[1]


def test_what_is_saved_is_what_was_although_the_training_went_on(tmp_path, disk):
    one = ready(tmp_path)
    for _ in range(3):
        one.step()
    weights = {name: weight.clone() for name, weight in one.model.state_dict().items()}
    moments = [value["exp_avg"].clone() for value in one.optimizer.state.values()]
    one.save(wait=False)
    one.files.keep_validated(one.progress.step, one.files.copy_weights())
    for _ in range(2):
        one.step()
    assert disk.written == []
    disk.may_write.set()
    one.files.writer.wait()
    assert disk.written == ["training.safetensors", "00000003.safetensors"]
    tensors, note = load_tensors(tmp_path / "training.safetensors")
    kept = load_tensors(tmp_path / "kept" / "00000003.safetensors")[0]
    assert note["progress"]["step"] == 3
    for name, weight in weights.items():
        assert torch.equal(tensors[f"model/{name}"], weight)
        assert torch.equal(kept[name], weight)
        assert not torch.equal(one.model.state_dict()[name], weight)
    for number, moment in enumerate(moments):
        assert torch.equal(tensors[f"optimizer/{number}/exp_avg"], moment)


def test_one_copy_of_each_kind_is_held_and_the_next_waits_for_its_files(tmp_path, disk):
    one = ready(tmp_path)
    one.step()
    one.save(wait=False)
    held = one.files.writer.host_bytes
    places = {name: copy.data_ptr() for name, copy in one.files.writer.copies["checkpoint"].items()}
    second = threading.Thread(target=one.save)
    second.start()
    second.join(0.05)
    assert second.is_alive()
    disk.may_write.set()
    second.join()
    assert disk.written == ["training.safetensors"] * 2
    assert one.files.writer.host_bytes == held
    assert {name: copy.data_ptr() for name, copy in one.files.writer.copies["checkpoint"].items()} == places


def test_a_checkpoint_that_comes_while_the_last_is_written_is_left_out(tmp_path, monkeypatch):
    disk = Disk()
    monkeypatch.setattr(background_files, "BESIDE", ("cpu",))
    monkeypatch.setattr(checkpointing, "save_tensors", disk)
    one = ready(tmp_path, checkpoint_every=1, evaluate_every=100)
    one.step()
    assert one.clock.checkpoint_is_due(False, stops=False, busy=one.files.is_busy)
    one.save(wait=False)
    one.step()
    assert not one.clock.checkpoint_is_due(False, stops=False, busy=one.files.is_busy)
    one.files.writer.submit("weights", lambda: None)  # files of another kind come after it
    disk.may_write.set()
    one.files.writer.last["checkpoint"].result()
    assert one.clock.checkpoint_is_due(False, stops=False, busy=one.files.is_busy)
    one.files.writer.close()


@pytest.mark.parametrize("fails", range(1, 8))
def test_a_disk_that_is_full_ends_the_training_with_its_sentence_and_the_checkpoint_before_it(tmp_path, disk, fails):
    disk.may_write.set()
    disk.fails = fails
    one = ready(tmp_path)
    one.save()
    with pytest.raises(RegardError, match="The disk is full, so"):
        one.train()
    names = ["training", "training", "model", "00000005", "training", "model", "00000010", "training"]
    assert disk.written == [f"{name}.safetensors" for name in names[:fails]]
    assert one.files.writer.thread is None
    again = ready(tmp_path)
    again.restore()
    assert again.progress.step == [0, 0, 4, 4, 4, 8, 8, 8][fails]


@pytest.mark.parametrize("error", [Stopped, KeyboardInterrupt, ValueError])
def test_however_a_training_ends_its_last_files_are_written(tmp_path, disk, error):
    one = ready(tmp_path, steps=100, checkpoint_every=3)
    threading.Timer(0.05, disk.may_write.set).start()
    step = one.step

    def ending():
        if one.progress.step == 4:
            if error is not Stopped:
                raise error
            one.stop_requested = True
        return step()

    one.step = ending
    with pytest.raises(error):
        one.train()
    last = load_tensors(tmp_path / "training.safetensors")[1]["progress"]["step"]
    assert last == (5 if error is Stopped else 3)
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".part")]


def test_a_stop_does_not_hide_a_full_disk(tmp_path, disk):
    disk.may_write.set()
    one = ready(tmp_path)
    one.save()
    disk.fails = 1
    one.callbacks = (lambda row: setattr(one, "stop_requested", True),)
    with pytest.raises(RegardError, match="The disk is full, so"):
        one.train()


def test_the_end_of_a_budget_leaves_the_time_that_the_last_files_took(tmp_path, beside):
    one = ready(tmp_path, budget="100s")
    one.files.writer.took = {"weights": 2.0, "checkpoint": 6.0}
    one._sync()
    one.progress.started, one.clock.ending = 10.0, 12.0
    assert one.clock._used(45.0, 0) == 35.0 / (100.0 - 10.0 - 12.0 - 8.0)


def test_while_files_are_written_the_time_of_those_before_them_is_left(beside):
    one = background_files.FileWriter(torch.device("cpu"))
    one.took = {"weights": 2.0, "checkpoint": 6.0}
    one.copy("checkpoint", {"w": torch.ones(3)})
    assert one.seconds == 8.0
    one.took["checkpoint"] = 7.0  # these take longer
    assert one.seconds == 9.0
    one.copy("checkpoint", {"w": torch.ones(3)})
    one.took["checkpoint"] = 1.0
    assert one.seconds == 9.0  # not yet known to be all of theirs
    one.copy("checkpoint", {"w": torch.ones(3)})
    assert one.seconds == 3.0


def test_what_has_no_numbers_is_finite():
    assert all_finite([])
    assert all_finite([torch.arange(5)])
    assert all_finite([torch.empty(0), torch.ones(2)])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_one_number_that_is_not_finite_is_found(value):
    tensors = [torch.ones(3, 4), torch.arange(5), torch.full((2,), 3e38)]
    assert all_finite(tensors)
    for place in range(12):
        tensors[0] = torch.ones(12).index_fill(0, torch.tensor(place), value).view(3, 4)
        assert not all_finite(tensors)


def test_a_copy_needs_no_page_locked_memory_where_none_is_left(monkeypatch):
    made = torch.empty

    def refusing(*shape, pin_memory=False, **options):
        if pin_memory:
            raise RuntimeError("CUDA error: out of memory")
        return made(*shape, **options)

    class Stream:
        def synchronize(self):
            pass

    monkeypatch.setattr(torch, "empty", refusing)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Stream())
    copied = background_files.FileWriter(torch.device("cuda")).copy("weights", {"w": torch.arange(3.0)})
    assert copied["w"].tolist() == [0.0, 1.0, 2.0]
