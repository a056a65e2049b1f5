"""Times the probe training job in scikit-learn, for the Go benchmark to compare.

    pip install scikit-learn==1.9.1 numpy==2.4.6
    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python bench_sklearn.py DIR [--layers 2] [--jobs 2]
    CCMED_BENCH_SKLEARN=DIR go test -run '^$' -bench ScikitLearn -benchtime 1x ./probe/linear

The job: layers x 5 folds x 3 values of C x (true, shuffled, control) labels;
LogisticRegression with its default solver and tolerance, features standardised
on the training part once a fold, folds spread over the cores by joblib. DIR gets
the data and, in sklearn.json, seconds and objectives, both for single and for
double precision; every objective is computed in double precision.
"""

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

FOLDS = 5
CLASSES = 3
CS = [0.0001, 0.01, 1.0]


def draw(
    rng: np.random.Generator, n: int, d: int, y: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Returns correlated features: 256 directions of falling strength, and noise."""
    rank = 256
    latent = rng.normal(size=(n, rank)) / np.sqrt(1 + np.arange(rank) / 4)
    latent[:, :CLASSES] += 0.7 * np.eye(CLASSES)[y]
    x = latent @ rng.normal(size=(rank, d)) + rng.normal(size=(n, d))
    return x.astype(np.float32)


def objective(
    model: LogisticRegression, z: NDArray[Any], y: NDArray[np.int64], c: float
) -> float:
    """Computes 0.5 |W|^2 + C sum(logloss) from the definition."""
    w = model.coef_.astype(np.float64)
    s = z @ w.T + model.intercept_.astype(np.float64)
    s -= s.max(axis=1, keepdims=True)
    loss = np.log(np.exp(s).sum(axis=1)) - s[np.arange(len(y)), y]
    return float(0.5 * np.sum(w**2) + c * loss.sum())


def one(
    x: NDArray[np.float32], sets: NDArray[np.int64], fold: int, dtype: str
) -> tuple[list[tuple[LogisticRegression, float]], float]:
    """Fits all label sets at every C on one fold; also gives the processor's seconds."""
    start = time.process_time()
    train = np.arange(len(x)) // CLASSES % FOLDS != fold
    scaler = StandardScaler()
    z = scaler.fit_transform(x[train].astype(dtype))
    held = scaler.transform(x[~train].astype(dtype))
    out = []
    for y in sets:
        for c in CS:
            model = LogisticRegression(C=c, max_iter=2000).fit(z, y[train])
            model.predict_proba(held)
            out.append((model, c))
    return out, time.process_time() - start


def main() -> None:
    """Writes data and results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("dir", type=Path)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--samples", type=int, default=1503)
    parser.add_argument("--width", type=int, default=4096)
    args = parser.parse_args()
    if os.environ.get("OPENBLAS_CORETYPE"):
        parser.error("OPENBLAS_CORETYPE is set; unset it to let OpenBLAS choose")
    args.dir.mkdir(parents=True, exist_ok=True)

    rng = np.random.default_rng(1)
    n, d = args.samples, args.width
    y = np.arange(n) % CLASSES
    sets = np.stack([y, rng.permutation(y), rng.permutation(y)])
    layers = [draw(rng, n, d, y) for _ in range(args.layers)]
    np.concatenate(layers).tofile(args.dir / "layers.f32")
    found: dict[str, Any] = {
        "samples": n,
        "width": d,
        "layers": args.layers,
        "folds": FOLDS,
        "classes": CLASSES,
        "cs": CS,
        "sets": sets.tolist(),
        "jobs": args.jobs,
    }
    tasks = [(k, fold) for k in range(args.layers) for fold in range(FOLDS)]
    with Parallel(n_jobs=args.jobs) as parallel:
        parallel(
            delayed(one)(layers[0][:60, :8], sets[:, :60], 0, "float32")
            for _ in range(4)
        )
        for dtype in ["float32", "float64"]:
            start = time.perf_counter()
            fits = parallel(
                delayed(one)(layers[k], sets, fold, dtype) for k, fold in tasks
            )
            seconds = time.perf_counter() - start
            objectives, iterations = [], 0
            for (k, fold), (models, _) in zip(tasks, fits, strict=True):
                train = np.arange(n) // CLASSES % FOLDS != fold
                z = StandardScaler().fit_transform(layers[k][train].astype(np.float64))
                for i, (model, c) in enumerate(models):
                    objectives.append(objective(model, z, sets[i // len(CS)][train], c))
                    iterations += int(model.n_iter_[0])
            found[dtype] = {
                "seconds": seconds,
                "cpu": sum(cpu for _, cpu in fits),
                "iterations": iterations / len(objectives),
                "objectives": objectives,  # by layer, fold, label set, C
            }
            print(
                dtype,
                f"{seconds:.2f} s, {iterations / len(objectives):.1f} iterations a fit",
            )
    (args.dir / "sklearn.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
