# SPDX-License-Identifier: Apache-2.0
# What cairn.deepspeed uses of DeepSpeed, which has no types.
from . import comm as comm
