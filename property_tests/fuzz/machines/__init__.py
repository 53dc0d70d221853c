"""Rule-based state machines: hypothesis chooses op by op; one for the cache layer, the engine and whole scenarios."""
