# SPDX-License-Identifier: Apache-2.0
"""Callers beside a test: one call after the other until they are told to stop."""
import threading

from world import HANG_S


class Load(threading.Thread):
    """Calls call(0), call(1), ... until it is told to stop; what was raised is kept."""

    def __init__(self, call):
        super().__init__(daemon=True)
        self.call, self.ended, self.failed, self.done = call, threading.Event(), [], 0

    def run(self):
        while not self.ended.is_set():
            try:
                self.call(self.done)
            except Exception as error:  # pylint: disable=broad-except
                self.failed.append(f"{self.done}: {error}")
            self.done += 1

    def stop(self):
        self.ended.set()
        self.join(HANG_S)
        return self.failed


def commands(world, make):
    """A call of Load: the commands that make(number) lists, each of which must end well."""
    def call(number):
        for arguments in make(number):
            world.cairn(*arguments)
    return call
