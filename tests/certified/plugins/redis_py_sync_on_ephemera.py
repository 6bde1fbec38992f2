"""Has redis-py's tests of its synchronous client take our way to the server."""

from ephemera.adapters.redis_py.sync import install

install()
