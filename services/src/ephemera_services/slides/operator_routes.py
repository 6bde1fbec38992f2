"""What the operator of the service decides, and not the administrators of organizations: plans and usage."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from ephemera_services.runtime import problem, problems, unauthorized
from ephemera_services.slides.forms import LimitsView, OrganizationView, PlanForm, RecountView
from ephemera_services.slides.plans import PlanChange
from ephemera_services.slides.service import Slides

router = APIRouter(tags=["operator"])

_BEARER = HTTPBearer(scheme_name="OperatorToken", auto_error=False)


def _require_operator(
    request: Request, sent: Annotated[HTTPAuthorizationCredentials | None, Security(_BEARER)] = None
) -> Slides:
    service: Slides = request.app.state.service
    if service.operator_token is None:
        raise problem(404, "There is no operator: EPHEMERA_SLIDES_OPERATOR_TOKEN is not set.")
    if sent is None:
        raise unauthorized("Send the operator's token: Authorization: Bearer ...", token=False)
    if not service.operator_token.accepts(sent.credentials):
        raise unauthorized("The operator's token is wrong.")
    return service


Operated = Annotated[Slides, Depends(_require_operator)]
_Name = Annotated[str, Query(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
_Period = Annotated[str, Query(pattern=r"^20\d\d-(0[1-9]|1[0-2])$", examples=["2026-11"])]


@router.get("/operator/organizations", responses=problems(404))
async def find(name: _Name, service: Operated) -> OrganizationView:
    """The organization with a name."""
    organization_id, spelled, plan = await service.plans.find(name)
    return OrganizationView(organization_id=organization_id, name=spelled, plan=plan)


@router.put("/operator/organizations/{organization_id}/plan", responses=problems(404))
async def change_plan(organization_id: UUID, form: PlanForm, service: Operated) -> LimitsView:
    """Set an organization's plan; its limits apply from the next request on."""
    await service.plans.change(organization_id, PlanChange(**form.model_dump()))
    return LimitsView.model_validate(await service.plans.limits(str(organization_id)))


@router.post("/operator/organizations/{organization_id}/usage/recount", responses=problems(404, 409))
async def recount(organization_id: UUID, period: _Period, service: Operated) -> RecountView:
    """Count the usage of a month again, from the jobs in SQL, and correct it; 409 while jobs change it."""
    counted, corrected = await service.recount.reconcile(organization_id, period)
    return RecountView(period=period, counted=counted, corrected=corrected)
