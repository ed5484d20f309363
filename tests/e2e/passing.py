# SPDX-License-Identifier: Apache-2.0
"""Time that passes for daemons when a test says so: what is started with env() has the machine's clocks, on
which as much more has passed (tests/support/libclock.c; tests/support/passing.h is the same for C)."""
import os
import struct
import tempfile

from build_folder import preload


class Passing:
    def __init__(self):
        self.passed_ms, self.file = 0, tempfile.NamedTemporaryFile(prefix="cairn-passing-", buffering=0)
        self.file.write(bytes(16))

    def env(self):
        return {**preload("clock"), "LIBCLOCK_AHEAD": self.file.name,
                "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}

    def passes(self, seconds):
        self.passed_ms += int(1000 * seconds)
        os.pwrite(self.file.fileno(), struct.pack("=q", self.passed_ms), 8)
