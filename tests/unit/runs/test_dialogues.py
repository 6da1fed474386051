"""Training on dialogues: only the assistant's turns are learned, a split never cuts one, and the template is kept."""

import json
import math
import shutil

import numpy as np
import pytest
import torch

import regard
from regard.base.errors import RegardError
from regard.runs.prepare import data_of
from regard.text.chat_template import PLAIN
from regard.text.corpus import open_corpus
from regard.text.dialogue_tokens import dialogue_tokens
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.training.objective import Objective, to_device

PAIRS = [(f"What is {a} and {b}?", f"It is {a + b}.") for a in range(10) for b in range(8)]


def written(path, pairs=PAIRS):
    rows = [{"messages": [{"role": "user", "content": q}, {"role": "assistant", "content": a}]} for q, a in pairs]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dialogues")
    settings = {
        "training": {"steps": 40, "evaluate_every": 20, "threads": 1, "device": "cpu", "batch_tokens": 256},
        "model": {"width": 32, "layers": 1, "context": 64}, "data": {"tokenizer": "bpe"},
    }  # fmt: skip
    return regard.train("gpt", data=written(folder / "talk.jsonl"), run=folder / "run", size="tiny", settings=settings)


def test_the_assistants_tokens_alone_are_counted_and_equal_those_at_inference(tmp_path):
    corpus = open_corpus(written(tmp_path / "talk.jsonl"))
    tokenizer = Tokenizer.train(corpus.splits["train"], "bpe")
    array = dialogue_tokens(corpus.splits["valid"], tokenizer)
    assert tokenizer.decode(array.ids[array.counted].tolist()).count("It is") == array.lines
    assert "What" not in tokenizer.decode(array.ids[array.counted].tolist())
    text = tokenizer.decode(array.ids.tolist())
    assert text == "".join(f"{line}\n" for line in corpus.splits["valid"])
    prompt = corpus.template.prompt([{"role": "user", "content": "What is 1 and 2?"}])
    read = tokenizer.encode(prompt)
    assert tokenizer.encode(prompt + " It is 3.\n")[: len(read)] == read
    lines = {split: set(some) for split, some in corpus.splits.items()}
    assert not lines["train"] & (lines["valid"] | lines["test"])
    assert sum(map(len, lines.values())) == len(PAIRS)


@pytest.mark.parametrize("batches", ["windows", "streams"])
def test_the_loss_and_its_gradient_come_from_the_counted_targets_alone(run, batches, tmp_path):
    from regard.text.batches.text_batches import Streams, Windows

    corpus = run.corpus()
    array = dialogue_tokens(corpus.splits["train"], run.tokenizer)
    made = (Windows(array.ids, 4, 32, 0, 1, counted=array.counted) if batches == "windows"
            else Streams(array.ids, 4, 32, 0, counted=array.counted))  # fmt: skip
    seen = 0
    for step in range(made.steps_per_epoch):
        batch = made.batch(step)
        seen += int(batch.counted.sum())
        assert run.tokenizer.decode(batch.targets[batch.counted].tolist()).count("What") == 0
    assert seen == array.counted.sum()
    batch, objective = made.batch(0), Objective(run.model.eval(), keeps=False)
    moved = to_device(batch, torch.device("cpu"))
    loss, count, _ = objective(moved, None)
    nll, _ = run.model.loss(moved.tokens, moved.targets, None, moved.lengths)
    assert int(count) == batch.counted.sum() == batch.count
    assert float(loss) == pytest.approx(float(nll[moved.counted].sum()), rel=1e-6)
    other = np.where(batch.counted, batch.targets, (batch.targets + 1) % run.tokenizer.vocabulary)
    assert float(objective(moved._replace(targets=torch.from_numpy(other)), None)[0]) == pytest.approx(float(loss))


def test_validation_and_evaluation_count_the_same_tokens(run):
    found = run.evaluate("valid")
    array = dialogue_tokens(run.corpus().splits["valid"], run.tokenizer)
    assert found["tokens"] == array.counted.sum()
    assert "assistant" in found["counted"]
    rows = map(json.loads, (run.folder / "metrics.jsonl").read_text().splitlines())
    best = min(row["loss"] for row in rows if row.get("split") == "valid")
    assert found["nats_per_token"] == pytest.approx(best, rel=0.05)
    assert math.isfinite(found["perplexity"])


