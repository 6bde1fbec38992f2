"""Key browser: keys by keyspace, search, the value of one, and changes by administrators.

Undeclared keys are in the tree by the library that writes them and by shape, once a survey has found those.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nicegui import ui

from ephemera.console._components import (
    Column,
    Empty,
    confirm_button,
    drawer,
    facts,
    section,
    table,
    text_block,
)
from ephemera.console._components._confirm import disable_if_refused
from ephemera.console._connections import Service
from ephemera.console._formats import HIDDEN, NO_VALUE
from ephemera.console._key_search import UNDECLARED, KeyScope, KeySearch
from ephemera.console._key_values import KeyEntry, read_entry
from ephemera.console._view import ConsolePage, View
from ephemera.keyspace import Role, Template
from ephemera.operations.audit import UnknownShape
from ephemera.operations.formatting import format_count, format_duration, format_key
from ephemera.operations.survey import SampledKey, inspect_keys

_MAX_ROWS = 1000  # keys on the page; a search that finds more should be narrowed
_MAX_TEXT = 200  # characters to search for
_ONCE = 365 * 86_400.0  # seconds: a search is repeated by the user, not by a timer
_SURVEYED = 2.0  # seconds between looks for shapes of undeclared keys
_MAX_SHAPES = 100  # of a server
_HIDDEN_KEY = "(hidden: it may be a secret)"


def build(view: View) -> None:
    """Draw it."""
    _Browser(view)


class _Browser:
    """The page in one browser."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._scopes: dict[str, KeyScope] = {}
        self._surveyed: list[float] = []  # when the tree was drawn, by service
        self._nodes = [self._service_node(service) for service in view.services]
        self._scope = self._chosen()
        self._search = KeySearch(self._scope, "")
        self._keys: list[SampledKey] = []
        self._panel = drawer()
        with ui.element("div").classes("e-browser"):
            with section("Keyspaces"):
                self._draw_tree()
            with section("Keys", "Search looks for a part of the key. Open a key for its value."):
                with ui.element("form").classes("e-row").on("submit.prevent", self._find):
                    self._text = ui.input("Part of a key").props(
                        f"dense outlined clearable maxlength={_MAX_TEXT}"
                    )
                    ui.button("Search", icon="search").props('type="submit" unelevated no-caps')
                self._where = ui.label().classes("e-note e-mono")
                self._rows = table(
                    [
                        Column("key", "Key", "mono"),
                        Column("type", "Type"),
                        Column("ttl", "TTL", "time"),
                        Column("size", "Bytes", "number"),
                    ],
                    empty=Empty(
                        "No keys found",
                        "Choose another keyspace, or search for a shorter part.",
                        "search_off",
                    ),
                    on_open=self._open,
                )
                with ui.element("div").classes("e-row"):
                    self._next = ui.button("Search on", icon="expand_more", on_click=self._more)
                    self._next.props("flat no-caps dense")
                    self._state = ui.label().classes("e-note e-stand")
        self._timer = view.every(_ONCE, self._continue)
        view.every(_SURVEYED, self._grow_tree)

    def _service_node(self, service: Service) -> dict[str, Any]:
        children = []
        for group in service.groups:
            stored = [each for each in group.keyspaces if each.kind != "channel"]
            nodes = [self._node(KeyScope(service, each.role, each), each.pattern) for each in stored]
            if len(nodes) > 1:
                name = f"{group.main.pattern} ({group.kind})"
                nodes = [_folder(f"group {group.main.pattern} {service.name}", name, nodes)]
            children += nodes
        shapes = [unknown.shapes for _, unknown in self._view.console.surveys.of(service).unknown]
        roles = [role or "cache" for role, _, _ in service.servers]
        for number, role in enumerate(roles):
            where = f"{UNDECLARED} on the {role} server" if len(roles) > 1 else UNDECLARED
            found = shapes[number][:_MAX_SHAPES] if number < len(shapes) else []
            children.append(self._undeclared_node(service, role, where, found))
        return _folder(f"service {service.name}", service.name, children)

    def _undeclared_node(
        self, service: Service, role: Role, label: str, shapes: list[UnknownShape]
    ) -> dict[str, Any]:
        """The undeclared keys of a server: the shapes of each library, then those of no known library."""
        others = tuple(each for each in self._view.services if each is not service)
        libraries: dict[str, list[dict[str, Any]]] = {}
        for shape in shapes:
            if shape.pattern is not None:
                template = Template(shape.pattern, hash_tag=shape.hash_tag)
                node = self._node(KeyScope(service, role, None, others, template), shape.pattern)
                libraries.setdefault(shape.library or "", []).append(node)
        unrecognized = libraries.pop("", [])
        nodes = [
            _folder(f"library {name} {role} {service.name}", name, found)
            for name, found in sorted(libraries.items())
        ]
        return self._node(KeyScope(service, role, None, others), label) | {"children": nodes + unrecognized}

    def _node(self, scope: KeyScope, label: str) -> dict[str, Any]:
        name = _id_of(scope)
        self._scopes[name] = scope
        return {"id": name, "label": label}

    def _chosen(self) -> KeyScope:
        """The keyspace that the URL names, or the first one."""
        wanted = self._view.arguments.get("service"), self._view.arguments.get("keyspace")
        named = [scope for scope in self._scopes.values() if (scope.service.name, scope.name) == wanted]
        return (named or list(self._scopes.values()))[0]

    def _draw_tree(self) -> None:
        with ui.element("div").classes("e-tree"):
            self._tree = ui.tree(self._nodes, on_select=lambda event: self._choose(event.value))
            self._tree.props("dense no-connectors no-selection-unset")
            chosen = _id_of(self._scope)
            self._tree.select(chosen)
            nodes = [each for node in self._nodes for each in _below(node) if _children(each)]
            above = [each["id"] for each in nodes if any(one["id"] == chosen for one in _below(each))]
            self._tree.expand(above)
            self._expand_undeclared(self._nodes)

    def _grow_tree(self) -> None:
        """Show what the latest survey found."""
        surveys = self._view.console.surveys
        surveys.refresh_if_stale()
        surveyed = [surveys.of(service).at for service in self._view.services]
        if surveyed == self._surveyed:
            return
        self._surveyed = surveyed
        nodes = [self._service_node(service) for service in self._view.services]
        if nodes != self._nodes:
            self._expand_undeclared(nodes)
            self._nodes = nodes
            self._tree.props["nodes"] = nodes

    def _expand_undeclared(self, nodes: list[dict[str, Any]]) -> None:
        """Show all shapes of a service that declares nothing, the first time that there are some."""
        for service, node, before in zip(self._view.services, nodes, self._nodes, strict=True):
            shown_before = node is not before and any(map(_children, _children(before)))
            if not service.keyspaces and not shown_before:
                self._tree.expand([each["id"] for each in _below(node) if _children(each)])

    async def _choose(self, name: Any) -> None:
        scope = self._scopes.get(name) if isinstance(name, str) else None
        if scope is not None:
            self._scope = scope
            await self._find()

    async def _find(self) -> None:
        self._search = KeySearch(self._scope, str(self._text.value or "").strip()[:_MAX_TEXT])
        self._keys = []
        await self._timer.now()

    async def _more(self) -> None:
        await self._timer.now()

    async def _continue(self) -> None:
        search = self._search
        found = [SampledKey(name) for name in await search.more()]
        await inspect_keys(search.scope.client, found)
        if search is not self._search:
            return  # the user has searched for something else since
        self._keys = [*self._keys, *(key for key in found if key.exists)][:_MAX_ROWS]
        self._show()

    def _show(self) -> None:
        scope, search = self._scope, self._search
        self._where.text = _name_of(scope)
        self._rows.show([_row(number, key, scope) for number, key in enumerate(self._keys)])
        full = len(self._keys) >= _MAX_ROWS
        self._next.set_enabled(not search.done and not full)
        found = format_count(len(self._keys), "key")
        if full:
            self._state.text = f"{found}: search for more of the key"
        elif search.done:
            self._state.text = f"{found} in total"
        else:
            self._state.text = f"{found} among the first {search.scanned:,} names"

    async def _open(self, row: dict[str, Any]) -> None:
        if row["id"] >= len(self._keys):
            return  # another search has begun
        scope, key = self._scope, self._keys[row["id"]].key
        reading = read_entry(scope, key, undeclared=self._view.has_role("operate"))
        outcome = await self._view.act("key.read", row["key"], reading, changes=False)
        if not outcome:
            return
        if outcome.result is None:
            self._view.notify("The key is gone.", "warn")
            return
        with self._panel.open("Key"):
            self._draw_entry(outcome.result, row["key"])

    def _draw_entry(self, entry: KeyEntry, shown: str) -> None:
        found = entry.found
        ttl = facts()
        ttl.show(
            [
                ("Key", shown),
                ("Type", found.type),
                ("TTL", _ttl(found)),
                ("Bytes", NO_VALUE if found.size is None else f"{found.size:,}"),
                *([("Members", f"{found.members:,}")] if found.members else []),
            ]
        )
        if entry.text == HIDDEN:
            ui.label(_why_hidden(entry, may_see=self._view.has_role("operate"))).classes("e-note")
        elif entry.raw is None:
            text_block(entry.text)
        else:
            self._draw_editor(entry, shown)
        if not entry.may_delete:
            ui.label(
                "It cannot be deleted here: its pattern needs it. Use the page of the pattern."
                if not entry.hidden
                else "A key that is hidden cannot be changed here."
            ).classes("e-note")
            return
        with ui.element("div").classes("e-row"):
            self._draw_changes(entry, shown)

    def _draw_editor(self, entry: KeyEntry, shown: str) -> None:
        text = ui.textarea("Value", value=entry.text).props("outlined autogrow").classes("e-editor e-mono")
        refused = self._view.refusal("administer") is not None
        text.props("readonly" if refused else "")
        with ui.element("div").classes("e-row"):
            self._draw_save(entry, shown, text)

    def _draw_save(self, entry: KeyEntry, shown: str, text: ui.textarea) -> None:
        confirm_button(
            self._view,
            "Save",
            what="key.edit",
            target=shown,
            question=f"Replace the value of {shown}? Its TTL is kept.",
            work=lambda: entry.replace(str(text.value or "")),
            done="The value is saved.",
            icon="save",
            tone="warn",
            needs="administer",
        )

    def _draw_changes(self, entry: KeyEntry, shown: str) -> None:
        seconds = ui.number("TTL in seconds", value=3600, min=1, max=10**9, precision=0).props(
            "dense outlined"
        )
        disable_if_refused(self._view, seconds, "administer")
        confirm_button(
            self._view,
            "Set TTL",
            what="key.expire",
            target=shown,
            question=f"Let {shown} expire after the TTL that you entered?",
            work=lambda: entry.expire(int(seconds.value or 0)),
            done="The TTL is set.",
            icon="timer",
            tone="warn",
            then=self._find,
            needs="administer",
        )
        confirm_button(
            self._view,
            "Delete",
            what="key.delete",
            target=shown,
            question=f"Delete {shown}? This cannot be undone.",
            work=entry.delete,
            done="The key is deleted.",
            icon="delete",
            then=self._after_delete,
            needs="administer",
        )

    async def _after_delete(self) -> None:
        self._panel.close()
        await self._find()


