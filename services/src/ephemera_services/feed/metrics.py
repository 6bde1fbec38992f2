"""Feed's Prometheus metrics: at the service's `/metrics`, and at a worker's port if one is configured."""

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
            "feed_tick_seconds", "Duration of ticks", buckets=_SECONDS, registry=registry
        )
        self.pauses = Counter(
            "feed_tick_pauses", "Ticks skipped because the queue was too long", registry=registry
        )
        self.enqueued = Counter("feed_enqueued", "Users enqueued, by trigger", ["reason"], registry=registry)
        self.queue = Gauge("feed_queue", "Users enqueued and not finished", registry=registry)
        self.runs = Counter("feed_runs", "Runs of workers, by outcome", ["outcome"], registry=registry)
        self.run_seconds = Histogram(
            "feed_run_seconds", "Duration of runs that rebuilt clusters", buckets=_SECONDS, registry=registry
        )
        self.dataset_size = Histogram(
            "feed_dataset_size", "Insights clustered in a run", buckets=_SIZES, registry=registry
        )
        self.bumps = Counter("feed_version_bumps", "Cluster versions created", registry=registry)
        self.errors = Counter("feed_errors", "Errors, by component", ["where"], registry=registry)
        self.published = Counter("feed_insights", "Insights published", registry=registry)
        self.reads = Counter(
            "feed_reads",
            "Feeds read: cached, built, empty, or summarized without the model",
            ["how"],
            registry=registry,
        )
        self.model_seconds = Histogram(
            "feed_model_seconds", "Duration of summarizing a feed", buckets=_SECONDS, registry=registry
        )
