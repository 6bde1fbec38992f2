"""Tables that update in place, and that are cards on a phone.

All cells are text, inserted by Vue's interpolation. The browser sends back only a row id and the name of an
action: the row is looked up among those shown, so a forged event reaches nothing else, and `View.act` checks
permission.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

from nicegui import ui

from ephemera.console._access import AccountRole
from ephemera.console._components._cards import Tone
from ephemera.console._components._confirm import confirm_and_run
from ephemera.console._components._states import Empty, empty
from ephemera.console._view import View

_ROW = files("ephemera.console").joinpath("assets", "row.vue.html").read_text(encoding="utf-8")
_RIGHT = ("number", "time")
_FILTER = (
    "(rows, terms, cols) => rows.filter(row => [...cols.map(col => row[col.name]), row.search]"
    ".some(text => String(text ?? '').toLowerCase().includes(terms.toLowerCase())))"
)


@dataclass(frozen=True, slots=True)
class Column:
    """A column: the key of its value in a row, its heading, and its format."""

    name: str
    label: str
    kind: Literal["text", "mono", "number", "badge", "bar", "time"] = "text"


@dataclass(frozen=True, slots=True)
class Action:
    """A button in each row that asks for confirmation."""

    name: str
    label: str
    icon: str
    what: str
    question: Callable[[dict[str, Any]], str]
    work: Callable[[dict[str, Any]], Coroutine[Any, Any, Any]]
    target: Callable[[dict[str, Any]], str]
    done: str | Callable[[Any], str] = ""
    tone: Tone = "plain"
    needs: AccountRole = "operate"


class ConsoleTable:
    """A table; rows are identified by `row_key`."""

    def __init__(
        self,
        columns: Sequence[Column],
        empty_state: Empty,
        *,
        row_key: str,
        on_open: Callable[[dict[str, Any]], Any] | None,
        actions: Sequence[Action],
        view: View | None,
        then: Callable[[], Any] | None,
        rows_per_page: int,
        search: bool,
    ) -> None:
        self._row_key = row_key
        self._rows: dict[Any, dict[str, Any]] = {}
        self._actions = {action.name: action for action in actions}
        self._view = view
        self._then = then
        self._on_open = on_open
        declared = [_column(column) for column in columns]
        if actions:
            declared.append(
                {"name": "actions", "label": "", "field": "id", "align": "right", "kind": "actions"}
            )
        with ui.element("div").classes("e-table-box"):
            self._table = ui.table(
                rows=[], columns=declared, row_key=row_key, pagination={"rowsPerPage": rows_per_page}
            )
            self._empty = empty(empty_state.title, empty_state.advice, empty_state.icon)
        self._table.classes("e-table").props("flat dense hide-no-data binary-state-sort")
        self._table.props["rows-per-page-options"] = [10, rows_per_page, 100]
        self._table.props["hide-pagination"] = True
        self._table.props["actions"] = []
        self._table.add_slot("body", _row_template(actions, view, opens=on_open is not None))
        if search:
            self._search()
        self._table.on("open", self._open)
        self._table.on("act", self._act)
        # Before the first rows arrive, neither the table nor the empty state is shown.
        self._table.set_visibility(False)
        self._empty.box.set_visibility(False)

    def show(self, rows: Sequence[dict[str, Any]], empty: Empty | None = None) -> None:
        """Set the rows, or the empty state; sorting, page and scroll position stay."""
        if empty is not None:
            self._empty.show(empty)
        self._rows = {row[self._row_key]: row for row in rows}
        shown = list(self._rows.values())
        if shown != self._table.rows:
            self._table.rows = shown
        rows_per_page = self._table.props["pagination"]["rowsPerPage"]
        self._table.props["hide-pagination"] = len(shown) <= rows_per_page
        self._table.set_visibility(bool(shown))
        self._empty.box.set_visibility(not shown)

    def row(self, key: Any) -> dict[str, Any] | None:
        """A row by its id, if it is shown."""
        return self._rows.get(key)

    def _search(self) -> None:
        self._table.props[":filter-method"] = _FILTER
        with self._table.add_slot("top"):
            field = ui.input(placeholder="Find").props(
                'dense outlined clearable debounce=200 aria-label="Find"'
            )
            field.classes("e-search")
        field.on_value_change(lambda event: self._table.set_filter(event.value or ""))

    async def _open(self, event: Any) -> None:
        row = self._rows.get(event.args)
        if row is not None and self._on_open is not None:
            pending = self._on_open(row)
            if inspect.isawaitable(pending):
                await pending

    async def _act(self, event: Any) -> None:
        args = event.args if isinstance(event.args, dict) else {}
        row, action = self._rows.get(args.get("id")), self._actions.get(str(args.get("name")))
        if row is None or action is None or self._view is None:
            return
        if action.name not in row.get("actions", [action.name]):
            return
        await confirm_and_run(
            self._view,
            action.label,
            what=action.what,
            target=action.target(row),
            question=action.question(row),
            work=lambda: action.work(row),
            done=action.done,
            tone=action.tone,
            then=self._then,
            needs=action.needs,
        )


def table(
    columns: Sequence[Column],
    *,
    empty: Empty,
    row_key: str = "id",
    on_open: Callable[[dict[str, Any]], Any] | None = None,
    actions: Sequence[Action] = (),
    view: View | None = None,
    then: Callable[[], Any] | None = None,
    rows_per_page: int = 25,
    search: bool = False,
) -> ConsoleTable:
    """An empty table; actions need the view, and `then` is called after each one."""
    if actions and view is None:
        raise TypeError("a table with actions needs view=, which checks permission")
    return ConsoleTable(
        columns, empty, row_key=row_key, on_open=on_open, actions=actions, view=view, then=then,
        rows_per_page=rows_per_page, search=search,
    )  # fmt: skip


def _column(column: Column) -> dict[str, Any]:
    return {
        "name": column.name,
        "label": column.label,
        ":field": f"row => row['{column.name}_sort'] ?? row['{column.name}']",
        "align": "right" if column.kind in _RIGHT else "left",
        "sortable": True,
        "kind": column.kind,
    }


def _row_template(actions: Sequence[Action], view: View | None, *, opens: bool) -> str:
    filled = _ROW.replace("'$BUTTONS'", _buttons(actions, view))
    return filled.replace("$OPENS", str(opens).lower())


def _buttons(actions: Sequence[Action], view: View | None) -> str:
    """The buttons of a row for the template: constants, never data."""
    return (
        "["
        + ", ".join(
            f"{{name: '{a.name}', label: '{a.label}', icon: '{a.icon}', tone: '{a.tone}', "
            f"refusal: '{(view.refusal(a.needs) if view is not None else None) or ''}'}}"
            for a in actions
        )
        + "]"
    )
