# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again lacks=yaml
"""Requests that are generated from api/openapi.yaml: of each operation some that the page allows, and some
of which a part is something else. Each is answered by what the page describes, none by a failure of the
server's own, and the server goes on.

CAIRN_TEST_SEED=N replays what is chosen, CAIRN_GENERATED=N is how many of each operation.
"""
import http.client
import json
import os
import random
import sys
import unittest
import urllib.parse

import cases
import openapi_page
from outcome import leave
from world import HANG_S, World

SEED = int(os.environ.get("CAIRN_TEST_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
EACH = int(os.environ.get("CAIRN_GENERATED", "24"))
METHODS = ("get", "put", "post", "delete", "head", "patch")
TEXTS = ("", "a", "llm", "seven", "latest", "best", "prod", "7", "main", "far", "node-0", "team=nlp,tier!=tmp",
         "0:2,-1", "1:3", "BF16", "100MB", "0s", "20ms", "1h", "f" * 64, "0" * 32, "c3" * 4, "min", "read",
         "2026-03-02T10:14:07Z", "ckpt_01234567-89ab-8def-8123-456789abcdef", "cairn1:nobody", "name@2",
         "0b6c8f1e-5d3a-4c2b-9f8e-1a2b3c4d5e6f", "urn:cairn:problem:x", "uniform", "a/b/data", "bytes=0-3")
TENSORS = ["t", "t/data", "layers/0/a%b ?#+ä"]
ODD_TEXTS = ("\x00", "\r\nX: y", "\u202e", "..", "a" * 5000, "%", "💾", "-1", "1e3", "null", "' OR 1=1 --", "{}")
ODD_NUMBERS = (-1, 1 << 62, (1 << 63) - 1, 1 << 64, 0.5, 1e300, -0.0)
WAITS = {"wait": ("0s", "20ms", "5", ""), "wait_staged_ms": (0, 1)}  # nobody is to wait here


class Maker:
    """Values of a schema, from pools; what is known of the server's runs is likely to be chosen."""

    def __init__(self, page, seed):
        self.page, self.random, self.known = page, random.Random(seed), {}
        self.share = 0  # of what may be left out, how much is given

    def often(self, share):
        return self.random.random() < share

    def text(self, schema, name):
        if name in WAITS:
            return self.random.choice(WAITS[name])
        if name in self.known and self.often(0.8):
            return self.random.choice(self.known[name])
        fitting = [text for text in TEXTS if openapi_page.re.search(schema.get("pattern", ""), text)]
        return self.random.choice(fitting or TEXTS)

    def value(self, schema, name="", depth=0):
        schema = self.page.resolve(schema)
        if "const" in schema or "enum" in schema:
            return self.random.choice(schema.get("enum", [schema.get("const")]))
        for word in ("oneOf", "anyOf"):
            if word in schema:
                return self.value(self.random.choice(schema[word]), name, depth)
        if "allOf" in schema:
            made = [self.value(part, name, depth) for part in schema["allOf"]]
            return {key: member for part in made if isinstance(part, dict) for key, member in part.items()}
        kinds = schema.get("type", "object" if "properties" in schema else "string")
        kind = self.random.choice(kinds) if isinstance(kinds, list) else kinds
        if kind == "object":
            return self.members(schema, depth)
        if kind == "array":
            count = 0 if depth > 6 else self.random.choice((0, 1, 1, 2, 5))
            return [self.value(schema.get("items", {}), name, depth + 1) for _ in range(count)]
        if kind in ("integer", "number"):
            least, most = schema.get("minimum", 0), schema.get("maximum", 1 << 40)
            known = self.known.get(name, ())
            return self.random.choice([*known, least, most, min(most, least + 1), min(most, least + 7)])
        return {"boolean": self.often(0.5), "null": None}.get(kind) if kind != "string" else self.text(schema, name)

    def members(self, schema, depth):
        needed, others = schema.get("required", ()), schema.get("additionalProperties")
        made = {name: self.value(part, name, depth + 1) for name, part in schema.get("properties", {}).items()
                if name in needed or (depth < 6 and self.often(self.share))}
        if isinstance(others, dict) or not schema.get("properties"):
            made.update({self.random.choice(TEXTS): self.value(others if isinstance(others, dict) else {},
                                                               "", depth + 1)} if self.often(0.6) else {})
        return made

    def odd(self):
        return self.random.choice([None, True, [], {}, [[]], [{}] * 40, {"": {}}, *ODD_TEXTS, *ODD_NUMBERS])

    def broken(self, value):
        """The same with one place of it, at any depth, taken away, replaced or added."""
        if isinstance(value, dict) and value and self.often(0.9):
            name = self.random.choice(sorted(value))
            rest = {key: member for key, member in value.items() if key != name}
            return self.random.choice((rest, {**value, "zzz": 1}, {**rest, name: self.broken(value[name])},
                                       {**rest, name: self.odd()}))
        if isinstance(value, list) and value and self.often(0.9):
            at = self.random.randrange(len(value))
            return [*value[:at], self.broken(value[at]), *value[at + 1:]]
        return self.odd()


class Generated(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if openapi_page.yaml is None:
            raise unittest.SkipTest("python3-yaml is not installed")
        cls.page = openapi_page.Page()

    def setUp(self):
        self.world = World(server_arguments=["--sweep-interval", "1s", "--trash-grace", "10min"], case=self)
        self.maker, self.run_name, self.fills = Maker(self.page, SEED), "", 0
        self.connection = http.client.HTTPConnection("127.0.0.1", self.world.port, timeout=HANG_S)
        self.addCleanup(self.connection.close)

    def call(self, method, target, body=None, headers=None):
        """Status, whether JSON came, and the answer."""
        self.connection.request(method, target, body=body, headers={"X-Cairn": "1", **(headers or {})})
        answer = self.connection.getresponse()
        got, kind = answer.read(), answer.headers.get("Content-Type", "")
        is_json = method != "HEAD" and kind in ("application/json", "application/problem+json")
        return answer.status, json.loads(got) if is_json else None

    def fill(self):
        """Runs with checkpoints, one of which is open, so that calls get behind the first question."""
        folder = self.world.root / "files"
        folder.mkdir(exist_ok=True)
        (folder / "f").write_bytes(b"0123456789" * 100)
        cases.safetensors(folder / "model.safetensors", {name: ("F32", [3, 8], bytes(96)) for name in TENSORS})
        self.fills += 1
        self.run_name = f"seven{self.fills}"  # a new one, since a save may be open in the last
        at = f"/v1/runs/llm/{self.run_name}"
        for step in (1, 2, 3):
            self.world.cairn("put", folder, f"llm/{self.run_name}@{step}")
        self.connection.close()  # it is made anew: the last one may have been idle for too long
        after = self.call("GET", at)[1]["attempt"]
        attempt = self.call("POST", f"{at}/attempts", json.dumps({
            "job": "by-hand", "world_size": 2, "resume": "latest", "after": after, "node": "n",
            "wait_staged_ms": 0, "ranks": [{"rank": 0, "proc": "p"}]}))[1] or {}
        self.call("POST", f"{at}/checkpoints", json.dumps({
            "grant": attempt.get("grant"), "node": "n", "step": 9, "n": 1, "rank": 0, "world_size": 2}))
        self.call("PUT", f"{at}/aliases/prod", json.dumps({"ref": "2"}))
        versions = [item["version"] for item in self.call("GET", f"{at}/checkpoints")[1]["items"]]
        lease = self.call("POST", f"{at}/checkpoints/1/leases", '{"job": "eval"}')[1] or {}
        self.maker.known = {
            "project": ["llm"] * 9 + ["none"], "run": [self.run_name] * 9 + ["none"], "step": [1, 9, 20],
            "ref": [*versions, "1", "2", "3", "9", "latest", "prod"], "version": versions, "name": ["f", "t"],
            "tensor": TENSORS, "versions": versions,
            "grant": [attempt.get("grant", "")], "X-Cairn-Grant": [attempt.get("grant", "")],
            "rank": [0, 1, 2], "node": ["n"], "alias": ["prod", "more"], "lease": [lease.get("lease", "l")],
            "If-Match": ["*"], "Range": ["bytes=0-3", "bytes=-5"], "world_size": [2], "n": [1], "confirm": [self.run_name]}

    def generate(self, path, parameters, operation):
        """A target, headers and a body; about half of them as the page says."""
        fits = self.maker.often(0.5)
        self.maker.share = self.maker.random.choice((0, 0.1, 0.5))
        target, query, headers = path, [], {}
        for parameter in parameters:
            name, where = parameter["name"], parameter["in"]
            given = where == "path" or parameter.get("required") or self.maker.often(self.maker.share)
            value = self.maker.value(parameter.get("schema", {}), name)
            if not fits and name not in WAITS and self.maker.often(0.2):
                value = self.maker.odd()
            text = json.dumps(value) if not isinstance(value, str) else value
            if where == "path":
                target = target.replace("{%s}" % name, urllib.parse.quote(text, safe="") or "x")
            elif given and where == "query":
                query.append((name, text))
            elif given and text.isascii() and text.isprintable():
                headers[name] = text
        content = self.page.resolve(operation.get("requestBody", {})).get("content", {})
        schema, body = content.get("application/json", {}).get("schema"), None
        if schema is not None:
            made = self.maker.value(schema)
            body = json.dumps(made if fits else self.maker.broken(made))
            headers["Content-Type"] = "application/json"
        elif content:
            body, headers["Content-Type"] = b"\0" * self.maker.random.choice((0, 7, 900)), next(iter(content))
        return target + ("?" + urllib.parse.urlencode(query) if query else ""), headers, body

    def judge(self, operation, method, target, status, answer):
        said = self.page.resolve(operation["responses"].get(str(status)) or operation["responses"].get("default", {}))
        self.assertTrue(said, f"{status} is not described")
        self.assertNotIn(status, (500, 502), answer)
        if answer is not None:
            forms = said.get("content", {})
            form = forms.get("application/json") or forms.get("application/problem+json")
            self.assertTrue(form, f"{status} is described without JSON: {answer}")
            self.assertIsNone(self.page.wrong(form["schema"], answer, f"{status}: "))

    def test_whatever_the_page_lets_generate_is_answered_as_it_says(self):
        print(f"seed {SEED}")
        seen = {}
        for path, item in self.page.page["paths"].items():
            latest = f"/v1/runs/llm/{self.run_name}/checkpoints/latest"
            if not self.fills or self.call("GET", latest)[0] != 200:
                self.fill()
            for method in METHODS:
                operation = item.get(method)
                if operation is None:
                    continue
                parameters = [self.page.resolve(parameter) for parameter in
                              [*item.get("parameters", []), *operation.get("parameters", [])]]
                for _ in range(EACH):
                    target, headers, body = self.generate(path, parameters, operation)
                    with self.subTest(seed=SEED, call=f"{method} {target}", body=body, headers=headers):
                        status, answer = self.call(method.upper(), target, body, headers)
                        seen.setdefault(operation["operationId"], set()).add(status // 100)
                        self.judge(operation, method, target, status, answer)
        self.assertEqual(self.call("GET", "/livez")[0], 200)
        self.assertNotIn(" ERROR ", self.world.logs())
        good = [name for name, classes in seen.items() if classes & {2, 3}]
        print(f"{len(seen)} operations, {len(good)} of them also granted something", file=sys.stderr)
        self.assertGreater(len(good), len(seen) // 2, sorted(set(seen) - set(good)))


if __name__ == "__main__":
    leave(unittest.main(exit=False).result)
