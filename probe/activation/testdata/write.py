# Writes states_f32.safetensors and states_f16.safetensors, which file_test.go
# reads: files of the format that this package's own writer has not touched.
#   python3 write.py    (needs numpy and safetensors)
import json

import numpy as np
from safetensors.numpy import save_file

META = {
    "content": "hidden states", "schema": "1",
    "model": "tiny", "digest": "sha256:01", "quantization": "F32", "architecture": "llama",
    "context": "ND", "text": "own-ND", "position": "utterance_end", "kind": "residual",
    "layers": json.dumps(["embed", "block.1", "final_norm"]),
}
layer, sample, j = np.meshgrid(range(3), range(4), range(5), indexing="ij")
x = layer * 100 + sample * 10 + j - 0.5
for dtype, bits, mark in (("float32", "uint32", 0x7FC0CC3D), ("float16", "uint16", 0x7E3D)):
    y = x.astype(dtype)
    y.view(bits)[1, 2, 3:] = mark  # the rest of a torn write
    y[2, 1, 0] = np.inf
    y[2, 3, 4] = np.nan
    save_file({"states": y}, f"states_{'f' + dtype[5:]}.safetensors", META)
