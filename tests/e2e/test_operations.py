# SPDX-License-Identifier: Apache-2.0
# ctest: seconds=55 engines=again
"""Imports and exports as operations of the server: what they keep and write is what the commands do,
each has an end, also when its server is killed, and no path leads out of the folders that are allowed."""
import json
import os
import pathlib
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.request

import cases
import openapi_page
import postgres
import re
from s3world import S3Fault, S3World
from signs import go_round, is_pending
from test_commands import shapes
from test_export import VECTORS, export, read
from test_to_dcp import model
from world import BIN, HANG_S, in_time, wait_until, World

MIB = 1 << 20
OVER = ("done", "failed", "cancelled", "interrupted")
KINDS = {"deepspeed": VECTORS / "deepspeed/stage2", "dcp": VECTORS / "dcp/fsdp",
         "torch": VECTORS / "torch/everything.pt"}


def children(pid):
    """Processes whose parent it is."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(path.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(path.parent.name))
        except (OSError, IndexError):
            continue
    return found


def lives(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Case(unittest.TestCase):
    """Every answer of the server is compared with api/openapi.yaml."""
    page = openapi_page.Page() if openapi_page.yaml else None
    context = None  # of TLS

    def make_world(self):
        return World(nodes=0)

    def setUp(self):
        self.world = self.make_world()
        self.addCleanup(self.world.close)
        self.inside, self.out = self.world.root / "in", self.world.root / "out"
        self.inside.mkdir()
        self.out.mkdir()
        self.token = ""
        self.restart("--import-folders", f"/nowhere,{self.inside},{VECTORS}", "--export-folders",
                     self.out, "--operations-at-once", "1")

    def restart(self, *arguments, kill=False):
        self.world.server.kill() if kill else self.world.server.stop()
        self.world.server_arguments = list(arguments) or self.world.server_arguments
        self.world.start_server()

    def call(self, method, path, body=None, url=None, token=None):
        headers = {"Content-Type": "application/json", "X-Cairn": "1"}
        if token or self.token:
            headers["Authorization"] = f"Bearer {token or self.token}"
        request = urllib.request.Request((url or self.world.url) + path, method=method, headers=headers,
                                         data=json.dumps(body).encode() if body is not None else None)
        try:
            with urllib.request.urlopen(request, timeout=HANG_S, context=self.context) as reply:
                answer = reply.status, dict(reply.headers), json.loads(reply.read())
        except urllib.error.HTTPError as error:
            answer = error.code, dict(error.headers), json.loads(error.read())
        if self.page:
            self.page.check(method, path, answer[0], answer[2])
        return answer

    def begin(self, path, body, **more):
        status, headers, operation = self.call("POST", path, body, **more)
        self.assertIn(status, (200, 202), operation)
        self.assertEqual(headers["Location"], f"/v1/operations/{operation['id']}")
        return operation["id"]

    def import_(self, run, **body):
        return self.begin(f"/v1/runs/{run}/imports", body)

    def export(self, run, ref, **body):
        return self.begin(f"/v1/runs/{run}/checkpoints/{ref}/exports", body)

    def end(self, name, wanted, **more):
        """The operation when it is over; 202 until then."""
        until = time.monotonic() + HANG_S
        while time.monotonic() < until:
            status, _, operation = self.call("GET", f"/v1/operations/{name}?wait=20s", **more)
            self.assertEqual(status, 200 if operation["state"] in OVER else 202)
            if operation["state"] in OVER:
                self.assertEqual(operation["state"], wanted, f"{operation}\n{self.world.logs()}")
                return operation
        self.fail(f"{name} does not end")
        return None

    def stopped_export(self, folder, run="llm/big", ref="1"):
        """One whose command was stopped at its beginning."""
        name = self.export(run, ref, path=str(self.out / folder))
        pid = wait_until(lambda: children(self.world.server.process.pid))[0]
        os.kill(pid, signal.SIGSTOP)
        self.addCleanup(lambda: lives(pid) and os.kill(pid, signal.SIGKILL))
        self.assertEqual(self.call("GET", f"/v1/operations/{name}")[0], 202)
        return name, pid

    def keep_big(self):
        model(self.inside / "big.safetensors", 8, MIB)
        name = self.import_("llm/big", kind="safetensors", path=str(self.inside / "big.safetensors"), step=1)
        return self.end(name, "done")

    def both_ways(self):
        """An import and an export, as the commands would do it."""
        source = KINDS["deepspeed"]
        told = self.end(self.import_("llm/a", kind="deepspeed", path=str(source), step=1), "done")
        self.assertGreater(told["result"]["bytes"], 0)
        there = self.out / "model"
        self.end(self.export("llm/a", "1", path=str(there)), "done")
        export(source, self.world.root / "wanted")
        self.assertEqual(read(there), read(self.world.root / "wanted"))
        failed = self.end(self.import_("llm/a", kind="hf", path=str(source), step=2), "failed")
        self.assertIn("it is deepspeed-zero", failed["problem"]["detail"])
        return told


class InABucket(Case):
    def make_world(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="cairn-operations-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.s3 = S3Fault(self.folder)
        self.addCleanup(self.s3.stop)
        return S3World(self.s3, nodes=0, debug=False)

    def test_an_export_that_was_whole_when_its_server_died_is_done_when_it_is_asked_for_again(self):
        self.end(self.import_("llm/a", kind="dcp", path=str(KINDS["dcp"]), step=1), "done")
        there = self.out / "whole"
        options = {"path": str(there), "max_shard_bytes": 2000}
        first = self.end(self.export("llm/a", 1, **options), "done")
        files = {path: path.read_bytes() for path in there.iterdir()}
        # What its server had not written down when it died: its answer.
        again = self.end(self.export("llm/a", 1, **options), "done")
        self.assertNotEqual(again["id"], first["id"])
        self.assertEqual({path: path.read_bytes() for path in there.iterdir()}, files)
        # A byte that is another one, or a file that is not there: that is somebody's own, and stays.
        changed = sorted(path for path in there.iterdir() if path.suffix == ".safetensors")[-1]
        cases.flip(changed, -1)
        other = changed.read_bytes()
        self.assertNotEqual(other, files[changed])
        for _ in range(2):
            told = self.end(self.export("llm/a", 1, **options), "failed")
            self.assertIn(f"{changed.name} already", told["problem"]["detail"])
        self.assertEqual(changed.read_bytes(), other)
        self.assertEqual({path.name for path in there.iterdir()}, {path.name for path in files})
        changed.unlink()
        told = self.end(self.export("llm/a", 1, **options), "failed")
        self.assertIn("already", told["problem"]["detail"])

    def test_an_import_and_an_export_go_through_a_store_in_a_bucket(self):
        told = self.both_ways()
        stored = self.s3.keys("cairn/")
        self.assertGreater(sum(stored.values()), told["result"]["bytes"])
        self.assertEqual(self.s3.uploads(""), [])
        self.s3.rules("op=get : status=403/AccessDenied")
        failed = self.end(self.export("llm/a", "1", path=str(self.out / "more")), "failed")
        self.assertTrue(failed["problem"]["detail"], failed)
        self.assertFalse([f for f in self.out.glob("more/*.safetensors")])


@unittest.skipUnless(shutil.which("openssl"), "no openssl to make a certificate with")
class OverHttps(Case):
    def setUp(self):
        super().setUp()
        cases.certificate(self.world.root, alt="IP:127.0.0.1")
        self.url = f"https://127.0.0.1:{self.world.port}"

    def serve(self, authority):
        self.restart(*self.world.server_arguments, "--tls-cert", self.world.root / "cert", "--tls-key",
                     self.world.root / "key", "--operations-url", self.url, "--ca-file", authority)
        self.world.url = self.url
        self.context = ssl.create_default_context(cafile=str(self.world.root / "cert"))

    def test_commands_of_operations_speak_https_to_their_server(self):
        self.serve(self.world.root / "cert")
        self.both_ways()

    def test_tls_1_2_is_spoken_with_forward_secrecy_and_authenticated_ciphers_alone(self):
        cases.certificate(self.world.root, alt="IP:127.0.0.1", kind=["rsa:2048"])  # each of these ciphers needs one
        self.serve(self.world.root / "cert")

        def speaks(ciphers):
            context = ssl.create_default_context(cafile=str(self.world.root / "cert"))
            context.maximum_version = ssl.TLSVersion.TLSv1_2
            context.set_ciphers(ciphers)
            try:
                with socket.create_connection(("127.0.0.1", self.world.port), timeout=HANG_S) as plain, \
                        context.wrap_socket(plain, server_hostname="127.0.0.1"):
                    return True
            except ssl.SSLError:
                return False
        self.assertTrue(speaks("ECDHE-RSA-AES256-GCM-SHA384"))
        for ciphers in ("ECDHE-RSA-AES256-SHA384", "AES256-GCM-SHA384", "AES128-SHA256", "AES256-SHA"):
            self.assertFalse(speaks(ciphers), ciphers)

    def test_one_that_does_not_trust_its_server_fails_and_says_so(self):
        cases.certificate(self.world.root, "other", cert="other", key="other.key")
        self.serve(self.world.root / "other")
        failed = self.end(self.import_("llm/a", kind="deepspeed", path=str(KINDS["deepspeed"]), step=1),
                          "failed")
        self.assertIn("certificate", failed["problem"]["detail"].lower())


class Operations(Case):
    def test_an_answer_that_the_page_does_not_describe_is_noticed(self):
        if not self.page:
            self.skipTest("python3-yaml is not installed")
        name = self.import_("llm/a", kind="dcp", path=str(KINDS["dcp"]), step=1)
        told = self.end(name, "done")
        path = f"/v1/operations/{name}"
        self.call("GET", "/v1/operations")
        self.call("GET", f"{path}0")
        self.assertEqual(self.call("DELETE", path)[0], 200)
        for change in ({"kind": 1}, {"ended_at": "yesterday"}, {"progress": {"done": 1}}, {"more": 1},
                       {"problem": {}}, {"project": None}):
            with self.assertRaises(AssertionError, msg=change):
                self.page.check("GET", path, 200, {**told, **change})
        with self.assertRaises(AssertionError):
            self.page.check("GET", path, 200, {k: v for k, v in told.items() if k != "state"})
        self.assertLessEqual({("import_begin", 202), ("operation_get", 200), ("operation_list", 200),
                              ("operation_get", 404), ("operation_cancel", 200)}, self.page.seen)

    def test_an_import_keeps_what_the_command_keeps_and_an_export_writes_what_it_writes(self):
        for step, (kind, source) in enumerate(KINDS.items(), 1):
            name = self.import_("llm/a", kind=kind, path=str(source), step=step, labels={"from": kind})
            told = self.end(name, "done")
            self.assertEqual((told["kind"], told["project"], told["run"]), ("import", "llm", "a"))
            self.assertEqual(told["progress"], {"done": told["result"]["bytes"], "unit": "bytes",
                                                "total": told["result"]["bytes"]})
            self.assertEqual(told["request"]["path"], str(source))
            kept = self.world.version("llm/a", told["result"]["version"])
            self.assertEqual((kept["step"], kept["state"], kept["labels"]), (step, "committed", {"from": kind}))
            there = self.out / f"nested/{kind}"
            told = self.end(self.export("llm/a", step, path=str(there)), "done")
            self.assertEqual(told["result"]["folder"], str(there))
            self.assertEqual(told["request"]["version"], kept["version"])
            export(source, self.world.root / kind)
            wanted = read(self.world.root / kind)
            wanted.pop("stretched", None)  # a view that repeats its elements: an import keeps its file alone
            self.assertEqual(read(there), wanted)
            self.end(self.export("llm/a", kept["version"], path=f"{there}-dcp", to="dcp"), "done")
            export(self.out / f"nested/{kind}-dcp", self.world.root / f"{kind}-dcp")
            self.assertEqual(read(self.world.root / f"{kind}-dcp"), wanted)
        # Names become others as by the command, and floats other types.
        told = self.end(self.export("llm/a", 2, path=str(self.out / "named"), strip_prefix="model.",
                                    rename="*=new.*", dtype="bf16"), "done")
        export(KINDS["dcp"], self.world.root / "named", "--strip-prefix", "model.", "--rename", "*=new.*",
               "--dtype", "bf16")
        named = read(self.out / "named")
        self.assertIn("new.first.weight", named)
        self.assertEqual(named, read(self.world.root / "named"))
        # Options are those of the command, and what cannot be is its failure.
        told = self.end(self.export("llm/a", 1, path=str(self.out / "few"), only="nothing*"), "failed")
        self.assertEqual(told["result"], None)
        self.assertTrue(told["problem"]["detail"], told)
        told = self.end(self.import_("llm/a", kind="hf", path=str(KINDS["dcp"]), step=9), "failed")
        self.assertIn("it is torch-dcp", told["problem"]["detail"])
        told = self.end(self.import_("llm/a", kind="dcp", path=str(KINDS["dcp"]), step=2), "failed")
        self.assertEqual((told["problem"]["code"], told["problem"]["status"]), ("step-exists", 409))
        self.end(self.import_("llm/a", kind="dcp", path=str(KINDS["dcp"]), step=2, new_version=True), "done")
        # All of them, newest first, in pages.
        seen, cursor = [], ""
        while cursor is not None:
            _, _, page = self.call("GET", f"/v1/operations?limit=3{cursor and '&cursor=' + cursor}")
            seen += [item["id"] for item in page["items"]]
            cursor = page["next_cursor"]
        self.assertEqual(seen, sorted(seen, reverse=True))
        self.assertEqual(len(seen), len(set(seen)))
        self.assertEqual(len(seen), 14)

    def test_a_removed_run_is_made_again_by_an_import(self):
        source = str(KINDS["deepspeed"])
        self.end(self.import_("llm/a", kind="deepspeed", path=source, step=1), "done")
        self.call("PUT", "/v1/runs/llm/a/retention", {"keep": {"last": 1}})

        def remove():
            status, _, told = self.call("DELETE", "/v1/runs/llm/a?confirm=a")
            return told if status in (200, 202) else None
        self.end(wait_until(remove)["id"], "done")
        for step in (2, 3):
            self.end(self.import_("llm/a", kind="deepspeed", path=source, step=step), "done")
        status, _, found = self.call("GET", "/v1/runs/llm/a/checkpoints")
        self.assertEqual((status, [item["step"] for item in found["items"] if not item["trashed"]]), (200, [3, 2]))
        self.assertIsNone(self.call("GET", "/v1/runs/llm/a/retention")[2]["from"])

    def test_bytes_are_counted_while_it_runs_and_who_waits_is_told_the_end(self):
        self.keep_big()
        name = self.export("llm/big", "latest", path=str(self.out / "big"), workers=1)
        counts = set()
        while (told := self.call("GET", f"/v1/operations/{name}")[2])["state"] not in OVER:
            counts.add(told["progress"]["done"])
            self.assertLessEqual(told["progress"]["done"], told["progress"]["total"])
        self.assertEqual(told["state"], "done", told)
        self.assertEqual(told["progress"]["done"], told["progress"]["total"])
        self.assertGreater(told["progress"]["total"], 8 * MIB)

    def test_one_that_is_cancelled_ends_and_leaves_nothing_that_has_a_name(self):
        self.keep_big()
        name, pid = self.stopped_export("first")
        same = self.export("llm/big", "1", path=str(self.out / "first"))
        self.assertEqual(same, name)  # asked for twice, it is one
        waits = self.export("llm/big", "1", path=str(self.out / "second"))
        self.assertEqual(self.call("GET", f"/v1/operations/{waits}")[2]["state"], "queued")
        self.assertEqual(self.call("DELETE", f"/v1/operations/{waits}")[0], 200)
        self.end(waits, "cancelled")
        status, _, told = self.call("DELETE", f"/v1/operations/{name}")
        self.assertEqual((status, told["state"], told["cancel_requested"]), (202, "running", True))
        wait_until(lambda: is_pending(pid, signal.SIGTERM))
        os.kill(pid, signal.SIGCONT)
        self.call("DELETE", f"/v1/operations/{name}")
        told = self.end(name, "cancelled")
        lines = self.world.cairn("events", "llm/big", "--since", "0", "--json").stdout.splitlines()
        self.assertEqual(sum('"operation.cancelling"' in line for line in lines), 1)
        self.assertEqual(told["problem"]["code"], "cancelled")
        self.assertFalse(lives(pid))
        self.assertEqual(list((self.out / "first").glob("*.safetensors")), [])
        self.assertEqual(self.call("DELETE", f"/v1/operations/{name}")[2]["state"], "cancelled")
        self.assertEqual(self.call("DELETE", "/v1/operations/op_1")[0], 404)
        self.end(self.export("llm/big", "1", path=str(self.out / "first")), "done")

    def test_the_command_lists_shows_waits_for_and_cancels_them(self):
        self.keep_big()
        name, pid = self.stopped_export("first")
        waits = self.export("llm/big", "1", path=str(self.out / "second"))
        rows = [line.split() for line in self.world.cairn("operation", "ls").stdout.splitlines()]
        self.assertEqual(rows[0], ["OPERATION", "KIND", "RUN", "STATE", "PROGRESS", "WHY"])
        self.assertEqual([row[:4] for row in rows[1:3]], [[waits, "export", "llm/big", "queued"],
                                                          [name, "export", "llm/big", "running"]])
        self.assertEqual(self.world.cairn("operation", "ls", "-n", "1", "-o", "name").stdout, f"{waits}\n")
        self.assertIn("cancelled", self.world.cairn("operation", "cancel", waits).stdout)
        in_time(lambda seconds: f"{name} is running yet" in self.world.cairn(
            "operation", "wait", name, "--timeout", f"{1000 * seconds:.0f}ms", status=8).stderr, 0.5)
        os.kill(pid, signal.SIGCONT)
        told = json.loads(self.world.cairn("operation", "wait", name, "--json").stdout)
        self.assertEqual(json.loads(self.world.cairn("wait", name, "--json").stdout), told)
        lines = self.world.cairn("events", "llm/big", "--since", "0", "--json").stdout.splitlines()
        events = [event for event in map(json.loads, lines) if event["event"].startswith("operation.")]
        self.assertEqual([(event["event"], *event["reason"].split()[:2]) for event in events[2:]],
                         [("operation.begun", name, "export"), ("operation.begun", waits, "export"),
                          ("operation.ended", waits, "cancelled"), ("operation.ended", name, "done")])
        self.assertIn(f'"path":"{self.out}/second"', events[3]["reason"])
        self.assertEqual([event.get("address") for event in events[2:]], ["127.0.0.1"] * 3 + [None])
        self.assertEqual((told["id"], told["state"]), (name, "done"))
        self.assertEqual(told, json.loads(self.world.cairn("operation", "show", name, "--json").stdout))
        self.assertEqual(set(told), shapes()["operation show"])
        broken = self.inside / "broken.pt"
        broken.write_bytes(b"no file of torch.save")
        failed = self.import_("llm/broken", kind="torch", path=str(broken), step=1)
        for ended, state, word in ((waits, "cancelled", "before it began"), (failed, "failed", "broken.pt")):
            said = self.world.cairn("operation", "wait", ended, status=None)
            self.assertNotEqual(said.returncode, 0)
            self.assertIn(f"{ended} {state}: ", said.stderr)
            self.assertIn(word, said.stderr)
        for words, status in ((("show", "op_1"), 3), (("show", "../runs"), 2), (("show",), 2), (("rm", name), 2)):
            self.world.cairn("operation", *words, status=status)

    def test_o02_of_a_server_that_is_killed_or_stopped_each_operation_is_interrupted(self):
        self.keep_big()
        for kill in (True, False):
            name, pid = self.stopped_export("again")
            waits = self.export("llm/big", "1", path=str(self.out / "waits"))
            if kill:
                self.world.server.kill()
                os.kill(pid, signal.SIGCONT)
                wait_until(lambda: not lives(pid))  # its command ends with it
                self.world.start_server()
            else:
                self.world.server.process.send_signal(signal.SIGTERM)
                wait_until(lambda: "server.stopping" in self.world.server.tail())
                os.kill(pid, signal.SIGCONT)
                self.world.server.stop()
                self.world.start_server()
            for one in (name, waits):
                told = self.end(one, "interrupted")
                self.assertEqual(told["problem"]["code"], "interrupted")
                self.assertTrue(told["ended_at"])
        told = self.end(self.export("llm/big", "1", path=str(self.out / "again")), "done")
        self.assertEqual(read(self.out / "again"), read(self.inside))

    def test_o01_no_path_leads_out_of_the_folders_that_the_settings_name(self):
        secret = self.world.root / "secret"
        secret.mkdir()
        model(secret / "m.safetensors", 1, 10)
        model(self.inside / "m.safetensors", 1, 10)
        (self.inside / "link").symlink_to(secret)
        (self.inside / "file").symlink_to(secret / "m.safetensors")
        (self.inside / "holds").mkdir()
        model(self.inside / "holds/m.safetensors", 1, 10)
        (self.inside / "holds/n.safetensors").symlink_to(secret / "m.safetensors")
        os.mkfifo(self.inside / "pipe")
        (self.out / "link").symlink_to(secret)
        path = "/v1/runs/llm/a/imports"
        for given, status in ((secret, 403), (f"{self.inside}-not", 403), ("in", 400), ("", 400),
                              (f"{self.inside}/../secret", 400), (f"{self.inside}/link", 400),
                              (f"{self.inside}/link/m.safetensors", 400), (f"{self.inside}/file", 400),
                              (f"{self.inside}/holds", 400), (f"{self.inside}/pipe", 400),
                              (f"{self.inside}/none", 404), ("/etc/passwd", 403), ("/", 403)):
            found, _, told = self.call("POST", path, {"kind": "safetensors", "path": str(given), "step": 1})
            self.assertEqual(found, status, f"{given}: {told}")
        self.end(self.import_("llm/a", kind="safetensors", path=f"{self.inside}//./m.safetensors", step=1), "done")
        path = "/v1/runs/llm/a/checkpoints/1/exports"
        for given, status in ((secret, 403), (f"{self.out}/../secret", 400), (f"{self.out}/link", 400),
                              (f"{self.out}/link/new", 400), (self.inside, 403)):
            found, _, told = self.call("POST", path, {"path": str(given)})
            self.assertEqual(found, status, f"{given}: {told}")
        self.assertEqual([entry.name for entry in secret.iterdir()], ["m.safetensors"])
        for body in ({"path": str(self.out), "to": "--help"}, {"path": str(self.out), "dtype": "int8"},
                     {"path": str(self.out), "store": "/"}, {}):
            self.assertEqual(self.call("POST", path, body)[0], 400, body)
        told = self.call("POST", "/v1/runs/llm/a/imports", {"kind": "pickle", "path": str(self.inside), "step": 1})[2]
        self.assertIn('"pickle" is not known: ', told["detail"])
        self.assertIn("deepspeed", told["detail"])
        self.assertEqual(self.call("POST", path.replace("/1/", "/7/"), {"path": str(self.out)})[0], 404)
        self.restart("--operations-at-once", "1")  # no folders
        for path, body, setting in ((path, {"path": str(self.out)}, "export-folders"),
                                    ("/v1/runs/llm/a/imports", {"kind": "hf", "path": "/", "step": 1},
                                     "import-folders")):
            status, _, told = self.call("POST", path, body)
            self.assertEqual(status, 403, told)
            self.assertIn(setting, told["detail"])

    def test_a_token_sees_and_begins_operations_of_its_projects_and_is_not_told_to_the_command(self):
        self.restart("--require-token", "--log-level", "debug", "--operations-url",
                     f"http://localhost:{self.world.port}", *self.world.server_arguments)
        admin = (self.world.root / "server/admin.token").read_text().strip()

        def make(*words):
            return self.world.cairn("token", "create", *words, env={"CAIRN_TOKEN": admin}).stdout.strip()
        both = make("--scope", "read,write", "--project", "llm", "both")
        sees = make("--scope", "read", "--project", "llm", "sees")
        other = make("--scope", "read,write", "--project", "else", "other")
        body = {"kind": "torch", "path": str(KINDS["torch"]), "step": 1}
        for token, status in ((sees, 403), (other, 404), ("cairn_x", 401)):
            self.assertEqual(self.call("POST", "/v1/runs/llm/a/imports", body, token=token)[0], status)
        self.token = both
        name = self.import_("llm/a", **body)
        self.assertTrue(self.end(name, "done")["actor"].startswith("both/"))
        self.end(self.export("llm/a", 1, path=str(self.out / "a")), "done")
        for token, status in ((sees, 200), (both, 200), (admin, 200), (other, 404)):
            self.assertEqual(self.call("GET", f"/v1/operations/{name}", token=token)[0], status)
            listed = [item["id"] for item in self.call("GET", "/v1/operations", token=token)[2]["items"]]
            self.assertEqual(name in listed, status == 200)
        self.assertEqual(self.call("DELETE", f"/v1/operations/{name}", token=sees)[0], 403)
        self.assertEqual(self.call("DELETE", f"/v1/operations/{name}", token=other)[0], 404)
        self.assertEqual(self.call("POST", "/v1/runs/llm/a/checkpoints/1/exports",
                                   {"path": str(self.out / "b")}, token=sees)[0], 403)
        events = self.world.cairn("events", "llm/a", "--json", env={"CAIRN_TOKEN": admin}).stdout
        self.assertIn('"both/', events)  # the import's own calls bear his name
        model(self.inside / "big.safetensors", 8, MIB)
        self.end(self.import_("llm/big", kind="safetensors", path=str(self.inside / "big.safetensors"), step=1),
                 "done")
        name, pid = self.stopped_export("c")
        said = pathlib.Path(f"/proc/{pid}/environ").read_bytes() + pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
        self.assertNotIn(both.encode(), said)
        self.assertIn(f"CAIRN_PARENT={self.world.server.process.pid}".encode(), said)
        # What it was given is good no longer than the token for which it was given.
        self.world.cairn("token", "revoke", both.split("_")[1], env={"CAIRN_TOKEN": admin})
        os.kill(pid, signal.SIGCONT)
        self.token = admin
        self.assertEqual(self.end(name, "failed")["problem"]["status"], 401)

    def keep(self, count):
        """Checkpoints 1 to count of llm/gone, and their bytes."""
        ended = [self.end(self.import_("llm/gone", kind="torch", path=str(KINDS["torch"]), step=step), "done")
                 for step in range(1, count + 1)]
        return sum(self.call("GET", f"/v1/runs/llm/gone/checkpoints/{step}")[2]["bytes"]
                   for step in range(1, count + 1)) if ended else 0

    def test_a_run_is_removed_by_one_that_says_what_it_frees_and_wants_its_name(self):
        at = "/v1/runs/llm/gone"
        size = self.keep(2)
        frees = {"versions": 2, "bytes": size, "open": 0}
        status, _, shown = self.call("DELETE", f"{at}?dry_run=true")
        self.assertEqual((status, {name: shown[name] for name in frees}), (200, frees))
        for query, word in (("", "confirm is missing"), ("?confirm=llm", "the run's name is gone"),
                            ("?dry_run=1", "dry_run must be true or false")):
            status, _, refused = self.call("DELETE", at + query)
            self.assertEqual((status, refused["code"]), (400, "invalid"))
            self.assertIn(word, refused["detail"])
        self.assertEqual({name: self.call("DELETE", at)[2][name] for name in frees}, frees)
        wait_until(lambda: self.call("DELETE", f"{at}?dry_run=true")[2]["code"] is None)  # the imports' nodes have left
        status, headers, begun = self.call("DELETE", f"{at}?confirm=gone")
        self.assertIn(status, (200, 202))
        self.assertEqual(headers["Location"], f"/v1/operations/{begun['id']}")
        self.assertEqual((begun["kind"], begun["request"]), ("remove", {**frees, "confirm": "gone"}))
        told = self.end(begun["id"], "done")
        self.assertEqual(told["result"], {"removed": 2, "bytes": size, "aborted": 0})
        self.assertEqual(told["progress"], {"done": 2, "total": 2, "unit": "versions"})
        self.assertIn("2 of 2 versions", self.world.cairn("operation", "show", begun["id"]).stdout)
        self.assertEqual(self.call("GET", at)[0], 404)
        self.assertEqual(self.call("DELETE", f"{at}?confirm=gone")[0], 404)

    @unittest.skipUnless(postgres.catalog(), "several servers share a catalog in PostgreSQL")
    def test_o03_a_server_that_was_stopped_removes_nothing_of_a_run_that_was_brought_back_meanwhile(self):
        at, count = "/v1/runs/llm/gone", 6
        self.keep(count)
        self.world.env["CAIRN_CRASH_AT"] = "server.trash.after_mark:0:delay=1000"
        self.restart("--job-lease", "1s", "--sweep-interval", "100ms", *self.world.server_arguments)
        self.world.start_further_server()
        other = self.world.urls[1]
        wait_until(lambda: self.call("DELETE", f"{at}?dry_run=true")[2]["code"] is None)
        name = self.call("DELETE", f"{at}?confirm=gone")[2]["id"]
        wait_until(lambda: self.call("GET", f"/v1/operations/{name}", url=other)[2]["progress"]["done"])
        os.kill(self.world.server.process.pid, signal.SIGSTOP)
        try:
            self.end(name, "interrupted", url=other)
            gone = self.call("GET", f"{at}/checkpoints?trashed=true", url=other)[2]["items"]
            self.assertTrue(0 < len(gone) < count, gone)
            for version in gone:
                self.call("POST", f"{at}/checkpoints/{version['version']}/undelete", url=other)
        finally:
            os.kill(self.world.server.process.pid, signal.SIGCONT)
        wait_until(lambda: re.search(rf"operation\.end\w* operation={name}", self.world.server.log.read_text()))
        for url in self.world.urls:
            self.assertEqual(self.call("DELETE", f"{at}?dry_run=true", url=url)[2]["versions"], count)
            self.end(name, "interrupted", url=url)

    def test_ended_ones_are_forgotten_by_count_and_by_age(self):
        self.restart("--operations-max", "2", "--sweep-interval", "100ms", *self.world.server_arguments)
        names = [self.import_("llm/a", kind="torch", path=str(KINDS["torch"]), step=step) for step in (1, 2, 3)]
        self.end(names[2], "done")
        wait_until(lambda: self.call("GET", f"/v1/operations/{names[0]}")[0] == 404)
        self.assertEqual({self.call("GET", f"/v1/operations/{name}")[0] for name in names[1:]}, {200})
        self.restart("--operations-age", "0ms", *self.world.server_arguments)
        wait_until(lambda: self.call("GET", "/v1/operations")[2]["items"] == [])

    @unittest.skipUnless(postgres.catalog(), "several servers share a catalog in PostgreSQL")
    def leases_go_round(self, count):
        """That thread of the first server, which renews its leases."""
        go_round(self.world.server.process.pid, "cairn-leases", count)

    def test_o03_of_two_servers_one_that_was_stopped_does_not_undo_what_the_other_has_ended(self):
        self.restart("--job-lease", "1s", "--sweep-interval", "100ms", *self.world.server_arguments)
        self.keep_big()
        self.world.start_further_server()
        other = self.world.urls[1]
        name, pid = self.stopped_export("there")
        self.leases_go_round(9)  # its server renews it three times in its life
        told = self.call("GET", f"/v1/operations/{name}", url=other)[2]
        self.assertEqual((told["id"], told["state"]), (name, "running"))
        os.kill(self.world.server.process.pid, signal.SIGSTOP)
        try:
            self.assertEqual(self.end(name, "interrupted", url=other)["result"], None)
        finally:
            os.kill(self.world.server.process.pid, signal.SIGCONT)
        os.kill(pid, signal.SIGCONT)
        wait_until(lambda: not lives(pid))
        self.leases_go_round(6)
        for url in self.world.urls:
            self.end(name, "interrupted", url=url)

    def test_settings_that_cannot_be_meant_end_the_start(self):
        for words, named in ((["--import-folders", "in"], "import-folders"),
                             (["--export-folders", f"{self.out},out"], "export-folders"),
                             (["--import-folders", f"{self.inside}/{{run}}"], "import-folders"),
                             (["--import-folders", self.inside, "--tls-cert", "c", "--tls-key", "k"], "operations-url")):
            done = subprocess.run([BIN / "cairn-server", "--store", self.world.store, *words], check=False,
                                  capture_output=True, text=True, timeout=HANG_S)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(named, done.stderr)


if __name__ == "__main__":
    unittest.main()
