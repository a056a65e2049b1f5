"""Writes calibration.json, what scikit-learn says of calibration, for calibration_test.go.

    pip install scikit-learn==1.9.1 numpy==2.4.6
    python bench/timing/testdata/calibration.py
"""

import json
from pathlib import Path

import numpy as np
import sklearn
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss

# Name, samples, bins and decimals of the probabilities: fewer of them make ties, and bins that
# quantiles leave empty.
CASES = [("distinct", 40, 5, 4), ("ties", 40, 5, 1), ("more bins than values", 20, 4, 0)]


def case(rng: np.random.Generator, name: str, samples: int, bins: int, decimals: int) -> dict[str, object]:
    """One case: probabilities that are about right, and what there is to say of them."""
    p = np.round(rng.beta(1, 3, samples), decimals)
    y = (rng.random(samples) < np.clip(p * 1.2 + 0.05, 0, 1)).astype(int)
    share, mean = calibration_curve(y, p, n_bins=bins, strategy="quantile")
    # calibration_curve keeps no counts; these are of the bins that it makes.
    edges = np.percentile(p, np.linspace(0, 1, bins + 1) * 100)
    count = np.bincount(np.searchsorted(edges[1:-1], p), minlength=bins)
    count = count[count > 0]
    return {
        "name": name,
        "bins": bins,
        "p": p.tolist(),
        "y": y.tolist(),
        "share": share.tolist(),
        "mean": mean.tolist(),
        "n": count.tolist(),
        "ece": float(np.sum(count * np.abs(share - mean)) / samples),
        "brier": float(brier_score_loss(y, p)),
    }


def main() -> None:
    """Write the file beside this one."""
    rng = np.random.default_rng(7)
    golden = {
        "source": f"scikit-learn {sklearn.__version__}, by calibration.py",
        "cases": [case(rng, *c) for c in CASES],
    }
    Path(__file__).with_suffix(".json").write_text(json.dumps(golden) + "\n")


if __name__ == "__main__":
    main()
