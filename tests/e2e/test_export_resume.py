# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
"""An export that is killed or interrupted at any point goes on with the same command: the files are
those of an export in one go, what was written is not written again, and it believes no byte."""
import fcntl
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from test_export import ZERO, export
from test_stored_tensors import Case
from test_to_dcp import model
from world import BIN, HANG_S, wait_until

MIB = 1 << 20
LOG = ".cairn-export"
HEAD, NOTED = 88, 8  # bytes of the log's head, and of each window of 8 MiB


def digest(data):
    return len(data), hashlib.sha256(data).hexdigest()


def content(folder):
    return {path.name: digest(path.read_bytes()) for path in sorted(folder.iterdir())}


def named(folder):
    """Files that have their names."""
    return sorted(path.name for path in folder.iterdir()
                  if path.name != LOG and path.suffix != ".part") if folder.exists() else []


def noted(folder):
    """How many windows the log says are written."""
    try:
        data = (folder / LOG).read_bytes()[HEAD:]
    except FileNotFoundError:
        return 0
    return sum(any(data[i:i + NOTED]) for i in range(0, len(data), NOTED))


def slowly(words, **environment):
    """Begun with 30 ms more for each write, so that it is still under way when its log says that it is."""
    return subprocess.Popen(["env", "--default-signal=INT",  # which a shell ignores for what it starts behind it
                             "strace", "-f", "-o", "/dev/null", "-e", "trace=pwrite64", "-e", "inject=pwrite64:delay_enter=30000", *words],
                            text=True, stderr=subprocess.PIPE, stdout=subprocess.PIPE,
                            env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0", **environment})


def child_of(process):
    return int(pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())


class Resume(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.kept = pathlib.Path(tempfile.mkdtemp(prefix="cairn-resume-source-"))
        cls.addClassCleanup(shutil.rmtree, cls.kept, ignore_errors=True)
        cls.source = cls.kept / "source.safetensors"
        model(cls.source, 24, 500_000)  # 46 MiB

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="cairn-resume-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.out = self.folder / "out"

    def words(self, *flags, source=None, out=None):
        return [str(BIN / "cairn"), "export", str(source or self.source), str(out or self.out),
                *map(str, flags)]

    def traced(self, options, *flags, **where):
        calls = self.folder / "calls"
        ran = subprocess.run(["strace", "-f", "-y", "-o", calls, *options,
                              *self.words("-j", 1, *flags, **where)], capture_output=True,
                             text=True, timeout=300,
                             env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"})
        return ran, calls.read_text()

    def kill_at(self, call, number, *flags, **where):
        """Killed as it enters the number-th such call of one of its threads."""
        return self.traced(["-e", f"trace={call}", "-e",
                            f"inject={call}:signal=KILL:when={number}"], *flags, **where)[0]

    def finish(self, *flags, **where):
        """Goes on to the end; how many windows it wrote."""
        ran, calls = self.traced(["-e", "trace=pwrite64"], *flags, **where)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        places = re.findall(r"pwrite64\(\d+<[^>]*\.(?:distcp|safetensors)\.part>.*, (\d+)\) = ",
                            calls)
        return ran, len([place for place in places if int(place) % (8 * MIB) == 0])

    def whole(self, *flags, source=None):
        out = self.folder / f"whole-{len(list(self.folder.iterdir()))}"
        export(source or self.source, out, *flags)
        return content(out)

    def test_killed_at_any_call_it_goes_on_and_gives_the_bytes_of_one_run(self):
        for form, index, flags in (("dcp", ".metadata", ("--max-shard-size", "16MB")),
                                   ("safetensors", "model.safetensors.index.json",
                                    ("--max-shard-size", "16MB", "--dtype", "bf16")),
                                   ("torch", "pytorch_model.bin.index.json", ())):
            flags = ("--to", form, *flags)
            wanted = self.whole(*flags)
            ended = set()
            for call, numbers in (("pwrite64", (1, 2, 4, 7)), ("fdatasync", (1, 2)),
                                  ("linkat", (1, 2, 3, 4)), ("unlinkat", (1, 2, 3, 5))):
                for number in numbers:
                    shutil.rmtree(self.out, ignore_errors=True)
                    ran = self.kill_at(call, number, *flags)
                    if ran.returncode == 0:
                        continue  # it makes fewer of them
                    self.assertEqual(ran.returncode, -signal.SIGKILL, ran.stderr)
                    ended.add(call)
                    if index in named(self.out):  # then it is whole
                        self.assertEqual({**wanted, **content(self.out)}, content(self.out))
                    for name in named(self.out):
                        self.assertEqual(digest((self.out / name).read_bytes()), wanted[name], call)
                    export(self.source, self.out, *flags)
                    self.assertEqual(content(self.out), wanted, (form, call, number))
            self.assertLessEqual({"pwrite64", "fdatasync", "linkat", "unlinkat"}, ended)

    def test_elements_that_overflowed_before_it_was_killed_are_counted_too(self):
        flags = ("--dtype", "fp16", "--json")
        wanted = json.loads(export(self.source, self.folder / "whole", *flags).stdout)
        self.assertEqual(len(wanted["overflowed"]), 24)  # of random bytes
        self.assertEqual(self.kill_at("pwrite64", 4, *flags).returncode, -signal.SIGKILL)
        self.assertGreater(noted(self.out), 0)
        told = json.loads(export(self.source, self.out, *flags).stdout)
        self.assertEqual(told["overflowed"], wanted["overflowed"])

    def killed(self, after, *flags):
        """Whether it was killed that many seconds after its start; if not, it came to its end. It
        does not look for leaks at its end: killed there, its sanitizer would tell of half a look."""
        running = subprocess.Popen(self.words(*flags), stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL,
                                   env={**os.environ, "LSAN_OPTIONS": "", "ASAN_OPTIONS":
                                        f"{os.environ['ASAN_OPTIONS']}:detect_leaks=0"})
        try:
            running.wait(after)
            return False
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()
            return True

    def test_killed_hard_again_and_again_at_random_moments_it_comes_to_the_same_end(self):
        seed = int(os.environ.get("CAIRN_TEST_SEED", 0)) or random.randrange(1 << 32)
        chance = random.Random(seed)
        for flags in (("--to", "dcp", "--max-shard-size", "20MB"), ("--dtype", "bf16")):
            begun = time.monotonic()
            wanted = self.whole(*flags)
            took = time.monotonic() - begun
            for _ in range(3):
                shutil.rmtree(self.out, ignore_errors=True)
                kills = 0
                while kills < 6 and self.killed(chance.uniform(0.1, 1.1) * took, *flags):
                    kills += 1
                # One that was killed when all its work was done has nothing left to go on with.
                if (self.out / LOG).exists() or not named(self.out):
                    export(self.source, self.out, *flags)
                self.assertEqual(content(self.out), wanted, f"CAIRN_TEST_SEED={seed}")

    def test_an_interrupted_export_says_how_to_go_on_and_writes_nothing_again(self):
        source = self.folder / "large.safetensors"
        model(source, 60, 1_000_000)  # 229 MiB
        wanted = self.whole(source=source)
        for how, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            shutil.rmtree(self.out, ignore_errors=True)
            with slowly(self.words("-j", 1, source=source)) as running:
                wait_until(lambda: noted(self.out) >= 3)
                os.kill(child_of(running), how)
                _, said = running.communicate(timeout=HANG_S)
            self.assertEqual(running.returncode, status, said)
            self.assertIn(f"kept in {self.out}", said)
            self.assertIn("give the same command again", said)
            self.assertEqual(named(self.out), [])
            there = noted(self.out)
            self.assertTrue(3 <= there < 20, there)
            ran, written = self.finish(source=source)
            self.assertIn("going on where an earlier export", ran.stderr)
            self.assertEqual(written, -(-wanted["model.safetensors"][0] // (8 * MIB)) - there)
            self.assertEqual(content(self.out), wanted)

    def test_what_was_damaged_or_went_away_meanwhile_is_written_again(self):
        wanted = self.whole("--max-shard-size", "20MB")
        for harm in ("change", "cut", "remove", "log cut", "log removed", "longer"):
            shutil.rmtree(self.out, ignore_errors=True)
            self.kill_at("fdatasync", 1, "--max-shard-size", "20MB")
            part = next(iter(sorted(self.out.glob("*.part"))))
            log = self.out / LOG
            if harm == "change":
                with open(part, "r+b") as file:
                    file.seek(9 * MIB)
                    file.write(b"other")
            elif harm == "cut":
                os.truncate(part, 3 * MIB)
            elif harm == "longer":
                os.truncate(part, part.stat().st_size + 5)
            elif harm == "remove":
                part.unlink()
            elif harm == "log cut":
                os.truncate(log, 50)
            else:
                log.unlink()
            export(self.source, self.out, "--max-shard-size", "20MB")
            self.assertEqual(content(self.out), wanted, harm)

    def test_another_source_or_other_arguments_are_refused_with_the_way_out(self):
        flags = ("--max-shard-size", "20MB")
        wanted = self.whole(*flags)
        self.kill_at("pwrite64", 5, *flags)
        before = content(self.out)
        self.assertTrue(noted(self.out))
        for other in (("--dtype", "bf16"), ("--to", "dcp"), ("--only", "layer.0*"), ()):
            ran = export(self.source, self.out, *(other and (*flags, *other)), status=6)
            self.assertIn("with other arguments that was interrupted", ran.stderr)
            self.assertIn(f"remove {self.out}/{LOG}", ran.stderr)
            self.assertEqual(content(self.out), before)
        was = self.source.stat()
        os.utime(self.source, ns=(was.st_atime_ns, was.st_mtime_ns + 1))
        try:
            for source in (self.source, ZERO / "stage2"):
                ran = export(source, self.out, *flags, status=6)
                self.assertIn("from another source that was interrupted", ran.stderr)
                self.assertEqual(content(self.out), before)
        finally:
            os.utime(self.source, ns=(was.st_atime_ns, was.st_mtime_ns))
        with open(self.out / LOG, "rb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            ran = export(self.source, self.out, *flags, status=6)
            self.assertIn("another cairn export writes to", ran.stderr)
        self.assertEqual(content(self.out), before)
        export(self.source, self.out, *flags)
        self.assertEqual(content(self.out), wanted)
        # and the way out leads out
        shutil.rmtree(self.out)
        self.kill_at("pwrite64", 5, *flags)
        for path in (self.out / LOG, *self.out.glob("*.part")):
            path.unlink()
        export(self.source, self.out, "--dtype", "bf16")
        self.assertEqual(content(self.out), self.whole("--dtype", "bf16"))

    def test_a_file_of_somebody_else_is_in_the_way_and_stays(self):
        flags = ("--to", "dcp", "--max-shard-size", "20MB")
        wanted = self.whole(*flags)
        for name in (".metadata", "__0_1.distcp"):
            shutil.rmtree(self.out, ignore_errors=True)
            self.kill_at("fdatasync", 1, *flags)
            mine = bytes(wanted[name][0])
            (self.out / name).write_bytes(mine)
            ran = export(self.source, self.out, *flags, status=6)
            self.assertIn(f"a file {name} already", ran.stderr)
            self.assertEqual(digest((self.out / name).read_bytes()), digest(mine))
            (self.out / name).unlink()
            _, written = self.finish(*flags)
            self.assertEqual((written, content(self.out)), (0, wanted))


class Stored(Case):
    def test_an_export_whose_server_goes_away_keeps_what_it_wrote_and_goes_on_from_the_store(self):
        model(self.folder / "model.safetensors", 40, 1_000_000)  # 153 MiB
        self.world.cairn("put", self.folder / "model.safetensors", "r/model@1")
        self.world.cairn("export", "r/model@1", self.folder / "whole")
        with slowly([BIN / "cairn", "export", "r/model@1", self.out, "-j", "1", "--json"],
                    CAIRN_URL=self.world.url) as running:
            wait_until(lambda: noted(self.out) >= 2)
            self.world.server.process.kill()
            _, said = running.communicate(timeout=HANG_S)
        self.assertEqual(running.returncode, 5, said)
        self.assertIn(f"what was written is kept in {self.out}", said)
        self.assertEqual(json.loads(said.splitlines()[-1])["code"], "unavailable", said)
        self.assertEqual(named(self.out), [])
        self.assertGreaterEqual(noted(self.out), 2)
        ran = self.world.cairn("export", "r/model@1", self.out, "--store", self.world.store)
        self.assertIn("going on where an earlier export", ran.stderr)
        self.assertEqual(content(self.out), content(self.folder / "whole"))


if __name__ == "__main__":
    unittest.main()
