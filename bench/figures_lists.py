# SPDX-License-Identifier: Apache-2.0
"""What a page of a list costs in a catalog of a million versions, against one of a thousand."""
import json
import os
import shutil
import sqlite3
import statistics
import tempfile
import time

from bench.figures_s3 import Figure
from bench.figures_server import Server, call
from bench.programs import Process, Side, program

FIGURES = {}

FEW, MANY = 1000, 1000000
ATTEMPTS = 500  # of the large run
PAGE = 100
RARE = 1000  # one in so many is labelled, trashed, or of another kind
BASE_MS = 1700000000000
EACH_MS = 1000

# Rows as commits leave them. One in RARE keeps the label tier=gold, the others tier=tmp; another one
# in RARE lies in the trash.
FILL = """
WITH RECURSIVE k(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM k WHERE i + 1 < :count)
INSERT INTO versions(version, run_id, attempt, step, n, nonce, state, recorded, superseded,
  trashed_tick, world_size, on_exists, skip, format, labels, meta, bytes, shards, created_ms,
  committed_ms, opened_tick)
SELECT printf('ckpt_%08x-%04x-8%03x-8000-%012x', :run, 0, 0, i), :run, 1 + i / :each, 10 * (i % :each),
  1 + i % :each, 'aaaaaaaaaaaaaaaa', 1, 1, 0, CASE WHEN i % :rare = 7 THEN 1 END, 8, 0, 0, 'opaque',
  CASE WHEN i % :rare = 3 THEN '{"team": "nlp", "tier": "gold"}' ELSE '{"team": "nlp", "tier": "tmp"}'
  END, '{}', 1073741824, 8, :base + i * :ms, :base + i * :ms, 1 FROM k
"""


def fill(catalog, run, count, attempts):
    with sqlite3.connect(catalog) as db:
        number = db.execute("INSERT INTO runs(project, run, labels, created_ms, attempt) VALUES"
                            "('bench', ?, '{}', ?, ?) RETURNING run_id",
                            (run, BASE_MS, attempts)).fetchone()[0]
        db.execute(FILL, {"run": number, "count": count, "each": count // attempts, "rare": RARE,
                          "base": BASE_MS, "ms": EACH_MS})
        db.execute("ANALYZE")
    db.close()


def iso(ms):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ms // 1000))


