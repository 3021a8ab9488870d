"""Firefox's translators, against the engine's own output and a forward pass by the definition."""

import copy
import gc
import json
import os
import random
import re
import shutil
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from firefox_models import Item, eight_bits, floats, packed, plain_forward, tiny_items, weights_of
from safetensors.torch import load_file, save_file

from annotated.data import END, PAD, START, encode_source, pad_ids
from annotated.machinery.cli.main import main
from annotated.machinery.corpora.texts import read_lines
from annotated.machinery.errors import FileError, InputError
from annotated.machinery.files import resource_path
from annotated.machinery.formats.export import FORMS, export_model
from annotated.machinery.formats.firefox import read_firefox
from annotated.machinery.formats.pretrained import load_pretrained
from annotated.machinery.recording import record_attention
from annotated.machinery.scoring import bleu
from annotated.machinery.translator import Translator
from annotated.machinery.visualization.weights import read_attention

SHIPPED = resource_path("models") / "firefox-en-pt"
# Sentences of Tatoeba (tatoeba.org, CC BY 2.0 FR), and what another engine that runs Firefox's
# models makes of them.
KNOWN = {
    "I'm a little calmer now.": "Eu sou um pouco mais calmo agora.",
    'I say "I\'m Tom".': 'Eu digo "Eu sou Tom".',
    '"This one?" "No, that one!"': '"Este?" "Não, aquele!"',
    "Please don't play here — she is trying to get to sleep!":
        "Por favor, não jogue aqui - ela está tentando dormir!",
    "She was just like a little girl. She always wanted to be with me.":
        "Ela era como uma menina. Ela sempre quis estar comigo.",
    "The Great Wall of China is more than 5,500 miles long.":
        "A Grande Muralha da China tem mais de 5.500 milhas de comprimento.",
    "Tom was born on May 3rd,1990 and Mary was born on May 4th, 1990.":
        "Tom nasceu em 3 de maio de 1990 e Mary nasceu em 4 de maio de 1990.",
}  # fmt: skip


@pytest.fixture(scope="module")
def shipped() -> Translator:
    return load_pretrained("firefox-en-pt")


def raw_folder() -> Path:
    """The files as Firefox downloads them, among the corpora."""
    folder = Path(os.environ["ANNOTATED_DATA"]) / "firefox"
    if not folder.is_dir():
        pytest.skip("ANNOTATED_DATA has no folder firefox")
    return folder


@pytest.mark.corpora
@pytest.mark.slow
def test_a_thousand_sentences_are_those_of_the_engine(shipped):
    """Where they are not, the engine's list of likely words lacks one that this model prefers."""
    paths = (raw_folder() / f"tatoeba-1000.{kind}.gz" for kind in ("eng", "engine.por", "por"))
    sources, engine, references = map(read_lines, paths)
    found = shipped.translate(sources, beam=1)
    others = [i for i in range(1000) if found[i] != engine[i]]
    assert len(others) <= 18
    assert abs(bleu(found, references, "pt")["score"] - 54.77) < 0.3
    for i in others:  # where they part, ours is the more probable by more than rounding
        both = (likelihood_of_each(shipped, sources[i], each[i]) for each in (found, engine))
        ours, theirs = both
        part = next(n for n, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a[0] != b[0])
        assert ours[part][1] > theirs[part][1] + 0.2


@torch.no_grad()
def likelihood_of_each(translator: Translator, source: str, target: str) -> list[tuple[int, float]]:
    """Each piece of a translation with its log-probability."""
    (src,), (tgt,) = (encode_source(translator.tokenizer, [text]) for text in (source, target))
    out = translator.model(torch.tensor([src]), torch.tensor([[START, *tgt[:-1]]]))
    log_probs = translator.model.generator(out)[0]
    return [(piece, float(log_probs[i, piece])) for i, piece in enumerate(tgt)]


@pytest.mark.corpora
def test_the_shipped_model_is_the_imported_one(tmp_path):
    main(["import", str(raw_folder()), "--out", str(tmp_path / "own")])
    for name in "config.json", "tokenizer.json":
        own, shipped = ((folder / name).read_bytes() for folder in (tmp_path / "own", SHIPPED))
        assert json.loads(own) == json.loads(shipped)
    ours, theirs = (load_file(p / "model.safetensors") for p in (tmp_path / "own", SHIPPED))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.slow
