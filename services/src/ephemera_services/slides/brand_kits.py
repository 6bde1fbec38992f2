"""The brand kits of organizations: colours, fonts and a logo, if their plan includes them."""

from __future__ import annotations

from uuid import UUID

import msgspec
from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera_services.slides.plans import PLANS
from ephemera_services.slides.tables import brand_kits, organizations
from ephemera_services.slides.themes import THEMES, BrandKit, Theme, branded

BRAND_KIT = "brand_kit"
"""The feature of a plan that brand kits need."""


class BrandKits:
    """The brand kits of all organizations."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def get(self, organization_id: UUID) -> BrandKit | None:
        """The brand kit of an organization; None if it has none."""
        names = BrandKit.__struct_fields__
        query = select(*(brand_kits.c[name] for name in names)).where(
            brand_kits.c.organization_id == organization_id
        )
        async with self._engine.connect() as sql:
            row = (await sql.execute(query)).one_or_none()
        return None if row is None else BrandKit(**dict(zip(names, row, strict=True)))

    async def set(self, organization_id: UUID, kit: BrandKit) -> None:
        """Set the brand kit of an organization; exports from now on have it."""
        values = msgspec.structs.asdict(kit)
        row = upsert(brand_kits).values(organization_id=organization_id, **values)
        changed = row.on_conflict_do_update(index_elements=[brand_kits.c.organization_id], set_=values)
        async with self._engine.begin() as sql:
            await sql.execute(changed)

    async def remove(self, organization_id: UUID) -> None:
        """Remove the brand kit of an organization, if it has one."""
        async with self._engine.begin() as sql:
            await sql.execute(delete(brand_kits).where(brand_kits.c.organization_id == organization_id))


async def theme_of(engine: AsyncEngine, organization_id: UUID, name: str) -> Theme:
    """A theme, with the organization's brand kit while its plan includes it."""
    theme = THEMES.get(name, THEMES["paper"])
    query = select(organizations.c.plan).where(organizations.c.id == organization_id)
    async with engine.connect() as sql:
        plan = (await sql.execute(query)).scalar_one_or_none()
    if plan is None or BRAND_KIT not in PLANS[plan].features:
        return theme
    return branded(theme, await BrandKits(engine).get(organization_id))