# By what the API can filter, each with a part of the list that is rare, common and far away.
def filters():
    end = BASE_MS + MANY * EACH_MS
    middle = ATTEMPTS // 2
    steps = 10 * (MANY // ATTEMPTS)
    return {
        "all": "", "rising": "order=step", "committed": "state=committed", "open": "state=open",
        "attempt": "attempt=%d" % middle, "attempt rising": "attempt=%d&order=step" % middle,
        "steps": "step_ge=%d&step_lt=%d" % (steps // 2, steps // 2 + 20),
        "attempt and steps": "attempt=3&step_ge=%d" % (steps // 2),
        "since": "since=" + iso(end - EACH_MS * MANY // 2),
        "since, few": "since=" + iso(end - EACH_MS * 50),
        "since rising": "order=step&since=" + iso(end - EACH_MS * 5000),
        "trashed": "trashed=true", "not trashed": "trashed=false",
        "label": "l=team%3Dnlp", "rare label": "l=tier%3Dgold", "no such label": "l=tier%3Dnone",
        "has label": "l=tier", "without label": "l=!tier", "not the rare one": "l=tier!%3Dgold",
        "all but the common one": "l=tier!%3Dtmp",
        "label and trash": "l=tier%3Dtmp&trashed=true",
    }


def page(connection, run, query):
    begun = time.monotonic()
    connection.request("GET", "/v1/runs/bench/%s/checkpoints?limit=%d%s" % (
        run, PAGE, "&" + query if query else ""))
    reply = connection.getresponse()
    text = reply.read()
    took = time.monotonic() - begun
    if reply.status != 200:
        raise RuntimeError("%s: %d %s" % (query, reply.status, text[:300]))
    return took, json.loads(text)


def wanted(query, item):
    """Does this row belong to that list? Judged from the row alone."""
    labels = item.get("labels", {})
    tests = {"l=tier%3Dgold": labels.get("tier") == "gold", "trashed=true": item["state"] != "open",
             "l=tier!%3Dtmp": labels.get("tier") != "tmp"}
    return all(ok for part, ok in tests.items() if part in query)


def walk(connection, run, query, pages):
    """Times of so many pages from the first on, how many rows and empty pages they had."""
    times, rows, cursor = [], 0, ""
    for _ in range(pages):
        took, answer = page(connection, run, (query + cursor).lstrip("&"))
        times.append(took)
        rows += len(answer["items"])
        if not all(wanted(query, item) for item in answer["items"]):
            raise RuntimeError("%s: a row that was not asked for" % query)
        if not answer.get("next_cursor"):
            break
        cursor = "&cursor=" + answer["next_cursor"]
    return times, rows


def list_page(lab):
    folder = tempfile.mkdtemp(prefix="lists-", dir=lab.folder)
    server = Server(folder)
    server.close()
    catalog = os.path.join(folder, "data", "catalog.db")
    fill(catalog, "few", FEW, 1)
    fill(catalog, "many", MANY, ATTEMPTS)
    server = lab.keep(Server(folder))
    connection = server.connect()
    for name, query in filters().items():
        walk(connection, "many", query, 3)
        ours, base, rows = [], [], 0
        for _ in range(lab.pairs_wanted):
            base.append(page(connection, "few", "")[0])
            times, rows = walk(connection, "many", query, 10)
            ours.append(statistics.median(times))
        lab.report(name.replace(" ", "_").replace(",", ""), [a / b for a, b in zip(ours, base)],
                   2.0, "lower", [1000 * t for t in ours], [1000 * t for t in base], unit="ms",
                   rows=rows)
    connection.close()
    shutil.rmtree(folder, ignore_errors=True)


FIGURES["list-page"] = Figure(
    list_page, "the median of the first ten pages of %d among %d versions, by each filter, against the first "
    "page of %d" % (PAGE, MANY, FEW), [(name.replace(" ", "_").replace(",", ""), 2.0, "lower")
                                       for name in filters()], {"cairn-server"}, ())


# ---- a retention plan ----

PLANNED = 100000
POLICY = {"keep": {"last": 10, "every_steps": 1000, "hourly": 24, "daily": 30, "weekly": 8,
                   "labels": ["tier=gold"], "within_s": 6 * 3600}}


def ask(connection, path, body):
    begun = time.monotonic()
    connection.request("POST", "/v1/runs/bench/planned/retention/" + path, json.dumps(body),
                       {"Content-Type": "application/json"})
    reply = connection.getresponse()
    text = reply.read()
    return time.monotonic() - begun, reply.status, text


def retention(lab):
    folder = tempfile.mkdtemp(prefix="retention-", dir=lab.folder)
    server = Server(folder)
    server.close()
    fill(os.path.join(folder, "data", "catalog.db"), "planned", PLANNED, 50)
    server = lab.keep(Server(folder))
    connection = server.connect()
    plans, previews = [], []
    for _ in range(lab.pairs_wanted):
        # A plan that is another than the one of this tag is made, compared, and not carried out.
        took, status, text = ask(connection, "apply", {"policy": POLICY, "plan_etag": "0" * 32})
        if status != 412:
            raise RuntimeError("apply: %d %s" % (status, text[:300]))
        plans.append(took)
        took, status, text = ask(connection, "preview", {"policy": POLICY})
        shown = json.loads(text)
        if status != 200 or len(shown["versions"]) + shown["skip"] < PLANNED * 0.99:
            raise RuntimeError("preview: %d %s" % (status, text[:300]))
        previews.append(took)
    lab.report("plan_s", plans, 0.5, "lower", unit="s", keeps=shown["keep"],
               removes=shown["remove"])
    lab.report("preview_s", previews, None, "lower", unit="s", bytes=len(text))
    connection.close()
    shutil.rmtree(folder, ignore_errors=True)


FIGURES["retention-100k"] = Figure(
    retention, "what a policy of seven rules keeps and removes of %d versions: the plan alone, and "
    "with a row for each as the preview shows it" % PLANNED, [("plan_s", 0.5, "lower"),
                                                              ("preview_s", None, "lower")],
    {"cairn-server"}, ())


# ---- a policy that keeps nearly everything ----

KEPT, SAVES = 54750, 512
KEEPING = {"keep": {"last": 100, "every_steps": 10, "hourly": 24, "daily": 30}}


def save_empty(connection, run, grant, step):
    """A save without shards, up to its record."""
    path = "/v1/runs/bench/%s/checkpoints" % run
    version = call(connection, "POST", path, {"grant": grant, "node": "n", "begins": [
        {"step": step, "n": 1, "rank": 0, "world_size": 1}]})["results"][0]["version"]
    call(connection, "POST", "%s/%s/shards" % (path, version), {
        "grant": grant, "node": "n", "shards": [], "seals": [{"rank": 0, "bytes": 0, "shards": []}]})
    call(connection, "GET", "%s/%s?wait=20s&for=committed" % (path, version))


def policy_kept(lab):
    folder = tempfile.mkdtemp(prefix="kept-", dir=lab.shared)
    server = Server(folder)
    server.close()
    for run in "kept", "plain":
        fill(os.path.join(folder, "data", "catalog.db"), run, KEPT, 1)
    server = lab.keep(Server(folder))
    connection, grants, step = server.connect(), {}, 10 * KEPT
    call(connection, "PUT", "/v1/runs/bench/kept/retention", KEEPING)
    for run in "kept", "plain":
        grants[run] = call(connection, "POST", "/v1/runs/bench/%s/attempts" % run, {
            "job": "j", "world_size": 1, "after": 1, "node": "n", "resume": "keep",
            "ranks": [{"rank": 0, "proc": "p"}]})["grant"]
    spent = {"kept": [], "plain": []}
    for _ in range(lab.pairs_wanted):
        for run in spent:
            cpu = server.cpu_s()
            for _ in range(SAVES):
                step += 10  # which the policy keeps for good
                save_empty(connection, run, grants[run], step)
            spent[run].append(1000 * (server.cpu_s() - cpu) / SAVES)
    shown = call(connection, "POST", "/v1/runs/bench/kept/retention/preview", {})
    if shown["remove"] or shown["keep"] < 0.99 * KEPT:
        raise RuntimeError("the policy keeps %d and removes %d" % (shown["keep"], shown["remove"]))
    lab.report("cpu", [a / b for a, b in zip(spent["kept"], spent["plain"])], 1.5, "lower", spent["kept"],
               spent["plain"], unit="ms")
    connection.close()
    shutil.rmtree(folder, ignore_errors=True)


FIGURES["policy-kept"] = Figure(
    policy_kept, "the server's CPU for a save, with what a policy does after it, in a run of which the policy "
    "keeps %d versions, against a save of a run as large without a policy" % KEPT,
    [("cpu", 1.5, "lower")], {"cairn-server"}, ())


# ---- the newest version, asked again and again ----

NEWEST = 10000
ASKERS = 32
ASKED_MS = 1500
REPLY_PORT = 7491


class Asker(Side):
    """bench_ask; its run's bytes are requests that were answered."""

    def __init__(self, port, path, token, *words):
        super().__init__([program("bench_ask"), "--port", str(port), "--path", path, "--token",
                          token, "--connections", str(ASKERS), "--ms", str(ASKED_MS), *words])


def get_latest(lab):
    folder = tempfile.mkdtemp(prefix="latest-", dir=lab.folder)
    tokens = ("--require-token",)
    server = Server(folder, arguments=tokens)
    server.close()
    fill(os.path.join(folder, "data", "catalog.db"), "newest", NEWEST, 10)
    server = lab.keep(Server(folder, arguments=tokens))
    with open(os.path.join(folder, "data", "admin.token"), encoding="ascii") as file:
        token = file.read().strip()
    path = "/v1/runs/bench/newest/checkpoints/latest"
    connection = server.connect()
    connection.request("GET", path, None, {"Authorization": "Bearer " + token})
    answer = connection.getresponse().read()
    step = json.loads(answer)["step"]
    sample = os.path.join(folder, "answer")
    with open(sample, "wb") as file:
        file.write(answer)
    lab.keep(Process([program("bench_reply"), "--listen-port", str(REPLY_PORT), "--file", sample]))
    theirs = lab.keep(Asker(REPLY_PORT, path, token))
    change = ("--patch", "/v1/runs/bench/newest/checkpoints/%d" % step, "--field", "number")
    for metric, words in (("still", ()), ("while_it_changes", change)):
        ours = lab.keep(Asker(server.port, path, token, *words))
        pairs = [(ours.go(), theirs.go()) for _ in range(lab.pairs_wanted)]
        ours.close()
        rates = [(a.bytes / a.seconds, b.bytes / b.seconds) for a, b in pairs]
        lab.report(metric, [a / b for a, b in rates], 0.5, "higher", [a for a, _ in rates],
                   [b for _, b in rates], unit="requests/s", bytes=len(answer))
    connection.close()
    shutil.rmtree(folder, ignore_errors=True)


FIGURES["get-latest"] = Figure(
    get_latest, "the newest of %d versions, with a token, over %d connections, while it is changed "
    "ten times a second / the same bytes from libmicrohttpd alone" % (NEWEST, ASKERS),
    [("still", 0.5, "higher"), ("while_it_changes", 0.5, "higher")],
    {"cairn-server", "bench_ask", "bench_reply"}, ())
