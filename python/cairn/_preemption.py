# SPDX-License-Identifier: Apache-2.0
"""Notices that the process will be ended: a flag that the training loop looks at between two steps."""
from __future__ import annotations

import ctypes
import signal
from collections.abc import Sequence
from typing import Any

from . import _lib


class Preemption:
    """`requested` once one of the signals came; `remaining` seconds are left of the grace since then."""

    def __init__(self, signals: Sequence[int | str], grace: float) -> None:
        self.signals = [getattr(signal, name) if isinstance(name, str) else name for name in signals]
        self.grace = grace

    def __enter__(self) -> Preemption:
        numbers = (ctypes.c_int * max(1, len(self.signals)))(*map(int, self.signals))
        options = _lib.LastChanceOptions(signals=ctypes.cast(numbers, ctypes.POINTER(ctypes.c_int)),
                                         signal_count=len(self.signals), grace_ms=int(self.grace * 1000))
        _lib.call("cairn_last_chance_watch", ctypes.byref(options))
        return self

    def __exit__(self, *_: Any) -> None:
        _lib.LIB.cairn_last_chance_unwatch()

    def _look(self) -> tuple[int, float]:
        left = ctypes.c_uint32(int(self.grace * 1000))
        return _lib.LIB.cairn_last_chance(ctypes.byref(left)), left.value / 1000

    @property
    def requested(self) -> bool:
        return self._look()[0] != 0

    @property
    def signal(self) -> int | None:
        return self._look()[0] or None

    @property
    def remaining(self) -> float:
        return self._look()[1]


def preemption(run: Any = None, *, signals: Sequence[int | str] = ("SIGTERM", "SIGUSR1"),
               grace: float = 30.0) -> Preemption:
    """`with cairn.preemption(run) as notice:` sets a flag when one of the signals comes, ends nothing, and calls the
    handlers that were there; they are back after the block."""
    del run
    return Preemption(signals, grace)
