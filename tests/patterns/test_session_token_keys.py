"""The keys of a token's session: one set per token, in the slot of its user's index, for any user."""

from __future__ import annotations

from fnmatch import fnmatchcase

from hypothesis import given
from hypothesis import strategies as st

from ephemera.patterns.sessions._token_keys import TokenKeys, _digits_by_slot
from ephemera.wire import SLOT_COUNT, key_slot
from tests.patterns.session_fixtures import FIXED, SLIDING

TOKEN_KEYS = [SLIDING.keys, FIXED.keys]
USERS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=60)


@given(USERS)
def test_a_token_leads_to_keys_in_its_users_slot(user: str) -> None:
    """Key and index share a slot; token, id, user and glob agree on the keys; no two tokens share a key."""
    for token_keys in TOKEN_KEYS:
        token, other = token_keys.mint(user), token_keys.mint(user)
        keys, other_keys = token_keys.of_token(token), token_keys.of_token(other)
        assert keys is not None
        assert other_keys is not None
        assert key_slot(keys.key) == key_slot(keys.index_key) == key_slot(other_keys.key)
        assert keys.index_key == token_keys.index_key(user) == other_keys.index_key
        assert keys.key == token_keys.session_key(user, keys.id) != other_keys.key
        assert token_keys.of_id(user, keys.id) == keys
        assert fnmatchcase(keys.key, token_keys.glob)
        assert token_keys.of_token(token_keys.mint_for_same_user(token)) not in (None, keys)


@given(USERS, USERS)
def test_an_id_belongs_to_one_user(user: str, other: str) -> None:
    """An id is found under its user; under another it is either invalid, or leads to that other's index."""
    for token_keys in TOKEN_KEYS:
        keys = token_keys.of_token(token_keys.mint(user))
        assert keys is not None
        found = token_keys.of_id(other, keys.id)
        assert found is None or found.index_key == token_keys.index_key(other)


@given(st.text() | st.from_regex(r"[\w-]{0,60}", fullmatch=True), USERS)
def test_any_text_has_keys_or_none(text: str, user: str) -> None:
    """No text given for a token or an id is an error."""
    for token_keys in TOKEN_KEYS:
        for keys in (token_keys.of_token(text), token_keys.of_id(user, text)):
            assert keys is None or key_slot(keys.key) == key_slot(keys.index_key)


def test_another_spelling_of_a_token_is_another_token() -> None:
    """Padding, the other base64 alphabet, spaces and line ends never lead to the same session."""
    for token_keys in TOKEN_KEYS:
        token = token_keys.mint("u1")
        while "-" not in token:
            token = token_keys.mint("u1")
        keys = token_keys.of_token(token)
        for spelt in (
            token + "=",
            token + " ",
            token + "\n",
            token.replace("-", "+"),
            "",
            "=" * 4,
            token * 20,
        ):
            assert token_keys.of_token(spelt) != keys
        for not_a_token in (
            "",
            ".",
            "x" * 43,
            "x" * 43 + ".",
            "x" * 43 + "=dTE",
            "x" * 43 + ".dTE=",
            token * 20,
        ):
            assert token_keys.of_token(not_a_token) is None


def test_there_are_digits_for_every_slot() -> None:
    """The table is complete, and its digits lead to their slots."""
    table = _digits_by_slot()
    assert table.keys() == set(range(SLOT_COUNT))
    assert all(len(digits) == 6 and key_slot(digits) == slot for slot, digits in table.items())


def test_the_cache_of_users_is_bounded() -> None:
    """Tokens of ever new users do not fill the memory."""
    token_keys = TokenKeys(SLIDING.keyspace, SLIDING.index, "user_id")
    for number in range(5000):
        token_keys.mint(f"user-{number}")
    assert len(token_keys._users) <= 4096
