"""The messages of `aggregator.proto` as Python classes, made of its compiled descriptor.

`aggregator.binpb` is what the compiler makes of the file; no generated code is kept, which would be tied to
one version of protobuf. After a change of the file:

    python -m grpc_tools.protoc -I src \
        --descriptor_set_out=services/src/ephemera_services/feed/aggregator.binpb \
        services/src/ephemera_services/feed/aggregator.proto
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

# Also makes known to the pool what our file imports.
from google.protobuf import timestamp_pb2  # type: ignore[import-untyped] # noqa: F401
from google.protobuf.descriptor_pb2 import FileDescriptorSet  # type: ignore[import-untyped]
from google.protobuf.descriptor_pool import Default  # type: ignore[import-untyped]
from google.protobuf.message_factory import GetMessageClass  # type: ignore[import-untyped]

PACKAGE = "ephemera.feed.v1"
SERVICE = f"{PACKAGE}.Aggregator"

_compiled = files(__package__).joinpath("aggregator.binpb").read_bytes()
for _file in FileDescriptorSet.FromString(_compiled).file:
    Default().AddSerializedFile(_file.SerializeToString())


def message(name: str) -> Any:
    """The class of a message, as in `message("GetFeedRequest")`."""
    return GetMessageClass(Default().FindMessageTypeByName(f"{PACKAGE}.{name}"))


def methods() -> dict[str, tuple[Any, Any]]:
    """The methods of the service: the classes of what each takes and gives."""
    described = Default().FindServiceByName(SERVICE).methods
    return {each.name: (message(each.input_type.name), message(each.output_type.name)) for each in described}
