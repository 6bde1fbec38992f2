"""A reader's preferences; and for administrators, users, plans and features."""

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
    Plan,
    PlanForm,
    PreferencesForm,
    UserForm,
    UserView,
)
from ephemera_services.scripture.keys import ReadingPreferences

router = APIRouter(tags=["accounts"])
Reader = Annotated[Caller, Depends(Bearer())]
Admin = Annotated[Caller, Depends(Bearer(admin=True))]


@router.get("/me/preferences", responses=problems(429))
async def preferences(caller: Reader) -> PreferencesForm:
    """The caller's reading preferences; stored for seven days after the last change."""
    found = await caller.service.preferences.get(user_id=str(caller.user_id))
    return PreferencesForm.model_validate(found, from_attributes=True)


@router.put("/me/preferences", responses=problems(429))
async def set_preferences(form: PreferencesForm, caller: Reader) -> PreferencesForm:
    """Change the caller's reading preferences."""
    preferences = msgspec.convert(form.model_dump(), ReadingPreferences)
    await caller.service.preferences.replace(preferences, user_id=str(caller.user_id))
    return form


@router.post("/users", status_code=201, responses=problems(403, 409))
async def create_user(form: UserForm, caller: Admin) -> UserView:
    """Create a user, and publish an event."""
    await caller.service.users.create(form.user_id, form.email, form.name, form.plan)
    return UserView(user_id=form.user_id, plan=form.plan)


@router.put("/users/{user_id}/plan", responses=problems(403, 404))
async def change_plan(user_id: UUID, form: PlanForm, caller: Admin) -> UserView:
    """Set a user's plan, effective from their next request on."""
    await caller.service.users.change_plan(user_id, form.plan)
    return UserView(user_id=user_id, plan=form.plan)


@router.put("/plans/{plan}/features/{feature}", responses=problems(403))
async def change_feature(plan: Plan, feature: Feature, form: FeatureForm, caller: Admin) -> FeatureView:
    """Add a feature to a plan or remove it, effective from the next request on."""
    await caller.service.users.change_feature(plan, feature, allowed=form.allowed)
    return FeatureView(plan=plan, feature=feature, allowed=form.allowed)
