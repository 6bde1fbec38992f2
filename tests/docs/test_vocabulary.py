"""The check of words: it notices what it should, and nothing else."""

from __future__ import annotations

import pytest

from tools import vocabulary


@pytest.mark.parametrize(
    "text",
    [
        "The holder is told.",
        "Nobody waits.",
        "It is loaded anew",
        "one trip to Redis",
        "they let go of it",
        "it has changed meanwhile",
        "it is stored, also when Redis is down",
        "replace the cost by the real one",
        "it shall wait",
        "each is counted apart",
        "a channel layer, also on a cluster",
    ],
)
def test_a_word_to_avoid_is_found(text: str) -> None:
    """Also at the beginning of a sentence, with its line."""
    assert [line for line, *_ in vocabulary.found_in(f"first\n{text}", set())] == [2]


@pytest.mark.parametrize(
    "text",
    [
        "one round trip",
        "a round-trip",
        "Round trips",
        "in one round\n    trip",
        "a tripwire",
        "renewed",
        "and also when it reads",
        "it is replaced by another one",
        "It waits. Meanwhile, others run; meanwhile it sleeps.",
        "two are seconds apart, and apart from that equal",
        "it is, also known as such",
    ],
)
def test_the_words_of_the_field_are_not(text: str) -> None:
    """A round trip is one, even across a line break."""
    assert list(vocabulary.found_in(text, set())) == []


def test_names_and_docstrings_are_read_of_tests() -> None:
    """A name is read as its words; what a test sends, such as a user's name, is not read."""
    source = 'def reaches_nobody():\n    """It is told."""\n    send("anew")  # trip\n'
    read = vocabulary.names_and_docstrings(source)
    assert [(line, word) for line, word, _ in vocabulary.found_in(read, set())] == [
        (1, "nobody"),
        (2, "told"),
    ]


def test_what_is_allowed_is_still_there() -> None:
    """A word that a file may have is in it; otherwise the exception can go."""
    for name, words in vocabulary.ALLOWED.items():
        text = (vocabulary.ROOT / name).read_text(encoding="utf-8").lower()
        assert [word for word in words if word.isalpha() and word not in text] == []
