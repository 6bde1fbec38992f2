"""Packed commands: a command as the bytes that go over the wire, and back.

The wire packs the arguments it is given. Callers that send the same command often pack more cleverly: a
read of one key is put together while its key is rendered (`packed_read_parts`), and scripts are packed once
(`PreparedScript`) or from parts (`ScriptPrefix`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import hiredis

from ephemera.wire._commands import Arg, command_name

# hiredis annotates its argument as a tuple of one.
pack = cast("Callable[[tuple[Arg, ...]], bytes]", hiredis.pack_command)


def pack_command(args: tuple[Arg, ...]) -> bytes:
    """Pack a command."""
    try:
        return pack(args)
    except TypeError as problem:
        raise packing_error(args, problem) from None


def pack_here(args: tuple[Arg, ...]) -> bytes:
    """Pack a command in a thread where signal handlers run.

    Numbers become text first: when a handler raises while hiredis converts one, hiredis crashes the process.
    """
    if int in map(type, args):  # most commands have none, and to look costs a third of the conversion
        args = tuple([str(each) if each.__class__ is int else each for each in args])
    try:
        return pack(args)
    except TypeError as problem:
        raise packing_error(args, problem) from None


def pack_argument(argument: Arg) -> bytes:
    """Pack one argument of a command."""
    return pack((argument,))[len("*1\r\n") :]


def packing_error(args: tuple[Arg, ...], problem: TypeError) -> TypeError:
    """The error for a command that cannot be packed: names an argument's position and type, not its value."""
    for position, argument in enumerate(args):
        if isinstance(argument, bool) or not isinstance(argument, (str, bytes, int, float, memoryview)):
            advice = "send str, bytes, int or float: encode other types first"
            return TypeError(
                f"{command_name(args)}: argument {position} is {type(argument).__name__}; {advice}"
            )
    return problem


def unpack_command(packed: bytes) -> tuple[bytes, ...]:
    """The arguments of a packed command."""
    reader = hiredis.Reader()  # a command has the form of a reply: an array of bulk strings
    reader.feed(packed)
    return tuple(cast("list[bytes]", reader.gets()))


def packed_key(packed: bytes) -> bytes:
    """The first argument of a packed command, which for most commands is its key."""
    _, _, _, length, rest = packed.split(b"\r\n", 4)
    return rest[: int(length[1:])]


def packed_read_parts(
    name: str, before: str, after: str, longest: int, arguments: Sequence[str] = ()
) -> tuple[list[str], str]:
    """The parts of a packed read whose key is `before`, a value of at most `longest` characters, and `after`.

    All of the key must be ASCII. `(heads[len(value)] + value + end).encode()` is the command. Callers write
    that expression out: calling a function for it would cost as much as the packing.
    """
    around = len(before) + len(after)
    start = f"*{2 + len(arguments)}\r\n${len(name)}\r\n{name}\r\n$"
    heads = [f"{start}{around + size}\r\n{before}" for size in range(longest + 1)]
    words = [f"${len(each.encode())}\r\n{each}\r\n" for each in arguments]
    return heads, f"{after}\r\n{''.join(words)}"
