"""The feed service answers as its OpenAPI document says, and as its `aggregator.proto` says."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

import ephemera_services.feed
from ephemera_services.feed.grpc_server import message, methods
from tests.services.conformance import conform
from tests.services.feed_users import BEARER, Caller, feeding, texts
from tests.services.services import SCRAPER

FOLDER = Path(ephemera_services.feed.__file__).parent
SOURCES = FOLDER.parents[2]
WITHOUT_STREAM = ("--exclude-path", "/feed/users/{user_id}/events")
"""What leaves out a stream of events, which a client would wait for."""


@pytest.fixture(scope="module")
def caller(places: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    """A running service."""
    with feeding(tmp_path_factory.mktemp("logs"), places, **SCRAPER) as running:
        yield running


@pytest.mark.campaign
def test_it_conforms(caller: Caller) -> None:
    """No 5xx, no undeclared status, no violation of a schema, whatever is sent to it."""
    caller.publish("space", *texts("space", 3))
    caller.subscribe("ann", "space")  # the document's examples ask for her
    options = ("--header", f"Authorization: {BEARER}", *WITHOUT_STREAM)
    conform(caller.served.url, *options, examples=8)


def test_every_error_is_a_problem_document(caller: Caller) -> None:
    """Each status from 400 on, of each operation, is keys as application/problem+json."""
    document: Any = caller.http.get("/openapi.json").json()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            for status, answer in operation["responses"].items():
                if status >= "400":
                    assert list(answer["content"]) == ["application/problem+json"], (path, method, status)


def test_the_compiled_descriptor_is_that_of_the_proto(tmp_path: Path) -> None:
    """`aggregator.binpb` is what the compiler makes of `aggregator.proto`."""
    made = tmp_path / "made.binpb"
    proto = FOLDER / "aggregator.proto"
    compiler = (sys.executable, "-m", "grpc_tools.protoc")
    subprocess.run([*compiler, f"-I{FOLDER}", f"--descriptor_set_out={made}", str(proto)], check=True)
    kept = FileDescriptorSet.FromString((FOLDER / "aggregator.binpb").read_bytes())
    assert FileDescriptorSet.FromString(made.read_bytes()) == kept


def test_the_service_has_the_designs_methods() -> None:
    """Aggregator has the six methods of the design, those of insights and read marks, and no others."""
    assert set(methods()) == {
        "PublishInsight",
        "Subscribe",
        "Unsubscribe",
        "Touch",
        "GetFeed",
        "GetStatus",
        "PublishInsights",
        "GetInsight",
        "GetItemInsights",
        "MarkRead",
    }


def test_field_numbers_are_those_of_the_first_release() -> None:
    """A client that was compiled from the first release's file reads and writes the same fields."""
    first = {
        "PublishInsightRequest": ["channel_id", "text"],
        "PublishInsightResponse": ["insight_id", "channel_id", "seq", "ts"],
        "SubscribeRequest": ["user_id", "channel_id", "plan"],
        "GetFeedRequest": ["user_id"],
        "Feed": ["user_id", "cluster_version", "built_at", "summarized_by", "items", "unclustered"],
        "Item": ["title", "summary", "size", "channel_ids", "insight_ids", "newest"],
    }
    for name, fields in first.items():
        numbers = {each.name: each.number for each in message(name).DESCRIPTOR.fields}
        assert [numbers[field] for field in fields] == list(range(1, len(fields) + 1)), name
