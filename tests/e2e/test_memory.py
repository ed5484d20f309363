# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
"""K07: one allocation fails, at a place that the seed draws (tests/support/libfail.c).
The command and the uploader end what they were doing with an error that says so, or go on; nothing
leaks or is committed in part, and the uploader goes on."""
import os
import pathlib
import random
import re
import unittest

import cases
from build_folder import preload
from world import HANG_S, World

PLACES = int(os.environ.get("CAIRN_TEST_PLACES", "20"))
SEED = int(os.environ.get("CAIRN_TEST_SEED", "1"))
MIB = 1 << 20
FOREIGN = pathlib.Path(__file__).with_name("foreign_leaks.txt")
HIT = "libfail: an allocation fails"
# 7 stands for damage, which is not what happened. 2: jansson loses a character in silence when it has
# no memory for it, and what it read is refused as malformed.
CLEAN = (0, 1, 2, 3, 5, 6, 8, 9)


def failing(place, count=None):
    """The environment of a process whose allocation of that number fails; 0: none."""
    env = {**preload("fail"), "LIBFAIL_AT": str(place),
           "ASAN_OPTIONS": os.environ["ASAN_OPTIONS"] + ":verify_asan_link_order=0",
           # What these libraries leave behind themselves when they run out of memory.
           "LSAN_OPTIONS": f"{os.environ['LSAN_OPTIONS']}:print_suppressions=0:suppressions='{FOREIGN}'"}
    return {**env, "LIBFAIL_COUNT": str(count)} if count else env


class Memory(unittest.TestCase):
    def setUp(self):
        self.world = World()
        self.hits = 0
        self.addCleanup(self.world.close)
        self.chance = random.Random(f"{SEED} {self.id()}")
        self.source = cases.made(self.world.root / "source")
        (self.source / "a.bin").write_bytes(os.urandom(MIB + 5))
        (self.source / "b").write_bytes(b"small")
        self.world.cairn("put", self.source, "k/run@1")

    def places(self, *arguments):
        """Numbers of allocations of that command, drawn; it succeeds when none fails."""
        count = self.world.root / "count"
        self.world.cairn(*arguments, env=failing(0, count))
        total = int(count.read_text())
        return sorted(self.chance.sample(range(1, total + 1), min(PLACES, total)))

    def command(self, place, *arguments):
        done = self.world.cairn(*arguments, status=None, env=failing(place))
        self.assertIn(done.returncode, CLEAN, f"seed {SEED}, allocation {place} of cairn {arguments}: {done.stderr}")
        self.hits += HIT in done.stderr
        self.assertTrue(done.returncode == 0 or re.search(r"^cairn", done.stderr, re.M),
                        f"seed {SEED}, allocation {place} of cairn {arguments}: status "
                        f"{done.returncode}: {done.stderr}")
        return done

    def test_k07_reading_commands_end_cleanly_when_an_allocation_fails(self):
        for arguments in (("ls", "k/run"), ("show", "k/run@1"), ("verify", "k/run@1", "--store", self.world.store)):
            for place in self.places(*arguments):
                with self.subTest(seed=SEED, place=place, arguments=arguments):
                    self.command(place, *arguments)
        self.assertGreater(self.hits, PLACES)

    def test_k07_a_get_whose_allocation_fails_leaves_whole_files_or_says_why(self):
        for place in self.places("get", "k/run@1", "-d", self.world.root / "out-0"):
            with self.subTest(seed=SEED, place=place):
                into = self.world.root / f"out-{place}"
                done = self.command(place, "get", "k/run@1", "-d", into)
                if done.returncode == 0:
                    for name in ("a.bin", "b"):
                        self.assertEqual((into / name).read_bytes(), (self.source / name).read_bytes())
        self.assertGreater(self.hits, PLACES // 2)

    def test_k07_a_put_whose_allocation_fails_is_committed_whole_or_not_at_all(self):
        for place in self.places("put", self.source, "k/count@1"):
            with self.subTest(seed=SEED, place=place):
                run = f"k/put-{place}"
                done = self.command(place, "put", self.source, f"{run}@1")
                version = self.world.version(run, "1")
                if done.returncode == 0:
                    self.assertEqual(version["state"], "committed")
                if version and version["state"] == "committed":
                    self.world.cairn("verify", f"{run}@1", "--store", self.world.store)
        self.assertGreater(self.hits, PLACES // 2)

    def started(self, uploader):
        """False: the allocation was one of its start, which ended with an error."""
        try:
            uploader.start()
        except AssertionError:
            self.assertNotIn("broken promise", uploader.tail())
            self.assertRegex(uploader.tail(), r"cairn-uploader: .*(memory|gives no|no thread)")
            return False
        return True

    def test_k07_an_uploader_whose_allocation_fails_goes_on_with_the_next_save(self):
        count, uploader = self.world.root / "count", self.world.uploaders[0]
        uploader.stop()
        uploader.env = failing(0, count)
        uploader.start()
        self.world.cairn("put", self.source, "k/up@1")
        self.assertEqual(uploader.stop(), 0)
        total = int(count.read_text())
        for number, place in enumerate(self.chance.sample(range(total // 4, total), PLACES // 2)):
            with self.subTest(seed=SEED, place=place):
                uploader.env = failing(place)
                if not self.started(uploader):
                    continue
                said = self.world.cairn("put", self.source, f"k/up-{number}@1", status=None, timeout=HANG_S)
                self.assertGreaterEqual(said.returncode, 0)
                # A message that cannot be built ends its connection, not the process.
                self.assertIsNone(uploader.process.poll(), uploader.tail())
                self.assertEqual(uploader.stop(), 0, uploader.tail())
                uploader.env = {}
                uploader.start()
                self.world.cairn("put", self.source, f"k/after-{number}@1", timeout=HANG_S)
                self.assertEqual(self.world.version(f"k/after-{number}", "1")["state"], "committed")
                self.assertEqual(uploader.stop(), 0, uploader.tail())
                self.hits += HIT in uploader.log.read_text()
                if said.returncode == 0:
                    self.world.cairn("verify", f"k/up-{number}@1", "--store", self.world.store)
        self.assertGreater(self.hits, 0)


if __name__ == "__main__":
    print(f"CAIRN_TEST_SEED={SEED}", flush=True)
    unittest.main(verbosity=2)
