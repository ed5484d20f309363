# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
"""--output yaml, wide and --fields: the values are those of --json, whatever texts people chose; and what
ls and show say for people."""
import json
import re
import unittest
import urllib.request

import yaml

import cases
from world import HANG_S, World

# What readers of YAML 1.1 or 1.2 would take for something else.
TEXTS = ["no", "1e3", "2026-01-01", "- x", "a: b", "ä\u2028b", "two\nlines", "~", "0x10", "=", "*a",
         "&a", "!t", "%", "@x", "`", "'", '"', "null", "True", "1_000", "12:30:45", " ", "a #b", "{",
         ".inf", "y", "O", "plain", "with/slash-and.dots_1@x"]


def without_ages(value):
    if isinstance(value, list):
        return [without_ages(item) for item in value]
    if isinstance(value, dict):
        return {key: without_ages(item) for key, item in value.items()
                if not key.endswith("silent_ms") and key != "idle_s"}
    return value


class Forms(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.world = World(case=cls)
        cls.folder = cases.folder(cls)
        (cls.folder / "a.txt").write_text("a")
        for step in (1, 2, 3):
            cls.world.cairn("put", cls.folder, f"forms/run@{step}")
        for number, text in enumerate(TEXTS):
            if text.isprintable():
                cls.world.cairn("label", "forms/run@2", f"l{number}={text}", status=None)
        cls.world.cairn("put", cls.folder, "forms/empty@1")

    def test_what_people_say_of_a_checkpoint_stands_in_ls_and_show_with_its_events(self):
        cairn = self.world.cairn
        for step in (1, 2, 3):
            cairn("put", self.folder, f"said/run@{step}")
        self.assertRegex(cairn("label", "said/run@2", "tier=keep", "team=nlp").stdout,
                         r"^ckpt_\S+ \(step 2\) has labels team=nlp, tier=keep\n$")
        self.assertEqual(cairn("label", "said/run", "owner=ann").stdout, "said/run has labels owner=ann\n")
        self.assertEqual(cairn("label", "said/run", "owner-").stdout, "said/run has no labels\n")
        self.assertRegex(cairn("metric", "said/run@2", "loss=1.25").stdout, r"has metrics loss=1.25\n$")
        cairn("metric", "said/run@1", "loss=2")
        cairn("pin", "said/run@2", "--note", "before the merge")
        cairn("alias", "set", "said/run@1", "prod")
        cairn("policy", "set", "said/run", "--keep-best", "1:loss:min")
        cairn("rm", "said/run@3")
        lines = cairn("ls", "said/run").stdout.splitlines()
        self.assertRegex(lines[1], r" trashed")
        self.assertRegex(lines[2], r" latest best\(loss=1.25\) pinned")
        self.assertRegex(lines[3], r" prod")
        self.assertNotRegex(lines[3], r"pinned|best|latest")
        self.assertRegex(lines[4], r"^1 in the trash: [^;]+B; 2 committed: [^;]+B$")
        self.assertRegex(cairn("ls", "said/run", "-n", "1").stdout, r"; there are more than 1: --limit\n$")
        self.assertNotIn("there are more", cairn("ls", "said/run", "-n", "3").stdout)
        shown = cairn("show", "said/run@2").stdout
        for line in ("pinned       yes: no policy removes it", "note         before the merge",
                     "labels       team=nlp, tier=keep", "metrics      loss=1.25"):
            self.assertIn("\n" + line + "\n", shown)
        self.assertIn("\nnames        prod\n", cairn("show", "said/run@1").stdout)
        self.assertRegex(shown, r"\nmade on      \S+")
        happened = shown.split("\n\n")[-1].splitlines()
        self.assertEqual(happened[0].split(), ["WHEN", "WHAT", "BY", "WHY"])
        self.assertEqual([line.split()[1] for line in happened[1:]],
                         ["opened", "committed", "annotated", "annotated", "annotated"])
        self.assertRegex(happened[3], r"annotated +127.0.0.1 +labels *$")
        self.assertRegex(happened[5], r"annotated +127.0.0.1 +note, pinned *$")

    def say(self, *words, status=0):
        ran = self.world.cairn(*words, status=status)
        return ran.stdout if status == 0 else ran.stderr

    def test_yaml_is_read_back_to_what_json_says(self):
        for words in (("ls",), ("ls", "forms/run"), ("show", "forms/run@2"), ("du",),
                      ("lineage", "forms/run@3"), ("ls", "forms/run", "--state", "gone")):
            self.assertEqual(without_ages(yaml.safe_load(self.say(*words, "-o", "yaml"))),
                             without_ages(json.loads(self.say(*words, "--json"))), words)
        labels = yaml.safe_load(self.say("show", "forms/run@2", "-o", "yaml"))["labels"]
        self.assertGreater(len(labels), 20)
        self.assertEqual(labels["l0"], "no")
        self.assertIn("state: committed\n", self.say("show", "forms/run@2", "-o", "yaml"))

    def test_numbers_are_printed_in_the_fewest_digits_that_read_back(self):
        cairn = self.world.cairn
        cairn("put", self.folder, "reals/run@1")
        said = {"a": "0.1", "b": "1e-05", "c": "1e23", "d": "0.30000000000000004", "e": "1.931", "f": "-2.5"}
        cairn("metric", "reals/run@1", *(f"{name}={text}" for name, text in said.items()))
        json_text, yaml_text = (self.say("show", "reals/run@1", "-o", form) for form in ("json", "yaml"))
        wanted = {name: float(text) for name, text in said.items()}
        self.assertEqual(json.loads(json_text)["metrics"], wanted)
        self.assertEqual(yaml.safe_load(yaml_text)["metrics"], wanted)
        self.assertRegex(json_text, r'"a": ?0.1,\s*"b": ?1e-5,\s*"c": ?1e23,\s*"d": ?0.30000000000000004,')
        self.assertIn("  a: 0.1\n  b: 1.0e-5\n  c: 1.0e+23\n", yaml_text)
        shown = self.say("show", "reals/run@1")
        self.assertIn("a=0.1, b=1e-5, c=1e23, d=0.30000000000000004, e=1.931, f=-2.5\n", shown)
        with urllib.request.urlopen(f"{self.world.url}/v1/runs/reals/run/checkpoints/1", timeout=HANG_S) as answer:
            self.assertIn(b'"metrics":{"a":0.1,"b":1e-5,"c":1e23,', answer.read())

    def test_fields_are_the_same_values_under_the_names_that_were_asked_for(self):
        whole = json.loads(self.say("ls", "forms/run", "--json"))
        for form in ("json", "yaml"):
            told = yaml.safe_load(self.say("ls", "forms/run", "-o", form, "--fields", "step,version,labels.l0"))
            self.assertEqual(told, [{"step": row["step"], "version": row["version"],
                                     "labels.l0": row["labels"].get("l0")} for row in whole])
        lines = self.say("ls", "forms/run", "-o", "jsonl", "--fields", "labels.l0").splitlines()
        self.assertEqual([json.loads(line)["labels.l0"] for line in lines], [row["labels"].get("l0") for row in whole])
        self.assertEqual(json.loads(self.say("show", "forms/run@2", "--json", "--fields", "step")), {"step": 2})
        self.assertEqual(self.say("ls", "forms/run", "--state", "gone", "--json", "--fields", "no-such").strip(), "[]")

    def test_a_field_that_is_not_there_is_named_with_those_that_are(self):
        for words in (("ls", "forms/run"), ("show", "forms/run@2")):
            for form in ("json", "yaml"):
                said = self.say(*words, "-o", form, "--fields", "step,stat", status=2)
                self.assertIn("there is no stat; there are ", said)
                self.assertIn("state", said)
        self.assertIn("there is no stat", self.say("ls", "forms/run", "-o", "jsonl", "--fields", "step,stat", status=2))
        self.assertIn("json, jsonl or yaml", self.say("ls", "--fields", "run", status=2))
        self.assertIn("empty name", self.say("ls", "--json", "--fields", "run,", status=2))
        self.assertIn("wide, json", self.say("ls", "-o", "xml", status=2))

    def test_sizes_are_in_powers_of_two_or_of_ten_or_in_bytes_and_json_has_bytes_always(self):
        file = cases.file(self.folder / "large", b"x" * 1_500_000)
        self.world.cairn("put", file, "sizes/run@1")
        bytes_of = json.loads(self.say("ls", "sizes/run", "--json"))[0]["bytes"]
        self.assertGreaterEqual(bytes_of, 1_500_000)
        for words in (("ls", "sizes/run"), ("show", "sizes/run@1"), ("du", "sizes/run")):
            for form, text in (((), "1.4 MiB"), (("--si",), "1.5 MB"), (("--bytes",), str(bytes_of))):
                self.assertIn(text, self.say(*words, *form), (words, form))
            for form in ("--si", "--bytes"):
                self.assertEqual(without_ages(json.loads(self.say(*words, "--json", form))),
                                 without_ages(json.loads(self.say(*words, "--json"))))
        self.say("quota", "set", "sizes", "--bytes", "1TiB", "--si")  # its own --bytes
        self.assertIn("1.1 TB", self.say("quota", "get", "sizes", "--si"))
        self.assertEqual(len(re.findall("(?m)^ +--bytes", self.say("quota", "--help"))), 1)

    def test_a_wide_table_has_more_columns(self):
        self.assertNotIn("VERSION", self.say("ls", "forms/run"))
        lines = self.say("ls", "forms/run", "-o", "wide").splitlines()
        self.assertEqual(lines[0].split()[-3:], ["RANKS", "VERSION", "LABELS"])
        version = json.loads(self.say("show", "forms/run@2", "--json"))["version"]
        line, = (line for line in lines if version in line)
        self.assertIn("l0=no", line)


if __name__ == "__main__":
    unittest.main()
