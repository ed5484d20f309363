# SPDX-License-Identifier: Apache-2.0
# ctest: as=power on=disk
# ctest: as=power_thorough with="Thorough" labels=full
"""N01, P2: what was acknowledged outlives a power cut. A real server and a real uploader are recorded
while two ranks save twice into a folder; the recording is checked as an order (nothing is
acknowledged before its fsync), and real daemons are started on what a power cut at each write and
sync would have left. `test_power.py Thorough` starts them on every image of the same job (minutes);
else on those of one rank that saves once, and of those that are cut in a write on a share."""
import collections
import dataclasses
import json
import os
import pathlib
import random
import re
import shutil
import tempfile
import unittest

from acknowledged import Kept, Ledger, words
from recording import Disk, environment, read_events, read_tree, write_tree
from world import Job, wait_until, World

RUN = "j/run"
LOGS = ("server.log", "uploader-0.log")
TEMPORARY = re.compile(r"(^|/)\.[0-9a-f-]{36}\.tmp$")
SEED = int(os.environ.get("CAIRN_TEST_SEED", "1"))


class Recorded:
    """One job, recorded from the first start of its daemons until they have ended by themselves."""

    def __init__(self, ranks, steps):
        self.ranks = ranks
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="cairn-power-"))
        self.log = self.root.with_suffix(".recording")
        (self.root / "store").mkdir()
        for name in LOGS:  # so that they are known
            (self.root / name).touch()
        self.disk = Disk(self.root)
        world = World(root=self.root, env=environment(self.log, self.root), uploader_arguments=["--part-size", "1MiB"])
        try:
            ended = Job(world, "recorded", ranks, steps, run=RUN, rows=2).end()
            assert all(status == 0 for status, _, _ in ended), ended
            for daemon in (*world.uploaders, world.server):
                daemon.end()
            self.left = read_tree(self.root, LOGS)
        finally:
            world.close()
        self.events = read_events(self.log)
        self.log.unlink()
        self.words = words(self.events)
        self.kept = Kept(self.disk, RUN)
        self.ledger = Ledger(self.kept)

    def play(self):
        """(number, event, node, promises made) of each event, with the disk as it is after it."""
        for number, event in enumerate(self.events):
            node = self.disk.do(event)
            promises = [promise for word in self.words[number] for promise in self.ledger.hear(word)]
            yield number, event, node, promises


