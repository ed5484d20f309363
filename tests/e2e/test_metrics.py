# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
"""GET /metrics of server and uploader: the text format, the families of docs/metrics.md with their
types and labels, and numbers that are those of what was done."""
import contextlib
import json
import os
import pathlib
import re
import socket
import subprocess
import time
import unittest

import cases
import exposition
from s3world import S3Fault, S3World
from world import BIN, HANG_S, line_of, wait_until, World

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "metrics.md"
RUN = "llm/metrics"


def documented(program):
    """{name: (kind, labels)} of one table of the page."""
    block = re.search(f"<!-- begin {program} -->(.*?)<!-- end {program} -->", PAGE.read_text(), re.S)[1]
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*?) \|", block, re.M)
    return {name: (kind, tuple(sorted(re.findall(r"`(\w+)`", labels)))) for name, kind, labels in rows}


class Scraped(unittest.TestCase):
    tier = "64TiB"

    def setUp(self):
        self.world = World(uploader_arguments=["--metrics-listen", "127.0.0.1:0", "--memory-tier", self.tier], case=self)
        log = (self.world.root / "uploader-0.log").read_text()
        port = int(re.search(r" metrics.listening .*port=(\d+)", log)[1])
        self.uploader_url = f"http://127.0.0.1:{port}"

    def scrape(self, url):
        status, headers, body = self.world.get_from(url, "/metrics")
        self.assertEqual(status, 200)
        self.assertEqual(headers["Content-Type"], "text/plain; version=0.0.4; charset=utf-8")
        return body.decode()

    def server(self):
        return exposition.parse(self.scrape(self.world.url))

    def uploader(self):
        return exposition.parse(self.scrape(self.uploader_url))

    def save_and_restore(self):
        self.size = 3_000_000
        (self.world.root / "one").mkdir()
        (self.world.root / "one" / "bytes").write_bytes(b"7" * self.size)
        self.world.cairn("put", self.world.root / "one", f"{RUN}@5")
        self.world.cairn("get", f"{RUN}@5", "-d", self.world.root / "again")

    def save_and_restore_by_ranks(self, in_memory=False):
        before = self.uploader()
        self.assertEqual(before["cairn_restore_bytes_total"].value(), 0)
        self.assertEqual(before["cairn_restore_memory_bytes_total"].value(), 0)
        self.world.cairn("bench", "save", RUN, "--ranks", "2", "--bytes", "20MiB", "--steps", "1")
        stored = self.world.version(RUN)["bytes"]
        if in_memory:  # a rank hears that its save is committed before its slab is free and kept
            wait_until(lambda: self.uploader()["cairn_kept_bytes"].value() == stored)
        self.world.cairn("bench", "restore", RUN, "--ranks", "2", "--bytes", "20MiB", "--steps", "2")
        self.assertGreater(stored, 40 << 20)
        return stored, self.uploader()

    def restorer(self, job, **environment):
        """One rank that has its restore open, and reads once the hold is there."""
        child = subprocess.Popen(
            [BIN / "tests/restorer", RUN, "0", "1", "1"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={**os.environ, "CAIRN_JOB": job, "RESTORER_HOLD": str(self.world.root / "hold"),
                 "CAIRN_RESUME": "latest", "CAIRN_SOCKET": self.world.socket(), **environment})
        self.addCleanup(child.communicate)
        self.addCleanup(child.kill)
        for what in ("open", "restore"):
            self.assertEqual(json.loads(line_of(child)), {what: "ok"}, self.world.logs())
        return child


class Metrics(Scraped):
    def test_the_families_types_and_labels_are_those_of_the_page(self):
        self.save_and_restore()
        for program, families in (("server", self.server()), ("uploader", self.uploader())):
            page = documented(program)
            self.assertEqual({name: one.kind for name, one in families.items()},
                             {name: kind for name, (kind, _) in page.items()})
            for name, one in families.items():
                if one.samples:
                    self.assertEqual(one.label_names(), page[name][1], name)

    def test_prometheus_own_parser_reads_the_same_samples(self):
        try:
            from prometheus_client.parser import text_string_to_metric_families
        except ImportError:
            self.skipTest("prometheus_client is not installed")
        self.save_and_restore()
        for text in (self.scrape(self.world.url), self.scrape(self.uploader_url)):
            theirs = {(sample.name, tuple(sorted(sample.labels.items()))): sample.value
                      for family in text_string_to_metric_families(text)
                      for sample in family.samples}
            ours = {(one.name + suffix, labels): value
                    for one in exposition.parse(text).values()
                    for (suffix, labels), value in one.samples.items()}
            self.assertEqual(theirs, ours)
            self.assertTrue(ours)

    def test_a_save_and_a_restore_are_counted_by_the_uploader(self):
        self.save_and_restore()
        ended = wait_until(lambda: (found := self.uploader())[
            "cairn_save_duration_seconds"].value("_count", end="committed") and found)
        self.assertEqual(ended["cairn_save_duration_seconds"].value("_count", end="committed"), 1)
        self.assertEqual(ended["cairn_save_stall_seconds"].value("_count"), 1)
        self.assertGreaterEqual(ended["cairn_upload_bytes_total"].value(), self.size)
        self.assertGreaterEqual(ended["cairn_upload_part_duration_seconds"].value("_count", code="ok"), 1)
        self.assertEqual(ended["cairn_inflight_bytes"].value(), 0)
        self.assertEqual(ended["cairn_queue_depth"].value(), 0)
        self.assertEqual(ended["cairn_store_errors_total"].total(), 0)
        self.assertEqual(ended["cairn_memory_budget_bytes"].value(), 2 << 30)

    def test_what_ranks_restore_from_memory_is_counted_apart(self):
        stored, after = self.save_and_restore_by_ranks(in_memory=True)
        self.assertEqual(after["cairn_restore_memory_bytes_total"].value(), 2 * stored)
        self.assertEqual(after["cairn_restore_bytes_total"].value(), 0)
        # Straight into each rank's window, but for the blocks of which a window takes a part.
        self.assertLess(after["cairn_restore_cached_bytes_total"].value(), stored / 5)
        self.assertEqual(after["cairn_kept_bytes"].value(), stored)
        self.assertGreaterEqual(after["cairn_slab_bytes"].value(state="kept"), stored)
        version = self.world.version(RUN)["version"]

        def told():
            return self.world.read(f"/v1/runs/{RUN}/checkpoints/{version}/why")["restores"]
        wait_until(lambda: [one["memory_bytes"] for one in told()] == [2 * stored])
        self.assertEqual([one["store_bytes"] for one in told()], [0])

    def test_restores_are_counted_while_they_are_open_and_timed_by_how_they_end(self):
        self.save_and_restore()
        self.assertEqual(self.uploader()["cairn_restores_open"].value(), 0)
        left = self.restorer("left")
        self.assertEqual(self.uploader()["cairn_restores_open"].value(), 1)
        left.kill()
        wait_until(lambda: self.uploader()["cairn_restores_open"].value() == 0)
        ended = self.uploader()["cairn_restore_duration_seconds"]
        self.assertEqual((ended.value("_count", end="left"), ended.value("_count", end="released")), (1, None))
        whole = self.restorer("whole")
        time.sleep(0.3)  # pause of a stand-in: a restore that takes as long
        (self.world.root / "hold").touch()
        self.assertEqual(whole.wait(HANG_S), 0)
        wait_until(lambda: self.uploader()["cairn_restores_open"].value() == 0)
        ended = self.uploader()["cairn_restore_duration_seconds"]
        self.assertEqual((ended.value("_count", end="left"), ended.value("_count", end="released")), (1, 1))
        self.assertGreaterEqual(ended.value("_sum", end="released"), 0.3)

    def test_requests_commits_and_versions_are_counted_by_the_server(self):
        before = self.server()
        self.assertEqual(before["cairn_checkpoints"].value(state="committed"), 0)
        self.save_and_restore()
        status, _, _ = self.world.get(f"/v1/runs/{RUN}/checkpoints/77")
        self.assertEqual(status, 404)
        after = self.server()
        seconds = after["cairn_http_request_duration_seconds"]
        self.assertEqual(seconds.value("_count", route="checkpoint_get", method="GET", code="404"), 1)
        self.assertGreaterEqual(seconds.value("_count", route="attempt_open", method="POST", code="201"), 1)
        self.assertEqual(after["cairn_commit_duration_seconds"].value("_count"), 1)
        for op in ("look", "change"):
            self.assertGreater(after["cairn_db_query_duration_seconds"].value("_count", op=op), 0)
        self.assertEqual(after["cairn_catalog_frozen"].value(), 0)
        self.assertEqual(after["cairn_frozen_runs"].value(), 0)

    def test_versions_of_a_catalog_are_counted_by_state_with_their_bytes(self):
        self.save_and_restore()  # nothing was scraped before: the first scrape counts
        families = self.server()
        self.assertEqual(families["cairn_checkpoints"].value(state="committed"), 1)
        self.assertEqual(families["cairn_checkpoints"].value(state="trashed"), 0)
        self.assertGreaterEqual(families["cairn_stored_bytes"].value(state="committed"), self.size)

    def test_what_a_policy_puts_into_the_trash_is_counted_by_where_the_policy_stands(self):
        self.save_and_restore()
        self.world.cairn("policy", "set", RUN, "--keep-last", "1")
        self.world.cairn("put", self.world.root / "one", f"{RUN}@6")
        found = wait_until(lambda: self.server()["cairn_retention_deleted_total"].value(reason="run"))
        self.assertEqual(found, 1)

    def test_runs_are_labels_where_the_operator_says_how_many(self):
        world = World(server_arguments=["--metrics-runs-max", "2"], case=self)
        file = cases.file(world.root / "file", b"x" * 1000)

        def found():
            text = self.world.get_from(world.url, "/metrics")[2].decode()
            family = exposition.parse(text)["cairn_last_commit_timestamp_seconds"]
            return {dict(labels)["run"]: value for (_, labels), value in family.samples.items()}
        self.assertEqual(found(), {})
        begun = time.time()
        for run in ("a", "b", "c"):
            world.cairn("put", file, f"one/{run}@1")
        self.assertEqual(set(found()), {"b", "c"})  # the last two
        world.cairn("put", file, "one/a@2")
        after = found()
        self.assertEqual(set(after), {"a", "c"})
        self.assertLess(begun - 1, after["c"])
        self.assertLess(after["c"], after["a"])

    def test_no_name_of_a_run_or_a_step_is_a_label(self):
        self.save_and_restore()
        for url in (self.world.url, self.uploader_url):
            self.assertNotIn("metrics\"", self.scrape(url).replace('route="metrics"', ""))

    def ask(self, request):
        host, port = self.uploader_url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=HANG_S) as caller:
            found = b""
            with contextlib.suppress(OSError):  # it was cut in the middle of a request
                caller.sendall(request)
                caller.shutdown(socket.SHUT_WR)
                while piece := caller.recv(65536):
                    found += piece
        return found

    def test_an_uploader_answers_nothing_but_get_metrics(self):
        self.assertTrue(self.ask(b"GET /metrics HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200 OK"))
        for request, status in ((b"GET /metricsx HTTP/1.1\r\n\r\n", b"404"),
                                (b"GET /../metrics HTTP/1.1\r\n\r\n", b"404"),
                                (b"POST /metrics HTTP/1.1\r\nContent-Length: 0\r\n\r\n", b"405")):
            self.assertEqual(self.ask(request).split()[1], status, request)
        self.assertEqual(self.ask(b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 20000), b"")

    def test_a_caller_that_says_nothing_is_cut(self):
        host, port = self.uploader_url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=HANG_S) as silent:
            self.assertIn("cairn_build_info", self.uploader())
            self.assertEqual(silent.recv(1), b"")

    def scraped_beside_halves(self):
        """Is the last of 100 halves of requests still open when a scrape is answered?"""
        host, port = self.uploader_url.removeprefix("http://").split(":")
        with contextlib.ExitStack() as halves:
            for _ in range(100):
                half = halves.enter_context(socket.create_connection((host, int(port)), timeout=HANG_S))
                half.sendall(b"GET /metrics HTTP/1.1\r\nX-Half: ")
            self.assertIn("cairn_build_info", self.uploader())
            half.setblocking(False)
            try:
                half.recv(1)
            except BlockingIOError:
                return True
            except OSError:
                pass
            return False

    def test_halves_of_requests_hold_up_no_scrape(self):
        """One behind the other, each would be cut after its two seconds before the scrape is heard."""
        self.assertTrue(any(self.scraped_beside_halves() for _ in range(20)))


