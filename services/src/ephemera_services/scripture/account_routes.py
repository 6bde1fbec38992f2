"""A reader's preferences; and for administrators, users, their plans, and what plans have."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import msgspec
from fastapi import APIRouter, Depends

from ephemera_services.runtime import problems
from ephemera_services.scripture.access import Bearer, Caller
from ephemera_services.scripture.forms import (
    Feature,
    FeatureForm,
    FeatureView,
    LookForm,
    Plan,
    PlanForm,
    UserForm,
    UserView,
)
from ephemera_services.scripture.keys import Look

router = APIRouter(tags=["accounts"])
Reader = Annotated[Caller, Depends(Bearer())]
Admin = Annotated[Caller, Depends(Bearer(admin=True))]


@router.get("/me/preferences")
async def preferences(caller: Reader) -> LookForm:
    """How the caller likes to read; kept for seven days after the last change, then the defaults again."""
    found = await caller.service.preferences.get(user_id=str(caller.user_id))
    return LookForm.model_validate(found, from_attributes=True)


@router.put("/me/preferences")
async def set_preferences(form: LookForm, caller: Reader) -> LookForm:
    """Change how the caller likes to read."""
    look = msgspec.convert(form.model_dump(), Look)
    await caller.service.preferences.replace(look, user_id=str(caller.user_id))
    return form


@router.post("/users", status_code=201, responses=problems(403, 409))
async def create_user(form: UserForm, caller: Admin) -> UserView:
    """Add a user, and tell whoever wants to know."""
    await caller.service.people.create(form.user_id, form.email, form.name, form.plan)
    return UserView(user_id=form.user_id, plan=form.plan)


@router.put("/users/{user_id}/plan", responses=problems(403, 404))
async def change_plan(user_id: UUID, form: PlanForm, caller: Admin) -> UserView:
    """Give a user a plan, from their next request on."""
    await caller.service.people.change_plan(user_id, form.plan)
    return UserView(user_id=user_id, plan=form.plan)


@router.put("/plans/{plan}/features/{feature}", responses=problems(403))
async def change_feature(plan: Plan, feature: Feature, form: FeatureForm, caller: Admin) -> FeatureView:
    """Give a plan a feature or take it away, from the next request on."""
    await caller.service.people.change_feature(plan, feature, allowed=form.allowed)
    return FeatureView(plan=plan, feature=feature, allowed=form.allowed)
