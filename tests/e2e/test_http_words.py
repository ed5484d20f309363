# SPDX-License-Identifier: Apache-2.0
"""What the pages of the API promise of single words: the type of a merge, the kinds of a stream of events."""
import json
import struct
import unittest
import urllib.error
import urllib.request

import cases
from world import HANG_S, World

RUN = "/v1/runs/words/a"


class Words(unittest.TestCase):
    def setUp(self):
        self.world = World(nodes=0, case=self)
        self.send("PUT", RUN, {"labels": {"team": "nlp", "tier": "tmp"}})

    def send(self, method, path, body, content_type="application/json", **headers):
        request = urllib.request.Request(self.world.url + path, method=method, data=json.dumps(body).encode(),
                                         headers={"Content-Type": content_type, "X-Cairn": "1", **headers})
        try:
            with urllib.request.urlopen(request, timeout=HANG_S) as reply:
                return reply.status, json.loads(reply.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def labels(self):
        return self.world.read(RUN)["labels"]

    def test_a_merge_patch_takes_away_what_is_null_and_keeps_what_it_does_not_name(self):
        merge = {"content_type": "application/merge-patch+json", "If-Match": "*"}
        status, told = self.send("PATCH", RUN, {"labels": {"tier": None, "of": "x"}, "note": "good"}, **merge)
        self.assertEqual(status, 200, told)
        self.assertEqual(self.labels(), {"team": "nlp", "of": "x"})
        self.assertEqual(self.send("PATCH", RUN, {"labels": None}, **merge)[0], 200)
        self.assertEqual(self.labels(), {})
        # The type says how a body is taken: of a PUT it is none of the API's.
        self.assertEqual(self.send("PUT", RUN, {"labels": {}}, merge["content_type"])[0], 415)
        self.assertEqual(self.send("PATCH", RUN, {"note": "x"}, "text/plain", **{"If-Match": "*"})[0], 415)

    def test_what_is_wrong_in_a_body_is_named_by_a_pointer(self):
        for body, pointer in (({"labels": {"": "x"}}, "/labels/"), ({"labels": {"a": "x\u0001"}}, "/labels/a"),
                              ({"labels": {"a/b~": 5}}, "/labels/a~1b~0"),
                              ({"labels": {"a: b: c": 5, "a": "x"}}, "/labels/a: b: c"), ({"labels": {"a/b: c": 5}}, "/labels/a~1b: c"),
                              ({"no: te": "x"}, "/no: te"), ({"note": 7}, "/note"), ({"nonte": "x"}, "/nonte")):
            status, told = self.send("PATCH", RUN, body, **{"If-Match": "*"})
            self.assertEqual((status, told["code"]), (400, "invalid"), body)
            self.assertEqual([row["pointer"] for row in told["errors"]], [pointer], told)
            self.assertTrue(told["errors"][0]["detail"])
            self.assertEqual(told["detail"], f"{pointer}: {told['errors'][0]['detail']}")
        self.assertEqual(self.labels(), {"team": "nlp", "tier": "tmp"})

    def test_lists_and_names_in_a_body_are_refused_by_their_pointers(self):
        attempt = {"job": "j", "world_size": 1, "after": 0, "node": "n", "ranks": [{"rank": 0, "proc": "p"}]}
        for path, body, pointer in (
                ("attempts", {**attempt, "ranks": []}, "/ranks"),
                ("attempts", {**attempt, "ranks": [{"rank": 0, "proc": ""}]}, "/ranks/0/proc"),
                ("attempts", {**attempt, "ended": [0, -1]}, "/ended/1"),
                ("trash", {"versions": ["1", ""]}, "/versions/1"),
                ("checkpoints/1/promote", {"to": "nowhere"}, "/to"),
                ("checkpoints/1/demote", {"from": ""}, "/from")):
            status, told = self.send("POST", f"{RUN}/{path}", body)
            self.assertEqual((status, told["code"]), (400, "invalid"), (body, told))
            self.assertEqual([row["pointer"] for row in told["errors"]], [pointer], told)

    def test_an_entry_of_a_heartbeat_that_is_no_object_is_refused_by_its_pointer(self):
        for entry in (None, 7, "x", []):
            status, told = self.send("PUT", "/v1/nodes/by-hand", {"uploader": {}, "attempts": [], "versions": [], "restores": [{}, entry]})
            self.assertEqual((status, told["code"]), (400, "invalid"), told)
            self.assertEqual([row["pointer"] for row in told["errors"]], ["/restores/1"], told)

    def events(self, query, count):
        """The names and projects of the next events of a stream."""
        request = urllib.request.Request(f"{self.world.url}/v1/events?{query}", headers={
            "Accept": "text/event-stream", "Last-Event-ID": "0"})
        found = []
        with urllib.request.urlopen(request, timeout=HANG_S) as stream:
            while len(found) < count:
                line = stream.readline().decode()
                if line.startswith("data: "):
                    row = json.loads(line[6:])
                    found.append((row["event"], row["project"]))
        return found

    def test_a_stream_tells_the_kinds_and_the_project_alone_that_were_asked_for(self):
        for run in ("/v1/runs/words/b", "/v1/runs/others/b"):
            self.send("PUT", run, {"labels": {}})
            self.send("PUT", f"{run}/retention", {"keep": {"last": 2}})
        made = ("run.created", "words"), ("run.created", "words"), ("run.created", "others")
        self.assertEqual(tuple(self.events("kind=run.created,alias", 3)), made)
        self.assertEqual(self.events("kind=policy.set", 2), [("policy.set", "words"), ("policy.set", "others")])
        self.assertEqual(self.events("project=others&kind=run.created,policy", 2), [("run.created", "others"), ("policy.set", "others")])
        self.assertEqual(self.events("project=words&kind=policy", 1), [("policy.set", "words")])


class Elements(unittest.TestCase):
    """The words by which elements of a tensor are asked for."""

    def test_types_slices_and_units_are_taken_as_numpy_and_http_take_them(self):
        world = World(case=self)
        rows = [[float(4 * row + column) for column in range(4)] for row in range(3)]
        data = b"".join(struct.pack("<4f", *row) for row in rows)
        world.cairn("put", cases.safetensors(world.root / "model.safetensors", {"w": ("F32", [3, 4], data)}), "words/t@1")
        path = "/v1/runs/words/t/checkpoints/1/tensors/w/data"

        def asked(query, **headers):
            status, found, body = world.get(f"{path}?{query}", headers=headers)
            return status, found.get("X-Cairn-Shape"), found.get("X-Cairn-Dtype"), body

        self.assertEqual(asked("slice=2"), (200, "4", "F32", struct.pack("<4f", *rows[2])))
        self.assertEqual(asked("slice=2:3"), (200, "1,4", "F32", struct.pack("<4f", *rows[2])))
        self.assertEqual(asked("slice=:,1"), (200, "3", "F32", struct.pack("<3f", *(row[1] for row in rows))))
        for word in ("f16", "F16"):
            self.assertEqual(asked(f"slice=0&dtype={word}"), (200, "4", "F16", struct.pack("<4e", *rows[0])))
        self.assertEqual(asked("", Range="elements=0-1"), (200, "3,4", "F32", data))  # RFC 9110, 14.2
        self.assertEqual(asked("", Range="bytes=0-3")[0], 206)


if __name__ == "__main__":
    unittest.main()
