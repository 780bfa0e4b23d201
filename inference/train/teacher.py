"""What the published MiniLM says of pieces of texts: a teacher for the small classifier.

    python teacher.py PREPARED_FOLDER OUT_FOLDER

PREPARED_FOLDER is what prepare.py wrote. A piece is up to 64 words, as long as a window of the small classifier. Pieces are drawn from
each source and label of the training files; those of a long attack have no label, because which of them holds the order is not
known. OUT_FOLDER gets pieces.jsonl and pieces.npz: of each piece the mean and the maximum of the encoder's last layer, weights of 8 bits,
one thread. What was worked out stays, so that the script may be stopped and started again.
"""

import json
import os
import pathlib
import sys
import time

os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper
from onnxruntime.quantization import QuantType, quantize_dynamic
from safetensors.numpy import load_file
from tokenizers import Tokenizer

import data
import minilm
import minilm_onnx
import pieces
from train import SETS

BATCH, SAVED = 8, 2000


def encoder(folder):
    """A session that says the mean and the maximum of the last layer."""
    path = folder / "encoder-int8.onnx"
    if not path.exists():
        weights = load_file(minilm.package() / "model.safetensors")
        weights = {name: value.astype(np.float32) for name, value in weights.items() if value.dtype.kind == "f"}
        head = {"head.weight": np.zeros((2 * minilm.WIDTH, 2), np.float32), "head.bias": np.zeros(2, np.float32)}
        made = minilm_onnx.graph(weights, head).graph
        pooled = next(node.output[0] for node in made.node if node.op_type == "Concat" and len(node.input) == 2)
        made.output.append(helper.make_tensor_value_info(pooled, TensorProto.FLOAT, ["batch", 2 * minilm.WIDTH]))
        del made.output[0]
        whole = folder / "encoder.onnx"
        onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), whole)
        quantize_dynamic(whole, path, per_channel=True, weight_type=QuantType.QInt8)
        whole.unlink()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def heard(session, tokenizer, texts):
    """Of each text the mean and the maximum of the last layer; texts of about one length go together."""
    ids = [one.ids[: minilm.TOKENS] for one in tokenizer.encode_batch(texts)]
    out = np.zeros((len(texts), 2 * minilm.WIDTH), np.float16)
    order = np.argsort([len(one) for one in ids], kind="stable")
    for begin in range(0, len(order), BATCH):
        mine = order[begin : begin + BATCH]
        n = max(len(ids[at]) for at in mine)
        padded, mask = np.zeros((len(mine), n), np.int64), np.zeros((len(mine), n), np.int64)
        for line, at in enumerate(mine):
            padded[line, : len(ids[at])] = ids[at]
            mask[line, : len(ids[at])] = 1
        out[mine] = session.run(None, {"input_ids": padded, "attention_mask": mask})[0]
    return out


def main():
    folder, out = map(pathlib.Path, sys.argv[1:3])
    begun = time.monotonic()
    found = pieces.drawn([row for name in SETS[:2] for row in data.read(folder, name)])
    session = encoder(out)
    tokenizer = Tokenizer.from_file(str(minilm.package() / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    said = []
    for begin in range(0, len(found), SAVED):
        path = out / f"pieces-{begin}.npy"
        if not path.exists():
            np.save(path, heard(session, tokenizer, [one["folded"] for one in found[begin : begin + SAVED]]))
            print(f"{time.monotonic() - begun:5.0f} s  {min(begin + SAVED, len(found))} of {len(found)}", flush=True)
        said.append(np.load(path))
    with open(out / "pieces.jsonl", "w", encoding="utf-8") as sink:
        sink.writelines(json.dumps(one, ensure_ascii=False) + "\n" for one in found)
    np.save(out / "pieces.npy", np.concatenate(said))


if __name__ == "__main__":
    main()
