"""A console with an extra page whose buttons write a key: `python -m tests.console.write_button_app`.

It takes the options of `ephemera console`; the tests of permissions press its buttons.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any
from unittest.mock import patch

from ephemera import console
from ephemera.cli import create_app
from ephemera.console._components import Action, Column, Empty, confirm_button, section, table
from ephemera.console._pages import PAGES
from ephemera.console._view import ConsolePage, View

KEY = "legacy:written-by-the-console"


def build(view: View) -> None:
    """Draw a button, and one in a row."""

    async def write() -> None:
        await view.services[0].store.call("SET", KEY, "written", "EX", 60)

    def work(_: dict[str, Any]) -> Any:
        return write()

    with section("Write button"):
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
    pages = (*PAGES, ConsolePage("/write-button", "Write button", "edit", build))
    with patch.object(console, "serve", partial(console.serve, pages=pages)):
        create_app()(["console", *sys.argv[1:]], prog_name="ephemera")