def test_the_shipped_model_says_what_the_engine_says_and_comes_with_its_license(shipped):
    assert shipped.translate(list(KNOWN), beam=1) == list(KNOWN.values())
    for tensor in load_file(SHIPPED / "model.safetensors").values():
        assert (tensor.dtype == torch.int8) == (tensor.dim() == 2)  # all matrices
    assert "Mozilla Public License Version 2.0" in (SHIPPED / "LICENSE").read_text()
    card = (SHIPPED / "README.md").read_text(encoding="utf-8")
    assert "d968735704c75e33c2e183b9241f14c0b2a560d01d88a2728e5c0119a4d7fb22" in card
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) < 19e6


def compare(path: Path, translator: Translator, src: list[int], tgt: list[int]) -> None:
    """Logits and attentions to 1e-5, in a batch with padding; src and tgt as in the file.

    In double precision: in single, rounding alone makes half as much again.
    """
    model, c = copy.deepcopy(translator.model).double(), translator.model.config
    plain = plain_forward(weights_of(path), c.h, src, tgt)
    ours = lambda ids: [END if i == 0 else i + 2 for i in ids]
    batch = pad_ids([ours(src), [*ours(src)[:1], END, *[9] * len(src)]])
    said = torch.tensor([[START, *ours(tgt)[:-1]]] * 2)
    with torch.no_grad(), record_attention(model) as seen:
        logits = model.generator.proj(model(batch, said, (batch != PAD).unsqueeze(1)))[0]
    close = {"atol": 1e-5, "rtol": 1e-5}
    theirs = plain.pop("logits")
    torch.testing.assert_close(logits[:, 4:], theirs[:, 2:], **close)
    torch.testing.assert_close(logits[:, END], theirs[:, 0], **close)
    assert logits[:, [START, PAD]].max() < -90
    assert seen.keys() == plain.keys()
    for name, weights in plain.items():
        keys = weights.size(2)
        found = seen[name][0, :, : weights.size(1), :keys]
        torch.testing.assert_close(found, weights, **close)


@pytest.mark.corpora
def test_the_shipped_model_is_the_model_of_its_definition(shipped):
    path = raw_folder() / "model.enpt.intgemm.alphas.bin"
    for source, target in list(KNOWN.items())[:4]:
        (src,), (tgt,) = (encode_source(shipped.tokenizer, [text]) for text in (source, target))
        compare(path, shipped, *([0 if i == END else i - 2 for i in ids] for ids in (src, tgt)))


WORDS = "the cat sat on a mat and saw two dogs in park while it rained all day long"
LINES = [" ".join(WORDS.split()[(i * j + j) % 18] for j in range(2, 12)) for i in range(60)]


def vocabulary(path: Path, lines: list[str], **options: Any) -> int:
    """Learn a vocabulary of the kind that Firefox has, and return its size."""
    pytest.importorskip("sentencepiece")
    from marian_models import piece_model

    kept = {"bos_id": -1, "eos_id": 0, "unk_id": 1} | options
    return len(piece_model(path, lines, **kept)) + 2


def write(folder: Path, items: list[Item], name: str = "model.xxyy.intgemm.alphas.bin") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(packed(items))
    return folder


@pytest.fixture(scope="module")
def one_vocabulary(tmp_path_factory) -> tuple[Path, int]:
    """A folder without a model, and the size of its vocabulary."""
    folder = tmp_path_factory.mktemp("firefox")
    return folder, vocabulary(folder / "vocab.xxyy.spm", LINES)


def with_model(one_vocabulary: tuple[Path, int], folder: Path, **options: Any) -> Path:
    shutil.copytree(one_vocabulary[0], folder)
    return write(folder, tiny_items(one_vocabulary[1], **options))


