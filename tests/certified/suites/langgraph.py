"""LangGraph's conformance tests of checkpointers, and the tests of its own store."""

from tests.certified.suite import Suite

_ASYNC = ("-o", "asyncio_mode=auto")

SUITES = [
    Suite(
        name="langgraph-checkpointer",
        distribution="langgraph-checkpoint-conformance",
        version="0.0.2",
        tests=("langgraph/checkpoint/conformance/spec",),
        what="checkpointer of LangGraph",
        ours="certified_langgraph",
        plugins=("pytest_asyncio.plugin", "certified_langgraph_saver"),
        arguments=_ASYNC,
    ),
    Suite(
        name="langgraph-store",
        distribution="langgraph-checkpoint",
        version="4.3.1",
        tests=("tests/test_store.py",),
        what="store of LangGraph, with search by meaning, sync and async",
        ours="certified_langgraph_store",
        requirements=("pytest-mock==3.15.1",),
        plugins=("pytest_asyncio.plugin", "pytest_mock"),
        arguments=_ASYNC,
        differences={
            f"tests/test_store.py::{test}": "it calls a synchronous method on the thread of an event loop, "
            "which a store on a server refuses: it would block the loop"
            for test in (
                "test_async_batch_store_resilience",
                "test_async_batch_store_deduplication",
                "test_async_batched_vector_search_concurrent",
                "test_async_search_and_listing_keep_empty_prefixes_and_wildcards[True]",
                "test_cannot_put_empty_namespace",
            )
        },
    ),
    Suite(
        name="langgraph-store-sqlite",
        distribution="langgraph-checkpoint-sqlite",
        version="3.1.2",
        tests=("tests/test_store.py", "tests/test_async_store.py", "tests/test_ttl.py"),
        what="the same, with filters and TTLs, by the tests of the store on SQLite",
        ours="certified_langgraph_sqlite",
        plugins=("pytest_asyncio.plugin",),
        arguments=(*_ASYNC, "-W", "ignore::pytest.PytestUnknownMarkWarning"),
        differences={
            "tests/test_store.py::test_sql_injection_vulnerability": "there is no SQL: any text may be the "
            "name of a value, and so of a filter",
        },
        left_out={
            "tests/test_store.py::test_vector_store_initialization": "it looks for tables in the database",
            "tests/test_ttl.py::test_ttl_refresh": "it counts what a sweep removes; here the server does it",
            "tests/test_ttl.py::test_ttl_override_default": "it expects that reads do not renew a TTL unless "
            "asked; TTLConfig documents that they do",
        },
        short=("tests/test_store.py", "-k", "batch or list_namespaces or search or filter"),
    ),
]
