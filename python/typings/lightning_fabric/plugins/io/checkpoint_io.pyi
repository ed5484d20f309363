# SPDX-License-Identifier: Apache-2.0
from lightning.fabric.plugins.io.checkpoint_io import CheckpointIO as CheckpointIO
