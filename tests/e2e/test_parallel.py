# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
"""DeepSpeed checkpoints that are cut in other ways than by ZeRO alone, written by DeepSpeed itself:
exported and imported to the values that its ranks held; what is missing or damaged is named, and
leaves nothing."""
import json
import re
import shutil
import struct
import unittest
import zipfile

from test_export import ZERO, export, read
from test_stored_tensors import Case, Restored

PARALLEL = ZERO / "parallel"
EXPECTED = json.loads((PARALLEL / "expected.json").read_text())["cases"]
DTYPES = {"float32": "F32", "int64": "I64", "bfloat16": "BF16", "float16": "F16"}
CASES = ("bf16_optimizer", "stage0", "experts", "tensor_parallel", "pipeline", "aligned")


def wanted(case):
    return {name: (DTYPES[row["dtype"]], row["shape"], bytes.fromhex(row["hex"]))
            for name, row in EXPECTED[case].items()}


def rounded(data):
    """Values of fp32 as bf16."""
    words = struct.unpack(f"<{len(data) // 4}I", data)
    return struct.pack(f"<{len(words)}H", *((word + 0x7fff + (word >> 16 & 1)) >> 16 for word in words))


def rewritten(path, change):
    """The torch file with other bytes in its entries."""
    with zipfile.ZipFile(path) as whole:
        entries = {name: whole.read(name) for name in whole.namelist()}
    with zipfile.ZipFile(path, "w") as changed:
        for name, data in entries.items():
            changed.writestr(name, change(name, data))


def repickled(path, change):
    """The torch file with other bytes in its pickle."""
    rewritten(path, lambda name, data: change(data) if name.endswith("data.pkl") else data)


