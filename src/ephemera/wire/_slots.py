"""Which of a cluster's 16384 slots a key lives in: CRC16 (XMODEM) of its hash tag, or of all of it."""

from __future__ import annotations

from binascii import crc_hqx
from itertools import count

from ephemera.wire._commands import Arg

SLOT_COUNT = 16384


def key_slot(key: Arg) -> int:
    """The slot of a key, as CLUSTER KEYSLOT gives it."""
    if not isinstance(key, bytes):
        key = bytes(key) if isinstance(key, memoryview) else str(key).encode()
    opening = key.find(b"{")
    if opening >= 0:
        closing = key.find(b"}", opening + 1)
        if closing > opening + 1:
            key = key[opening + 1 : closing]
    return crc_hqx(key, 0) % SLOT_COUNT


def hash_tag_for_slot(slot: int) -> int:
    """The smallest number that, as a hash tag, leads to a slot."""
    return next(number for number in count() if key_slot(b"%d" % number) == slot)