@pytest.mark.parametrize(("limit", "count"), [(50, 50), (0, None)])
def test_of_a_short_validation_as_many_targets_are_counted_as_are_read(run, limit, count):
    data = data_of(run.folder, run.recipe)
    found, array = (
        data.validation(run.recipe.replace(training={"validation_tokens": limit}), run.model),
        data.arrays["valid"],
    )
    assert found.ids.tolist() == array.ids[:count].tolist()
    assert found.counted.tolist() == array.counted[:count].tolist()
    assert found.begin is None  # dialogues contain their boundaries


def test_the_template_is_kept_used_exported_and_inherited(run, tmp_path):
    assert (run.folder / "chat_template.jinja").read_text() == PLAIN
    answer = "".join(run.reply([{"role": "user", "content": "What is 1 and 2?"}], max_tokens=12, seed=1))
    prompt = "User: What is 1 and 2?\nAssistant:"
    assert answer.strip() == run.generate(prompt, max_tokens=12, seed=1).removeprefix(prompt).partition("\n")[0].strip()
    regard.export(run.folder, "huggingface", tmp_path / "hf")
    assert (tmp_path / "hf" / "chat_template.jinja").read_text() == PLAIN
    shutil.copytree(run.folder, tmp_path / "own")
    own = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ '\\n' }}{% endfor %}"
    own += "{% if add_generation_prompt %}<assistant>{% endif %}"
    (tmp_path / "own" / "chat_template.jinja").write_text(own)
    short = {"training": {"steps": 2, "evaluate_every": 1, "threads": 1, "device": "cpu"}}
    data = written(tmp_path / "more.jsonl", PAIRS[:30])
    tuned = regard.train(data=data, start=tmp_path / "own", run=tmp_path / "tuned", settings=short)
    assert tuned.chat_template == own
    assert next(iter(tuned.corpus().splits["train"])).startswith("<user>What")


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('{"messages": []}', "a list of 1 to"), ('{"messages": [{"role": "king", "content": "x"}]}', "role must be"),
        ('{"messages": [{"role": "user", "content": 3}]}', "must be a string"), ("[1, 2]", "a list of 1 to"),
        ('{"text": "x"}', "a list of 1 to"), ("{", "a list of 1 to"), ('{"messages": ' + "[" * 5000, "a list of 1 to"),
    ],
)  # fmt: skip
def test_a_wrong_dialogue_is_named_by_its_line(tmp_path, line, sentence):
    path = written(tmp_path / "talk.jsonl")
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(RegardError, match=f"line {len(PAIRS) + 1}: .*{sentence}"):
        list(open_corpus(path).splits["train"])


def test_dialogues_without_an_assistant_are_refused(tmp_path):
    rows = [{"messages": [{"role": "user", "content": f"Hello {n}"}]} for n in range(40)]
    path = tmp_path / "talk.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(RegardError, match="no assistant turn"):
        regard.train("gpt", data=path, run=tmp_path / "run", size="tiny")


def test_chat_answers_by_the_template_and_can_undo_and_retry(run, capsys):
    from regard.cli.dialogue import Conversation

    talk = Conversation(run, regard.Sampling(0.5), max_tokens=12, seed=1)
    assert talk.answer("What is 1 and 2?")
    first = capsys.readouterr().out.strip()
    hello = [{"role": "user", "content": "What is 1 and 2?"}]
    assert first == "".join(run.reply(hello, max_tokens=12, sampling=regard.Sampling(0.5), seed=1)).strip()
    assert [one["role"] for one in talk.messages] == ["user", "assistant"]
    talk.answer("/retry")
    assert len(talk.messages) == 2
    talk.answer("/undo")
    assert talk.messages == []
    for command in ("/undo", "/retry", "/tokens 0", "/tokens x"):
        with pytest.raises(RegardError):
            talk.answer(command)
    talk.answer("/system Be brief.")
    assert talk.messages == [{"role": "system", "content": "Be brief."}]
    assert not talk.answer("/quit")
