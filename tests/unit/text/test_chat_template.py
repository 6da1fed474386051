"""Chat templates: written dialogues, and templates of strangers."""

import pytest

from regard.base.errors import RegardError
from regard.base.fields import FieldError
from regard.text import chat_template
from regard.text.chat_template import ChatTemplate, read_messages

DIALOGUE = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Who\nwatches?"},
    {"role": "assistant", "content": "They do."},
    {"role": "user", "content": "Why?"},
]
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def test_the_plain_template_writes_one_line_per_turn():
    template = ChatTemplate()
    prompt = "System: Be kind.\nUser: Who watches?\nAssistant: They do.\nUser: Why?\nAssistant:"
    assert template.prompt(DIALOGUE) == prompt
    assert template.closing == "\n"
    assert template.turns(DIALOGUE) == [
        ("System: Be kind.\nUser: Who watches?\nAssistant:", False),
        (" They do.\n", True),
        ("User: Why?\n", False),
    ]


@pytest.mark.parametrize("source", [CHATML, chat_template.PLAIN])
def test_a_template_writes_what_hugging_face_writes(source):
    utils = pytest.importorskip("transformers.utils.chat_template_utils", reason="transformers is not installed")
    (written,), _ = utils.render_jinja_template([DIALOGUE], chat_template=source, add_generation_prompt=True)
    assert ChatTemplate(source).prompt(DIALOGUE) == written
    turns = ChatTemplate(source).turns(DIALOGUE)
    opening = "<|im_start|>assistant\n" if source is CHATML else "Assistant:"
    assert "".join(text for text, _ in turns) + opening == written
    assert [text for text, said in turns if said] == [" They do.\n" if source is not CHATML else "They do.<|im_end|>\n"]


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("{% if %}", "Expected an expression"),
        ("{{ raise_exception('no system') }}", "no system"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ 'x' * 10 ** 10 }}", "too much memory"),
        ("{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}", "longer than 4,194,304 characters"),
        ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "seconds"),
        ("{{ range(10 ** 9) | list }}", "Range too big"),
    ],
)
def test_a_hostile_template_is_one_sentence(source, sentence, monkeypatch):
    monkeypatch.setattr(chat_template, "SECONDS", 10.0 if sentence != "seconds" else 0.5)
    template = ChatTemplate(source)
    with pytest.raises(RegardError, match=sentence):
        template.prompt(DIALOGUE)
    template.close()


def test_a_template_that_rewrites_turns_cannot_tell_them_apart():
    with pytest.raises(RegardError, match="cannot be told apart"):
        ChatTemplate("{{ messages | length }}").turns(DIALOGUE)


def test_messages_are_checked_by_place():
    with pytest.raises(FieldError, match=r"messages\[1\].role"):
        read_messages([DIALOGUE[0], {"role": "x", "content": ""}])
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert read_messages([{"role": "developer", "content": parts}]) == [{"role": "system", "content": "ab"}]
