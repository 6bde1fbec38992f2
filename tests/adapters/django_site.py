"""The views of a Django site, with sessions and limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib.auth import authenticate, login, logout
from django.contrib.auth.models import User
from django.contrib.sessions.backends.base import SessionBase
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View

from ephemera.adapters.django import SessionStore, end_sessions, limit
from ephemera.web import Problem

during_sign_in: list[Callable[[User], object]] = []
"""What happens between the check of a password and the end of the sign-in."""


def user_in_header(get_response: Callable[[HttpRequest], HttpResponse]) -> Any:
    """A middleware that needs the session, if the request asks for it."""

    def middleware(request: HttpRequest) -> HttpResponse:
        name = request.user.get_username() if "x-who" in request.headers else None
        response = get_response(request)
        if name is not None:
            response["X-User"] = name
        return response

    return middleware


def anybody(request: HttpRequest) -> HttpResponse:
    """A view that needs no session."""
    return HttpResponse("open")


def me(request: HttpRequest) -> JsonResponse:
    """What the session holds."""
    return JsonResponse({"user": request.user.get_username(), "cart": request.session.get("cart", [])})


def put(request: HttpRequest, item: str) -> HttpResponse:
    """Change the session."""
    request.session["cart"] = [*request.session.get("cart", []), item]
    return HttpResponse("put")


def sign_in(request: HttpRequest) -> HttpResponse:
    """Sign in."""
    if request.GET.get("announced"):
        assert isinstance(request.session, SessionStore)
        request.session.begin_sign_in(User.objects.get(username=request.POST["name"]).pk)
    user = authenticate(request, username=request.POST["name"], password="secret")
    assert isinstance(user, User)
    for each in during_sign_in:
        each(user)
    login(request, user)
    return HttpResponse("welcome")


def sign_out(request: HttpRequest) -> HttpResponse:
    """Sign out."""
    logout(request)
    return HttpResponse("bye")


def sign_out_elsewhere(request: HttpRequest) -> JsonResponse:
    """End the other sessions of the user."""
    session: SessionBase = request.session
    return JsonResponse({"ended": end_sessions(request.user.pk, keep=session.session_key)})


def late(request: HttpRequest) -> HttpResponse:
    """End all sessions of the user, and change this one."""
    request.session["late"] = True
    end_sessions(request.user.pk)
    return HttpResponse("late")


def refused(request: HttpRequest) -> HttpResponse:
    """A view that raises a problem."""
    raise Problem(409, "Conflict", "Twice.")


async def async_me(request: HttpRequest) -> JsonResponse:
    """The same, in an async view."""
    user = await request.auser()
    await request.session.aset("seen", True)
    return JsonResponse({"user": user.get_username()})


@limit("2/hour")
def by_address(request: HttpRequest) -> HttpResponse:
    """A limited view."""
    return HttpResponse("ok")


@limit("1/hour", by="user")
def by_user(request: HttpRequest) -> HttpResponse:
    """A limited view."""
    return HttpResponse("ok")


@limit("1/hour", by="header:X-Api-Key", name="api")
async def by_header(request: HttpRequest) -> HttpResponseBase:
    """A limited async view."""
    return HttpResponse("ok")


@method_decorator(limit("1/hour", by=lambda request: request.GET.get("plan"), name="plans"), name="dispatch")
class ByFunction(View):
    """A limited view class."""

    def get(self, request: HttpRequest) -> HttpResponse:
        """Respond, or not."""
        if request.GET.get("missing"):
            raise Http404
        return HttpResponse("ok")


@limit("9/hour", when_down="closed", name="closed")
def closed(request: HttpRequest) -> HttpResponse:
    """A view that is limited also while Redis is down."""
    return HttpResponse("ok")


urlpatterns = [
    path("open", anybody),
    path("me", me),
    path("cart/<item>", put),
    path("login", sign_in),
    path("logout", sign_out),
    path("elsewhere", sign_out_elsewhere),
    path("late", late),
    path("refused", refused),
    path("async-me", async_me),
    path("by-address", by_address),
    path("by-user", by_user),
    path("by-header", by_header),
    path("by-function", ByFunction.as_view()),
    path("closed", closed),
]