@pytest.mark.parametrize("options", [{"dec": 1}, {"dec": 3}, {"dec": 2, "ffn": False}], ids=str)
def test_every_kind_is_the_model_of_its_definition(one_vocabulary, tmp_path, options):
    folder = with_model(one_vocabulary, tmp_path / "raw", **options)
    translator = load_pretrained(folder)
    compare(next(folder.glob("*.bin")), translator, [5, 9, 9, 2, 0], [7, 7, 3, 8, 4, 6, 0])
    assert (translator.model.config.decoder == "ssru") == options.get("ffn", True)
    translator.save(tmp_path / "own")
    back = load_pretrained(tmp_path / "own")
    assert back.model.config == translator.model.config
    pairs = zip(back.model.parameters(), translator.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
    assert back.translate(LINES[:3], max_extra=3) == translator.translate(LINES[:3], max_extra=3)


def test_two_vocabularies(tmp_path):
    """Each side has its own pieces and its own matrix; bytes stand for what no piece has."""
    folder = tmp_path / "raw"
    folder.mkdir()
    more = {"byte_fallback": True, "user_defined_symbols": "__sep__", "vocab_size": 300}
    src = vocabulary(folder / "srcvocab.xxyy.spm", LINES, **more)
    tgt = vocabulary(folder / "trgvocab.xxyy.spm", [x.swapcase() for x in LINES], **more)
    write(folder, tiny_items(src, tgt, dec=2))
    (folder / "lex.xxyy.s2t.bin").write_bytes(b"not read")
    translator = load_pretrained(folder)
    c = translator.model.config
    assert (c.src_vocab, c.tgt_vocab, c.tie_embeddings) == (src + 2, tgt + 2, False)
    compare(next(folder.glob("model*.bin")), translator, [5, 9, 9, 2, 0], [7, 7, 3, 8, 4, 6, 0])
    sentencepiece = pytest.importorskip("sentencepiece")
    texts = {"srcvocab": "the cat ☃ sat\u00e9", "trgvocab": "THE ☃☃ CAT"}
    tokenizers = translator.tokenizer, translator.target_tokenizer
    for (name, text), tokenizer in zip(texts.items(), tokenizers, strict=True):
        theirs = sentencepiece.SentencePieceProcessor(str(folder / f"{name}.xxyy.spm"))
        (ids,) = encode_source(tokenizer, [text])
        assert [i - 2 for i in ids[:-1]] == theirs.encode(text)
        assert tokenizer.decode(ids) == text
    found = read_attention(translator, "the cat", "THE CAT")
    assert found["cross"].queries[0] == "▁THE" and found["cross"].keys[0] == "▁the"


def test_attention_is_read_from_it_and_it_is_not_exported(shipped, tmp_path):
    found = read_attention(shipped, "The cat sat on the mat.")
    shapes = {kind: each.weights.shape[:2] for kind, each in found.items()}
    assert shapes == {"encoder": (6, 8), "cross": (2, 8)}  # the decoder has none to itself
    for form in FORMS:
        with pytest.raises(InputError, match=f"{form}.*decoder='ssru"):
            export_model(shipped, form, tmp_path / "out")


Change = Callable[[list[Item]], list[Item]]


def replaced(name: str, *items: Item) -> Change:
    """Other entries, or none, in the place of one."""
    return lambda whole: [y for x in whole for y in (items if x[0] == name else [x])]


def yml(old: str, new: str) -> Change:
    """Another setting."""

    def change(items: list[Item]) -> list[Item]:
        *others, (name, kind, _, text) = items
        assert old.encode() in text
        text = text.replace(old.encode(), new.encode())
        return [*others, (name, kind, (len(text),), text)]

    return change


RNN, BIAS, NAN = "decoder_l1_rnn_W", "decoder_l1_rnn_bf", float("nan")


def rnn(kind: int, shape: tuple[int, ...], size: int) -> Change:
    return replaced(RNN, (RNN, kind, shape, bytes(size)))


def times(multiplier: float) -> Change:
    return replaced(RNN, eight_bits(RNN, (16, 16), np.ones((16, 16)), multiplier))


REFUSED = [
    (replaced(RNN), f"tensor {RNN} is missing"),
    (replaced("special:model.yml"), "special:model.yml"),
    (replaced("special:model.yml", ("special:model.yml", 0x404, (1,), bytes(4))), "0x404"),
    (replaced("special:model.yml", ("special:model.yml", 0x101, (1,), b"\xff")), "special"),
    (replaced(BIAS, floats(BIAS, np.ones((1, 16))), floats("x", np.ones((1, 2)))), "x "),
    (replaced(BIAS, *[floats(BIAS, np.ones((1, 16)))] * 2), f"{BIAS} twice"),
    (replaced(BIAS, floats(BIAS, np.full((1, 16), NAN))), f"{BIAS} .* NaN"),
    (times(0.0), f"multiplier of {RNN} .*; got 0.0"),
    (times(NAN), f"multiplier of {RNN} .*; got nan"),
    (times(1e-40), f"{RNN} as .* NaN or infinity"),
    (rnn(0x4101, (16, 16), 259), RNN),
    (rnn(0x4101, (2**31 - 1,) * 4, 260), RNN),
    (rnn(0x4101, (-16, -16), 260), RNN),
    (rnn(0x8402, (16, 16), 2048), f"{RNN} .*0x8402"),
    (rnn(0x404, (8, 32), 1024), rf"{RNN} as \(16, 16\)"),
    (yml("dec-cell: ssru", "dec-cell: gru"), "dec-cell: 'ssru', .*; got 'gru'"),
    (yml("  []", "  - 1\n  - 1"), "transformer-tied-layers: .*; got '- 1 - 1'"),
    (yml("all: true", "all: false"), "tied-embeddings: 'true', .*; got 'false'"),
    (yml("version", "transformer-rnn-projection: true\nversion"), "rnn-projection: 'false'"),
    (yml("activation: relu", "activation: gelu"), "activation; got 'gelu'"),
    (yml("heads: 2", "heads: 3"), "divisible by h"),
    (yml("emb: 16", "emb: 999999999"), "d_model .*; got 999999999"),
    (yml("emb: 16", "emb: many"), "dim-emb .*; got 'many'"),
    (yml("enc-depth: 2", "enc-depth: 900"), "N=2 .*; got 900"),
    (yml("dec-depth: 1", "dec-depth: 900"), "N=2 .*; got 2 and 900"),
]


@pytest.mark.parametrize(("change", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_is_no_such_model_is_refused(one_vocabulary, tmp_path, change, message):
    folder = with_model(one_vocabulary, tmp_path / "raw")
    path = next(folder.glob("*.bin"))
    write(folder, change(tiny_items(one_vocabulary[1])), path.name)
    with pytest.raises(FileError, match=message) as caught:
        read_firefox(folder)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def damaged(whole: bytes, rng: random.Random) -> bytes:
    """A file cut, or with a number that is another, most of them in its description."""
    place = rng.choice([rng.randrange(len(whole)), rng.randrange(3000)])
    number = rng.choice([2**60, 2**64 - 1, 2**63, 2**31, rng.randrange(999)])
    even = place - place % 8
    return rng.choice([
        whole[:place],
        whole + bytes(1 + rng.randrange(99)),
        whole[:even] + struct.pack("<Q", number) + whole[even + 8 :],
        whole[:place] + rng.randbytes(1 + rng.randrange(9)) + whole[place + 9 :],
    ])  # fmt: skip


@pytest.mark.slow
def test_500_damaged_files_are_refused_or_harmless(one_vocabulary, tmp_path):
    """Each quickly, in a line that names the file; else every weight is a finite number."""
    folder = with_model(one_vocabulary, tmp_path / "raw")
    path = next(folder.glob("*.bin"))
    whole, rng, refused = path.read_bytes(), random.Random(0), 0
    gc.freeze()  # or a collection of what other tests left would count below
    for _ in range(500):
        path.write_bytes(damaged(whole, rng))
        begin = time.process_time()
        try:
            model, *_ = read_firefox(folder)
            assert all(p.isfinite().all() for p in model.parameters())
        except FileError as error:
            refused += 1
            assert str(path) in str(error) and "\n" not in str(error), error
        assert time.process_time() - begin < 1
    gc.unfreeze()
    assert refused > 300


@pytest.mark.parametrize("name", ["vocab.xxyy.spm", "model.xxyy.intgemm.alphas.bin"])
def test_a_file_is_missing_or_there_twice(one_vocabulary, tmp_path, name):
    folder = with_model(one_vocabulary, tmp_path / "raw")
    shutil.copy(folder / name, folder / name.replace("xxyy", "yyxx"))
    kind = name.replace("xxyy.intgemm.alphas", "*").replace("xxyy", "*")
    with pytest.raises(FileError, match=re.escape(kind)):
        load_pretrained(folder)
    for path in folder.glob(kind):
        path.unlink()
    with pytest.raises(InputError, match=re.escape(kind) + "|folder"):
        load_pretrained(folder)
    vocabulary(folder / "vocab.xxyy.spm", LINES, eos_id=1, unk_id=0)
    write(folder, tiny_items(one_vocabulary[1]))
    with pytest.raises(FileError, match=r"vocab\.xxyy\.spm.*<unk>"):  # other symbols
        load_pretrained(folder)


@pytest.mark.parametrize("value", [0.0, -1.0, NAN, [1.0], None])
def test_a_multiplier_of_our_own_format_is_a_number_above_0(one_vocabulary, tmp_path, value):
    load_pretrained(with_model(one_vocabulary, tmp_path / "raw")).save(tmp_path / "own")
    path, name = tmp_path / "own" / "model.safetensors", "src_embed.0.lut.weight"
    found = load_file(path)
    if value is None:
        found[name] = found[name].float()
    else:
        found[f"{name}.multiplier"] = torch.tensor(value)
    save_file(found, path)
    with pytest.raises(FileError, match=rf"model.safetensors: expected {name}"):
        load_pretrained(tmp_path / "own")
