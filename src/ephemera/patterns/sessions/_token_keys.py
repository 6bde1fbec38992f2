"""Session tokens, and the keys of the session of a token.

A token is 256 random bits, a dot and the user's id, both in URL-safe base64. Redis never sees it: the
session's id is a digest of it (BLAKE2b, 160 bits), so a dump of the server opens no session. The user's id is
part of the token because a session is valid only while its user's index lists it, and one round trip can
check both only if the token leads to both. Where sessions have an absolute lifetime, the first 32 bits are
its end instead, in seconds since 1970: a token with another end is another token, without a session.

The id ends with six octal digits that choose its slot: the session's key falls into the same cluster slot as
the user's index, whatever the patterns. CRC16 is linear, so for each slot there are digits that lead to it.
All keys of a user can therefore be changed by one atomic script, and keys look as they were declared, without
braces.
"""

from __future__ import annotations

import secrets
import time
from binascii import a2b_base64, b2a_base64, crc_hqx
from functools import cache
from hashlib import blake2b
from typing import Any, TypeAlias, cast

import msgspec

from ephemera._bounded_cache import BoundedCache
from ephemera.errors import InvalidDeclaration, InvalidField, InvalidValue
from ephemera.keyspace import FieldValue, Keyspace
from ephemera.wire import SLOT_COUNT

_SECRET = 32  # bytes: 256 bits
_SECRET_LENGTH = 43  # characters of base64, without padding
_END = 4  # bytes of an absolute end
_END_LENGTH = 8  # characters of base64 that contain it
_DIGEST = 20  # bytes
_USERS_CACHED = 4096
_MAX_TOKEN_LENGTH = 1024  # characters; longer text is not a token
_DIGITS = 6
_ZEROS = bytes(_DIGITS)
_ID_TEMPLATE = "0" * (2 * _DIGEST + _DIGITS)
_TO_URL = bytes.maketrans(b"+/", b"-_")
_FROM_URL = bytes.maketrans(b"-_+/=", b"+/!!!")
_PADDING = (b"", b"!", b"==", b"=")  # by length modulo 4; no text of 4n + 1 characters is base64


class SessionKeys(msgspec.Struct, frozen=True, gc=False):
    """The keys of one session: its own, that of its user's index, and its id, which the index lists."""

    key: str
    index_key: str
    id: str
    ends_at: int = 0
    """The absolute end in milliseconds since 1970; 0 without one."""


UserKeys: TypeAlias = tuple[str, int, str, int]
"""What a user's sessions share: the index key and its CRC, the prefix of their keys and its CRC."""