class StoreAlone(Scraped):
    tier = "0"

    def test_where_nothing_is_kept_each_block_is_read_from_the_store_once_for_each_restore(self):
        stored, after = self.save_and_restore_by_ranks()
        self.assertEqual(after["cairn_restore_bytes_total"].value(), 2 * stored)
        self.assertEqual(after["cairn_restore_memory_bytes_total"].value(), 0)
        self.assertEqual(after["cairn_kept_bytes"].value(), 0)
        reads = after["cairn_range_read_duration_seconds"]
        self.assertGreaterEqual(reads.value("_count", code="ok"), 6)  # of 8 MiB at most
        # All of the first restore; of the last one not what a rank reads after the other has closed its session.
        cached = after["cairn_restore_cached_bytes_total"].value()
        self.assertGreaterEqual(cached, stored)
        self.assertLessEqual(cached, 2 * stored)

    def test_a_lone_rank_reads_past_the_cache_that_ranks_share(self):
        """Also while its memory for saves, which belongs to the same attempt, is there."""
        self.world.cairn("bench", "save", RUN, "--ranks", "1", "--bytes", "20MiB", "--steps", "1")
        (self.world.root / "hold").touch()
        child = self.restorer("lone", RESTORER_BYTES="1000000")
        self.assertEqual(json.loads(line_of(child))["bytes"], self.world.version(RUN)["bytes"])
        self.assertEqual(self.uploader()["cairn_restore_cached_bytes_total"].value(), 0)


class Retries(unittest.TestCase):
    def test_what_is_sent_again_is_counted_by_what_made_it(self):
        s3 = S3Fault(cases.folder(self), case=self)
        world = S3World(s3, uploader_arguments=["--part-size", "5MiB", "--no-hedge", "--metrics-listen",
                                                "127.0.0.1:0"], case=self)
        s3.rules("op=part nth=2 : status=503/SlowDown\nop=part nth=3 : status=503/SlowDown\n"
                 "op=complete nth=1 : status=500/InternalError")
        file = cases.file(world.root / "file", b"x" * (40 << 20))
        world.cairn("put", file, f"{RUN}@1")
        port = re.search(r" metrics.listening .*port=(\d+)", world.uploaders[0].log.read_text())[1]
        text = world.get_from(f"http://127.0.0.1:{port}", "/metrics")[2].decode()
        counted = dict(re.findall(r'^cairn_retries_total\{class="([\w-]+)"\} (\d+)$', text, re.M))
        self.assertEqual({name: number for name, number in counted.items() if number != "0"},
                         {"slow-down": "2", "failure": "1"}, text)


if __name__ == "__main__":
    unittest.main()
