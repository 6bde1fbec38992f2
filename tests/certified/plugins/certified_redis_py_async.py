"""A pytest plugin that makes everything that uses redis.asyncio share connections."""

from __future__ import annotations

from ephemera.adapters.redis_py import install

install()