class TokenKeys:
    """Makes tokens, and finds the keys of their sessions, for one declaration."""

    def __init__(
        self, session: Keyspace[Any], index: Keyspace[Any], user: str, absolute_seconds: int = 0
    ) -> None:
        self._absolute = absolute_seconds
        self._render_session = session.template.render
        self._render_index = index.template.render
        self._parse_index = index.template.parse_text
        self._pattern = session.pattern
        self.glob = session.template.glob.removesuffix("*") + "?" * len(_ID_TEMPLATE)
        """The glob of the keys of sessions, exactly as long as they are."""
        (self._index_field,) = index.template.fields
        self._id_field, self._user_field = _fields(session, user)
        self._digits = _digits_by_slot()
        self._prefix = None if self._user_field else self._prefix_of("")
        self._users: BoundedCache[str, UserKeys] = BoundedCache(_USERS_CACHED)

    def user_text(self, user: FieldValue) -> str:
        """The user's id as keys and tokens have it, whatever its type: text, bytes, a number or an enum."""
        fields = self._parse_index(self.index_key(user)) or {}
        return fields[self._index_field]

    def mint(self, user: str, longest: int = 0) -> str:
        """Make a token for a user, by `user_text`, that ends after these milliseconds; it stores nothing."""
        seconds = -(-longest // 1000) or self._absolute
        return self._mint(user, (int(time.time()) + seconds).to_bytes(_END, "big"))

    def _mint(self, user: str, end: bytes) -> str:
        if not user:
            raise InvalidValue(self._pattern, "a session that belongs to a user", "an empty user id")
        encoded = b2a_base64(user.encode("utf-8", "surrogateescape"), newline=False).rstrip(b"=")
        secret = secrets.token_bytes(_SECRET)
        if self._absolute:
            secret = end + secret[_END:]
        token = f"{_encoded(secret)}.{encoded.translate(_TO_URL).decode()}"
        if len(token) > _MAX_TOKEN_LENGTH or self.of_token(token) is None:
            self.index_key(user)  # raises a better error if its key is the problem
            raise InvalidValue(
                self._pattern, "user ids of at most 700 bytes of UTF-8", f"{len(user)} characters"
            )
        return token

    def mint_for_same_user(self, token: str) -> str:
        """Make a new token for the user of a valid token, with the same end."""
        return self._mint(_user_of(token[_SECRET_LENGTH:]), _end_of(token) if self._absolute else b"")

    def of_token(self, token: str) -> SessionKeys | None:
        """Find the keys of a token's session; None for text that is not a token."""
        if not isinstance(cast("object", token), str):
            raise InvalidValue(self._pattern, "sessions, found by tokens of type str", type(token).__name__)
        if len(token) > _MAX_TOKEN_LENGTH:
            return None
        user = token[_SECRET_LENGTH:]
        try:
            user_keys = self._users.get(user) or self._cache_user(user)
            keys = self._keys(blake2b(token.encode(), digest_size=_DIGEST).hexdigest(), user_keys)
            end = _end_of(token) if self._absolute else b""
        except (ValueError, InvalidField):  # no user, not base64, not UTF-8, or an impossible key
            return None
        return msgspec.structs.replace(keys, ends_at=int.from_bytes(end, "big") * 1000) if end else keys

    def of_id(self, user: FieldValue, session_id: str) -> SessionKeys | None:
        """Find the keys of a user's session by its id; None for text that is not an id of theirs."""
        if len(session_id) != len(_ID_TEMPLATE) or not session_id.isascii() or not session_id.isalnum():
            return None
        keys = self._keys(session_id[:-_DIGITS], self._user_keys(user))
        return keys if keys.id == session_id else None

    def index_key(self, user: FieldValue) -> str:
        """Render the key of a user's index."""
        return self._render_index({self._index_field: user})

    def session_key(self, user: FieldValue, session_id: str) -> str:
        """Render the key of a session that the user's index lists."""
        if self._user_field is None:
            return self._render_session({self._id_field: session_id})
        return self._render_session({self._id_field: session_id, self._user_field: user})

    def _keys(self, digest: str, user_keys: UserKeys) -> SessionKeys:
        index, target, prefix, state = user_keys
        # The CRC with zero bytes in place of the digits; the CRC of the digits makes up the difference.
        reached = crc_hqx(_ZEROS, crc_hqx(digest.encode(), state))
        session_id = digest + self._digits[(target ^ reached) % SLOT_COUNT]
        return SessionKeys(prefix + session_id, index, session_id)

    def _user_keys(self, user: FieldValue) -> UserKeys:
        index = self.index_key(user)
        return (index, crc_hqx(index.encode(), 0), *(self._prefix or self._prefix_of(user)))

    def _cache_user(self, user: str) -> UserKeys:
        user_keys = self._users[user] = self._user_keys(_user_of(user))
        return user_keys

    def _prefix_of(self, user: FieldValue) -> tuple[str, int]:
        """The part of a user's session keys before the id, and its CRC."""
        prefix = self.session_key(user, _ID_TEMPLATE)[: -len(_ID_TEMPLATE)]
        return prefix, crc_hqx(prefix.encode(), 0)


def _encoded(secret: bytes) -> str:
    return b2a_base64(secret, newline=False).rstrip(b"=").translate(_TO_URL).decode()


def _end_of(token: str) -> bytes:
    """Decode the absolute end from the beginning of a token; ValueError if it has none."""
    text = token[:_END_LENGTH].encode("ascii").translate(_FROM_URL)
    return a2b_base64(text, strict_mode=True)[:_END]


def _user_of(suffix: str) -> str:
    """Decode the user from the end of a token; ValueError when there is none."""
    text = suffix[1:].encode("ascii").translate(_FROM_URL)
    if suffix[:1] != "." or not text:
        raise ValueError(suffix)
    return a2b_base64(text + _PADDING[len(text) & 3], strict_mode=True).decode("utf-8", "surrogateescape")


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
    """For each slot the digits whose CRC is that slot: the CRC of a text is the XOR of those of its bits."""
    zero = crc_hqx(b"0" * _DIGITS, 0) % SLOT_COUNT
    numbers = {zero: 0}
    for bit in range(3 * _DIGITS):
        change = zero ^ crc_hqx(b"%06o" % (1 << bit), 0) % SLOT_COUNT
        if zero ^ change not in numbers:
            numbers |= {slot ^ change: number | 1 << bit for slot, number in numbers.items()}
    return {slot: f"{number:06o}" for slot, number in numbers.items()}
