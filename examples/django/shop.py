"""A shop: users sign in, fill a cart, and sign out everywhere."""

from django.contrib.auth import authenticate, login
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path

from ephemera.adapters.django import end_sessions, limit


@limit("5/minute", by="address")
def sign_in(request: HttpRequest) -> HttpResponse:
    user = authenticate(request, username=request.POST["user"], password=request.POST["password"])
    if user is None:
        return HttpResponse("Wrong name or password", status=403)
    login(request, user)  # the cart of the visitor stays; the key of the session changes
    return HttpResponse(f"Welcome, {user.get_username()}")


@limit("60/minute", by="user")
def add(request: HttpRequest, item: str) -> JsonResponse:
    request.session["cart"] = [*request.session.get("cart", []), item]
    return JsonResponse({"cart": request.session["cart"]})


@login_required(login_url="/login")
def sign_out_everywhere(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"ended": end_sessions(request.user.pk)})


@limit("20/minute", by="header:x-api-key", name="search")
async def search(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"found": request.GET.get("words", "").split()})


urlpatterns = [
    path("login", sign_in),
    path("cart/<item>", add),
    path("logout-everywhere", sign_out_everywhere),
    path("search", search),
]
