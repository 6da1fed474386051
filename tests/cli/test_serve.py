"""`regard serve` as its users meet it: what is wrong is said before anything listens."""

import socket


def test_what_cannot_be_served_is_one_sentence(wrong, trained, tmp_path):
    assert "Name at least one run" in wrong("serve")
    assert "There is no run" in wrong("serve", tmp_path / "none", "--port", 0)
    assert "set a --token" in wrong("serve", trained["ngram"], "--host", "0.0.0.0", "--port", 0)
    assert "at least 16" in wrong("serve", trained["ngram"], "--port", 0, "--token", "short")
    assert "--languages takes" in wrong("serve", trained["ngram"], "--port", 0, "--languages", "fr")
    assert "not one of the translators" in wrong("serve", trained["ngram"], "--port", 0, "--languages", "ngram=en-fr")
    assert "--queue must be at least 1" in wrong("serve", trained["ngram"], "--queue", 0)
    assert "fp32, bf16" in wrong("serve", trained["ngram"], "--port", 0, "--precision", "fp8")
    assert "Two runs are called" in wrong("serve", trained["ngram"], trained["ngram"], "--port", 0)
    with socket.create_server(("127.0.0.1", 0)) as held:
        assert "is in use" in wrong("serve", trained["ngram"], "--port", held.getsockname()[1])
