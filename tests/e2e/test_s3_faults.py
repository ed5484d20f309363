# SPDX-License-Identifier: Apache-2.0
# ctest: seconds=190 engines=again
"""Faults of the store, seen by the whole chain. After each: committed and verified, or failed by
name; no open upload, no orphan, no secret in any log. CAIRN_TEST_SLOW=1 adds the minute's outage.

P3, S17, S20: one byte of any part that flips, at the part's begin, in its middle or at its end, on
its way to a store that checks nothing or on its way back, is found and named: shard and range.

A store that answers 500 for more than a few seconds is named wherever somebody looks, and the save goes on when it is well."""
import collections
import os
import re
import shutil
import time
import unittest

import cases
from passing import Passing
from patience import HANG_S
from s3world import ACCESS, S3Fault, S3World, SECRET, TOKEN, signed, wait_until
from signs import Held, go_round
from world import Job

MIB = 1 << 20
PART = 5 * MIB
SLOW = os.environ.get("CAIRN_TEST_SLOW") == "1"


class KeyServer(cases.StandIn):
    """A container's credentials endpoint: the pair that `current` numbers."""

    def __init__(self):
        self.pairs = [(ACCESS, SECRET, TOKEN), ("AKIDCANARYSECOND", SECRET + "2", TOKEN + "2")]
        self.current, self.asked = 0, 0
        super().__init__(self.tell)

    def tell(self, _):
        self.asked += 1
        access, secret, token = self.pairs[self.current]
        return 200, {"AccessKeyId": access, "SecretAccessKey": secret, "Token": token, "Expiration": "2099-01-01T00:00:00Z"}


def put_object(s3, key, body):
    """Somebody else's PUT."""
    signed(s3.env(), f"/{s3.bucket}/{key}", "PUT", body)


