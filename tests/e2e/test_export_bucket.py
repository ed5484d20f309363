# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
"""`cairn export` into a bucket: the same bytes as in a folder, no file before all are whole, and an
export that was killed goes on with the parts that are there."""
import hashlib
import os
import signal
import subprocess
import unittest

import cases
from passing import Passing
from s3world import BUCKET, S3Fault, signed
from test_export import VECTORS, ZERO
from test_export_resume import LOG, content
from test_to_dcp import model
from world import BIN, HANG_S, in_time, wait_until

WINDOW = 8 << 20
PLACE = "models/7b"
SHARDED = ("--max-shard-size", "20MB")


class Bucket(cases.Case):
    @classmethod
    def setUpClass(cls):
        cls.kept = cases.folder(cls)
        cls.source = cls.kept / "source.safetensors"
        model(cls.source, 24, 500_000)  # 46 MiB

    def setUp(self):
        self.s3 = S3Fault(self.folder, case=self)
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        self.env.update(self.s3.env())

    def words(self, *flags, source=None, place=PLACE):
        return [str(BIN / "cairn"), "export", str(source or self.source), f"s3://{BUCKET}/{place}", *map(str, flags)]

    def export(self, *flags, status=0, **where):
        ran = subprocess.run(self.words(*flags, **where), capture_output=True, text=True, timeout=HANG_S, env=self.env)
        self.assertEqual(ran.returncode, status, ran.stdout + ran.stderr)
        return ran

    def in_a_folder(self, *flags, source=None):
        out = self.folder / f"whole-{len(list(self.folder.iterdir()))}"
        subprocess.run([BIN / "cairn", "export", source or self.source, out, *map(str, flags)],
                       check=True, capture_output=True, timeout=HANG_S)
        return content(out)

    def there(self, place=PLACE):
        """{name: (size, SHA-256)} of what is below it."""
        found = {}
        for key in self.s3.keys(f"{place}/"):
            data = signed(self.env, f"/{BUCKET}/{key}")
            found[key[len(place) + 1:]] = len(data), hashlib.sha256(data).hexdigest()
        return found

    def put(self, name, body=b"somebody's"):
        signed(self.env, f"/{BUCKET}/{PLACE}/{name}", method="PUT", body=body)

    def parts(self):
        """(key, number) of each part that was taken."""
        return [(line["key"], line["part"]) for line in self.s3.journal(op="part") if line["status"] == 200]

    def nothing_is_left(self):
        self.assertEqual((self.s3.keys(""), self.s3.uploads("")), ({}, []))

    def test_the_files_are_those_of_a_folder(self):
        for number, (source, flags) in enumerate((
                (None, ()), (None, SHARDED), (None, ("--to", "dcp", *SHARDED, "--dtype", "bf16")),
                (None, ("--to", "torch", "-j", 1)), (ZERO / "stage3", ("--to", "torch",)),
                (VECTORS / "torch" / "everything.pt", ("--to", "dcp", "--copy-tied")))):
            wanted = self.in_a_folder(*flags, source=source)
            ran = self.export(*flags, source=source, place=f"case/{number}")
            self.assertIn(f"into s3://{BUCKET}/case/{number}", ran.stdout)
            self.assertEqual(self.there(f"case/{number}"), wanted, flags)
        self.assertEqual(self.s3.uploads(""), [])
        again = self.export(*SHARDED, place="case/1", status=6)
        self.assertIn("already", again.stderr)
        self.assertEqual(self.there("case/1"), self.in_a_folder(*SHARDED))

    def test_no_name_is_given_before_all_parts_are_there_and_the_index_comes_last(self):
        self.export(*SHARDED)
        lines = [(line["op"], line["key"].rsplit("/", 1)[-1]) for line in self.s3.journal() if line["status"] < 300]
        completes = [i for i, (op, _) in enumerate(lines) if op == "complete"]
        self.assertEqual(len(completes), 3)
        self.assertLess(max(i for i, (op, _) in enumerate(lines) if op == "part"), completes[0])
        self.assertLess(completes[-1], lines.index(("put", "model.safetensors.index.json")))
        self.assertEqual(lines[-1], ("delete", LOG))

    def test_killed_at_any_request_it_goes_on_with_the_parts_that_are_there(self):
        wanted = self.in_a_folder(*SHARDED)
        windows = sum(-(-size // WINDOW) for name, (size, _) in wanted.items() if not name.endswith(".json"))
        for rule in ("op=put nth=2", "op=create nth=1", "op=create nth=3", "op=part nth=3",
                     "op=part nth=6", "op=complete nth=1", "op=complete nth=2",
                     "op=put key=*index.json"):
            self.s3.ask("reset", "")
            self.s3.rules(f"{rule} : req-stall@100%")
            running = subprocess.Popen(self.words(*SHARDED, "-j", 1), env=self.env,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            wait_until(lambda: self.s3.acted() or running.poll() is not None, every=0.005)
            self.assertIsNone(running.poll(), rule)
            running.kill()
            running.wait()
            named = {"op=complete nth=2": 1, "op=put key=*index.json": 3}.get(rule, 0)
            self.assertEqual(len(self.there()), named + 1, rule)  # and the log
            self.assertNotIn("model.safetensors.index.json", self.there())
            self.s3.rules("")
            ran = self.export(*SHARDED)
            self.assertIn("going on", ran.stderr, rule)
            self.assertEqual((self.there(), self.s3.uploads("")), (wanted, []), rule)
            self.assertEqual(len(self.parts()), windows, rule)  # none of them twice

    def begun(self, **more):
        """An export whose fourth part and those behind it wait for their answers."""
        self.s3.rules("op=part nth=4+ : delay=3600000")
        running = subprocess.Popen(self.words(*SHARDED), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env={**self.env, **more})
        self.addCleanup(lambda: (running.kill(), running.communicate()))
        wait_until(lambda: len(self.parts()) == 3)
        return running

    def test_a_second_export_into_the_same_place_is_refused_and_takes_nothing_back(self):
        running = self.begun()
        before = self.s3.state()["objects"], self.s3.uploads("")
        for flags in (SHARDED, (*SHARDED, "--dtype", "fp16")):
            self.assertIn("another cairn export" if flags == SHARDED else "other arguments",
                          self.export(*flags, status=6).stderr)
            self.assertEqual((self.s3.state()["objects"], self.s3.uploads("")), before)
        running.kill()  # who comes after its end goes on at once
        running.communicate()
        self.s3.rules("")
        self.export(*SHARDED)
        self.assertEqual(self.there(), self.in_a_folder(*SHARDED))

    def test_an_export_of_another_machine_is_waited_for_and_takes_nothing_back_once_it_was_taken_over(self):
        machine = cases.made(self.folder / "machine")  # a folder for temporary files of its own is another machine
        clock, other = Passing(), Passing()
        running = self.begun(TMPDIR=str(machine), **other.env())
        said = (self.folder / "said").open("w+")
        self.addCleanup(said.close)

        def second():
            said.truncate(0)
            waiting = subprocess.Popen(self.words(*SHARDED), stdout=subprocess.PIPE, stderr=said, text=True,
                                       env={**self.env, **clock.env()})
            self.addCleanup(lambda: (waiting.kill(), waiting.communicate()))
            wait_until(lambda: "of another machine" in (self.folder / "said").read_text())
            return waiting

        waiting = second()
        log = signed(self.env, f"/{BUCKET}/{PLACE}/{LOG}")
        self.put(LOG, log.replace(b'"beats": 0', b'"beats": 1'))  # as the first one does every five seconds
        self.assertEqual(waiting.wait(HANG_S), 6)
        self.assertIn("another cairn export writes to", (self.folder / "said").read_text())
        waiting = second()
        clock.passes(31)
        self.s3.rules("")
        self.assertEqual(waiting.wait(HANG_S), 0, (self.folder / "said").read_text())
        whole = self.in_a_folder(*SHARDED)
        self.assertEqual(self.there(), whole)
        # Its waiting parts end as those of a store that says nothing, and are sent again.
        wait_until(lambda: (other.passes(31), running.poll())[1] is not None)
        self.assertNotEqual(running.returncode, 0, running.communicate()[1])
        self.assertEqual(self.there(), whole)

    def test_an_interrupted_export_says_how_to_go_on(self):
        self.s3.rules("op=part nth=4 : req-stall@50%")
        running = subprocess.Popen(self.words("-j", 1), env=self.env, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        wait_until(lambda: self.s3.acted() or running.poll() is not None, every=0.005)
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=HANG_S)
        self.assertEqual(running.returncode, 130, said)
        self.assertIn("give the same command again", said)
        self.s3.rules("")
        self.export()
        self.assertEqual(self.there(), self.in_a_folder())

    def test_a_store_that_goes_away_keeps_what_it_has(self):
        self.s3.rules("op=part nth=3+ : status=503/SlowDown")
        in_time(lambda seconds: "the same command goes on from there" in self.export(
            "-j", 1, "--timeout", f"{seconds:g}s", status=8).stderr, 2)
        self.assertEqual(self.there().keys(), {LOG})
        self.s3.rules("")
        self.export()
        self.assertEqual(self.there(), self.in_a_folder())
        self.assertEqual(len(self.parts()), len(set(self.parts())))
        self.s3.ask("reset", "")
        self.s3.rules("op=delete : status=503/SlowDown")
        self.export("--timeout", "2s", status=8)
        self.s3.rules("")
        self.export()
        self.assertEqual(self.there(), self.in_a_folder())

    def test_an_answer_that_was_lost_is_settled_by_a_look(self):
        for rules in ("op=complete nth=1-2 : lose-reply", "op=create nth=1 : lose-reply",
                      "op=part nth=2 : lose-reply", "op=put key=*index.json nth=1 : lose-reply"):
            self.s3.ask("reset", "")
            self.s3.rules(rules)
            self.export(*SHARDED)
            self.assertGreater(self.s3.acted(), 0, rules)
            self.assertEqual(self.there(), self.in_a_folder(*SHARDED), rules)

    def test_uploads_that_somebody_aborted_are_begun_anew(self):
        self.s3.rules("op=complete nth=1 : req-stall@100%")
        running = subprocess.Popen(self.words(), env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(lambda: self.s3.acted() or running.poll() is not None, every=0.005)
        running.kill()
        running.wait()
        for line in self.s3.journal(op="part")[:1]:
            signed(self.env, f"/{BUCKET}/{line['key']}", method="DELETE", uploadId=line["upload"])
        self.assertEqual(self.s3.uploads(""), [])
        self.s3.rules("")
        self.export()
        self.assertEqual((self.there(), self.s3.uploads("")), (self.in_a_folder(), []))

    def test_a_file_of_somebody_else_is_in_the_way_and_stays(self):
        self.put("model-00002-of-00003.safetensors")
        ran = self.export(*SHARDED, status=6)
        self.assertIn("model-00002-of-00003.safetensors already", ran.stderr)
        self.assertEqual(self.there().keys(), {"model-00002-of-00003.safetensors"})
        self.assertEqual(self.s3.uploads(""), [])

    def test_a_file_that_comes_meanwhile_is_not_replaced(self):
        for name in ("model-00002-of-00003.safetensors", "model.safetensors.index.json"):
            self.s3.ask("reset", "")
            self.s3.rules("op=complete nth=1 : held")
            running = subprocess.Popen(self.words(*SHARDED), env=self.env, text=True,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            wait_until(lambda: self.s3.acted() or running.poll() is not None, every=0.005)
            self.put(name)
            self.s3.rules("")
            _, said = running.communicate(timeout=HANG_S)
            self.assertEqual(running.returncode, 6, said)
            self.assertIn(f"{name} already", said)
            self.assertEqual(set(self.there()), {name})
            self.assertEqual(self.there()[name][0], len(b"somebody's"))
            self.assertEqual(self.s3.uploads(""), [])

    def test_another_source_or_other_arguments_are_refused_with_the_way_out(self):
        self.s3.rules("op=complete : status=503/SlowDown")
        in_time(lambda seconds: self.export("--timeout", f"{seconds:g}s", status=8) and LOG in self.there(), 2)
        before = self.there(), self.s3.uploads("")
        ran = self.export(*SHARDED, status=6)
        self.assertIn("with other arguments", ran.stderr)
        ran = self.export(source=ZERO / "stage1", status=6)
        self.assertIn("from another source", ran.stderr)
        self.assertIn(f"{PLACE}/{LOG}", ran.stderr)
        self.assertEqual((self.there(), self.s3.uploads("")), before)
        self.s3.rules("")
        self.export()
        self.assertEqual(self.there(), self.in_a_folder())

    def test_keys_that_may_not_write_are_told_so_and_nothing_is_left(self):
        self.s3.rules("op=put|create|part : status=403/AccessDenied")
        ran = self.export(status=4)
        self.assertIn(PLACE, ran.stderr)
        self.nothing_is_left()
        self.s3.rules("op=part : status=403/AccessDenied")
        self.export(status=4)
        self.nothing_is_left()
        self.s3.rules("")
        for place in ("s3:///x", "s3://", "s3://no such bucket/x", f"s3://{BUCKET}-other/x"):
            ran = subprocess.run([BIN / "cairn", "export", self.source, place], env=self.env,
                                 capture_output=True, text=True, timeout=HANG_S)
            self.assertIn(ran.returncode, (1, 2, 3, 4), ran.stderr)
            self.assertIn(place, ran.stderr)
        self.nothing_is_left()


if __name__ == "__main__":
    unittest.main()
