"""Session tokens, and where the session of a token lives.

A token is 256 random bits, a dot and the user's id, both in URL-safe base64. Redis never sees it: the
session's id is a digest of it (BLAKE2b, 160 bits), so a dump of the server opens no session. The user's id
is in the token because a session lives only while its user's index vouches for it, and one trip can ask
both only if the token tells both.

The id ends with six octal digits that place it. They are chosen so that the session's key falls into the
same cluster slot as the user's index, whatever the patterns: CRC16 is linear, so for each slot there are
digits that lead to it. All keys of a user can therefore be changed by one atomic script, and keys look as
they were declared, without braces.
"""

from __future__ import annotations

import secrets
from binascii import a2b_base64, b2a_base64, crc_hqx
from functools import cache
from hashlib import blake2b
from typing import Any, TypeAlias, cast

import msgspec

from ephemera.errors import InvalidDeclaration, InvalidField, InvalidValue
from ephemera.keyspace import FieldValue, Keyspace
from ephemera.wire import SLOT_COUNT

_SECRET = 32  # bytes: 256 bits
_SECRET_TEXT = 43  # characters of base64, without padding
_DIGEST = 20  # bytes
_MOST_USERS = 4096  # whose keys are remembered, so that they need not be rendered for each request
_LONGEST_TOKEN = 1024  # characters; a longer text is no token, whatever it says
_DIGITS = 6
_ZEROS = bytes(_DIGITS)
_LONGEST_ID = "0" * (2 * _DIGEST + _DIGITS)
_TO_URL = bytes.maketrans(b"+/", b"-_")
_FROM_URL = bytes.maketrans(b"-_+/=", b"+/!!!")
_PADDING = (b"", b"!", b"==", b"=")  # by length modulo 4; no text of 4n + 1 characters is base64


class Place(msgspec.Struct, frozen=True, gc=False):
    """Where one session lives: its key, that of its user's index, and its id, which is listed there."""

    key: str
    index_key: str
    id: str


Placing: TypeAlias = tuple[str, int, str, int]
"""What a user's sessions have in common: the index and its CRC, what precedes their ids and its CRC."""


class Places:
    """The places of the sessions of one declared pattern."""

    def __init__(self, session: Keyspace[Any], index: Keyspace[Any], user: str) -> None:
        self._session_key = session.template.render
        self._index_key = index.template.render
        self._pattern = session.pattern
        (self._index_field,) = index.template.fields
        self._id_field, self._user_field = _fields(session, user)
        self._digits = _digits_by_slot()
        self._common = None if self._user_field else self._before("")
        self._users: dict[str, Placing] = {}

    def mint(self, user: str) -> str:
        """A new token for a user; nobody else has it, and nothing is stored yet."""
        if not user:
            raise InvalidValue(self._pattern, "a session that belongs to a user", "an empty user id")
        named = b2a_base64(user.encode("utf-8", "surrogatepass"), newline=False).rstrip(b"=")
        token = f"{secrets.token_urlsafe(_SECRET)}.{named.translate(_TO_URL).decode()}"
        if len(token) > _LONGEST_TOKEN or self.of_token(token) is None:
            self.index(user)  # says what is wrong with it, if its key is
            raise InvalidValue(
                self._pattern, "user ids of at most 700 bytes of UTF-8", f"{len(user)} characters"
            )
        return token

    def mint_again(self, token: str) -> str:
        """A new token for the user of a token that has a place."""
        return self.mint(_user_of(token[_SECRET_TEXT:]))

    def of_token(self, token: str) -> Place | None:
        """Where the session of a token lives, or None for a text that is no token."""
        try:
            if len(token) > _LONGEST_TOKEN:
                return None
            user = token[_SECRET_TEXT:]
            placing = self._users.get(user) or self._learn(user)
            return self._place(blake2b(token.encode(), digest_size=_DIGEST).hexdigest(), placing)
        except (ValueError, InvalidField):  # no user, not base64, not UTF-8, or a key nobody could have
            return None
        except (TypeError, AttributeError):
            if isinstance(cast("object", token), str):
                raise
            expected = "sessions by their tokens, each a str; who has none has no session to ask for"
            raise InvalidValue(self._pattern, expected, type(token).__name__) from None

    def of_id(self, user: FieldValue, session_id: str) -> Place | None:
        """Where a user's session of this id lives, or None for a text that is no id of theirs."""
        if len(session_id) != len(_LONGEST_ID) or not session_id.isascii() or not session_id.isalnum():
            return None
        place = self._place(session_id[:-_DIGITS], self._placing(user))
        return place if place.id == session_id else None

    def index(self, user: FieldValue) -> str:
        """The key of a user's index."""
        return self._index_key({self._index_field: user})

    def key(self, user: FieldValue, session_id: str) -> str:
        """The key of a session that the user's index lists."""
        if self._user_field is None:
            return self._session_key({self._id_field: session_id})
        return self._session_key({self._id_field: session_id, self._user_field: user})

    def _place(self, digest: str, placing: Placing) -> Place:
        index, target, before, state = placing
        # The CRC with zero bytes in the digits' place; the CRC of the digits makes up the rest.
        reached = crc_hqx(_ZEROS, crc_hqx(digest.encode(), state))
        session_id = digest + self._digits[(target ^ reached) % SLOT_COUNT]
        return Place(before + session_id, index, session_id)

    def _placing(self, user: FieldValue) -> Placing:
        index = self._index_key({self._index_field: user})
        return (index, crc_hqx(index.encode(), 0), *(self._common or self._before(user)))

    def _learn(self, user: str) -> Placing:
        """The same for a user who has not been here lately; ids are no secrets, so some are kept."""
        placing = self._placing(_user_of(user))
        if len(self._users) >= _MOST_USERS:
            self._users.clear()
        self._users[user] = placing
        return placing

    def _before(self, user: FieldValue) -> tuple[str, int]:
        """What stands before the id in a user's session keys, and its CRC."""
        before = self.key(user, _LONGEST_ID)[: -len(_LONGEST_ID)]
        return before, crc_hqx(before.encode(), 0)


def _user_of(end: str) -> str:
    """The user in the end of a token; ValueError when there is none."""
    text = end[1:].encode("ascii").translate(_FROM_URL)
    if end[:1] != "." or not text:
        raise ValueError(end)
    return a2b_base64(text + _PADDING[len(text) & 3], strict_mode=True).decode()


def _fields(session: Keyspace[Any], user: str) -> tuple[str, str | None]:
    """The field of the session's id, and that of the user if the pattern has one."""
    fields = [name for name in session.template.fields if name != user]
    if len(fields) != 1 or not session.pattern.endswith(f"{{{fields[0]}}}"):
        raise InvalidDeclaration(
            session.pattern,
            "it does not end with the session's id, or has other fields",
            f"use 'session:{{session_id}}' or 'session:{{{user}}}:{{session_id}}'",
        )
    return fields[0], user if user in session.template.fields else None


@cache
def _digits_by_slot() -> dict[int, str]:
    """For each slot the digits whose own CRC is that slot: the CRC of a text is that of its bits, xored."""
    zero = crc_hqx(b"0" * _DIGITS, 0) % SLOT_COUNT
    numbers = {zero: 0}
    for bit in range(3 * _DIGITS):
        change = zero ^ crc_hqx(b"%06o" % (1 << bit), 0) % SLOT_COUNT
        if zero ^ change not in numbers:
            numbers |= {slot ^ change: number | 1 << bit for slot, number in numbers.items()}
    return {slot: f"{number:06o}" for slot, number in numbers.items()}
