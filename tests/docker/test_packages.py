# SPDX-License-Identifier: Apache-2.0
# ctest: labels=docker,full seconds=400 thirds=6
"""Debian packages: made twice with the same bytes, judged by lintian, installed in an empty root, upgraded and
purged there; and the units, with systemd as process 1 of a container: packages, units, a save."""
import functools
import hashlib
import pathlib
import shutil
import tempfile

import engine
from engine import blocks, docker, run, wait_until

SERVER_EXPOSURE_MAX = 30  # tenths, of systemd-analyze security
TLS = "export CAIRN_URL=https://cairn.example:7420 CAIRN_CA_FILE=/etc/cairn/secrets/ca.pem"
made = None
NAMES = ("libcairn1", "libcairn-dev", "cairn", "cairn-server", "cairn-uploader", "cairn-cuda")


def pack(folder, release):
    run("cpack", "-B", folder, "-D", f"CPACK_DEBIAN_PACKAGE_RELEASE={release}", cwd=engine.ROOT / "build/packages",
        env={**engine.os.environ, "SOURCE_DATE_EPOCH": "1000000000"})
    return {path.name.split("_")[0]: path for path in pathlib.Path(folder).glob("*.deb")}


def build_before():
    """The packages of the commit before this one; where there is no history of git, those of this one."""
    before = made / "before"
    if run("git", "-C", engine.ROOT, "cat-file", "-e", "HEAD~1^{commit}", check=False).returncode:
        print("no commit before this one is here: upgraded from this one's own packages")
        shutil.copytree(made / "1", before)
        return
    with tempfile.TemporaryDirectory() as folder:
        run("sh", "-c", 'git -C "$1" archive HEAD~1 | tar -x -C "$2"', "sh", engine.ROOT, folder)
        engine.shown(pathlib.Path(folder) / "packaging/build", before)


def setUpModule():
    global made
    engine.needed()
    engine.make_base()
    made = pathlib.Path(tempfile.mkdtemp(prefix="cairn-packages-"))
    made.chmod(0o755)  # who is not root unpacks the tar from it
    engine.shown(engine.ROOT / "packaging/build", made / "first")
    for release in ("1", "2"):
        pack(made / release, release)
    build_before()


def tearDownModule():
    if made:
        shutil.rmtree(made)


def debs(release, *names):
    return [f"/debs/{release}/{path.name}" for name in names for path in sorted((made / release).glob(f"{name}_*.deb"))]


class Container:
    """A root of Debian alone, in which commands are run."""

    def __init__(self, image=engine.BASE, booted=False, network="host"):
        self.id = engine.boot(image) if booted else docker(
            "run", "-d", "-v", f"{made}:/debs:ro", "--network", network, image, "sleep", "infinity").stdout.strip()

    def run(self, text, check=True):
        return docker("exec", self.id, "bash", "-c", text, check=check)

    def install(self, *files):
        return self.run("export DEBIAN_FRONTEND=noninteractive; apt-get update -qq && apt-get install -y -qq "
                        f"--no-install-recommends {' '.join(files)} 2>&1")

    def remove(self):
        docker("rm", "-f", "-v", self.id, check=False)


@functools.cache
def with_daemons():
    """An image of a root in which both daemons and systemd are installed."""
    root = Container()
    try:
        root.install("systemd", "systemd-sysv", "dbus", "curl", "openssl",
                     *debs("1", "libcairn1", "cairn", "cairn-server", "cairn-uploader"))
        image = docker("commit", root.id, "cairn-test-systemd").stdout.strip()
    finally:
        root.remove()
    engine.unittest.addModuleCleanup(docker, "image", "rm", "-f", image, check=False)
    return image


class Files(engine.Case):
    def test_there_is_one_of_each_and_the_same_build_is_packed_to_the_same_bytes(self):
        again = pack(made / "again", "1")
        self.assertEqual(set(again), set(NAMES))
        for path in again.values():
            other = made / "1" / path.name
            self.assertEqual(hashlib.sha256(path.read_bytes()).digest(), hashlib.sha256(other.read_bytes()).digest(), path.name)

    def test_lintian_finds_no_error(self):
        if not shutil.which("lintian"):
            self.skipTest("there is no lintian")
        done = run("lintian", "--fail-on", "error", "--tag-display-limit", "0", *sorted((made / "first").glob("*.deb")), check=False)
        print(done.stdout)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_what_is_needed_is_named_and_the_daemons_files_of_settings_are_kept(self):
        def field(name, what):
            return run("dpkg-deb", "-f", *(made / "1").glob(f"{name}_*.deb"), what).stdout.strip()
        self.assertIn("libmicrohttpd12", field("cairn-server", "Depends"))
        self.assertIn("libjansson4", field("libcairn1", "Depends"))
        self.assertNotIn("libmicrohttpd", field("cairn-uploader", "Depends"))
        self.assertIn("/etc/cairn/server.conf", run("dpkg-deb", "-I", *(made / "1").glob("cairn-server_*.deb"), "conffiles").stdout)

    def test_the_list_of_parts_names_each_package_and_what_it_needs(self):
        listed = engine.json.loads(next((made / "first").glob("*.spdx.json")).read_text())
        self.assertEqual(listed["spdxVersion"], "SPDX-2.3")
        names = {package["name"] for package in listed["packages"]}
        self.assertLessEqual({*NAMES, "cairn-tar", "libcurl4", "libmicrohttpd12", "libpq5"}, names)
        known = {package["SPDXID"] for package in listed["packages"]} | {"SPDXRef-DOCUMENT"}
        for relation in listed["relationships"]:
            self.assertIn(relation["relatedSpdxElement"], known)


