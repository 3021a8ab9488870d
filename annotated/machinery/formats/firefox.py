"""Firefox's translators: files that Marian's engine runs in the browser, as models of this book.

The encoder is the paper's. The decoder has a recurrent cell in place of self-attention
(`annotated.machinery.recurrence`). The sinusoids end at a wavelength of 10,000 · 2π, and all sines
precede all cosines, which a permutation of d_model undoes. Matrices are stored in 8 bits, as
integers with one multiplier each. A file may be damaged or hostile, and it may describe a model
that our code cannot represent; therefore every difference is rejected by name.
"""

import math
import os
import re
import struct
from pathlib import Path
from typing import NamedTuple

import torch
from tokenizers import Tokenizer
from torch import Tensor

from annotated.data import PAD, SPECIALS, START
from annotated.machinery.errors import FileError
from annotated.machinery.files import reading, require_regular, settings
from annotated.machinery.formats.marian import NEVER, reorder, sines_first
from annotated.machinery.formats.own import LoadedModel, check_weights, empty_model, with_weights
from annotated.machinery.formats.piece_models import read_piece_model, unigram_tokenizer
from annotated.model import TransformerConfig


class _Item(NamedTuple):
    """An entry of the file, not yet decoded."""

    kind: int
    shape: tuple[int, ...]
    data: memoryview


def _read_items(path: Path) -> dict[str, _Item]:
    """The entries of a file by name.

    All numbers are little-endian. The file contains a version and a count; four numbers per entry
    (length of its name, type, number of dimensions, number of bytes); all names; all shapes; a
    gap; and all data.
    """
    with reading(path, "a model in Marian's binary format"):
        require_regular(path)
        data, place = memoryview(bytearray(path.read_bytes())), 0

        def take(size: int, what: str) -> memoryview:
            nonlocal place
            if size > len(data) - place:
                raise ValueError(f"an end within {what}")
            place += size
            return data[place - size : place]

        def numbers(count: int, what: str) -> tuple[int, ...]:
            return struct.unpack(f"<{count}Q", take(8 * count, what))

        version, count = numbers(2, "the first line")
        if version != 1:
            raise ValueError(f"version {version}, not 1")
        heads = [numbers(4, f"the description of entry {i}") for i in range(count)]
        names = [bytes(take(head[0], "the names")).rstrip(b"\0").decode() for head in heads]
        shapes = [
            struct.unpack(f"<{head[2]}i", take(4 * head[2], f"the shape of {name}"))
            for head, name in zip(heads, names, strict=True)
        ]
        (gap,) = numbers(1, "the gap")
        take(gap, "the gap")
        items: dict[str, _Item] = {}
        for (_, kind, _, size), name, shape in zip(heads, names, shapes, strict=True):
            if name in items:
                raise ValueError(f"{name} twice")
            items[name] = _Item(kind, shape, take(size, name))
        if place < len(data):
            raise ValueError(f"{len(data) - place} bytes too many")
    return items


_FLOATS, _EIGHT_BITS, _TEXT = 0x404, 0x4101, 0x101  # types of entries


def _tensor(path: Path, name: str, item: _Item) -> Tensor:
    """The values of an entry: a single row as a vector, a matrix as torch stores it, (out, in)."""
    count, embedding = math.prod(item.shape), name.endswith("Wemb")  # which is (pieces, d_model)
    size = {_FLOATS: 4 * count, _EIGHT_BITS: count + 4}.get(item.kind)
    sound = len(item.shape) == 2 and min(item.shape) > 0
    if not sound or size is None or size > len(item.data):
        got = f"{len(item.data)} bytes of type {item.kind:#x} for shape {item.shape}"
        raise FileError(f"{path}: expected {name} as a matrix of floats or 8 bits; got {got}")
    if item.kind == _FLOATS:
        tensor = torch.frombuffer(item.data, dtype=torch.float32, count=count).view(item.shape)
        return tensor[0] if item.shape[0] == 1 else tensor if embedding else tensor.mT
    (multiplier,) = struct.unpack_from("<f", item.data, count)
    if not (multiplier > 0 and math.isfinite(multiplier)):
        raise FileError(f"{path}: expected a multiplier of {name} above 0; got {multiplier}")
    tensor = torch.frombuffer(item.data, dtype=torch.int8, count=count)
    return tensor.view(item.shape if embedding else item.shape[::-1]) / multiplier  # transposed


