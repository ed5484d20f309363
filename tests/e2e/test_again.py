# SPDX-License-Identifier: Apache-2.0
"""Answers about a version that are given again until the catalog changes: to nobody who may not have
them, and never older than a change that was acknowledged."""
import http.client
import json
import os
import re
import threading
import unittest

import cases
from world import HANG_S, World

LATEST = "/v1/runs/nlp/a/checkpoints/latest"


class Again(unittest.TestCase):
    def setUp(self):
        self.world = World(nodes=0, catalog="", server_arguments=("--require-token",), case=self)
        self.admin = (self.world.root / "server/admin.token").read_text().strip()
        token = cases.file(self.world.root / "uploader.token", self.admin)
        token.chmod(0o600)
        self.world.uploader_arguments = ["--token-file", token]
        self.world.uploaders.append(self.world.make_uploader(0))
        self.world.uploaders[0].start()
        self.source = cases.file(self.world.root / "data", os.urandom(1000))
        self.put(1)

    def cairn(self, *words):
        return self.world.cairn(*words, env={"CAIRN_TOKEN": self.admin}).stdout

    def put(self, step):
        self.cairn("put", self.source, f"nlp/a@{step}")

    def connect(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.world.port, timeout=HANG_S)
        self.addCleanup(connection.close)
        return connection

    def ask(self, path=LATEST, token=None, method="GET", body=None, on=None, **headers):
        """(status, parsed body, headers)"""
        connection = on or self.connect()
        token = self.admin if token is None else token
        sent = {"Authorization": f"Bearer {token}"} if token else {}
        sent.update({name.replace("_", "-"): value for name, value in headers.items()})
        if body is not None:
            body, sent["Content-Type"] = json.dumps(body), "application/json"
        connection.request(method, path, body, sent)
        reply = connection.getresponse()
        text = reply.read()
        return reply.status, json.loads(text) if text else None, dict(reply.getheaders())

    def label(self, number, on=None):
        status, _, _ = self.ask("/v1/runs/nlp/a/checkpoints/1", method="PATCH", on=on,
                                body={"labels": {"number": str(number)}}, If_Match="*")
        self.assertEqual(status, 200)

    def looks(self):
        text = self.connect()
        text.request("GET", "/metrics", headers={"Authorization": f"Bearer {self.admin}"})
        found = re.search(r'db_query_duration_seconds_count\{op="look"\} (\d+)', text.getresponse().read().decode())
        return int(found.group(1))

    def test_the_same_question_is_answered_without_another_look(self):
        connection = self.connect()
        first = self.ask(on=connection)
        before = self.looks()
        for _ in range(300):
            status, body, headers = self.ask(on=connection)
            self.assertEqual((status, body, headers["ETag"], headers["Content-Type"]),
                             (200, first[1], first[2]["ETag"], first[2]["Content-Type"]))
        self.assertLess(self.looks() - before, 100)
        self.assertEqual(self.ask(If_None_Match=first[2]["ETag"])[0], 304)
        self.assertEqual(self.ask(method="HEAD")[:2], (200, None))
        self.assertEqual(self.ask(LATEST + "?wait=1s")[1], first[1])
        self.assertEqual(self.ask(LATEST + "?newer_than=1")[0], 404)
        self.assertEqual(self.ask(LATEST + "?nonsense=1")[0], 400)

    def test_no_answer_is_older_than_an_acknowledged_change(self):
        done, acknowledged, faults = threading.Event(), [0], []

        def read():
            connection = self.connect()
            while not done.is_set():
                before = acknowledged[0]
                status, body, _ = self.ask(on=connection)
                if status != 200 or int(body["labels"].get("number", 0)) < before:
                    faults.append((before, status, body))

        readers = [threading.Thread(target=read) for _ in range(4)]
        for reader in readers:
            reader.start()
        writer = self.connect()
        for number in range(1, 300):
            self.label(number, writer)
            acknowledged[0] = number
        done.set()
        for reader in readers:
            reader.join()
        self.assertEqual(faults, [])

    def test_a_new_version_a_removal_and_an_alias_are_seen_at_once(self):
        self.assertEqual([self.ask()[1]["step"] for _ in range(3)], [1, 1, 1])
        self.put(2)
        self.assertEqual([self.ask()[1]["step"] for _ in range(3)], [2, 2, 2])
        self.cairn("alias", "set", "nlp/a@2", "prod")
        self.assertEqual(self.ask()[1]["aliases"], ["prod"])
        self.cairn("alias", "rm", "nlp/a", "prod")
        self.cairn("rm", "nlp/a@2", "--yes")
        self.assertEqual([self.ask()[1]["step"] for _ in range(3)], [1, 1, 1])
        self.cairn("rm", "nlp/a@1", "--yes")
        self.assertEqual([self.ask()[0] for _ in range(3)], [404] * 3)

    def test_every_path_has_its_own_answer(self):
        self.put(2)
        versions = [self.ask(f"/v1/runs/nlp/a/checkpoints/{step}")[1]["version"] for step in (1, 2)]
        connection = self.connect()
        for number in range(600):  # more paths than the table has places: some share one
            status, _, _ = self.ask(f"/v1/runs/nlp/a/aliases/name-{number}", method="PUT",
                                    body={"ref": versions[number % 2]}, on=connection)
            self.assertIn(status, (200, 201))
        for _ in range(2):
            for number in range(600):
                status, body, _ = self.ask(f"/v1/runs/nlp/a/checkpoints/name-{number}", on=connection)
                self.assertEqual((status, body["version"]), (200, versions[number % 2]))

    def test_nobody_gets_it_who_may_not(self):
        mine = self.cairn("token", "create", "--scope", "read", "--project", "nlp", "mine").strip()
        other = self.cairn("token", "create", "--scope", "read", "--project", "vision", "other").strip()
        for _ in range(3):
            self.assertEqual(self.ask(token=mine)[0], 200)
            self.assertEqual(self.ask(token=other)[0], 404)
            self.assertEqual(self.ask(token="")[0], 401)
            self.assertEqual(self.ask(token=mine[:-1] + ("a" if mine[-1] != "a" else "b"))[0], 401)
        self.cairn("token", "revoke", mine.split("_")[1])
        self.assertEqual([self.ask(token=mine)[0] for _ in range(3)], [401] * 3)
        self.assertEqual(self.ask()[0], 200)


if __name__ == "__main__":
    unittest.main()
