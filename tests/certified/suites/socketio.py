"""python-socketio's tests of its pub/sub manager, on ours."""

from tests.certified.servers import no_server
from tests.certified.suite import Suite

SUITE = Suite(
    name="socketio",
    distribution="python-socketio",
    version="5.18.1",
    tests=("tests/async/test_pubsub_manager.py",),
    what="client manager of python-socketio; its tests replace what publishes, ours use real servers",
    ours="socketio_on_ephemera",
    plugins=("pytest_asyncio.plugin",),
    servers=no_server,
    arguments=("-o", "asyncio_mode=auto"),
)
