# SPDX-License-Identifier: Apache-2.0
"""B05, M01, B04: whatever callers do, the server's memory and descriptors stay under their caps, and
others are answered. How much slower they are is a figure of bench/run (`hostile`), measured on a
machine that does nothing else."""
import os
import pathlib
import socket
import time
import unittest

from hostile import IDLE, OBJECTS_REQUEST, STREAMS, Objects, Ordinary, Under, p99
from world import World, wait_until

CONNECTIONS_MAX = 4096  # descriptors of a caller and a few of the server's own, as the setting says
OWN_FILES_MAX = 200
CUT_S = 4
# What ASan keeps of freed memory is no memory that the server holds.
ASAN = os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=8:malloc_context_size=2"
ANSWERED_S = 60  # on a machine that others load, with a sanitizer
ATTACK_S = 4
BUSY_ANSWER_S = 0.25
GIVEN_BACK_S = 60  # a stream's reader is missed at the second comment, 15 s after the first
MIB = 1 << 20


class Hostile(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.world = World(env={"ASAN_OPTIONS": ASAN}, server_arguments=(
            "--http-connections-max", str(CONNECTIONS_MAX), "--request-timeout", f"{CUT_S}s",
            "--event-streams-max", str(STREAMS), "--event-streams-per-caller", str(STREAMS), "--bodies-max", "256MiB", "--log-level", "warn"), case=cls)
        cls.world.cairn("put", __file__, "h/run@1")
        cls.ordinary = Ordinary(cls.world.port, "h/run")

    def held(self):
        """Resident MiB, and open files."""
        process = pathlib.Path(f"/proc/{self.world.server.process.pid}")
        status = (process / "status").read_text()
        rss = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))
        return int(rss) // 1024, len(os.listdir(process / "fd"))

    def is_answered(self, seconds):
        """Every call of others, in time; the 99th percentile."""
        took = self.ordinary.go(seconds)
        self.are_answered(took)
        return p99(took)

    def are_answered(self, took):
        self.assertEqual({status for _, status in took}, {200})
        self.assertLess(max(seconds for seconds, _ in took), ANSWERED_S)

    def attack(self, name, more_mib, seconds=ATTACK_S):
        """Its answers. It may hold so much, while it lasts."""
        without_s, before_mib = self.is_answered(2), self.held()[0]
        with Under(name, self.world.port, self.ordinary) as under:
            self.are_answered(under.took)
            until, most_mib, most_files, slowest_s = time.monotonic() + seconds, 0, 0, 0.0
            while time.monotonic() < until:
                slowest_s = max(slowest_s, self.is_answered(1))
                mib, files = self.held()
                most_mib, most_files = max(most_mib, mib), max(most_files, files)
        print(f"{name}: p99 {1000 * without_s:.1f} ms without, {1000 * slowest_s:.1f} ms with; "
              f"{most_mib - before_mib} MiB more, {most_files} files; {under.told}")
        self.assertLess(most_files, CONNECTIONS_MAX + OWN_FILES_MAX)
        self.assertLess(most_mib - before_mib, more_mib)
        wait_until(lambda: self.held()[1] < OWN_FILES_MAX, GIVEN_BACK_S)
        return under.told

    def asked_alone(self):
        """The status of one such body."""
        with socket.create_connection(("127.0.0.1", self.world.port), 60) as caller:
            caller.sendall(OBJECTS_REQUEST)
            return caller.recv(64).split()[1].decode()

    def test_b05_10_000_idle_connections_take_the_places_of_nobody(self):
        self.attack("idle", 256)
        self.assertGreater(IDLE, CONNECTIONS_MAX)

    def test_b05_requests_of_a_byte_a_second_are_cut_and_hinder_nobody(self):
        told = self.attack("slow", 128, CUT_S + 3)
        self.assertGreaterEqual(told["cut"], 1000)

    def test_m01_a_mebibyte_of_empty_objects_is_400_in_bounded_memory(self):
        begun_s = time.monotonic()
        told = self.attack("objects", 600)  # unbounded it would be 1.3 GiB, under ASan more
        self.assertLessEqual(set(told), {"400", "503"})
        wait_until(lambda: self.asked_alone() == "400", GIVEN_BACK_S)  # under attack all may have been busy
        # What is refused is refused slowly: each caller has four answers a second at most.
        rounds = (time.monotonic() - begun_s) / BUSY_ANSWER_S
        self.assertLess(told["503"], Objects.CONNECTIONS * (rounds + 1))

    def test_b04_10_000_parameters_are_refused_in_bounded_memory(self):
        told = self.attack("parameters", 64)
        self.assertLessEqual(set(told), {"400", "414", "431"})
        self.assertTrue(told)

    def test_b05_1_000_streams_of_which_half_are_never_read_hinder_nobody(self):
        told = self.attack("streams", 128)
        self.assertEqual(told["streams"], STREAMS // 2)
        self.assertGreater(told["events"], 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
