# SPDX-License-Identifier: Apache-2.0
"""What a node takes of another one to keep, request by request, and what the server makes of copies (Q57)."""
import base64
import hashlib
import http.client
import json
import os
import struct
import threading
import time
import unittest
import uuid

from history_clients import crc32c
from test_partner import KEEPS, MIB, NODE, RUN, SERVER
from test_peers import Peer, grant_of, told_address
from world import HANG_S, Job, wait_until, World


class Keeping(Peer):
    """A node that gives a copy by hand, of two small shards."""

    SHARDS = (bytes(range(250)) * 20, b"seven bytes" * 3)

    def __init__(self, grant, address, to, node="node-x"):
        super().__init__(grant, node)
        self.address, self.to = address, to
        project, run = self.run.split("/")
        nonce = grant.split(":")[4]
        digest = bytearray(hashlib.sha256(
            f"cairn-version-1\n{project}\n{run}\n{self.attempt}\n{nonce}\n7\n1\n".encode())
            .digest()[:16])
        digest[6], digest[8] = digest[6] & 0x0F | 0x80, digest[8] & 0x3F | 0x80
        self.version = f"ckpt_{uuid.UUID(bytes=bytes(digest))}"

    def head(self, **changes):
        said = {"uploader": str(uuid.uuid4()), "proc": str(uuid.uuid4()),
                "begin": {"step": 7, "n": 1, "rank": 1, "world_size": 2, "on_exists": "error",
                          "skip": False, "format": ""},
                "shards": [{"name": f"rank-00001/{place}", "tensors": False, "bytes": len(shard),
                            "token": str(uuid.uuid4()), "part_bytes": 8 * MIB,
                            "blocks": base64.b64encode(struct.pack("<I", crc32c(shard))).decode()}
                           for place, shard in enumerate(self.SHARDS)], **changes}
        return json.dumps(said).encode()

    def put(self, tail, body=b"", right=None, rank=1):
        path = f"/v1/copies/{self.version}/{rank}/{tail}"
        connection = http.client.HTTPConnection(self.address, timeout=HANG_S)
        headers = {"Authorization": right or self.right("PUT", path, self.to, body=len(body)),
                   "Content-Length": str(len(body))}
        try:
            connection.request("PUT", path, body=body, headers=headers)
            return connection.getresponse().status
        finally:
            connection.close()

    def describe(self, head, **options):
        return self.put(hashlib.sha256(head).hexdigest(), head, **options)