def _id_of(scope: KeyScope) -> str:
    """The id of a scope's node, which is the same after each survey."""
    return f"{'shape' if scope.shape else 'scope'} {scope.name} {scope.role} {scope.service.name}"


def _folder(name: str, label: str, children: list[dict[str, Any]]) -> dict[str, Any]:
    """A node of the tree that only opens and closes."""
    return {"id": name, "label": label, "children": children, "selectable": False}


def _children(node: dict[str, Any]) -> list[dict[str, Any]]:
    children: list[dict[str, Any]] = node.get("children", [])
    return children


def _below(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A node of the tree, and all below it."""
    yield node
    for child in _children(node):
        yield from _below(child)


def _name_of(scope: KeyScope) -> str:
    return f"{scope.service.name} / {scope.name}"


def _shown_key(key: bytes, scope: KeyScope) -> str:
    hidden = scope.keyspace is None and scope.is_hidden(key)
    return _HIDDEN_KEY if hidden else format_key(key, scope.keyspace)


def _row(number: int, key: SampledKey, scope: KeyScope) -> dict[str, Any]:
    return {
        "id": number,
        "key": _shown_key(key.key, scope),
        "type": key.type,
        "ttl": _ttl(key),
        "ttl_sort": key.ttl,
        "size": NO_VALUE if key.size is None else f"{key.size:,}",
        "size_sort": key.size or 0,
    }


def _ttl(key: SampledKey) -> str:
    return "no TTL" if key.ttl < 0 else format_duration(key.ttl)


def _why_hidden(entry: KeyEntry, *, may_see: bool) -> str:
    if entry.scope.keyspace is not None and entry.scope.keyspace.sensitive:
        return "The value is hidden: its keyspace is declared sensitive."
    if entry.scope.keyspace is None and not may_see:
        return "Values of undeclared keys are shown to the roles operate and administer."
    return "The value is hidden: it may be a secret."


PAGE = ConsolePage("/browser", "Key browser", "manage_search", build)
