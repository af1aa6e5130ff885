"""The execution environment: what equal bits depend on beside the work. It is recorded per attempt and is no part of any identity."""

import json
import os
import platform
import re
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from countermark.train.libraries import library

PACKAGES: Final = (
    "torch", "transformers", "peft", "accelerate", "trl", "lightning", "datasets", "tokenizers", "safetensors", "numpy", "countermark",
)  # fmt: skip
#: Variables that libraries of this stack read and that can change bits or speed.
_VARIABLES: Final = re.compile(
    r"(OMP|GOMP|KMP|MKL|OPENBLAS|VECLIB|NUMEXPR|CUDA|CUBLAS|NVIDIA|PYTORCH|TORCH|ATEN|HF|TRANSFORMERS|TOKENIZERS|ACCELERATE)_[A-Z0-9_]+"
    r"|PYTHONHASHSEED|LD_PRELOAD"
)
_SECRETS: Final = re.compile(r"TOKEN|KEY|SECRET|PASSWORD")


def execution_environment(nonce: str, model: Any) -> bytes:
    """The document ``environment.json`` of an attempt whose model is about to be trained."""
    torch = library("torch")
    document = {
        "countermark": 1,
        "kind": "execution-environment",
        "attempt": nonce,
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "platform": platform.platform(),
        "packages": {name: version for name in PACKAGES if (version := _version(name)) is not None},
        "device": _device(torch, model),
        "cpu": {"model": _cpu_model(), "count": os.cpu_count(), "capability": torch.backends.cpu.get_cpu_capability()},
        "threads": {"intraOp": torch.get_num_threads(), "interOp": torch.get_num_interop_threads()},
        "flags": {
            "deterministicAlgorithms": torch.are_deterministic_algorithms_enabled(),
            "float32MatmulPrecision": torch.get_float32_matmul_precision(),
            "tf32": bool(torch.backends.cuda.matmul.allow_tf32),
            "cudnnDeterministic": torch.backends.cudnn.deterministic,
            "cudnnBenchmark": torch.backends.cudnn.benchmark,
            "mkldnn": torch.backends.mkldnn.is_available(),
        },
        "kernels": {"attention": _attention(model)},
        "variables": _variables(os.environ),
        "argv": list(sys.orig_argv),
    }
    return json.dumps(document, ensure_ascii=False, indent=1).encode("utf-8", "replace") + b"\n"


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _device(torch: Any, model: Any) -> Mapping[str, object]:
    device = next(model.parameters()).device
    if device.type != "cuda":
        return {"type": device.type}
    properties = torch.cuda.get_device_properties(device)
    name = {
        "type": "cuda",
        "name": properties.name,
        "capability": f"{properties.major}.{properties.minor}",
        "bytes": properties.total_memory,
    }
    return {**name, "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}


def _attention(model: Any) -> object:
    """The attention's implementation, of the first module that says which one it has."""
    configurations = (getattr(module, "config", None) for module in model.modules())
    return next((found for one in configurations if (found := getattr(one, "_attn_implementation", None)) is not None), None)


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor())


def _variables(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: environment[name] for name in sorted(environment) if _VARIABLES.fullmatch(name) and not _SECRETS.search(name)}
