from __future__ import annotations

import gc

import numpy as np
import pytest
from numba.core import event

from sawlog.kernels.jit import PLAIN, inlined, kernel


@pytest.mark.skipif(PLAIN, reason="nothing is compiled")
@pytest.mark.parametrize("collects", [True, False])
def test_the_collector_rests_while_kernels_are_compiled(*, collects: bool) -> None:
    seen = []

    class Listener(event.Listener):
        def on_start(self, event: object) -> None:
            seen.append(gc.isenabled())

        def on_end(self, event: object) -> None:
            pass

    @inlined
    def half(value: object) -> object:
        return value >> 1  # type: ignore[operator]

    @kernel
    def quarter(value: object) -> object:
        return half(half(value))

    was = gc.isenabled()
    try:
        (gc.enable if collects else gc.disable)()
        with event.install_listener("numba:compile", Listener()):
            assert quarter(np.uint64(20)) == 5
        assert seen
        assert not any(seen)
        assert gc.isenabled() == collects
        with pytest.raises(Exception, match=r"unsupported|Unknown|Invalid|No implementation"):
            quarter("text")
        assert gc.isenabled() == collects
    finally:
        (gc.enable if was else gc.disable)()
