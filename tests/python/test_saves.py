# SPDX-License-Identifier: Apache-2.0
# ctest: seconds=8 rooms=python,client,uploader,server
"""What a training loop does with a run, without torch and numpy: save, find, load, and what the errors say."""
import array
import asyncio
import json
import logging
import os
import threading
import urllib.request
import warnings

import package
import cairn
from cairn._run import session_of
from cairn.checkpoint import version_of


def floats(*values):
    return array.array("f", values)


class Saves(package.Worlds):
    def test_a_nested_state_comes_back_with_its_types(self):
        state = {"model": {"w": floats(1, 2, 3), "b": array.array("q", [1 << 40])}, "step": 7, "lr": 0.5,
                 "nan": float("nan"), "inf": float("-inf"), "none": None, "yes": True, "text": "gr\u00fc\u00df",
                 "list": [1, {"deep": floats(9)}, (2, "x")], "bytes": b"\0\1", "own": bytearray(b"abc"),
                 3: "number", "empty": {}, "optimizer": {"state": {0: {"m": floats(4)}, 1: {"m": floats(5)}}}}
        run = self.opened()
        save = run.async_save(7, state)
        self.assertTrue(save.staged.done())
        self.assertIs(save.committed.result(package.HANG_S), save)
        found = run.at(7).load()
        self.assertNotEqual(found["nan"], found["nan"])
        for kept in (state, found):
            kept.pop("nan")
        self.assertEqual(bytes(found["model"]["w"].data), state["model"]["w"].tobytes())
        self.assertEqual((found["model"]["b"].dtype, found["model"]["b"].shape), ("I64", (1,)))
        self.assertEqual(bytes(found["list"][1]["deep"].data), floats(9).tobytes())
        self.assertEqual(found["list"][2], (2, "x"))
        self.assertEqual(bytes(found["optimizer"]["state"][1]["m"].data), floats(5).tobytes())
        for key in ("step", "lr", "inf", "none", "yes", "text", "bytes", "own", 3, "empty"):
            self.assertEqual((found[key], type(found[key])), (state[key], type(state[key])), key)

    def test_loading_into_a_state_fills_its_own_memory(self):
        run = self.opened()
        run.save(1, {"w": floats(1, 2), "inner": {"step": 5, "values": [1, floats(3)]}})
        w, inner = floats(0, 0), floats(0)
        state = {"w": w, "inner": {"step": 0, "values": [0, inner]}}
        self.assertIs(run.latest().load(into=state), state)
        self.assertEqual((w.tolist(), inner.tolist(), state["inner"]["step"], state["inner"]["values"][0]),
                         ([1, 2], [3], 5, 1))

    def test_arrays_whose_paths_read_alike_are_loaded_each_into_its_own_place(self):
        run = self.opened()

        def state(*values):
            values = iter(values)
            return {"a.b": floats(next(values)), "a": {"b": floats(next(values)), "b~2": floats(next(values))},
                    "s": {0: floats(next(values)), "0": floats(next(values))}, "cairn.tree": floats(next(values))}

        run.save(1, state(*range(1, 7)))
        into = run.at(1).load(into=state(*[0] * 6))
        new = run.at(1).load()
        self.assertEqual(into, state(*range(1, 7)))
        self.assertEqual(bytes(new["a.b"].data) + bytes(new["a"]["b"].data), floats(1, 2).tobytes())

    def test_a_state_may_be_one_array(self):
        run = self.opened()
        run.save(1, floats(1, 2))
        self.assertEqual(run.at(1).load(into=floats(0, 0)), floats(1, 2))
        self.assertEqual(bytes(run.at(1).load().data), floats(1, 2).tobytes())

    def slabs(self):
        """Bytes of the memory for saves that this process has mapped."""
        with open("/proc/self/maps", encoding="utf-8") as maps:
            rows = [line.split()[0].split("-") for line in maps if "memfd:cairn-slab" in line]
        return sum(int(end, 16) - int(start, 16) for start, end in rows)

    def test_a_small_state_takes_one_unit_of_memory_for_each_of_two_saves(self):
        before, run = self.slabs(), self.opened()
        run.save(1, {"w": floats(*range(2000)), "notes": ["x" * 100] * 20, "step": 1})
        self.assertEqual(self.slabs() - before, 2 * (2 << 20))

    def test_a_save_of_files_alone_takes_no_memory(self):
        before, run = self.slabs(), self.opened()
        path = self.folder / "a"
        path.write_bytes(b"x" * 1000)
        with run.save(1) as raw:
            raw.put_file("a", path)
        raw.committed.result(package.HANG_S)
        self.assertEqual(self.slabs() - before, 0)

    def test_names_of_tensors_may_be_long(self):
        run = self.opened()
        state = {f"{row:04}-{chr(252) * 400}": floats(row) for row in range(3000)}
        run.save(1, state)
        self.assertEqual(len(run.at(1).load()), 3000)

    def test_sources_may_change_as_soon_as_the_call_returns(self):
        run = self.opened()
        weights = array.array("B", b"\1" * (8 << 20))
        save = run.async_save(1, {"w": weights})
        for at in range(0, len(weights), 4096):
            weights[at] = 2
        save.result(package.HANG_S)
        self.assertEqual(run.at(1).load()["w"].data, b"\1" * (8 << 20))

    def test_a_background_save_is_copied_at_the_end_of_its_block(self):
        run = self.opened()
        weights = array.array("B", b"\3" * (32 << 20))
        with run.saving(1, {"w": weights}) as save:
            pass
        self.assertTrue(save.staged.done())
        weights[0] = 9
        save.result(package.HANG_S)
        self.assertEqual(run.at(1).load()["w"].data[0], 3)

    def test_futures_come_in_order_and_an_event_loop_awaits_them(self):
        run = self.opened()
        seen = []

        async def saves():
            save = run.async_save(1, {"x": floats(1)})
            save.add_done_callback(lambda done: seen.append(done.step))
            await save.durable
            return (await save).progress()
        progress = asyncio.run(saves())
        again = asyncio.run(saves_of(run, 2))
        self.assertEqual(seen, [1])
        self.assertEqual(again.step, 2)
        self.assertGreater(progress.total, 0)
        self.assertEqual(progress.total, progress.durable)
        self.assertTrue(progress.version.startswith("ckpt_"))

    def test_two_event_loops_await_one_save(self):
        run = self.opened()
        save = run.async_save(1, {"x": floats(1)}, background=True)
        seen = []
        loops = [threading.Thread(target=lambda: seen.append(asyncio.run(awaited(save)))) for _ in range(2)]
        for loop in loops:
            loop.start()
        for loop in loops:
            loop.join(package.HANG_S)
        self.assertEqual(seen, [save, save])

    def test_versions_are_found_by_step_and_listed_newest_first(self):
        run = self.opened()
        self.assertIsNone(run.latest())
        self.assertEqual(run.list(), [])
        for step in (10, 20):
            run.save(step, {"x": step})
        self.assertEqual([row.step for row in run.list()], [20, 10])
        reader = self.world.run(self.name, read_only=True)
        self.assertEqual(reader.latest().step, 20)
        self.assertEqual(reader.at(10).load(), {"x": 10})
        with self.assertRaises(FileNotFoundError) as caught:
            reader.at(11)
        self.assertEqual((caught.exception.code, caught.exception.run), ("not-found", self.name))

    def test_what_is_known_after_the_commit_is_said_of_it_and_found_by_it(self):
        run = self.opened()
        for step in (10, 20):
            run.save(step, {"x": step}, labels={"kind": "train", "name": f"at-{step}"})
        self.assertIsNone(run.find(15))
        self.assertEqual(run.list(run="test/nobody-saves"), [])
        run.annotate(10, labels={"kind": None, "eval": "done"}, metrics={"loss": 1.5}, pin=True)
        run.alias("prod", 20)
        run.alias("prod", 10)
        found = run.find("prod")
        self.assertEqual((found.step, found.labels, found.metrics, found.pinned, found.world_size),
                         (10, {"eval": "done", "name": "at-10"}, {"loss": 1.5}, True, 1))
        self.assertEqual([row.step for row in run.list(labels={"eval": "done"})], [10])
        self.assertEqual([row.step for row in run.list(labels="!eval", limit=5)], [20])
        self.assertEqual(run.named("at-20").step, 20)
        with self.assertRaises(cairn.CairnError) as caught:
            run.annotate(99, pin=True)
        self.assertEqual(caught.exception.code, "not-found")
        run.alias("prod", None)
        self.assertIsNone(run.find("prod"))

    def test_many_items_come_in_one_call(self):
        run = self.opened()
        blobs = {f"part-{at}": bytes([at]) * at for at in range(40)}
        run.save(1, {"state": blobs})
        with run.at(1) as found:
            calls = []
            version = version_of(found)
            read, version.read = version.read, lambda reads: (calls.append(len(reads)), read(reads))
            names = [f"state.part-{at}" for at in range(40)]
            self.assertEqual(found.items(names), {f"state.{name}": data for name, data in blobs.items()})
            self.assertEqual(calls, [39])  # one is empty
            with self.assertRaises(FileNotFoundError):
                found.items(["state.part-1", "nobody"])

    def test_a_source_that_is_changed_before_its_copy_is_waited_for_is_found_where_it_is_verified(self):
        run = self.opened()
        state = {"kept": array.array("d", [1.0] * 1000), "changed": array.array("d", [2.0] * 1000)}
        run.async_save(1, state, background=True, verify_sources=True).staged.result(package.HANG_S)
        save = run.async_save(2, state, background=True, verify_sources=True)
        while not 0 < save.progress().total <= save.progress().staged:  # copied, and not yet compared
            threading.Event().wait(0.01)
        state["changed"][500] = 3.0
        with self.assertRaises(cairn.CairnError) as caught:
            save.staged.result(package.HANG_S)
        self.assertEqual(caught.exception.code, "source-changed")
        self.assertIn("changed", str(caught.exception))

    def test_a_state_that_is_no_longer_renewed_is_warned_of(self):
        run = self.opened()
        weights = array.array("d", [0.0] * 300_000)
        for step in range(1, 8):
            if step < 5:  # a cached copy: from here on the same bytes
                for at in range(0, len(weights), 1000):
                    weights[at] = step
            run.save(step, {"w": weights, "step": step})
            if step == 5:
                with self.assertWarnsRegex(RuntimeWarning, "step 5 may be stale.*step 4"):
                    run.check()
            else:
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    run.check()
        with urllib.request.urlopen(f"{self.world.url}/v1/runs/{self.name}/events?limit=1000") as answer:
            events = json.load(answer)["items"]
        stale = [event["step"] for event in events if event["event"] == "checkpoint.stale"]
        self.assertEqual(stale, [5, 6, 7])

    def test_a_state_that_is_none_is_refused_and_an_empty_one_warned_of(self):
        run = self.opened()
        for save in (run.save, run.async_save):
            with self.assertRaisesRegex(cairn.Invalid, "step 1: the state is None"):
                save(1, None)
        self.assertIsNone(run.latest())
        for step, state in enumerate(({}, {"model": {}, "optimizer": {"state": {}, "groups": []}}), 1):
            with self.assertWarnsRegex(RuntimeWarning, f"step {step}: the checkpoint is empty, because the state has no"):
                run.save(step, state)
            self.assertEqual(run.at(step).load(), state)
        with self.assertWarnsRegex(RuntimeWarning, "step 3: the checkpoint is empty, because nothing was put into it"):
            with run.save(3):
                pass
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            run.save(4, {"model": {}, "step": 4})
            with self.world.run(self.name + "-two", world_size=2, rank=1, job="job-1") as other:
                save = other.async_save(1, {})               # a rank of several may have nothing of its own
                save.cancel()
                self.assertIsInstance(save.committed.exception(package.HANG_S), cairn.Cancelled)

    def test_a_raw_save_that_saves_nothing_says_so(self):
        run = self.opened()
        with self.assertWarnsRegex(RuntimeWarning, "step 1: nothing is saved, because .* is a block"):
            raw = run.save(1)
            raw.put("a", b"a")
            with self.assertRaisesRegex(cairn.Invalid, "this save has not begun"):
                raw.committed.result(5)
            with self.assertRaisesRegex(cairn.Invalid, "this save has not begun"):
                asyncio.run(asyncio.wait_for(raw.save, 5))
            del raw
        with self.assertRaisesRegex(FileNotFoundError, "none: no folder to save as step 2"):
            with run.save(2) as raw:
                raw.put_folder(self.folder / "none")
        with self.assertRaisesRegex(cairn.Invalid, "this save has not begun"):
            raw.committed.exception(5)
        self.assertIsNone(run.latest())

    def test_a_name_that_is_given_twice_is_refused_by_the_call_that_gives_it(self):
        path = self.folder / "twice"
        path.write_bytes(b"file")
        with self.opened().save(1) as raw:
            raw.put("a", b"a")
            raw.put_file("b", path)
            for again in (lambda: raw.put("a", b"other"), lambda: raw.put_file("a", path), lambda: raw.put("b", b""),
                          lambda: raw.put_file("b", path)):
                with self.assertRaisesRegex(cairn.Invalid, "step 1: [ab] is given twice"):
                    again()
        raw.committed.result(package.HANG_S)
        found = raw.run.at(1)
        self.assertEqual((found.shard("a").read(), found.shard("b").read()), (b"a", b"file"))

    def test_a_step_that_is_there_is_refused_by_its_name(self):
        run = self.opened()
        run.save(5, {"x": 1})
        with self.assertRaises(cairn.CairnError) as caught:
            run.save(5, {"x": 2})
        error = caught.exception
        self.assertEqual((error.code, error.step, error.run, error.rank), ("step-exists", 5, self.name, 0))
        self.assertIn("on_exists", str(error))
        run.save(5, {"x": 2}, on_exists="supersede")
        self.assertEqual(run.at(5).load(), {"x": 2})

    def test_a_failure_in_the_background_is_raised_by_the_next_call_once(self):
        run = self.opened()
        run.save(5, {"x": 1})
        save = run.async_save(5, {"x": 2}, background=True)
        wait_done(save.committed)
        self.assertEqual([error.code for error in run.problems], ["step-exists"])
        with self.assertRaises(cairn.CairnError):
            run.async_save(6, {"x": 1})
        run.check()
        run.save(6, {"x": 1})

    def test_only_named_parts_are_loaded_and_differences_are_named(self):
        run = self.opened()
        run.save(1, {"model": {"a": floats(1), "b": floats(2)}, "opt": {"m": floats(3)}})
        found = run.at(1)
        self.assertEqual(set(found.load(prefix="model")), {"a", "b"})
        target = {"a": floats(0), "b": floats(0)}
        found.load(into=target, prefix="model")
        self.assertEqual(target["b"][0], 2)
        with self.assertRaisesRegex(cairn.NotFound, "c is missing in the checkpoint; b is not wanted"):
            found.load(into={"a": floats(0), "c": floats(0)}, prefix="model")
        renamed = {"net.a": floats(0), "net.b": floats(0)}
        found.load(into=renamed, prefix="model", rename={"": "net."})
        self.assertEqual((renamed["net.a"][0], renamed["net.b"][0]), (1, 2))
        part = {"model": {"a": floats(0), "b": floats(7)}, "opt": {"m": floats(7)}}
        found.load(into=part, only=["model.a"])
        self.assertEqual((part["model"]["a"][0], part["model"]["b"][0], part["opt"]["m"][0]), (1, 7, 7))
        with self.assertRaisesRegex(cairn.Invalid, r"model.a: saved with shape \[1\], wanted \[2\]"):
            found.load(into={"model": {"a": floats(0, 0), "b": floats(0)}, "opt": {"m": floats(0)}})

    def test_raw_bytes_and_files_come_back_by_their_names(self):
        path = self.folder / "file"
        path.write_bytes(b"of a file" * 1000)
        run = self.opened()
        with run.save(3) as raw:
            raw.put("rank3.bin", memoryview(b"0123456789"))
            raw.put_file("files/of", path)
        raw.committed.result(package.HANG_S)
        found = run.at(3)
        out = bytearray(4)
        self.assertIs(found.shard("rank3.bin").read(2, 4, out=out), out)
        self.assertEqual(out, b"2345")
        self.assertEqual(found.shard("files/of").read(), path.read_bytes())

    def test_a_folder_comes_back_as_a_folder(self):
        made = self.folder / "made"
        (made / "deep").mkdir(parents=True)
        for name in ("a", "deep/b"):
            (made / name).write_bytes(name.encode() * 1000)
        run = self.opened()
        with run.save(1) as raw:
            raw.put_folder(made)
        raw.committed.result(package.HANG_S)
        with run.at(1) as found:
            found.fetch(self.folder / "fetched" / "1")
        self.assertEqual({name: (self.folder / "fetched" / "1" / name).read_bytes() for name in ("a", "deep/b")},
                         {name: name.encode() * 1000 for name in ("a", "deep/b")})
        with run.save(2) as raw:
            raw.put_folder(self.folder / "fetched" / "1")
        raw.committed.result(package.HANG_S)
        self.assertEqual(set(run.at(2).shards), {"a", "deep/b"})  # without the mark of what was fetched

    def test_what_is_no_plain_value_is_pickled_and_not_loaded_by_default(self):
        run = self.opened()
        save = run.async_save(1, {"odd": {1, 2}, "x": 1})
        save.result(package.HANG_S)
        self.assertEqual(save.pickled, ["odd"])
        with self.assertRaisesRegex(cairn.CairnError, "weights_only=False"):
            run.at(1).load()
        self.assertEqual(run.at(1).load(weights_only=False)["odd"], {1, 2})

    def test_tied_tensors_are_stored_once(self):
        run = self.opened()
        shared = floats(*range(1000))
        run.save(1, {"in": shared, "out": shared})
        tensors = run.at(1).tensors
        self.assertEqual({tensors["in"].alias_of, tensors["out"].alias_of}, {None, "in"})
        found = run.at(1).load()
        self.assertEqual(bytes(found["out"].data), shared.tobytes())

    def test_a_save_is_cancelled(self):
        run = self.opened()
        save = run.async_save(1, {"x": floats(1)}, background=True)
        if save.cancel("no more"):
            with self.assertRaises(cairn.CairnError) as caught:
                save.result(package.HANG_S)
            self.assertEqual(caught.exception.code, "cancelled")
        else:
            save.result(package.HANG_S)

    def test_a_save_that_fails_while_it_is_watched_keeps_no_later_one_from_its_end(self):
        run = self.opened()
        for step in range(1, 20, 2):
            save = run.async_save(step, {"x": floats(1)}, background=True)
            save.staged.result(package.HANG_S)
            session_of(run).give_up(save._saving, cairn.errors.make("given up", code="internal"))
            with self.assertRaisesRegex(cairn.CairnError, "given up"):
                run.check()
            run.save(step + 1, {"x": floats(1)}, timeout=package.HANG_S)  # its descriptor has the number of the one before

    def test_threads_save_and_load_at_once(self):
        run = self.opened()
        errors = []

        def work(first):
            try:
                for step in range(first, first + 5):
                    run.save(step, {"x": floats(*[step] * 1000)})
                    with run.at(step) as found:
                        assert memoryview(found.load()["x"].data).cast("f")[999] == step
            except BaseException as error:
                errors.append(error)
        threads = [threading.Thread(target=work, args=(first,)) for first in (0, 100, 200)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(package.HANG_S)
        self.assertEqual(errors, [])

    def test_errors_keep_what_they_know_through_pickle(self):
        import pickle
        run = self.opened()
        with self.assertRaises(cairn.NotFound) as caught:
            run.at(99)
        again = pickle.loads(pickle.dumps(caught.exception))
        self.assertEqual((str(again), again.code, again.step, type(again)),
                         (str(caught.exception), "not-found", caught.exception.step, cairn.NotFound))

    def test_one_run_is_one_session_of_a_process(self):
        run = self.opened()
        self.assertIs(self.world.run(self.name), run)
        self.assertIs(self.world.run(self.name, read_only=True), run)

    def test_a_process_finds_its_place_by_what_started_it_and_may_be_a_world_of_its_own(self):
        opened = """
            import cairn, sys
            from cairn._run import session_of
            own = dict(rank=0, world_size=1) if "own" in sys.argv else {}
            with cairn.run(sys.argv[1], **own, read_only="read" in sys.argv) as run:
                print(run.rank, run.world_size, session_of(run).local_world)
        """
        torchrun = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
        slurm = {"SLURM_PROCID": "5", "SLURM_NTASKS": "7", "SLURM_LOCALID": "1", "SLURM_NODEID": "2",
                 "SLURM_STEP_TASKS_PER_NODE": "2(x3),1"}
        mpi = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
               "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}
        lightning = {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1", "NODE_RANK": "0"}  # says no LOCAL_WORLD_SIZE
        for env, words, place in ((torchrun, (), "3 4 2"), (torchrun, ("own",), "0 1 1"), (slurm, (), "5 7 2"),
                                  (slurm, ("own", "read"), "0 1 1"), (mpi, (), "1 4 4"), (lightning, (), "1 2 1"),
                                  (lightning, ("own", "read"), "0 1 1"), ({**slurm, **torchrun}, (), "3 4 2")):
            with self.subTest(env=env, words=words):
                told, _ = self.program(opened, self.name, *words, env={**env, "CAIRN_JOB": os.urandom(8).hex()})
                self.assertEqual(told.strip(), place)

    def test_logging_is_the_packages_own(self):
        self.assertEqual([type(handler) for handler in logging.getLogger("cairn").handlers], [logging.NullHandler])


async def awaited(save):
    await save.staged
    return await save


async def saves_of(run, step):
    return await run.async_save(step, {"x": floats(1)})


def wait_done(future):
    done = threading.Event()
    future.add_done_callback(lambda _: done.set())
    assert done.wait(package.HANG_S)


if __name__ == "__main__":
    package.main()
