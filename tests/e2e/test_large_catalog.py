# SPDX-License-Identifier: Apache-2.0
# ctest: engines=sqlite seconds=90
"""A start of a server whose SQLite catalog is large: the file is believed after a clean stop, and read through
beside the calls after any other.

A list of many versions by any filter, page after page: exactly the rows that are meant, in order,
and no page looks at more than its share.

A server's memory after large answers: what the work took is given back to the system, whatever number of
threads did it, and a plan over a hundred thousand versions is not there once for each of those who ask."""
import concurrent.futures
import json
import os
import pathlib
import random
import re
import signal
import sqlite3
import sys
import threading
import unittest
import urllib.error
import urllib.parse
import urllib.request

from world import HANG_S, World, wait_until

ROWS, ROW_BYTES = 80, 1 << 20  # more than is read through before a start


class LargeCatalog(unittest.TestCase):
    def setUp(self):
        self.world = World(nodes=0, case=self)
        self.file = self.world.root / "server" / "catalog.db"

    def fill(self):
        with sqlite3.connect(self.file) as db:
            db.execute("CREATE TABLE filler(number INTEGER PRIMARY KEY, bytes BLOB)")
            db.executemany("INSERT INTO filler VALUES(?, randomblob(?))", ((i, ROW_BYTES) for i in range(ROWS)))
        db.close()

    def damage(self):
        """A page of the last row, which is looked at last."""
        with sqlite3.connect(self.file) as db:
            size = db.execute("PRAGMA page_size").fetchone()[0]
        db.close()
        with open(self.file, "r+b") as file:
            file.seek(-2 * size, os.SEEK_END)
            file.write(b"\xee" * size)

    def log(self):
        return (self.world.root / "server.log").read_text()

    def ready(self):
        try:
            with urllib.request.urlopen(self.world.url + "/readyz", timeout=HANG_S) as reply:
                return reply.status, json.load(reply)["checks"]["file"]
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)["checks"]["file"]

    def put_run(self, name):
        return self.world.call("PUT", f"/v1/runs/a/{name}", {})[0]

    def test_after_a_clean_stop_the_file_is_believed_and_after_any_other_it_is_read_through_beside(self):
        self.world.server.stop()
        self.fill()
        self.world.start_server()  # the sign of the stop is of another file
        wait_until(lambda: "catalog.read_through" in self.log())
        self.assertEqual(self.ready(), (200, "ok"))
        self.world.server.stop()
        self.assertTrue((self.file.parent / "catalog.db.clean").exists())
        self.world.start_server()
        self.assertEqual(self.ready(), (200, "ok"))
        self.assertFalse((self.file.parent / "catalog.db.clean").exists())
        self.world.server.stop(signal.SIGKILL)
        self.assertEqual(self.log().count("catalog.read_through"), 1)
        self.world.start_server()
        wait_until(lambda: self.log().count("catalog.read_through") == 2)

    def test_a_file_that_is_found_damaged_takes_no_change_and_readyz_says_so(self):
        self.world.server.stop()
        self.fill()
        self.damage()
        try:
            self.world.start_server()
        except AssertionError as found_first:  # before the start had its first change
            self.assertIn("the file is damaged", str(found_first))
        else:
            wait_until(lambda: "catalog.damaged" in self.log())
            status, text = self.ready()
            self.assertEqual(status, 503)
            self.assertIn("the file is damaged", text)
            self.assertGreaterEqual(self.put_run("x"), 500)
            self.world.server.stop()
        self.assertFalse((self.file.parent / "catalog.db.clean").exists())

    def test_a_small_file_that_is_damaged_is_refused_at_once(self):
        self.assertEqual(self.put_run("x"), 201)
        self.world.server.stop()
        with open(self.file, "r+b") as file:
            file.seek(4096 * 2)
            file.write(b"\xee" * 4096)
        with self.assertRaisesRegex(AssertionError, "quick_check"):
            self.world.start_server()


VERSIONS = 4000
BASE_MS = 1700000000000
STATES = ["open", "committed", "deleting", "aborting", "gone"]
LABELS = [{"team": "nlp", "tier": "tmp"}] * 60 + [{"team": "nlp", "tier": "gold"}, {}, {"x": ""}]


