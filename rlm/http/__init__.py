"""/healthz, /readyz and /metrics over HTTP."""
