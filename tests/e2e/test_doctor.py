# SPDX-License-Identifier: Apache-2.0
# ctest: seconds=60 engines=again
"""cairn doctor against kinds of stores, rights and buckets: what each check must say; and what it
leaves: .cairn/profile.json, which servers and uploaders begin with, and nothing else."""
import json
import os
import re
import subprocess
import unittest

import cases
from s3world import ACCESS, BIN, LEAKS, SECRET, TOKEN, S3Fault, S3World, run, wait_until
from test_s3_faults import put_object

MIB = 1 << 20
PROFILE = "cairn/.cairn/profile.json"
NO_RIGHTS = "op=list|uploads|delete : status=403/AccessDenied"
ABORT = "<AbortIncompleteMultipartUpload><DaysAfterInitiation>3</DaysAfterInitiation>" \
        "</AbortIncompleteMultipartUpload>"
ARCHIVE = "<Transition><Days>30</Days><StorageClass>DEEP_ARCHIVE</StorageClass></Transition>"
EXPIRE = "<Expiration><Days>90</Days></Expiration>"


def rules_of(*rules):
    return f"<LifecycleConfiguration>{''.join(rules)}</LifecycleConfiguration>"


def rule(what, where="<Prefix></Prefix>", status="Enabled"):
    return f"<Rule><ID>r1</ID><Status>{status}</Status>{where}{what}</Rule>"


def filtered(prefix, tag=False):
    inner = f"<Prefix>{prefix}</Prefix>"
    if tag:
        inner = f"<And>{inner}<Tag><Key>k</Key><Value>v</Value></Tag></And>"
    return f"<Filter>{inner}</Filter>"


def versioning(status):
    return f"<VersioningConfiguration><Status>{status}</Status></VersioningConfiguration>"


def setUpModule():
    os.environ["CAIRN_URL"] = "http://127.0.0.1:1"  # else the server that somebody has at the usual port is looked at, too


