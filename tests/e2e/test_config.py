# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
"""AWS's variables and files mean to Cairn's programs what they mean to botocore: endpoint, region,
addressing and keys of a request, for files that people write and for seeded random ones. A server in
this process notes where requests arrive, and botocore's own are noted before they are sent.

CAIRN_TEST_SEEDS says how many random cases there are, CAIRN_TEST_SEED which is the first."""
import contextlib
import os
import random
import re
import subprocess
import sys
import unittest
import unittest.mock

import cases
import reports
from world import BIN, HANG_S, wait_until

try:
    import botocore.awsrequest
    import botocore.exceptions
    import botocore.loaders
    import botocore.session
except ImportError:
    print("SKIPPED: botocore is not installed; python3 -m pip install botocore")
    sys.exit(77)

BUCKET = "lab-bucket"
DENIED = b"<Error><Code>AccessDenied</Code></Error>"
SIGNED = re.compile(r"Credential=([^/]+)/\d+/([^/]+)/s3/")
LOADER = botocore.loaders.create_loader()


class Recorder(cases.StandIn):
    """Refuses every request and keeps (host, path style, access key, region)."""

    def __init__(self, case):
        self.seen = []
        super().__init__(self.deny, case)

    def deny(self, request):
        self.seen.append(target(request.headers["Host"], request.path, request.headers["Authorization"]))
        return 403, DENIED


def target(host, path, authorization):
    key, region = SIGNED.search(authorization or "").groups()
    return host, "path" if path.lstrip("/").startswith(BUCKET) else "virtual", key, region


class Case:
    """Two files and some variables. {a}, {b} ... in them are endpoints of this machine."""

    def __init__(self, name, config="", credentials="", **variables):
        self.name, self.config, self.credentials = name, config, credentials
        self.variables = variables


KEYS = "aws_access_key_id = AK{0}\naws_secret_access_key = s{0}\n"
DEFAULT = "[default]\nregion = default-1\nendpoint_url = {default}\n" + KEYS.format("DEFAULT")
OTHER = "[profile other]\nregion = other-1\nendpoint_url = {other}\n" + KEYS.format("OTHER")
ENV_KEYS = {"AWS_ACCESS_KEY_ID": "AKENV", "AWS_SECRET_ACCESS_KEY": "senv"}
CASES = [
    Case("default", DEFAULT + OTHER),
    Case("profile by variable", DEFAULT + OTHER, AWS_PROFILE="other"),
    Case("profile by the other variable", DEFAULT + OTHER, AWS_DEFAULT_PROFILE="other"),
    Case("profile that is nowhere", DEFAULT, AWS_PROFILE="nowhere", **ENV_KEYS),
    Case("sso-session before default",
         "[sso-session x]\nregion = sso-1\nendpoint_url = {wrong}\n" + DEFAULT),
    Case("sso-session after default",
         DEFAULT + "[sso-session x]\nregion = sso-1\nendpoint_url = {wrong}\n"),
    Case("sso-session named default",
         DEFAULT + "[sso-session default]\nregion = sso-1\nendpoint_url = {wrong}\n"),
    Case("foreign services section",
         DEFAULT + "[services x]\ns3 =\n  endpoint_url = {wrong}\nendpoint_url = {wrong}\n"),
    Case("own services section", "[services x]\ns3 =\n  endpoint_url = {s3}\n"
         "dynamodb =\n  endpoint_url = {wrong}\n[services y]\ns3 =\n  endpoint_url = {wrong}\n" +
         DEFAULT + "services = x\n"),
    Case("services section without s3",
         DEFAULT + "services = x\n[services x]\nsts =\n  endpoint_url = {wrong}\n"),
    Case("services section that is nowhere", DEFAULT + "services = x\n"),
    Case("endpoint below s3 of a profile is no endpoint",
         DEFAULT + "s3 =\n  endpoint_url = {wrong}\n  addressing_style = path\n"),
    Case("addressing of a services section is none",
         DEFAULT + "services = x\n[services x]\ns3 =\n  addressing_style = virtual\n"),
    Case("addressing of the profile", DEFAULT + "s3 =\n  addressing_style = virtual\n"),
    Case("nested and indented", "[default]\n  s3 =\n    addressing_style = virtual\n"
         "  region = in-1\n  endpoint_url = {in}\n" + KEYS.format("IN")),
    Case("nested empty value", DEFAULT + "s3 =\n  use_accelerate_endpoint =\n"
         "  addressing_style = virtual\noutput = json\n"),
    Case("comments, blanks and CRLF", "# c\r\n\r\n" + "[default] # it is\r\nregion=c-1\r\n"
         "; c\r\nendpoint_url  =  {c}\r\n\r\ns3 =\r\n  # in\r\n\r\n  addressing_style = virtual\r\n" +
         KEYS.format("C").replace("\n", "\r\n")),
    Case("colons", "[default]\nregion: colon-1\nendpoint_url: {colon}\n" + KEYS.format("COLON")),
    Case("names in capitals", "[default]\nRegion = big-1\nENDPOINT_URL = {big}\n" +
         KEYS.format("BIG")),
    Case("quoted profile", DEFAULT + OTHER.replace("other]", '"two words"]'),
         AWS_PROFILE="two words"),
    Case("section without the word profile", DEFAULT + OTHER.replace("profile ", ""),
         AWS_PROFILE="other", **ENV_KEYS),
    Case("the word profile in the credentials file", DEFAULT, OTHER, AWS_PROFILE="other"),
    Case("default twice", DEFAULT + OTHER.replace("other]", "default]").replace("region", "output")),
    Case("credentials file goes before", DEFAULT, "[default]\nregion = cred-1\n" +
         KEYS.format("CRED")),
    Case("credentials file replaces what is nested", DEFAULT +
         "s3 =\n  addressing_style = virtual\n", "[default]\ns3 =\n  max_queue_size = 3\n"),
    Case("credentials file alone", "", DEFAULT),
    Case("credentials file names the services section",
         "[services x]\ns3 =\n  endpoint_url = {s3}\n" + DEFAULT, "[default]\nservices = x\n"),
    Case("keys of the environment with the profile's place", DEFAULT, **ENV_KEYS),
    Case("variables go before", DEFAULT, AWS_ENDPOINT_URL="{any}", AWS_DEFAULT_REGION="env-1"),
    Case("variable of S3 goes before", DEFAULT, AWS_ENDPOINT_URL="{any}",
         AWS_ENDPOINT_URL_S3="{s3}"),
    Case("configured endpoints are ignored by profile, not where Cairn's setting names one",
         DEFAULT + "ignore_configured_endpoint_urls = true\n", CAIRN_ENDPOINT="{mine}"),
]


