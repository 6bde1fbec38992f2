"""channels_redis's tests of its channel layer, on ours."""

from tests.certified.suite import Suite

SUITE = Suite(
    name="channels",
    distribution="channels_redis",
    version="4.3.0",
    tests=("tests/test_core.py",),
    what="channel layer of Django Channels",
    ours="channels_on_ephemera",
    plugins=("pytest_asyncio.plugin",),
    requirements=("async-timeout==5.0.1", "channels==4.3.2", "redis==8.1.0"),
    arguments=("-o", "asyncio_mode=auto"),
    replacements={"localhost:6379": "127.0.0.1:{port}"},
    short=("-k", "not expiry"),
)
