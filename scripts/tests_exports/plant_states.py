"""Hidden states with a planted stage, as a notebook would write them, and the card that `ccmed probe import` reads.

    python plant_states.py FOLDER

Two cells lie in a compressed NumPy archive, float16 and float64, two in a safetensors file. The stage is in the last
block after every text, and in no other layer.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

STAGES = ["Denial", "Defense", "Minimization"]
LAYERS = ["embed", "block.1", "block.2", "final_norm"]
ITEMS, WIDTH = 72, 12
CARD = """# made elsewhere
model: {{name: planted, digest: commit 1}}
dtype: F32
layers: [{layers}]
arrays:
  - {{file: nd.npz, array: end, context: ND, text: own-ND, position: utterance_end}}
  - {{file: nd.npz, array: prompt, context: ND, text: prompt, position: prompt_end, rows: [{rows}]}}
  - {{file: d.safetensors, array: end, context: D, text: own-D, position: utterance_end}}
  - {{file: d.safetensors, array: prompt, context: D, text: prompt, position: prompt_end}}
items: [{items}]
labels: [{labels}]
groups: [{groups}]
"""


def main(folder: Path) -> None:
    rng = np.random.default_rng(7)
    stage = np.arange(ITEMS) % 3

    def cell() -> np.ndarray[Any, Any]:
        x = rng.normal(size=(len(LAYERS), ITEMS, WIDTH))
        x[2, np.arange(ITEMS), stage] += 1.5
        return x

    folder.mkdir()
    rows = [*range(10), *range(11, ITEMS)]  # one prompt is missing
    np.savez_compressed(folder / "nd.npz", end=cell().astype(np.float16), prompt=cell()[:, rows])
    tensors: dict[str, np.ndarray[Any, Any]] = {"end": cell().astype(np.float32), "count": np.arange(3)}
    tensors["prompt"] = cell().astype(np.float16)
    save_file(tensors, folder / "d.safetensors")
    text = CARD.format(
        layers=", ".join(LAYERS),
        rows=", ".join(map(str, rows)),
        items=", ".join(str(100 + i) for i in range(ITEMS)),
        labels=", ".join(STAGES[s] for s in stage),
        groups=", ".join(f"scene {i // 3}" for i in range(ITEMS)),
    )
    (folder / "card.yaml").write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