class Faults(cases.Case):
    def setUp(self):
        self.s3 = None

    def start(self, s3_arguments=(), nodes=1, uploader_arguments=(), env=None):
        self.s3 = self.s3 or S3Fault(self.folder, s3_arguments, case=self)
        self.world = S3World(self.s3, nodes=nodes, env=env or {}, server_arguments=["--sweep-interval", "200ms"],
                             uploader_arguments=["--part-size", "5MiB", "--heartbeat", "200ms", *uploader_arguments],
                             case=self)
        return self.world

    def source(self, mib=40, name="model.bin"):
        return cases.file(self.world.root / name, os.urandom(mib * MIB + 17))

    def put_in_background(self, source, ref="f/run@1"):
        return self.world.begin("put", source, ref)

    def finish(self, process):
        self.world.ended(process)

    def check(self, ref="f/run@1"):
        """What must hold after every fault that a save survives."""
        self.s3.rules("")
        self.world.cairn("verify", ref)
        self.world.cairn("verify", ref, "--store", self.world.store)
        self.world.audit()
        self.assertEqual(self.world.leaks(), [])

    def shard_parts(self, status=200):
        return [line for line in self.s3.journal(op="part", status=status) if "/data/" in line["key"]]

    def save_of_8_shards(self, rows=16):
        Job(self.world, "job", 8, [1], run="f/run", rows=rows).succeeds()

    # ---- a save of 8 shards survives ----

    def test_503s_and_resets_during_a_save_store_no_part_twice_and_resend_few_bytes(self):
        # A hedge sends a slow part twice on purpose, and a busy machine makes parts slow: it has
        # tests of its own.
        self.start(nodes=2, uploader_arguments=["--no-hedge"])
        self.s3.rules("op=part|put|complete|create p=0.05 : status=503/SlowDown\n"
                      "op=part|put p=0.01 : req-rst@50%\n"
                      "op=complete|create p=0.01 : lose-reply")
        self.save_of_8_shards(rows=40)
        self.assertGreater(self.s3.acted(0), 1)
        stored = sum(size for key, size in self.world.keys("/data/").items())
        sent = sum(line["bytes_in"] for line in self.s3.journal() if "/data/" in line["key"])
        self.assertLessEqual(sent, 1.15 * stored, "bytes that were sent again")
        whole = collections.Counter((line["key"], line.get("part")) for line in self.shard_parts())
        twice = [line for line in self.s3.journal() if whole[(line["key"], line.get("part"))] > 1]
        self.assertEqual(twice, [], "a part was stored twice")
        self.check()

    def outage(self, seconds):
        self.start()
        self.s3.rules("op=part nth=3+ : status=503/ServiceUnavailable\n"
                      "op=complete|head : fin@0")
        putting = self.put_in_background(self.source())
        wait_until(lambda: self.s3.acted(0) or putting.poll() is not None)
        time.sleep(seconds)  # pause of a stand-in: it is away for so long
        self.assertIsNone(putting.poll(), "it gave up")
        self.s3.rules("")
        self.finish(putting)
        self.check()

    def test_an_outage_of_5_s_fails_no_save(self):
        self.outage(5)

    @unittest.skipUnless(SLOW, "CAIRN_TEST_SLOW=1 runs it")
    def test_an_outage_of_60_s_fails_no_save(self):
        self.outage(60)

    def test_keys_that_expire_during_a_save_are_renewed_and_it_commits(self):  # S10
        keys = KeyServer()
        try:
            self.s3 = S3Fault(self.folder, case=self)
            second = keys.pairs[1]
            self.s3.ask("keys", " ".join(second))
            env = {name: "" for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")}
            env["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = f"{keys.url}/keys"
            env["AWS_CONFIG_FILE"] = env["AWS_SHARED_CREDENTIALS_FILE"] = "/nonexistent"
            self.start(env=env, uploader_arguments=["--metrics-listen", "127.0.0.1:0"])
            before = keys.asked
            keys.current = 1
            self.s3.rules("op=part nth=4 : expire-keys")
            self.finish(self.put_in_background(self.source()))
            used = {line["access_key"] for line in self.shard_parts()}
            self.assertEqual(used, {ACCESS, second[0]})
            self.assertLessEqual(keys.asked - before, 12, "one renewal serves all threads")
            log = (self.world.root / "uploader-0.log").read_text()
            port = re.search(r" metrics.listening .*port=(\d+)", log)[1]
            page = self.world.get_from(f"http://127.0.0.1:{port}", "/metrics")[2].decode()
            self.assertIn("\ncairn_credential_expiry_timestamp_seconds 4070908800\n", page)  # 2099
            self.world.wait_for_beats(2)
            node = self.world.read("/v1/nodes")["items"][0]
            self.assertEqual(node["uploader"]["keys_end_at"], "2099-01-01T00:00:00Z")
            creates = [line for line in self.s3.journal(op="create") if "/data/" in line["key"]]
            self.assertEqual(len(creates), 1, "the same upload goes on")
            self.check()
        finally:
            keys.stop()

    def test_lost_replies_of_complete_and_of_records_fail_no_save(self):  # S05
        self.start()
        self.s3.rules("op=complete nth=1 : lose-reply\n"
                      "op=put key=*manifest.json nth=1 : lose-reply\n"
                      "op=put key=*committed.json nth=1 : lose-reply\n"
                      "op=put key=*checksums.bin nth=1 : lose-reply\n"
                      "op=create nth=1 : lose-reply")
        self.finish(self.put_in_background(self.source()))
        self.assertEqual([rule["acted"] for rule in self.s3.state()["rules"]], [1] * 5)
        self.check()

    def test_keys_with_an_uploaders_rights_alone_save_over_lost_answers(self):
        """Where keys may not list, 403 is all that is said of an object that is not there, also of one whose Complete was lost on its
        way there, or on its way back."""
        access, secret = "AKIDCANARYUPLOADS", SECRET + "3"
        self.start(nodes=0)
        self.s3.ask("keys", f"{access} {secret}")
        self.s3.ask("policy", f"uploader {access}")
        self.world.env.update(AWS_ACCESS_KEY_ID=access, AWS_SECRET_ACCESS_KEY=secret)
        del self.world.env["AWS_SESSION_TOKEN"]
        self.world.uploaders.append(self.world.make_uploader(0).start())
        self.s3.rules("op=complete nth=1 : req-rst@50%\n"
                      "op=complete nth=3 : lose-reply\n"
                      "op=put key=*checksums.bin nth=1 : lose-reply")
        self.finish(self.put_in_background(self.source()))
        self.finish(self.put_in_background(self.source(name="other.bin"), "f/run@2"))
        self.assertEqual([rule["acted"] for rule in self.s3.state()["rules"]], [1, 1, 1])
        begun = [line["key"] for line in self.s3.journal(op="create", status=200) if "/data/" in line["key"]]
        self.assertEqual(len(begun), 2, begun)  # nothing was begun anew
        self.world.env.update(self.s3.env())
        self.s3.ask("policy", "")
        for step in (1, 2):
            self.world.cairn("verify", f"f/run@{step}")
        self.check()

    def test_a_store_that_begins_to_ignore_prefixes_loses_nothing_to_the_sweep(self):  # E, P8
        self.start(env={"CAIRN_TRASH_GRACE": "0ms"})
        for step in (1, 2):
            self.finish(self.put_in_background(self.source(1), f"f/run@{step}"))
        before = set(self.s3.keys(""))
        self.s3.rules("op=list : ignore-prefix\nop=uploads : ignore-prefix")
        self.world.cairn("rm", "f/run@1")
        log = self.world.root / "server.log"
        wait_until(lambda: "sweep.listing_wrong" in log.read_text())
        go_round(self.world.server.process.pid, "cairn-sweep", 20)
        gone = [key for key in before - set(self.s3.keys("")) if "/generations/" not in key]
        # Its record and manifest are deleted by their names, before anything is listed.
        self.assertTrue(all("/000000000001/" in key for key in gone), gone)
        self.assertEqual({key.rsplit("/", 1)[1] for key in gone} - {"committed.json", "manifest.json"}, set())
        self.s3.rules("")
        wait_until(lambda: not [k for k in self.s3.keys("") if "/000000000001/" in k])
        self.world.cairn("verify", "f/run@2")

    def commit_of_a_shard_that_shrinks(self, rules):
        """Behind its registration, while the commit waits; a later save is committed."""
        proof = Held(self.folder, "server.commit.before_proof")
        self.start(env=proof.env())
        self.s3.rules(rules)
        putting = self.put_in_background(self.source(1))
        proof.reached()
        put_object(self.s3, self.shard_key(), b"short")
        proof.go_on()
        err = self.world.ended(putting, None)[1]
        self.assertNotEqual(putting.returncode, 0)
        self.assertRegex(err, r"1 of 1 shard: not as registered; the first: node node-0 registered "
                              r"shard \S*model\.bin of rank 0 with 1048593 bytes, the store has 5")
        self.finish(self.put_in_background(self.source(1), "f/run@2"))
        self.check("f/run@2")

    def test_a_shard_that_shrinks_before_the_commit_commits_nothing(self):  # A, P2
        self.commit_of_a_shard_that_shrinks("")

    def test_a_shard_that_shrinks_is_seen_also_where_keys_may_not_be_listed(self):  # A, P2
        self.commit_of_a_shard_that_shrinks("op=list|uploads : status=403/AccessDenied")

    def test_a_server_whose_put_of_store_json_loses_its_reply_starts(self):
        self.s3 = S3Fault(self.folder, case=self)
        self.s3.rules("op=put key=*store.json nth=1 : lose-reply")
        self.start()
        self.assertEqual(self.s3.acted(), 1)
        self.finish(self.put_in_background(self.source(1)))
        self.check()

    def test_an_upload_that_the_store_drops_is_begun_anew(self):  # S07
        self.start()
        self.s3.rules("op=part nth=4 : drop-upload")
        self.finish(self.put_in_background(self.source()))
        self.assertEqual(self.s3.acted(), 1)
        self.check()

    def test_a_killed_uploader_does_not_send_finished_parts_again(self):
        self.start()
        self.kill_and_go_on()

    def test_a_killed_uploader_sends_no_finished_part_again_where_parts_are_listed_without_checksums(self):
        self.start(s3_arguments=["--profile", "radosgw"])
        self.kill_and_go_on()

    def kill_and_go_on(self):
        self.s3.rules("op=part nth=5+ : req-stall@50%")
        job = Job(self.world, "job", 1, [1], run="f/run", rows=40)
        wait_until(lambda: len(self.shard_parts()) >= 4 and self.s3.state()["counters"]["op_part"] >= 5)
        # What is on its way back is journaled; the other parts are held up.
        go_round(self.world.uploaders[0].process.pid, "sender", 10)
        self.world.uploaders[0].kill()
        finished = {line["part"] for line in self.shard_parts()}
        self.s3.rules("")
        self.world.uploaders[0].start()
        job.succeeds()  # its slab was brought again
        sent = collections.Counter(line["part"] for line in self.shard_parts())
        self.assertEqual({part: sent[part] for part in finished}, dict.fromkeys(finished, 1))
        self.assertEqual(set(sent), set(range(1, len(sent) + 1)))
        self.assertEqual(len({line["upload"] for line in self.shard_parts()}), 1)
        self.check()

    # ---- bytes that change ----

    def test_a_part_with_a_byte_flipped_on_the_way_to_the_store_is_refused_and_sent_again(self):  # S20
        self.start()
        self.s3.rules("op=part nth=2 : req-flip@1000")
        self.finish(self.put_in_background(self.source()))
        self.assertEqual(self.s3.acted(), 1)
        self.assertEqual(len(self.s3.journal(op="part", code="BadDigest")) +
                         len(self.s3.journal(op="part", status=400)) > 0, True)
        self.check()

    def readers(self):
        """Commands that read every byte of f/run@1, by name: through the server and past it."""
        out = self.world.root / "out"
        past = ("--store", self.world.store)
        return {"verify": ("verify", "f/run@1"), "verify --store": ("verify", "f/run@1", *past),
                "get": ("get", "f/run@1", "-d", out),
                "get --store": ("get", "f/run@1", "-d", out, *past)}

    def told_by_server(self):
        return "\n".join(line for line in (self.world.root / "server.log").read_text().splitlines() if " read." in line)

    def gets_of(self, arguments, rules="", status=0):
        """(what a command said, the journal's lines of its GETs of shards, all lines before)."""
        shutil.rmtree(self.world.root / "out", ignore_errors=True)
        before = self.s3.journal()
        self.s3.rules(rules)
        said = self.world.cairn(*arguments, status=status)
        lines = self.s3.journal()[len(before):]
        self.s3.rules("")
        return said, [line for line in lines if line["op"] == "get" and "/data/" in line["key"]], before

    def test_a_range_with_a_byte_flipped_once_on_the_way_back_is_read_once_more(self):  # S17
        self.start()
        source = self.source()
        self.finish(self.put_in_background(source))
        for name, arguments in self.readers().items():
            with self.subTest(name):
                _, usual, _ = self.gets_of(arguments)
                # The second one to come may be the last range, which has 17 bytes.
                said, gets, before = self.gets_of(arguments, "op=get key=*/data/* nth=2 : flip@10")
                self.assertEqual(len(gets), len(usual) + 1)
                ranges = collections.Counter(line["range"] for line in gets)
                again = [text for text, count in ranges.items() if count == 2]
                self.assertEqual(len(again), 1, ranges)
                first, second = [line for line in gets if line["range"] == again[0]]
                self.assertEqual((first["rule"], second["rule"]), (0, -1))
                earlier = before + gets[:gets.index(second)]
                self.assertNotIn(second["connection"], {line["connection"] for line in earlier})
                told = said.stderr if "--store" in arguments else self.told_by_server()
                self.assertRegex(told, r"shard \S*model\.bin\S* bytes \d+-\d+: .*expected")
                if "get" in arguments:
                    self.assertEqual((self.world.root / "out" / "model.bin").read_bytes(), source.read_bytes())
        self.check()

    def test_a_byte_flipped_in_any_one_get_fails_no_verify(self):  # S17: records and manifests, too
        self.start()
        self.finish(self.put_in_background(self.source(20)))
        readers = [self.readers()[name] for name in ("verify", "verify --store")]
        for arguments in readers:
            for turn in range(1, 20):
                self.s3.rules(f"op=get nth={turn} : flip@100")
                self.world.cairn(*arguments)
                if not self.s3.acted():
                    break
            self.assertGreater(turn, 4)
        self.check()

    def test_a_range_with_a_byte_flipped_each_time_is_read_twice_and_is_damage(self):  # S17
        self.start()
        self.finish(self.put_in_background(self.source()))
        for name, arguments in self.readers().items():
            with self.subTest(name):
                said, gets, _ = self.gets_of(arguments, "op=get key=*/data/* : flip@1000", status=7)
                self.assertRegex(said.stderr, r"shard \S*model\.bin\S* bytes \d+-\d+: .*expected")
                ranges = collections.Counter(line["range"] for line in gets
                                             if line["bytes_out"] > 1000)  # else nothing flipped
                self.assertEqual(set(ranges.values()), {2}, "each is read twice and no more")
                self.assertFalse((self.world.root / "out" / "model.bin").exists())
        self.check()

    def test_every_later_range_asks_for_the_object_of_the_first(self):  # S17
        self.start()
        self.finish(self.put_in_background(self.source()))
        for name, arguments in self.readers().items():
            with self.subTest(name):
                _, gets, _ = self.gets_of((*arguments, "--workers", "1"))
                etags = {o["key"]: o["etag"] for o in self.s3.state()["objects"]}
                asked = [line.get("if_match", "").strip('"') for line in gets]
                wanted = [etags[line["key"]] for line in gets]
                if "--store" in arguments:
                    self.assertEqual(asked, [""] + wanted[1:])
                else:  # the server knows of one request at a time: 2 ranges of 4 MiB
                    self.assertGreater(len(gets), 8)
                    self.assertGreaterEqual(asked.count(wanted[0]), len(gets) // 2)
                    self.assertEqual(set(asked), {"", wanted[0]})
        self.check()

    def shard_key(self):
        return next(iter(self.world.keys("/data/")))

    def test_an_object_that_is_replaced_between_two_ranges_is_damage(self):  # S17
        self.start()
        source = self.source()
        self.finish(self.put_in_background(source))
        body = source.read_bytes()
        for turn, (name, arguments) in enumerate(self.readers().items()):
            with self.subTest(name):
                before = len(self.s3.journal())
                self.s3.rules("op=get key=*/data/* : held")
                reading = self.world.begin(*arguments, "--workers", "1")
                wait_until(self.s3.acted)  # the answer to come is of the object of before
                # Another object of as many bytes, each time; the first 16 MiB stay what they were.
                put_object(self.s3, self.shard_key(), body[:-1] + bytes([body[-1] ^ (turn + 1)]))
                self.s3.rules("")
                _, said = self.world.ended(reading, 7)
                self.assertRegex(said + self.told_by_server(),
                                 r"shard \S*model\.bin\S* bytes \d+-\d+: the object was replaced")
                refused = [line for line in self.s3.journal()[before:] if line["status"] == 412]
                self.assertTrue(refused)
                if "--store" in arguments:
                    self.assertEqual(len(refused), 1, "it would be refused again")
        put_object(self.s3, self.shard_key(), body)
        self.check()

    def test_a_range_with_the_etag_of_another_object_is_read_once_more_then_damage(self):  # S17
        self.start()
        self.finish(self.put_in_background(self.source(20)))
        arguments = (*self.readers()["get --store"], "--workers", "1")
        other = 'header=ETag:"0123456789abcdef0123456789abcdef"'
        self.gets_of(arguments, f"op=get key=*/data/* nth=2 : {other}")
        said, gets, _ = self.gets_of(arguments, f"op=get key=*/data/* nth=2+ : {other}", status=7)
        self.assertRegex(said.stderr, r"model\.bin: bytes \d+-\d+: the object was replaced while")
        self.assertEqual([line.get("rule") for line in gets], [-1, 0, 0])
        self.check()

    def test_damage_behind_the_first_chunk_of_an_answer_is_named_too(self):  # P3
        self.start()
        source = self.source()
        self.finish(self.put_in_background(source))
        body = bytearray(source.read_bytes())
        body[5 * MIB] ^= 1
        put_object(self.s3, self.shard_key(), bytes(body))
        for name, arguments in self.readers().items():
            with self.subTest(name):
                said = self.world.cairn(*arguments, status=7)
                self.assertRegex(said.stderr, r"bytes 5242880-6291455: .*expected")
        put_object(self.s3, self.shard_key(), source.read_bytes())
        self.check()

    # ---- what is not there, and what is not allowed ----

    def test_a_shard_that_is_missing_or_forbidden_is_named_by_every_reader(self):  # S18
        self.start()
        source = self.source()
        self.finish(self.put_in_background(source))
        for name, arguments in self.readers().items():
            with self.subTest(name):
                said, gets, _ = self.gets_of((*arguments, "--workers", "1"),
                                             "op=get key=*/data/* : status=403/AccessDenied", 4)
                self.assertRegex(said.stderr, r"shard \S*model\.bin.*AccessDenied")
                self.assertEqual(len(gets), 1, "keys that may not will not the next time")
                said, gets, _ = self.gets_of((*arguments, "--workers", "1"),
                                             "op=get key=*/data/* : status=404/NoSuchKey", 7)
                self.assertRegex(said.stderr, r"shard \S*model\.bin.*the object is missing: "
                                              rf"expected {source.stat().st_size} bytes")
                self.assertEqual(len(gets), 1)
        self.check()

    def test_what_the_store_said_reaches_the_person_whole(self):  # S18
        self.start()
        source = self.source(1, "重量" * 30 + ".bin")
        self.s3.rules("op=put|create key=*/data/* : status=403/AccessDenied")
        said = self.world.cairn("put", source, "f/run@1", status=4)
        self.assertRegex(said.stderr, r"shard \S*重量\S*.*403 AccessDenied")
        self.assertRegex(said.stderr, r"the store's request id: s3fault-\d+")

        def ended():  # an event stays; a version that is swept, by then, is in no list
            items = self.world.read("/v1/runs/f/run/events?since=0")["items"]
            return [item["version"] for item in items if item["event"] == "checkpoint.aborted"]
        wait_until(ended, 60)  # the server hears of it from the uploader's journal
        version = self.world.read("/v1/runs/f/run/checkpoints/" + ended()[0])
        self.assertEqual((version["code"], version["http_status"]), ("forbidden", 403))
        shown = self.world.cairn("show", "f/run@" + version["version"]).stdout
        self.assertRegex(shown, r"code +forbidden")
        self.assertRegex(shown, r"reason +rank 0 on node node-0: shard .*403 AccessDenied")
        self.assertIn(version["request_id"], shown)
        self.assertIn(version["request_id"], said.stderr)
        self.s3.rules("")
        self.world.cairn("put", source, "f/run@2")
        self.s3.rules("op=get key=*/data/* : status=403/AccessDenied")
        for arguments in (("get", "f/run@2", "-d", self.world.root / "a"),
                          ("get", "f/run@2", "-d", self.world.root / "b", "--store",
                           self.world.store)):
            said = self.world.cairn(*arguments, status=4)
            self.assertIn("403 AccessDenied", said.stderr)
            self.assertRegex(said.stderr, r"the store's request id: s3fault-\d+")
        self.check("f/run@2")

    # ---- a store that is away ----

    def test_a_store_that_does_not_answer_is_waited_for_and_named_until_the_time_limit(self):
        self.start()
        self.finish(self.put_in_background(self.source(1)))
        self.s3.rules("op=list : stall@0")
        arguments = ("get", "f/run@1", "-d", self.world.root / "out", "--store", self.world.store)
        for patience, lines in (("2s", 0), ("7s", 1)):
            started = time.monotonic()
            said = self.world.cairn(*arguments, "--timeout", patience, status=8)
            took = time.monotonic() - started
            self.assertGreaterEqual(took, int(patience[0]) - 0.1, said.stderr)
            self.assertEqual(said.stderr.count(f"waiting for the store {self.world.store}, 5 s"), lines, said.stderr)
        self.s3.stop()
        self.world.cairn(*arguments, "--timeout", "3s", status=8)

    def test_a_byte_flipped_where_the_store_checks_nothing_is_found_by_verify(self):
        """Found and named by verify; with checksum = md5 the store finds it itself."""
        self.start(s3_arguments=["--profile", "radosgw"])
        self.assertIn("not checked", (self.world.root / "server.log").read_text())
        self.s3.rules("op=part part=2 nth=1 : req-flip@1000")
        self.finish(self.put_in_background(self.source()))
        self.s3.rules("")
        said = self.world.cairn("verify", "f/run@1", "--store", self.world.store, status=7)
        self.assertIn("model.bin", said.stderr)
        self.assertRegex(said.stderr, r"bytes 5242880-")
        self.world.uploaders[0].stop()
        self.world.uploader_arguments += ["--checksum", "md5"]
        self.world.uploaders[0] = self.world.make_uploader(0).start()
        self.s3.rules("op=part part=2 nth=1 : req-flip@1000")
        self.finish(self.put_in_background(self.world.root / "model.bin", "f/run@2"))
        self.assertEqual(self.s3.acted(), 1)
        self.check("f/run@2")

    def test_a_key_that_cannot_be_deleted_keeps_none_of_the_others(self):  # S27
        self.s3 = S3Fault(self.folder, case=self)
        self.world = world = S3World(
            self.s3, nodes=1, case=self,
            server_arguments=["--sweep-interval", "100ms", "--trash-grace", "0ms"],
            uploader_arguments=["--part-size", "5MiB", "--heartbeat", "200ms"])
        world.put(cases.tree(world.root / "tree", {name: 1000 for name in "abcde"}), "f/run@1", "f/run@2")
        gone = world.json("show", "f/run@1")["version"]
        self.assertGreaterEqual(len(world.keys(gone)), 5)
        for code in ("AccessDenied", "InternalError"):
            self.s3.rules(f"op=delete-many : delete-error={code}@*/data/c")
            if code == "AccessDenied":
                world.cairn("rm", "f/run@1")
            wait_until(lambda: code in world.logs(), 60)
            left = list(world.keys(gone))
            self.assertEqual([key[-7:] for key in left], ["/data/c"])
            self.assertNotIn("version.gone", world.logs())  # it is tried again
        self.assertIn("version.not_freed", world.logs())
        self.s3.rules("")
        wait_until(lambda: not world.keys(gone), 60)
        wait_until(lambda: "version.gone" in world.logs() and "version.freed" in world.logs())
        single = [line["key"] for line in self.s3.journal(op="delete") if "/data/" in line["key"]]
        self.assertEqual(single, [])
        self.check("f/run@2")

    def test_keys_in_a_file_are_read_again_and_an_open_file_is_told(self):  # S10
        keys = self.folder / "keys"

        def write(access, secret, token):
            keys.write_text(f"[default]\naws_access_key_id = {access}\n"
                            f"aws_secret_access_key = {secret}\naws_session_token = {token}\n")

        write(ACCESS, SECRET, TOKEN)
        keys.chmod(0o644)
        passing = Passing()
        self.start(env={**passing.env(), "AWS_SHARED_CREDENTIALS_FILE": str(keys), "AWS_ACCESS_KEY_ID": "",
                        "AWS_SECRET_ACCESS_KEY": "", "AWS_SESSION_TOKEN": ""})
        for name in ("server.log", "uploader-0.log"):
            log = (self.world.root / name).read_text()
            self.assertEqual(log.count("store.keys_exposed"), 1, log)
            self.assertIn(f'cause="{keys} has mode 0644"', log)
        self.s3.ask("keys", f"AKIDCANARYSECOND {SECRET}2 {TOKEN}2")
        write("AKIDCANARYSECOND", SECRET + "2", TOKEN + "2")
        passing.passes(1.1)  # so often the file is looked at
        self.finish(self.put_in_background(self.source(mib=12)))
        # While one thread reads the file, others may still sign with the keys that hold.
        used = {line["access_key"] for line in self.s3.journal(op="complete", status=200) if "/data/" in line["key"]}
        self.assertEqual(used, {"AKIDCANARYSECOND"})
        self.check()


PART_BYTES, BLOCK = 5 * MIB, MIB
SIZE = 2 * PART_BYTES + 2 * MIB + 17
PARTS = [(1, PART_BYTES), (2, PART_BYTES), (3, SIZE - 2 * PART_BYTES)]
READ_SIZE = 33 * MIB + 17  # ranges of 8 MiB
PLACES = {"first": ("0", lambda size: 0), "middle": ("50%", lambda size: size // 2),
          "last": ("-1", lambda size: size - 1)}
DAMAGE = re.compile(r'^bad: .*shard "?([^\s":]+)"?: bytes (\d+)-(\d+): .*expected', re.MULTILINE)


class Flips(cases.Case):
    def setUp(self):
        self.s3 = S3Fault(self.folder, ["--profile", "radosgw"], case=self)
        self.world = S3World(self.s3, debug=False,
                             server_arguments=["--sweep-interval", "200ms"],
                             uploader_arguments=["--part-size", "5MiB", "--heartbeat", "200ms"], case=self)

    def make_tree(self, names, size=SIZE):
        return cases.tree(self.world.root / "tree", {name: size for name in names})

    def readers(self):
        """Commands that read every byte, by name: through the server and past it."""
        out = self.world.root / "out"
        past = ("--store", self.world.store)
        return {"verify": ("verify", "f/run@1"), "verify --store": ("verify", "f/run@1", *past),
                "get": ("get", "f/run@1", "-d", out),
                "get --store": ("get", "f/run@1", "-d", out, *past)}

    def named(self, text):
        """{shard: [(first, last)]} of what was called damaged."""
        found = {}
        for name, first, last in DAMAGE.findall(text):
            found.setdefault(name, set()).add((int(first), int(last)))
        return found

    def expect_block(self, ranges, at, why, size=SIZE):
        """One block is named, the one that holds this byte."""
        first = at // BLOCK * BLOCK
        self.assertEqual(ranges, {(first, min(first + BLOCK, size) - 1)}, why)

    def test_a_byte_flipped_in_any_part_is_named_with_its_block_by_every_reader(self):
        wanted = {f"part-{part}-{place}": (part, place) for part, _ in PARTS for place in PLACES}
        tree = self.make_tree([*wanted, "whole"])
        self.s3.rules("\n".join(f"op=part key=*/data/{name} part={part} : "
                                f"req-flip@{PLACES[place][0]}"
                                for name, (part, place) in wanted.items()))
        self.world.cairn("put", tree, "f/run@1")
        self.assertTrue(all(rule["acted"] for rule in self.s3.state()["rules"]))
        self.s3.rules("")
        sizes = dict(PARTS)
        for reader, arguments in self.readers().items():
            with self.subTest(reader):
                said = self.world.cairn(*arguments, status=7).stderr
                named = self.named(said)
                self.assertEqual(set(named), set(wanted), said)
                for name, (part, place) in wanted.items():
                    at = (part - 1) * PART_BYTES + PLACES[place][1](sizes[part])
                    self.expect_block(named[name], at, said)
                    self.assertFalse((self.world.root / "out" / name).exists(), name)
                shutil.rmtree(self.world.root / "out", ignore_errors=True)
        self.world.audit()

    def flip_each_get(self, reader, place):
        """Flips one byte of the n-th answer and of what is asked again for it, for every n."""
        arguments, turn = (*self.readers()[reader], "--workers", "1"), 0
        while True:
            turn += 1
            before = len(self.s3.journal())
            self.s3.rules(f"op=get key=*/data/* nth={turn}-{turn + 1} : flip@{PLACES[place][0]}")
            said = self.world.cairn(*arguments, status=None)
            hit = [line for line in self.s3.journal()[before:] if line["rule"] == 0]
            shutil.rmtree(self.world.root / "out", ignore_errors=True)
            if not hit:
                self.assertEqual(said.returncode, 0, said.stderr)
                return turn - 1
            first, last = map(int, hit[0]["range"].removeprefix("bytes=").split("-"))
            self.assertEqual([line["range"] for line in hit], [hit[0]["range"]] * 2)
            self.assertEqual(said.returncode, 7, said.stderr)
            named = self.named(said.stderr)
            self.assertEqual(list(named), ["model.bin"], said.stderr)
            at = first + PLACES[place][1](last - first + 1)
            self.expect_block(named["model.bin"], at, said.stderr, READ_SIZE)

    def test_a_byte_flipped_twice_in_any_answer_is_named_with_its_block(self):
        source = self.make_tree(["model.bin"], READ_SIZE) / "model.bin"
        self.world.cairn("put", source, "f/run@1")
        for reader in ("verify --store", "get --store"):
            for place in PLACES:
                with self.subTest(reader=reader, place=place):
                    self.assertGreaterEqual(self.flip_each_get(reader, place), 5)
        self.s3.rules("")
        self.world.audit()


class StoreFails(unittest.TestCase):
    def start(self, **options):
        s3 = S3Fault(cases.folder(self), case=self)
        world = S3World(s3, case=self, **options)
        return s3, world, cases.tree(world.root / "model", {"weights.bin": 100_000})

    def test_a_listing_that_is_cut_off_without_a_token_is_named_by_the_save(self):
        s3, world, model = self.start(server_arguments=["--test-store=false"], uploader_arguments=["--test-store=false"])
        s3.rules("op=list : no-token")
        said = world.cairn("put", model, "llm/none@1", status=None)
        self.assertNotEqual(said.returncode, 0)
        self.assertIn("IsTruncated without NextContinuationToken", said.stderr)
        s3.rules("op=list key=*/llm/7b/0* : no-token")
        put = world.begin("put", model, "llm/7b@1", case=self)
        said = put.stderr.readline()
        cases.has(said, "its commit is tried again: ", "IsTruncated without NextContinuationToken")
        self.assertIn("IsTruncated", world.cairn("show", "llm/7b@1", "--why").stdout)
        s3.rules("")
        self.assertEqual(put.wait(HANG_S), 0)

    def test_a_store_that_fails_is_named_by_put_status_nodes_why_and_log(self):
        s3, world, model = self.start()
        s3.rules("op=put|part|create key=*/data/* : status=500/InternalError")
        put = world.begin("put", model, "llm/7b@1", case=self)
        said = put.stderr.readline()
        cases.has(said, "note: ", "the store fails, and is tried on", "500")
        for words in (("uploader", "status"), ("nodes",), ("show", "llm/7b@1", "--why")):
            wait_until(lambda words=words: "500" in world.cairn(*words, status=None).stdout)
        self.assertIn("the store fails", world.cairn("uploader", "status").stdout)
        self.assertIn("store.failing", world.uploaders[0].log.read_text())
        s3.rules("")
        self.assertEqual(put.wait(HANG_S), 0, put.stderr.read())
        wait_until(lambda: "the store fails" not in world.cairn("uploader", "status").stdout)
        wait_until(lambda: "the store fails" not in world.cairn("nodes").stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
