"""A console with one page more, whose buttons write a key: `python -m tests.console.tempting`.

It takes the flags of `ephemera console`, and is what tests of permission press.
"""

from __future__ import annotations

import sys
from typing import Any

from ephemera.cli import create_app
from ephemera.console import _server as serving
from ephemera.console._components import Action, Column, Empty, confirm_button, section, table
from ephemera.console._page import Page
from ephemera.console._pages import PAGES
from ephemera.console._view import View

KEY = "legacy:written-by-the-console"


def build(view: View) -> None:
    """A button of its own, and one in a row."""

    async def write() -> None:
        await view.places[0].store.call("SET", KEY, "written", "EX", 60)

    def work(_: dict[str, Any]) -> Any:
        return write()

    with section("Tempting"):
        confirm_button(
            view,
            "Write",
            what="key.write",
            target=KEY,
            question="Write it?",
            work=write,
            done="It is written.",
        )
        rows = table(
            [Column("name", "Name")],
            empty=Empty("Nothing", "Nothing to do."),
            view=view,
            actions=[
                Action(
                    "write",
                    "Write it",
                    "edit",
                    "row.write",
                    lambda _: "Write it?",
                    work,
                    lambda _: KEY,
                    "Done.",
                )
            ],
        )
    rows.show([{"id": 1, "name": "a row"}, {"id": 2, "name": "a row without it", "actions": []}])


if __name__ == "__main__":
    pages = (*PAGES, Page("/tempting", "Tempting", "edit", build))
    serve = serving.serve
    serving.serve = lambda settings: serve(settings, pages)  # type: ignore[assignment,misc]
    create_app()(["console", *sys.argv[1:]], prog_name="ephemera")
