"""Real servers take the generated files, and a service works on them as the user that they give it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ephemera.embedded import Postgres, free_ports, valkey_binary
from ephemera.errors import CannotConnect
from ephemera.operations.audit import audit
from ephemera.operations.health import check_server
from ephemera.wire import as_text, open_client
from ephemera_services.slides import catalogue
from tests.cli.commands import ephemera
from tests.deploy.production import Places, Production, cli, places, production, started
from tests.security import scenarios
from tests.services import feed_users, identity_users
from tests.services.services import serving
from tests.services.slides_processes import working
from tests.services.slides_users import QUICK, Person, administrator
from tests.wire.debian_redis import BINARY
from tools.deploy.layout import SERVICES, Service, cache_url, environment, queue_url
from tools.deploy.servers import MEMORY

pytestmark = pytest.mark.timeout(300)
needs_debian = pytest.mark.skipif(
    not BINARY.exists(), reason=f"Redis 7 is not installed: there is no {BINARY}"
)
SLIDES = next(each for each in SERVICES if each.name == "slides")


@pytest.mark.parametrize("group", MEMORY)
@pytest.mark.parametrize("kind", ["valkey", pytest.param("redis7-tls", marks=needs_debian)])
async def test_a_server_takes_its_files(kind: str, group: str, tmp_path: Path) -> None:
    """Settings and users boot Valkey and Redis 7; every user has a password, and none connects without."""
    where, [port] = places(tmp_path, tls=kind != "valkey"), free_ports(1)
    program = valkey_binary() if kind == "valkey" else str(BINARY)
    alone = ("--cluster-enabled", "no") if group == "cache" else ()
    with started(where, group, port, *alone, program=program):
        async with open_client(_url(where, port, "admin")) as admin:
            said = as_text(await admin.call("INFO", "memory"))
            assert f"maxmemory_human:{MEMORY[group][:-2]}" in said
            listed = [as_text(line) for line in await admin.call("ACL", "LIST")]
            users = {line.split()[1] for line in listed}
        carried = {each.name for each in SERVICES if group in (each.cache, "queue")}
        assert users >= {"default", "probe", "admin", "replication", *carried}
        for user in sorted(users - {"default", "probe"}):
            async with open_client(_url(where, port, user)) as client:
                assert client.up
        for url in (_url(where, port, None), _url(where, port, "admin").replace("admin:", "admin:x")):
            with pytest.raises(CannotConnect):
                async with open_client(url):
                    pytest.fail("it must not open")


def test_a_missing_password_stops_the_start(tmp_path: Path) -> None:
    """A server without the secret of one of its users does not start, and says which."""
    where, [port] = places(tmp_path, tls=False), free_ports(1)
    (tmp_path / "secrets/redis-slides").unlink()
    with pytest.raises(AssertionError, match="there is no password for slides"):
        with started(where, "queue", port, program=valkey_binary()):
            pytest.fail("it must not start")


def _url(where: Places, port: int, user: str | None) -> str:
    secret = "" if user is None else where.passwords[user]
    who = "" if user is None else f"{user}:{secret}@"
    if not where.tls:
        return f"redis://{who}127.0.0.1:{port}"
    tls = where.tls
    files = f"ca={tls['tls-ca-cert-file']}&cert={tls['tls-cert-file']}&key={tls['tls-key-file']}"
    return f"rediss://{who}localhost:{port}?{files}"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Production]:
    """Every Redis server of the layout."""
    if not BINARY.exists():
        pytest.skip(f"Redis 7 is not installed: there is no {BINARY}")
    with production(tmp_path_factory.mktemp("production")) as running:
        yield running


async def test_who_watches_finds_it_well(whole: Production) -> None:
    """Doctor and audit, as the watcher of a service, find all masters with the policy of their role."""
    secret = whole.places.passwords["slides-watcher"]
    for role, url in (("cache", cache_url), ("queue", queue_url)):
        place = whole.here(url(SLIDES, "slides-watcher", secret))
        health = await check_server(place, [catalogue], role=role, probes=3)  # type: ignore[arg-type]
        assert len(health.servers) == (3 if role == "cache" else 1)
        wrong = [check for check in health.advice if check.name in ("eviction", "persistence", "reachable")]
        assert wrong == []
        found = await audit(place, [catalogue], role=role)  # type: ignore[arg-type]
        kinds = {finding.kind for finding in found.findings}
        assert not kinds & {"evictable-queue", "unevictable-cache", "unpersisted-queue", "incomplete"}


def test_a_service_and_its_worker_do_their_work_on_it(
    whole: Production, postgres: Postgres, tmp_path: Path
) -> None:
    """Slides, by TLS on the cluster, with Celery behind Sentinel: a presentation is written to its end."""
    given = environment(SLIDES, whole.places.passwords["slides"], "", "the-token-of-a-scraper")
    variables = {name: whole.here(value) for name, value in given.items()}
    variables |= {"EPHEMERA_DATABASE_URL": postgres.database("deployed_slides"), **QUICK}
    with serving("slides", tmp_path, **variables) as served, working(tmp_path, variables):
        administrator(served)
        anna = Person(served)
        assert anna.finished(anna.begin("Whales", 2)["job_id"])["state"] == "done"
        shown = served.client.get("/metrics", headers={"authorization": "Bearer the-token-of-a-scraper"}).text
        assert shown.count("ephemera_connection_up{") == 4, "three masters and the queue's"
    assert refused(whole, "slides") <= {"client|setinfo"}


@pytest.mark.parametrize("name", ["identity", "feed"])
def test_other_services_of_the_cluster_are_refused_nothing(
    name: str, whole: Production, postgres: Postgres, tmp_path: Path
) -> None:
    """Identity, and feed with its worker, do all that they are for as the users that they are there."""
    service = next(each for each in SERVICES if each.name == name)
    given = environment(service, whole.places.passwords[name], "", "the-token-of-a-scraper")
    variables = {each: whole.here(value) for each, value in given.items()}
    variables |= {"EPHEMERA_DATABASE_URL": postgres.database(f"deployed_{name}")}
    if name == "identity":
        variables |= {**identity_users.QUICK, **identity_users.UNLIMITED}
    else:
        variables |= {**feed_users.QUICK, "EPHEMERA_FEED_GRPC_ADDRESS": f"127.0.0.1:{free_ports(1)[0]}"}
    with ExitStack() as stack:
        served = stack.enter_context(serving(name, tmp_path, **variables))
        if name == "feed":
            stack.enter_context(feed_users.working(tmp_path, variables))
        result = getattr(scenarios, name)(served)
        assert len(result.errors) >= 5
    # Identity's local cache asks for announcements, which no user has on a shared server.
    assert refused(whole, name) <= {"client|setinfo", "client|tracking"}
    cli(whole.places, "-p", str(whole.cache[0]), "FLUSHALL", user=name)
    assert "flushall" in refused(whole, name), "what is refused is seen"


def refused(whole: Production, user: str) -> set[str]:
    """What a user asked of the cluster or the queue and may not."""
    found: set[str] = set()
    for port in (*whole.cache, *whole.queue):
        logged = cli(whole.places, "-p", str(port), "ACL", "LOG").splitlines()
        # Each entry has its object before the user whom it was refused to.
        found |= {before for before, line, name in windows(logged) if (line, name) == ("username", user)}
    return found


def windows(lines: list[str]) -> Iterator[tuple[str, str, str]]:
    """Each line with the one before and the one after."""
    return zip(lines, lines[1:], lines[2:], strict=False)


def test_the_queue_fails_over(whole: Production) -> None:
    """Sentinels promote the replica at the administrator's request, and at no service's."""
    first, second = whole.queue

    def role(port: int) -> str:
        return cli(whole.places, "-p", str(port), "INFO", "replication")

    _until(lambda: "state=online" in role(first), lambda: role(first))
    for user in (None, "feed", "feed-console"):
        assert "NOPERM" in (said := cli(whole.places, *_fail_over(whole), user=user)) or "NOAUTH" in said
    _until(lambda: "OK" in cli(whole.places, *_fail_over(whole)), lambda: "no fail-over")
    _until(lambda: "role:master" in role(second), lambda: role(second))
    _until(lambda: "role:slave" in role(first), lambda: role(first))


def _fail_over(whole: Production) -> tuple[str, ...]:
    return ("-p", str(whole.sentinels[0]), "SENTINEL", "FAILOVER", "queue")


def _until(holds: Callable[[], bool], otherwise: Callable[[], str], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, otherwise()
        time.sleep(0.1)


AUDITS = [("cache", each) for each in SERVICES if each.cache == "cache"] + [
    ("queue", each) for each in SERVICES
]


@pytest.mark.parametrize(("role", "service"), AUDITS, ids=lambda each: getattr(each, "name", each))
def test_the_nightly_audit_passes(role: str, service: Service, whole: Production) -> None:
    """As production.md says: the watcher, the role, and each other service of the server as a neighbour."""
    user = f"{service.name}-watcher"
    place = (cache_url if role == "cache" else queue_url)(service, user, whole.places.passwords[user])
    others = [each for where, each in AUDITS if where == role and each is not service]
    words = ("--catalogue", service.name, "--role", role, "--fail-on", "problems")
    neighbours = [word for other in others for word in ("--neighbour", other.name)]
    done = ephemera("audit", *words, *neighbours, env={"EPHEMERA_URL": whole.here(place)})
    assert done.code == 0, done.out + done.err
