# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
# ctest: as=names_long with="Slow" labels=full
"""S28: an endpoint is a name with many addresses. They are all used, they change, some are dead,
and the name itself may fail for a while. Real lookups by the system's resolver, in a network of
our own (dns_server.py); skipped where none can be made. `test_names.py Slow` has what takes a
minute."""
import collections
import os
import subprocess
import time
import unittest

import cases
import dns_server
from s3world import ACCESS, BIN, HANG_S, SECRET, S3Fault, S3World, wait_until

MIB = 1 << 20
PART = 5 * MIB
NAME, GONE = "s3.cairn.test", "gone.cairn.test"  # the second is never answered for
LINK_LOCAL = "169.254.169.254"
FRONTS = [f"127.0.0.{number}" for number in range(11, 19)]


class NamedS3(S3Fault):
    """s3fault behind NAME; 127.0.0.1 is for the test alone."""

    def __init__(self, folder, addresses):
        doors = [word for address in ["127.0.0.1", *addresses] for word in ("--address", address)]
        super().__init__(folder, doors)

    def env(self, name=NAME):
        return {**super().env(), "CAIRN_ALLOW_PLAIN_HTTP": "true", "AWS_ENDPOINT_URL": f"http://{name}:{self.port}"}

    def leave(self, address):
        self.ask("leave", address)


def end(process):
    process.kill()
    process.communicate()


class Case(unittest.TestCase):
    """A name, the addresses behind it, and the whole chain that uses it."""

    @classmethod
    def setUpClass(cls):
        cls.folder = cases.folder(cls)
        cls.dns = dns_server.DnsServer(NAME)
        cases.at_the_end(cls, cls.dns.stop)
        cls.bytes = os.urandom(PART)

    def start(self, addresses, arguments=()):
        self.s3 = NamedS3(self.folder, addresses)
        self.addCleanup(self.s3.stop)
        self.dns.says(addresses)
        self.world = S3World(
            self.s3, server_arguments=["--sweep-interval", "200ms", *arguments],
            uploader_arguments=["--part-size", "5MiB", "--heartbeat", "200ms", *arguments], case=self)

    def source(self, parts):
        """So many parts, each another one."""
        path = self.world.root / f"model-{parts}.bin"
        with open(path, "wb") as file:
            for number in range(parts):
                file.write(number.to_bytes(8, "big") + self.bytes[8:])
        return path

    def put(self, parts, ref="n/run@1"):
        putting = self.world.begin("put", self.source(parts), ref)
        self.addCleanup(end, putting)
        return putting

    def finish(self, putting, ref="n/run@1"):
        """It ends well, and what is stored is what was put."""
        self.world.ended(putting)
        self.s3.rules("")
        self.world.cairn("verify", ref, "--store", self.world.store)
        self.world.audit()

    def data(self, op, beyond=0, **wanted):
        """Requests for bytes of shards, in the order of their ends."""
        return [line for line in self.s3.journal(op=op, **wanted)[beyond:] if "/data/" in line["key"]]

    def parts_at(self, address):
        return len(self.data("part", local=address, status=200))

    def change(self, dying):
        """The name is given to another address while a save is under way, which goes on there."""
        old, new = FRONTS[:2]
        self.dns.says([old])
        self.s3.rules("op=part : delay=100")
        putting = self.put(24)
        wait_until(lambda: self.parts_at(old) >= 4 or putting.poll() is not None, 20)
        self.dns.says([new])
        self.s3.leave(old)
        self.s3.rules(dying.replace("OLD", old))
        wait_until(lambda: self.parts_at(new) or putting.poll() is not None)
        self.assertIsNone(putting.poll(), "it ended before the change was seen")
        self.finish(putting)
        self.assertGreater(self.parts_at(old), 0)


