# SPDX-License-Identifier: Apache-2.0
"""Uploaders of several nodes that pass bytes to each other."""
import contextlib
import hashlib
import hmac
import http.client
import http.server
import json
import os
import re
import select
import signal
import socket
import subprocess
import threading
import time
import unittest
import urllib.request

import cases
from s3world import BUCKET, S3Fault, S3World, signed
from world import BIN, HANG_S, Job, line_of, wait_until, World

MIB = 1 << 20
PEERS = ["--peer-listen", "127.0.0.1:0", "--heartbeat", "200ms"]


class Peer:
    """A node that shows a grant to the ports of others."""

    def __init__(self, grant, node="node-x"):
        self.grant, self.node = grant, node
        self.run, self.attempt = grant.split(":")[2:4]

    def right(self, method, path, to, span="", body=0):
        key = hmac.new(self.grant.encode(), b"cairn-peer1", hashlib.sha256).digest()
        said = f"{method}\n{path}\n{span}\n{body}\n{self.run}\n{self.attempt}\n{self.node}\n{to}\n"
        mac = hmac.new(key, said.encode(), hashlib.sha256).hexdigest()
        return f"Cairn-Peer {self.run}:{self.attempt}:{self.node}:{mac}"

    def proof(self, status, size, headers):
        """What an answer to this request must carry to be believed."""
        key = hmac.new(self.grant.encode(), b"cairn-peer1", hashlib.sha256).digest()
        said = f"answer\n{status}\n{size}\n{headers['Cairn-Nonce']}\n{headers['Authorization'].rpartition(':')[2]}\n"
        return hmac.new(key, said.encode(), hashlib.sha256).hexdigest()

    def ask(self, address, to, path, span="", right=None):
        """(status, headers, body) of one GET."""
        connection = http.client.HTTPConnection(address, timeout=HANG_S)
        headers = {"Authorization": right or self.right("GET", path, to, span)}
        if span:
            headers["Range"] = span
        try:
            connection.request("GET", path, headers=headers)
            reply = connection.getresponse()
            return reply.status, dict(reply.headers), reply.read()
        finally:
            connection.close()


def told_address(world, node):
    """Where a node is asked, as the server shows it; None: nothing was told."""
    items = world.read("/v1/nodes")["items"]
    return next((item["uploader"].get("peer") for item in items if item["node"] == node), None)


def grant_of(world, number):
    """The newest that an uploader holds; it stands in its journal."""
    text = (world.root / f"uploader-{number}" / f"node-{number}.journal").read_bytes()
    return re.findall(rb"cairn1:[0-9a-f-]+:[^:\"]+:\d+:[0-9a-f]+:[0-9a-f]{64}", text)[-1].decode()


def metric(world, number, name):
    """A counter of an uploader, without labels."""
    log = (world.root / f"uploader-{number}.log").read_text(errors="replace")
    port = re.findall(r"metrics.listening .*?port=(\d+)", log)[-1]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=HANG_S) as reply:
        found = re.search(rf"^cairn_{name} (\d+)$", reply.read().decode(), re.MULTILINE)
    return int(found.group(1)) if found else 0


class Port(unittest.TestCase):
    def test_the_port_serves_who_holds_the_grant_and_nobody_else(self):
        world = World(nodes=2, uploader_arguments=[*PEERS, "--peer-connections", "4"], case=self)
        hold = world.root / "hold"
        job = Job(world, "one", 2, [1], hold=hold)
        self.addCleanup(job.kill)
        job.first_lines()
        wait_until(lambda: told_address(world, "node-1"), 20)
        address = told_address(world, "node-1")
        peer, path = Peer(grant_of(world, 1)), "/v1/nothing"
        wait_until(lambda: peer.ask(address, "node-1", path)[0] == 404, 20)
        self.assertEqual(peer.ask(address, "node-0", path)[0], 403)  # meant for another
        self.assertEqual(peer.ask(address, "node-1", path, "bytes=0-1",
                                  peer.right("GET", path, "node-1", "bytes=0-2"))[0], 403)
        stranger = Peer(peer.grant[:-1] + ("0" if peer.grant[-1] != "0" else "1"))
        status, _, body = stranger.ask(address, "node-1", path)
        self.assertEqual((status, json.loads(body)), (403, {"code": "forbidden"}))
        for _ in range(50):
            self.assertEqual(peer.ask(address, "node-1", path, right="Bearer x")[0], 401)
        self.assertLessEqual((world.root / "uploader-1.log").read_text().count("no right is shown"), 1)
        self.assertIn("peers.refused", world.uploaders[1].tail())
        (world.root / "hold.1").touch()
        job.succeeds()
        # The attempt is over on this node, and soon with it the right to ask for anything.
        wait_until(lambda: peer.ask(address, "node-1", path)[0] == 403, 60)

    def test_another_address_is_told_where_one_is_set(self):
        world = World(uploader_arguments=["--peer-listen", "0.0.0.0:0", "--heartbeat", "200ms",
                                          "--peer-advertise", "node-0.example:7421"], case=self)
        Job(world, "one", 1, [1]).succeeds()
        wait_until(lambda: told_address(world, "node-0") == "node-0.example:7421", 20)

    def test_an_address_of_all_interfaces_needs_another_one_to_tell(self):
        with self.assertRaisesRegex(AssertionError, "set peer_advertise"):
            World(uploader_arguments=["--peer-listen", "0.0.0.0:0"])


