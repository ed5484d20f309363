# SPDX-License-Identifier: Apache-2.0
"""Ports that are a test's own until its process ends, also while nothing listens at them: below those that the kernel
gives to outgoing connections, each held by an abstract socket, which lives in the network namespace that the port is in."""
import random
import socket

FIRST, LAST = 20000, 32000
_held = []


def _taken(port):
    """The socket that holds the port; None: another test has it, or something listens there."""
    holder = socket.socket(socket.AF_UNIX)
    try:
        holder.bind(f"\0cairn-test-port-{port}")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
    except OSError:
        holder.close()
        return None
    return holder


def free(count=1):
    """The first of so many ports in a row."""
    while True:
        first, holders = random.randrange(FIRST, LAST - count), []
        while len(holders) < count and (holder := _taken(first + len(holders))):
            holders.append(holder)
        if len(holders) == count:
            _held.extend(holders)
            return first
        for holder in holders:
            holder.close()