_SIZES = {  # fields of our configuration, with their names in special:model.yml
    "N": "enc-depth", "N_decoder": "dec-depth", "d_model": "dim-emb",
    "d_ff": "transformer-dim-ffn", "h": "transformer-heads",
}  # fmt: skip
_OPTIONAL = {  # settings that may be absent, with the only value that our model supports
    "transformer-postprocess-emb": ("d", ""), "transformer-postprocess-top": ("",),
    "transformer-ffn-depth": ("2",),
    "transformer-decoder-ffn-depth": ("0", "2"),  # 0: as in the encoder
    "transformer-tied-layers": ("[]", ""), "input-types": ("[]", ""),
    "lemma-dim-emb": ("0",), "transformer-dim-model": ("0",),
}  # fmt: skip
_FALSE = """
layer-normalization output-omit-bias right-left transformer-depth-scaling transformer-no-affine
transformer-no-bias transformer-no-projection transformer-pool transformer-rnn-projection
transformer-train-position-embeddings ulr
"""
_ALLOWED: dict[str, tuple[str | None, ...]] = {
    "type": ("transformer",), "transformer-decoder-autoreg": ("rnn",), "dec-cell": ("ssru",),
    "transformer-preprocess": ("",), "transformer-postprocess": ("dan",),
    **{name: (*values, None) for name, values in _OPTIONAL.items()},
    **dict.fromkeys(_FALSE.split(), ("false", None)),
}  # fmt: skip


def _read_settings(path: Path, items: dict[str, _Item]) -> dict[str, str]:
    """The settings in a model's file, lists as one line."""
    name = "special:model.yml"
    with reading(path, f"settings in {name}"):
        item = items.pop(name)
        if item.kind != _TEXT:
            raise ValueError(f"type {item.kind:#x}")
        text = bytes(item.data).rstrip(b"\0").decode()
    found = re.findall(r"^([\w-]+):(.*(?:\n[ -].*)*)$", text, re.MULTILINE)
    return {key: " ".join(value.split()).strip("\"'") for key, value in found}


def _read_config(path: Path, items: dict[str, _Item], sizes: tuple[int, int]) -> TransformerConfig:
    """Our configuration of a model; removes its settings from `items`."""
    found = _read_settings(path, items)
    tied = found.get("tied-embeddings-all") == "true"
    allowed = _ALLOWED | {
        "transformer-decoder-dim-ffn": ("0", found.get("transformer-dim-ffn"), None),
        **({} if tied else {"tied-embeddings": ("true",), "tied-embeddings-src": ("false", None)}),
    }
    for name, values in allowed.items():
        if found.get(name) not in values:
            got = f"got {found.get(name)!r:.80}"
            raise FileError(f"{path}: expected {name}: {values[0]!r}, in special:model.yml; {got}")
    ours: dict[str, object] = {
        "src_vocab": sizes[0], "tgt_vocab": sizes[1], "tie_embeddings": tied,
        "positions": "endpoint", "bias": True, "norm_eps": 1e-9,
        "activation": found.get("transformer-ffn-activation", "swish"),
    }  # fmt: skip
    for field, name in _SIZES.items():
        if not re.fullmatch(r"\d{1,9}", found.get(name, "")):
            raise FileError(f"{path}: expected {name} as a number; got {found.get(name)!r:.80}")
        ours[field] = int(found[name])
    with_ff = any(re.fullmatch(r"decoder_l\d+_ffn_W1", name) for name in items)
    ours["decoder"] = "ssru" if with_ff else "ssru-without-ff"
    return settings(TransformerConfig, ours, str(path))


_PARTS = {"self_attn": "self", "src_attn": "context", "feed_forward": "ffn"}
_NORMS = {"encoder": ["self_Wo", "ffn_ffn"], "decoder": ["rnn_ffn", "context_Wo", "ffn_ffn"]}


