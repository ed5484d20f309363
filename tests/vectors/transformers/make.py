#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the Hugging Face folders beside it, with transformers itself, and expected.json: what the
safetensors library reads from their files, and what transformers computes with the model.

Needs transformers and torch; run it again only to add a case. The versions are in expected.json.
"""
import json
import pathlib
import shutil

import safetensors
import safetensors.torch
import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
SMALL = {"vocab_size": 33, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 32}
# name: (configuration, type, size of a file)
CASES = {
    "llama_tied_cut": (transformers.LlamaConfig(**SMALL, tie_word_embeddings=True),
                       torch.bfloat16, "4KB"),
    "llama_whole": (transformers.LlamaConfig(**SMALL, tie_word_embeddings=False),
                    torch.float32, "1GB"),
    "mixtral_experts": (transformers.MixtralConfig(**SMALL, num_local_experts=3,
                                                   num_experts_per_tok=2), torch.float16, "6KB"),
    "gpt2_buffers": (transformers.GPT2Config(vocab_size=33, n_embd=16, n_layer=1, n_head=2,
                                             n_positions=32), torch.float32, "1GB"),
}


def main():
    expected = {"versions": {module.__name__: module.__version__
                             for module in (transformers, torch, safetensors)}, "cases": {}}
    for number, (name, (config, dtype, size)) in enumerate(CASES.items()):
        torch.manual_seed(number)
        folder = HERE / name
        shutil.rmtree(folder, ignore_errors=True)
        transformers.AutoModelForCausalLM.from_config(config).to(dtype).save_pretrained(
            folder, max_shard_size=size)
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
        tensors = {}
        for path in sorted(folder.glob("*.safetensors")):
            tensors.update(safetensors.torch.load_file(path))
        expected["cases"][name] = {
            "tensors": {key: [str(value.dtype), list(value.shape),
                              bytes(value.contiguous().reshape(-1).view(torch.uint8).tolist()).hex()]
                        for key, value in tensors.items()},
            "logits": model(torch.arange(12).reshape(1, 12)).logits.double().reshape(-1)[:8].tolist()}
    (HERE / "expected.json").write_text(json.dumps(expected, indent=0, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
