# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
"""Webhooks with real receivers: signed, in order, at least once over kill -9, tried again, given up as
dead letters, and none held up by another."""
import base64
import hashlib
import hmac
import json
import os
import signal
import threading
import time
import unittest

import cases
import postgres
from test_commands import shapes
from world import BIN, HANG_S, wait_until, World

SECRET = b"a secret of more than sixteen bytes"


class Receiver(cases.StandIn):
    """Takes deliveries, each checked as a receiver of Standard Webhooks does it. answer: of the
    number of a try to the status that it gets; said: the body behind it."""

    def __init__(self, answer=lambda number: 200, secret=SECRET, said=b""):
        self.secret, self.answer, self.tries, self.taken, self.wrong = secret, answer, [], [], []
        self.lock = threading.Lock()
        super().__init__(lambda request: None if (status := self.take(request.headers, request.body)) is None else (status, said))
        self.url += "/secret-path?token=secret-query"

    def take(self, headers, body):
        signed = b".".join([headers["webhook-id"].encode(), headers["webhook-timestamp"].encode(), body])
        wanted = "v1," + base64.b64encode(hmac.new(self.secret, signed, hashlib.sha256).digest()).decode()
        with self.lock:
            if headers["webhook-signature"] != wanted or abs(int(headers["webhook-timestamp"]) - time.time()) > 60:
                self.wrong.append(headers["webhook-signature"])
            message = json.loads(body)
            if message["type"] != message["data"]["event"] or message["timestamp"] != message["data"]["at"]:
                self.wrong.append(message)
            at = "".join(c for c in message["data"]["at"] if c.isdigit())
            if not headers["webhook-id"].endswith(f"-{message['data']['id']}-{at}"):
                self.wrong.append(headers["webhook-id"])
            self.tries.append(headers["webhook-id"])
            status = self.answer(len(self.tries))
            if status is not None and 200 <= status < 300:
                self.taken.append((headers["webhook-id"], message["data"]))
            return status

    def events(self):
        with self.lock:
            return [event for _, event in self.taken]

    def runs(self):
        return [event.get("run") for event in self.events()]


