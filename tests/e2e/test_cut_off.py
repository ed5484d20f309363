# SPDX-License-Identifier: Apache-2.0
"""Sixteen ranks on four nodes, each a host of its own with a link that can be pulled; the server and the store
are on a fifth. A link that is pulled says nothing: connections stand, and packets go nowhere."""
import collections
import hashlib
import json
import os
import subprocess
import unittest

import cases
import hosts
from chaos_oracle import stored
from s3world import S3Fault, S3World
from test_partner import RAW_BYTES, Ranks, content
from world import BIN, HANG_S, line_of, wait_until

NODES, RANKS, MIB, RUN = 4, 16, 1 << 20, "p/run"
SERVER = ["--allow-remote", "--allow-plain-http", "--partner-finish", "1s"]
NODE = ["--allow-plain-http", "--heartbeat", "200ms", "--peer-restore", "on", "--partner-memory", "64MiB"]
LATENCY_MS = 5
PATIENCE_S = int(HANG_S)  # no test is about how soon


class HostsWorld(S3World):
    """The server is on the hub, uploader N on host N."""

    def __init__(self, network, s3, **options):
        self.network = network
        super().__init__(s3, nodes=NODES, debug=False, server_arguments=SERVER, **options)

    def within(self, number):
        return self.network.within(number)

    def make_server(self, number, port):
        daemon = super().make_server(number, port)
        daemon.command[daemon.command.index("--listen") + 1] = f"{hosts.HUB}:{port}"
        return daemon

    def start_server(self):
        super().start_server()
        self.url = self.urls[0] = f"http://{hosts.HUB}:{self.port}"

    def make_uploader(self, number):
        daemon = super().make_uploader(number)
        listen = f"{self.network.address(number)}:0"
        daemon.command = [*self.within(number), *daemon.command, "--peer-listen", listen]
        return daemon