def make_rows(chance):
    """As saves and removals leave them, but by chance; of what the server would go on with (a commit
    without its record, a sweep) there is none."""
    rows, seen = [], set()
    while len(rows) < VERSIONS:
        attempt, step = chance.randint(1, 14), 10 * chance.randint(0, 1200)
        n = 1 + step // 10
        if (attempt, step) in seen:
            continue
        seen.add((attempt, step))
        state = chance.choices(range(5), (3, 92, 0, 0, 5))[0]
        rows.append({
            "id": "ckpt_%08x-0000-8000-8000-%012x" % (chance.getrandbits(32), len(rows)),
            "attempt": attempt, "step": step, "n": n, "state": state,
            "trashed": state == 1 and chance.random() < 0.03,
            "at": BASE_MS + 1000 * len(rows), "labels": chance.choice(LABELS)})
    ordered = sorted((r for r in rows if r["state"] == 1), key=lambda r: (r["attempt"], r["step"], r["n"]))
    ordered[5]["labels"] = ordered[-5]["labels"] = {"far": "apart"}
    return rows


WORDY, META = 300, json.dumps({"config": "x" * 50000})


def fill(catalog, name, rows, meta="{}"):
    with sqlite3.connect(catalog) as db:
        run = db.execute("INSERT INTO runs(project, run, labels, created_ms, attempt) VALUES"
                         "('p', ?, '{}', 1, 40) RETURNING run_id", (name,)).fetchone()[0]
        db.executemany(
            "INSERT INTO versions(version, run_id, attempt, step, n, nonce, state, recorded, "
            "trashed_tick, world_size, on_exists, skip, format, labels, meta, created_ms, "
            "committed_ms, opened_tick, gone_tick) VALUES(?, ?, ?, ?, ?, 'n', ?, ?, ?, 1, 0, 0, "
            "'opaque', ?, ?, ?, ?, 1, 9000000000000000000)",
            [(r["id"], run, r["attempt"], r["step"], r["n"], r["state"], r["state"] == 1,
              9000000000000000000 if r["trashed"] else None, json.dumps(r["labels"]), meta, r["at"],
              r["at"] if r["state"] == 1 else 0) for r in rows])
    db.close()


class Meant:
    """The filters, in the words of the page."""

    def __init__(self, query):
        self.query = dict(urllib.parse.parse_qsl(query))

    def label(self, term, labels):
        if term.startswith("!"):
            return term[1:] not in labels
        if "!=" in term:
            key, value = term.split("!=")
            return labels.get(key) != value
        key, is_there, value = term.partition("=")
        return labels.get(key) == value if is_there else key in labels

    def __call__(self, row):
        ask, state = self.query, STATES[row["state"]]
        return (state == ask.get("state", state) and ("state" in ask or state != "gone")
                and row["attempt"] == int(ask.get("attempt", row["attempt"]))
                and int(ask.get("step_ge", 0)) <= row["step"] < int(ask.get("step_lt", 1 << 62))
                and str(row["trashed"]).lower() == ask.get("trashed", str(row["trashed"]).lower())
                and row["at"] >= (BASE_MS + 1000 * (VERSIONS - 70) if "since" in ask else 0)
                and all(self.label(term, row["labels"]) for term in ask.get("l", "").split(",")
                        if term))


SINCE = "since=2023-11-14T23:18:50Z"  # BASE_MS and VERSIONS - 70 seconds
QUERIES = [
    "", "state=committed", "state=open", "state=gone", "state=deleting",
    "attempt=7", "attempt=41", "attempt=0", "attempt=7&step_ge=5000&step_lt=5100",
    "step_ge=3000&step_lt=3020", "step_lt=30", "step_ge=11990", "step_ge=20&step_lt=20",
    "step_ge=99999999", "trashed=true", "trashed=false&l=tier%3Dgold", "trashed=false&state=open",
    "trashed=true&state=committed", "l=tier%3Dgold", "l=tier%3Dnone", "l=!tier", "l=tier!%3Dtmp",
    "l=far", "l=x,!team", "l=x%3D", SINCE, SINCE + "&state=committed", "l=team%3Dnlp&step_ge=6000&limit=7",
]