class Restoring(unittest.TestCase):
    """Ranks on some nodes restore what one node has saved, while the store counts its bytes."""

    def start(self, nodes, ranks_per_node=1, rows=24, arguments=(), s3_arguments=(), peers=PEERS, saved_by=1):
        folder = cases.folder(self)
        self.s3 = S3Fault(folder, s3_arguments, case=self)
        self.world = S3World(self.s3, nodes=nodes, debug=False,
                             uploader_arguments=["--metrics-listen", "127.0.0.1:0", "--memory-tier", "0",
                                                     *peers, *arguments], case=self)
        self.ranks, self.per_node = nodes * ranks_per_node, ranks_per_node
        for status, _, said in Job(self.world, "first", saved_by, [1], run="p/run", rows=rows).end():
            self.assertEqual(status, 0, said)
        self.hold = folder / "go"
        self.children = []
        self.addCleanup(self.end_children)

    def begin(self, more_ranks=0, holds=None, **env):
        """All ranks hold the attempt and have the restore open; `holds`: what some wait for, by rank."""
        world_size = self.ranks + more_ranks
        for rank in range(self.ranks):
            out = self.world.root / f"out-{rank}"
            out.mkdir(exist_ok=True)
            self.children.append(subprocess.Popen(
                [BIN / "tests/restorer", "p/run", str(rank), str(world_size), str(self.per_node)],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                env={**os.environ, "CAIRN_JOB": "second", "RESTORER_HOLD": str((holds or {}).get(rank, self.hold)),
                     "RESTORER_OUT": str(out), "RESTORER_SLICE": "16",
                     "CAIRN_SOCKET": self.world.socket(rank // self.per_node), **env}))
        for child in self.children:
            for what in ("open", "restore"):
                line = line_of(child)
                self.assertEqual(line.strip(), json.dumps({what: "ok"}).replace(" ", ""), self.world.logs())
        self.before = self.sent_shards()

    def end_children(self):
        for child in self.children:
            child.kill()
            child.communicate()

    def take_away(self):
        """The last rank goes with its node."""
        self.ranks -= 1
        child = self.children.pop()
        child.kill()
        child.communicate()

    def end(self):
        """What each rank says; all have the same bytes as the store."""
        self.hold.touch()
        said = []
        for child in self.children:
            out, err = child.communicate(timeout=HANG_S)
            self.assertEqual(child.returncode, 0, err + self.world.logs())
            said.append(json.loads(out.splitlines()[-1]))
        self.sent = self.sent_shards() - self.before
        whole = self.wanted()
        for rank in range(self.ranks):
            files = sorted((self.world.root / f"out-{rank}").iterdir())
            self.assertEqual(sorted(hashlib.sha256(file.read_bytes()).hexdigest() for file in files), whole)
        return said

    def wanted(self):
        """The shards as they lie in the store."""
        return sorted(hashlib.sha256(signed(self.s3.env(), f"/{BUCKET}/{key}")).hexdigest()
                      for key in self.world.keys("/data/"))

    def told(self):
        """How nodes have restored it, as the server was told."""
        status, _, body = self.world.get("/v1/runs/p/run/checkpoints/1/why")
        self.assertEqual(status, 200, body)
        return json.loads(body)["restores"]

    def sent_shards(self):
        """Body bytes of shards that the store has sent in answer to GET."""
        lines = [json.loads(line) for line in self.s3.ask("journal").splitlines()]
        return sum(line["bytes_out"] for line in lines if line["op"] == "get" and "/data/" in line["key"])

    def test_ranks_of_one_node_that_want_the_same_cause_one_read(self):
        self.start(nodes=1, ranks_per_node=8, peers=[], s3_arguments=["--cap-all-bytes-per-s", "100MB"])
        self.begin()
        total = self.end()[0]["bytes"]
        self.assertEqual(self.sent, total)
        self.assertGreaterEqual(metric(self.world, 0, "restore_shared_bytes_total"), 7 * total - 14 * MIB)

    def test_ranks_share_in_a_memory_that_is_far_smaller_than_what_they_want(self):
        self.start(nodes=1, ranks_per_node=4, rows=96, peers=[], arguments=["--restore-cache", "32MiB"],
                   s3_arguments=["--cap-all-bytes-per-s", "100MB"])
        self.begin()
        total = self.end()[0]["bytes"]
        self.assertLessEqual(self.sent, 1.05 * total)

    def test_four_nodes_divide_the_store_and_read_each_byte_once(self):
        self.start(nodes=4, rows=96, s3_arguments=["--cap-all-bytes-per-s", "100MB"])
        self.begin()
        total = self.end()[0]["bytes"]
        sent = self.sent
        self.assertLessEqual(sent, 1.02 * total)
        self.assertGreaterEqual(sent, total)
        read = [metric(self.world, node, "restore_bytes_total") for node in range(4)]
        self.assertEqual(sum(read), sent)
        # Each its share of twelve pieces, as the version's number has it: seven of them fall to one
        # node of four in one of seventeen versions, eleven in one of a hundred thousand.
        self.assertLess(max(read), 0.9 * total, read)
        got = sum(metric(self.world, node, "restore_peer_bytes_total") for node in range(4))
        self.assertEqual(got, 4 * total - sent)
        wait_until(lambda: sum(told["peer_bytes"] for told in self.told()) == got, 20)
        for told in self.told():
            self.assertEqual(told["store_bytes"], read[int(told["node"].split("-")[1])])
            self.assertIn("divided among the nodes", told["choice"])
        shown = self.world.cairn("show", "p/run@1", "--why").stdout
        self.assertIn("restored on node node-3:", shown)
        self.assertIn("from other nodes", shown)

    def test_a_node_that_is_asked_for_more_than_it_can_send_at_once_refuses_nobody(self):
        self.start(nodes=4, rows=200, arguments=["--restore-cache", "64MiB"],
                   s3_arguments=["--cap-all-bytes-per-s", "100MB"])
        self.begin()
        self.end()
        self.assertNotIn("answers 503", self.world.logs())

    def test_what_a_node_that_was_through_had_read_is_not_read_again_for_one_whose_ranks_are_late(self):
        self.start(nodes=2, rows=96, arguments=["--peer-restore", "on"])
        late = self.hold.with_name("late")
        self.begin(holds={1: late})
        self.hold.touch()
        total = json.loads(self.children[0].communicate(timeout=HANG_S)[0].splitlines()[-1])["bytes"]
        # The first has gone; what it read is still there, and so is what the other read for it.
        read = [metric(self.world, node, "restore_bytes_total") for node in range(2)]
        self.assertGreater(min(read), 0)
        late.touch()
        self.end()
        if "peers.passed_by" in self.world.logs():
            self.skipTest("this machine let a node wait for another for two seconds; the store was asked again")
        self.assertEqual([metric(self.world, node, "restore_bytes_total") for node in range(2)], read)
        self.assertEqual(self.sent, total)

    def test_without_division_each_node_reads_all(self):
        self.start(nodes=2, arguments=["--peer-restore", "off"])
        self.begin()
        total = self.end()[0]["bytes"]
        self.assertEqual(self.sent, 2 * total)
        wait_until(lambda: [told["store_bytes"] for told in self.told()] == [total, total], 20)
        self.assertIn("peer_restore is off", self.told()[0]["choice"])

    def test_nodes_that_want_different_bytes_stop_dividing_them(self):
        self.start(nodes=2, rows=300, saved_by=2, s3_arguments=["--cap-all-bytes-per-s", "60MB"])
        self.begin(RESTORER_SHARDS="own")
        self.hold.touch()
        for child in self.children:
            out, err = child.communicate(timeout=HANG_S)
            self.assertEqual(child.returncode, 0, err)
        self.assertIn("the nodes want different bytes", self.world.logs())

    def pose(self, serve):
        """A further node of the attempt, whose port is `serve`: a handler of GET."""
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                serve(self)

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.handle_error = lambda *_: None  # the uploader has gone
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        opened = self.world.send("POST", "/v1/runs/p/run/attempts", {
            "job": "second", "world_size": self.ranks + 1, "after": 2, "node": "node-x",
            "ranks": [{"rank": self.ranks, "proc": "posed"}]})
        self.posed = Peer(opened["grant"])
        self.world.send("PUT", "/v1/nodes/node-x", {
            "uploader": {"version": "1", "peer": f"127.0.0.1:{server.server_port}"},
            "attempts": [{"grant": opened["grant"], "unsent": 0}]})

    def test_nodes_that_ask_for_a_version_that_is_not_loaded_delay_no_trainer(self):
        self.start(nodes=1, rows=2)
        job = Job(self.world, "second", 1, [2], run="p/run", hold=self.world.root / "hold")
        self.addCleanup(job.kill)
        job.first_lines()
        wait_until(lambda: told_address(self.world, "node-0"), 20)
        address, peer = told_address(self.world, "node-0"), Peer(grant_of(self.world, 0))
        wait_until(lambda: peer.ask(address, "node-0", "/v1/nothing")[0] == 404, 20)
        version = self.world.version("p/run", "1")["version"]
        self.s3.rules("op=get key=*/p/run/* : status=503/SlowDown")
        path, span, asking = f"/v1/restore/1/{version}/0", f"bytes=0-{MIB - 1}", []
        for _ in range(60):  # more than there are helpers
            host, port = address.split(":")
            asking.append(socket.create_connection((host, int(port)), timeout=HANG_S))
            self.addCleanup(asking[-1].close)
            asking[-1].sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nRange: {span}\r\nAuthorization: "
                               f"{peer.right('GET', path, 'node-0', span)}\r\n\r\n".encode())
        for each in asking:
            self.assertIn(b" 102 ", each.recv(100))  # it is being looked for
        other = Job(self.world, "third", 1, [1], run="q/run")
        self.addCleanup(other.kill)
        self.assertTrue(select.select([other.processes[0].stdout], [], [], 20)[0], "the open waits for them")
        self.s3.rules("")
        for each in asking:
            said = b""
            while b" 206 " not in said:
                said += each.recv(65536) or self.fail(said)
        other.succeeds()

    def test_bytes_of_a_peer_that_do_not_match_their_checksums_are_read_from_the_store(self):
        asked = []

        def lie(handler):
            first, last = map(int, handler.headers["Range"][6:].split("-"))
            asked.append(handler.path)
            handler.send_response(206)
            handler.send_header("Content-Length", str(last - first + 1))
            handler.send_header("Cairn-Answer", self.posed.proof(206, last - first + 1, handler.headers))
            handler.end_headers()
            handler.wfile.write(b"x" * (last - first + 1))

        self.start(nodes=2, rows=96, s3_arguments=["--cap-all-bytes-per-s", "60MB"])
        self.begin(more_ranks=1)
        self.pose(lie)
        self.world.wait_for_beats(10)  # each node has heard of it
        self.end()
        self.assertTrue(asked)
        self.assertIn("peers.wrong_bytes", self.world.logs())
        self.assertLess(len(asked), 40)  # it is left alone after the first

    def test_a_peer_that_says_nothing_costs_two_seconds_and_is_left_alone(self):
        waits = []

        def say_nothing(handler):
            since = time.monotonic()
            handler.connection.settimeout(60)
            with contextlib.suppress(OSError):
                handler.connection.recv(1)  # until who asks hangs up
            waits.append(time.monotonic() - since)
            handler.close_connection = True

        self.start(nodes=2, rows=96)
        self.begin(more_ranks=1)
        self.pose(say_nothing)
        self.world.wait_for_beats(10)  # each node has heard of it
        self.end()
        self.assertIn("peers.passed_by", self.world.logs())
        self.assertGreater(sum(metric(self.world, node, "peers_passed_by_total") for node in range(2)), 0)
        # A busy machine makes waits longer, and none of them shorter.
        self.assertLess(min(waits), 4, waits)
        self.assertLess(len(waits), 40)

    def test_a_node_that_is_killed_in_the_middle_is_passed_by(self):
        self.start(nodes=3, rows=96, s3_arguments=["--cap-all-bytes-per-s", "15MB"])
        self.begin()
        self.hold.touch()
        wait_until(lambda: metric(self.world, 0, "restore_peer_bytes_total") > 8 * MIB, 30)
        self.world.uploaders[2].kill()
        self.take_away()
        self.end()
        self.assertIn("peers.passed_by", self.world.logs())

    def test_a_node_that_stops_in_the_middle_is_passed_by_within_two_seconds(self):
        self.start(nodes=3, rows=96, s3_arguments=["--cap-all-bytes-per-s", "30MB"])
        self.begin()
        self.hold.touch()
        wait_until(lambda: metric(self.world, 0, "restore_peer_bytes_total") > 8 * MIB, 30)
        self.world.uploaders[2].process.send_signal(signal.SIGSTOP)
        self.addCleanup(self.world.uploaders[2].process.send_signal, signal.SIGCONT)
        self.take_away()
        self.end()
        self.assertIn("peers.passed_by", self.world.logs())


if __name__ == "__main__":
    unittest.main()