class Pieces(unittest.TestCase):
    """What a keeper takes, and from whom."""

    def setUp(self):
        self.world = World(nodes=2, server_arguments=SERVER,
                           uploader_arguments=[*NODE, "--partner-memory", "8MiB"], case=self)
        self.job = Job(self.world, "one", 2, [1], run=RUN, hold=self.world.root / "hold")
        self.addCleanup(self.job.kill)
        self.job.first_lines()
        wait_until(lambda: told_address(self.world, "node-1"), 20)
        self.grant, self.address = grant_of(self.world, 1), told_address(self.world, "node-1")
        self.giver = Keeping(self.grant, self.address, "node-1")
        wait_until(lambda: self.giver.put("whole") == 404, 20)

    def test_a_copy_is_whole_when_every_piece_was_compared(self):
        giver = self.giver
        head = giver.head()
        self.assertEqual(giver.describe(head), 200)
        self.assertEqual(giver.describe(head), 200)  # the same again
        self.assertEqual(giver.put("0/0", giver.SHARDS[0]), 200)
        self.assertEqual(giver.put("whole"), 409)
        self.assertEqual(giver.put("1/0", b"x" * len(giver.SHARDS[1])), 502)
        self.assertEqual(giver.put("whole"), 409)
        self.assertEqual(giver.put("finish"), 409)
        self.assertEqual(giver.put("1/0", giver.SHARDS[1]), 200)
        self.assertEqual(giver.put("whole"), 200)
        self.assertEqual(giver.describe(giver.head(shards=[])), 409)  # another one
        self.assertEqual(giver.put("whole"), 200)
        self.assertEqual(giver.put("finish"), 200)
        again = giver.head(shards=json.loads(head)["shards"])
        self.assertEqual(giver.describe(again), 200)  # of a process that came later: it is being sent so
        self.assertEqual(giver.put("whole"), 200)
        self.assertEqual(giver.describe(giver.head()), 409)  # and under no other tokens
        # Its save is begun at the server as if this node's rank had staged it.
        self.assertEqual(wait_until(lambda: self.world.version(RUN, giver.version), 20)["step"], 7)

    def test_a_node_that_describes_the_same_bytes_anew_need_not_send_them_again(self):
        giver, shards = self.giver, [os.urandom(5 * MIB), b"last"]  # two of them have no room

        def head(first=shards[0], name="rank-00001/0"):
            said = []
            for place, shard in ((name, first), ("rank-00001/1", shards[1])):
                blocks = [struct.pack("<I", crc32c(shard[at:at + MIB])) for at in range(0, len(shard), MIB)]
                said.append({"name": place, "tensors": False, "bytes": len(shard), "token": str(uuid.uuid4()),
                             "part_bytes": 8 * MIB, "blocks": base64.b64encode(b"".join(blocks)).decode()})
            return giver.head(shards=said)
        self.assertEqual(giver.describe(head()), 200)
        self.assertEqual(giver.describe(head()), 200)
        self.assertEqual(giver.put("0/0", shards[0]), 200)
        self.assertEqual(giver.describe(head()), 200)  # a process that came later
        self.assertEqual(giver.describe(head(name="rank-00001/x")), 503)
        self.assertEqual(giver.describe(head(first=shards[0][::-1])), 503)
        self.assertEqual(Keeping(self.grant, self.address, "node-1", node="node-y").describe(head()), 503)
        self.assertEqual(giver.put("whole"), 409)
        self.assertEqual(giver.put("1/0", shards[1]), 200)
        self.assertEqual(giver.put("whole"), 200)

    def test_a_copy_is_written_and_handed_over_by_its_own_node_alone(self):
        giver, other = self.giver, Keeping(self.grant, self.address, "node-1", node="node-y")
        self.assertEqual(giver.describe(giver.head()), 200)
        for place, shard in enumerate(giver.SHARDS):
            self.assertEqual(other.put(f"{place}/0", shard), 404)
            self.assertEqual(giver.put(f"{place}/0", shard), 200)
        self.assertEqual(other.put("whole"), 404)
        self.assertEqual(other.put("finish"), 404)
        self.assertEqual(giver.put("finish"), 200)
        self.assertEqual(other.put("finish"), 404)  # also while this node sends it
        stranger = Keeping(self.grant[:-1] + ("0" if self.grant[-1] != "0" else "1"), self.address, "node-1")
        self.assertEqual(stranger.describe(stranger.head()), 403)

    def test_what_is_described_wrongly_or_does_not_fit_is_refused_before_its_bytes(self):
        giver = self.giver
        self.assertEqual(giver.put("0" * 64, giver.head()), 502)  # not the digest of the path
        self.assertEqual(giver.describe(giver.head(), rank=0), 400)
        self.assertEqual(giver.describe(b"{}"), 400)
        shard = {"name": "rank-00001/0", "tensors": False, "bytes": 8 * MIB, "token": str(uuid.uuid4()),
                 "part_bytes": 8 * MIB, "blocks": base64.b64encode(bytes(32)).decode()}
        self.assertEqual(giver.describe(giver.head(shards=[shard])), 503)
        for wrong in ({"blocks": ""}, {"token": "x"}, {"part_bytes": 0}, {"name": "/"},
                      {"bytes": 1 << 61}, {"part_bytes": 1}, {"part_bytes": 8 * MIB + 1}):
            self.assertEqual(giver.describe(giver.head(shards=[{**shard, **wrong}])), 400, wrong)
        many = {"bytes": 10001 * MIB, "blocks": base64.b64encode(bytes(4 * 10001)).decode()}
        self.assertEqual(giver.describe(giver.head(shards=[{**shard, **many}])), 503)
        self.assertEqual(giver.describe(giver.head(shards=[{**shard, **many, "part_bytes": MIB}])), 413)
        self.assertEqual(giver.describe(giver.head()), 200)
        for tail in ("2/0", "0/8388608", "0/1", "x/0"):
            self.assertEqual(giver.put(tail, giver.SHARDS[0]), 400, tail)
        self.assertEqual(giver.put("0/0", b"short"), 400)


class Told(unittest.TestCase):
    """What the server makes of copies that a heartbeat names."""

    def beat(self, copies):
        body = {"uploader": {"version": "1"}, "versions": [],
                "attempts": [{"grant": self.grant, "unsent": 0, "copies": copies}]}
        return self.world.send("PUT", "/v1/nodes/node-0", body)

    def open(self, job, most_s):
        """How long a new attempt waits, which may wait for so long."""
        body = {"job": job, "world_size": 1, "node": "node-9", "resume": "none", "after": self.after,
                "wait_staged_ms": 1000 * most_s, "ranks": [{"rank": 0, "proc": str(uuid.uuid4())}]}
        since = time.monotonic()
        self.world.send("POST", f"/v1/runs/{RUN}/attempts", body)
        return time.monotonic() - since

    def test_copies_whose_seal_is_not_known_are_waited_for(self):
        self.world, self.after = World(server_arguments=SERVER, uploader_arguments=KEEPS), 1
        self.addCleanup(self.world.close)
        job = Job(self.world, "one", 1, [1], run=RUN, hold=self.world.root / "hold")
        self.addCleanup(job.kill)
        job.first_lines()
        self.grant = grant_of(self.world, 0)
        self.world.uploaders[0].kill()  # from here on this test is its node
        giver = Keeping(self.grant, "", "")
        copies = [{"version": giver.version, "rank": 1, "node": "node-7", "uploader": str(uuid.uuid4())}]
        told = self.beat(copies)
        self.assertEqual(told["finish"], [{"version": giver.version, "rank": 1}])  # it has no row
        self.assertEqual(self.beat([])["finish"], [])
        over = threading.Event()
        saying = [copies]

        def beat_on():
            while not over.wait(0.2):
                self.beat(saying[0])
        self.beat(copies)  # said before it is asked about
        thread = threading.Thread(target=beat_on)
        thread.start()
        try:
            self.assertGreater(self.open("two", 3), 2.5)
            saying[0], self.after = [], 2
            self.assertLess(self.open("three", 60), 60)
        finally:
            over.set()
            thread.join()


if __name__ == "__main__":
    unittest.main()
