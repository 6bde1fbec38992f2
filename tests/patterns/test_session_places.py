"""Where sessions live: every token has one place, in the slot of its user's index, whoever the user is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ephemera.patterns.sessions._token_keys import Places, _digits_by_slot
from ephemera.wire import SLOT_COUNT, key_slot
from tests.patterns.accounts import FIXED, SLIDING

PLACES = [Places(declared.space, declared.index, "user_id") for declared in (SLIDING, FIXED)]
USERS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=60)


@given(USERS)
def test_a_token_leads_to_one_place_in_its_users_slot(user: str) -> None:
    """Key and index share a slot; token, id and user agree on the place; no two tokens share one."""
    for places in PLACES:
        token, other = places.mint(user), places.mint(user)
        place, another = places.of_token(token), places.of_token(other)
        assert place is not None
        assert another is not None
        assert key_slot(place.key) == key_slot(place.index_key) == key_slot(another.key)
        assert place.index_key == places.index(user) == another.index_key
        assert place.key == places.key(user, place.id) != another.key
        assert places.of_id(user, place.id) == place
        assert places.of_token(places.mint_again(token)) not in (None, place)


@given(USERS, USERS)
def test_an_id_is_no_elses(user: str, other: str) -> None:
    """An id is found under its user; under another it is either no id, or leads to that other's index."""
    for places in PLACES:
        place = places.of_token(places.mint(user))
        assert place is not None
        found = places.of_id(other, place.id)
        assert found is None or found.index_key == places.index(other)


@given(st.text() | st.from_regex(r"[\w-]{0,60}", fullmatch=True), USERS)
def test_any_text_has_a_place_or_none(text: str, user: str) -> None:
    """Whatever is given for a token or an id, there is no error."""
    for places in PLACES:
        for place in (places.of_token(text), places.of_id(user, text)):
            assert place is None or key_slot(place.key) == key_slot(place.index_key)


def test_another_spelling_of_a_token_is_another_token() -> None:
    """Padding, the other base64 alphabet, spaces and line ends lead nowhere, or elsewhere."""
    for places in PLACES:
        token = places.mint("u1")
        while "-" not in token:
            token = places.mint("u1")
        place = places.of_token(token)
        for spelt in (
            token + "=",
            token + " ",
            token + "\n",
            token.replace("-", "+"),
            "",
            "=" * 4,
            token * 20,
        ):
            assert places.of_token(spelt) != place
        for no_token in (
            "",
            ".",
            "x" * 43,
            "x" * 43 + ".",
            "x" * 43 + "=dTE",
            "x" * 43 + ".dTE=",
            token * 20,
        ):
            assert places.of_token(no_token) is None


def test_there_are_digits_for_every_slot() -> None:
    """The table is complete, and its digits lead where it says."""
    table = _digits_by_slot()
    assert table.keys() == set(range(SLOT_COUNT))
    assert all(len(digits) == 6 and key_slot(digits) == slot for slot, digits in table.items())


def test_what_is_remembered_of_users_is_bounded() -> None:
    """Tokens of ever new users do not fill the memory."""
    places = Places(SLIDING.space, SLIDING.index, "user_id")
    for number in range(5000):
        places.mint(f"user-{number}")
    assert len(places._users) <= 4096
