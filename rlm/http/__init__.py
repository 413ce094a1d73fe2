"""/healthz and /metrics over HTTP."""
