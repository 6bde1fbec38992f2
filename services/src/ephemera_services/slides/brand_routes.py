"""The brand kit of an organization."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter

from ephemera_services.runtime import problem, problems
from ephemera_services.slides.account_routes import Admin, Reader
from ephemera_services.slides.brand_kits import BRAND_KIT
from ephemera_services.slides.library_forms import (
    BrandKitForm,
    BrandKitView,
)
from ephemera_services.slides.themes import LOGO_BYTES, BrandKit, check_logo

router = APIRouter(tags=["brand kit"])

BODY_BYTES = LOGO_BYTES * 3 // 2
"""The largest body of a brand kit, whose logo is in base64."""


@router.get("/brand-kit", responses=problems(404, 429))
async def read(caller: Reader) -> BrandKitView:
    """The organization's brand kit; exports have it while the plan includes it."""
    kit = await caller.service.brand_kits.get(caller.organization_id)
    if kit is None:
        raise problem(404, "Your organization has no brand kit.")
    return _view(kit)


@router.put("/brand-kit", responses=problems(402, 403, 429))
async def change(form: BrandKitForm, caller: Admin) -> BrandKitView:
    """Set the colours, fonts and logo of the organization's exports from now on."""
    if BRAND_KIT not in caller.limits.features:
        raise problem(402, f"The plan {caller.limits.plan_name} does not include a brand kit.")
    if form.logo is not None:
        try:
            await asyncio.to_thread(check_logo, form.logo)
        except ValueError as refused:
            raise problem(422, str(refused)) from None
    # Not by `model_dump`, which would encode the logo again.
    kit = BrandKit(**{name: getattr(form, name) for name in BrandKit.__struct_fields__})
    await caller.service.brand_kits.set(caller.organization_id, kit)
    return _view(kit)


@router.delete("/brand-kit", status_code=204, responses=problems(403, 429))
async def remove(caller: Admin) -> None:
    """Remove the organization's brand kit, if it has one."""
    await caller.service.brand_kits.remove(caller.organization_id)


def _view(kit: BrandKit) -> BrandKitView:
    fields = {name: getattr(kit, name) for name in ("primary", "accent", "heading_font", "body_font")}
    return BrandKitView(**fields, has_logo=kit.logo is not None)