class Order(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """One pass over the recording; each test asks for what it is about."""
        cls.made, cls.faults = collections.Counter(), collections.defaultdict(list)
        recorded = Recorded(2, (1, 2))
        for number, event, node, promises in recorded.play():
            for name, look in promises:
                cls.made[name] += 1
                missing = look()
                if missing:
                    cls.faults[name].append(f"event {number}: {name}, but {missing}")
            if event.kind in ("link", "rename") and not TEMPORARY.search(node.path):
                cls.named(recorded, node)
        cls.left, cls.known = recorded.left, recorded.disk.tree(names=True, content=True)

    @classmethod
    def named(cls, recorded, node):
        """A file gets its final name."""
        folder, _, name = node.path.rpartition("/")
        cls.made["named"] += 1
        if node.kept != node.content():
            cls.faults["named"].append(f"{node.path} is named before its bytes are synced")
        if name == "manifest.json" or name == "committed.json":
            manifest = bytes(node.bytes) if name == "manifest.json" else None
            cls.made[name] += 1
            missing = recorded.ledger.not_whole(folder, manifest)
            if missing:
                cls.faults[name].append(f"{node.path} is written, but {missing}")
        if name == "committed.json" and not recorded.kept.rows(
                "SELECT 1 FROM versions WHERE version = ? AND state = 1", folder.rpartition("/")[2]):
            cls.faults[name].append(f"{node.path} is written before the catalog keeps the commit")

    def holds(self, **wanted):
        for name, least in wanted.items():
            name = name.replace("__", ": ").replace("_json", ".json")
            self.assertGreaterEqual(self.made[name], least, f"{name}: {self.made}")
            self.assertEqual(self.faults[name], [])

    def test_the_recording_explains_every_byte_that_is_there(self):
        known = {path: content and content[0] for path, content in self.known.items() if path not in LOGS}
        self.assertEqual(sorted(known), sorted(self.left))
        for path, content in self.left.items():
            self.assertEqual(known[path], content, path)

    def test_n01_no_name_is_there_before_its_bytes_are_synced(self):
        self.holds(named=20)

    def test_n01_a_manifest_and_a_record_come_after_all_that_they_name(self):
        self.holds(manifest_json=2, committed_json=2)

    def test_n01_the_uploader_tells_a_trainer_nothing_that_journal_and_store_do_not_keep(self):
        self.holds(attempted=4, begun=4, sealed=4, durable=4, free=4, verdict=4)

    def test_n01_the_uploader_tells_the_server_nothing_that_journal_and_store_do_not_keep(self):
        self.holds(told__sealed=4, told__durable=8)

    def test_n01_the_server_answers_nothing_that_catalog_and_store_do_not_keep(self):
        self.holds(answer__attempt=1, answer__begun=4, answer__table=2, answer__sealed=4,
                   answer__registered=8, answer__committed=2)


class Get(unittest.TestCase):
    """What `cairn get` gives a name is on the disk: a launcher may start from it at once."""

    def test_n01_a_file_that_was_got_has_its_name_when_its_bytes_are_synced(self):
        world = World(case=self)
        tree, out, log = world.root / "tree", world.root / "out", world.root / "got.log"
        (tree / "deep").mkdir(parents=True)
        files = {"odd": (5 << 20) + 17, "deep/small": 70_000, "deep/block": 1 << 20, "empty": 0}
        for name, size in files.items():
            (tree / name).write_bytes(os.urandom(size))
        world.cairn("put", tree, RUN + "@1")
        out.mkdir()
        disk, named = Disk(out), {}
        world.cairn("get", RUN + "@1", "-d", out, "--store", world.store, env=environment(log, out))
        for event in read_events(log):
            node = disk.do(event)
            if event.kind in ("link", "rename") and node.path in files:
                named[node.path] = node.kept and len(node.kept[0]), bytes(node.bytes)
        for name, size in files.items():
            with self.subTest(name):
                self.assertIn(name, named)
                self.assertEqual(named[name], (size, (tree / name).read_bytes()))


# ---- images ----

@dataclasses.dataclass
class Image:
    what: str
    tree: dict
    attempt: int  # the newest that was told
    begun: dict  # version -> step
    durable: set  # versions of which every rank was told durable
    committed: dict  # version -> step


def promised(recorded):
    """What was acknowledged so far, as the arguments of an Image."""
    ledger = recorded.ledger
    begun = {version: step for version, step in ledger.saves.values()}
    ranks = collections.Counter(ledger.saves[owner][0] for owner in ledger.durable)
    durable = {version for version, count in ranks.items() if count == recorded.ranks}
    return ledger.attempt, begun, durable, dict(ledger.committed)


def images(recorded):
    """All that a power cut may have left: of each moment the least; of each name that was made the
    names without the bytes that are not synced; of each write all but a part of it."""
    disk, changes, least = recorded.disk, 0, None
    for number, event, node, _ in recorded.play():
        if disk.changes != changes:
            if least:
                yield Image(f"what was synced before event {number}", *least)
            changes = disk.changes
        now = promised(recorded)
        least = (disk.tree(), *now)
        if event.kind in ("link", "rename", "unlink", "mkdir"):
            yield Image(f"names alone at event {number}, {event.kind} {node and node.path}",
                        disk.tree(names=True), *now)
        elif event.kind == "write" and node.path not in LOGS:
            cut = event.at + len(event.data) // 2
            torn = bytes(node.bytes[:cut]) + bytes(len(node.bytes) - cut)
            yield Image(f"torn at event {number}, {len(event.data)} bytes at {event.at} of "
                        f"{node.path}", disk.tree(True, True, (node, torn)), *now)
    yield Image("what was synced at the end", *least)


class Case(unittest.TestCase):
    """Of one job: what it recorded, and all images of it."""

    job, share = (), 1.0

    @classmethod
    def setUpClass(cls):
        recorded = Recorded(*cls.job)
        cls.images = list(images(recorded))
        cls.final = recorded.disk.tree(names=True, content=True)

    def no_record_of_what_is_not_whole(self):
        records = 0
        for image in self.images:
            for path in image.tree:
                if path.endswith("/committed.json"):
                    records += 1
                    self.whole(image, path.rpartition("/")[0])
        self.assertGreater(records, 20)

    def whole(self, image, folder):
        for path, content in self.final.items():
            if path.startswith(f"{folder}/") and content:
                self.assertEqual(image.tree.get(path), content, f"{image.what}: {path}")

    def started_on_images(self):
        """Real daemons; all images with the least, of the others a share that the seed draws."""
        chance = random.Random(SEED)
        chosen = [image for image in self.images if image.what.startswith("what was") or chance.random() < self.share]
        # One after the other: a node of a store has one uploader on a machine.
        faults = [fault for fault in map(self.start_on, chosen) if fault]
        self.assertFalse(faults, f"seed {SEED}\n" + "\n".join(faults))
        print(f"started on {len(chosen)} of {len(self.images)} images, seed {SEED}")

    def start_on(self, image):
        """The first fault of this image, or None."""
        root = pathlib.Path(tempfile.mkdtemp(prefix="cairn-image-")) / "root"
        write_tree(image.tree, root)
        world = None
        try:
            world = World(root=root, uploader_arguments=["--offer-wait", "50ms"])
            self.look(world, image)
        except AssertionError as fault:
            return f"{image.what}: {fault}"
        finally:
            for daemon in (world.server, *world.uploaders) if world else ():
                daemon.kill()
            shutil.rmtree(root.parent)

    def look(self, world, image):
        status, _, body = world.get(f"/v1/runs/{RUN}")
        if image.attempt:
            self.assertEqual(status, 200, body)
            self.assertGreaterEqual(json.loads(body)["attempt"], image.attempt)
        for version in image.begun:
            wait_until(lambda: self.ended(world, version, version in image.durable), 20)
        latest = world.version(RUN)
        steps = [step for version, step in image.committed.items()]
        self.assertGreaterEqual(latest["step"] if latest else -1, max(steps, default=-1))
        for version in image.committed:
            self.assertEqual(world.version(RUN, version)["state"], "committed")
        if latest:
            world.cairn("verify", f"{RUN}@latest", "--store", world.store)

    def ended(self, world, version, durable):
        """Committed; or ended for a reason that is told, but not where it was durable."""
        found = world.version(RUN, version)
        if not found or found["state"] == "open":
            return None
        self.assertTrue(found["state"] == "committed" if durable else
                        found["state"] == "committed" or found["reason"], found)
        return found["state"] != "committed" or found["recorded"]


class Images(Case):
    job, share = (1, (1,)), 0.15

    def test_n01_no_image_has_a_record_of_what_is_not_whole(self):
        self.no_record_of_what_is_not_whole()

    def test_n01_daemons_that_start_on_an_image_have_all_that_was_acknowledged(self):
        self.started_on_images()


class Thorough(Case):
    job = (2, (1, 2))

    def test_n01_no_image_of_two_ranks_has_a_record_of_what_is_not_whole(self):
        self.no_record_of_what_is_not_whole()

    def test_n01_daemons_start_on_every_image_of_two_ranks_with_all_that_was_acknowledged(self):
        self.started_on_images()


if __name__ == "__main__":
    unittest.main(verbosity=2, defaultTest=("Order", "Images"))