class Doctor(unittest.TestCase):
    """What it says; no daemon runs."""

    @classmethod
    def setUpClass(cls):
        cls.folder = cases.folder(cls)
        cls.stores = {}

    def store(self, profile="aws"):
        if profile not in self.stores:
            folder = cases.made(self.folder / profile)
            self.stores[profile] = S3Fault(folder, ["--profile", profile], case=type(self))
        self.stores[profile].ask("reset", "")
        return self.stores[profile]

    def ask(self, s3, *arguments, env=None):
        """{check: (level, text, hint)}"""
        said = run([BIN / "cairn", "doctor", "s3://lab/cairn", "--json", *arguments],
                   env={**os.environ, **s3.env(), **(env or {})})
        self.assertFalse([secret for secret in LEAKS if secret in said.stdout + said.stderr])
        self.assertIn(said.returncode, (0, 1), said.stderr)
        return {f["check"]: (f["level"], f["text"], f["hint"]) for f in json.loads(said.stdout)["findings"]}

    def expect(self, found, wanted):
        for check, level in wanted.items():
            if level is None:
                self.assertNotIn(check, found)
            else:
                self.assertIn(check, found)
                self.assertEqual(found[check][0], level, (check, found[check]))

    def test_doctor_fails_a_folder_in_which_others_can_replace_what_is_stored(self):
        folder = self.folder / "shared"
        folder.mkdir(mode=0o755)
        for mode, level in ((0o755, "ok"), (0o775, "FAIL"), (0o777, "FAIL")):
            folder.chmod(mode)
            said = run([BIN / "cairn", "doctor", folder, "--json"], env=dict(os.environ))
            found = {item["check"]: item for item in json.loads(said.stdout)["findings"]}["folder"]
            self.assertEqual(found["level"], level, found)
            if level == "FAIL":
                self.assertIn(f"its mode is {mode:04o}", found["text"])

    def test_doctor_finds_nothing_missing_at_a_store_that_does_all(self):
        s3 = self.store()
        found = self.ask(s3)
        self.expect(found, dict.fromkeys(
            ("endpoint", "keys", "clock", "put", "conditional put", "object metadata", "range",
             "stored checksum", "upload checksum", "listing", "uploads by prefix", "part checksums",
             "part count", "conditional complete", "multipart", "list parts", "abort", "presigned",
             "versioning", "object lock", "list", "list uploads", "delete", "profile", "degraded"),
            "ok"))
        self.expect(found, {"life cycle": "WARN", "expiration": None, "left behind": None})
        self.assertEqual(found["endpoint"][1], f"{s3.url}, region us-east-1, addressing by path")
        self.assertEqual(found["keys"][1], "from: environment")
        self.assertEqual(list(s3.keys("")), [PROFILE])
        self.assertEqual(s3.uploads(""), [])

    def test_doctor_names_what_each_kind_of_store_lacks(self):
        for profile, wanted in {
                "minio": {"uploads by prefix": "WARN", "upload checksum": "ok", "degraded": "ok"},
                "r2": {"conditional complete": "WARN", "conditional put": "ok"},
                "b2": {"conditional put": "WARN", "upload checksum": "ok", "degraded": "WARN",
                       "part checksums": "ok", "list parts": "ok"},
                "parts1000": {"part count": "WARN", "multipart": "ok"},
                "radosgw": {"upload checksum": "WARN", "conditional complete": "WARN",
                            "list parts": "ok", "degraded": "ok"},
                "moto": {"stated checksums": "WARN", "upload checksum": "ok",
                         "list parts": "WARN", "degraded": "WARN"}}.items():
            with self.subTest(profile):
                s3 = self.store(profile)
                found = self.ask(s3)
                self.expect(found, {**wanted, "profile": "ok", "abort": "ok"})
                self.assertEqual(list(s3.keys("")), [PROFILE])
                self.assertEqual(s3.uploads(""), [])
                if profile == "b2":  # S21: no silent downgrade
                    self.assertIn("Content-MD5", found["degraded"][1])
                    self.assertIn("If-None-Match", found["degraded"][1])

    def test_e_doctor_fails_a_store_that_lists_more_than_was_asked_for(self):
        found = self.ask(self.store("noprefix"))
        self.expect(found, {"listing": "FAIL", "requests": "FAIL", "profile": None})
        self.assertIn('below ".cairn/doctor/', found["requests"][1].replace("cairn/.cairn", ".cairn"))
        found = self.ask(self.store("alluploads"))
        self.expect(found, {"listing": "ok", "uploads by prefix": "WARN", "profile": "ok"})

    def test_doctor_names_a_clock_that_is_off_as_warning_or_failure(self):
        for seconds, level, way in ((0, "ok", ""), (300, "WARN", "ahead"), (-300, "WARN", "behind"),
                                    (1200, "FAIL", "ahead"), (-1200, "FAIL", "behind")):
            with self.subTest(seconds):
                s3 = self.store()
                s3.ask("clock", str(seconds))
                found = self.ask(s3)
                self.expect(found, {"clock": level, "put": "ok"})
                self.assertIn(way, found["clock"][1])

    def test_doctor_names_a_life_cycle_that_keeps_uploads_or_expires_objects(self):
        rows = [(rules_of(rule(ABORT)), "ok", None),
                (rules_of(rule(ABORT, "<Filter></Filter>")), "ok", None),
                (rules_of(rule(ABORT, filtered("cairn/"))), "ok", None),
                (rules_of(rule(ABORT, filtered("ca"))), "ok", None),
                (rules_of(rule(ABORT, status="Disabled")), "WARN", None),
                (rules_of(rule(ABORT, filtered("other/"))), "WARN", None),
                (rules_of(rule(ABORT, filtered("cairn/one/"))), "WARN", None),
                (rules_of(rule(ABORT, filtered("", tag=True))), "WARN", None),
                (rules_of(rule(EXPIRE, filtered("other/")), rule(ABORT)), "ok", None),
                (rules_of(rule(EXPIRE)), "WARN", "WARN"),
                (rules_of(rule(EXPIRE, filtered("cairn/one/")), rule(ABORT)), "ok", "WARN"),
                (rules_of(rule(EXPIRE, status="Disabled")), "WARN", None),
                (rules_of(rule(EXPIRE, filtered("", tag=True))), "WARN", None),
                (rules_of(rule("<Expiration><ExpiredObjectDeleteMarker>true"
                               "</ExpiredObjectDeleteMarker></Expiration>")), "WARN", None),
                ("<LifecycleConfiguration><Rule>", "WARN", None),
                ("AbortIncompleteMultipartUpload", "WARN", None)]
        s3 = self.store()
        for document, level, expiration in rows:
            with self.subTest(document):
                s3.ask("lifecycle", document)
                found = self.ask(s3)
                self.expect(found, {"life cycle": level, "expiration": expiration})
        s3.ask("lifecycle", "")
        s3.rules("op=lifecycle : status=403/AccessDenied")
        found = self.ask(s3)
        self.expect(found, {"life cycle": "ok"})
        self.assertIn("may not ask", found["life cycle"][1])

    def test_doctor_warns_of_versioning_and_object_lock_that_keep_deleted_objects(self):
        lock = "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled>{}" "</ObjectLockConfiguration>"
        held = "<Rule><DefaultRetention><Mode>GOVERNANCE</Mode><Days>30</Days>" "</DefaultRetention></Rule>"
        older = "<NoncurrentVersionExpiration><NoncurrentDays>2</NoncurrentDays>" "</NoncurrentVersionExpiration>"
        s3 = self.store()
        for what, document, level in (("versioning", versioning("Enabled"), "ok"),
                                      ("versioning", versioning("Suspended"), "ok"),
                                      ("object-lock", lock.format(held), "WARN"),
                                      ("object-lock", lock.format(""), "ok")):
            with self.subTest(document):
                s3.ask(what, document)
                self.expect(self.ask(s3), {what.replace("-", " "): level})
        s3.ask("versioning", versioning("Enabled"))
        for rules, hold, words in (("op=versions : status=403/AccessDenied", "", "AccessDenied"),
                                   ("", "*/doctor/*", "object lock")):
            s3.rules(rules)
            s3.ask("hold", hold)
            with self.subTest(rules=rules, hold=hold):
                found = self.ask(s3)
                self.expect(found, {"versioning": "WARN"})
                self.assertIn(words, found["versioning"][1])
                s3.ask("lifecycle", rules_of(rule(older)))
                self.expect(self.ask(s3), {"versioning": "ok"})
            s3.ask("lifecycle", "")
        s3.rules("")
        s3.ask("hold", "")
        found = self.ask(s3)
        self.assertIn("freed by its version id", found["versioning"][1])

    def test_doctor_warns_of_a_file_of_keys_that_others_may_read(self):
        s3 = self.store()
        file = self.folder / "credentials"
        file.write_text(f"[lab]\naws_access_key_id={ACCESS}\naws_secret_access_key={SECRET}\n"
                        f"aws_session_token={TOKEN}\n")
        env = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_SESSION_TOKEN": "",
               "AWS_SHARED_CREDENTIALS_FILE": str(file), "AWS_PROFILE": "lab"}
        for mode, level in ((0o600, None), (0o644, "WARN")):
            file.chmod(mode)
            found = self.ask(s3, env=env)
            self.expect(found, {"keys": "ok", "keys' file": level})
            self.assertIn("profile", found["keys"][1])

    def test_doctor_names_the_rights_that_the_keys_of_a_role_lack_or_have_too_much(self):
        names = ("list", "list uploads", "delete")
        for role, rules, level in (("server", "", "ok"), ("server", NO_RIGHTS, "FAIL"),
                                   ("uploader", "", "WARN"), ("uploader", NO_RIGHTS, "ok")):
            with self.subTest((role, rules)):
                s3 = self.store()
                s3.rules(rules)
                found = self.ask(s3, "--for", role)
                wanted = dict.fromkeys(names, level)
                if level == "FAIL":  # costs room, and fails nothing
                    wanted["list uploads"] = "WARN"
                self.expect(found, wanted)
                self.assertEqual("left behind" in found, bool(rules))
                left = [key for key in s3.keys("") if key != PROFILE]
                self.assertEqual(bool(left), bool(rules), left)
                self.assertTrue(all(key.startswith("cairn/.cairn/doctor/") for key in left), left)
                if role == "uploader":  # its rights say nothing about the store
                    self.expect(found, {"uploads by prefix": None, "profile": None})
                    self.assertEqual(s3.keys(PROFILE), {})
                for name in names:
                    self.assertEqual(bool(found[name][2]), level != "ok", found[name])

    def test_doctor_warns_of_lists_of_parts_without_checksum_or_usual_etag(self):
        s3 = self.store("radosgw")
        s3.rules("op=part : etag=opaque")
        self.expect(self.ask(s3), {"list parts": "ok"})
        s3.rules("op=parts : body=<ListPartsResult><Part><PartNumber>1</PartNumber><ETag>x</ETag>"
                 "<Size>1048576</Size></Part><Part><PartNumber>2</PartNumber><ETag>y</ETag>"
                 "<Size>1</Size></Part></ListPartsResult>")
        self.expect(self.ask(s3), {"list parts": "WARN"})

    def test_doctor_names_a_port_that_speaks_plain_http(self):  # S28
        s3 = self.store()
        found = self.ask(s3, env={"AWS_ENDPOINT_URL": s3.url.replace("http:", "https:")})
        self.expect(found, {"requests": "FAIL", "put": None})
        self.assertEqual(found["requests"][1], "the port speaks plain http, not https")
        self.assertNotIn("http://", found["requests"][2])

    def test_doctor_never_advises_to_give_up_tls(self):
        """A port of TLS answers plain text, too, which is no reason to speak it."""
        folder = cases.made(self.folder / "tls")
        for name, host in (("right", "IP:127.0.0.1"), ("other", "DNS:other.example")):
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                            "ec_paramgen_curve:P-256", "-nodes", "-keyout", folder / f"{name}.key",
                            "-out", folder / f"{name}.pem", "-days", "2", "-subj", "/CN=store",
                            "-addext", f"subjectAltName={host}"], check=True, capture_output=True)
        (folder / "empty").touch()
        for served, believed, said in (("right", "", "issuer"), ("right", "other.pem", "ca_bundle"),
                                       ("other", "other.pem", "name"),
                                       ("right", "empty", "PEM"), ("right", "none", "No such file")):
            with self.subTest((served, believed)):
                place = cases.made(folder / f"{served}-{believed}")
                s3 = S3Fault(place, ["--tls-cert", folder / f"{served}.pem", "--tls-key", folder / f"{served}.key"])
                bundle = {"AWS_CA_BUNDLE": str(folder / believed)} if believed else {}
                env = {**os.environ, **s3.env(), **bundle, "AWS_ENDPOINT_URL": s3.url.replace("http:", "https:")}
                run_ = run([BIN / "cairn", "doctor", "s3://lab/cairn", "--json"], env=env)
                s3.stop()
                found = {f["check"]: f for f in json.loads(run_.stdout)["findings"]}
                self.assertEqual(found["requests"]["level"], "FAIL")
                self.assertIn("certificate", found["requests"]["text"])
                # The first request has told it, and is not taken for a profile that is not there.
                self.assertNotIn("testing the store", found["requests"]["text"])
                if said not in ("issuer", "name"):
                    self.assertIn(said, found["requests"]["text"])
                self.assertNotIn("plain http", run_.stdout)
                self.assertIn("ca_bundle", found["requests"]["hint"])

    def test_doctor_names_the_setting_that_a_policy_asks_for(self):
        for denies, setting, variable in (
                ("acl", "acl = bucket-owner-full-control", "CAIRN_ACL"),
                ("payer", "request_payer = requester", "CAIRN_REQUEST_PAYER"),
                ("signed", "sign_payload = true", "CAIRN_SIGN_PAYLOAD")):
            with self.subTest(denies):
                s3 = self.store()
                s3.ask("policy", denies)
                found = self.ask(s3)
                self.assertEqual(found["part of a save"][0], "FAIL")
                self.assertIn(setting, found["part of a save"][2])
                found = self.ask(s3, env={variable: setting.split(" = ")[1]})
                self.expect(found, {"part of a save": "ok", "records": "ok", "multipart": "ok"})
                s3.ask("policy", "")

    def test_doctor_warns_of_what_archives_checkpoints(self):
        s3 = self.store()
        s3.ask("lifecycle", rules_of(rule(ARCHIVE)))
        self.expect(self.ask(s3), {"transition": "WARN", "storage class": None})
        s3.ask("lifecycle", rules_of(rule(ARCHIVE.replace("DEEP_ARCHIVE", "GLACIER_IR"))))
        found = self.ask(s3, env={"CAIRN_STORAGE_CLASS": "GLACIER"})
        self.expect(found, {"transition": None, "storage class": "WARN"})

    def test_doctor_calls_no_right_missing_where_a_listing_is_broken(self):
        s3 = self.store()
        s3.rules("op=list nth=4+ : html")
        found = self.ask(s3, "--timeout", "20s")
        self.assertEqual(found["list"][0], "FAIL")
        self.assertNotIn("may not", found["list"][1])

    def test_doctor_ends_by_its_timeout_though_the_store_says_nothing(self):
        s3 = self.store()
        s3.rules("op=* : stall@0")
        found = self.ask(s3, "--timeout", "2s")
        self.assertEqual(found["requests"][0], "FAIL")


