# SPDX-License-Identifier: Apache-2.0
# ctest: labels=ui seconds=100 thirds=3
"""The page of the server in a real browser: each view with nothing, with little, with a save under way, with a node
that is gone, with tokens and with names that look like markup. What the browser says of errors and of the policy of
contents must be nothing. CAIRN_TEST_PICTURES=DIR keeps a picture of each view."""
import json
import os
import pathlib
import subprocess
import unittest

import cases
import browser
from losing_proxy import LosingProxy
import test_uploads
from outcome import leave
from s3world import S3Fault, S3World
from ui_page import fill, MARKUP, Page, RUN, VIEWS
from world import BIN, line_of, wait_until, World

AXE = pathlib.Path(os.environ.get("CAIRN_SOURCE_DIR", pathlib.Path(__file__).parents[2])) / "build/axe/axe.min.js"


class Views(Page):
    def test_an_empty_server_says_how_the_first_run_comes(self):
        self.go("#/", "There is no run yet")
        for view, words in (("#/nodes", "node-0"), ("#/restores", "Nobody holds a lease"), ("#/nothing", "There is no page #/nothing")):
            self.go(view, words)
        self.expect_quiet()
        self.go(f"#/run/{RUN}", "not-found")

    def test_each_view_shows_what_was_saved_and_the_browser_has_nothing_to_say(self):
        for step in (100, 200, 300):
            self.put(step)
        self.world.cairn("metric", f"{RUN}@200", "eval/loss=1.25")
        self.world.cairn("label", f"{RUN}@200", "tier=keep")
        self.world.cairn("pin", f"{RUN}@100")
        words = {"#/": ["llm/7b", "step 300"], f"#/run/{RUN}": ["Attempt", "The newest 3", "pinned", "From the begin of a save until it was staged, durable, committed", "How long the training stood still"],
                 f"#/checkpoint/{RUN}/200": ["tier=keep", "eval/loss 1.25", "w.bin", "checkpoint.committed", "cairn get 'llm/7b@200'"],
                 f"#/retention/{RUN}": ["no rule: removes nothing", "keep"], "#/nodes": ["node-0"], "#/restores": ["Who reads now"],
                 f"#/compare/{RUN}/100/200": ["1 alike, 1 not"]}
        for view, texts in words.items():
            self.go(view)
            for text in texts:
                self.browser.has(text)
            self.keep_picture(view.strip("#/").replace("/", "-") or "runs")
        self.expect_quiet()

    def test_the_runs_say_where_the_space_is_and_what_failed(self):
        self.put(100)
        self.put(200)
        self.world.cairn("rm", f"{RUN}@100")
        self.world.get_from(self.world.url, f"/v1/runs/{RUN}", "PUT", {"X-Cairn": "1"})
        self.world.cairn("label", RUN, "team=nlp")
        self.go()
        for text in ("Bytes by project, all that is not gone", "Bytes by state", "in the trash", "Bytes by label of the run", "team=nlp",
                     "Failed saves of a day"):
            self.browser.has(text)
        self.keep_picture("runs-space")
        self.expect_quiet()

    def test_a_metric_has_its_best_marked_as_the_policy_means_it(self):
        for step, value in ((100, 0.5), (200, 0.9), (300, 0.7)):
            self.put(step)
            self.world.cairn("metric", f"{RUN}@{step}", f"eval/acc={value}")
        self.go(f"#/run/{RUN}?metric=eval%2Facc", "eval/acc: the best (the least) is step 100")
        self.world.cairn("policy", "set", RUN, "--keep-last", "9", "--keep-best", "1:eval/acc:max")
        self.go("#/")
        self.go(f"#/run/{RUN}?metric=eval%2Facc", "eval/acc: the best (the greatest) is step 200")
        self.browser.click("button", "By step")
        self.browser.has("eval/acc: the best (the greatest) is step 200")
        self.keep_picture("run-by-step")

    def test_a_restore_out_of_memory_says_so(self):
        self.world.cairn("bench", "save", RUN, "--ranks", "2", "--bytes", "4MiB", "--steps", "1")
        self.world.cairn("bench", "restore", RUN, "--ranks", "2", "--bytes", "4MiB", "--steps", "1")
        self.go("#/restores", "From its memory", "step ")
        self.keep_picture("restores-told")

    def test_a_new_commit_is_shown_without_a_click(self):
        self.put(100)
        self.go(f"#/run/{RUN}", "step 100")
        self.put(200)
        self.browser.has("step 200")

    def test_a_save_under_way_shows_who_is_waited_for_and_can_be_given_up(self):
        self.put(100)
        job = subprocess.Popen([BIN / "tests/trainer", RUN, "0", "2", "200"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                               env={**os.environ, "CAIRN_JOB": "half", "TRAINER_ROWS": "2", "CAIRN_SOCKET": self.world.socket()})
        self.addCleanup(lambda: (job.kill(), job.communicate()))
        line_of(job)
        wait_until(lambda: self.world.read(f"/v1/runs/{RUN}/liveness")["open"])
        self.go(f"#/run/{RUN}", "Being saved")
        self.browser.click("section.open a", "step 200")
        self.browser.has("What it waits for")
        self.browser.has("Not sealed: rank 1")
        self.browser.click("button", "Give up")
        self.browser.type("dialog input", "seen by the page")
        self.browser.click("dialog button.main")
        self.browser.has("Done: step 200 given up")
        wait_until(lambda: "seen by the page" in json.dumps(self.world.read(f"/v1/runs/{RUN}/events")))

    def test_the_nodes_show_what_keeps_a_save_open_and_what_a_node_holds(self):
        job = subprocess.Popen([BIN / "tests/trainer", RUN, "0", "2", "200"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                               env={**os.environ, "CAIRN_JOB": "half", "TRAINER_ROWS": "2", "CAIRN_SOCKET": self.world.socket()})
        self.addCleanup(lambda: (job.kill(), job.communicate()))
        line_of(job)
        wait_until(lambda: self.world.read(f"/v1/runs/{RUN}/liveness")["open"])
        self.go("#/nodes", f"{RUN} step 200", "Not sealed: rank 1")
        self.browser.until("return [...document.querySelectorAll('td')].some(cell => /^ [0-9.]+ [KM]?i?B of [0-9.]+ [KM]?i?B$/.test(cell.textContent))")
        self.keep_picture("nodes-open")
        self.browser.click("td a", f"{RUN} step 200")
        self.browser.has("They can be seen once it is committed.")
        self.expect_quiet()

    def test_the_run_says_why_its_policy_keeps_each(self):
        for step in (100, 200, 300):
            self.put(step)
        self.world.cairn("pin", f"{RUN}@100")
        self.world.cairn("policy", "set", RUN, "--keep-last", "9")
        self.go(f"#/run/{RUN}", "kept by last 3 of 9")
        self.browser.run("document.querySelector('canvas.timeline').focus(); return 1")
        self.browser.keys(["\ue010"])  # End: the newest
        self.browser.has("latest; kept by last 1 of 9")
        self.expect_quiet()

    def test_a_save_that_a_preemption_caused_bears_a_flag(self):
        flags = ("const of = document.querySelector('canvas.timeline'), copy = document.createElement('canvas');"
                 "copy.width = of.width; copy.height = of.height + 1;"
                 "const pen = copy.getContext('2d', {willReadFrequently: true}); pen.drawImage(of, 0, 1);"
                 "pen.fillStyle = getComputedStyle(of).getPropertyValue('--bad'); pen.fillRect(0, 0, 1, 1);"
                 "const all = pen.getImageData(0, 0, copy.width, copy.height).data; let found = -1;"
                 "for (let i = 0; i < all.length; i += 4) found += [0, 1, 2].every(c => all[i + c] === all[c]) && all[i + 3] === 255;"
                 "return found")
        self.put(100)
        self.go(f"#/run/{RUN}", "The newest 1")
        self.assertEqual(self.browser.run(flags), 0)
        self.put(200, more=("--labels", '{"cairn.preempted": "SIGTERM"}'))
        self.browser.has("The newest 2")
        self.assertGreater(self.browser.run(flags), 20)
        self.browser.run("document.querySelector('canvas.timeline').focus(); return 1")
        self.browser.keys(["\ue010"])  # End: the newest
        self.browser.has("saved after SIGTERM, before the job was preempted")
        self.keep_picture("run-preempted")
        self.expect_quiet()

    def test_a_node_that_is_gone_stands_out(self):
        self.world.uploaders[0].kill()
        self.go("#/nodes", "node-0")
        self.browser.run("const past = Date.now; Date.now = () => past() + 60000;"  # a minute later
                         "document.dispatchEvent(new Event('visibilitychange')); return 1")  # it looks again
        self.browser.has("silent")

    def test_a_server_that_is_away_is_said_and_its_return_too(self):
        self.put(100)
        self.go("#/", "step 100")
        self.world.server.stop()
        self.browser.run("const past = performance.now.bind(performance); performance.now = () => past() + 30000; return 1")
        self.browser.has("No data for")
        self.world.start_server()
        self.browser.run("delete performance.now; return 1")
        self.browser.until("return !document.body.innerText.includes('No data for')")


class Changes(Page):
    def test_pins_labels_trash_and_back_ask_once_and_show_what_came_of_it(self):
        for step in (100, 200):
            self.put(step)
        self.go(f"#/checkpoint/{RUN}/100")
        self.browser.click("button", "Pin")
        self.browser.click("dialog button", "Cancel")
        self.assertFalse(self.world.version(RUN, "100")["pinned"])
        self.done("Pin", "Done: pin step 100")
        self.assertTrue(self.world.version(RUN, "100")["pinned"])
        self.browser.has("Unpin")
        self.browser.type("input[aria-label=Label]", "tier")
        self.browser.type("input[aria-label=Value]", MARKUP)
        self.browser.click("button", "Set label")
        self.browser.has(f"tier={MARKUP}")
        self.done("To the trash")
        self.browser.has("is pinned")  # the server's answer, as it is
        self.assertEqual(self.world.version(RUN, "100")["step"], 100)
        version = self.world.version(RUN, "200")["version"]
        self.go(f"#/checkpoint/{RUN}/{version}")
        self.done("To the trash")
        self.done("Bring back", "brought back")
        self.assertEqual(self.world.version(RUN)["step"], 200)

    def test_a_policy_is_seen_before_it_is_carried_out(self):
        for step in range(100, 600, 100):
            self.put(step)
        self.go(f"#/retention/{RUN}")
        self.browser.type("#keep-last", "2")
        self.browser.has("Remove these 3 now")
        self.browser.click("button", "Look 30 days ahead")
        self.browser.has("saves of the next 30 days")
        self.browser.click("button", "Back to what is there")
        self.assertEqual(len(self.committed()), 5)
        self.done("Remove these 3 now", "Done: 3 checkpoints removed")
        self.assertEqual(self.committed(), [400, 500])
        self.done("Make this the run's policy")
        wait_until(lambda: self.world.read(f"/v1/runs/{RUN}/retention")["policy"] == {"keep": {"last": 2}})

    def committed(self):
        items = self.world.read(f"/v1/runs/{RUN}/checkpoints?state=committed&trashed=false&limit=100")["items"]
        return sorted(item["step"] for item in items)


class Names(Page):
    def test_names_that_look_like_markup_are_text(self):
        name = MARKUP.replace("/", "")
        long = "/".join(["x" * 199] * 2) + "/<b>"
        self.put(100, {name: b"1", long: b"2"})
        tensor = '<img/src=x/onerror="document.title=1">'.ljust(1024, "z")
        state = cases.file(self.world.root / "state", b"3")
        subprocess.run([BIN / "tests" / "tensor_writer", RUN, "0", "1", "200"], input=f"item {tensor} 4 {state}\n", text=True, check=True,
                       env={**os.environ, "CAIRN_SOCKET": self.world.socket()})
        self.world.cairn("label", f"{RUN}@100", f"note={MARKUP}", "long=" + "y" * 500)
        self.go(f"#/checkpoint/{RUN}/100", name, long)
        self.assertLessEqual(self.browser.run("return document.documentElement.scrollWidth - innerWidth"), 0)
        self.browser.has(f"note={MARKUP}")
        self.assertEqual(self.browser.run("return document.querySelectorAll('#main img').length"), 0)
        self.go(f"#/checkpoint/{RUN}/200", tensor)
        self.assertLessEqual(self.browser.run("return document.documentElement.scrollWidth - innerWidth"), 0)
        self.go(f"#/compare/{RUN}/100/200", tensor)
        self.assertEqual(self.browser.run("return document.querySelectorAll('#main img').length"), 0)
        self.assertIn("Compare", self.browser.run("return document.title"))
        self.expect_quiet()

    def test_a_phone_shows_each_view_without_moving_sideways(self):
        self.put(100)
        self.put(200)
        self.browser.devtools("Emulation.setDeviceMetricsOverride", width=380, height=800, deviceScaleFactor=1, mobile=True)
        for view in VIEWS:
            self.go(view)
            self.settled()
            self.assertLessEqual(self.browser.run("return document.documentElement.scrollWidth"), 380, view)
            self.keep_picture(f"phone-{view.strip('#/').replace('/', '-') or 'runs'}")

    def test_all_can_be_done_by_keys(self):
        self.put(100)
        self.put(200)
        self.go(f"#/run/{RUN}", "The newest 2")
        self.browser.run("document.querySelector('canvas.timeline').focus(); return 1")
        self.browser.keys(["\ue011", "\ue007"])  # Home, Enter: the first one is opened
        self.browser.has("step 100")
        self.browser.until("return location.hash.startsWith('#/checkpoint/')")
        self.browser.keys(["n"])
        self.browser.has("Uploads that no save will end")

    @unittest.skipUnless(AXE.exists(), "axe-core was not fetched (setup/extras.sh)")
    def test_nothing_serious_stands_in_the_way_of_those_who_do_not_see(self):
        self.put(100)
        self.put(200)
        for dark in ("light", "dark"):
            self.browser.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": dark}])
            for view in VIEWS:
                self.go(view)
                self.settled()
                self.browser.devtools("Runtime.evaluate", expression=AXE.read_text())
                found = self.browser.run("return axe.run().then(r => r.violations.map(v => [v.id, v.impact, v.nodes.map(n => n.html).slice(0, 3)]))")
                self.assertEqual([one for one in found if one[1] in ("serious", "critical")], [], (dark, view))


class Tokens(Page):
    SERVER = ("--require-token",)
    UPLOADER = ()

    def setUp(self):
        self.world = World(nodes=0, server_arguments=self.SERVER, case=self)
        self.admin = (self.world.root / "server" / "admin.token").read_text().strip()
        self.world.cairn("run", "create", RUN, env={"CAIRN_TOKEN": self.admin}, status=None)
        self.world.get_from(self.world.url, f"/v1/runs/{RUN}", "PUT", {"Authorization": f"Bearer {self.admin}", "X-Cairn": "1"})
        self.browser = browser.anew()

    def token(self, *words):
        said = self.world.cairn("token", "create", *words, "--json", env={"CAIRN_TOKEN": self.admin}).stdout
        return json.loads(said)["token"]

    def sign_in(self, token):
        self.browser.find("#token")
        self.browser.type("#token", token)
        self.browser.click("button", "Sign in")

    def test_a_token_is_asked_for_and_a_wrong_one_is_said(self):
        self.go("#/", "This server asks for a token")
        self.sign_in("cairn_" + "x" * 43)
        self.browser.until("return document.querySelector('.sign-in .problem')")
        self.sign_in(self.admin)
        self.browser.has(RUN)
        self.assertEqual(self.browser.run("return document.cookie"), "")
        self.browser.click("button", "Sign out")
        self.browser.has("This server asks for a token")

    def buttons(self):
        return set(self.browser.run("return [...document.querySelectorAll('#main button')].map(b => b.textContent)"))

    def test_who_may_do_more_sees_more_buttons(self):
        if os.environ.get("CAIRN_TEST_CATALOG") == "postgresql":
            self.skipTest("its catalog is filled by SQLite's own statements")
        self.world.server.stop()
        fill(self.world.root / "server" / "catalog.db", "one", 1)
        self.world.start_server()
        seen = {"read": set(), "read,write": {"Pin", "Set label"}, "read,write,retain": {"Pin", "Set label", "To the trash"}}
        for project, many in (("b?g*", True), ("bigger*", False)):
            for scopes, wanted in seen.items():
                self.browser.tab()
                self.go("#/checkpoint/big/one/latest")
                self.sign_in(self.token("--scope", scopes, "--project", project))
                self.browser.has("What happened" if many else "not-found")
                self.assertEqual(self.buttons() & {"Pin", "Set label", "To the trash"}, wanted if many else set(), (project, scopes))

    def test_who_may_only_read_sees_no_button_that_would_fail(self):
        self.go()
        self.sign_in(self.token("--scope", "read", "--project", "llm"))
        self.browser.has(RUN)
        self.go(f"#/retention/{RUN}", "no rule: removes nothing")
        self.assertEqual(self.browser.run("return [...document.querySelectorAll('button')].map(b => b.textContent).filter(t => /Make this|Remove these/.test(t))"), [])
        self.go("#/nodes", "This token does not see the nodes")


class Orphans(Page):
    def setUp(self):
        s3 = S3Fault(cases.folder(self), case=self)
        self.world = S3World(s3, server_arguments=["--sweep-interval", "100ms"], uploader_arguments=self.UPLOADER, case=self)
        self.browser = browser.anew()

    def test_uploads_that_no_save_will_end_are_ended_by_a_button(self):
        self.put(100)
        record = next(key for key in self.world.keys("/committed.json"))
        test_uploads.Uploads.upload(self, self.world, record.replace("committed.json", "shards/rank-00000/late"))
        self.world.server.stop()  # the next server looks when it starts
        self.world.start_server()
        wait_until(lambda: self.world.read("/v1/uploads")["items"])
        self.go("#/nodes", "5.1 MiB")
        self.keep_picture("nodes-orphans")
        self.browser.click("td button", "End")
        self.browser.has("End the 1 uploads of")
        self.browser.click("dialog button.main")
        self.browser.has("Done: uploads ended")
        self.browser.has("None: no part of an upload is left behind.")
        self.assertEqual(self.world.s3.uploads("cairn/"), [])
        self.expect_quiet()


class Lost(Page):
    """Files of the page that do not come: a module that is missing keeps all of them from running."""

    def setUp(self):
        super().setUp()
        self.put(100)
        self.proxy = LosingProxy(self.world.port)
        self.addCleanup(self.proxy.close)

    def test_a_page_that_did_not_come_whole_loads_itself_again_once(self):
        for name in ("runs.js", "app.js", "app.css", "uplot.js"):
            self.browser.tab()
            self.browser.devtools("Network.clearBrowserCache")
            self.proxy.lose(name, 1)
            self.browser.open(f"{self.proxy.url}/ui/#/run/{RUN}")
            self.browser.has("The newest 1")
            self.assertEqual(self.proxy.lost[name], 0)
            self.assertTrue(self.browser.run("return sessionStorage.getItem('cairn-loaded-again')"), name)

    def test_a_call_without_an_answer_is_made_again(self):
        for name in ("whoami", "7b", "liveness"):
            self.browser.tab()
            self.proxy.lose(name, 1)
            self.browser.open(f"{self.proxy.url}/ui/#/run/{RUN}")
            self.browser.has("The newest 1")
            self.browser.has("Usually every")
            self.assertEqual(self.proxy.lost[name], 0)

    def test_one_that_does_not_come_again_says_so_and_can_be_loaded_by_hand(self):
        self.proxy.lose("format.js", 1000)
        self.browser.open(f"{self.proxy.url}/ui/#/run/{RUN}")
        self.browser.has("The server does not answer, or the network is away.")
        self.keep_picture("lost")
        self.proxy.lose("format.js", 0)
        self.browser.click("button", "Load it again")
        self.browser.has("The newest 1")

    def test_without_the_script_that_says_so_a_line_appears(self):
        self.proxy.lose("boot.js", 1000)
        self.proxy.lose("app.js", 1000)
        self.browser.open(f"{self.proxy.url}/ui/")
        self.assertEqual(self.browser.run("return getComputedStyle(document.querySelector('.unloaded')).visibility"), "hidden")
        self.browser.run("document.getAnimations().forEach(one => one.finish()); return 1")  # its time is over
        self.browser.has("This page has not come whole")


class Without(unittest.TestCase):
    def test_a_server_without_its_page_says_so(self):
        world = World(nodes=0, server_arguments=["--no-ui"], case=self)
        for path in ("/ui/", "/ui/0/app.js"):
            status, _, body = world.get(path)
            self.assertEqual(status, 404, path)
            self.assertIn("--no-ui", json.loads(body)["detail"])

    def test_files_are_compressed_named_by_what_they_are_and_kept(self):
        world = World(nodes=0, case=self)
        status, headers, body = world.get("/ui/")
        self.assertEqual(status, 200)
        self.assertIn("default-src 'self'", headers["Content-Security-Policy"])
        folder = body.decode().split('src="')[1].split("/")[0]
        whole = 0
        for line in (pathlib.Path(__file__).parents[2] / "server/ui/files.def").read_text().splitlines():
            if not line.startswith("UI_FILE"):
                continue
            name = line.split('"')[1]
            if name == "index.html":
                continue
            status, headers, packed = world.get(f"/ui/{folder}/{name}", headers={"Accept-Encoding": "gzip"})
            self.assertEqual((status, headers.get("Content-Encoding")), (200, "gzip"), name)
            self.assertIn("immutable", headers["Cache-Control"])
            whole += len(packed)
            self.assertEqual(world.get(f"/ui/11111111/{name}")[1]["Cache-Control"], "no-store")
        self.assertLessEqual(whole, 80 * 1024)
        self.assertEqual(world.get("/ui/", headers={"If-None-Match": world.get("/ui/")[1]["ETag"]})[0], 304)
        self.assertEqual(world.get(f"/ui/{folder}/../../etc/passwd")[0], 400)
        self.assertEqual(world.get(f"/ui/{folder}/nothing.js")[0], 404)


if __name__ == "__main__":
    leave(unittest.main(exit=False).result)
