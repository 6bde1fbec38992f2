"""The web adapters: pure ASGI, so that they fit any framework; what needs FastAPI says so in its name."""
