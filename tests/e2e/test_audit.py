# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
"""Every call that changes something leaves the events that api/changes.def says of its route: who, when,
from where."""
import concurrent.futures
import json
import pathlib
import re
import signal
import unittest
import urllib.error
import urllib.request

import cases
from passing import Passing
from signs import go_round, Held
from world import HANG_S, World

API = pathlib.Path(__file__).resolve().parents[2] / "api"
R = "/v1/runs/llm/seven"
KEEP = {"keep": {"last": 1}}


def rows():
    """{route: its events} of those that change something."""
    found = re.findall(r'^CHANGES\((\w+), +"([^"]+)"\)', (API / "changes.def").read_text(), re.M)
    return {route: set(events.split(", ")) for route, events in found}


class Calls(unittest.TestCase):
    """A server that wants tokens, an auditor who has one, and the events of his calls by their routes."""

    def start(self, *arguments, env=None):
        self.made = {}
        self.folder = cases.folder(self)
        (self.folder / "far").mkdir()
        self.passing = Passing()
        self.world = World(nodes=0, env={**self.passing.env(), **(env or {})}, server_arguments=[
            "--require-token", "--operations-at-once", "1", "--stores", f"main,far={self.folder / 'far'}", *arguments], case=self)
        self.admin = (self.world.root / "server" / "admin.token").read_text().strip()
        made = self.call(None, "POST", "/v1/tokens", {
            "scopes": ["read", "write", "retain", "admin"], "project": "*", "name": "auditor"}, token=self.admin)
        self.token, self.who = made["token"], f"auditor/{made['id']}"
        self.since = self.events()[-1]["id"]

    def call(self, route, method, path, body=None, token=None, status=None, grant=None, tag=None):
        headers = {"Authorization": f"Bearer {token or self.token}", "X-Cairn": "1",
                   "Content-Type": "application/json", **({"X-Cairn-Grant": grant} if grant else {}),
                   **({"If-Match": tag} if tag else {})}
        request = urllib.request.Request(self.world.url + path, method=method, headers=headers,
                                         data=json.dumps(body).encode() if body is not None else None)
        try:
            with urllib.request.urlopen(request, timeout=HANG_S) as reply:
                answer, got = reply.read(), reply.status
        except urllib.error.HTTPError as error:
            answer, got = error.read(), error.code
        self.assertTrue(got == status if status else got < 300, (method, path, got, answer))
        if route:
            new = self.events(self.since)
            self.since = new[-1]["id"] if new else self.since
            self.made.setdefault(route, []).extend(new)
        return json.loads(answer) if answer else None

    def events(self, since=0):
        return self.call(None, "GET", f"/v1/events?since={since}&limit=1000", token=self.admin)["items"]

    def begin(self, step, job="j1", after=0):
        """An attempt and a save of it, opened by hand."""
        attempt = self.call("ATTEMPT_OPEN", "POST", f"{R}/attempts", {
            "job": job, "world_size": 1, "resume": "none", "after": after,
            "ranks": [{"rank": 0, "proc": f"p-{job}"}], "node": "node-a"})
        begun = self.call("CHECKPOINT_BEGIN", "POST", f"{R}/checkpoints", {
            "grant": attempt["grant"], "node": "node-a", "step": step, "n": 1, "rank": 0, "world_size": 1})
        return attempt, begun["version"]

    def committed_by_hand(self, attempt, version):
        """A checkpoint without shards."""
        path, grant = f"{R}/checkpoints/{version}", {"grant": attempt["grant"]}
        self.call(None, "POST", f"{path}/shards", {
            **grant, "node": "node-a", "shards": [], "seals": [{"rank": 0, "shards": [], "bytes": 0}]})
        self.call("COMMIT", "POST", f"{path}/commit", grant)
        self.assertTrue(self.call(None, "GET", f"{path}?wait=10s&for=committed")["recorded"])

    def wait_for(self, begun):
        while self.call(None, "GET", f"/v1/operations/{begun['id']}?wait=10s")["ended_at"] is None:
            pass


