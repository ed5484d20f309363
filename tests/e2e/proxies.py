# SPDX-License-Identifier: Apache-2.0
"""The proxies of docs/proxies.md, each with the configuration that stands there: started in a folder of its own, on
loopback, in the foreground, and never one that is found running."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import urllib.request

import ports
from world import BIN, HANG_S, wait_until

PAGE = pathlib.Path(os.environ.get("CAIRN_SOURCE_DIR", pathlib.Path(__file__).parents[2])) / "docs/proxies.md"
MODULES = pathlib.Path("/usr/lib/apache2/modules")
NGINX = """daemon off; user root; worker_processes 1; pid {folder}/pid; error_log {folder}/log;
events {{ worker_connections 1024; }}
http {{ access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/f;
uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s; {more}
{block}
}}"""
APACHE = """ServerName localhost
Listen 127.0.0.1:{port}
PidFile {folder}/pid
DefaultRuntimeDir {folder}
Mutex file:{folder}
ErrorLog {folder}/log
User {user}
Group nogroup
{modules}
{more}
{block}
"""
APACHE_MODULES = ("mpm_event", "authz_core", "authn_core", "filter", "deflate", "headers", "slotmem_shm", "proxy",
                  "proxy_http", "proxy_balancer", "proxy_hcheck", "lbmethod_byrequests")  # Debian's has watchdog built in


# So that it ends each call that waits for longer than a second.
CUTS = {"nginx": [("proxy_read_timeout 75s", "proxy_read_timeout 1s")],
        "haproxy": [("timeout server 75s", "timeout server 1s")],
        "apache": [("ProxyTimeout 75", "ProxyTimeout 1")],
        "caddy": [("response_header_timeout 75s", "response_header_timeout 1s")],
        "varnish": [(".first_byte_timeout = 75s", ".first_byte_timeout = 1s")],
        "envoy": [("idle_timeout: 75s", "idle_timeout: 1s")],
        "traefik": [("http:\n", "http:\n  serversTransports: {short: {forwardingTimeouts: {responseHeaderTimeout: 1s}}}\n"),
                    ("loadBalancer:\n", "loadBalancer:\n        serversTransport: short\n")]}


def block_of(name):
    """What docs/proxies.md says is to be written into the configuration of that program."""
    found = re.search(rf"^```{name}\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    if not found:
        raise AssertionError(f"{PAGE} has no block ```{name}")
    return found.group(1)


class Callers:
    """Of a test: commands that go through a proxy and run beside it."""

    def started(self, proxy, *words):
        one = subprocess.Popen([str(BIN / "cairn"), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env={**os.environ, "CAIRN_URL": proxy.url, "CAIRN_PROGRESS": "none"})
        self.addCleanup(self.drop, one)
        return one

    @staticmethod
    def drop(process):
        process.kill()
        process.communicate()

    def ended(self, process, status=0):
        out, said = process.communicate(timeout=HANG_S)
        self.assertEqual(process.returncode, status, f"{process.args}: {out}\n{said}")
        return out, said


class Proxy:
    """One of them before servers at these ports. changes: pairs of texts, to differ from the page; more: further lines where a
    program has a place for what holds for all."""

    def __init__(self, name, behind, changes=(), more="", port=None):
        self.name, self.port = name, port or ports.free()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="cairn-proxy-"))
        self.url = f"http://127.0.0.1:{self.port}"
        block = block_of(name)
        for one, other in changes:
            if one not in block:
                raise AssertionError(f"{name}: {one!r} is not in its block")
            block = block.replace(one, other)
        self.write, self.command = getattr(self, f"{name}_write"), getattr(self, f"{name}_command")
        self.write(self.with_ports(block, behind), more)
        self.process = None

    def with_ports(self, block, behind):
        for number, port in enumerate((behind[0], behind[-1]), 1):
            block = block.replace(f"10.0.0.{number}:7420", f"127.0.0.1:{port}")
            block = block.replace(f"address: 10.0.0.{number}, port_value: 7420", f"address: 127.0.0.1, port_value: {port}")
            block = block.replace(f'"10.0.0.{number}"; .port = "7420"', f'"127.0.0.1"; .port = "{port}"')
        return block

    def start(self):
        with open(self.folder / "output", "ab") as output:
            self.process = subprocess.Popen([str(word) for word in self.command()], stdout=output, stderr=output, cwd=self.folder,
                                            env={**os.environ, "HOME": str(self.folder), "XDG_DATA_HOME": str(self.folder)})
        try:
            wait_until(self.answers)
        except AssertionError as error:
            raise AssertionError(f"{self.name} did not come up: {self.said()}") from error
        return self

    def answers(self):
        if self.process.poll() is not None:
            raise AssertionError(f"{self.name} ended: {self.said()}")
        try:
            with urllib.request.urlopen(f"{self.url}/livez", timeout=HANG_S) as reply:
                return reply.status == 200
        except OSError:
            return False

    def said(self):
        return "\n".join(path.read_text(errors="replace")[-3000:] for path in (self.folder / "output", self.folder / "log")
                         if path.exists())

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(HANG_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    # ---- each of them ----

    def nginx_write(self, block, more):
        block = block.replace("listen 8080;", f"listen 127.0.0.1:{self.port};")
        (self.folder / "conf").write_text(NGINX.format(folder=self.folder, block=block, more=more))

    def nginx_command(self):
        return ["nginx", "-p", self.folder, "-c", self.folder / "conf", "-e", self.folder / "log"]

    def haproxy_write(self, block, more):
        (self.folder / "conf").write_text(more + block.replace("bind :8080", f"bind 127.0.0.1:{self.port}"))

    def haproxy_command(self):
        return ["haproxy", "-db", "-f", self.folder / "conf"]

    def apache_write(self, block, more):
        modules = "\n".join(f"LoadModule {one}_module {MODULES}/mod_{one}.so" for one in APACHE_MODULES)
        (self.folder / "conf").write_text(APACHE.format(
            folder=self.folder, port=self.port, modules=modules, more=more, user="nobody",
            block=block.replace("*:8080", f"127.0.0.1:{self.port}")))
        self.folder.chmod(0o755)

    def apache_command(self):
        return ["apache2", "-d", self.folder, "-f", self.folder / "conf", "-DFOREGROUND"]

    def caddy_write(self, block, more):
        block = block.replace(":8080 {", f"http://127.0.0.1:{self.port} {{")
        (self.folder / "conf").write_text("{\n  admin off\n  auto_https off\n" + more + "}\n" + block)

    def caddy_command(self):
        return ["caddy", "run", "--adapter", "caddyfile", "--config", self.folder / "conf"]

    def envoy_write(self, block, _):
        block = block.replace("address: 0.0.0.0, port_value: 8080", f"address: 127.0.0.1, port_value: {self.port}")
        (self.folder / "conf.yaml").write_text(block)

    def envoy_command(self):
        return [program("envoy"), "-c", self.folder / "conf.yaml", "--use-dynamic-base-id", "--concurrency", "2", "--log-level", "warning"]

    def traefik_write(self, block, _):
        (self.folder / "conf.yml").write_text(block)

    def traefik_command(self):
        return ["traefik", f"--entryPoints.web.address=127.0.0.1:{self.port}", f"--providers.file.filename={self.folder}/conf.yml"]

    def varnish_write(self, block, _):
        (self.folder / "conf").write_text(block)

    def varnish_command(self):
        return ["varnishd", "-F", "-j", "none", "-n", self.folder / "run", "-f", self.folder / "conf", "-a", f"127.0.0.1:{self.port}",
                "-s", "malloc,64m", "-p", "thread_pool_min=10", "-p", "thread_pools=1"]


PROGRAMS = {"nginx": "nginx", "haproxy": "haproxy", "apache": "apache2", "caddy": "caddy", "varnish": "varnishd", "envoy": "envoy",
            "traefik": "traefik"}


def program(name):
    """Its path; setup/extras.sh fetches envoy and traefik into an environment of Python."""
    return shutil.which(PROGRAMS[name], path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def missing(name):
    """Why it cannot be started here; None: it can."""
    return None if program(name) else f"{PROGRAMS[name]} is not installed"
