"""What tests of defects share with the tests of services."""

from tests.services.slides_processes import (  # noqa: F401 - fixtures
    slides_cache,
    slides_model,
    slides_places,
    slides_queue,
)
