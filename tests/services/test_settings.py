"""Settings from the environment, and the errors of invalid ones."""

from __future__ import annotations

import socket
import subprocess
from datetime import timedelta
from importlib.resources import files
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import msgspec
import pytest

from ephemera.cli._job_flags import address
from ephemera_services.identity import Settings as IdentitySettings
from ephemera_services.league import Settings as LeagueSettings
from ephemera_services.runtime import InvalidSettings, Secret, ServiceSettings, read_settings, variable_names
from ephemera_services.slides import Settings as SlidesSettings
from tests.services.services import COMMAND, environment


class Settings(ServiceSettings, kw_only=True, frozen=True):
    """One field of each type."""

    service: ClassVar[str] = "shop"

    name: str
    limit: Annotated[int, msgspec.Meta(ge=1, le=10)] = 5
    orders_per_hour: int = 5
    borders: int = 5
    share: float | None = None
    open: bool = False
    life: timedelta = timedelta(minutes=15)
    mode: Literal["fixed", "sliding"] = "fixed"
    secret: Secret | None = None
    hosts: tuple[str, ...] = ()


def test_each_field_has_its_variable() -> None:
    """Shared fields are EPHEMERA_..., those of a service carry its name; values have their types."""
    made = read_settings(
        Settings,
        {
            "EPHEMERA_URL": "redis://:hunter2@localhost",
            "EPHEMERA_TRUSTED_PROXIES": "10.0.0.0/8, 192.0.2.1",
            "EPHEMERA_SHOP_NAME": "Toys",
            "EPHEMERA_SHOP_LIMIT": "7",
            "EPHEMERA_SHOP_SHARE": "0.5",
            "EPHEMERA_SHOP_OPEN": "true",
            "EPHEMERA_SHOP_LIFE": "7d",
            "EPHEMERA_SHOP_MODE": "sliding",
            "EPHEMERA_SHOP_SECRET": "s3cret",
            "EPHEMERA_SHOP_HOSTS": "a,b",
            "EPHEMERA_DATABASE_URL": "",
            "UNRELATED": "x",
        },
    )
    assert (made.name, made.limit, made.share, made.open) == ("Toys", 7, 0.5, True)
    assert (made.life, made.mode, made.hosts) == (timedelta(days=7), "sliding", ("a", "b"))
    assert made.secret == Secret("s3cret")
    assert made.trusted_proxies == ("10.0.0.0/8", "192.0.2.1")
    assert made.database_url is None, "an empty variable is as good as none"
    assert "s3cret" not in repr(made)
    assert "hunter2" not in repr(made)


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("EPHEMERA_SHOP_LIMIT", "many", "EPHEMERA_SHOP_LIMIT: 'many': Expected `int`"),
        ("EPHEMERA_SHOP_LIMIT", "11", "EPHEMERA_SHOP_LIMIT: '11': Expected `int` <= 10"),
        ("EPHEMERA_SHOP_OPEN", "perhaps", "EPHEMERA_SHOP_OPEN: 'perhaps': Expected `bool`"),
        ("EPHEMERA_SHOP_LIFE", "long", "EPHEMERA_SHOP_LIFE: 'long' is not a duration above 0"),
        ("EPHEMERA_SHOP_LIFE", "0s", "EPHEMERA_SHOP_LIFE: '0s' is not a duration above 0"),
        ("EPHEMERA_SHOP_MODE", "both", "EPHEMERA_SHOP_MODE: 'both': Invalid enum value"),
        ("EPHEMERA_LOG_LEVEL", "loud", "EPHEMERA_LOG_LEVEL: 'loud': Invalid enum value"),
        (
            "EPHEMERA_SHOP_LIMITS",
            "5",
            "EPHEMERA_SHOP_LIMITS is not a setting; did you mean EPHEMERA_SHOP_LIMIT?",
        ),
        (
            "EPHEMERA_SHOP_ORDERS",
            "5",
            "EPHEMERA_SHOP_ORDERS is not a setting; did you mean EPHEMERA_SHOP_ORDERS_PER_HOUR?",
        ),
        ("EPHEMERA_URL", "http://:hunter2@localhost", "EPHEMERA_URL: "),
        ("EPHEMERA_DATABASE_URL", "mysql://root:hunter2@db", "EPHEMERA_DATABASE_URL: it must begin with"),
        ("EPHEMERA_QUEUE_URL", "redis://queue", "EPHEMERA_QUEUE_URL is set and EPHEMERA_URL is not"),
    ],
)
def test_an_error_names_its_variable(variable: str, value: str, message: str) -> None:
    """The error names the variable, its value and what is expected; never a password."""
    with pytest.raises(InvalidSettings) as raised:
        read_settings(Settings, {"EPHEMERA_SHOP_NAME": "Toys", variable: value})
    assert message in str(raised.value)
    assert "hunter2" not in str(raised.value)