class EmptyRoot(engine.Case):
    def test_packages_are_installed_upgraded_from_the_commit_before_and_purged(self):
        root = Container()
        self.addCleanup(root.remove)
        root.install(*debs("before", *NAMES))
        self.assertIn("uid=7420(cairn) gid=7420(cairn)", root.run("id cairn").stdout)
        self.assertEqual(root.run("stat -c '%U %a' /var/lib/cairn /etc/cairn/secrets").stdout, "cairn 750\ncairn 750\n")
        self.assertIn("cairn 0.", root.run("cairn version && cairn-server --version && cairn-uploader --version").stdout)
        root.run("[ -s /usr/share/bash-completion/completions/cairn ] && [ -s /lib/systemd/system/cairn-server.service ]")
        root.run("echo '#mine' >> /etc/cairn/server.conf; touch /var/lib/cairn/server/kept")
        said = root.install(*debs("2", *NAMES)).stdout
        self.assertIn("0.2.0-2", root.run("dpkg-query -W cairn-server").stdout, said)
        root.run("grep -q '#mine' /etc/cairn/server.conf && [ -e /var/lib/cairn/server/kept ]")
        root.run("apt-get purge -y -qq " + " ".join(NAMES) + " 2>&1")
        left = root.run("ls -d /var/lib/cairn /etc/cairn /usr/bin/cairn* /usr/lib/*/libcairn* /lib/systemd/system/cairn* "
                        "2>/dev/null; true").stdout
        self.assertEqual(left, "")