def draw(seed):
    """Files as nobody would write them, though botocore would read most of them."""
    rng = random.Random(seed)
    names = ["default", "a", "b", "two words"]
    places = iter(f"{{p{number}}}" for number in range(100))

    def option(name, value, indent=""):
        return f"{indent}{name}{rng.choice([' = ', '=', ' =', ': ' if not indent else ' = '])}{value}"

    def noise(lines):
        for _ in range(rng.randrange(3)):
            lines.insert(rng.randrange(len(lines) + 1),
                         rng.choice(["", "# a comment", "; endpoint_url = x", "  # region = x-1"]))
        return lines

    def nested(name, indent):
        pairs = [("addressing_style", rng.choice(["path", "virtual", "auto"])),
                 ("endpoint_url", next(places)), ("max_concurrent_requests", "3")]
        inner = indent + rng.choice(["  ", "\t", "    "])
        lines = [f"{inner}{key} = {value}" for key, value in rng.sample(pairs, rng.randrange(1, 4))]
        return [f"{indent}{name} ="] + noise(lines)

    def profile(name, tag):
        indent = rng.choice(["", "", "", "  "])
        blocks = [[option("endpoint_url", next(places), indent)],
                  [option("region", f"r{rng.randrange(9)}-1", indent)],
                  [option("aws_access_key_id", f"AK{tag}", indent),
                   option("aws_secret_access_key", f"s{tag}", indent)]]
        blocks = [block for block in blocks if rng.random() < 0.85]
        if rng.random() < 0.3:
            blocks.append([option("services", rng.choice(["x", "y", "nowhere"]), indent)])
        if rng.random() < 0.4:
            blocks.append(nested("s3", indent))
        if rng.random() < 0.1:
            blocks.append([option("ignore_configured_endpoint_urls", "true", indent)])
        rng.shuffle(blocks)
        return noise([line for block in blocks for line in block])

    def section(head, lines):
        return "\n".join([f"[{head}]", *lines]) + "\n"

    def config_head(name):
        if name == "default" and rng.random() < 0.7:
            return name
        return "profile " + (f'"{name}"' if " " in name or rng.random() < 0.2 else name)

    config = [section(config_head(name), profile(name, f"C{number}"))
              for number, name in enumerate(names) if rng.random() < 0.85]
    config += [section(f"services {name}", nested("s3", "") + nested("sts", "")) for name in "xy" if rng.random() < 0.9]
    config += [section(head, profile(head, "WRONG"))
               for head in ("sso-session a", "sso-session x", "a", "preview") if rng.random() < 0.4]
    credentials = [section(name, profile(name, f"S{number}"))
                   for number, name in enumerate(names) if rng.random() < 0.4]
    rng.shuffle(config)
    variables = {"AWS_PROFILE": rng.choice(names), "AWS_ENDPOINT_URL": next(places),
                 "AWS_ENDPOINT_URL_S3": next(places), "AWS_DEFAULT_REGION": "env-1"}
    variables = {name: value for name, value in variables.items()
                 if rng.random() < (0.7 if name == "AWS_PROFILE" else 0.15)}
    if rng.random() < 0.2:
        variables.update(ENV_KEYS)
    return Case(f"seed {seed}", "".join(config), "".join(credentials), **variables)


