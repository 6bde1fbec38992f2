"""A proposed catalogue as a Python module that imports as it is, for a person to edit."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap

from ephemera.operations.formatting import format_count, format_keys
from ephemera.operations.infer._proposals import ProposedKeyspace
from ephemera.operations.libraries import library_of
from ephemera.operations.survey import Undeclarable

_WIDTH = 80
"""Of texts and comments; names, patterns and keys stay whole."""
_PURPOSE = "TODO: describe what it is for"


def write_source(
    name: str, notes: Sequence[str], keyspaces: Sequence[ProposedKeyspace], left_out: Iterable[Undeclarable]
) -> str:
    """Write the module; `notes` say what it was made from."""
    lines = [
        '"""Proposed by `ephemera infer`: choose names, and describe each purpose.',
        "",
    ]
    texts = (ascii(line)[1:-1].replace('"', "'") for line in (*notes, *_libraries(keyspaces)))
    lines += [each for text in texts for each in _wrapped(text)]
    lines += ['"""', ""]
    lines += [*_imports(keyspaces), "", f"catalogue = Catalogue({quoted(name)})"]
    taken: set[str] = set()
    for proposed in keyspaces:
        lines += _declaration_lines(_constant(proposed, taken), proposed)
    lines += _comments(left_out)
    return "\n".join(lines) + "\n"


def _libraries(keyspaces: Sequence[ProposedKeyspace]) -> Iterator[str]:
    """The libraries that write here, and what to know about them."""
    for name in dict.fromkeys(each.library for each in keyspaces if each.library):
        library = library_of(name)
        yield from ("", f"{name} uses this server.")
        yield from (f"- {hazard}" for hazard in library.hazards)


def _wrapped(text: str, start: str = "") -> list[str]:
    """The lines of a text or a comment, without breaking a word."""
    more = start + ("  " if start or text.startswith("- ") else "")
    return wrap(
        text,
        _WIDTH,
        initial_indent=start,
        subsequent_indent=more,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [""]


def quoted(text: str) -> str:
    """Text as a Python literal in double quotes."""
    return '"' + ascii(text)[1:-1].replace("\\'", "'").replace('"', '\\"') + '"'


def _imports(keyspaces: Sequence[ProposedKeyspace]) -> Iterator[str]:
    if any(proposed.kind == "stream" for proposed in keyspaces):
        yield from ("import msgspec", "")
    lifetimes = sorted({proposed.lifetime.partition("(")[0] for proposed in keyspaces})
    yield f"from ephemera import {', '.join(['Catalogue', *lifetimes])}"


def _declaration_lines(constant: str, proposed: ProposedKeyspace) -> Iterator[str]:
    yield ""
    yield from _entry(constant, proposed)
    yield f"# {format_count(proposed.keys, 'key')}, {proposed.sampled:,} of them inspected"
    for note in proposed.notes:
        yield from _wrapped(note, "# ")
    for example in proposed.examples:
        yield f"# for example {example}"
    yield f"{constant} = catalogue.{proposed.kind}("
    yield from (f"    {argument}," for argument in _arguments(constant, proposed))
    yield ")"


def _arguments(constant: str, proposed: ProposedKeyspace) -> Iterator[str]:
    yield quoted(proposed.pattern)
    if proposed.kind == "stream":
        yield _entry_name(constant)
    elif proposed.value_type is not None:
        yield proposed.value_type
    if proposed.hash_tag is not None:
        yield f"hash_tag={quoted(proposed.hash_tag)}"
    yield f"lifetime={proposed.lifetime}"
    if proposed.role != "cache":
        yield f"role={quoted(proposed.role)}"
    if proposed.sensitive:
        yield "sensitive=True"
    if proposed.max_key_length is not None:
        yield f"max_key_length={proposed.max_key_length}"
    yield f"purpose={quoted(proposed.purpose or _PURPOSE)}"


def _entry(constant: str, proposed: ProposedKeyspace) -> Iterator[str]:
    """The Struct of a stream's entries: every field seen, all optional text."""
    if proposed.kind != "stream":
        return
    renamed = {_attribute(name, position): name for position, name in enumerate(proposed.fields)}
    renamed = {attribute: name for attribute, name in renamed.items() if _can_be_named(name)}
    different = {attribute: name for attribute, name in renamed.items() if attribute != name}
    written = ", ".join(f"{quoted(attribute)}: {quoted(name)}" for attribute, name in different.items())
    yield ""
    yield f"class {_entry_name(constant)}(msgspec.Struct{f', rename={{{written}}}' if different else ''}):"
    yield '    """An entry of the stream below; Ephemera reads only its own."""'
    yield ""
    yield from (f"    {attribute}: str | None = None" for attribute in renamed or ("data",))
    yield from ("", "")


def _can_be_named(name: str) -> bool:
    """Whether a Struct can have a field of this name; others stay unread, which is harmless."""
    return name.isprintable() and not name.startswith("_") and not set('"\\') & set(name)


def _entry_name(constant: str) -> str:
    return "".join(part.capitalize() for part in constant.split("_")) + "Entry"


def _attribute(name: str, position: int) -> str:
    fits = name.isascii() and name.isidentifier() and not keyword.iskeyword(name)
    return name if fits else f"field_{position}"


def _constant(proposed: ProposedKeyspace, taken: set[str]) -> str:
    """A name for the keyspace: the words of its pattern, or its fields where those are taken."""
    literals = re.sub(r"\{\w+\}", " ", proposed.pattern)
    words = re.findall("[A-Za-z0-9]+", literals)
    fields = re.findall(r"\{(\w+)\}", proposed.pattern)
    wanted = "_".join(words).upper() or "KEYS"
    wanted = f"KEYS_{wanted}" if wanted[0].isdigit() else wanted
    if wanted in taken and fields:
        wanted = f"{wanted}_BY_{'_'.join(fields)}".upper()
    unique, number = wanted, 2
    while unique in taken:
        unique, number = f"{wanted}_{number}", number + 1
    taken.add(unique)
    return unique


def _comments(left_out: Iterable[Undeclarable]) -> Iterator[str]:
    """The keys that no pattern can render, at the end of the module."""
    left = list(left_out)
    if left:
        yield from (
            "",
            "# These keys are not declared, because no pattern can render them:",
        )
    for each in left:
        yield f"# {format_count(each.count, 'key')}: {each.reason}"
        if each.examples:
            yield f"#     for example {', '.join(format_keys(each.examples))}"
