r"""Inference: propose a catalogue that declares every key of an undocumented server.

    proposal = await infer("redis://legacy.internal")
    print(proposal.source)

*How.* The names are scanned once, which finds their shapes and draws a random sample of each. The types, TTLs
and contents of the sample decide kind, value type and lifetime. Like an audit it only reads. It reads all
names, unless it is given a time budget; a proposal from a part of them says so first.

*Libraries.* Keys that a known library writes (`libraries`) get its role and purpose; the module's docstring
lists its hazards.

*Coverage.* An audit against the proposal finds no unknown keys, if all names were read: every key that
a pattern can render is covered. Keys that no pattern can render are listed with the reason: bytes that are
not UTF-8, control characters, `* ? [ ] \`, braces that are not a hash tag, a start that is not printable
ASCII, a `%` that Ephemera does not write. One sort of key that Ephemera can render may be left out and is
listed as well: a literal next to a field whose value is empty or contains an encoded mark, such as
`v{major}.{minor}` with an empty major.

*When Redis is down.* Opening raises `ConnectionFailed`; a connection lost later is reported as not seen.
"""

from ephemera.operations.infer._infer import Proposal, infer
from ephemera.operations.infer._proposals import ProposedKeyspace

__all__ = ["Proposal", "ProposedKeyspace", "infer"]
