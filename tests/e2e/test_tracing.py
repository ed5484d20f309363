# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
"""traceparent (W3C Trace Context) from the command, other clients and uploaders to the server's log."""
import json
import re
import socket
import unittest

from world import HANG_S, wait_until, World

ID, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED, QUIET = f"00-{ID}-{PARENT}-01", f"00-{ID}-{PARENT}-00"
RUN = "llm/traced"


class Tracing(unittest.TestCase):
    def start(self, level):
        self.world = World(server_arguments=["--log-level", level], case=self)

    def log(self):
        return (self.world.root / "server.log").read_text()

    def lines(self, pattern):
        return [line for line in self.log().splitlines() if re.search(pattern, line)]

    def put(self, **arguments):
        (self.world.root / "one").mkdir(exist_ok=True)
        (self.world.root / "one" / "bytes").write_bytes(b"7" * 100_000)
        return self.world.cairn("put", self.world.root / "one", f"{RUN}@5", **arguments)

    def test_each_request_has_a_line_with_its_trace_at_info_where_the_caller_samples_it(self):
        self.start("info")
        self.world.get("/v1/runs", headers={"traceparent": QUIET})
        self.world.get("/version", headers={"traceparent": SAMPLED})
        lines = wait_until(lambda: self.lines("http.answered"))
        self.assertEqual(len(lines), 1)
        self.assertRegex(lines[0], f" INFO http.answered trace={ID} route=version path=/version "
                                   r"status=200 from=127.0.0.1 took_us=\d+$")

    def test_a_problem_names_the_trace_and_only_where_there_is_one(self):
        self.start("debug")
        for headers, trace in (({"traceparent": QUIET}, ID), ({}, None), ({"traceparent": QUIET[:-1]}, None)):
            status, _, body = self.world.get("/v1/runs/no/such", headers=headers)
            self.assertEqual((status, json.loads(body).get("trace_id")), (404, trace))
        self.assertRegex(self.log(), f" DEBUG http.refused trace={ID} path=/v1/runs/no/such ")

    def test_a_traceparent_that_is_none_or_comes_twice_fails_nothing_and_is_ignored(self):
        self.start("debug")
        for lines in ([f"traceparent: {bad}"] for bad in
                      ("x", QUIET.upper(), "ff" + QUIET[2:], f"00-{'0' * 32}-{PARENT}-01",
                       QUIET + "-more", "00-" + "a" * 400)):
            self.assertIn(b" 200 ", self.raw(lines).split(b"\r\n")[0])
        self.assertIn(b" 200 ", self.raw([f"traceparent: {QUIET}", f"Traceparent: {QUIET}"]))
        self.assertEqual(self.lines("http.answered trace="), [])
        self.assertIn(b" 200 ", self.raw([f"TraceParent: {QUIET}"]))
        self.assertEqual(len(wait_until(lambda: self.lines(f"http.answered trace={ID}"))), 1)

    def raw(self, headers):
        with socket.create_connection(("127.0.0.1", self.world.port), timeout=HANG_S) as caller:
            head = "\r\n".join(["GET /livez HTTP/1.1", "Host: localhost", "Connection: close", *headers])
            caller.sendall(f"{head}\r\n\r\n".encode())
            found = b""
            while piece := caller.recv(65536):
                found += piece
        return found

    def test_the_command_passes_on_what_it_was_started_for_and_else_has_a_trace_of_its_own(self):
        self.start("debug")
        self.world.cairn("ls", env={"TRACEPARENT": SAMPLED})
        self.assertTrue(self.lines(f" INFO http.answered trace={ID} route=run_list "))
        self.world.cairn("nodes", env={"TRACEPARENT": "no such thing"})
        self.world.cairn("nodes")
        own = {re.search(r"trace=(\w+)", line)[1]
               for line in self.lines(" DEBUG http.answered trace=.* route=node_list ")}
        self.assertEqual(len(own), 2)
        self.assertNotIn(ID, own)

    def test_what_uploaders_tell_of_a_version_bears_its_id_as_trace(self):
        self.start("debug")
        self.put()
        version = self.world.version(RUN)["version"]
        trace = version.removeprefix("ckpt_").replace("-", "")
        for route in ("checkpoint_begin", "shard_register"):
            self.assertTrue(self.lines(f"http.answered trace={trace} route={route} "), route)

    def test_a_save_goes_with_the_trace_of_who_began_it_also_over_a_restart_of_its_uploader(self):
        self.start("debug")
        routes = ("checkpoint_begin", "shard_register", "checkpoint_get")
        self.put(env={"TRACEPARENT": SAMPLED})
        for route in routes:
            self.assertTrue(self.lines(f" INFO http.answered trace={ID} route={route} "), route)
        version = self.world.version(RUN)["version"].removeprefix("ckpt_").replace("-", "")
        self.assertEqual(self.lines(f"trace={version} "), [])
        uploader, other = self.world.uploaders[0], ID[::-1]
        uploader.stop()
        uploader.env = {**(self.world.env or {}), "CAIRN_CRASH_AT": "uploader.shards.before_told:1:kill"}
        uploader.start()
        self.world.cairn("put", self.world.root / "one", f"{RUN}@6", "--detach",
                         env={"TRACEPARENT": SAMPLED.replace(ID, other)})
        uploader.process.wait(HANG_S)
        told = f" INFO http.answered trace={other} route=(fail|shard_register) "  # by what the store had at that moment
        self.assertEqual(self.lines(told), [])
        uploader.env = self.world.env
        uploader.start()
        wait_until(lambda: self.lines(told))


if __name__ == "__main__":
    unittest.main()
