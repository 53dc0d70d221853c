"""Where the kernels run: on a GPU if there is one, else under the interpreter of Triton, chosen before import."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

import pytest
import torch

ON_GPU = torch.cuda.is_available()
if not ON_GPU:
    os.environ["TRITON_INTERPRET"] = "1"
    torch.set_num_threads(1)  # tensors are tiny, and the workers of one run share the cores
    from property_tests.gpu_room.interpreter import look_once

    look_once()

collect_ignore: list[str] = []
if not ON_GPU:
    collect_ignore += ["on_device"]  # graphs, sanitizers and large shapes need a GPU
else:
    if shutil.which("compute-sanitizer") is None:
        collect_ignore += ["on_device/test_sanitizer.py"]
    if importlib.util.find_spec("flashinfer") is None:
        collect_ignore += ["on_device/test_flashinfer.py"]
    if torch.cuda.device_count() < 2:
        collect_ignore += ["on_device/test_parallel_on_gpus.py"]
    if importlib.util.find_spec("safetensors") is None:  # a GPU's own torch may come without it
        collect_ignore += ["test_modules_loader.py", "test_acceptance_weights.py", "test_acceptance_texts.py"]
        collect_ignore += ["test_packagings.py", "test_replay_dspark.py", "test_modules_chain.py"]
    elif importlib.util.find_spec("tokenizers") is None:
        collect_ignore += ["test_acceptance_texts.py"]
if importlib.util.find_spec("transformers") is None or importlib.util.find_spec("dflash") is None:
    collect_ignore += ["test_modules_transformers.py"]  # a second opinion that no target installs


@pytest.fixture(scope="session")
def trained_pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a pair that knows a small language, and text of it; trained once, by the first worker that asks."""
    from property_tests.gpu_room.trained import shared

    folder = tmp_path_factory.getbasetemp()
    return shared((folder.parent if folder.name.startswith("popen-") else folder) / "trained-pair")


@pytest.fixture(scope="session")
def device() -> torch.device:
    """The device of the kernels under test."""
    return torch.device("cuda" if ON_GPU else "cpu")
