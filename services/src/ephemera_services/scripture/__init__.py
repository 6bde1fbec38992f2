"""scripture: a content gateway with suffix caches, AI answers, tiered limits, events and a locked ingest."""
