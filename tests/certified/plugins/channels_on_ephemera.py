"""A pytest plugin that puts our channel layer in place of that of channels_redis."""

from __future__ import annotations

import os
from typing import Any

import channels_redis.core

from ephemera.adapters.channels import RedisChannelLayer


class Layer(RedisChannelLayer):
    """Ours, on the server of the run where a test names none."""

    def __init__(self, hosts: Any = None, **options: Any) -> None:
        super().__init__(hosts or [os.environ["CERTIFIED_URL"]], **options)


channels_redis.core.RedisChannelLayer = Layer
