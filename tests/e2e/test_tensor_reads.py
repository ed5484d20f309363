# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
"""Tensors by name over HTTP: what comes is what went in, whichever ranks hold it, whole or a slice,
as it is stored or converted, whatever the name and wherever it stands; and damage is an error or a
broken connection, never other bytes."""
import itertools
import json
import random
import re
import struct
import unittest
import urllib.parse

import cases
from test_export import EXPECTED, ZERO, as_fp32, export, read, rounded
from world import InWorld, wait_until

MIB = 1 << 20


def picked(shape, width, data, index):
    """The bytes that an index of Python picks, element by element."""
    ranges = [range(extent)[part] if isinstance(part, slice) else [range(extent)[part]]
              for extent, part in zip(shape, index)]
    out = []
    for place in itertools.product(*ranges):
        at = 0
        for extent, one in zip(shape, place):
            at = at * extent + one
        out.append(data[width * at:width * (at + 1)])
    return b"".join(out)


# Any text is a tensor's name; of these two none can stand alone in a path.
DOTS = [".", ".."]
NAMES = ["layers/0/attn.weight", "a", "a/data", "a/b", "a//b", "../a", "a/./b", "a.b", "a%b", "a%2Fb",
         "a%252Fb", "data", "data/data", "x/data", "/x/", "ä/线性.重量/🧮", "w ?&=#+;:@!$'()*,[]{}|^`\"<>~",
         "a+b", "a b", "back\\slash", "tab\tand\nline\x7f", "n" * 1000, "ü/" * 341 + "a"]


