# SPDX-License-Identifier: Apache-2.0
# ctest: seconds=15 rooms=python,client,uploader,server
"""How a program ends, and what it is told: exits in the middle of a save, Ctrl-C, signals, fork and spawn, an
uploader that is not there."""
import os
import signal
import subprocess
import sys
import textwrap

import package
import cairn
import world
from cairn._run import session_of

BEGIN = """
    import array, os, sys, time, cairn
    run = cairn.run(sys.argv[1])
    big = array.array("B", bytes(64 << 20))
"""


class Ends(package.Worlds):
    def python(self, text, **options):
        return self.program(textwrap.dedent(BEGIN) + textwrap.dedent(text), self.name, **options)

    def committed(self):
        with self.world.run(self.name, read_only=True) as run:
            return [row.step for row in run.list()]

    def test_a_program_that_just_ends_has_its_save_committed(self):
        out, err = self.python("run.async_save(1, {'x': big})")
        self.assertEqual((out, err, self.committed()), ("", "", [1]))

    def test_a_background_save_is_copied_before_the_interpreter_goes(self):
        self.python("run.async_save(1, {'x': big}, background=True)")
        self.assertEqual(self.committed(), [1])

    def test_an_exception_in_the_loop_leaves_the_save_whole(self):
        _, err = self.python("""
            with run.saving(1, {"x": big}):
                raise RuntimeError("of the loop")
        """, status=1)
        self.assertIn("RuntimeError: of the loop", err)
        self.assertEqual(self.committed(), [1])

    def test_what_is_not_committed_at_the_end_is_named_with_its_step(self):
        _, err = self.python("run.async_save(1, {'x': big})", env={"CAIRN_EXIT_WAIT": "0", "RANK": "0", "WORLD_SIZE": "2",
                                                                  "CAIRN_JOB": "job-1"})
        self.assertIn(f"cairn: step 1 of run {self.name} is not committed", err)

    def test_a_failure_that_nobody_asked_for_is_printed_at_the_end(self):
        _, err = self.python("""
            run.save(1, {"x": 1})
            run.async_save(1, {"x": 2}, background=True)
        """)
        self.assertIn(f"cairn: step 1 of run {self.name} failed: ", err)
        self.assertIn("step-exists", err)

    def test_ctrl_c_ends_a_wait_at_once_and_the_save_goes_on(self):
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(BEGIN) + textwrap.dedent("""
                import signal
                signal.signal(signal.SIGINT, signal.default_int_handler)  # which nohup and a shell's `&` may have had ignored
                save = run.async_save(1, {"x": 1})
                print("waits", flush=True)
                save.result()
            """), self.name], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "RANK": "0", "WORLD_SIZE": "2", "CAIRN_JOB": "job-c", "CAIRN_EXIT_WAIT": "0"})
        self.assertEqual(process.stdout.readline(), "waits\n")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=package.HANG_S)
        self.assertIn("KeyboardInterrupt", err)
        self.assertIn("is not committed at the end", err)

    def test_what_a_signals_handler_raises_in_the_copy_gives_the_save_up(self):
        """The loop goes on and changes its weights: half of them would be of the next step."""
        for error in ("KeyboardInterrupt", "TimeoutError", "Own"):
            with self.subTest(error=error):
                out, _ = self.program(textwrap.dedent(BEGIN) + textwrap.dedent(f"""
                    import signal, threading
                    from cairn._run import session_of
                    class Own(Exception):
                        pass
                    def handler(*_):
                        raise {error}("of the handler")
                    signal.signal(signal.SIGUSR1, handler)
                    session, begun, goes_on = session_of(run), threading.Event(), threading.Event()
                    copy = session.copy
                    def late(saving):
                        begun.set()
                        goes_on.wait()
                        copy(saving)
                    session.copy = late
                    def notify():
                        begun.wait()
                        os.kill(os.getpid(), signal.SIGUSR1)
                    threading.Thread(target=notify).start()
                    try:
                        run.async_save(1, {{"x": big}})
                    except {error} as error:
                        print(error)
                    big[:] = array.array("B", b"\1" * len(big))
                    goes_on.set()
                    try:
                        run.close()
                    except cairn.Cancelled as error:
                        print(error.message.rpartition(": ")[2])
                """), f"{self.name}-{error}")
                self.assertEqual(out, f"of the handler\ninterrupted by {error}\n")
                with self.world.run(f"{self.name}-{error}", read_only=True) as run:
                    self.assertIsNone(run.latest())

    def test_an_exception_in_a_runs_block_stays_that_where_a_save_has_failed(self):
        _, err = self.program("""
            import sys, cairn
            with cairn.run(sys.argv[1]) as run:
                run.save(1, {"x": 1})
                run.async_save(1, {"x": 2}, background=True)
                raise SystemExit(7)
        """, self.name, status=7)
        self.assertRegex(err, f"(?s)^cairn: .*step-exists; run {self.name}, step 1.*$")
        self.assertNotIn("Traceback", err)

    def test_a_preemption_notice_is_seen_between_two_steps_and_harms_no_save(self):
        out, _ = self.python("""
            import signal
            seen = []
            signal.signal(signal.SIGTERM, lambda *_: seen.append("own"))
            with cairn.preemption(run, signals=("SIGTERM",), grace=60) as notice:
                assert not notice.requested
                os.kill(os.getpid(), signal.SIGTERM)
                run.save(1, {"x": big})
                assert notice.requested and 0 < notice.remaining <= 60, notice.remaining
            print(seen, signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL)
        """)
        self.assertEqual(out, "['own'] True\n")
        self.assertEqual(self.committed(), [1])

    def test_a_forked_child_is_refused_and_the_parent_goes_on(self):
        out, err = self.python("""
            child = os.fork()
            if not child:
                try:
                    run.async_save(1, {"x": 1})
                except cairn.Forked as error:
                    print(error, flush=True)
                os._exit(0)
            os.waitpid(child, 0)
            run.save(2, {"x": big})
        """)
        self.assertIn("which has forked this one", out)
        self.assertIn("spawn", out)
        self.assertEqual((err, self.committed()), ("", [2]))

    def test_a_spawned_process_opens_its_own(self):
        self.program("""
            import multiprocessing, sys, cairn
            def work(name):
                cairn.run(name, read_only=True).at(1)
            if __name__ == "__main__":
                with cairn.run(sys.argv[1]) as run:
                    run.save(1, {"x": 1})
                    child = multiprocessing.get_context("spawn").Process(target=work, args=(sys.argv[1],))
                    child.start()
                    child.join()
                    sys.exit(child.exitcode)
        """, self.name)

    def test_import_leaves_the_process_as_it_was(self):
        out, _ = self.program("""
            import logging, multiprocessing, signal, socket, sys
            look = lambda: (logging.getLogger().level, logging.getLogger().handlers[:],
                            [signal.getsignal(number) for number in signal.valid_signals() if number not in (9, 19)],
                            multiprocessing.get_start_method(allow_none=True), socket.getdefaulttimeout())
            before = look()
            import cairn
            print(look() == before, sorted({"torch", "numpy", "fsspec", "jax", "asyncio.runners"} & set(sys.modules) -
                                           {"asyncio.runners"}))
        """)
        self.assertEqual(out, "True []\n")

    def test_no_uploader_is_one_sentence_that_says_what_to_do(self):
        with self.assertRaises(cairn.Gone) as caught:
            cairn.run("test/none", socket=str(self.folder / "none.sock"), read_only=True, timeout=0.2)
        self.assertEqual(caught.exception.code, "uploader-gone")
        self.assertIn("cairn up", str(caught.exception))

    def test_a_library_that_is_not_there_or_old_says_so(self):
        _, err = self.program("import cairn", status=1, env={"CAIRN_LIBRARY": "/nowhere/libcairn.so"})
        self.assertIn("libcairn cannot be loaded", err)
        _, err = self.program("import cairn", status=1, env={"CAIRN_LIBRARY": "libc.so.6"})
        self.assertIn("older than this package", err)

    def test_a_save_larger_than_the_nodes_memory_says_which_number_to_change(self):
        run = self.opened()
        with self.assertRaises(cairn.CairnError) as caught:
            session_of(run).reserve(1 << 42, None)
        self.assertEqual(caught.exception.code, "no-memory")
        self.assertIn("--memory", str(caught.exception))

    def test_a_token_that_may_not_save_is_one_sentence_that_names_it(self):
        own = world.World(nodes=0, server_arguments=("--require-token",))
        self.addCleanup(own.close)
        admin = (own.root / "server/admin.token").read_text().strip()
        made = own.cairn("token", "create", "--scope", "read,write", "--project", "other", "one", env={"CAIRN_TOKEN": admin})
        (own.root / "token").write_text(made.stdout)
        (own.root / "token").chmod(0o600)
        own.uploader_arguments = ["--token-file", own.root / "token"]
        own.uploaders.append(own.make_uploader(0).start())
        with self.assertRaises(cairn.CairnError) as caught:
            cairn.run("nlp/a", socket=own.socket())
        self.assertEqual((caught.exception.code, caught.exception.retryable), ("not-found", False))
        self.assertRegex(str(caught.exception), r"that the token one/\w+ may see \(projects: other; scopes: read,write\)")
        self.assertNotIn(made.stdout.strip().split("_")[2], str(caught.exception))

    def test_a_save_without_its_uploader_is_staged_and_away_until_the_next_one_has_it(self):
        own = world.World()
        self.addCleanup(own.close)
        with cairn.run("nlp/away", socket=own.socket()) as run:
            run.save(1, {"x": bytes(10)})
            own.uploaders[0].kill()
            save = run.async_save(2, {"x": bytes(10)})
            save.staged.result(package.HANG_S)
            self.assertTrue(save.progress().away)
            with self.assertRaises(cairn.Gone):
                save.committed.result(1)
            own.uploaders[0].start()
            save.committed.result(package.HANG_S)
            self.assertFalse(save.progress().away)

    def test_a_store_that_takes_nothing_is_named_by_the_wait_and_the_save_is_committed_once_it_does(self):
        own = world.World()
        self.addCleanup(own.close)
        store, away = own.root / "store", own.root / "away"
        with cairn.run("nlp/full", socket=own.socket()) as run:
            run.save(1, {"x": bytes(10)})
            store.rename(away)
            store.write_text("no folder")  # as a disk that is full, or gone: each write of the uploader fails
            save = run.async_save(2, {"x": bytes(10)})

            def named():
                with self.assertRaises(cairn.Timeout) as caught:
                    save.committed.result(6)
                self.assertTrue(caught.exception.retryable)
                return "Not a directory" in str(caught.exception)
            world.wait_until(named)
            store.unlink()
            away.rename(store)
            save.committed.result(package.HANG_S)


if __name__ == "__main__":
    package.main()
