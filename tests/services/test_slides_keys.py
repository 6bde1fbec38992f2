"""What slides keeps in Redis is what its design says, documented, and what an audit finds."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ephemera.embedded import Valkey
from ephemera.keyspace import Role
from ephemera.operations.audit import audit
from ephemera.operations.documentation import as_markdown
from ephemera_services.slides import catalogue
from ephemera_services.slides.keys import OUTLINES, PROGRESS
from tests.cli.commands import ephemera
from tests.services.services import Served
from tests.services.slides_users import FREE, VIEWER, Person, administrator, set_plan

PAGE = Path(__file__).parents[2] / "docs" / "services" / "slides.md"
WRONG = ("unknown", "no-ttl", "wrong-type", "ttl-above-policy", "undecodable", "big-key", "misplaced")


@pytest.mark.parametrize(
    ("pattern", "kind", "seconds", "role"),
    [
        ("session:{session_id}", "hash", 86_400, "queue"),
        ("user_sessions:{user_id}", "sorted_set", 86_400, "queue"),
        ("gen_checkpoint:{job_id}", "mapping", 3600, "queue"),
        ("gen_progress:{job_id}", "stream", 7200, "queue"),
        ("semantic_cache:{hash}", "value", 86_400, "cache"),
        ("ratelimit:{api_key_id}:{minute}", "counter", 120, "queue"),
        ("ratelimit:user:{user_id}:{minute}", "counter", 120, "queue"),
        ("plan_limits:{organization_id}", "hash", 300, "cache"),
        ("usage:{organization_id}:{period}:{shard}", "mapping", 90 * 86_400, "queue"),
        ("celery_queue:{queue}", "list", None, "queue"),
        ("ws_connections:{user_id}", "sorted_set", 300, "cache"),
        ("pubsub:gen_progress", "channel", None, "queue"),
        ("presentation_view_count:pending:{shard}", "mapping", None, "queue"),
    ],
)
def test_the_designs_keys_are_declared_as_designed(
    pattern: str, kind: str, seconds: int | None, role: str
) -> None:
    """Each key of the design's table has its pattern, kind, longest life and role."""
    (space,) = [each for each in catalogue if each.pattern == pattern]
    assert (space.kind, space.role) == (kind, role)
    assert space.lifetime.milliseconds == (None if seconds is None else seconds * 1000)


def test_streams_and_similarities_are_bounded_as_designed() -> None:
    """A progress stream has at most 200 entries, and an outline is used for topics that are 0.95 alike."""
    assert PROGRESS.max_entries == 200
    assert OUTLINES.match_policy.threshold == 0.95


@pytest.mark.parametrize(
    ("role", "lines"),
    [
        ("queue", ("maxmemory-policy noeviction", "appendonly yes", "appendfsync everysec")),
        ("cache", ("maxmemory-policy allkeys-lru", 'save ""')),
    ],
)
def test_servers_are_configured_by_role(role: str, lines: tuple[str, ...]) -> None:
    """The queue's never evicts and writes a log, the cache's evicts and saves nothing; both have keys."""
    configuration = ephemera("server-config", "--role", role).out.splitlines()
    assert set(lines) <= set(configuration)
    assert any(space.role == role for space in catalogue)


def test_the_page_is_made_from_the_catalogue() -> None:
    """docs/services/slides.md is what `ephemera catalogue slides --format markdown` prints."""
    assert PAGE.read_text(encoding="utf-8") == as_markdown(catalogue)
    assert ephemera("catalogue", "slides", "--format", "markdown").out == as_markdown(catalogue)


@pytest.mark.usefixtures("slides_worker")
def test_an_audit_of_servers_it_has_worked_on_finds_nothing_wrong(
    slides: Served, slides_cache: Valkey, slides_queue: Valkey
) -> None:
    """After all kinds of work: nothing unknown, endless, of a wrong type, too long-lived or misplaced."""
    _work(slides)
    seen = set()
    servers: tuple[tuple[Valkey, Role], ...] = ((slides_cache, "cache"), (slides_queue, "queue"))
    for server, role in servers:
        report = asyncio.run(audit(server.url, [catalogue], role=role))
        assert [finding for finding in report.findings if finding.kind in WRONG] == []
        assert report.unknown.keys == 0
        seen |= {space.pattern for space in report.keyspaces if space.keys}
        shown = ephemera(
            *("audit", "--url", server.url, "--catalogue", "slides", "--role", role),
            *("--fail-on", ",".join(WRONG)),
        )
        assert shown.code == 0, shown.out
    assert {
        "session:{session_id}",
        "user_sessions:{user_id}",
        "plan_limits:{organization_id}",
        "ratelimit:{api_key_id}:{minute}",
        "ratelimit:user:{user_id}:{minute}",
        "ratelimit:login:{address}:{minute}",
        "ratelimit:shared:{address}:{minute}",
        "semantic_cache:{hash}",
        "gen_progress:{job_id}",
        "gen_checkpoint:{job_id}",
        "usage:{organization_id}:{period}:{shard}",
        "presentation_view_count:pending:{shard}",
    } <= seen


def _work(slides: Served) -> None:
    """Leave something in every space: sign in, upload, write, export, share, look, change a plan."""
    root, anna = administrator(slides), Person(slides)
    Person(slides, FREE), Person(slides, VIEWER)
    key = anna.want(201, "POST", "/api-keys", json={"name": "k"})["key"]
    assert slides.client.get("/usage", headers={"x-api-key": key}).status_code == 200
    begun = anna.begin("Something in every space", 2, document_ids=[anna.document()])
    assert anna.finished(begun["job_id"])["state"] == "done"
    assert anna.exported(begun["presentation_id"], "pdf")
    share = anna.want(201, "POST", f"/presentations/{begun['presentation_id']}/shares")
    assert slides.client.get(share["url"]).status_code == 200
    set_plan(root, "team")
    assert anna.ask("GET", "/usage").status_code == 200
