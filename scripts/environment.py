"""Tells what a Python environment offers a trainer.

    python environment.py torch transformers ...

prints one JSON object: the interpreter, the versions of the packages named (null
for one that is missing), and the GPUs that torch sees.
"""

import importlib.metadata
import json
import platform
import sys
from typing import Any


def version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def main(packages: list[str]) -> None:
    found: dict[str, Any] = {
        "python": sys.executable,
        "version": platform.python_version(),
        "packages": {p: version(p) for p in packages},
        "gpus": [],
    }
    try:
        import torch

        if torch.cuda.is_available():
            for i in range(torch.cuda.device_count()):
                properties = torch.cuda.get_device_properties(i)
                found["gpus"].append({"name": properties.name, "bytes": properties.total_memory})
    except Exception as e:  # a broken installation is a finding, not a failure of this program
        found["torch_error"] = f"{type(e).__name__}: {e}".splitlines()[0]
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