def test_all_invalid_settings_are_reported_together() -> None:
    """A missing setting and two wrong ones are three problems of one error."""
    with pytest.raises(InvalidSettings) as raised:
        read_settings(Settings, {"EPHEMERA_SHOP_LIMIT": "0", "EPHEMERA_SHOP_SHARE": "half"})
    assert len(raised.value.problems) == 3
    assert "EPHEMERA_SHOP_NAME must be set" in raised.value.problems


def test_a_service_that_is_configured_wrongly_does_not_start(tmp_path: Path) -> None:
    """`ephemera serve` ends with code 2 and one line that names the variable, before it starts anything."""
    wrong = environment(EPHEMERA_IDENTITY_LOGINS_PER_HOUR="few")
    done = subprocess.run(
        [COMMAND, "serve", "identity"], env=wrong, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("ephemera: invalid settings: EPHEMERA_IDENTITY_LOGINS_PER_HOUR:")
    assert len(done.stderr.splitlines()) == 1
    assert not done.stdout


def test_a_service_that_cannot_reach_its_database_says_so_and_ends() -> None:
    """Code 1, one line for people, JSON lines for machines, and no password in any of them."""
    unreachable = environment(EPHEMERA_DATABASE_URL="postgresql://ann:hunter2@127.0.0.1:1/db")
    done = subprocess.run(
        [COMMAND, "serve", "identity", "--port", "1"],
        env=unreachable,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    *log, line = done.stderr.splitlines()
    assert line.startswith("ephemera: identity did not start: EPHEMERA_DATABASE_URL, 127.0.0.1:1: ")
    assert "Connection refused" in line
    assert "the service did not start" in [msgspec.json.decode(each)["message"] for each in log]
    assert "hunter2" not in done.stderr


def test_an_unknown_service_is_an_error() -> None:
    """An unknown service exits with code 2 and lists the names."""
    done = subprocess.run(
        [COMMAND, "serve", "identiti"], env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "identity" in done.stderr


def test_the_readme_names_every_setting() -> None:
    """The settings table of identity's README has exactly the variables that there are."""
    page = files("ephemera_services.identity").joinpath("README.md").read_text(encoding="utf-8")
    named = {line.split("`")[1] for line in page.splitlines() if line.startswith("| `EPHEMERA_")}
    assert named == set(variable_names(IdentitySettings).values())


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql://ann:hunter2@db.internal/app", "db.internal:5432"),
        ("postgres://ann:hun@ter2@db.internal:5433/app?sslmode=require", "db.internal:5433"),
        ("postgresql://[::1]:1/app", "[::1]:1"),
        ("postgresql:///app?host=/run/postgresql", "a local socket"),
    ],
)
def test_a_database_address_is_shown_without_credentials(url: str, message: str) -> None:
    """Host and port, even of a URL whose password holds an @ that it should not."""
    assert address(url) == message


def test_a_port_that_is_taken_is_named_before_anything_starts() -> None:
    """`ephemera serve` and `ephemera console` say which port it is in one line, and no password is made."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for words in (
            ("serve", "identity"),
            ("console", "--url", "redis://127.0.0.1:1", "--catalogue", "identity"),
        ):
            done = subprocess.run(
                [COMMAND, *words, "--port", port],
                env=environment(),
                capture_output=True,
                text=True,
                check=False,
            )
            assert (done.returncode, done.stdout) == (1, "")
            taken_by = f"port {port} of 127.0.0.1 is taken by another process; give a free one with --port"
            assert done.stderr == f"ephemera: {taken_by}\n"


@pytest.mark.parametrize(
    ("settings", "field", "good"),
    [
        (IdentitySettings, "admin_email", "root@example.com"),
        (SlidesSettings, "admin_email", "root@example.com"),
        (LeagueSettings, "admin_name", "root"),
    ],
)
def test_an_administrator_can_sign_in_by_what_settings_call_them(
    settings: type[ServiceSettings], field: str, good: str
) -> None:
    """What the form of the sign-in refuses is refused at the start, not found out by the administrator."""
    variable = variable_names(settings)[field]
    assert getattr(read_settings(settings, {variable: good}), field) == good
    with pytest.raises(InvalidSettings, match=variable):
        read_settings(settings, {variable: 32 * "a7"})


def test_a_secret_of_a_file_is_without_the_line_break_at_its_end() -> None:
    """A trailing line break is ignored; one inside a URL is reported without the URL."""
    read_from_files = {"EPHEMERA_SHOP_NAME": "Toys", "EPHEMERA_SHOP_SECRET": "s3cret\r\n"}
    assert read_settings(Settings, read_from_files).secret == Secret("s3cret")
    broken = {"EPHEMERA_SHOP_NAME": "Toys", "EPHEMERA_DATABASE_URL": "postgresql://shop:s3cret\n@sql/shop"}
    with pytest.raises(InvalidSettings, match=r"EPHEMERA_DATABASE_URL: it contains a line break") as caught:
        read_settings(Settings, broken)
    assert "s3cret" not in str(caught.value)
