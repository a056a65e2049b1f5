"""Makes leace.json: small problems and what concept-erasure makes of them.

    pip install torch==2.15.0 concept-erasure==0.2.4
    python leace.py > leace.json
    python leace.py speed     # seconds for 1,500 rows of 4,096 values

Without shrinkage, and without the mixture that keeps the trace from rising, which is
another map than LEACE. Values are multiples of 1/64, so that both sides see the same data.
"""

import json
import sys
import time
from typing import Any

import numpy as np
import torch
from concept_erasure import LeaceFitter


def fit(x: torch.Tensor, y: torch.Tensor, classes: int) -> Any:
    """Fits an eraser of the classes."""
    z = torch.nn.functional.one_hot(y, classes).to(x.dtype)
    return LeaceFitter.fit(
        x, z, shrinkage=False, constrain_cov_trace=False, svd_tol=1e-6
    ).eraser


def problem(name: str, seed: int, n: int, d: int, classes: int) -> dict[str, Any]:
    """Draws rows of correlated values whose means depend on the class."""
    rng = np.random.default_rng(seed)
    y = rng.integers(classes, size=n)
    mixing = rng.normal(size=(d, d)) * rng.uniform(0.2, 2, size=d)
    means = rng.normal(size=(classes, d))
    x = np.round(((rng.normal(size=(n, d)) + means[y]) @ mixing + 3) * 64) / 64
    eraser = fit(torch.tensor(x), torch.tensor(y), classes)
    other = np.round(rng.normal(size=(5, d)) * 256) / 64
    return {
        "name": name,
        "n": n,
        "d": d,
        "classes": classes,
        "x": x.ravel().tolist(),
        "y": y.tolist(),
        "other": other.ravel().tolist(),
        "erased": eraser(torch.tensor(x)).ravel().tolist(),
        "other_erased": eraser(torch.tensor(other)).ravel().tolist(),
    }


def speed() -> None:
    """Times the fit in single and in double precision."""
    rng = np.random.default_rng(1)
    y = torch.tensor(rng.integers(3, size=1500))
    for dtype in (torch.float32, torch.float64):
        x = torch.tensor(rng.normal(size=(1500, 4096)), dtype=dtype)
        start = time.perf_counter()
        fit(x, y, 3)
        print(f"{dtype}: {time.perf_counter() - start:.1f} s")


if sys.argv[1:] == ["speed"]:
    speed()
else:
    json.dump(
        [
            problem("more rows than values", 1, 60, 6, 3),
            problem("more values than rows", 2, 20, 40, 3),
            problem("two classes", 3, 50, 8, 2),
        ],
        sys.stdout,
    )
    print()