class Config(cases.Case):
    @classmethod
    def setUpClass(cls):
        cls.addClassCleanup(reports.check)
        cls.server = Recorder(cls)
        cls.port = cls.server.server_port

    def fill(self, text):
        return re.sub(r"\{(\w+)\}", rf"http://\1.localhost:{self.port}", text)

    def environment(self, case):
        for name, text in (("config", case.config), ("credentials", case.credentials)):
            (self.folder / name).write_bytes(self.fill(text).encode())
            (self.folder / name).chmod(0o600)
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(("AWS_", "CAIRN_")) or name.startswith("CAIRN_TEST_")}
        return {**kept, "HOME": str(self.folder), "AWS_CONFIG_FILE": str(self.folder / "config"),
                "AWS_SHARED_CREDENTIALS_FILE": str(self.folder / "credentials"),
                "AWS_EC2_METADATA_DISABLED": "true", "CAIRN_PROGRESS": "none",
                **{name: self.fill(value) for name, value in case.variables.items()}}

    def botocores(self, env):
        """Where botocore's request goes; None: it refuses the files or finds no keys."""
        found = []

        def note(request, **_):
            host = re.match(r"https?://([^/]+)", request.url).group(1)
            path = request.url.split(host, 1)[1]
            found.append(target(host, path, str(request.headers["Authorization"])))
            return botocore.awsrequest.AWSResponse(request.url, 403, {}, None)

        # As botocore.session does for its own: with what was read of the service models before.
        with unittest.mock.patch.dict(os.environ, env, clear=True):
            try:
                session = botocore.session.Session()
                session.register_component("data_loader", LOADER)
                client = session.create_client("s3", endpoint_url=env.get("CAIRN_ENDPOINT"))
                client.meta.events.register("before-send.s3", note)
                with contextlib.suppress(botocore.exceptions.ClientError, AttributeError):
                    client.head_bucket(Bucket=BUCKET)
            except (botocore.exceptions.BotoCoreError, ValueError):
                return None
        return found[0] if found else None

    def command(self, env):
        done = subprocess.run(
            [BIN / "cairn", "get", "a/run@latest", "--store", f"s3://{BUCKET}/p", "--timeout", f"{HANG_S}s",
             "-d", self.folder / "out"], env=env, capture_output=True, text=True, timeout=HANG_S,
            check=False)
        self.assertNotIn(done.returncode, (0, 5, 8), done.stderr)
        return done.stderr

    def uploader(self, env):
        """Until its first request, or until it ends by itself."""
        with open(self.folder / "log", "wb") as log, subprocess.Popen(
                [BIN / "cairn-uploader", "--node", f"n-{os.getpid()}", "--server",
                 "http://127.0.0.1:1", "--store", f"s3://{BUCKET}/p", "--socket",
                 self.folder / "sock", "--state-dir", self.folder / "state",
                 "--memory-budget", "64MiB"],
                env=env, stdout=log, stderr=log) as process:
            try:
                wait_until(lambda: self.server.seen or process.poll() is not None)
            finally:
                process.kill()
        return (self.folder / "log").read_text(errors="replace")

    def compare(self, case, *programs):
        """True: botocore came to a place on this machine, and the programs, too."""
        env = self.environment(case)
        wanted = self.botocores(env)
        if wanted and not wanted[0].endswith(f"localhost:{self.port}"):
            return False  # AWS itself: tests/s3/test_s3_config.c
        for program in programs:
            self.server.seen.clear()
            said = program(env)
            got = self.server.seen[0] if self.server.seen else None
            if got != wanted:
                self.fail(f"{case.name}, {program.__name__}: {got} where botocore has {wanted}\n"
                          f"{said}\n{case.variables}\n--- config\n{case.config}\n--- credentials\n"
                          f"{case.credentials}")
        return wanted is not None

    def test_files_and_variables_mean_what_they_mean_to_botocore(self):
        for case in CASES:
            with self.subTest(case.name):
                self.compare(case, self.command, self.uploader)

    def test_random_files_mean_what_they_mean_to_botocore(self):
        first = int(os.environ.get("CAIRN_TEST_SEED", "1"))
        count = int(os.environ.get("CAIRN_TEST_SEEDS", "100"))
        compared = sum(self.compare(draw(seed), self.command) for seed in range(first, first + count))
        self.assertGreater(compared, count // 3)


if __name__ == "__main__":
    unittest.main()