def _published_name(name: str, tied: bool) -> str:
    """The name in the file of one of our parameters."""
    if name == "generator.proj.bias":
        return "decoder_ff_logit_out_b"
    if not name.startswith(("encoder", "decoder")):
        return "Wemb" if tied else f"{'en' if name.startswith('src') else 'de'}coder_Wemb"
    stack, _, layer, part, module, *_, kind = name.split(".")
    if part == "sublayer":
        theirs = f"{_NORMS[stack][int(module)]}_ln_{'scale' if kind == 'weight' else 'bias'}"
    else:
        part = "rnn" if (stack, part) == ("decoder", "self_attn") else _PARTS[part]
        theirs = f"{part}_{'W' if kind == 'weight' else 'b'}{module[2:]}"  # w_q: Wq and bq
    return f"{stack}_l{int(layer) + 1}_{theirs}"


def is_firefox(folder: Path) -> bool:
    """Whether a folder holds a model as Firefox downloads it."""
    raw = os.path.isdir(folder) and not (folder / "config.json").exists()
    return raw and any(folder.glob("model.*.bin"))


def _the_file(folder: Path, pattern: str) -> Path:
    """The only file whose name matches."""
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        got = ", ".join(path.name for path in found) or "none"
        raise FileError(f"{folder}: expected one file {pattern}; got {got}")
    return found[0]


def _read_tokenizer(path: Path) -> Tokenizer:
    """A vocabulary that begins with our symbols; Marian's begins with </s> and <unk>."""
    model = read_piece_model(path, special=True)
    first, pieces = list(model.kinds)[:2], list(model.kinds)[2:]
    if first != ["</s>", "<unk>"]:
        raise FileError(f"{path}: expected </s> and <unk> first; got {', '.join(first):.80}")
    with reading(path, "a SentencePiece model whose tables are sound"):
        return unigram_tokenizer(model, [*SPECIALS, *(p + " " * (p in SPECIALS) for p in pieces)])


def read_firefox(folder: Path) -> LoadedModel:
    """Read a folder with a model as Firefox downloads it.

    It contains model.*.bin and either vocab.*.spm or, for two vocabularies, srcvocab.*.spm and
    trgvocab.*.spm. The decoder's first input is a vector of zeros, the embedding of our START.

    Raises: MissingFile or FileError that names the file and the difference.
    """
    path = _the_file(folder, "model.*.bin")
    if any(folder.glob("srcvocab.*")):
        sides = [_read_tokenizer(_the_file(folder, f"{s}vocab.*.spm")) for s in ("src", "trg")]
    else:
        sides = [_read_tokenizer(_the_file(folder, "vocab.*.spm"))]
    sizes = [tokenizer.get_vocab_size() for tokenizer in sides]
    items = _read_items(path)
    config = _read_config(path, items, (sizes[0], sizes[-1]))
    model = empty_model(config, items, path)
    tied, order = config.tie_embeddings, sines_first(config.d_model)
    theirs = {name: _published_name(name, tied) for name, _ in model.named_parameters()}
    listed = {name for name in theirs if "lut" in name or "generator" in name}  # one row per piece
    shapes = {
        theirs[name]: (p.size(0) - 2, *p.shape[1:]) if name in listed else tuple(p.shape)
        for name, p in model.named_parameters()
    }
    tensors = {
        name: _tensor(path, name, item)
        for name, item in items.items()
        if not name.endswith("_QuantMultA")  # scales of the activations, for integer products
    }
    found = check_weights(path, tensors, shapes)
    weights = {}
    for name, published in theirs.items():
        weight = reorder(name, found[published], order)
        if name in listed:
            zeros = len(weight)  # the index of an additional row
            rows = [zeros, 0, zeros, 1, *range(2, zeros)]  # START, END, PAD, UNK, and the others
            weight = torch.cat([weight, torch.zeros_like(weight[:1])])[rows]
        weights[name] = weight
    weights["generator.proj.bias"][[START, PAD]] = NEVER
    return with_weights(model, weights), sides[0], sides[1] if len(sides) > 1 else None