class Webhooks(unittest.TestCase):
    def receiver(self, *arguments, **more):
        receiver = Receiver(*arguments, **more)
        cases.at_the_end(self, receiver.stop)
        self.addCleanup(lambda: self.assertEqual(receiver.wrong, []))
        return receiver

    def write(self, *hooks):
        self.file.write_text(json.dumps({"webhooks": hooks}))
        self.file.chmod(0o600)

    def start(self, *hooks, arguments=(), servers=1, env=None):
        self.file = cases.folder(self) / "webhooks.json"
        self.write(*hooks)
        world = World(nodes=0, servers=servers, env=env, server_arguments=[
            "--webhooks-file", self.file, "--webhook-pause-max", "100ms", "--sweep-interval", "100ms", *arguments], case=self)
        return world

    def hook(self, receiver, name="chat", **more):
        return {"name": name, "url": receiver.url, "secret": SECRET.decode(), **more}

    def make_run(self, world, name, url=None):
        """One event, and the answer that it is there."""
        world.send("PUT", f"/v1/runs/{name}", url=url)

    def rows(self, world):
        return world.json("webhooks", "ls")

    # ---- what is told ----

    def test_no_event_of_a_catalog_that_was_made_anew_has_the_id_of_an_old_one(self):
        """W02: its numbers begin again"""
        receiver = self.receiver()
        world = self.start(self.hook(receiver, events=["run.created"]))
        self.make_run(world, "p/a")
        wait_until(lambda: len(receiver.events()) == 1)
        world.server.stop()
        for path in (world.root / "server").glob("catalog*"):
            path.unlink()
        world.catalog = postgres.catalog()
        world.server_arguments += ["--adopt-store=true"]
        world.start_server()
        for number in range(20):  # the number of the old event is among those of the new ones
            self.make_run(world, f"p/new-{number}")
        wait_until(lambda: len(receiver.events()) == 21)
        ids, numbers = [name for name, _ in receiver.taken], [event["id"] for event in receiver.events()]
        self.assertIn(numbers[0], numbers[1:])
        self.assertEqual(len(set(ids)), 21)
        self.assertEqual(receiver.wrong, [])

    def test_webhooks_are_read_again_on_sighup_and_go_on_where_they_were(self):
        first, second = self.receiver(), self.receiver()
        world = self.start(self.hook(first, "first", events=["run.created"]))
        self.make_run(world, "p/a")
        wait_until(lambda: first.runs() == ["a"])

        def reload(*names):
            world.server.process.send_signal(signal.SIGHUP)
            wait_until(lambda: [row["name"] for row in self.rows(world)] == list(names))
        self.write(self.hook(first, "first", events=["run.created"]), self.hook(second, "second", events=["run.created"]))
        reload("first", "second")
        self.make_run(world, "p/b")
        wait_until(lambda: (first.runs(), second.runs()) == (["a", "b"], ["b"]))
        self.file.write_text('{"webhooks": [{"name": "first"}]}')  # no url: as it was
        world.server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "webhooks.kept" in world.server.log.read_text())
        self.make_run(world, "p/c")
        wait_until(lambda: (first.runs(), second.runs()) == (["a", "b", "c"], ["b", "c"]))
        self.write(self.hook(second, "second", events=["run.created"]))
        reload("second")
        self.make_run(world, "p/d")
        wait_until(lambda: second.runs() == ["b", "c", "d"])
        self.assertEqual(first.runs(), ["a", "b", "c"])

    def test_a_receiver_that_says_much_has_taken_what_it_was_told(self):
        """W01: a page behind a 200 is no failure"""
        talker = self.receiver(said=b"<p>thank you</p>" * 4096)
        world = self.start(self.hook(talker, events=["run.created"]))
        for name in ("p/a", "p/b"):
            self.make_run(world, name)
        wait_until(lambda: len(talker.events()) >= 2)
        self.assertEqual(talker.runs(), ["a", "b"])
        self.assertEqual(len(talker.tries), 2)
        wait_until(lambda: self.rows(world)[0]["delivered"] == 2)
        self.assertEqual([self.rows(world)[0][name] for name in ("failures", "dead_letters")], [0, 0])

    def test_events_are_told_signed_and_in_order_to_who_wants_them(self):
        """W01"""
        all_of_them, chosen = self.receiver(), self.receiver(secret=b"x" * 24)
        world = self.start(self.hook(all_of_them),
                           {"name": "eval", "url": chosen.url, "events": ["run.*"], "project": "llm*",
                            "secret": "whsec_" + base64.b64encode(b"x" * 24).decode()})
        names = [f"llm/{number}" for number in range(60)]
        for name in names:
            self.make_run(world, name)
        self.make_run(world, "other/run")
        world.cairn("alias", "rm", "llm/1", "none", status=3)
        wait_until(lambda: len(all_of_them.events()) == 61 and len(chosen.events()) == 60)
        self.assertEqual(chosen.runs(), [name.split("/")[1] for name in names])
        numbers = [event["id"] for event in all_of_them.events()]
        self.assertEqual(numbers, sorted(numbers))
        rows = self.rows(world)
        self.assertEqual(set(rows[0]), shapes()["webhooks ls"])
        wait_until(lambda: self.rows(world)[0]["behind"] == 0)
        self.assertEqual([row["delivered"] for row in self.rows(world)], [61, 60])
        for text in (json.dumps(rows), world.logs()):
            self.assertNotIn("secret-", text)
            self.assertNotIn(SECRET.decode(), text)
        text = world.get("/metrics")[2].decode()
        self.assertIn('cairn_webhook_deliveries_total{result="delivered"} 121\n', text)

    def test_what_is_not_taken_is_tried_again_with_the_same_id_and_nothing_overtakes_it(self):
        """W01, W02"""
        receiver = self.receiver(lambda number: {1: 500, 2: None, 3: 302, 4: 404}.get(number, 204))
        world = self.start(self.hook(receiver))
        for name in ("p/a", "p/b", "p/c"):
            self.make_run(world, name)
        wait_until(lambda: receiver.runs() == ["a", "b", "c"], 30)
        self.assertEqual(len(set(receiver.tries[:5])), 1)
        self.assertEqual(len(receiver.tries), 7)

    def test_one_that_is_away_holds_up_no_other_one(self):
        """W03"""
        answers = threading.Event()
        self.addCleanup(answers.set)
        living, slow = self.receiver(), self.receiver(lambda number: answers.wait(HANG_S) and 500)
        world = self.start({"name": "away", "url": "http://127.0.0.1:9/x", "secret": SECRET.decode()},
                           self.hook(slow, "slow"), self.hook(living))
        for name in ("p/a", "p/b", "p/c"):
            self.make_run(world, name)
        wait_until(lambda: living.runs() == ["a", "b", "c"])
        self.assertEqual(slow.taken, [])  # its first answer is awaited
        answers.set()
        wait_until(lambda: self.rows(world)[0]["failures"] > 1)
        row = self.rows(world)[0]
        self.assertEqual(row["host"], "http://127.0.0.1:9")
        self.assertIn("was not reached", row["cause"])
        self.assertEqual(row["behind"], 3)

    # ---- over deaths ----

    def test_a_server_that_is_killed_between_delivery_and_row_tells_it_again_and_loses_none(self):
        """W01"""
        receiver = self.receiver()
        world = self.start(self.hook(receiver), env={"CAIRN_CRASH_AT": "server.webhook.after_delivery:2:kill"})
        world.env.clear()
        names = ["a", "b", "c"]
        for name in names:
            try:
                self.make_run(world, f"p/{name}")
            except OSError:
                pass
        world.server.process.wait(HANG_S)
        world.start_server()
        for name in names:
            self.make_run(world, f"p/{name}")
        wait_until(lambda: sorted(set(receiver.runs())) == names, 30)
        self.assertEqual(len(receiver.tries), 4)
        self.assertEqual(len(set(receiver.tries)), 3)
        numbers = [event["id"] for event in receiver.events()]
        self.assertEqual(numbers, sorted(numbers))

    def test_what_happened_while_the_server_was_stopped_with_a_receiver_away_is_told_later(self):
        """W01"""
        receiver = self.receiver(lambda number: 200 if self.open else 503)
        self.open = False
        world = self.start(self.hook(receiver))
        self.make_run(world, "p/a")
        wait_until(lambda: receiver.tries)
        world.server.kill()
        self.open = True
        world.start_server()
        self.make_run(world, "p/b")
        wait_until(lambda: receiver.runs() == ["a", "b"], 30)

    def test_of_two_servers_one_tells_and_the_other_goes_on(self):
        """W04"""
        if not postgres.catalog():
            self.skipTest("a catalog of SQLite has one server")
        receiver = self.receiver()
        world = self.start(self.hook(receiver), servers=2, arguments=["--job-lease", "2s"])
        for number in range(20):
            self.make_run(world, f"p/{number}", world.urls[number % 2])
        wait_until(lambda: len(receiver.events()) == 20, 30)
        self.assertEqual(len(receiver.tries), 20)
        world.server.kill()
        self.make_run(world, "p/after", world.urls[1])
        wait_until(lambda: "after" in receiver.runs(), 60)

    # ---- what cannot be told ----

    def test_what_is_given_up_is_a_dead_letter_until_somebody_asks_for_it_again(self):
        """W02"""
        receiver = self.receiver(lambda number: 200 if self.open else 500)
        self.open = False
        world = self.start(self.hook(receiver), arguments=["--webhook-give-up", "1s"])
        self.make_run(world, "p/a")
        wait_until(lambda: self.rows(world)[0]["dead_letters"] == 1, 30)
        letters = world.json("webhooks", "letters", "chat")
        self.assertEqual(set(letters[0]), shapes()["webhooks letters"])
        self.assertEqual((letters[0]["event"]["run"], letters[0]["event"]["event"]), ("a", "run.created"))
        self.assertIn("answered 500", letters[0]["cause"])
        self.assertGreater(letters[0]["tries"], 1)
        self.assertIn("webhook.dead", world.logs())
        again = world.json("webhooks", "redeliver", "chat")
        self.assertEqual(again, {"name": "chat", "dead_letters": 1})
        self.assertEqual(set(again), shapes()["webhooks redeliver"])
        tries = letters[0]["tries"]
        wait_until(lambda: world.json("webhooks", "letters", "chat")[0]["tries"] > tries)
        self.open = True
        world.cairn("webhooks", "redeliver", "chat")
        wait_until(lambda: self.rows(world)[0]["dead_letters"] == 0)
        self.make_run(world, "p/b")
        # What asked for it is an event, too, of no run.
        wait_until(lambda: [run for run in receiver.runs() if run] == ["a", "b"])
        self.assertIn("no webhook", world.cairn("webhooks", "letters", "none", status=3).stderr)

    def test_what_was_trimmed_before_it_was_told_is_counted(self):
        """W05"""
        receiver = self.receiver(lambda number: 200 if self.open else 500)
        self.open = False
        world = self.start(self.hook(receiver), arguments=["--events-max", "3"])
        for number in range(10):
            self.make_run(world, f"p/{number}")
        wait_until(lambda: world.read("/v1/events?since=1&limit=1").get("code") == "cursor-expired")
        self.open = True
        wait_until(lambda: "9" in receiver.runs(), 30)
        row = self.rows(world)[0]
        self.assertGreater(row["missed"], 0)
        self.assertEqual(row["missed"] + len(set(receiver.runs())), 10)
        self.assertIn("webhook.missed", world.logs())

    # ---- the file ----

    def test_a_file_that_is_none_is_named_with_the_place(self):
        receiver = self.receiver()
        world = self.start(self.hook(receiver))
        good = self.hook(receiver)
        for hooks, words in ((({**good, "url": "ftp://x"},), "/webhooks/0/url"),
                             (({**good, "events": ["no.such"]},), "/webhooks/0/events/0"),
                             (({**good, "secret": "short"},), "/webhooks/0/secret"),
                             ((good, good), "/webhooks/1/name: chat is there twice"),
                             (({**good, "colour": 1},), "colour"),
                             (({**good, "secret_file": "/x"},), "secret or secret_file")):
            self.write(*hooks)
            self.assertIn(words, self.refused(world), words)
        self.write(good)
        self.file.chmod(0o644)
        self.assertIn("chmod 600", self.refused(world))

    def refused(self, world):
        done = cases.run([BIN / "cairn-server", "--listen", "127.0.0.1:0", "--store", world.store, "--data-dir",
             world.root / "other", *world.server_arguments],
            env={**os.environ}, status=2)
        self.assertNotIn(SECRET.decode(), done.stderr)
        return done.stderr


if __name__ == "__main__":
    unittest.main(verbosity=2)