class Tensors(InWorld):
    def ask(self, run, name, method="GET", what="/data", headers=None, by="path", **query):
        """A tensor by its name, encoded in the path or in the query."""
        if by == "query":
            path, query = f"tensor{what}", {"name": name, **query}
        else:
            path = f"tensors/{urllib.parse.quote(name, safe='')}{what}"
        query = urllib.parse.urlencode(query, quote_via=urllib.parse.quote)
        return self.ask_raw(run, path + (query and f"?{query}"), method, headers)

    def ask_raw(self, run, target, method="GET", headers=None):
        """(status, headers, body); the body is what came before the connection broke, if it did."""
        *answer, self.broken = self.world.fetch(f"/v1/runs/{run}/checkpoints/latest/{target}", method, headers)
        return tuple(answer)

    def put(self, run, tensors):
        cases.safetensors(self.folder / run.replace("/", "-") / "model.safetensors", tensors)
        self.world.cairn("put", self.folder / run.replace("/", "-"), f"{run}@1")

    def test_what_ranks_have_saved_apart_comes_together_by_name(self):
        for case in EXPECTED:
            export(ZERO / case, self.folder / case, "--optimizer")
            self.world.cairn("import", "deepspeed", ZERO / case, f"ranks/{case}@1")
            for name, (dtype, shape, data) in read(self.folder / case).items():
                status, headers, body = self.ask(f"ranks/{case}", name)
                self.assertEqual((status, body), (200, data), (case, name))
                self.assertEqual((headers["X-Cairn-Dtype"], headers["X-Cairn-Shape"]),
                                 (dtype, ",".join(map(str, shape)) or None))
                shown = json.loads(self.ask(f"ranks/{case}", name, what="")[2])
                self.assertEqual((shown["name"], shown["dtype"], shown["shape"], shown["bytes"]),
                                 (name, dtype, shape, len(data)))
            _, _, alias = self.ask(f"ranks/{case}", "head.weight")
            self.assertEqual(alias, read(self.folder / case)["embed.weight"][2])

    def test_slices_are_what_python_picks(self):
        export(ZERO / "stage3", self.folder / "whole")
        self.world.cairn("import", "deepspeed", ZERO / "stage3", "slices/zero@1")
        _, shape, data = read(self.folder / "whole")["embed.weight"]
        self.assertEqual(len(shape), 2)
        dice = random.Random(7)
        for _ in range(40):
            index, text = [], []
            for extent in shape:
                a, b = sorted(dice.sample(range(extent + 1), 2))
                kind = dice.randrange(4)
                index.append((slice(a, b), slice(a - extent, None) if a < extent else slice(a, b),
                              a % extent, slice(None))[kind])
                text.append((f"{a}:{b}", f"{a - extent}:" if a < extent else f"{a}:{b}:1", f"{a % extent}", ":")[kind])
            status, headers, body = self.ask("slices/zero", "embed.weight", slice=",".join(text))
            self.assertEqual((status, body), (200, picked(shape, 4, data, index)), text)
        self.assertEqual(self.ask("slices/zero", "embed.weight", flat="5:-3")[2], data[20:-12])
        for text, wanted in ((f"{shape[0]}", 416), ("0:99", 416), ("3:1", 416), ("::2", 400),
                             ("a", 400), ("0,0,0", 400)):
            status, _, body = self.ask("slices/zero", "embed.weight", slice=text)
            self.assertEqual(status, wanted, (text, body))
        self.assertEqual(self.ask("slices/zero", "embed.weight", slice=":", flat=":")[0], 400)
        self.assertEqual(self.ask("slices/zero", "no.such")[0], 404)
        for by in ("path", "query"):
            self.assertEqual(self.ask("slices/zero", "", what="", by=by)[0], 400)
        status, _, body = self.ask("slices/zero", "embed.weight", slice="2:2")
        self.assertEqual((status, body), (200, b""))

    def test_types_are_converted_and_rounded_to_the_nearest(self):
        dice = random.Random(3)
        # Bits of ordinary numbers, so that Python can round them to fp16, too.
        values = [dice.uniform(-60000, 60000) * 2.0 ** -dice.randrange(24) for _ in range(3 * MIB)]
        data = struct.pack(f"<{len(values)}f", *values)
        self.put("types/a", {"w": ("F32", [3 * 1024, 1024], data), "n": ("I64", [2], bytes(16))})
        for dtype in ("BF16", "F16"):
            status, headers, body = self.ask("types/a", "w", dtype=dtype)
            wanted = rounded(data.hex(), dtype)
            self.assertEqual((status, headers["X-Cairn-Dtype"]), (200, dtype))
            self.assertTrue(body == wanted)
            word = {"BF16": "bf16", "F16": "fp16"}[dtype]  # as an export calls it
            status, headers, same = self.ask("types/a", "w", dtype=word, slice="-7:")
            self.assertEqual((status, headers["X-Cairn-Dtype"]), (200, dtype))
            self.assertEqual(same, wanted[-14 * 1024:])
            begin = 4 * MIB - 3  # in the middle of an element, over the end of a chunk
            status, _, part = self.ask("types/a", "w", dtype=dtype, headers={"Range": f"bytes={begin}-{begin + 9}"})
            self.assertEqual((status, part), (206, wanted[begin:begin + 10]))
            self.put(f"types/{dtype}", {"w": (dtype, [3 * 1024, 1024], wanted)})
            _, _, back = self.ask(f"types/{dtype}", "w", dtype="F32", slice="-7:")
            self.assertEqual(back.hex(), as_fp32(dtype, wanted[-14 * 1024:]))
        self.assertEqual(self.ask("types/a", "n", dtype="F32")[0], 400)
        self.assertEqual(self.ask("types/a", "w", dtype="float32")[0], 400)

    def test_any_name_is_found_and_means_no_other(self):
        data = {name: ("U8", [4], bytes([at] * 4)) for at, name in enumerate(NAMES + DOTS)}
        self.put("names/all", data)
        for name in NAMES + DOTS:
            for by in ("path", "query") if name in NAMES else ("query",):
                status, _, body = self.ask("names/all", name, by=by)
                self.assertEqual((status, body), (200, data[name][2]), (name, by))
                status, _, body = self.ask("names/all", name, what="", by=by)
                self.assertEqual((status, json.loads(body)["name"]), (200, name), by)
        status, _, body = self.ask_raw("names/all", "tensors?q=layers")
        self.assertEqual((status, [row["name"] for row in json.loads(body)["items"]]), (200, ["layers/0/attn.weight"]))

    def test_slashes_of_a_name_may_stand_as_they_are_and_a_last_data_is_the_word(self):
        names = ["layers/0/attn.weight", "x", "x/data", "data", "only/data", "a/b"]
        data = {name: ("U8", [4], bytes([at] * 4)) for at, name in enumerate(names)}
        self.put("names/raw", data)
        for target, name in (("layers/0/attn.weight/data", "layers/0/attn.weight"),
                             ("layers%2F0/attn.weight/data", "layers/0/attn.weight"),
                             ("x/data", "x"), ("x/data/data", "x/data"), ("x%2Fdata/data", "x/data"),
                             ("data/data", "data"), ("only/data/data", "only/data")):
            status, _, body = self.ask_raw("names/raw", f"tensors/{target}")
            self.assertEqual((status, body), (200, data[name][2]), target)
        for target, name in (("layers/0/attn.weight", "layers/0/attn.weight"), ("data", "data"),
                             ("x%2Fdata", "x/data"), ("only%2Fdata", "only/data")):
            status, _, body = self.ask_raw("names/raw", f"tensors/{target}")
            self.assertEqual((status, json.loads(body)["name"]), (200, name), target)
        for target, hint in (("only/data", 'There is a tensor "only/data": the slash before its '
                              '"data" is written %2F.'),
                             ("a%252Fb", 'There is a tensor "a/b": the name was percent-encoded twice.'),
                             ("a%252Fb/data", 'There is a tensor "a/b": the name was percent-encoded twice.'),
                             ("no%252Fb", None), ("a/c/data", None)):
            status, _, body = self.ask_raw("names/raw", f"tensors/{target}")
            problem = json.loads(body)
            self.assertEqual((status, problem["code"], problem.get("hint")), (404, "not-found", hint), target)
            name = urllib.parse.unquote(target.removesuffix("/data"))
            self.assertIn(f'"{name}"', problem["detail"])

    def test_what_no_name_can_be_is_refused_in_words(self):
        self.put("names/bad", {"w": ("U8", [4], b"abcd")})
        slash, long = "a '/' that belongs to a name is written %2F", "a" * 1025
        for target, status, words in (
                ("tensors/", 400, slash), ("tensors/w/", 400, slash), ("tensors//w", 400, slash),
                ("tensors//data", 400, slash), ("tensors/w//data", 400, slash),
                ("tensors/w%00", 400, "the path has %00"), ("tensor?name=w%00", 400, "the query has %00"),
                ("tensors/w%/data", 400, "a '%' itself is written %25"),
                ("tensors/w%zz", 400, "a '%' itself is written %25"),
                ("tensors/%ff", 400, "no UTF-8"), ("tensor?name=%ff", 400, "no UTF-8"),
                ("tensors/../w", 400, "comes by ?name="), ("tensors/%2e%2E/data", 400, "comes by ?name="),
                ("tensors/" + "a/" * 70 + "a", 400, slash),
                (f"tensors/{long}", 400, "tensor name of more than 1024 bytes"),
                (f"tensor?name={long}", 400, "name: a tensor's has at most 1024 bytes, not 1025"),
                (f"tensor/data?name={long}", 400, "name: a tensor's has at most 1024 bytes, not 1025"),
                ("tensors/" + "%61" * 1400, 414, "the path is longer than 4096 bytes"),
                ("tensors/w?name=w", 400, 'unknown query parameter "name"'),
                ("tensors/w?slice=1", 400, 'unknown query parameter "slice"'),
                ("tensors/w/data?name=w", 400, 'unknown query parameter "name"'),
                ("tensors/w/data?slice=9", 416, "slice"), ("tensors/" + "a" * 1024, 404, "no tensor")):
            for method in ("GET", "HEAD"):
                got, headers, body = self.ask_raw("names/bad", target, method)
                self.assertEqual(got, status, (method, target, body))
                self.assertEqual(headers["Content-Type"], "application/problem+json")
                if method == "GET":
                    self.assertIn(words, json.loads(body)["detail"])
        status, headers, _ = self.ask_raw("names/bad", "tensors/w", "DELETE")
        self.assertEqual((status, headers["Allow"]), (405, "GET, HEAD"))

    def test_in_the_path_and_in_the_query_a_name_is_answered_alike(self):
        name, data = "layers/0/a%b ?#+/data", random.Random(2).randbytes(4 * 600)
        self.put("names/alike", {name: ("F32", [20, 30], data), "other": ("U8", [1], b"x")})
        tag = self.ask("names/alike", name)[1]["ETag"]
        asked = [{}, {"slice": "2:-3,7"}, {"flat": "9:-1"}, {"dtype": "bf16"}, {"slice": "5", "dtype": "F16"},
                 {"rank": "0"}, {"slice": ":", "flat": ":"}, {"slice": "99"}, {"dtype": "I64"}, {"rank": "x"}]
        sent = [{}, {"Range": "bytes=5-8"}, {"Range": "bytes=-4"}, {"Range": "bytes=99999-"},
                {"Range": "bytes=0-1,4-5"}, {"Range": "bytes=0-3", "If-Range": tag},
                {"Range": "bytes=0-3", "If-Range": '"x"'}, {"If-None-Match": tag}, {"If-Match": '"x"'}]
        cases = [(query, {}) for query in asked] + [({}, headers) for headers in sent]
        seen = set()
        for query, headers in cases + [({"slice": "1:"}, one) for one in sent]:
            for method in ("GET", "HEAD"):
                answers = []
                for by in ("path", "query"):
                    status, got, body = self.ask("names/alike", name, method, headers=headers, by=by, **query)
                    if status >= 400:  # of a problem the path is a part
                        body = {**json.loads(body or "{}"), "instance": None}
                        del got["Content-Length"]
                    del got["Date"]
                    answers.append((status, sorted(got.items()), body))
                self.assertEqual(*answers, (method, query, headers))
                seen.add(answers[0][0])
        self.assertEqual(seen, {200, 206, 304, 400, 412, 416})
        for method in ("GET", "HEAD"):
            one, other = (self.ask("names/alike", name, method, what="", by=by) for by in ("path", "query"))
            self.assertEqual((one[0], one[1]["Cache-Control"], one[2]), (other[0], other[1]["Cache-Control"], other[2]))

    def test_requests_are_counted_and_logged_by_their_route_and_no_name_makes_a_line(self):
        name, traced = "secret\nname=1", {"traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01"}
        self.put("names/counted", {name: ("U8", [2], b"ab")})
        for what, method in (("", "GET"), ("/data", "GET"), ("/data", "HEAD"), ("", "HEAD")):
            self.assertEqual(self.ask("names/counted", name, method, what, traced)[0], 200)
        log = self.world.server.log
        page = self.world.get("/metrics")[2].decode()
        for route, method, least in (("tensor_named", "GET", 2), ("tensor_named_data", "GET", 1),
                                     ("tensor_named_data_head", "HEAD", 1)):
            count = re.search(rf'^cairn_http_request_duration_seconds_count{{route="{route}",'
                              rf'method="{method}",code="200"}} (\d+)$', page, re.M)
            self.assertTrue(count, route)
            self.assertGreaterEqual(int(count[1]), least)
        self.assertNotIn("secret", page)
        for route, behind in (("tensor_named", ""), ("tensor_named_data", "/data")):
            path = f"/v1/runs/names/counted/checkpoints/latest/tensors/secret%0Aname%3D1{behind}"
            said = f"http.answered trace={'ab' * 16} route={route} path={path} status=200 "
            wait_until(lambda: said in log.read_text(), 30)
        self.assertNotIn("\nname=1", log.read_text())

    def test_ranges_tags_and_heads_are_those_of_a_file(self):
        data = random.Random(5).randbytes(9 * MIB + 12)
        self.put("files/w", {"x": ("U8", [3], b"abc"), "w": ("U8", [len(data)], data)})
        status, headers, body = self.ask("files/w", "w", "HEAD")
        self.assertEqual((status, int(headers["Content-Length"]), body), (200, len(data), b""))
        tag = headers["ETag"]
        self.assertEqual(self.ask("files/w", "w", headers={"If-None-Match": tag})[0], 304)
        self.assertEqual(self.ask("files/w", "w", headers={"If-Match": '"other"'})[0], 412)
        self.assertNotEqual(self.ask("files/w", "w", "HEAD", slice="1:")[1]["ETag"], tag)
        self.assertNotEqual(self.ask("files/w", "x", "HEAD")[1]["ETag"], tag)
        for begin, end in ((0, 1), (MIB - 1, MIB + 1), (4 * MIB - 5, 8 * MIB + 5),
                           (len(data) - 1, len(data)), (5, len(data))):
            status, headers, body = self.ask("files/w", "w", headers={"Range": f"bytes={begin}-{end - 1}"})
            self.assertEqual((status, headers["Content-Range"]), (206, f"bytes {begin}-{end - 1}/{len(data)}"))
            self.assertTrue(body == data[begin:end], (begin, end))
        _, _, body = self.ask("files/w", "w", headers={"Range": "bytes=0-3", "If-Range": '"x"'})
        self.assertTrue(body == data)
        status, headers, _ = self.ask("files/w", "w", headers={"Range": f"bytes={len(data)}-"})
        self.assertEqual((status, headers["Content-Range"]), (416, f"bytes */{len(data)}"))

    def test_narrow_columns_of_a_tensor_come_in_order(self):
        rows, columns = 4096, 2048
        data = b"".join(struct.pack(f"<{columns}H", *((row * 7 + column) % 65536
                                                      for column in range(columns)))
                        for row in range(rows))
        self.put("columns/w", {"w": ("U16", [rows, columns], data)})
        _, _, body = self.ask("columns/w", "w", slice=":,100:102")
        self.assertTrue(body == picked([rows, columns], 2, data, [slice(None), slice(100, 102)]))

    def test_a_slice_of_many_chunks_goes_on_in_the_middle_of_a_row(self):
        depth, rows, columns = 120, 40, 1000
        data = random.Random(11).randbytes(4 * depth * rows * columns)
        self.put("long/w", {"w": ("F32", [depth, rows, columns], data)})
        wanted = b"".join(data[4 * ((plane * rows + row) * columns + 7):
                               4 * ((plane * rows + row) * columns + columns - 6)]
                          for plane in range(1, depth) for row in range(2, rows - 1))
        _, headers, body = self.ask("long/w", "w", slice="1:,2:-1,7:-6")
        self.assertEqual(headers["X-Cairn-Shape"], "119,37,987")
        self.assertGreater(len(wanted), 16 * MIB)
        self.assertTrue(body == wanted)
        begin = 9 * MIB + 5
        _, _, body = self.ask("long/w", "w", slice="1:,2:-1,7:-6", headers={"Range": f"bytes={begin}-"})
        self.assertTrue(body == wanted[begin:])

    def test_a_damaged_block_is_an_error_or_cuts_the_connection(self):
        data = random.Random(9).randbytes(20 * MIB)
        self.put("damage/w", {"w": ("F32", [5 * MIB], data)})
        path, = (path for path in self.world.stored("model.safetensors") if "damage" in path.parts)
        cases.flip(path, 15 * MIB)
        status, _, body = self.ask("damage/w", "w")
        self.assertEqual((status, self.broken), (200, True))
        self.assertTrue(len(body) < 15 * MIB and body == data[:len(body)])
        status, _, body = self.ask("damage/w", "w", flat=f"{15 * MIB // 4}:")
        self.assertEqual((status, json.loads(body)["code"]), (502, "store-corrupt"))
        self.assertIn("model.safetensors", json.loads(body)["detail"])
        status, _, body = self.ask("damage/w", "w", flat=f"{17 * MIB // 4}:")
        self.assertEqual((status, body == data[17 * MIB:]), (200, True))


if __name__ == "__main__":
    unittest.main()
