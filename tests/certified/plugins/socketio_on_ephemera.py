"""A pytest plugin that has python-socketio's tests of its pub/sub manager test ours."""

import socketio.async_pubsub_manager

from ephemera.adapters.socketio import AsyncRedisManager

socketio.async_pubsub_manager.AsyncPubSubManager = AsyncRedisManager
