"""Settings that all tests share."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# Kernels compile inside the first example, so no deadline; machines differ, so the same examples on every run.
settings.register_profile(
    "sawlog", deadline=None, derandomize=True, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("sawlog")
