"""What feed tells Prometheus: by `GET /metrics` of the service, and of a worker where a port is set."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)
_SIZES = (10, 30, 100, 300, 1000, 3000, 10_000)


class Metrics:
    """The metrics of one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.ticks = Counter("feed_ticks", "Ticks of the planner", ["mode"], registry=registry)
        self.tick_seconds = Histogram(
            "feed_tick_seconds", "How long ticks took", buckets=_SECONDS, registry=registry
        )
        self.pauses = Counter(
            "feed_tick_pauses", "Ticks left out as the queue was too long", registry=registry
        )
        self.enqueued = Counter(
            "feed_enqueued", "Users handed to the workers, by trigger", ["reason"], registry=registry
        )
        self.queue = Gauge("feed_queue", "Users handed over and not done with", registry=registry)
        self.runs = Counter("feed_runs", "Runs of workers, by how they ended", ["ending"], registry=registry)
        self.run_seconds = Histogram(
            "feed_run_seconds", "How long rebuilding runs took", buckets=_SECONDS, registry=registry
        )
        self.dataset_size = Histogram(
            "feed_dataset_size", "Insights that a run clustered", buckets=_SIZES, registry=registry
        )
        self.bumps = Counter("feed_version_bumps", "Versions that were made", registry=registry)
        self.errors = Counter("feed_errors", "What failed, by where", ["where"], registry=registry)
        self.published = Counter("feed_insights", "Insights published", registry=registry)
        self.reads = Counter(
            "feed_reads",
            "Feeds read: kept, built, empty, or worded without the model",
            ["how"],
            registry=registry,
        )
        self.model_seconds = Histogram(
            "feed_model_seconds", "How long wording a feed took", buckets=_SECONDS, registry=registry
        )
