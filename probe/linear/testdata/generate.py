"""Makes golden.json: small problems and what scikit-learn finds for them.

    pip install scikit-learn==1.9.1 numpy==2.4.6
    python generate.py > golden.json

Figures are rounded before fitting, so that both sides see the same data.
"""

import json
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, f1_score, log_loss
from sklearn.preprocessing import StandardScaler

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TEXTS = [
    "The cat_2 sat; the CAT ran!",
    "a cat, a dog & x",
    "Über-cool naïve dogs: 日本 語 日本",
    "It's the dog's day - THE dog",
    "",
]


def draw(
    rng: np.random.Generator, n: int, d: int, classes: int, density: float
) -> tuple[Floats, Ints]:
    """Returns n samples whose labels follow a noisy linear rule."""
    x = rng.normal(size=(n, d)) * (rng.random((n, d)) < density)
    x = np.round(x, 2)
    w = rng.normal(size=(d, classes)) / np.sqrt(d * density)
    y = np.argmax(1.5 * x @ w + rng.gumbel(size=(n, classes)), axis=1)
    return x.astype(np.float64), y.astype(np.int64)


def objective(
    model: LogisticRegression, x: Floats, y: Ints, c: float, weights: Floats
) -> float:
    """Computes 0.5 |W|^2 + C sum(weight * logloss) from the definition."""
    p = model.predict_proba(x)[np.arange(len(y)), y]
    return float(0.5 * np.sum(model.coef_**2) - c * np.sum(weights * np.log(p)))


def problem(
    name: str,
    seed: int,
    n: int,
    d: int,
    classes: int,
    c: float,
    density: float = 1.0,
    weighted: bool = False,
    centred: bool = False,
) -> dict[str, Any]:
    """Fits one drawn problem and returns it with what was found."""
    held = 50
    rng = np.random.default_rng(seed)
    x, y = draw(rng, n + held, d, classes, density)
    if centred:
        x = x - x[:n].mean(axis=0)
        x = np.round(x, 4)
    weights = np.round(rng.random(n) * 2, 2) if weighted else np.ones(n)
    model = LogisticRegression(C=c, tol=1e-10, max_iter=100_000)
    model.fit(x[:n], y[:n], sample_weight=weights)
    p = model.predict_proba(x[n:])
    guess = np.argmax(p, axis=1)
    test = y[n:]
    return {
        "name": name,
        "sparse": density < 1,
        "classes": classes,
        "c": c,
        "train": n,
        "x": x.tolist(),
        "y": y.tolist(),
        "weights": weights.tolist() if weighted else None,
        "objective": objective(model, x[:n], y[:n], c, weights),
        "coef": np.round(model.coef_, 8).tolist(),
        "p": [[float(f"{v:.9g}") for v in row] for row in p],
        "accuracy": accuracy_score(test, guess),
        "macro_f1": f1_score(test, guess, average="macro"),
        "log_loss": log_loss(test, p, labels=list(range(classes))),
        "brier": float(np.mean(np.sum((p - np.eye(classes)[test]) ** 2, axis=1))),
    }


def path(name: str, seed: int, n: int, d: int, classes: int) -> dict[str, Any]:
    """Fits two label sets along a path of C, and ridge, on standardised features."""
    held = 40
    rng = np.random.default_rng(seed)
    x, y = draw(rng, n + held, d, classes, 1.0)
    x = np.round(x + 3, 2)
    sets = [y, rng.permutation(y)]
    targets = np.round(
        x[:, :2] @ rng.normal(size=(2, 3)) + rng.normal(size=(n + held, 3)), 3
    )
    scaler = StandardScaler().fit(x[:n])
    z = scaler.transform(x)
    fits = []
    for labels in sets:
        for c in [0.001, 0.1, 10.0]:
            model = LogisticRegression(C=c, tol=1e-10, max_iter=100_000)
            model.fit(z[:n], labels[:n])
            fits.append(
                {
                    "c": c,
                    "objective": objective(model, z[:n], labels[:n], c, np.ones(n)),
                    "p": np.round(model.predict_proba(z[n:]), 7).tolist(),
                }
            )
    ridge = Ridge(alpha=7.0).fit(z[:n], targets[:n])
    return {
        "name": name,
        "classes": classes,
        "train": n,
        "x": x.tolist(),
        "sets": [labels.tolist() for labels in sets],
        "fits": fits,
        "targets": targets.tolist(),
        "penalty": 7.0,
        "ridge": np.round(ridge.predict(z[n:]), 6).tolist(),
    }


def bags() -> list[dict[str, Any]]:
    """Returns what CountVectorizer makes of TEXTS under several options."""
    found = []
    for bigrams, docs, binary in [
        (False, 1, False),
        (True, 1, False),
        (True, 2, True),
    ]:
        v = CountVectorizer(
            ngram_range=(1, 2 if bigrams else 1), min_df=docs, binary=binary
        )
        counts = v.fit_transform(TEXTS).toarray()
        found.append(
            {
                "bigrams": bigrams,
                "min_docs": docs,
                "binary": binary,
                "terms": v.get_feature_names_out().tolist(),
                "counts": counts.tolist(),
            }
        )
    return found


def main() -> None:
    """Writes the golden file to standard output."""
    golden = {
        "problems": [
            problem("dense, three classes", 1, 90, 6, 3, 1.0),
            problem("dense, six classes, weak penalty", 2, 150, 5, 6, 100.0),
            problem("sparse, three classes", 3, 80, 40, 3, 1.0, density=0.1),
            problem("weighted", 4, 90, 5, 3, 0.5, weighted=True),
            problem("binary", 5, 80, 6, 2, 1.0),
            problem("binary, sparse, weighted", 6, 80, 30, 2, 10.0, 0.15, True),
            problem("wider than tall", 7, 30, 60, 3, 0.1),
            problem("wider than tall, weak penalty", 8, 25, 40, 3, 1000.0),
            problem(
                "wider than tall, centred, binary", 9, 24, 50, 2, 1.0, centred=True
            ),
            problem("wider than tall, weighted", 10, 24, 40, 4, 1.0, weighted=True),
        ],
        "paths": [
            path("path, wider than tall", 11, 50, 120, 3),
            path("path, taller than wide", 12, 90, 12, 3),
            path("path, binary", 13, 40, 70, 2),
        ],
        "texts": TEXTS,
        "bags": bags(),
    }
    json.dump(golden, sys.stdout, ensure_ascii=False, separators=(",", ":"))
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
