"""Tiny random models in Firefox's format, and a plain reader and forward pass to compare with."""

import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

YML = """bert-type-vocab-size: 2
dec-cell: ssru
dec-depth: {dec}
dim-emb: 16
dim-vocabs:
  - 32000
  - 32000
enc-depth: 2
tied-embeddings: {target}
tied-embeddings-all: {tied}
tied-embeddings-src: false
transformer-decoder-autoreg: rnn
transformer-dim-ffn: 24
transformer-ffn-activation: relu
transformer-heads: 2
transformer-postprocess: dan
transformer-preprocess: ""
transformer-tied-layers:
  []
type: transformer
version: v1.9.56
"""
Item = tuple[str, int, tuple[int, ...], bytes]  # name, type, shape, data


def floats(name: str, values: np.ndarray) -> Item:
    return name, 0x404, values.shape, values.astype("<f4").tobytes()


def eight_bits(name: str, shape: tuple[int, int], whole: np.ndarray, multiplier: float) -> Item:
    data = whole.astype("i1").tobytes() + struct.pack("<f", multiplier)
    return name, 0x4101, shape, data + bytes(-len(data) % 256)


def tiny_items(
    src: int, tgt: int | None = None, dec: int = 1, ffn: bool = True, seed: int = 0
) -> list[Item]:
    """The entries of a random model; with `tgt` it has two vocabularies."""
    rng, d, inner, items = np.random.default_rng(seed), 16, 24, []

    def matrix(name: str, rows: int, columns: int, transposed: bool = True) -> None:
        whole = rng.integers(-127, 128, (columns, rows) if transposed else (rows, columns))
        whole.flat[0] = 127  # as the largest is
        items.append(eight_bits(name, (rows, columns), whole, 127 * rng.uniform(1, 2)))
        items.append(floats(f"{name}_QuantMultA", np.ones((1, 1))))

    def vector(name: str, width: int, mean: float = 0.0) -> None:
        items.append(floats(name, rng.normal(mean, 0.3, (1, width))))

    def norm(prefix: str) -> None:
        vector(f"{prefix}_ln_scale", d, 1.0)
        vector(f"{prefix}_ln_bias", d)

    def attention(prefix: str) -> None:
        for part in "qkvo":
            matrix(f"{prefix}_W{part}", d, d)
            vector(f"{prefix}_b{part}", d)
        norm(f"{prefix}_Wo")

    def feed_forward(prefix: str) -> None:
        matrix(f"{prefix}_ffn_W1", d, inner)
        vector(f"{prefix}_ffn_b1", inner)
        matrix(f"{prefix}_ffn_W2", inner, d)
        vector(f"{prefix}_ffn_b2", d)
        norm(f"{prefix}_ffn_ffn")

    two = {"encoder_Wemb": src, "decoder_Wemb": tgt}
    for name, size in ({"Wemb": src} if tgt is None else two).items():
        matrix(name, size, d, transposed=False)
    vector("decoder_ff_logit_out_b", tgt or src)
    for i in range(1, 3):
        attention(f"encoder_l{i}_self")
        feed_forward(f"encoder_l{i}")
    for i in range(1, dec + 1):
        matrix(f"decoder_l{i}_rnn_W", d, d)
        matrix(f"decoder_l{i}_rnn_Wf", d, d)
        vector(f"decoder_l{i}_rnn_bf", d)
        norm(f"decoder_l{i}_rnn_ffn")
        attention(f"decoder_l{i}_context")
        if ffn:
            feed_forward(f"decoder_l{i}")
    items.append(floats("none_QuantMultA", np.ones((1, 1))))
    tied = str(tgt is None).lower()
    yml = YML.format(dec=dec, tied=tied, target="false" if tied == "true" else "true").encode()
    return [*items, ("special:model.yml", 0x101, (len(yml),), yml)]


def packed(items: list[Item]) -> bytes:
    """The bytes of a file."""
    heads = b"".join(
        struct.pack("<4Q", len(name.encode()) + 1, kind, len(shape), len(data))
        for name, kind, shape, data in items
    )
    names = b"".join(name.encode() + b"\0" for name, *_ in items)
    shapes = b"".join(struct.pack(f"<{len(shape)}i", *shape) for _, _, shape, _ in items)
    start = 16 + len(heads + names + shapes) + 8
    gap = -start % 256
    body = struct.pack("<2Q", 1, len(items)) + heads + names + shapes
    return body + struct.pack("<Q", gap) + bytes(gap) + b"".join(data for *_, data in items)


