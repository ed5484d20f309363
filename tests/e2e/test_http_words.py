# SPDX-License-Identifier: Apache-2.0
"""What the pages of the API promise of single words: the type of a merge, the kinds of a stream of events."""
import json
import unittest
import urllib.error
import urllib.request

from world import HANG_S, World

RUN = "/v1/runs/words/a"


class Words(unittest.TestCase):
    def setUp(self):
        self.world = World(nodes=0)
        self.addCleanup(self.world.close)
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
        return json.loads(self.world.get(RUN)[2])["labels"]

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


if __name__ == "__main__":
    unittest.main()
