"""Bytes that a server might send: replies of every RESP3 type, intact, mangled, truncated, huge, nested."""

from __future__ import annotations

from hypothesis import strategies as st


def bulk(data: bytes) -> bytes:
    """A string."""
    return b"$%d\r\n%s\r\n" % (len(data), data)


_line = st.text(alphabet="abcXYZ 019:-_", max_size=12).map(str.encode)
_leaves = st.one_of(
    st.binary(max_size=20).map(bulk),
    _line.map(lambda text: b"+%s\r\n" % text),
    st.integers(-(2**63), 2**63 - 1).map(lambda number: b":%d\r\n" % number),
    st.floats().map(lambda number: b",%s\r\n" % repr(number).encode()),
    st.integers().map(lambda number: b"(%d\r\n" % number),
    st.binary(max_size=8).map(lambda data: b"=%d\r\ntxt:%s\r\n" % (len(data) + 4, data)),
    st.sampled_from(
        [b"_\r\n", b"#t\r\n", b"#f\r\n", b"$-1\r\n", b"*-1\r\n", b"*0\r\n", b"%0\r\n", b"~0\r\n"]
    ),
)


def _nested(inner: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    several = st.lists(inner, max_size=4)
    return st.one_of(
        several.map(lambda items: b"*%d\r\n%s" % (len(items), b"".join(items))),
        several.map(lambda items: b"~%d\r\n%s" % (len(items), b"".join(items))),
        st.lists(st.tuples(_leaves, inner), max_size=3).map(
            lambda pairs: b"%%%d\r\n%s" % (len(pairs), b"".join(name + value for name, value in pairs))
        ),
        st.tuples(st.integers(1, 200), inner).map(lambda deep: b"*1\r\n" * deep[0] + deep[1]),
    )


VALUES = st.recursive(_leaves, _nested, max_leaves=8)
"""Well-formed replies."""

_CODES = (
    "ERR", "WRONGTYPE", "NOSCRIPT", "LOADING", "READONLY", "BUSY", "OOM", "MOVED 1 127.0.0.1:1", "NOPERM",
    "ASK 1 127.0.0.1:1", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "CROSSSLOT", "NOAUTH", "UNBLOCKED", "",
    "MOVED", "MOVED 1", "MOVED x y:z", "ASK 1 :99999999999", "MOVED 99999999999 a:1",
    "ERR, with args beginning with",
)  # fmt: skip
ERRORS = st.tuples(
    st.sampled_from(_CODES), st.binary(max_size=12).map(lambda data: data.translate(None, b"\r\n"))
).map(lambda parts: b"-%s %s\r\n" % (parts[0].encode(), parts[1]))
"""Error replies, of which some have a meaning to us."""

_kinds = st.sampled_from(
    [
        b"invalidate",
        b"message",
        b"pmessage",
        b"smessage",
        b"subscribe",
        b"sunsubscribe",
        b"unsubscribe",
        b"odd",
    ]
)
PUSHES = st.one_of(
    st.tuples(_kinds, st.lists(st.one_of(_leaves, VALUES), max_size=3)).map(
        lambda push: b">%d\r\n%s%s" % (1 + len(push[1]), bulk(push[0]), b"".join(push[1]))
    ),
    st.lists(VALUES, max_size=3).map(lambda items: b">%d\r\n%s" % (len(items), b"".join(items))),
)
"""What comes unasked: of the kinds that we listen to and others, with anything in them."""

# No array of a billion elements: hiredis reserves the memory for what is announced, as every server may.
_BOMBS = (
    b"*1000000\r\n", b"*9999999999\r\n", b"%500000\r\n", b"~1000000\r\n", b">1000000\r\n",
    b"$536870912\r\n", b"$99999999999999999999\r\n", b"=9999999999\r\n", b"*-7\r\n", b"$-7\r\n", b"%-1\r\n",
    b"$?\r\n",
    b"*?\r\n", b"|1\r\n+a\r\n+b\r\n", b"!3\r\nERR\r\n",
    b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x16\x03\x01\x00\xa5", b"\r\n\r\n", b">0\r\n",
    b"*2\r\n*9999999999\r\n",
)  # fmt: skip
GARBAGE = st.one_of(
    st.binary(min_size=1, max_size=40),
    st.sampled_from(_BOMBS),
    st.tuples(st.sampled_from([b"*1\r\n", b"%1\r\n", b"*100\r\n"]), st.integers(1, 9000)).map(
        lambda deep: deep[0] * deep[1]
    ),
    st.sampled_from([1_000, 20_000, 70_000, 1_000_000]).map(lambda size: bulk(b"x" * size)),
    st.tuples(VALUES, st.integers(0, 60), st.integers(0, 255)).map(
        lambda mangled: mangled[0][: mangled[1]] + bytes([mangled[2]]) + mangled[0][mangled[1] + 1 :]
    ),
    st.tuples(VALUES, st.integers(0, 40)).map(lambda cut: cut[0][: cut[1]]),
)
"""What is no reply, or only seems to be one."""
