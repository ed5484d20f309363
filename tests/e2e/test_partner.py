# SPDX-License-Identifier: Apache-2.0
# ctest: seconds=200
# ctest: as=partner_behind with="Lost" seconds=30 env=CAIRN_TEST_BEHIND=1
# ctest: as=partner_streams with="Streams Lost" seconds=40 env=TRAINER_STREAMS=33
# ctest: as=partner_behind_all labels=full seconds=200 env=CAIRN_TEST_BEHIND=1
# ctest: as=partner_long with="Lost" labels=full env=CAIRN_PARTNER_SEEDS=4-53
"""Copies on another node: four nodes save to a slow store, and one of them is lost with its memory and
its journal. Whatever was told partnered by all its ranks is committed, byte for byte (Q57).
CAIRN_PARTNER_SEEDS: FIRST-LAST, the seeds of the lost nodes. TRAINER_STREAMS: each save has so many streams beyond
its slab."""
import array
import datetime
import functools
import json
import os
import random
import select
import shutil
import signal
import subprocess
import time
import unittest
import unittest.mock

import cases
from chaos_oracle import stored
from passing import Passing
from s3world import S3Fault, S3World
from signs import go_round, Held
from test_peers import metric
from world import BIN, World, wait_until

NODES, MIB, RAW_BYTES = 4, 1 << 20, 12345
SERVER = ["--partner-copies", "1", "--partner-finish", "1s", "--silence-max", "60s"]
NODE = ["--peer-listen", "127.0.0.1:0", "--heartbeat", "200ms", "--metrics-listen", "127.0.0.1:0"]
KEEPS = [*NODE, "--partner-memory", "256MiB"]
RUN = "p/run"


class Ranks:
    """One rank on each node, which saves on without waiting for commits; what each has said."""

    def __init__(self, world, name, steps, rows, partnered_ms=5000, ahead_ms=30000, ranks=NODES, run=RUN, **env):
        self.said = [[] for _ in range(ranks)]
        self.processes = [
            subprocess.Popen(
                [*world.within(rank % len(world.uploaders)), BIN / "tests/trainer", run, str(rank), str(ranks), *map(str, steps)],
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                env={**os.environ, "CAIRN_JOB": name, "TRAINER_ROWS": str(rows),
                     "TRAINER_PARTNERED": str(partnered_ms), "TRAINER_AHEAD": str(ahead_ms), **env,
                     "CAIRN_SOCKET": world.socket(rank % len(world.uploaders))})
            for rank in range(ranks)]
        self.text = [b"" for _ in range(ranks)]

    def look(self, seconds=0.0):
        """Takes in what they say for so long."""
        end = time.monotonic() + seconds
        while True:
            pipes = {process.stdout: rank for rank, process in enumerate(self.processes) if process.stdout}
            left = max(0.0, end - time.monotonic())
            for pipe in select.select(list(pipes), [], [], min(left, 0.05))[0]:
                rank, data = pipes[pipe], os.read(pipe.fileno(), 65536)
                self.text[rank] += data
                if not data:
                    pipe.close()
                    self.processes[rank].stdout = None
            for rank, text in enumerate(self.text):
                lines = text.split(b"\n")
                self.text[rank] = lines.pop()
                self.said[rank] += [json.loads(line) for line in lines]
            if not left:
                return self

    def steps(self, what):
        """Those of which every rank has said that."""
        each = [{line["step"] for line in lines if line.get("code") == what} for lines in self.said]
        return set.intersection(*each)

    def opened(self):
        self.look()
        return all(lines and lines[0].get("open") == "ok" for lines in self.said)

    def kill(self, rank=None):
        for number, process in enumerate(self.processes):
            if rank in (None, number):
                process.kill()
                process.wait()
        self.look()