def weights_of(path: Path) -> dict[str, Tensor]:
    """All weights of a file, matrices as (in, out), in float64."""
    file = path.read_bytes()
    _, count = struct.unpack_from("<2Q", file)
    heads = np.frombuffer(file, "<u8", 4 * count, 16).reshape(count, 4).tolist()
    place, names, shapes, found = 16 + 32 * count, [], [], {}
    for length, *_ in heads:
        names.append(file[place : place + length - 1].decode())
        place += length
    for _, _, dimensions, _ in heads:
        shapes.append(struct.unpack_from(f"<{dimensions}i", file, place))
        place += 4 * dimensions
    place += 8 + struct.unpack_from("<Q", file, place)[0]
    for (_, kind, _, size), name, shape in zip(heads, names, shapes, strict=True):
        many = math.prod(shape)
        if kind == 0x404:
            found[name] = np.frombuffer(file, "<f4", many, place).reshape(shape)
        if kind == 0x4101:
            whole = np.frombuffer(file, "i1", many, place).astype("f8")
            whole = whole / np.frombuffer(file, "<f4", 1, place + many)
            found[name] = whole.reshape(shape) if "Wemb" in name else whole.reshape(shape[::-1]).T
        place += size
    return {name: torch.from_numpy(np.array(value, "f8")) for name, value in found.items()}


def plain_forward(w: dict[str, Tensor], h: int, src: list[int], tgt: list[int]) -> dict[str, Any]:
    """A model by its definition, one sentence, in the file's own order and numbers.

    Args:
        src, tgt: the file's ids; the decoder reads a vector of zeros and all of tgt but its end.

    Returns: logits (tgt_len, vocab), and attention weights (h, len_q, len_k) by our names.
    """
    tables = [w.get("Wemb", w.get(f"{side}_Wemb")) for side in ("encoder", "decoder")]
    d, seen = tables[0].size(1), {}

    def embed(table: Tensor, ids: list[int], shifted: bool) -> Tensor:
        x = table[ids] * math.sqrt(d)
        if shifted:
            x = torch.cat([torch.zeros(1, d, dtype=x.dtype), x[:-1]])
        for place in range(len(x)):
            for i in range(d // 2):
                angle = place / 10000 ** (i / (d // 2 - 1))
                x[place, i] += math.sin(angle)
                x[place, d // 2 + i] += math.cos(angle)
        return x

    def norm(x: Tensor, name: str) -> Tensor:
        x = x - x.mean(-1, keepdim=True)
        x = x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-9)
        return x * w[f"{name}_ln_scale"] + w[f"{name}_ln_bias"]

    def attend(x: Tensor, memory: Tensor, name: str, ours: str) -> Tensor:
        q, k, v = (
            y @ w[f"{name}_W{part}"] + w[f"{name}_b{part}"]
            for part, y in (("q", x), ("k", memory), ("v", memory))
        )
        heads, weights, size = [], [], d // h
        for i in range(0, d, size):
            scores = q[:, i : i + size] @ k[:, i : i + size].T / math.sqrt(size)
            weights.append(scores.softmax(-1))
            heads.append(weights[-1] @ v[:, i : i + size])
        seen[ours] = torch.stack(weights)
        out = torch.cat(heads, -1) @ w[f"{name}_Wo"] + w[f"{name}_bo"]
        return norm(x + out, f"{name}_Wo")

    def feed_forward(x: Tensor, name: str) -> Tensor:
        if f"{name}_ffn_W1" not in w:
            return x
        inner = (x @ w[f"{name}_ffn_W1"] + w[f"{name}_ffn_b1"]).clamp(min=0)
        return norm(x + inner @ w[f"{name}_ffn_W2"] + w[f"{name}_ffn_b2"], f"{name}_ffn_ffn")

    def recur(x: Tensor, name: str) -> Tensor:
        state, out = torch.zeros(d, dtype=x.dtype), []
        for row in x:
            f = 1 / (1 + torch.exp(-(row @ w[f"{name}_Wf"] + w[f"{name}_bf"][0])))
            state = f * state + (1 - f) * (row @ w[f"{name}_W"])
            out.append(state.clamp(min=0))
        return norm(x + torch.stack(out), f"{name}_ffn")

    x, i = embed(tables[0], src, False), 1
    while f"encoder_l{i}_self_Wq" in w:
        x = attend(x, x, f"encoder_l{i}_self", f"encoder.layers.{i - 1}.self_attn")
        x = feed_forward(x, f"encoder_l{i}")
        i += 1
    memory, y, i = x, embed(tables[1], tgt, True), 1
    while f"decoder_l{i}_rnn_W" in w:
        y = recur(y, f"decoder_l{i}_rnn")
        y = attend(y, memory, f"decoder_l{i}_context", f"decoder.layers.{i - 1}.src_attn")
        y = feed_forward(y, f"decoder_l{i}")
        i += 1
    return {"logits": y @ tables[1].T + w["decoder_ff_logit_out_b"]} | seen
