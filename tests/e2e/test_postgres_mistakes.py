# SPDX-License-Identifier: Apache-2.0
# ctest: engines=postgresql
"""What operators get wrong with the catalog's database: a server that starts nevertheless would lose
or mix up checkpoints, so each is refused, or the server freezes what it cannot be sure of, with a
sentence that says what to do."""
import contextlib
import json
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
import unittest

import cases
import postgres
from world import BIN, HANG_S, wait_until, World

USER = "SELECT, INSERT, UPDATE, DELETE"


class Database(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        postgres.needed()
        cls.database = postgres.shared()

    def setUp(self):
        self.root = cases.folder(self)

    def world(self, **options):
        return World(nodes=1, case=self, **options)

    def refused(self, url, *phrases, env=None, store=None, data=None):
        """cairn-server ends by itself, and its last words hold all of these."""
        store, data = store or self.root / "store", data or self.root / "data"
        pathlib.Path(store).mkdir(exist_ok=True)
        done = subprocess.run(
            [BIN / "cairn-server", "--listen", "127.0.0.1:0", "--store", store, "--data-dir", data,
             *(["--catalog", url] if url else [])], text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=HANG_S, check=False, env={**os.environ, **(env or {})})
        said = done.stdout.splitlines()[-1]
        self.assertNotIn(done.returncode, (0, 77), said)
        self.assertTrue(said.startswith("cairn-server: "), said)
        for phrase in phrases:
            self.assertIn(phrase, said)
        self.assertNotIn("hunter2", done.stdout)

    def schema(self):
        """(its URL, its name); empty."""
        url = self.database.catalog()
        return url, url.rsplit("%3D", 1)[1]

    def used(self):
        """The same, of a server that has ended."""
        url, name = self.schema()
        cases.run([BIN / "cairn-server", "--migrate", "--store", self.root / "store",
                               "--data-dir", self.root / "data", "--catalog", url])
        return url, name

    def put(self, world, step):
        source = world.root / "source"
        source.mkdir(exist_ok=True)
        (source / "weights").write_bytes(os.urandom(1 << 16))
        world.cairn("put", source, f"m/run@{step}")

    def said(self, world, path):
        status, _, body = world.get(path)
        return status, body.decode()


class Refused(Database):
    def test_a_database_of_another_encoding(self):
        for name in ("latin1", "sql_ascii"):
            self.database.sql(
                f"CREATE DATABASE {name}_one ENCODING '{name}' LC_COLLATE 'C' LC_CTYPE 'C' "
                "TEMPLATE template0 LOCALE_PROVIDER libc")
            self.refused(self.database.url(database=f"{name}_one"), "encoding is not UTF8", "ENCODING 'UTF8'")

    def test_a_database_a_role_or_a_schema_that_is_not_there(self):
        self.refused(self.database.url(database="nowhere"), 'database "nowhere" does not exist', "create it")
        self.refused(self.database.url(user="nobody1"), 'role "nobody1" does not exist')
        self.refused(self.database.url(schema="nowhere"), "search_path names no schema", "GRANT USAGE")

    def test_a_database_that_nobody_serves(self):
        self.refused(self.database.url().replace("port=5432", "port=5999"),
                     "No such file or directory", "is it running")
        self.refused("postgresql://127.0.0.1:1/cairn", "Connection refused", "is it running")

    def test_d09_a_role_without_rights(self):
        self.database.sql("CREATE ROLE poor LOGIN")
        self.addCleanup(self.database.sql, "DROP OWNED BY poor; DROP ROLE poor")
        url, schema = self.used()
        mine = self.database.url(user="poor", schema=schema)
        self.refused(mine, "search_path names no schema", "GRANT USAGE")
        self.database.sql(f"GRANT USAGE ON SCHEMA {schema} TO poor")
        for grants in ("", "SELECT", "SELECT, INSERT, UPDATE"):
            if grants:
                self.database.sql(f"GRANT {grants} ON ALL TABLES IN SCHEMA {schema} TO poor")
            self.refused(mine, "by the role poor: the role may not change", f"GRANT {USER} ON ALL TABLES")
        self.database.sql(f"GRANT {USER} ON ALL TABLES IN SCHEMA {schema} TO poor")
        world = self.world(catalog=mine)
        self.put(world, 1)

    def test_a_role_that_may_not_create_tables_in_an_empty_schema(self):
        self.database.sql("CREATE ROLE poorer LOGIN")
        self.addCleanup(self.database.sql, "DROP OWNED BY poorer; DROP ROLE poorer")
        _, schema = self.schema()
        self.database.sql(f"GRANT USAGE ON SCHEMA {schema} TO poorer")
        self.refused(self.database.url(user="poorer", schema=schema),
                     "by the role poorer: the role may not create tables", "GRANT CREATE ON SCHEMA")

    def test_a_newer_schema(self):
        url, _ = self.used()
        self.database.sql("UPDATE cairn_catalog SET schema = 99", url)
        self.refused(url, "schema 99", "start the release")

    def test_a_database_that_may_lose_what_it_confirmed(self):
        for name in ("fsync", "full_page_writes"):
            loose = postgres.Postgres({name: "off"}).make().start()
            self.addCleanup(loose.end)
            self.refused(loose.catalog(), f"{name} is off", "set it to on")

    def test_d09_a_read_only_standby_and_a_database_that_is_set_read_only(self):
        primary = postgres.Postgres().make().start()
        self.addCleanup(primary.end)
        standby = primary.standby()
        self.refused(standby.url(), "read-only", "name the primary")
        self.refused(standby.url(more="&target_session_attrs=any"), "standby", "name the primary")

    def test_two_servers_with_sqlite_at_one_folder(self):
        world = World(nodes=0, case=self)
        if world.catalog:
            self.skipTest("this world is in PostgreSQL")
        self.refused(None, "another cairn-server", "PostgreSQL", store=world.store, data=world.root / "server")


class Passwords(Database):
    """A server that asks for one."""

    @classmethod
    def setUpClass(cls):
        postgres.needed()
        cls.database = postgres.Postgres().make()
        with open(cls.database.data / "pg_hba.conf", "w", encoding="utf-8") as file:
            file.write("local all cairn trust\nlocal all all scram-sha-256\n")
        cls.database.start()
        cases.at_the_end(cls, cls.database.end)
        cls.database.sql("CREATE ROLE asked LOGIN PASSWORD 'hunter2'")

    def setUp(self):
        super().setUp()
        _, name = self.schema()
        self.database.sql(f"GRANT ALL ON SCHEMA {name} TO asked")
        self.url = self.database.url(user="asked", schema=name)
        self.file = self.root / "pgpass"

    def password(self, text, mode=0o600):
        self.file.write_text(f"*:*:*:asked:{text}\n")
        self.file.chmod(mode)
        return {"PGPASSFILE": str(self.file)}

    def test_no_password(self):
        self.refused(self.url, "password", "PGPASSFILE", env={"PGPASSFILE": "/nowhere"})

    def test_a_wrong_password_and_the_right_one(self):
        self.refused(self.url, "password authentication failed", "PGPASSFILE", env=self.password("hunter3"))
        self.put(self.world(catalog=self.url, env=self.password("hunter2")), 1)

    def test_a_password_file_that_others_may_read(self):
        self.refused(self.url, "PGPASSFILE", "0600", env=self.password("hunter2", 0o644))

    def test_a_password_in_the_setting(self):
        self.refused(self.url.replace("asked@", "asked:hunter2@"), "catalog-password-file", "PGPASSFILE")

    def test_a_password_of_catalog_password_file_that_a_group_may_read_and_nobody_else(self):
        secret = self.root / "secret"
        env = {"CAIRN_CATALOG_PASSWORD_FILE": str(secret), "PGPASSFILE": "/nowhere"}
        self.refused(self.url, "catalog-password-file", str(secret), "No such file", env=env)
        secret.write_text("hunter3\n")
        secret.chmod(0o600)
        self.refused(self.url, "password authentication failed", env=env)
        secret.write_text("hunter2\n")
        secret.chmod(0o444)
        self.refused(self.url, "catalog-password-file", "everybody can read it", env=env)
        secret.chmod(0o440)  # as Kubernetes gives a secret to the group of a pod; libpq's own file may not be
        world = self.world(catalog=self.url, env=env)
        self.put(world, 1)
        self.assertIn("settings.secret_shared", world.server.log.read_text())
        done = subprocess.run([BIN / "cairn-server", "--copy-catalog", self.url, self.root / "copy"], text=True,
                              capture_output=True, check=False, timeout=HANG_S, env={**os.environ, **env})
        self.assertIn("another cairn-server uses this catalog", done.stderr)  # so it has come in

    def test_a_service_that_no_service_file_has(self):
        services = self.root / "services"
        services.write_text(f"[cairn]\nhost={self.database.folder}\nport={self.database.port}\n"
                            "dbname=postgres\nuser=cairn\n")
        env = {"PGSERVICEFILE": str(services)}
        self.refused("postgresql:///?service=cairns", 'service "cairns" not found', "PGSERVICEFILE", env=env)
        self.refused("postgresql:///?service=cairn", "not found", "PGSERVICEFILE", env={"PGSERVICEFILE": "/nowhere"})
        self.put(self.world(catalog="postgresql:///?service=cairn&options=-csearch_path%3D"
                            + self.schema()[1], env=env), 1)


class Older(threading.Thread):
    """A relay to a server that says that it is of another release."""

    def __init__(self, database, release):
        super().__init__(daemon=True)
        self.database, self.release = database, release.encode()
        self.folder = tempfile.mkdtemp(prefix="cairn-older-", dir="/tmp")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(f"{self.folder}/.s.PGSQL.5432")
        self.listener.listen(16)
        self.start()

    def url(self):
        return self.database.url().replace(str(self.database.folder), self.folder)

    def run(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX)
            far.connect(f"{self.database.folder}/.s.PGSQL.{self.database.port}")
            for job in ((self.pass_on, near, far), (self.change, far, near)):
                threading.Thread(target=job[0], args=job[1:], daemon=True).start()

    def pass_on(self, source, target):
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)

    def change(self, source, target):
        name = b"server_version\0"
        with source.makefile("rb") as file:
            while head := file.read(5):
                body = file.read(struct.unpack(">I", head[1:])[0] - 4)
                if head[:1] == b"S" and body.startswith(name):
                    body = name + self.release + b"\0"
                with contextlib.suppress(OSError):  # it has heard enough
                    target.sendall(head[:1] + struct.pack(">I", len(body) + 4) + body)

    def end(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        shutil.rmtree(self.folder)


class Releases(Database):
    def test_a_postgresql_that_is_older_than_supported(self):
        older = Older(self.database, "12.22")
        self.addCleanup(older.end)
        self.refused(older.url(), "PostgreSQL 12.22", "14 or newer")


class LookAlikes(Database):
    """Databases that speak PostgreSQL's protocol. One is played by a schema before pg_catalog in the search
    path, whose functions answer as those of the other database do."""

    def looks_like(self, name, *statements):
        url, schema = self.schema()
        self.database.sql("; ".join(statements), url)
        return url.replace(f"%3D{schema}", f"%3D{schema}%2Cpg_catalog")

    def version(self, text):
        return f"CREATE FUNCTION version() RETURNS text LANGUAGE sql AS $$ SELECT '{text}'::text $$"

    def test_cockroachdb_yugabytedb_and_others_are_refused_by_name(self):
        for said, name in (("CockroachDB CCL v24.3.1 (x86_64-pc-linux-gnu)", "CockroachDB"),
                           ("PostgreSQL 15.12-YB-2.25.2.0-b0 on x86_64-pc-linux-gnu", "YugabyteDB"),
                           ("PostgreSQL 8.0.2 on i686, Redshift 1.0.7", "Redshift")):
            self.refused(self.looks_like(name, self.version(said)), f"it is {name}, which speaks PostgreSQL's protocol",
                         "name a database of PostgreSQL 14 or newer")

    def test_one_without_advisory_locks_or_without_notifications_is_refused_by_what_it_lacks(self):
        told = self.version("Likeness 3.1")
        self.refused(self.looks_like("locks", told, "CREATE VIEW pg_locks AS SELECT * FROM pg_catalog.pg_locks LIMIT 0"),
                     'it is "Likeness 3.1"', "lacks advisory locks of sessions")
        self.refused(self.looks_like("notify", told,
                                     "CREATE FUNCTION pg_notify(text, text) RETURNS void LANGUAGE sql AS $$ SELECT $$"),
                     'it is "Likeness 3.1"', "lacks notifications (LISTEN, NOTIFY)")

    def test_a_postgresql_of_another_house_is_taken(self):
        url = self.looks_like("house", self.version("PostgreSQL 15.4 (Debian) on x86_64, by somebody"))
        self.put(self.world(catalog=url), 1)


class Frozen(Database):
    """Databases that are good, and are not this store's, or not of today."""

    def setUp(self):
        super().setUp()
        self.url, self.name = self.schema()
        self.site = self.world(catalog=self.url)
        self.put(self.site, 1)

    def dump(self):
        return subprocess.run(
            [self.database.programs / "pg_dump", "-d", self.database.url(), "-n", self.name],
            check=True, text=True, stdout=subprocess.PIPE).stdout

    def restore(self, dump):
        self.database.sql(f"DROP SCHEMA {self.name} CASCADE")
        subprocess.run([self.database.programs / "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d",
                        self.database.url()], input=dump, check=True, text=True,
                       stdout=subprocess.DEVNULL)

    def versions(self):
        return {json.loads(path.read_text())["version"]
                for path in pathlib.Path(self.site.store).rglob("committed.json")}

    def test_the_database_of_another_site_is_refused_and_both_are_named(self):
        other = self.world(catalog=self.schema()[0])
        self.site.server.stop()
        other.server.stop()
        self.refused(self.url, "this catalog belongs to", "name the catalog of this store", store=other.store,
                     data=other.root / "server")

    def test_an_empty_database_freezes_what_the_store_has(self):
        self.site.server.stop()
        self.database.empty(self.url)
        self.site.start_server()
        self.frozen_as_a_whole()

    def frozen_as_a_whole(self):
        status, said = self.said(self.site, "/v1/runs/m/run/checkpoints/latest")
        self.assertEqual(status, 503, said)
        self.assertIn("catalog-behind", said)
        self.assertIn("adopt-store", self.site.server.log.read_text())
        self.assertEqual(self.said(self.site, "/readyz")[0], 503)
        self.site.cairn("put", self.site.root / "source", "m/run@9", "--timeout", "3s", status=None)
        self.assertEqual(len(self.versions()), 1)

    def test_a_database_restored_from_yesterday_freezes_what_went_on_since(self):
        self.site.server.stop()
        yesterday = self.dump()
        self.site.start_server()
        self.put(self.site, 2)
        before = self.versions()
        self.site.server.stop()
        self.restore(yesterday)
        self.site.start_server()
        status, said = self.said(self.site, "/v1/runs/m/run/checkpoints/latest")
        self.assertEqual(status, 503, said)
        self.assertIn("adopt-store", self.site.server.log.read_text())
        self.assertEqual(self.versions(), before)
        # What it says to do ends it: adopted, and what went on is taken over.
        self.site.server.stop()
        self.site.server_arguments += ["--adopt-store=true", "--reconcile-wait", "1s"]
        self.site.start_server()
        status, said = self.said(self.site, "/v1/runs/m/run/checkpoints/latest")
        self.assertIn("reconcile", said)
        self.site.cairn("reconcile", "m/run")
        newest = wait_until(lambda: self.site.version("m/run"))
        self.assertEqual(newest["step"], 2)
        self.assertEqual(self.versions(), before)


if __name__ == "__main__":
    unittest.main(verbosity=2)