class CutOff(unittest.TestCase):
    def start(self, *arguments):
        folder = cases.folder(self)
        self.network = hosts.Hosts(NODES)
        self.addCleanup(self.network.close)
        self.delayed = "" if self.network.slow(LATENCY_MS) else f"op=* key=*/data/* : delay={2 * LATENCY_MS}"
        self.s3 = S3Fault(folder, ["--address", hosts.HUB], case=self)
        self.s3.url = f"http://{hosts.HUB}:{self.s3.port}"
        self.rules()
        self.world = HostsWorld(self.network, self.s3, uploader_arguments=[*NODE, *arguments])
        self.addCleanup(self.world.close)

    def until(self, what):
        try:
            wait_until(what, PATIENCE_S)
        except AssertionError as error:
            states = {step: (item["state"], self.ranks_there(step)) for step, item in self.states().items()}
            raise AssertionError(f"{error}\n{states}\n{self.world.logs()}") from None

    def rules(self, *first):
        """Of rules that hold for a request the first one acts."""
        self.s3.rules("\n".join([*first, self.delayed]))

    # ---- saves ----

    def ranks(self, steps, **options):
        job = Ranks(self.world, f"save-{steps[0]}", steps, 1, ranks=RANKS,
                    TRAINER_TIMEOUT_MS=str(1000 * PATIENCE_S), **options)
        self.addCleanup(job.kill)
        return job

    def states(self):
        _, _, body = self.world.get(f"/v1/runs/{RUN}/checkpoints?limit=1000")
        return {item["step"]: item for item in json.loads(body).get("items", [])}

    def committed(self):
        return {step for step, item in self.states().items() if item["state"] == "committed"}

    def ranks_there(self, step):
        """Those of which the store has an object of that step."""
        return {int(key.split("/data/rank-")[1][:5]) for key in self.world.keys(f"/{step:012}/")
                if "/data/rank-" in key}

    def of_node(self, number):
        return {rank for rank in range(RANKS) if rank % NODES == number}

    def check_bytes(self, step):
        folder = f"{RUN}/{step:012}/{self.states()[step]['version']}/data"
        for rank in range(RANKS):
            wanted = content(rank, step, 1)
            tensors = stored(self.world, f"{folder}/rank-{rank:05}.safetensors")
            self.assertTrue(tensors.endswith(wanted), f"step {step} rank {rank}")
            self.assertEqual(stored(self.world, f"{folder}/rank-{rank:05}/state"), wanted[:RAW_BYTES])

    def save(self, step=1):
        job = self.ranks([step], partnered_ms=0, ahead_ms=0)
        self.until(lambda: job.look(0.1).steps("ok") == {step})

    def test_a_node_that_is_cut_off_for_a_while_loses_nothing_and_all_steps_are_committed(self):
        self.start()
        steps, last = [1, 2, 3, 4], 4
        # What is certain not to be whole when the link is cut.
        self.rules(*(f"op=put|part key=*/{last:012}/*/data/rank-{rank:05}* : status=503/SlowDown"
                     for rank in self.of_node(3)))
        job = self.ranks(steps, partnered_ms=0, ahead_ms=1000)
        self.until(job.opened)
        self.until(lambda: self.ranks_there(1) & self.of_node(3))  # in the middle of sending
        self.network.cut(3)
        self.rules()
        self.until(lambda: self.ranks_there(last) >= set(range(RANKS)) - self.of_node(3))
        self.assertNotIn(last, self.committed())  # whatever had arrived of the others: they cannot say that
        self.network.mend(3)
        self.until(lambda: self.committed() == set(steps))
        for step in steps:
            self.check_bytes(step)
        self.until(lambda: job.look(0.1).steps("staged") == set(steps))
        self.assertEqual([line for lines in job.said for line in lines if "problem" in line], [])

    def test_what_a_node_had_staged_when_it_was_cut_off_for_good_is_committed_from_its_partner(self):
        self.start()
        self.world.cairn("policy", "set", "p", "--partner-copies", "1")
        self.rules("op=put|part key=*/data/* : status=503/SlowDown")
        job = self.ranks([1], partnered_ms=1000 * PATIENCE_S)
        self.until(lambda: job.look(0.1).steps("partnered") == {1})
        self.network.cut(2)
        self.assertEqual(self.ranks_there(1), set())
        self.rules()
        self.until(lambda: self.committed() == {1})
        self.check_bytes(1)
        told = [(self.world.root / f"uploader-{number}.log").read_text() for number in range(NODES)]
        self.assertTrue(any("partner.finishes" in log for log in told))
        self.network.mend(2)  # it hears that others have ended what it still tries to send
        job.kill()
        self.world.audit()
        self.assertEqual(self.committed(), {1})
        self.check_bytes(1)

    # ---- restores ----

    def restore(self, step=1, ranks=RANKS, nodes=NODES):
        """All ranks, on the first nodes, have a restore open, and read once `hold` is there."""
        self.hold, self.step = self.world.root / f"go-{step}", step
        self.restorers = []
        for rank in range(ranks):
            out = cases.made(self.out(rank))
            child = subprocess.Popen(
                [*self.world.within(rank % nodes), BIN / "tests/restorer", RUN, str(rank), str(ranks),
                 str(ranks // nodes)],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                env={**os.environ, "CAIRN_JOB": f"restore-{step}", "RESTORER_HOLD": str(self.hold),
                     "RESTORER_OUT": str(out), "CAIRN_SOCKET": self.world.socket(rank % nodes)})
            self.addCleanup(child.communicate)
            self.addCleanup(child.kill)
            self.restorers.append(child)
        for child in self.restorers:
            for what in ("open", "restore"):
                self.assertEqual(json.loads(line_of(child)), {what: "ok"}, self.world.logs())
        self.sizes = {key: size for key, size in self.world.keys("/data/").items() if f"/{step:012}/" in key}
        self.read_before = len(self.reads())

    def out(self, rank):
        return self.world.root / f"out-{self.step}-{rank}"

    def reads(self):
        """What the store was asked for and has sent: (object, bytes)."""
        lines = map(json.loads, self.s3.ask("journal").splitlines())
        return [(line["key"], line["bytes_out"]) for line in lines if line["op"] == "get" and "/data/" in line["key"]
                and line.get("status", 200) < 300]

    def ends(self, ranks):
        """Each of them has restored everything, byte for byte."""
        for rank in sorted(ranks):
            _, said = self.restorers[rank].communicate(timeout=PATIENCE_S)
            self.assertEqual(self.restorers[rank].returncode, 0, said + self.world.logs())
        wanted = {key.split("/data/")[1].replace("/", "_"): hashlib.sha256(stored(self.world, key)).hexdigest()
                  for key in map(self.plain, self.sizes)}
        for rank in ranks:
            got = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in self.out(rank).iterdir()}
            self.assertEqual(got, wanted, f"rank {rank}")

    def plain(self, key):
        return key.removeprefix(self.world.prefix + "/")

    def sent(self):
        """What the store has sent of each object while all that hold a restore open have ended it."""
        sent = collections.Counter()
        self.hold.touch()
        for child in self.restorers:
            child.wait(PATIENCE_S)
        for key, count in self.reads()[self.read_before:]:
            sent[key] += count
        return sent

    def copies_sent(self, step):
        """How many copies of that step the store has sent, and all that its host has, while all ranks restored it."""
        self.save(step)
        self.restore(step)
        wire_before = self.network.sent_bytes()
        sent = self.sent()
        wire = self.network.sent_bytes() - wire_before
        self.ends(range(RANKS))
        self.assertEqual(set(sent), set(self.sizes))
        whole = sum(self.sizes.values())
        twice = [key.split("/data/")[1] for key in sent if sent[key] > self.sizes[key]]
        print(f"step {step}: {sent.total() / whole:.3f} copies, {wire / whole:.3f} on the wire, twice: {twice}",
              flush=True)
        return sent.total() / whole, wire / whole

    def test_sixteen_ranks_restore_over_the_links_and_the_store_sends_one_copy(self):
        self.start("--memory-tier", "0", "--restore-cache", "512MiB")
        # A node that waits too long for another reads for itself: on a busy machine not each time tells something.
        for step in (1, 2, 3, 4):
            copies, wire = self.copies_sent(step)
            if copies < 1.1 and wire < 1.1:
                return
        self.fail(f"{copies} copies, {wire} on the wire\n{self.world.logs()}")

    def passed_by(self):
        return sum(log.read_text(errors="replace").count("peers.passed_by")
                   for log in self.world.root.glob("uploader-*.log"))

    def lose_with_its_bytes(self, step):
        """A node is cut off when it and its partner alone have what its ranks staged; it is committed all the same."""
        lost = self.of_node(NODES - 1)
        self.rules(*(f"op=put|part key=*/{step:012}/*/data/rank-{rank:05}* : status=503/SlowDown" for rank in lost))
        job = self.ranks([step], partnered_ms=1000 * PATIENCE_S)
        self.until(lambda: {rank for rank, lines in enumerate(job.look(0.1).said)
                            for line in lines if line.get("code") == "partnered"} >= lost)
        self.until(lambda: self.ranks_there(step) == set(range(RANKS)) - lost)
        self.network.cut(NODES - 1)
        self.rules()
        self.until(lambda: step in self.committed())
        job.kill()

    def test_six_ranks_restore_what_sixteen_saved_from_partner_peers_and_store_and_no_object_leaves_it_twice(self):
        self.start("--restore-cache", "512MiB", "--memory-tier-time", "120s")
        self.world.cairn("policy", "set", "p", "--partner-copies", "1")
        # A node that waits too long for another reads for itself: on a busy machine not each time tells something.
        for step in (1, 2, 3, 4):
            self.lose_with_its_bytes(step)
            passed_by = self.passed_by()
            self.restore(step, ranks=6, nodes=NODES - 1)
            self.world.wait_for_beats(10 * NODES)  # each node has heard of the others
            sent = self.sent()
            self.ends(range(6))
            self.check_bytes(step)
            twice = [key.split("/data/")[1] for key in self.sizes if sent[key] > self.sizes[key]]
            whole = sum(self.sizes.values())
            print(f"step {step}: {sent.total() / whole:.3f} copies, twice: {twice}", flush=True)
            if not twice:
                self.assertLess(sent.total(), whole)  # nodes that are left have some of it in their memory
                return
            self.assertGreater(self.passed_by(), passed_by, self.world.logs())
            self.network.mend(NODES - 1)
        self.fail(self.world.logs())

    def test_a_peer_that_is_cut_off_in_the_middle_of_a_restore_is_passed_by_and_goes_on_when_it_is_back(self):
        self.start("--memory-tier", "0")
        self.save()
        self.restore()
        # The last object that all of them want: nobody is through before the link is cut.
        self.rules(f"op=get key=*/data/rank-{RANKS - 1:05}* : status=503/SlowDown")
        self.hold.touch()
        self.until(lambda: len(self.reads()) >= self.read_before + RANKS)
        self.network.cut(3)
        self.rules()
        self.ends(set(range(RANKS)) - self.of_node(3))
        self.assertEqual({self.restorers[rank].poll() for rank in self.of_node(3)}, {None})
        self.network.mend(3)
        self.ends(self.of_node(3))


if __name__ == "__main__":
    hosts.enter()
    unittest.main(verbosity=2)