@functools.cache
def words(mebi):
    """Of rank 0 from step 0 on: made once, since Python takes a third of a second for each MiB."""
    return array.array("I", [i * 2654435761 & 0xFFFFFFFF for i in range(mebi * MIB // 4)]).tobytes()


def content(rank, step, rows):
    """As tests/e2e/trainer.c makes it: word i is ((i + step) * 2654435761) ^ rank << 20."""
    size = rows * MIB
    of_rank_0 = words((size + 4 * step) // MIB + 1)[4 * step:][:size]
    turned = (rank << 20).to_bytes(4, "little") * (size // 4)
    return (int.from_bytes(of_rank_0, "little") ^ int.from_bytes(turned, "little")).to_bytes(size, "little")


def stream(memory, number):
    """As tests/e2e/trainer.c makes it of a rank's content."""
    return memory[number * 4096:][:300000 + number]


class Case(unittest.TestCase):
    def start(self, keeps=None, server=SERVER, delay_ms=0, nodes=NODES, env=None):
        folder = cases.folder(self)
        self.s3 = S3Fault(folder, case=self)
        self.world = S3World(self.s3, nodes=nodes, debug=False, server_arguments=server,
                             uploader_arguments=keeps or KEEPS, env=env or {}, case=self)
        self.slow(delay_ms)

    def slow(self, delay_ms):
        """None: it takes no bytes at all."""
        how = "status=503/SlowDown" if delay_ms is None else f"delay={delay_ms}"
        self.s3.rules("" if delay_ms == 0 else f"op=put|part key=*/data/* : {how}")

    def partnered(self, rows):
        """A save of which the store has nothing, on every node and its partner."""
        self.slow(None)
        job = self.ranks("one", [1], rows)
        wait_until(lambda: job.look().steps("partnered") == {1}, 30)
        return job

    def ranks(self, *arguments, **options):
        job = Ranks(self.world, *arguments, **options)
        self.addCleanup(job.kill)
        return job

    def lose(self, node, journal=True):
        """With the bytes of its trainer, which must be killed, too."""
        self.world.uploaders[node].kill()
        if journal:
            shutil.rmtree(self.world.root / f"uploader-{node}")

    def state(self, step, run=RUN):
        _, _, body = self.world.get(f"/v1/runs/{run}/checkpoints?limit=1000")
        return [item for item in json.loads(body).get("items", []) if item["step"] == step]

    def is_committed(self, step):
        return any(item["state"] == "committed" for item in self.state(step))

    def check_bytes(self, step, rows):
        version = next(item for item in self.state(step) if item["state"] == "committed")
        for rank in range(NODES):
            wanted = content(rank, step, rows)
            folder = f"{RUN}/{step:012}/{version['version']}/data"
            found = stored(self.world, f"{folder}/rank-{rank:05}.safetensors")
            self.assertTrue(found.endswith(wanted), f"step {step} rank {rank}")
            raw = stored(self.world, f"{folder}/rank-{rank:05}/state")
            self.assertEqual(raw, wanted[:RAW_BYTES], f"step {step} rank {rank}")
            for number in range(int(os.environ.get("TRAINER_STREAMS", "0"))):
                found = stored(self.world, f"{folder}/rank-{rank:05}/stream-{number + 1}")
                self.assertEqual(found, stream(wanted, number), f"step {step} rank {rank} stream {number}")

    def silent_s(self, node):
        """For how long the server has not heard it."""
        nodes = self.world.read("/v1/nodes")["items"]
        heard = next(one["heard_at"] for one in nodes if one["node"] == f"node-{node}")
        return time.time() - datetime.datetime.fromisoformat(heard).timestamp()

    def keepers(self, version, run=RUN):
        """By rank: its node, and the node that has said that it keeps a copy."""
        why = self.world.read(f"/v1/runs/{run}/checkpoints/{version}/why")
        return {kept["rank"]: (kept["node"], node["node"]) for node in why["nodes"] for kept in node["keeps"]}

    def becomes_whole(self, rows):
        """Step 1, by whoever has its bytes."""
        wait_until(lambda: self.is_committed(1), 40)
        self.check_bytes(1, rows)

    def lose_partnered(self, node, rows, **options):
        """A save that is partnered, of which the store has nothing, loses that node and all its trainers; then the
        store takes bytes again."""
        job = self.partnered(rows)
        self.lose(node, **options)
        job.kill()
        self.slow(0)

    def logs(self, event):
        return [number for number in range(NODES)
                if event in (self.world.root / f"uploader-{number}.log").read_text(errors="replace")]


class Partners(Case):
    def test_why_names_the_copy_of_each_rank_until_the_version_is_over(self):
        self.start()
        self.partnered(2)
        version = self.state(1)[0]["version"]
        wait_until(lambda: len(self.keepers(version)) == NODES)
        for rank, (node, keeper) in self.keepers(version).items():
            self.assertEqual(node, f"node-{rank}")
            self.assertNotEqual(keeper, node)
        told = self.world.cairn("show", RUN, "--why").stdout
        for rank, (node, keeper) in self.keepers(version).items():
            self.assertIn(f"rank {rank} of node {node} outlives it: node {keeper} has a copy\n", told)
        self.slow(0)
        self.becomes_whole(2)
        self.assertEqual(self.keepers(version), {})

    def test_a_partnered_save_of_a_lost_node_is_committed_from_its_partners_memory(self):
        self.start()
        self.lose_partnered(2, 10)
        self.becomes_whole(10)
        self.assertEqual(len(self.logs("partner.finishes")), 1)
        self.assertEqual(metric(self.world, 0, "partnered_saves_total"), 1)

    def test_a_node_that_comes_back_without_its_bytes_leaves_the_save_to_its_partner(self):
        self.start(server=[*SERVER, "--partner-finish", "60s"], keeps=[*KEEPS, "--offer-wait", "500ms"])
        self.lose_partnered(2, 10, journal=False)
        self.world.uploaders[2].start()
        self.becomes_whole(10)
        self.assertEqual(self.logs("save.handed_over"), [2])

    def test_a_node_that_comes_back_without_its_journal_is_finished_for(self):
        self.start(server=[*SERVER, "--partner-finish", "60s"])
        self.lose_partnered(1, 2)
        self.world.uploaders[1].start()
        self.becomes_whole(2)

    def test_a_node_that_comes_back_waits_for_the_server_before_it_gives_its_partner_up(self):
        passing = Passing()
        self.start(server=[*SERVER, "--partner-finish", "60s"],
                   keeps=[*KEEPS, "--offer-wait", "500ms"], env=passing.env())
        self.lose_partnered(2, 2, journal=False)
        self.world.server.kill()
        uploader = self.world.uploaders[2].start()
        for _ in range(12):  # for longer than a partner has that is not reached
            passing.passes(10)
            go_round(uploader.process.pid, "partner", 3)
        self.assertNotIn("save.failed", (self.world.root / "uploader-2.log").read_text())
        self.world.start_server()
        self.becomes_whole(2)
        self.assertEqual(self.logs("save.handed_over"), [2])

    def test_a_node_that_restarts_before_its_journal_says_who_has_a_copy_is_partnered_nevertheless(self):
        self.start()
        uploader = self.world.uploaders[2]
        uploader.kill()
        uploader.env = {**self.world.env, "CAIRN_CRASH_AT": "uploader.partner.whole:1:kill"}
        uploader.start()
        self.slow(None)
        self.ranks("one", [1], 2)
        wait_until(lambda: uploader.process.poll() is not None, 30)
        uploader.env = self.world.env
        uploader.start()
        wait_until(lambda: 2 in self.logs("save.partnered"), 40)
        self.slow(0)
        self.becomes_whole(2)

    def test_a_node_that_restarts_after_its_partner_has_sent_makes_no_other_tokens(self):
        self.start()
        self.world.uploaders[2].kill()
        self.world.uploader_arguments = [*KEEPS, "--store-requests", "1", "--workers", "1"]
        uploader = self.world.uploaders[2] = self.world.make_uploader(2)
        uploader.env = {**self.world.env, "CAIRN_CRASH_AT": "uploader.partner.whole:1:kill"}
        uploader.start()
        waits = "op=put|part key=*/data/rank-00000* : status=503/SlowDown"
        self.s3.rules(f"op=put|part key=*/data/rank-00002* : delay=20000; {waits}")  # it begins one shard of two
        job = self.ranks("one", [1], 2)
        wait_until(lambda: uploader.process.poll() is not None, 30)
        self.s3.rules(waits)
        wait_until(lambda: sum("rank-00002" in key for key in self.world.keys("/data/")) == 2, 40)
        uploader.env = self.world.env
        uploader.start()
        wait_until(lambda: job.look().steps("staged") == {1}, 40)
        self.slow(0)
        self.becomes_whole(2)

    def test_a_keeper_that_drains_sends_what_it_is_asked_to_finish(self):
        self.start(server=[*SERVER, "--partner-finish", "60s"], keeps=[*KEEPS, "--offer-wait", "500ms"])
        self.lose_partnered(2, 2, journal=False)
        for node in (0, 1, 3):  # its copy is gone when it has stopped
            self.world.cairn("uploader", "drain", env={"CAIRN_SOCKET": self.world.socket(node)})
        self.world.uploaders[2].start()
        self.becomes_whole(2)
        self.assertEqual(self.logs("save.handed_over"), [2])

    def test_a_keeper_that_restarts_while_it_sends_leaves_the_save_to_its_own_node(self):
        self.start(keeps=[*KEEPS, "--offer-wait", "500ms"])
        self.partnered(2)
        self.world.uploaders[2].process.send_signal(signal.SIGSTOP)  # cut off, with all its bytes
        wait_until(lambda: self.logs("partner.finishes"), 20)
        keeper = self.logs("partner.finishes")[0]
        self.world.uploaders[keeper].kill()
        self.world.uploaders[keeper].start()
        version = self.state(1)[0]["version"]
        wait_until(lambda: 2 not in self.keepers(version))  # the server has heard that its copy is gone
        self.world.uploaders[2].process.send_signal(signal.SIGCONT)
        self.slow(0)
        self.becomes_whole(2)

    def test_a_keeper_that_restarts_while_it_sends_for_a_node_without_bytes_ends_the_save_by_name(self):
        self.start(server=[*SERVER, "--partner-finish", "60s"], keeps=[*KEEPS, "--offer-wait", "500ms"])
        job = self.partnered(2)
        self.lose(2, journal=False)
        job.kill()
        self.world.uploaders[2].start()
        wait_until(lambda: self.logs("save.handed_over"), 20)
        keeper = self.logs("partner.finishes")[0]
        self.world.uploaders[keeper].kill()
        self.world.uploaders[keeper].start()
        wait_until(lambda: "its bytes are gone here, and the copy on node" in
                   (self.world.root / "uploader-2.log").read_text(), 40)
        wait_until(lambda: [item["state"] for item in self.state(1)] != ["open"], 40)
        self.assertFalse(self.is_committed(1))

    def test_where_both_are_gone_the_save_fails_and_its_node_says_so(self):
        self.start(server=[*SERVER, "--partner-finish", "60s"], keeps=[*KEEPS, "--offer-wait", "500ms"])
        self.lose_partnered(2, 10, journal=False)
        log = (self.world.root / "uploader-2.log").read_text()
        partner = int(log.split("save.partnered")[1].split("node=node-")[1][0])
        self.lose(partner)
        self.world.uploaders[partner].start()
        self.world.uploaders[2].start()
        wait_until(lambda: "its bytes are gone here, and the copy on node" in
                   (self.world.root / "uploader-2.log").read_text(), 40)
        wait_until(lambda: [item["state"] for item in self.state(1)] != ["open"], 40)
        self.assertFalse(self.is_committed(1))

    def lose_both(self, sends):
        """For good; sends: once the partner sends what the other has left."""
        self.start(server=[*SERVER, "--silence-max", "4s", "--sweep-interval", "100ms"])
        job = self.partnered(2)
        version = self.state(1)[0]["version"]
        wait_until(lambda: len(self.keepers(version)) == NODES)
        partner = int(self.keepers(version)[2][1][-1])
        self.lose(2)
        if sends:
            wait_until(lambda: self.logs("partner.finishes") == [partner], 20)
        self.lose(partner)
        job.kill()
        wait_until(lambda: [item["state"] for item in self.state(1)] != ["open"], 60)
        shown = self.world.read(f"/v1/runs/{RUN}/checkpoints/{version}")
        self.assertRegex(str(shown), "node node-[0-3] was not heard for")

    def test_where_both_are_lost_for_good_the_silence_of_one_ends_the_version(self):
        self.lose_both(sends=False)

    def test_where_the_partner_is_lost_for_good_as_it_sends_its_silence_ends_the_version(self):
        self.lose_both(sends=True)

    def test_a_new_attempt_waits_for_what_a_partner_has(self):
        self.start()
        job = self.partnered(2)
        self.lose(3)
        job.kill()
        self.slow(1000)
        self.world.uploaders[3].start()
        next_job = self.ranks("two", [2], 2)
        wait_until(next_job.opened, 40)
        self.assertEqual({lines[0]["resumed"] for lines in next_job.said}, {1})
        self.check_bytes(1, 2)

    def test_a_partner_that_is_full_costs_the_milestone_and_nothing_else(self):
        self.start(keeps=[*NODE, "--partner-memory", "1MiB"], delay_ms=1500)
        job = self.ranks("one", [1], 10, partnered_ms=300, ahead_ms=100)
        wait_until(lambda: self.is_committed(1), 40)
        self.assertEqual(job.look().steps("partnered"), set())
        self.assertEqual(len(self.logs("save.unpartnered")), NODES)
        self.check_bytes(1, 10)

    def test_a_save_with_files_has_no_partner_and_its_node_says_why(self):
        self.start()
        self.slow(None)
        job = self.ranks("one", [1], 2, partnered_ms=300, ahead_ms=100, TRAINER_FILE=str(BIN / "tests/trainer"))
        wait_until(lambda: job.look().steps("staged") == {1}, 40)
        wait_until(lambda: len(self.logs("save.unpartnered")) == NODES, 20)
        for number in range(NODES):
            log = (self.world.root / f"uploader-{number}.log").read_text()
            self.assertEqual(log.count("save.unpartnered"), 1)
            self.assertIn('cause="it has files, which are read as they are sent"', log)
        self.assertEqual(job.look().steps("partnered"), set())
        self.slow(0)
        self.becomes_whole(2)

    def test_a_partner_that_stands_still_delays_no_save(self):
        self.start(delay_ms=100)
        job = self.ranks("one", [1, 2], 10, partnered_ms=1)
        wait_until(job.opened, 40)
        self.world.uploaders[3].process.send_signal(signal.SIGSTOP)
        others = [f"/rank-{rank:05}.safetensors" for rank in range(NODES - 1)]
        wait_until(lambda: all(self.world.keys("/000000000002/") and
                               any(rank in key for key in self.world.keys("/000000000002/"))
                               for rank in others), 15)
        self.world.uploaders[3].process.send_signal(signal.SIGCONT)
        wait_until(lambda: self.is_committed(2), 40)
        self.check_bytes(2, 10)

    def test_a_slab_is_not_given_back_while_a_piece_is_copied_out_of_it(self):
        """The store has all of the save, and its version is over, while its partner is given a piece of it: the
        copying thread finds its save still there when it is done."""
        self.start(nodes=2, delay_ms=500)
        self.world.uploaders[0].stop()
        copying = Held(self.world.root, "uploader.partner.copying")
        self.world.env.update(copying.env())
        self.world.uploaders[0].start()
        job = self.ranks("one", [1], 2, partnered_ms=1, ranks=2)
        copying.reached()
        wait_until(lambda: self.is_committed(1))
        copying.go_on()
        go_round(self.world.uploaders[0].process.pid, "partner", 5)
        self.assertIsNone(self.world.uploaders[0].process.poll())
        job.kill()

    def test_copies_go_when_their_version_is_over(self):
        self.start(keeps=[*NODE, "--partner-memory", "48MiB"], delay_ms=500)
        steps = list(range(1, 7))
        job = self.ranks("one", steps, 10)
        wait_until(lambda: all(self.is_committed(step) for step in steps), 90)
        # Each takes 10 MiB and more of it: they were all kept in turn.
        self.assertGreaterEqual(len(job.look().steps("partnered")), 3)

    def test_nobody_has_a_partner_unless_the_server_says_so(self):
        self.start(server=[], delay_ms=300)
        job = self.ranks("one", [1], 2, partnered_ms=100, ahead_ms=100)
        wait_until(lambda: self.is_committed(1), 40)
        self.assertEqual(job.look().steps("partnered"), set())
        self.assertEqual(self.logs("partner"), [])

    def test_of_two_runs_on_the_same_nodes_the_one_whose_policy_says_so_outlives_a_node(self):
        self.start(server=["--partner-finish", "1s", "--silence-max", "60s"])
        self.world.cairn("policy", "set", "p", "--partner-copies", "1")
        plain = self.ranks("one", [1], 2, partnered_ms=500, ahead_ms=100, run="q/run")
        job = self.partnered(2)
        wait_until(lambda: plain.opened() and len(self.state(1, "q/run")) == 1, 30)
        kept, other = self.state(1)[0]["version"], self.state(1, "q/run")[0]["version"]
        wait_until(lambda: len(self.keepers(kept)) == NODES)
        self.lose(2)
        job.kill()
        plain.kill()
        self.slow(0)
        self.becomes_whole(2)
        self.assertEqual(self.keepers(other, "q/run"), {})
        self.assertEqual(plain.steps("partnered"), set())
        self.assertEqual([item["state"] for item in self.state(1, "q/run")], ["open"])
        self.assertFalse([key for key in self.world.keys("q/run/") if "/data/rank-00002" in key])

    def test_the_silence_of_the_lost_node_ends_nothing_that_its_partner_sends(self):
        self.start(server=[*SERVER, "--silence-max", "3s", "--sweep-interval", "100ms"])
        job = self.partnered(2)
        wait_until(lambda: (self.world.version(RUN, "1") or {}).get("ranks_sealed") == NODES or
                   [item.get("ranks_sealed") for item in self.state(1)] == [NODES], 20)
        self.lose(2)
        job.kill()
        wait_until(lambda: self.logs("partner.finishes"), 20)
        wait_until(lambda: self.silent_s(2) > 5)
        self.assertEqual([item["state"] for item in self.state(1)], ["open"])
        self.slow(0)
        self.becomes_whole(2)


class Streams(Case):
    """Streams that the slab does not hold have a copy as the slab has one."""

    def setUp(self):
        patched = unittest.mock.patch.dict(os.environ, TRAINER_STREAMS="33")
        patched.start()
        self.addCleanup(patched.stop)

    def test_a_partnered_save_of_a_lost_node_is_committed_with_its_streams(self):
        self.start()
        self.lose_partnered(2, 2)
        self.becomes_whole(2)
        self.assertEqual(len(self.logs("partner.finishes")), 1)

    def test_a_node_that_comes_back_without_its_streams_leaves_the_save_to_its_partner(self):
        self.start(server=[*SERVER, "--partner-finish", "60s"], keeps=[*KEEPS, "--offer-wait", "500ms"])
        self.lose_partnered(2, 2, journal=False)
        self.world.uploaders[2].start()
        self.becomes_whole(2)
        self.assertEqual(self.logs("save.handed_over"), [2])

    def test_a_node_that_comes_back_to_its_trainer_sends_the_streams_itself(self):
        self.start(server=[*SERVER, "--partner-finish", "60s"])
        self.partnered(2)
        self.lose(2, journal=False)
        self.world.uploaders[2].start()
        self.slow(0)
        self.becomes_whole(2)
        self.assertEqual(self.logs("partner.finishes"), [])


class Domains(unittest.TestCase):
    def test_partner_memory_needs_a_port(self):
        with self.assertRaisesRegex(AssertionError, "partner_memory needs peer_listen"):
            World(uploader_arguments=["--partner-memory", "32MiB"]).close()

    def test_nodes_of_one_domain_are_partners_only_where_there_is_no_other(self):
        world = World(nodes=0, server_arguments=SERVER, case=self)
        for number in range(NODES):
            world.uploader_arguments = [*KEEPS, "--failure-domain", f"rack-{number // 2}"]
            world.uploaders.append(world.make_uploader(number).start())
        job = Ranks(world, "one", [1], 1, ahead_ms=100)
        self.addCleanup(job.kill)
        for number in range(NODES):
            log = world.root / f"uploader-{number}.log"
            wait_until(lambda: "save.partnered" in log.read_text() or told_committed(world), 30)
            for line in log.read_text().splitlines():
                if "save.partnered" in line:
                    partner = int(line.split("node=node-")[1][0])
                    self.assertNotEqual(partner // 2, number // 2, line)


def told_committed(world):
    return (world.version(RUN) or {}).get("step") == 1


class Lost(Case):
    """One of four nodes at a random moment."""

    def lose_one(self, seed):
        draw = random.Random(seed)
        rows, steps = draw.choice([1, 2, 10]), list(range(1, 9))
        self.start(delay_ms=draw.choice([300, 1500, 4000, None]))
        job = self.ranks("one", steps, rows)
        wait_until(job.opened, 40)
        job.look(draw.uniform(0.1, 4.0))
        node, journal = draw.randrange(NODES), draw.random() < 0.7
        first = draw.random() < 0.5
        if first:
            job.kill(node)
        self.lose(node, journal)
        job.kill(node)
        job.look(draw.choice([0.0, 0.3, 1.5]))
        job.kill()
        self.slow(0)
        partnered = job.steps("partnered")
        if draw.random() < 0.5:
            self.world.uploaders[node].start()
        for step in sorted(partnered):
            try:
                wait_until(lambda: self.is_committed(step), 60)
            except AssertionError:
                self.fail(f"seed {seed}: step {step} of node {node} was partnered and is lost: "
                          f"{self.state(step)}\n{self.world.logs()}")
            self.check_bytes(step, rows)
        print(f"seed {seed}: node {node} lost, partnered {sorted(partnered)}, "
              f"finished by {self.logs('partner.finishes')}", flush=True)
        return partnered

    def test_whatever_was_partnered_is_committed(self):
        first, last = map(int, os.environ.get("CAIRN_PARTNER_SEEDS", "1-3").split("-"))
        kept = 0
        for seed in range(first, last + 1):
            with self.subTest(seed=seed):
                kept += len(self.lose_one(seed))
                self.doCleanups()
        self.assertGreater(kept, 0)


if __name__ == "__main__":
    unittest.main()