class Lists(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        seed = random.randrange(1 << 32)
        cls.world = World(nodes=0, catalog="", case=cls)
        cls.rows = make_rows(random.Random(seed))
        cls.world.server.stop()
        cls.wordy = [{**row, "id": row["id"][:-12] + f"{i:012x}", "state": 1, "trashed": False, "labels": LABELS[0]}
                     for i, row in enumerate(cls.rows[:WORDY], 1 << 40)]
        catalog = pathlib.Path(cls.world.root) / "server" / "catalog.db"
        fill(catalog, "many", cls.rows)
        fill(catalog, "wordy", cls.wordy, META)
        cls.world.start_server()
        print("seed", seed)

    def pages(self, query, run="many"):
        cursor, pages = "", []
        while True:
            url = f"{self.world.url}/v1/runs/p/{run}/checkpoints?{query}{cursor}".rstrip("?")
            with urllib.request.urlopen(url.replace("?&", "?"), timeout=HANG_S) as reply:
                answer = json.load(reply)
            pages.append(answer["items"])
            if answer["next_cursor"] is None:
                return pages
            cursor = "&cursor=" + answer["next_cursor"]

    def test_every_filter_gives_the_rows_that_are_meant_in_order(self):
        for query in QUERIES:
            meant = Meant(query)
            for by, rest in (("step", ("attempt", "n")), ("attempt", ("step", "n"))):
                self.check(query, meant, (by, *rest))

    def check(self, query, meant, names):
        wanted = sorted(tuple(r[name] for name in names) for r in self.rows if meant(r))
        for order in (names[0], "-" + names[0]):
            pages = self.pages(f"{query}&order={order}")
            found = [tuple(item[name] for name in names) for items in pages for item in items]
            self.assertEqual(found, wanted if order[0] != "-" else wanted[::-1], (query, order))
            limit = int(meant.query.get("limit", 100))
            self.assertTrue(all(len(items) <= limit for items in pages))
            # So many rows a page looks at, at least, if it does not fill.
            self.assertLessEqual(len(pages), len(wanted) // limit + VERSIONS // 500 + 3, query)

    def test_a_page_of_versions_with_long_texts_ends_early_and_the_next_one_goes_on(self):
        for query in ("limit=1000&order=-step", "limit=1000&order=step&l=team%3Dnlp"):
            pages = self.pages(query, "wordy")
            self.assertLess(max(len(json.dumps(items)) for items in pages), 5 << 20, "of 15 MiB in all")
            found = [(item["step"], item["attempt"], item["n"]) for items in pages for item in items]
            wanted = sorted((row["step"], row["attempt"], row["n"]) for row in self.wordy)
            self.assertEqual(found, wanted if "order=step" in query else wanted[::-1])

    def test_the_command_goes_on_behind_pages_that_are_empty(self):
        flags = {"l": "--label", "step_ge": "--step-ge", "step_lt": "--step-lt", "since": "--since",
                 "attempt": "--attempt", "trashed": "--trashed", "state": "--state"}
        for query in ("l=tier%3Dgold", "l=far", "l=!tier", "attempt=7&step_ge=5000&step_lt=5100",
                      "step_ge=3000&step_lt=3020", "trashed=true", SINCE + "&state=committed",
                      "l=tier%3Dnone"):
            meant = Meant(query)
            words = [word for name, value in meant.query.items() for word in (flags[name], value)]
            ran = self.world.cairn("ls", "p/many", "--json", "-n", 10000, *words)
            self.assertEqual([(row["attempt"], row["step"]) for row in json.loads(ran.stdout)],
                             sorted(((r["attempt"], r["step"]) for r in self.rows if meant(r)),
                                    reverse=True), query)
        for words, said in ((("--attempt", "1"), "--attempt goes with a run"),
                            (("p/many", "--label", "a,,b"), "a term is empty"),
                            (("p/many", "--since", "yesterday"), "since"),
                            (("p/many", "--step-ge", "x"), "--step-ge"),
                            (("p/many", "--label", "a", "--store", self.world.store),
                             "--label is known to the server alone"),
                            (("p/many", "--state", "committed", "--attempt", "1", "--store",
                              self.world.store), "--attempt is known to the server alone")):
            ran = self.world.cairn("ls", *words, status=None)
            self.assertNotEqual(ran.returncode, 0)
            self.assertIn(said, ran.stderr)


sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from bench.figures_lists import RARE, fill as fill_plainly  # noqa: E402
RUNS = 900
LONG_LABELS = {f"label-{i:02}": "v" * 60 for i in range(32)}
MIB = 1 << 20
CALLERS = 32
KEPT = 48 * MIB  # beyond what it had before: what threads keep for themselves
PLANNED_VERSIONS = 100000
POLICY = {"keep": {"last": 100, "first": 10, "every_steps": 10, "hourly": 24, "daily": 30, "weekly": 8, "monthly": 12}}
IN_TRASH = PLANNED_VERSIONS // RARE
PLANNERS = 12
PLANNING = 320 * MIB  # a plan, its text and what one thread keeps; and as many texts as wait to be taken
CACHES = 192 * MIB  # 2 MiB of the catalog's pages for each thread that has read them, and what one thread keeps


def resident(world):
    status = pathlib.Path(f"/proc/{world.server.process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) << 10


class ServerMemory(unittest.TestCase):
    def setUp(self):
        self.world = World(nodes=0, server_arguments=("--sweep-interval", "1s"), case=self)

    def resident(self):
        return resident(self.world)

    def make(self, number):
        self.assertEqual(self.world.call("PUT", f"/v1/runs/p/r{number:04}", {"labels": LONG_LABELS})[0], 201)

    def read(self, _number):
        with urllib.request.urlopen(f"{self.world.url}/v1/runs?limit=1000", timeout=HANG_S) as answer:
            return len(answer.read())

    def test_memory_of_large_answers_is_given_back_whichever_threads_made_them(self):
        with concurrent.futures.ThreadPoolExecutor(CALLERS) as callers:
            list(callers.map(self.make, range(RUNS)))
            before = self.resident()
            peak = before
            for _ in range(5):
                sizes = list(callers.map(self.read, range(CALLERS)))
                self.assertGreater(min(sizes), RUNS * len(json.dumps(LONG_LABELS)) // 2)
                peak = max(peak, self.resident())
        print(f"before {before >> 20} MiB, at most {peak >> 20} MiB")
        wait_until(lambda: self.resident() < before + KEPT)
        print(f"after {self.resident() >> 20} MiB")


class PlanMemory(unittest.TestCase):
    def setUp(self):
        self.world = World(nodes=0, catalog="", server_arguments=("--sweep-interval", "1s"), case=self)
        self.world.server.stop()
        fill_plainly(self.world.root / "server" / "catalog.db", "large", PLANNED_VERSIONS, 50)
        self.world.start_server()

    def preview(self, number):
        body = {"policy": POLICY if number % 2 else {"keep": {"last": 1}}}
        request = urllib.request.Request(f"{self.world.url}/v1/runs/bench/large/retention/preview", method="POST",
                                         data=json.dumps(body).encode(), headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=HANG_S) as answer:
            return answer.read().count(b'"fate":')

    def look(self, path):
        with urllib.request.urlopen(self.world.url + path, timeout=HANG_S) as answer:
            return len(answer.read())

    def test_plans_over_a_hundred_thousand_versions_take_the_memory_of_one_however_many_ask(self):
        before, peak, ended = resident(self.world), 0, threading.Event()
        large = "/v1/runs/bench/large/checkpoints?limit=1000"

        def watch():
            nonlocal peak
            while not ended.wait(0.01):
                peak = max(peak, resident(self.world))

        with concurrent.futures.ThreadPoolExecutor(CALLERS + 1) as callers:
            watching = callers.submit(watch)
            counts = callers.map(self.preview, range(PLANNERS))
            looks = callers.map(self.look, ["/v1/gc", large, "/v1/nodes", large + "&order=step"] * PLANNERS)
            self.assertEqual({PLANNED_VERSIONS - IN_TRASH}, set(counts), "versions that a preview names")
            self.assertGreater(min(looks), 10)
            ended.set()
            watching.result()
        print(f"before {before >> 20} MiB, at most {peak >> 20} MiB")
        self.assertLess(peak - before, PLANNING)
        wait_until(lambda: resident(self.world) < before + CACHES)
        print(f"after {resident(self.world) >> 20} MiB")


if __name__ == "__main__":
    unittest.main()