class Parallel(Case, Restored):
    def copy(self, case):
        shutil.rmtree(self.folder / case, ignore_errors=True)
        shutil.copytree(PARALLEL / case, self.folder / case)
        return self.folder / case / "step2"

    def refuse(self, source, status, *words, flags=()):
        ran = export(source, self.out, *flags, status=status)
        for word in words:
            self.assertIn(word, ran.stderr)
        self.assertEqual(list(self.out.glob("*")) if self.out.exists() else [], [])

    def check(self, case, tensors):
        """Each value is what the ranks held."""
        expected = wanted(case)
        self.assertEqual(set(tensors), set(expected))
        for name, row in expected.items():
            self.assertEqual(tensors[name], row, (case, name))

    def test_each_checkpoint_is_exported_to_what_its_ranks_held(self):
        for case in CASES:
            told = json.loads(export(PARALLEL / case, self.folder / case, "--json").stdout)
            tensors = read(self.folder / case)
            for alias, of in told["aliases"].items():
                tensors[alias] = tensors[of]
            self.check(case, tensors)
            self.assertEqual([row["name"] for row in told["left_out"]], ["optimizer.state."], case)

    def test_each_checkpoint_restores_by_name_and_is_exported_from_the_store(self):
        for step, case in enumerate(("experts", "tensor_parallel", "pipeline")):
            self.imported("deepspeed", PARALLEL / case, f"p/{case}@{step}")
            _, tensors = self.both(f"p/{case}@{step}", case)
            self.check(case, tensors)
            for name, (_, _, data) in wanted(case).items():
                self.assertEqual(self.restored(f"p/{case}", name), data, (case, name))

    def test_the_optimizers_state_of_tensor_parallel_ranks_is_cut_like_the_parameters(self):
        export(PARALLEL / "tensor_parallel", self.out, "--optimizer")
        tensors, state = read(self.out), wanted("universal_state")
        moments = {name: row for name, row in state.items() if not name.endswith(".step")}
        self.assertEqual(len(moments), 14)
        for name, row in moments.items():
            self.assertEqual(tensors[name], row, name)

    def test_a_universal_checkpoint_is_taken_with_what_the_optimizer_keeps(self):
        source = PARALLEL / "universal"
        told = json.loads(export(source, self.out, "--json").stdout)
        self.assertEqual((told["format"], read(self.out)), ("deepspeed-universal", wanted("universal")))
        self.assertEqual({row["name"] for row in told["left_out"]}, {"optimizer.state.", "zero/optimizer_state.pt"})
        everything = {**wanted("universal"), **wanted("universal_state")}
        export(source / "step2_universal", self.folder / "all", "--optimizer")
        self.assertEqual(read(self.folder / "all"), everything)
        self.imported("deepspeed", source, "p/universal@1")
        _, tensors = self.both("p/universal@1", "universal", "--optimizer")
        self.assertEqual(tensors, everything)
        folder = self.folder / "universal"
        shutil.copytree(source, folder)
        path = folder / "step2_universal" / "zero" / "row.weight" / "fp32.pt"
        whole = path.read_bytes()
        for size in (0, len(whole) // 2, len(whole) - 1):
            path.write_bytes(whole[:size])
            self.refuse_in(folder, "bad", 7, "zero/row.weight/fp32.pt")
        path.unlink()
        self.refuse_in(folder, "bad", 7, "zero/row.weight has no fp32.pt")

    def refuse_in(self, source, out, status, *words):
        ran = export(source, self.folder / out, status=status)
        for word in words:
            self.assertIn(word, ran.stderr)
        self.assertFalse((self.folder / out).exists())

    def test_a_rank_or_an_expert_that_is_missing_is_named(self):
        folder = self.copy("tensor_parallel")
        (folder / "mp_rank_01_model_states.pt").unlink()
        self.refuse(folder, 7, "rank 1")
        folder = self.copy("tensor_parallel")
        (folder / "bf16_zero_pp_rank_1_mp_rank_01_optim_states.pt").unlink()
        self.refuse(folder, 7, "rank 1", "2 ranks")
        for case in ("tensor_parallel", "pipeline"):
            folder = self.copy(case)
            for path in folder.glob("*mp_rank_01*"):
                path.unlink()
            self.refuse(folder, 7, "2 model parallel ranks")
        folder = self.copy("experts")
        (folder / "layer_0_expert_3_mp_rank_00_model_states.pt").unlink()
        self.refuse(folder, 7, "layer_0_expert_3_mp_rank_00_model_states.pt is not there")
        folder = self.copy("experts")
        shutil.copy(folder / "layer_0_expert_3_mp_rank_00_model_states.pt",
                    folder / "layer_0_expert_4_mp_rank_00_model_states.pt")
        self.refuse(folder, 7, "6 experts, and files of 7 experts are there")
        folder = self.copy("experts")
        for path in folder.glob("layer_*_expert_*"):
            path.unlink()
        self.refuse(folder, 7, "mp_rank_00_model_states.pt speaks of experts in 2 layers")
        folder = self.copy("pipeline")
        for path in folder.glob("*mp_rank_01_model*"):
            path.unlink()
        self.refuse(folder, 7, "rank 1")
        folder = self.copy("bf16_optimizer")
        for path in folder.glob("*_optim_states.pt"):
            path.unlink()
        self.refuse(folder, 7, "ZeRO of stage 1")

    def test_fp32_values_and_moments_of_experts_are_those_that_deepspeed_loads(self):
        """In both orders that ranks may have; one group is cut over two ranks for each expert."""
        for step, case in enumerate(("experts_dp4", "experts_dp4_data_first")):
            told = json.loads(export(PARALLEL / case, self.folder / case, "--optimizer", "--json").stdout)
            self.assertEqual(told["left_out"], [])
            self.imported("deepspeed", PARALLEL / case, f"p/{case}@{step}")
            for tensors in (read(self.folder / case),
                            self.both(f"p/{case}@{step}", f"{case}_stored", "--optimizer")[1]):
                steps = {name: row for name, row in tensors.items() if name.endswith(".step")}
                self.assertEqual({name: row for name, row in tensors.items() if name not in steps}, wanted(case))
                self.assertEqual({row[2] for row in steps.values()}, {struct.pack("<f", 2)})
                self.assertEqual(len(steps), len([n for n in tensors if n.endswith(".exp_avg")]))
        expected = wanted("experts_dp4_data_first")
        frozen = {name for name in expected if expected[name][0] == "F16"}
        self.assertEqual(len(frozen), 8)  # a bias of each expert
        export(PARALLEL / "experts_dp4_data_first", self.out, "--exclude-frozen")
        self.assertEqual(set(read(self.out)), {name for name in expected if name not in frozen
                                               and not name.startswith("optimizer.state.")})

    def blank(self, folder, *kept):
        """All that the files hold is 0, but some storages of the optimizer's."""
        for path in folder.glob("*.pt"):
            def change(name, data):
                number = re.search(r"/data/(\d+)$", name)
                optimizer = path.name.endswith("_optim_states.pt")
                keep = not number or (optimizer and int(number[1]) in kept)
                return data if keep else bytes(len(data))
            rewritten(path, change)
        return folder

    def test_experts_whose_values_fit_both_orders_of_ranks_are_in_that_of_the_configuration(self):
        case = "experts_dp4_data_first"
        folder, keys = self.blank(self.copy(case), 1, 4, 7), 0  # those of exp_avg
        export(folder, self.out, "--optimizer")
        tensors = read(self.out)
        for name, row in wanted(case).items():
            if name.startswith("optimizer.") and ".first.deepspeed_moe.experts" in name:
                self.assertEqual(tensors[name][2] == row[2], name.endswith(".exp_avg"), name)
                keys += 1
        self.assertEqual(keys, 4 * 3 * 2)
        model = folder / "mp_rank_00_model_states.pt"
        repickled(model, lambda data: data.replace(b"use_data_before", b"use_data_behind"))
        export(folder, self.folder / "other", "--optimizer")
        self.assertNotEqual(read(self.folder / "other"), tensors)
        shutil.rmtree(self.out)
        repickled(model, lambda data: data.replace(b"ds_config", b"ds_c0nfig"))
        self.refuse(folder, 7, "first.deepspeed_moe.experts.deepspeed_experts.",
                    "fit two orders of the ranks", "no ds_config", flags=["--optimizer"])
        self.blank(folder)
        export(folder, self.out, "--optimizer")  # then it makes no difference
        self.assertEqual(set(read(self.out)), set(tensors))

    def test_a_step_of_experts_is_that_of_a_rank_that_trains_them(self):
        folder = self.copy("experts_dp4")
        rewritten(folder / "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt",
                  lambda name, data: bytes(4) if "/data/" in name and len(data) == 4 else data)
        export(folder, self.out, "--optimizer")
        layer = "deepspeed_moe.experts.deepspeed_experts"
        steps = {name.removeprefix("optimizer.state.").removesuffix(".step"):
                 struct.unpack("<f", row[2])[0]
                 for name, row in read(self.out).items() if name.endswith(".step")}
        self.assertEqual({name for name, step in steps.items() if step}, {
            name for name in steps if re.match(
                rf"first.{layer}.[23]|second.{layer}.[123]", name)})

    def test_experts_that_fit_no_order_of_ranks_or_no_group_are_named(self):
        layer = "first.deepspeed_moe.experts.deepspeed_experts"
        for expert in (0, 3):
            folder = self.copy("experts_dp4")
            path = folder / f"layer_0_expert_{expert}_mp_rank_00_model_states.pt"
            rewritten(path, lambda name, data: data[2:] + data[:2] if name.endswith("/data/2") else data)
            self.refuse(folder, 7, f"{layer}.{expert}.1.weight: its fp32 values, rounded", "in no order")
        folder = self.copy("experts_dp4")
        path = folder / "layer_0_expert_2_mp_rank_00_model_states.pt"
        repickled(path, lambda data: data.replace(b"experts.2.1.bias", b"experts.2.1.bIas"))
        self.refuse(folder, 7, f"no file of an expert has {layer}.2.1.bias")
        # the group that all ranks hold, then that of experts of two, and that of experts of one
        for counts, which, words in (
                ((4, 4, 1), "*_1_mp*", "partition_count says 4 for group"),
                ((4, 3, 1), "*", "it is cut over 3 ranks, of 4"),
                ((2, 4, 1), "*", "group 0: it is cut over 2 of 4 ranks"),
                ((4, 4, 1), "*", "elements that no parameter uses"),
                ((4, 2, 2), "*", "group"),
                ((4, 1, 1), "*", "files of 4 experts of its layer are there, for 4 ranks")):
            folder, changed = self.copy("experts_dp4"), []

            def recount(data):
                at = data.index(b"partition_count")
                found = re.search(rb"\(K\x04K(.)K(.)e", data[at:], re.DOTALL)
                order = [0, 1, 2] if found[1] == b"\2" else [0, 2, 1]
                changed.append(found)
                return (data[:at + found.start()] + b"(K%cK%cK%ce" % tuple(
                    counts[i] for i in order) + data[at + found.end():])
            for path in folder.glob(which + "_optim_states.pt"):
                repickled(path, recount)
            self.assertTrue(changed)
            self.refuse(folder, 7, words)

    def test_padding_between_parameters_is_what_the_files_say(self):
        export(PARALLEL / "aligned", self.out, "--optimizer")
        tensors, expected = read(self.out), wanted("aligned")
        for name in {name for name in tensors if not name.startswith("optimizer.")}:
            self.assertEqual(tensors[name], expected[name])
            trained = expected[name][0] == "F32" and f"optimizer.state.{name}.step" in tensors
            self.assertEqual(trained, name.startswith(("embed", "first", "last")), name)
        shutil.rmtree(self.out)
        for before, after, words in ((b"K\x03K\x05K\x03K\x03", b"K\x03K\x05K\x03K\x0b", "elements"),
                                     (b"K\x03K\x05K\x03K\x03", b"K\x03K\x05K\x03", "last.bias")):
            folder = self.copy("aligned")
            repickled(folder / "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt",
                      lambda data: data.replace(before, after))
            self.refuse(folder, 7, words)

    def test_experts_of_a_pipelines_stages_and_of_tensor_parallel_ranks_are_put_together(self):
        rules = {"experts_pipeline": [], "experts_tensor_parallel": ["--tp-rule", "*.deepspeed_experts.*=0"]}
        for step, (case, flags) in enumerate(rules.items()):
            export(PARALLEL / case, self.folder / case, "--optimizer", *flags)
            self.imported("deepspeed", PARALLEL / case, f"p/{case}@{step}", *flags)
            for tensors in (read(self.folder / case),
                            self.both(f"p/{case}@{step}", f"{case}_stored", "--optimizer")[1]):
                steps = {name for name in tensors if name.endswith(".step")}
                self.assertEqual({name: row for name, row in tensors.items() if name not in steps}, wanted(case))
                self.assertEqual({tensors[name][2] for name in steps}, {struct.pack("<f", 2)})

    def test_experts_that_are_cut_in_other_ways_are_refused_by_name(self):
        cut, layer = "experts_tensor_parallel", "block.moe.deepspeed_moe.experts.deepspeed_experts"
        self.refuse(PARALLEL / cut, 1, f"{layer}.0.", "the ranks differ", "--tp-rule")
        folder = self.copy(cut)
        for expert in range(4):  # as without enable_expert_tensor_parallelism
            (folder / f"layer_0_expert_{expert}_mp_rank_0{expert < 2:d}_model_states.pt").unlink()
        self.refuse(folder, 1, "do not cut but share out", "one of 2 ranks")
        for case in ("experts_pipeline", cut):
            folder = self.copy(case)
            (folder / "layer_0_expert_3_mp_rank_01_model_states.pt").unlink()
            self.refuse(folder, 7, "rank 1", "layer 0 has 4 experts, and files of 3")
            folder = self.copy(case)
            for path in folder.glob("*mp_rank_01*"):
                if not path.name.startswith("layer_"):
                    path.unlink()
            self.refuse(folder, 7, "_mp_rank_01_model_states.pt is there, and no other file")
        for before, after, status, words in (
                (b"checkpoint_parallel_dimensions", b"checkpoint_parallel_dimensi0ns", 1,
                 "no checkpoint_parallel_dimensions"),
                (b"tp_degree", b"tp_degr33", 1, "no checkpoint_parallel_dimensions")):
            folder = self.copy("experts_pipeline")
            for path in folder.glob("mp_rank_0?_model_states.pt"):
                repickled(path, lambda data: data.replace(before, after))
            self.refuse(folder, status, words)
        for degrees, status, words in (
                ((2, 2), 1, "experts of a pipeline of 2 stages that are cut over 2 tensor"),
                ((3, 1), 7, "written by 3 model parallel ranks, and files of 2")):
            folder = self.copy("experts_pipeline")
            repickled(folder / "mp_rank_00_model_states.pt", lambda data: re.sub(
                rb"(pp_degree.{2,5}K)\x02(.{1,9}tp_degree.{2,5}K)\x01",
                lambda m: m[1] + bytes(degrees[:1]) + m[2] + bytes(degrees[1:]), data,
                flags=re.DOTALL))
            self.refuse(folder, status, words)
        folder = self.copy("experts_pipeline")
        shutil.copy(folder / "layer_0_expert_3_mp_rank_01_model_states.pt", folder / "layer_01-model_states.pt")
        self.refuse(folder, 1, "files of experts beside files of a pipeline's layers")
        folder = self.copy("experts_dp4")
        repickled(folder / "mp_rank_00_model_states.pt", lambda data: re.sub(
            rb"(ds_autoep_layers(?:q.|r....))N", lambda m: m[1] + b"\x88", data,
            flags=re.DOTALL))
        self.refuse(folder, 1, "mp_rank_00_model_states.pt: ds_autoep_layers")

    def test_a_file_that_is_cut_or_changed_is_named_and_nothing_is_written(self):
        for case in ("experts", "tensor_parallel", "pipeline"):
            folder = self.copy(case)
            for path in sorted(folder.glob("*.pt")):
                whole = path.read_bytes()
                for size in [*range(0, len(whole), 4096), len(whole) - 1]:
                    path.write_bytes(whole[:size])
                    self.refuse(folder, 7, path.name)
                path.write_bytes(whole)

    def test_a_flipped_byte_never_gives_other_names_or_shapes_in_silence(self):
        """Tensors have no checksum here; what describes them is refused, or says the same."""
        for case, name in (("tensor_parallel", "mp_rank_01_model_states.pt"),
                           ("experts", "layer_1_expert_1_mp_rank_00_model_states.pt"),
                           ("pipeline", "bf16_zero_pp_rank_1_mp_rank_01_optim_states.pt")):
            path = self.copy(case) / name
            whole, expected = path.read_bytes(), wanted(case)
            for place in range(0, len(whole), 131):
                data = bytearray(whole)
                data[place] ^= 0x20
                path.write_bytes(data)
                ran = export(path.parent, self.out, status=None)
                if ran.returncode:
                    self.assertIn(ran.returncode, (1, 2, 3, 7), (place, ran.stderr))
                    self.assertFalse(self.out.exists() and list(self.out.iterdir()))
                    continue
                self.assertEqual({key: row[:2] for key, row in read(self.out).items()},
                                 {key: row[:2] for key, row in expected.items()}, (name, place))
                shutil.rmtree(self.out)

    def with_pattern(self, before, after):
        """The tensor parallel checkpoint, with another text of the same size among its rules."""
        folder = self.copy("tensor_parallel")
        self.assertEqual(len(before), len(after))
        for path in folder.glob("mp_rank_0?_model_states.pt"):
            def change(data):
                self.assertIn(before, data)
                return data.replace(before, after)
            repickled(path, change)
        return folder

    def test_ranks_that_differ_in_what_they_all_have_are_not_averaged(self):
        folder = self.with_pattern(b"^norm", b"^colu")
        self.refuse(folder, 1, "column.", "ranks 0 and 1 differ")

    def test_what_no_rule_tells_is_refused_and_not_guessed(self):
        for before, after, status, words in (
                (b"universal_checkpoint_info", b"universal_checkpoint_inf0", 1,
                 "column.weight: without universal_checkpoint_info"),
                (b"parameter_with_2_sub_params_cat_dim_0",
                 b"autotp_unsupported_parameter_patterns", 1,
                 "autotp_unsupported_parameter_patterns"),
                (b"original_vocab_size", b"original_vocab_s1ze", 7, "original_vocab_size"),
                (b"row\\.weight", b"r(?:ow)w.*t", 1, "r(?:ow)w.*t"),
                (b"row\\.weight", b"column.bias", 7, "dimension 1")):
            self.refuse(self.with_pattern(before, after), status, words)

    def without_patterns(self):
        return self.with_pattern(b"universal_checkpoint_info", b"universal_checkpoint_inf0")

    def test_names_of_megatron_are_cut_as_it_cuts_them_and_what_is_equal_is_one(self):
        state = {name for name in wanted("megatron") if name.startswith("optimizer.state.")}
        self.assertEqual(len(state), 13)
        export(PARALLEL / "megatron", self.out, "--optimizer")
        tensors = read(self.out)
        for name, row in wanted("megatron").items():
            self.assertEqual(tensors[name], row, name)
        self.assertEqual(tensors["word_embeddings.weight"][1], [12, 6])  # with its padding
        shutil.rmtree(self.out)
        export(PARALLEL / "megatron", self.out, "--tp-rule", "word_emb*=0:11", "--optimizer")
        tensors = read(self.out)
        for name in ("word_embeddings.weight", "optimizer.state.word_embeddings.weight.exp_avg"):
            self.assertEqual(tensors[name][1], [11, 6])
            self.assertEqual(tensors[name][2], wanted("megatron")[name][2][:4 * 11 * 6])

    def test_rules_that_are_told_cut_what_no_pattern_tells(self):
        folder = self.without_patterns()
        rules = "word_embeddings.weight=0:11,column.*=0,row.weight=1,gates.*=halves,norm=replicated"
        listed = self.world.json("inspect", folder, "--tp-rule", rules)
        self.assertIn([11, 6], [row["shape"] for row in listed["tensors"]])
        export(folder, self.out, "--tp-rule", rules)
        self.check("tensor_parallel", read(self.out))
        self.imported("deepspeed", folder, "p/told@1", "--tp-rule", rules)
        for name, (_, _, data) in wanted("tensor_parallel").items():
            self.assertEqual(self.restored("p/told", name), data, name)
        export(folder, self.folder / "some", "--tp-rule", "column.*=0,row.*=1,gates.*=halves")
        self.assertEqual(read(self.folder / "some")["norm"], wanted("tensor_parallel")["norm"])

    def test_rules_hold_for_each_side_of_a_diff_that_is_deepspeeds(self):
        folder = self.without_patterns()
        rules = "word_embeddings.weight=0:11,column.*=0,row.weight=1,gates.*=halves,norm=replicated"
        export(folder, self.out, "--tp-rule", rules)
        self.world.cairn("diff", folder, self.out, status=1)
        for a, b in ((folder, self.out), (self.out, folder), (folder, folder)):
            told = self.world.json("diff", a, b, "--tp-rule", rules)
            self.assertLessEqual({row["verdict"] for row in told["differ"]}, {"only in A", "only in B"})
            self.assertGreaterEqual(told["same"], len(read(self.out)))
        ran = self.world.cairn("diff", self.out, self.out, "--tp-rule", "*=0", status=2)
        self.assertIn("--tp-rule is for DeepSpeed's files, and these are hf-safetensors and "
                      "hf-safetensors", ran.stderr)

    def test_stages_of_a_pipeline_that_are_cut_are_put_together_one_by_one(self):
        expected = wanted("pipeline_cut")
        tied = expected["tied_modules.embed.word_embeddings.weight"]
        expected["0.word_embeddings.weight"] = ("BF16", tied[1], rounded(tied[2]))
        self.imported("deepspeed", PARALLEL / "pipeline_cut", "p/cut@1")
        self.assertEqual(self.both("p/cut@1", "stored")[1], expected)
        export(PARALLEL / "pipeline_cut", self.out, "--optimizer")
        tensors = read(self.out)
        self.assertEqual({name: tensors[name] for name in expected}, expected)
        for name, row in wanted("pipeline_cut").items():
            if not name.endswith("scale"):
                self.assertEqual(tensors[f"optimizer.state.{name}.exp_avg"][1], row[1])
        shutil.rmtree(self.out)
        folder = self.copy("pipeline_cut")
        for path in sorted(folder.glob("*.pt")):
            whole = path.read_bytes()
            for size in (0, len(whole) // 2, len(whole) - 1):
                path.write_bytes(whole[:size])
                self.refuse(folder, 7, path.name)
            path.unlink()
            words = [path.name] if path.name.startswith("layer") else ["rank"]
            self.refuse(folder, 7, *words)
            path.write_bytes(whole)
        for path in folder.glob("*mp_rank_03*"):
            path.unlink()
        self.refuse(folder, 7, "2 tensor parallel ranks", "3 model parallel ranks")

    def test_a_buffer_of_a_layer_in_which_its_ranks_differ_is_named(self):
        folder = self.copy("pipeline_cut")
        path = folder / "layer_02-model_01-model_states.pt"
        value = wanted("pipeline_cut")["2.scale"][2]
        whole = path.read_bytes()
        self.assertEqual(whole.count(value), 1)
        path.write_bytes(whole.replace(value, value[4:] + value[:4]))
        self.refuse(folder, 1, "2.scale", "ranks 0 and 1 differ", "a buffer")

    def test_what_is_ambiguous_is_an_error_that_names_it_and_the_flag(self):
        folder = self.without_patterns()
        for rules, name in (("row.*=1,gates.*=0", "column.weight"), ("column.*=0,row.*=1", "gates.weight")):
            self.refuse(folder, 1, f"{name}: without", "ranks differ", "--tp-rule", flags=("--tp-rule", rules))

        def megatron(before, after):
            folder = self.copy("megatron")
            for path in folder.glob("mp_rank_0?_model_states.pt"):
                def change(data):
                    self.assertIn(before, data)
                    return data.replace(before, after)
                repickled(path, change)
            return folder
        self.refuse(megatron(b"checkpoint_version", b"checkpoint_versi0n"), 1, "query_key_value",
                    "checkpoint_version", "--tp-rule")
        self.refuse(megatron(b"mlp.dense_4h_to_h", b"mlp.dense_4h_to_g"), 1,
                    "mlp.dense_h_to_4h.weight", "gated", "--tp-rule")

    def test_equal_slices_of_one_value_are_not_taken_for_a_whole(self):
        folder = self.copy("megatron")
        for path in folder.glob("*_optim_states.pt"):
            blank = re.compile(rb"archive/data/|/data/\d+$")
            with zipfile.ZipFile(path) as whole:
                entries = {name: whole.read(name) for name in whole.namelist()}
            with zipfile.ZipFile(path, "w") as changed:
                for name, data in entries.items():
                    changed.writestr(name, bytes(len(data)) if blank.search(name.encode()) else data)
        self.refuse(folder, 1, "router.weight", "one value", "--tp-rule")
        export(folder, self.out, "--tp-rule", "router.*=replicated")
        self.assertEqual(set(read(self.out)["router.weight"][2]), {0})

    def test_a_rule_that_is_none_or_of_no_use_is_named(self):
        folder = self.without_patterns()
        for rule in ("norm", "=0", "norm=8", "norm=rows", "norm=1:4", "norm=0:0", "norm=0:x", ""):
            self.refuse(folder, 2, f"--tp-rule {rule}: it is GLOB=RULE", flags=("--tp-rule", f"column.*=0,{rule}"))
        self.refuse(folder, 2, "nothing*: no parameter",
                    flags=("--tp-rule", "column.*=0,row.*=1,gates.*=halves,nothing*=0"))
        self.refuse(folder, 1, "ranks 0 and 1 differ", flags=("--tp-rule", "column.*=replicated"))
        self.refuse(folder, 2, "no dimension 3", flags=("--tp-rule", "column.*=3"))
        self.refuse(PARALLEL / "stage0", 2, "no parameter", flags=("--tp-rule", "*=0"))
        self.refuse(PARALLEL / "universal", 2, "--tp-rule is for", flags=("--tp-rule", "*=0"))


if __name__ == "__main__":
    unittest.main()
