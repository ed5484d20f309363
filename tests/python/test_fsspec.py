# SPDX-License-Identifier: Apache-2.0
# ctest: labels=torch seconds=15 rooms=python,client,uploader,server
"""fsspec's cairn://: what its users do with any other store, and torch.save, DCP and its async save by URL."""
import array
import datetime
import importlib
import threading

import package
import ranks
import cairn
from cairn._run import session_of

try:
    import fsspec
except ImportError:
    fsspec = None


class Fsspec(package.Worlds):
    needs = ("fsspec",)

    def setUp(self):
        super().setUp()
        from cairn.fs import CairnFileSystem
        fsspec.register_implementation("cairn", CairnFileSystem, clobber=True)
        self.fs = fsspec.filesystem("cairn", skip_instance_cache=True)
        self.url = f"cairn://{self.name}"

    def put(self, path, data, of=None):
        with self.fs.open(f"{of or self.url}/{path}", "wb") as file:
            file.write(data)

    def files(self, step):
        return {path.rpartition("/")[2]: self.fs.cat_file(path) for path in self.fs.find(f"{self.url}/{step}")}

    def test_a_file_is_committed_when_it_is_closed(self):
        self.put("100/model.bin", b"0123456789")
        self.assertEqual(self.world.run(self.name).latest().step, 100)
        self.assertEqual(self.fs.cat(f"{self.url}/100/model.bin"), b"0123456789")
        self.assertEqual(self.fs.cat(f"{self.url}/latest/model.bin"), b"0123456789")
        with self.fs.open(f"{self.url}/100/model.bin") as file:
            file.seek(-3, 2)
            self.assertEqual((file.read(), file.tell()), (b"789", 10))
            file.seek(2)
            self.assertEqual(file.read(3), b"234")

    def test_another_file_of_the_step_joins_the_first(self):
        self.put("1/a", b"a")
        self.put("1/deep/b", b"bb")
        self.assertEqual(self.fs.ls(f"{self.url}/1", detail=False), [f"{self.name}/1/a", f"{self.name}/1/deep"])
        self.assertEqual(sorted(self.fs.find(f"{self.url}/1")), [f"{self.name}/1/a", f"{self.name}/1/deep/b"])
        self.assertEqual(self.fs.info(f"{self.url}/1/deep/b")["size"], 2)
        self.assertEqual([folder for folder, _, _ in self.fs.walk(f"{self.url}/1")],
                         [f"{self.name}/1", f"{self.name}/1/deep"])

    def test_a_file_joins_what_was_written_before_another_step_and_by_another_process(self):
        self.put("1/a", b"a" * 100)
        self.put("2/x", b"x")
        self.put("1/b", b"b")
        self.program("""
            import sys, cairn.fs
            fs = cairn.fs.CairnFileSystem()
            for name, data in (("c", b"c"), ("b", b"new")):
                with fs.open(f"{sys.argv[1]}/1/{name}", "wb") as file:
                    file.write(data)
        """, self.url)
        self.assertEqual(self.files(1), {"a": b"a" * 100, "b": b"new", "c": b"c"})
        with self.world.run(self.name + "-tensors") as run:
            run.save(1, {"w": bytearray(8), "a": array.array("f", [1])})
        with self.assertRaisesRegex(cairn.CairnError, "a checkpoint of tensors"):
            self.put("1/a", b"a", of=f"cairn://{self.name}-tensors")

    def test_a_folder_is_copied_to_another_step(self):
        self.put("1/a", b"a")
        self.put("1/deep/b", b"bb")
        self.fs.cp(f"{self.url}/1/", f"{self.url}/2/", recursive=True)
        self.assertEqual(self.files(2), {"a": b"a", "b": b"bb"})

    def test_a_url_or_mode_that_cannot_be_written_says_what_can(self):
        with self.assertRaisesRegex(IsADirectoryError, "a file is written below a step: cairn://project/run/STEP/FILE"):
            self.fs.open(f"{self.url}/model.pt", "wb")
        with self.assertRaisesRegex(cairn.CairnError, "written whole.*write what it shall be to another step"):
            self.fs.open(f"{self.url}/1/a", "ab")

    def test_files_of_one_step_that_threads_write_at_once_are_all_there(self):
        failed = []

        def write(thread):
            try:
                for number in range(6):
                    self.put(f"7/{thread}-{number}", bytes([thread, number]) * 10_000)
            except Exception as error:  # pylint: disable=broad-exception-caught
                failed.append(error)
        threads = [threading.Thread(target=write, args=(thread,)) for thread in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failed, [])
        self.assertEqual(self.files(7), {f"{thread}-{number}": bytes([thread, number]) * 10_000
                                         for thread in range(4) for number in range(6)})

    def test_what_is_not_there_is_not_there(self):
        self.put("1/a", b"a")
        for path in ("1/b", "2", "2/a", "latest/b"):
            self.assertFalse(self.fs.exists(f"{self.url}/{path}"), path)
        self.assertTrue(self.fs.exists(self.url))
        self.assertTrue(self.fs.isdir(f"{self.url}/1"))
        self.assertFalse(self.fs.exists("cairn://test/no-such-run"))
        with self.assertRaises(FileNotFoundError):
            self.fs.open(f"{self.url}/1/b")
        self.assertIn(self.name, self.fs.ls("cairn://test", detail=False))

    def test_a_transaction_is_one_checkpoint_or_nothing(self):
        with self.fs.transaction:
            for at in range(20):
                self.put(f"5/file-{at:02}", b"x" * at)
        self.assertEqual(len(self.fs.ls(f"{self.url}/5")), 20)
        with self.assertRaises(RuntimeError):
            with self.fs.transaction:
                self.put("6/file", b"x")
                raise RuntimeError
        self.assertFalse(self.fs.exists(f"{self.url}/6"))

    def test_a_write_that_fails_leaves_no_checkpoint(self):
        with self.assertRaises(RuntimeError):
            with self.fs.open(f"{self.url}/7/file", "wb") as file:
                file.write(b"half")
                raise RuntimeError
        self.assertFalse(self.fs.exists(f"{self.url}/7"))

    def test_a_file_that_an_exception_closes_by_any_way_of_opening_it_leaves_no_checkpoint(self):
        """fsspec.open() and files of text only call close(), as they do at the end of a file that is whole."""
        for number, opened in enumerate((lambda url: fsspec.open(url, "wb"), lambda url: fsspec.open(url, "wb", compression="gzip"),
                                         lambda url: self.fs.open(url, "w"))):
            url = f"{self.url}/{number}/file"
            with self.assertWarnsRegex(RuntimeWarning, f"{number}/file is not saved, because .* KeyError"):
                with self.assertRaises(KeyError):
                    with opened(url) as file:
                        file.write("half" if number == 2 else b"half")
                        raise KeyError
            self.assertFalse(self.fs.exists(url))
        try:
            raise KeyError
        except KeyError:                                     # a last checkpoint, where the loop has failed
            with fsspec.open(f"{self.url}/9/file", "wb") as file:
                file.write(b"whole")
        self.assertEqual(self.fs.cat(f"{self.url}/9/file"), b"whole")

    def test_a_file_and_its_checkpoint_have_the_time_when_it_was_saved(self):
        before = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=1)
        with self.fs.transaction:
            self.put("1/deep/a", b"a")
            self.assertLess(before, self.fs.modified(f"{self.url}/1/deep/a"))  # not committed yet
            self.assertLess(before, self.fs.created(f"{self.url}/1/deep"))
            self.assertTrue(self.fs.isdir(f"{self.url}/1/deep"))
        saved = self.world.run(self.name).find(1).saved_at
        for path in ("1", "1/deep", "1/deep/a", "latest/deep/a"):
            for found in (self.fs.modified(f"{self.url}/{path}"), self.fs.created(f"{self.url}/{path}")):
                self.assertEqual(found.isoformat(timespec="milliseconds").replace("+00:00", "Z"), saved)
        with self.assertRaises(FileNotFoundError):
            self.fs.modified(f"{self.url}/1/none")
        with self.assertRaisesRegex(cairn.CairnError, "has no time"):
            self.fs.modified(self.url)

    def test_a_file_that_must_be_new_is_refused_where_there_is_one(self):
        self.put("1/a", b"a")
        with self.assertRaises(FileExistsError):
            self.fs.open(f"{self.url}/1/a", "xb")
        with self.fs.open(f"{self.url}/1/b", "xb") as file:
            file.write(b"b")
        self.assertEqual(self.files(1), {"a": b"a", "b": b"b"})

    def test_a_file_has_the_size_that_fsspec_reads_blocks_by(self):
        self.put("1/a", b"0123456789")
        self.assertEqual(self.fs.read_block(f"{self.url}/1/a", 8, 5), b"89")

    def test_ranges_of_many_files_come_in_one_call(self):
        with self.fs.transaction:
            for at in range(5):
                self.put(f"8/{at}", bytes(range(100)))
        paths = [f"{self.url}/8/{at}" for at in range(5)]
        found = self.fs.cat_ranges(paths, [0, 10, 20, -5, 99], [10, 20, 20, None, 1000])
        self.assertEqual(found, [bytes(range(10)), bytes(range(10, 20)), b"", bytes(range(95, 100)), bytes([99])])
        with self.assertRaises(FileNotFoundError):
            self.fs.cat_ranges([f"{self.url}/8/none"], [0], [1], on_error="raise")

    def test_folders_named_as_frameworks_name_them_are_their_steps(self):
        self.put("step-100/model/a", b"a")
        self.put("step-100/model/b", b"bb")
        self.put("epoch_3/recipe_state.pt", b"x")
        run = self.world.run(self.name)
        self.assertEqual([row.step for row in run.list() if not row.superseded], [100, 3])
        self.assertEqual(self.fs.ls(self.url, detail=False), [f"{self.name}/epoch_3", f"{self.name}/step-100"])
        self.assertTrue(self.fs.isdir(f"{self.url}/step-100") and self.fs.isfile(f"{self.url}/step-100/model/b"))
        self.assertFalse(self.fs.exists(f"{self.url}/step-3") or self.fs.exists(f"{self.url}/epoch_100"))
        self.assertEqual(self.fs.cat(f"{self.url}/100/model/a"), b"a")
        run.alias("step-7", 3)                               # an alias is one, also of such a name
        self.assertEqual(self.fs.cat(f"{self.url}/step-7/recipe_state.pt"), b"x")
        with self.assertRaisesRegex(Exception, "would replace"):
            self.put("epoch_100/other", b"")
        with self.assertRaisesRegex(Exception, "would replace"):
            self.put("100/other", b"")
        self.assertEqual(self.fs.cat(f"{self.url}/step-100/model/b"), b"bb")
        self.fs.rm(f"{self.url}/step-100", recursive=True)
        self.assertEqual(self.fs.ls(self.url, detail=False), [f"{self.name}/epoch_3"])

    def test_a_checkpoint_is_removed_whole_and_not_in_part(self):
        self.put("9/a", b"a")
        self.put("10/a", b"a")
        with self.assertRaises(PermissionError):
            self.fs.rm(f"{self.url}/9/a")
        self.fs.rm(f"{self.url}/9", recursive=True)
        self.assertFalse(self.fs.exists(f"{self.url}/9"))
        self.assertTrue(self.fs.exists(f"{self.url}/10"))

    def test_a_look_at_names_and_sizes_keeps_no_checkpoint_from_being_removed(self):
        for step in (9, 10):
            self.put(f"{step}/a", b"abc")
        run = self.world.run(self.name)
        looked = cairn.Checkpoint(session_of(run).open("9", look=True))
        self.assertEqual([(name, shard.bytes) for name, shard in looked.shards.items()], [("a", 3)])
        self.assertTrue(self.fs.isfile(f"{self.url}/9/a"))
        with run.at(10):
            with self.assertRaisesRegex(Exception, "is being read"):
                run.remove(10)
        run.remove(9)
        with self.assertRaises(Exception):
            looked.shard("a").read()
        self.assertEqual(self.fs.ls(self.url, detail=False), [f"{self.name}/10"])

    def test_pandas_writes_and_reads_by_the_url(self):
        pandas = module_or_skip(self, "pandas")
        frame = pandas.DataFrame({"step": [1, 2], "loss": [0.5, 0.25]})
        frame.to_csv(f"{self.url}/11/losses.csv", index=False)
        self.assertTrue(pandas.read_csv(f"{self.url}/latest/losses.csv").equals(frame))

    def test_arrow_copies_a_folder_as_ray_train_does(self):
        module_or_skip(self, "pyarrow")
        import pyarrow.fs as arrow
        local, remote, back = self.folder / "local", f"{self.name}/12", self.folder / "back"
        (local / "deep").mkdir(parents=True)
        for at in range(8):
            (local / "deep" / f"{at}.bin").write_bytes(bytes([at]) * 1000)
        (local / "model.pt").write_bytes(b"model")
        here, there = arrow.LocalFileSystem(), arrow.PyFileSystem(arrow.FSSpecHandler(self.fs))
        arrow.copy_files(str(local), remote, source_filesystem=here, destination_filesystem=there)
        found = {info.path: info.size for info in there.get_file_info(arrow.FileSelector(remote, recursive=True)) if info.is_file}
        self.assertEqual(found, {f"{remote}/model.pt": 5, **{f"{remote}/deep/{at}.bin": 1000 for at in range(8)}})
        back.mkdir()
        arrow.copy_files(remote, str(back), source_filesystem=there, destination_filesystem=here)
        self.assertEqual((back / "deep" / "7.bin").read_bytes(), bytes([7]) * 1000)

    def test_torch_save_and_load_on_an_opened_file(self):
        torch = torch_or_skip(self)
        state = {"w": torch.randn(100, 100), "step": 3}
        with fsspec.open(f"{self.url}/3/model.pt", "wb") as file:
            torch.save(state, file)
        with fsspec.open(f"{self.url}/latest/model.pt", "rb") as file:
            found = torch.load(file, weights_only=True)
        self.assertTrue(torch.equal(found["w"], state["w"]))

    def test_a_file_of_torch_is_saved_and_loaded_by_one_call(self):
        torch = torch_or_skip(self)
        import cairn
        cairn.torch.save({"w": torch.arange(5.0)}, f"{self.url}/4/model.pt")
        self.assertEqual(self.world.run(self.name).latest().step, 4)
        self.assertEqual(cairn.torch.load(f"{self.url}/latest/model.pt")["w"].tolist(), [0.0, 1.0, 2.0, 3.0, 4.0])
        cairn.torch.save({"set": {1}, "odd": range(3)}, f"{self.url}/5/odd.pt")
        with self.assertRaisesRegex(Exception, "[Ww]eights"):
            cairn.torch.load(f"{self.url}/5/odd.pt")
        self.assertEqual(cairn.torch.load(f"{self.url}/5/odd.pt", weights_only=False)["odd"], range(3))

    def test_dcp_saves_and_loads_by_the_url_alone(self):
        torch = torch_or_skip(self)
        import torch.distributed.checkpoint as dcp
        state = {"w": torch.randn(64, 64), "nested": {"b": torch.arange(5)}, "step": 7}
        dcp.save(state, checkpoint_id=f"{self.url}/1200", no_dist=True)
        found = {"w": torch.zeros(64, 64), "nested": {"b": torch.zeros(5, dtype=torch.int64)}, "step": 0}
        dcp.load(found, checkpoint_id=f"{self.url}/1200", no_dist=True)
        self.assertTrue(torch.equal(found["w"], state["w"]) and torch.equal(found["nested"]["b"], state["nested"]["b"]))
        self.assertEqual(found["step"], 7)
        state["step"] = 8
        dcp.save(state, checkpoint_id=f"{self.url}/1200", no_dist=True)  # again: the newer one counts
        dcp.load(found, checkpoint_id=f"{self.url}/1200", no_dist=True)
        self.assertEqual(found["step"], 8)

    def test_dcp_saves_into_folders_of_torchtitans_names(self):
        torch = torch_or_skip(self)
        import torch.distributed.checkpoint as dcp
        for step in (10, 20):
            dcp.async_save({"w": torch.full((8,), float(step))}, checkpoint_id=f"{self.url}/step-{step}", no_dist=True).result()
        found = [name.rpartition("/")[2] for name in self.fs.ls(self.url, detail=False)]
        self.assertEqual([name for name in found if self.fs.isfile(f"{self.url}/{name}/.metadata")], ["step-10", "step-20"])
        into = {"w": torch.zeros(8)}
        dcp.load(into, checkpoint_id=f"{self.url}/step-10", no_dist=True)
        self.assertEqual(into["w"][0], 10)

    def test_dcp_saves_asynchronously_on_three_ranks_of_which_one_has_no_file(self):
        torch_or_skip(self)
        ranks.run("""
            import fsspec
            from cairn.fs import CairnFileSystem
            fsspec.register_implementation("cairn", CairnFileSystem, clobber=True)
            url = sys.argv[1]
            big = torch.arange(1000.0) * (RANK + 1)
            for step in (1, 2):
                state = {f"own.{RANK}": big + step, "same": torch.full((8,), float(step))} if RANK < 2 else {}
                dcp.async_save(state, checkpoint_id=f"{url}/{step}").result()
            found = {"own.0": torch.zeros(1000), "own.1": torch.zeros(1000), "same": torch.zeros(8)}
            dcp.load(found, checkpoint_id=f"{url}/2")
            assert torch.equal(found["own.1"], torch.arange(1000.0) * 2 + 2) and found["same"][0] == 2
        """, 3, self.url, env={"CAIRN_JOB": ""})
        self.assertEqual(len(self.fs.ls(self.url)), 2)


def module_or_skip(case, name):
    try:
        return importlib.import_module(name)
    except ImportError:
        case.skipTest(f"no {name} for this Python")


def torch_or_skip(case):
    return module_or_skip(case, "torch")


if __name__ == "__main__":
    package.main()