class Audit(Calls):
    def setUp(self):
        hooks = cases.folder(self)
        (hooks / "hooks.json").write_text(json.dumps(
            {"webhooks": [{"name": "hook", "url": "http://127.0.0.1:9/", "secret": "c3" * 32}]}))
        (hooks / "hooks.json").chmod(0o600)
        self.exports = cases.made(hooks / "out")
        self.start("--webhooks-file", hooks / "hooks.json", "--import-folders", self.exports,
                   "--export-folders", self.exports)

    def test_each_route_makes_the_events_that_the_table_says_with_who_when_and_from_where(self):
        for name, act in sorted(vars(type(self)).items()):
            if name.startswith("do_"):
                with self.subTest(name):
                    act(self)
        table = rows()
        self.assertGreater(len(table), 30)
        self.assertEqual(set(table) - set(self.made), set(), "a call of each has to be made here")
        del table["RECONCILE"]  # of a run that is not frozen it changes nothing; server/behind freezes one
        for route, wanted in table.items():
            made = [event for event in self.made.get(route, ()) if event["event"] in wanted]
            self.assertTrue(made, (route, wanted, self.made.get(route)))
            for event in made:
                self.assertRegex(event["at"], r"^\d{4}-\d\d-\d\dT.*Z$", route)
                if event.get("actor") != "server":
                    self.assertEqual((event["actor"], event["address"]), (self.who, "127.0.0.1"), (route, event))
            self.assertIn(self.who, [event.get("actor") for event in made], route)

    def do_1_runs(self):
        self.call("RUN_PUT", "PUT", R, {"labels": {"a": "b"}})
        self.call("RUN_PATCH", "PATCH", R, {"note": "n"}, tag="*")
        self.call("RUN_PUT", "PUT", "/v1/runs/llm/other", {})
        self.wait_for(self.call("RUN_DELETE", "DELETE", "/v1/runs/llm/other?confirm=other"))
        self.call(None, "PUT", "/v1/runs/llm/other", {})
        self.since = self.events()[-1]["id"]
        self.call("RUN_DELETE", "DELETE", "/v1/runs/llm/other")

    def do_2_saves(self):
        attempt, version = self.begin(1)
        self.call("ABORT", "POST", f"{R}/checkpoints/{version}/abort", {"reason": "no use"})
        attempt, version = self.begin(2, "j2", attempt["attempt"])
        self.call("FAIL", "POST", f"{R}/checkpoints/{version}/fail", {
            "grant": attempt["grant"], "node": "node-a", "rank": 0, "reason": "disk", "code": "store"})
        attempt, version = self.begin(3, "j3", attempt["attempt"])
        self.made_by_hand(attempt, version)
        self.call(None, "PUT", "/v1/nodes/node-a", {
            "uploader": {"version": "1"}, "attempts": [{"grant": attempt["grant"], "unsent": 0}], "versions": []})
        self.call(None, "PUT", "/v1/nodes/node-a", {  # its trainers end
            "uploader": {"version": "1"}, "attempts": [], "versions": [], "leaving": True})

    def made_by_hand(self, attempt, version):
        """A checkpoint without shards: its history says who asked for its commit, once."""
        path, grant = f"{R}/checkpoints/{version}", {"grant": attempt["grant"]}
        self.call("COMMIT", "POST", f"{path}/commit", grant, status=409)  # its rank has not sealed
        self.committed_by_hand(attempt, version)
        self.call("COMMIT", "POST", f"{path}/commit", grant)
        told = self.call(None, "GET", f"{path}/events")["items"]
        self.assertEqual(sorted(event["event"] for event in told),
                         ["checkpoint.commit_asked", "checkpoint.committed", "checkpoint.opened"])
        self.assertEqual({event["event"]: event["actor"] for event in told}, {
            "checkpoint.opened": self.who, "checkpoint.commit_asked": self.who, "checkpoint.committed": "server"})

    def do_3_versions(self):
        self.world.uploaders.append(self.world.make_uploader(0))
        token = cases.file(self.world.root / "token", self.token)
        token.chmod(0o600)
        self.world.uploaders[0].command += ["--token-file", str(token)]
        self.world.uploaders[0].start()
        file = cases.file(self.world.root / "file", b"x" * 1000)
        for step in (10, 11, 12, 13):
            self.world.cairn("put", file, f"llm/seven@{step}", env={"CAIRN_TOKEN": self.token})
        self.since = self.events()[-1]["id"]
        at = f"{R}/checkpoints"
        self.call("CHECKPOINT_PATCH", "PATCH", f"{at}/10", {"note": "n"}, tag="*")
        version = self.call(None, "GET", f"{at}/10")["version"]
        self.call("CHECKPOINT_DELETE", "DELETE", f"{at}/{version}")
        self.call("UNDELETE", "POST", f"{at}/{version}/undelete")
        self.call("TRASH", "POST", f"{R}/trash", {"versions": ["11"]})
        self.call("ALIAS_PUT", "PUT", f"{R}/aliases/prod", {"ref": "12"})
        self.call("ALIAS_DELETE", "DELETE", f"{R}/aliases/prod", tag="*")
        self.call("UPLOAD_ABORT", "DELETE", f"/v1/uploads/{version}")
        begun = self.call("PROMOTE", "POST", f"{at}/12/promote", {"to": "far"})
        self.wait_for(begun)
        self.since = self.events()[-1]["id"]
        begun = self.call("VERIFY", "POST", f"{at}/12/verify", {"repair": True})
        self.wait_for(begun)
        self.since = self.events()[-1]["id"]
        self.call("DEMOTE", "POST", f"{at}/12/demote", {"from": "far"})
        plan = self.call(None, "POST", f"{R}/retention/preview", {"policy": KEEP})
        self.call("RETENTION_APPLY", "POST", f"{R}/retention/apply", {"policy": KEEP, "plan_etag": plan["plan_etag"]})

    def do_4_policies_and_quotas(self):
        for route, path in (("RUN_RETENTION", f"{R}/retention"), ("PROJECT_RETENTION", "/v1/projects/llm/retention"),
                            ("RETENTION", "/v1/retention")):
            self.call(f"{route}_PUT", "PUT", path, {"keep": {"last": 9}})
            self.call(f"{route}_DELETE", "DELETE", path)
        for route, path in (("PROJECT_QUOTA", "/v1/projects/llm/quota"), ("QUOTA", "/v1/quota")):
            self.call(f"{route}_PUT", "PUT", path, {"versions": 900})
            self.call(f"{route}_DELETE", "DELETE", path)

    def do_5_operations(self):
        for number in range(9):  # one at a time: the second waits when it is cancelled
            begun = [self.call("EXPORT_BEGIN", "POST", f"{R}/checkpoints/latest/exports",
                               {"path": str(self.exports / f"{number}{name}")}) for name in "ab"]
            self.call("OPERATION_CANCEL", "DELETE", f"/v1/operations/{begun[1]['id']}")
            if self.made["OPERATION_CANCEL"]:
                break
        self.call("IMPORT_BEGIN", "POST", f"{R}/imports", {"kind": "torch", "path": str(self.exports), "step": 99})

    def do_6_the_server(self):
        self.call("GC", "POST", "/v1/gc", {})
        self.call("WEBHOOK_REDELIVER", "POST", "/v1/webhooks/hook/redeliver", {})
        made = self.call("TOKEN_MAKE", "POST", "/v1/tokens", {"scopes": ["read"], "name": "ci"})
        self.call("TOKEN_REVOKE", "DELETE", f"/v1/tokens/{made['id']}")
        self.call("RECONCILE", "POST", f"{R}/reconcile", {})

    def do_7_a_node_that_has_been_silent_for_30_seconds(self):
        self.passing.passes(31)
        said = self.world.cairn("nodes", "rm", "node-a", env={"CAIRN_TOKEN": self.token}).stdout
        self.assertEqual(said, "node node-a is forgotten; its next heartbeat makes it known again\n")
        self.made["NODE_DELETE"] = self.events(self.since)


