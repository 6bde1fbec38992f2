"""LangChain's standard tests of caches and key-value stores."""

from tests.certified.suite import Suite

SUITE = Suite(
    name="langchain",
    distribution="langchain-tests",
    version="1.1.9",
    tests=("contracts/langchain_contract.py",),
    what="cache of answers, exact and semantic, and byte store of LangChain, sync and async",
    ours="",
    stock=False,
    plugins=("pytest_asyncio.plugin",),
    arguments=("-o", "asyncio_mode=auto", "-W", "ignore::pytest.PytestUnknownMarkWarning"),
)