class Names(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.lost = {}
        cls.begin_with_no_name()
        for process in cls.lost.values():
            cases.at_the_end(cls, end, process)

    @classmethod
    def begin_with_no_name(cls):
        """They take half a minute to give up, and do it beside the other tests."""
        env = {**os.environ, "AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET,
               "AWS_EC2_METADATA_DISABLED": "true", "CAIRN_ALLOW_PLAIN_HTTP": "true",
               "AWS_ENDPOINT_URL": f"http://{GONE}"}
        commands = {"doctor": ["cairn", "doctor", "s3://lab/gone"],
                    "server": ["cairn-server", "--listen", "127.0.0.1:0", "--store",
                               "s3://lab/gone", "--data-dir", cls.folder / "gone"]}
        for name, (program, *arguments) in commands.items():
            cls.lost[name] = subprocess.Popen(
                [BIN / program, *arguments], env=env, text=True, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT)

    def check_spread(self, lines, addresses, share):
        """All addresses were connected to, and none by more than its share."""
        connections = {line["connection"]: line["local"] for line in lines}
        count = collections.Counter(connections.values())
        self.assertGreaterEqual(len(connections), 12, "too few to say anything")
        self.assertEqual(set(count), set(addresses), f"connections by address: {count}")
        self.assertLessEqual(max(count.values()), share * len(connections), count)

    # ---- many addresses ----

    def test_s28_connections_go_to_all_addresses_of_the_name(self):
        fronts = FRONTS[:4]
        self.start(FRONTS)
        self.dns.says(fronts)  # always in this order
        self.s3.rules("op=part|get : close")
        self.finish(self.put(48))
        self.check_spread(self.data("part"), fronts, 0.6)
        self.s3.rules("op=part|get : close")
        before = len(self.s3.journal(op="get"))
        self.world.cairn("get", "n/run@1", "--store", self.world.store, "-d", self.world.root / "out")
        self.check_spread(self.data("get", before), fronts, 0.7)
        # One of many in each answer: only who asks for each connection sees them all.
        before = len(self.s3.journal(op="part"))
        self.dns.says(FRONTS, each=1)
        self.s3.rules("op=part : close")
        self.finish(self.put(24, "n/run@2"), "n/run@2")
        self.check_spread(self.data("part", before), FRONTS, 0.3)

    def test_s28_dead_addresses_among_living_ones(self):
        living, refusing, silent = FRONTS[:2], FRONTS[2], FRONTS[3]
        self.start(living, ["--store-connect-timeout", "1s"])
        silence = dns_server.Silence(silent, self.s3.port)
        self.addCleanup(silence.stop)
        self.dns.says([silent, refusing, *living])
        self.s3.rules("op=part : close")
        before = dns_server.calls_without_answer()
        self.finish(self.put(12))
        self.assertGreater(dns_server.calls_without_answer(), before, "it was never tried")

    def test_g02_a_link_local_address_is_passed_over_and_refused_alone(self):
        """Whoever answers for the name must not lead us to the keys of this machine."""
        self.start(FRONTS[:1])
        self.dns.says([LINK_LOCAL, FRONTS[0]])
        self.s3.rules("op=part : close")
        self.finish(self.put(6))
        self.dns.says([LINK_LOCAL])
        done = subprocess.run(
            [BIN / "cairn", "doctor", self.world.store], text=True, capture_output=True,
            env={**os.environ, **self.world.env}, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("link-local", done.stdout)
        self.assertNotIn("waiting for", done.stderr)  # it is no outage

    # ---- a name that changes ----

    def test_s28_a_name_that_moves_while_its_old_address_refuses(self):
        self.start(FRONTS[:2])
        self.change("op=* at=OLD : req-rst@50%")

    def test_s28_a_name_that_moves_while_its_old_address_falls_silent(self):
        self.start(FRONTS[:2], ["--store-stall-timeout", "1s", "--store-connect-timeout", "1s"])
        self.change("op=part|put at=OLD : req-stall@50%\nop=* at=OLD : stall@0")

    # ---- a name that fails ----

    def fail_for(self, failures, parts, rules):
        """A save goes on over these failures, one after the other: each for so many seconds at
        least, and until somebody has met it."""
        self.start(FRONTS[:2])
        self.s3.rules(rules)
        putting = self.put(parts)
        wait_until(lambda: len(self.data("part")) >= 4 or putting.poll() is not None, 20)
        for failure, seconds in failures:
            began = time.monotonic()
            self.dns.says(failure)
            time.sleep(seconds)  # pause of a stand-in: names fail for so long
            wait_until(lambda: any(line[1] == failure for line in self.dns.since(began)) or
                       putting.poll() is not None, 10)
        self.dns.says(FRONTS[:2])
        self.s3.rules("")
        self.finish(putting)

    def test_s28_a_name_that_fails_for_a_while(self):
        self.fail_for([("silence", 1), ("nxdomain", 1), ("servfail", 5)], 24, "op=part : delay=50, close\nop=* : close")

    def test_s28_a_name_that_fails_while_kept_connections_go_on(self):
        self.fail_for([("servfail", 3)], 60, "op=part every=5 : delay=300, close\nop=part : delay=300")

    def test_s28_the_name_that_never_exists_is_said_with_what_to_do(self):
        for name, process in self.lost.items():
            with self.subTest(name):
                said, _ = process.communicate(timeout=HANG_S)
                self.assertNotEqual(process.returncode, 0)
                self.assertIn(f"Could not resolve host: {GONE}", said)
                if name == "doctor":
                    self.assertIn("check endpoint", said)


class Slow(Case):
    """With the time-outs that nobody changed."""

    def test_s28_silence_with_the_usual_time_outs(self):
        self.start(FRONTS[:2])
        self.change("op=part|put at=OLD : req-stall@50%\nop=* at=OLD : stall@0")


if __name__ == "__main__":
    dns_server.enter()
    unittest.main(verbosity=2, defaultTest="Names")