class Profile(unittest.TestCase):
    """What doctor or the server found out is what the others begin with."""

    def setUp(self):
        self.s3 = None

    def open_store(self, s3_arguments=()):
        self.s3 = S3Fault(cases.folder(self), s3_arguments, case=self)

    def start(self, *s3_arguments, nodes=1, doctor=False, arguments=()):
        if not self.s3:
            self.open_store(s3_arguments)
        if doctor:
            said = run([BIN / "cairn", "doctor", "s3://lab/cairn"], env={**os.environ, **self.s3.env()})
            self.assertIn("profile.json", said.stdout)
        self.world = S3World(self.s3, nodes=nodes, server_arguments=["--sweep-interval", "200ms", *arguments],
                             uploader_arguments=["--part-size", "5MiB", "--heartbeat", "200ms", *arguments], case=self)

    def log(self, name):
        return (self.world.root / f"{name}.log").read_text()

    def known(self, name):
        return re.findall(r'store\.known .*from="([^"]*)"', self.log(name))[-1]

    def tried(self):
        return len([line for line in self.s3.journal() if "/.cairn/doctor/" in line["key"]
                    and line["op"] not in ("list", "uploads")])

    def put(self, ref="p/run@1", mib=12):
        source = cases.file(self.world.root / "model.bin", os.urandom(mib * MIB))
        self.world.cairn("put", source, ref)

    def test_what_doctor_found_is_not_found_out_again(self):
        self.open_store()
        self.start(doctor=True, nodes=2)
        for name in ("server", "uploader-0", "uploader-1"):
            self.assertRegex(self.known(name), r"^profile.json, tested by doctor at 20")
        before = self.tried()
        self.world.server.stop()
        self.world.start_server()
        self.assertEqual(self.tried(), before, "nobody tested again")
        self.put()
        self.world.cairn("verify", "p/run@1")
        self.world.audit()

    def test_an_uploader_believes_the_server_and_says_nothing_false(self):
        self.start("--page-max", "1", nodes=0)
        self.assertIn("a test now", self.known("server"))
        self.assertIn("store.profile_written", self.log("server"))
        before = self.tried()
        self.s3.rules(NO_RIGHTS)  # as an uploader's keys are meant to be
        self.world.uploaders.append(self.world.make_uploader(0).start())
        self.assertRegex(self.known("uploader-0"), "^profile.json, tested by server at 20")
        self.assertEqual(self.tried(), before)
        self.s3.rules(f"op=head|get key=*profile.json : status=403/AccessDenied\n{NO_RIGHTS}")
        for number in (1, 2, 3):
            self.world.uploaders.append(self.world.make_uploader(number).start())
            self.assertIn("there is no profile.json", self.known(f"uploader-{number}"))
        self.assertGreater(self.tried(), before)
        for name in ("uploader-0", "uploader-1"):
            self.assertNotIn("cannot be listed", self.log(name))
            self.assertNotIn("store.profile ", self.log(name))
        # What they could not delete, the server's sweep does, when it is an hour old.
        left = [key for key in self.world.keys() if "/.cairn/doctor/" in key]
        self.assertEqual(len(left), 3)
        self.s3.rules("")
        self.s3.ask("clock", str(2 * 3600))
        self.world.server.stop()
        self.world.start_server()
        wait_until(lambda: not [k for k in self.world.keys() if "/.cairn/doctor/" in k], 20)

    def test_a_profile_of_another_endpoint_or_of_last_week_is_not_believed(self):
        self.start(doctor=True, nodes=0)
        before = self.tried()
        self.world.env["AWS_ENDPOINT_URL"] = self.s3.url.replace("127.0.0.1", "localhost")
        self.world.uploaders.append(self.world.make_uploader(0).start())
        self.assertRegex(self.known("uploader-0"), r"^a test now: profile.json is of http://127")
        self.assertGreater(self.tried(), before)
        self.world.env["AWS_ENDPOINT_URL"] = self.s3.url
        self.s3.ask("clock", str(8 * 24 * 3600))
        self.world.server.stop()
        self.world.start_server()
        self.assertRegex(self.known("server"), "^a test now: profile.json is too old")

    def test_only_what_a_setting_asks_otherwise_is_tested(self):
        self.start(doctor=True, nodes=0)
        before = self.s3.journal()
        self.world.uploader_arguments += ["--checksum", "md5"]
        self.world.uploaders.append(self.world.make_uploader(0).start())
        self.assertRegex(self.known("uploader-0"), "^profile.json")
        new = self.s3.journal()[len(before):]
        tried = {line["op"] for line in new if "/.cairn/doctor/" in line["key"]}
        self.assertEqual(tried, {"put", "delete"}, "one body with a wrong checksum")
        self.assertFalse([line for line in new if line["op"] == "put" and line["key"].endswith("profile.json")])
        self.assertNotIn("store.profile ", self.log("uploader-0"))

    def test_a_profile_that_nobody_understands_is_not_believed(self):
        self.open_store()
        for text, why, kept in (('{"cairn_profile":2}', "version 2", True), ("{", "JSON", False),
                                ("[]", "cairn_profile", False),
                                ('{"cairn_profile":1}', "endpoint", False)):
            with self.subTest(text):
                self.s3.ask("reset", "")
                put_object(self.s3, PROFILE, text.encode())
                self.start(nodes=0)
                self.assertRegex(self.known("server"), f"^a test now: .*profile.json.*{why}")
                self.assertEqual(self.s3.keys(PROFILE)[PROFILE] == len(text), kept)
                self.world.close()

    def test_a_profile_that_is_wrong_is_put_right(self):  # S21
        self.start(doctor=True)
        self.s3.rules("op=create key=*/data/* nth=1 : status=501/NotImplemented")
        self.put()
        self.assertEqual(self.s3.acted(), 1)
        wait_until(lambda: "store.profile_wrong" in self.log("uploader-0"), 10)
        self.assertIn("Content-MD5", self.log("uploader-0"))
        self.s3.rules("")
        self.world.uploaders[0].stop()
        self.world.uploaders[0] = self.world.make_uploader(0).start()
        wait_until(lambda: self.log("uploader-0").count("store.degraded") == 2, 10)
        self.put("p/run@2")
        self.world.cairn("verify", "p/run@2")
        self.world.audit()

    def test_a_store_that_states_wrong_checksums_is_used_and_named(self):
        self.start("--profile", "moto")
        for name in ("server", "uploader-0"):
            wait_until(lambda name=name: "store.degraded" in self.log(name), 10)
            self.assertIn("checksums that the store states are wrong", self.log(name))
        self.put(mib=20)  # parts
        self.assertNotIn("store.misstates", self.log("uploader-0"))
        self.assertTrue(self.s3.journal(op="part"))
        self.world.cairn("verify", "p/run@1")
        self.world.audit()

    def test_a_store_that_states_wrong_checksums_untested_is_found_by_the_first_upload(self):
        self.start("--profile", "moto", arguments=("--test-store=false",))
        self.put(mib=20)
        self.assertIn("store.misstates", self.log("uploader-0"))
        before = len(self.s3.journal(op="get"))
        self.put("p/run@2", mib=20)  # known now: nothing is read back
        self.assertEqual(self.log("uploader-0").count("store.misstates"), 1)
        data = [line for line in self.s3.journal(op="get")[before:] if "/data/" in line["key"]]
        self.assertEqual(data, [])
        self.world.cairn("verify", "p/run@2")
        self.world.audit()

    def test_what_is_degraded_is_said_at_each_start(self):
        self.start("--profile", "b2")
        for name in ("server", "uploader-0"):
            wait_until(lambda name=name: "store.degraded" in self.log(name), 10)
            self.assertIn("Content-MD5", self.log(name))
        self.world.server.stop()
        self.world.start_server()
        self.assertRegex(self.known("server"), "^profile.json")
        wait_until(lambda: self.log("server").count("store.degraded") == 2, 10)
        self.put()
        self.world.cairn("verify", "p/run@1")
        self.world.audit()

    def test_a_bucket_with_object_lock_takes_all_that_is_saved_in_it(self):
        lock = "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule>" \
               "<DefaultRetention><Mode>GOVERNANCE</Mode><Days>1</Days></DefaultRetention></Rule>" \
               "</ObjectLockConfiguration>"
        for switch in ("when_supported", "when_required"):
            with self.subTest(switch):
                self.open_store()
                self.s3.ask("object-lock", lock)
                env = {**self.s3.env(), "AWS_REQUEST_CHECKSUM_CALCULATION": switch}
                said = run([BIN / "cairn", "doctor", "s3://lab/cairn"], env={**os.environ, **env})
                self.assertNotIn("FAIL", said.stdout)
                self.world = S3World(self.s3, env=env, case=self,
                                     uploader_arguments=["--part-size", "5MiB", "--heartbeat", "200ms"])
                self.put(mib=20)
                self.world.cairn("verify", "p/run@1")
                refused = self.s3.journal(op="put", status=400)
                named = "InvalidRequest" in json.dumps(refused)
                self.assertEqual(named, switch == "when_required", refused)

    def test_parts_are_as_small_as_the_connections_let_them_be(self):
        self.open_store()
        self.world = S3World(self.s3, uploader_arguments=["--store-requests", "4", "--heartbeat", "200ms"],
                             case=self)
        self.put(mib=80)
        sizes = [line["bytes_in"] if "bytes_in" in line else line["length"]
                 for line in self.s3.journal(op="part") if "/data/" in line["key"]]
        self.assertEqual(len(sizes), 4, sizes)
        manifest = self.world.json("show", "p/run@1")
        self.assertEqual(manifest["state"], "committed")


if __name__ == "__main__":
    unittest.main(verbosity=2)
