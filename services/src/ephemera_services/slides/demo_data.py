"""Demo data: two organizations with users, whose password is public."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ephemera.web import Problem
from ephemera_services.runtime import DEMO_PASSWORD

if TYPE_CHECKING:
    from ephemera_services.slides.service import Slides

ORGANIZATIONS: tuple[tuple[str, str, tuple[tuple[str, Any], ...]], ...] = (
    (
        "Company",
        "enterprise",
        (
            ("root@company.example", "admin"),
            ("anna@company.example", "editor"),
            ("vera@company.example", "viewer"),
        ),
    ),
    ("Studio", "free", (("ivan@studio.example", "admin"),)),
)
DEMO_DOCUMENT = """Whales are mammals that returned to the sea some fifty million years ago.

Baleen whales filter krill from the water. A blue whale may eat four tonnes of it in a day.

Toothed whales hunt by echolocation. Sperm whales dive deeper than a kilometre for squid.

Commercial whaling reduced many populations to a few per cent. A moratorium has held since 1986.

Humpback whales have recovered in most oceans. North Atlantic right whales have not: ships and nets kill them.
"""
"""A source document for a first presentation."""


async def seed(slides: Slides) -> list[str]:
    """Create the demo organizations and users; the addresses that are new."""
    created: list[str] = []
    for name, plan, members in ORGANIZATIONS:
        if await slides.accounts.id_of(name, members[0][0]) is not None:
            continue
        organization_id = await slides.accounts.add_organization(name, plan)
        for email, role in members:
            try:
                await slides.accounts.add(organization_id, email, DEMO_PASSWORD, role)
            except Problem:  # the address is taken
                continue
            created.append(email)
    return created
