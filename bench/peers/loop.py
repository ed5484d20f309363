# SPDX-License-Identifier: Apache-2.0
"""The peers' half of the conversation with bench/run: "go" in, one JSON line out."""
import json
import resource
import sys
import time


def cpu():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def serve(once, after=lambda: True):
    """once() -> bytes moved; after() checks them outside the clock."""
    print(json.dumps({"ready": True}), flush=True)
    for _ in sys.stdin:
        used, start = cpu(), time.monotonic()
        moved = once()
        seconds, used = time.monotonic() - start, cpu() - used
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({"ok": bool(moved) and after(), "seconds": seconds, "cpu": used,
                          "bytes": moved, "crc32c": None, "memory": memory}), flush=True)
