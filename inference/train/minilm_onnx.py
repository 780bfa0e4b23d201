"""Writes the MiniLM that minilm.py tuned as models that the gateway loads (`security_analysis.ml_model`).

    python minilm_onnx.py OUT_FOLDER MODELS_FOLDER

OUT_FOLDER holds minilm-tuned.npz. MODELS_FOLDER gets two models, each as an export of such a model lies on a hub: `minilm` with 32-bit
floats and `minilm-int8` with weights of 8 bits, one scale for each row. They look at windows of as many tokens as it was tuned with.
"""

import json
import pathlib
import shutil
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic
from safetensors.numpy import load_file

import minilm

CONFIG = {
    "model_type": "bert",
    "max_position_embeddings": minilm.TOKENS,
    "pad_token_id": 0,
    "id2label": {"0": "SAFE", "1": "INJECTION"},
}


class Graph:
    """Nodes and constants, each under a name of its own."""

    def __init__(self):
        self.nodes, self.constants = [], []

    def constant(self, value):
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def node(self, kind, *inputs, **attributes):
        name = f"n{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def number(self, value):
        return self.constant(np.array(value, np.float32))

    def numbers(self, *values):
        return self.constant(np.array(values, np.int64))

    def dense(self, x, weights, name):
        product = self.node("MatMul", x, self.constant(weights[f"{name}.weight"].T))
        return self.node("Add", product, self.constant(weights[f"{name}.bias"]))

    def norm(self, x, weights, name):
        scale, bias = (self.constant(weights[f"{name}.{part}"]) for part in ("weight", "bias"))
        return self.node("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-12)

    def layer(self, x, far, weights, at):
        of = f"encoder.layer.{at}."
        split = self.numbers(0, 0, minilm.HEADS, minilm.WIDTH // minilm.HEADS)

        def heads(name, order):
            return self.node("Transpose", self.node("Reshape", self.dense(x, weights, f"{of}attention.self.{name}"), split), perm=order)

        product = self.node("MatMul", heads("query", [0, 2, 1, 3]), heads("key", [0, 2, 3, 1]))
        scaled = self.node("Mul", product, self.number((minilm.WIDTH // minilm.HEADS) ** -0.5))
        shares = self.node("Softmax", self.node("Add", scaled, far), axis=-1)
        heard = self.node("Transpose", self.node("MatMul", shares, heads("value", [0, 2, 1, 3])), perm=[0, 2, 1, 3])
        heard = self.node("Reshape", heard, self.numbers(0, 0, minilm.WIDTH))
        said = self.dense(heard, weights, f"{of}attention.output.dense")
        x = self.norm(self.node("Add", x, said), weights, f"{of}attention.output.LayerNorm")
        inner = self.dense(x, weights, f"{of}intermediate.dense")
        bent = self.node("Add", self.node("Erf", self.node("Mul", inner, self.number(0.5**0.5))), self.number(1.0))
        inner = self.node("Mul", self.node("Mul", inner, self.number(0.5)), bent)
        return self.norm(self.node("Add", x, self.dense(inner, weights, f"{of}output.dense")), weights, f"{of}output.LayerNorm")


def graph(weights, head):
    """The encoder and what minilm.py put on it, as it speaks of what somebody asks."""
    g = Graph()
    length = g.node("Slice", g.node("Shape", "input_ids"), g.numbers(1), g.numbers(2))
    places = g.constant(weights["embeddings.position_embeddings.weight"] + weights["embeddings.token_type_embeddings.weight"][0])
    places = g.node("Slice", places, g.numbers(0), length, g.numbers(0))
    x = g.node("Add", g.node("Gather", g.constant(weights["embeddings.word_embeddings.weight"]), "input_ids"), places)
    x = g.norm(x, weights, "embeddings.LayerNorm")
    kept = g.node("Unsqueeze", g.node("Cast", "attention_mask", to=TensorProto.FLOAT), g.numbers(-1))
    away = g.node("Mul", g.node("Sub", g.number(1.0), kept), g.number(-1e9))
    far = g.node("Unsqueeze", g.node("Transpose", away, perm=[0, 2, 1]), g.numbers(1))
    for at in range(minilm.LAYERS):
        x = g.layer(x, far, weights, at)
    count = g.node("ReduceSum", kept, g.numbers(1), keepdims=0)
    mean = g.node("Div", g.node("ReduceSum", g.node("Mul", x, kept), g.numbers(1), keepdims=0), count)
    most = g.node("ReduceMax", g.node("Add", x, away), axes=[1], keepdims=0)
    shared, of_role = head["head.weight"].T
    score = g.node("MatMul", g.node("Concat", mean, most, axis=-1), g.constant((shared - of_role)[:, None]))
    score = g.node("Add", score, g.number([head["head.bias"][0] - head["head.bias"][1]]))
    g.nodes.append(helper.make_node("Concat", [g.node("Mul", score, g.number(0.0)), score], ["logits"], axis=-1))
    asks = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"]) for name in ("input_ids", "attention_mask")]
    says = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 2])]
    made = helper.make_graph(g.nodes, "minilm", asks, says, g.constants)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def main():
    out, models = map(pathlib.Path, sys.argv[1:3])
    tuned = dict(np.load(out / "minilm-tuned.npz"))
    weights = load_file(minilm.package() / "model.safetensors")
    for name, value in tuned.items():
        if name.startswith("layers."):
            at, rest = name.removeprefix("layers.").split(".", 1)
            weights[f"encoder.layer.{minilm.LAYERS - minilm.TUNED + int(at)}.{rest}"] = value
    made = graph({name: value.astype(np.float32) for name, value in weights.items()}, tuned)
    onnx.checker.check_model(made)
    for name in ("minilm", "minilm-int8"):
        folder = models / name
        (folder / "onnx").mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(CONFIG))
        shutil.copy(minilm.package() / "tokenizer.json", folder / "tokenizer.json")
    whole = models / "minilm/onnx/model.onnx"
    onnx.save(made, whole)
    small = models / "minilm-int8/onnx/model.onnx"
    quantize_dynamic(whole, small, per_channel=True, weight_type=QuantType.QInt8)
    print(*(f"{path}: {path.stat().st_size} bytes" for path in (whole, small)), sep="\n")


if __name__ == "__main__":
    main()
