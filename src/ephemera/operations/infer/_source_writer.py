"""A proposed catalogue as a Python module: it imports as it stands, and a person goes on from there."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Iterator, Sequence

from ephemera.operations.infer._proposals import Declaration
from ephemera.operations.inspect._formatting import counted, shown_keys
from ephemera.operations.inspect._key_shapes import Undeclarable

_WIDTH = 110
_PURPOSE = "TODO: say what it is for"


def source(
    name: str, about: Sequence[str], declarations: Sequence[Declaration], left_out: Iterable[Undeclarable]
) -> str:
    """The text of the module; `about` are the lines that say what it was made from."""
    lines = ['"""A catalogue proposed by `ephemera infer`: check it, name things, say what they are for.', ""]
    lines += [*(ascii(line)[1:-1].replace('"', "'") for line in about), '"""', ""]
    lines += [*_imports(declarations), "", f"catalogue = Catalogue({quoted(name)})"]
    taken: set[str] = set()
    for declaration in declarations:
        lines += _declared(_constant(declaration, taken), declaration)
    lines += _comments(left_out)
    return "\n".join(lines) + "\n"


def quoted(text: str) -> str:
    """Text as a Python literal in double quotes."""
    return '"' + ascii(text)[1:-1].replace("\\'", "'").replace('"', '\\"') + '"'


def _imports(declarations: Sequence[Declaration]) -> Iterator[str]:
    if any(declaration.kind == "stream" for declaration in declarations):
        yield from ("import msgspec", "")
    lives = sorted({declaration.lifetime.partition("(")[0] for declaration in declarations})
    yield f"from ephemera import {', '.join(['Catalogue', *lives])}"


def _declared(constant: str, declaration: Declaration) -> Iterator[str]:
    yield ""
    yield from _entry(constant, declaration)
    yield f"# {counted(declaration.keys, 'key')}, {declaration.sampled:,} of them looked at"
    for note in declaration.notes:
        yield f"# {note}"
    for example in declaration.examples:
        yield f"# for example {example}"
    yield f"{constant} = catalogue.{declaration.kind}("
    yield from (f"    {argument}," for argument in _arguments(constant, declaration))
    yield ")"


def _arguments(constant: str, declaration: Declaration) -> Iterator[str]:
    yield quoted(declaration.pattern)
    if declaration.kind == "stream":
        yield _entry_name(constant)
    elif declaration.value_type is not None:
        yield declaration.value_type
    if declaration.hash_tag is not None:
        yield f"hash_tag={quoted(declaration.hash_tag)}"
    yield f"lifetime={declaration.lifetime}"
    if declaration.role != "cache":
        yield f"role={quoted(declaration.role)}"
    if declaration.sensitive:
        yield "sensitive=True"
    if declaration.max_key_length is not None:
        yield f"max_key_length={declaration.max_key_length}"
    yield f"purpose={quoted(_PURPOSE)}"


def _entry(constant: str, declaration: Declaration) -> Iterator[str]:
    """The Struct of a stream's entries: every field seen, all of them optional text."""
    if declaration.kind != "stream":
        return
    renamed = {_attribute(name, place): name for place, name in enumerate(declaration.fields)}
    renamed = {attribute: name for attribute, name in renamed.items() if _may_be_named(name)}
    different = {attribute: name for attribute, name in renamed.items() if attribute != name}
    written = ", ".join(f"{quoted(attribute)}: {quoted(name)}" for attribute, name in different.items())
    yield ""
    yield f"class {_entry_name(constant)}(msgspec.Struct{f', rename={{{written}}}' if different else ''}):"
    yield '    """An entry of the stream below; those that Ephemera did not write are not read by it."""'
    yield ""
    yield from (f"    {attribute}: str | None = None" for attribute in renamed or ("data",))
    yield from ("", "")


def _may_be_named(name: str) -> bool:
    """Whether a Struct may read a field of this name; others stay unread, which does no harm."""
    return name.isprintable() and not name.startswith("_") and not set('"\\') & set(name)


def _entry_name(constant: str) -> str:
    return "".join(part.capitalize() for part in constant.split("_")) + "Entry"


def _attribute(name: str, place: int) -> str:
    fits = name.isascii() and name.isidentifier() and not keyword.iskeyword(name)
    return name if fits else f"field_{place}"


def _constant(declaration: Declaration, taken: set[str]) -> str:
    """A name for the space: the words of its pattern, or its fields where those are taken."""
    literals = re.sub(r"\{\w+\}", " ", declaration.pattern)
    words = re.findall("[A-Za-z0-9]+", literals)
    fields = re.findall(r"\{(\w+)\}", declaration.pattern)
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
    """What no pattern can render, at the end of the module."""
    left = list(left_out)
    if left:
        yield from (
            "",
            "# These keys are not declared, because no pattern renders them:",
        )
    for each in left:
        yield f"# {counted(each.count, 'key')}: {each.reason}"
        if each.examples:
            yield f"#     for example {', '.join(shown_keys(each.examples))}"