class Removal(Calls):
    def test_each_event_of_a_run_that_is_removed_with_all_it_has_names_who_asked(self):
        self.start()
        for step in (1, 2):
            self.committed_by_hand(*self.begin(step, f"j{step}", step - 1))
        self.begin(3, "j3", 2)
        self.wait_for(self.call("RUN_DELETE", "DELETE", f"{R}?confirm=seven"))
        told = [event for event in self.events() if event.get("actor") == self.who and
                event["event"].split(".")[1] in ("trashed", "aborted", "removed", "begun")]
        self.assertEqual(sorted(event["event"] for event in told), [
            "checkpoint.aborted", "checkpoint.trashed", "checkpoint.trashed", "operation.begun", "run.removed"])
        self.assertEqual({event["address"] for event in told}, {"127.0.0.1"})
        self.assertEqual({event["reason"] for event in told if event["event"] == "checkpoint.trashed"},
                         {"with its run"})
        begun = next(event for event in told if event["event"] == "operation.begun")
        self.assertIn('"versions":2', begun["reason"])


class Promotion(Calls):
    """A wish for a copy, its operation and who asked are kept together or not at all."""
    BEFORE = "server.operation.before_begin"

    def begun(self):
        """Who had a version copied, each time."""
        return [event["actor"] for event in self.events()
                if event["event"] == "operation.begun" and " promote " in event["reason"]]

    def test_a_sweep_that_comes_between_begins_nothing_that_somebody_asked_for(self):
        folder = cases.folder(self)
        before = Held(folder, self.BEFORE)
        self.start("--sweep-interval", "50ms", env=before.env())
        self.committed_by_hand(*self.begin(1))
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            begun = pool.submit(self.call, None, "POST", f"{R}/checkpoints/1/promote", {"to": "far"})
            before.reached()
            go_round(self.world.server.process.pid, "cairn-sweep", 20)
            before.go_on()
            self.wait_for(begun.result())
        self.assertEqual(self.begun(), [self.who])
        self.assertIn("far", {copy["store"] for copy in self.call(None, "GET", f"{R}/checkpoints/1")["copies"]})

    def test_a_server_that_dies_before_it_has_noted_who_asks_has_not_noted_the_wish(self):
        self.start("--sweep-interval", "50ms", env={"CAIRN_CRASH_AT": f"{self.BEFORE}:1:kill"})
        self.committed_by_hand(*self.begin(1))
        with self.assertRaises(OSError):  # no answer
            self.call(None, "POST", f"{R}/checkpoints/1/promote", {"to": "far"})
        self.assertEqual(self.world.server.process.wait(HANG_S), -signal.SIGKILL)
        del self.world.env["CAIRN_CRASH_AT"]
        self.world.start_server()
        self.committed_by_hand(*self.begin(2))
        begun = self.call(None, "POST", f"{R}/checkpoints/2/promote", {"to": "far"})  # rounds of the sweep go by
        self.wait_for(begun)
        self.assertEqual(self.begun(), [self.who])
        self.assertEqual([copy["store"] for copy in self.call(None, "GET", f"{R}/checkpoints/1")["copies"]], ["main"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