class WithoutRoot(engine.Case):
    """The tar, where nothing of Cairn's needs is installed and nobody is root."""

    def test_the_tar_unpacked_in_a_home_saves_and_reads_back_without_the_system_s_libraries(self):
        tar = next((made / "first").glob("cairn-*.tar.gz")).name
        unpack = blocks("Packages")[2].replace("cairn-*.tar.gz", f"/debs/first/{tar}", 1).replace(
            "cairn up ~/checkpoints", "cairn up ~/checkpoints >~/up.log 2>&1 &")
        words = ["--network", "none", "-u", "1000:1000", "--cap-drop", "ALL", "--tmpfs", "/srv/trainer:uid=1000,exec",
                 "-e", "HOME=/srv/trainer", "-v", f"{made}:/debs:ro"]
        done = docker("run", "--rm", *words, engine.BASE, "bash", "-ec", unpack + """
            until cairn health --ready >/dev/null 2>&1; do kill -0 $! || { cat ~/up.log; exit 1; }; sleep 0.2; done
            eval "$(grep '^ *export' ~/up.log)"
            mkdir ~/model && head -c 100000 /dev/urandom >~/model/w
            cairn put ~/model llm/7b@1 && cairn get llm/7b@1 -d ~/again && cmp ~/model/w ~/again/w
            for program in ~/cairn-*/bin/*; do ldd "$program"; done | grep -E 'not found|=> /(usr/)?lib/' |
                grep -v -E 'lib(c|m|resolv|dl|pthread|rt)\\.so|ld-linux' || echo its own
            """, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("its own", done.stdout)


class Units(engine.Case):
    """What systemd says of them, and what they start, where it is not process 1."""

    @classmethod
    def setUpClass(cls):
        cls.root = Container(with_daemons(), network="none")
        cls.addClassCleanup(cls.root.remove)

    def test_a1_the_server_s_exposure_is_small_and_both_are_well_formed(self):
        for name in ("cairn-server", "cairn-uploader"):
            print(self.root.run(f"systemd-analyze security --offline=yes --no-pager {name}.service | tail -1").stdout)
        self.root.run(f"systemd-analyze security --offline=yes --threshold={SERVER_EXPOSURE_MAX} cairn-server.service >/dev/null")
        said = self.root.run("systemd-analyze verify --man=no cairn-server.service cairn-uploader.service 2>&1; true").stdout
        self.assertNotRegex(said, r"cairn-\w+\.service:\d+:")

    def test_a2_what_the_units_start_saves(self):
        self.root.run("""
            install -d -o cairn -g cairn -m 0750 /srv/store /run/cairn /var/lib/cairn/server /var/lib/cairn/uploader
            printf 'store = /srv/store\\nport_file = /tmp/port\\n' > /etc/cairn/server.conf
            printf 'store = /srv/store\\nmemory_budget = 128MiB\\nready_file = /tmp/ready\\n' > /etc/cairn/uploader.conf
            for unit in server uploader; do
                file=/lib/systemd/system/cairn-$unit.service
                read -r -a set < <(sed -n 's/^Environment=//p' $file)
                env "${set[@]}" setpriv --reuid cairn --regid cairn --clear-groups --no-new-privs \
                    $(sed -n 's/^ExecStart=//p' $file) > /tmp/$unit.log 2>&1 &
            done""")
        wait_until(lambda: self.root.run("cairn health --ready && cairn health --ready uploader", check=False).returncode == 0)
        self.root.run("mkdir /srv/model && head -c 100000 /dev/urandom > /srv/model/w && cairn put /srv/model llm/7b@1")
        self.root.run("cd /tmp && setpriv --reuid cairn --regid cairn --clear-groups cairn catalog backup /tmp/catalog.db && "
                      "[ -s /var/lib/cairn/server/catalog.db ] && [ -s /tmp/catalog.db ]")
        self.assertIn("llm/7b", self.root.run("cairn ls && curl -sf http://127.0.0.1:7420/v1/runs/llm/7b/checkpoints/latest").stdout)


class Booted(engine.Case):
    """systemd as process 1: packages, units, a save."""

    @classmethod
    def setUpClass(cls):
        cls.root = Container(with_daemons(), booted=True)
        cls.addClassCleanup(cls.root.remove)

    def test_a2_what_docs_deploy_says_leads_from_packages_to_a_site_with_tokens_and_tls_and_a_save(self):
        self.root.run("echo 127.0.0.1 cairn.example >>/etc/hosts")
        done = self.root.run("set -e\n" + "\n".join(blocks("From nothing to tokens and TLS")), check=False)
        units = self.root.run("journalctl -u 'cairn-*' --no-pager | tail -30").stdout
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr + units)
        self.assertIn('"state":"committed"', done.stdout.replace(" ", ""))
        asked = self.root.run("curl -s -o /dev/null -w '%{http_code}' --cacert /etc/cairn/secrets/ca.pem "
                              "https://cairn.example:7420/v1/runs")
        self.assertEqual(asked.stdout, "401")
        for unit in ("cairn-server", "cairn-uploader"):
            self.assertEqual(self.root.run(f"ps -o user= -C {unit} || cat /proc/$(pidof {unit})/status | grep Uid").stdout.split()[-1]
                             in ("cairn", "7420"), True)

    def test_a3_reload_stop_and_a_loop_that_stands_still(self):
        self.root.run("systemctl reload cairn-server && systemctl restart cairn-uploader && systemctl stop cairn-server")
        self.assertEqual(self.root.run("systemctl show -p Result --value cairn-server").stdout.strip(), "success")
        # The watchdog: a daemon that is stopped in its tracks is started anew.
        self.root.run("mkdir -p /run/systemd/system/cairn-server.service.d && printf '[Service]\\nWatchdogSec=3\\n' > "
                      "/run/systemd/system/cairn-server.service.d/fast.conf && systemctl daemon-reload && systemctl start cairn-server")
        before = self.root.run("systemctl show -p MainPID --value cairn-server").stdout.strip()
        self.root.run(f"kill -STOP {before}")
        wait_until(lambda: self.root.run("systemctl show -p MainPID --value cairn-server").stdout.strip() not in ("0", before))
        wait_until(lambda: self.root.run(f"{TLS}; cairn health", check=False).returncode == 0)

    def test_a4_a_secret_that_root_alone_may_read_comes_by_load_credential(self):
        self.root.run("""set -e
            install -d -m 0700 /srv/vault && cd /etc/cairn && cairn token generate --out /srv/vault/admin.token
            mkdir -p /etc/systemd/system/cairn-server.service.d
            unit=/lib/systemd/system/cairn-server.service
            { echo '[Service]'; sed -n -E 's/^#   ((LoadCredential|Environment)=)/\\1/p' $unit; } |
                sed 's,/run/secrets/,/srv/vault/,' >/etc/systemd/system/cairn-server.service.d/secret.conf
            sed -i '/^admin_token_file/d' server.conf
            systemctl daemon-reload && systemctl restart cairn-server""")
        said = self.root.run(f"{TLS}; cairn token whoami --token-file /srv/vault/admin.token")
        self.assertIn("admin", said.stdout)
        self.assertEqual(self.root.run("stat -c %a-%U /srv/vault/admin.token").stdout.strip(), "600-root")


if __name__ == "__main__":
    engine.main()
