"""Published models, against transformers and sentencepiece themselves."""

import json
import pickle
import shutil
import struct
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from annotated.attention import subsequent_mask
from annotated.data import PAD, START, encode_source, encode_target, pad_ids
from annotated.machinery.cli.main import main
from annotated.machinery.errors import FileError, InputError
from annotated.machinery.formats import marian
from annotated.machinery.formats.export import export_model
from annotated.machinery.formats.marian import write_marian
from annotated.machinery.formats.pretrained import load_pretrained
from annotated.machinery.recording import record_attention
from annotated.machinery.runs.fine_tuning import fine_tuning
from annotated.machinery.runs.folder import open_noted
from annotated.machinery.runs.trainer import train
from annotated.machinery.translator import Translator

pytest.importorskip("transformers")
pytest.importorskip("sentencepiece")

from marian_models import ENGLISH, GERMAN, piece_model, published, suppressed
from tiny import TOKENIZER, WORDS, wild, with_biases
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer


@pytest.fixture(scope="module")
def pair(tmp_path_factory) -> SimpleNamespace:
    """A published model: as transformers and as we read it, and which number is which."""
    folder = tmp_path_factory.mktemp("marian")
    model, tokenizer = published(folder)
    ours = load_pretrained(folder)
    numbers = tokenizer.get_vocab()
    names = [ours.tokenizer.id_to_token(i).strip() for i in range(ours.model.config.src_vocab)]
    rows = [numbers.get(name, tokenizer.unk_token_id) for name in names]
    rows[START] = rows[PAD] = tokenizer.pad_token_id
    given = {"folder": folder, "model": model, "tokenizer": tokenizer, "ours": ours}
    return SimpleNamespace(**given, rows=torch.tensor(rows))


def batch(pair: SimpleNamespace) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    src = pad_ids(encode_source(pair.ours.tokenizer, ["the cat", *ENGLISH[:4]]))
    tgt = torch.randint(4, len(pair.rows), (len(src), 9))
    tgt[:, 0] = START
    return src, tgt, (src != PAD).unsqueeze(1), subsequent_mask(9)


@pytest.mark.slow
@torch.no_grad()
def test_logits_and_attentions_are_those_of_transformers(pair):
    src, tgt, src_mask, tgt_mask = batch(pair)
    ours = pair.ours.model
    with record_attention(ours) as seen:
        logits = ours.generator.proj(ours(src, tgt, src_mask, tgt_mask))
    pair.model.set_attn_implementation("eager")
    theirs = pair.model(
        input_ids=pair.rows[src],
        attention_mask=src_mask.squeeze(1).long(),
        decoder_input_ids=pair.rows[tgt],
        output_attentions=True,
    )
    said = [i for i in range(len(pair.rows)) if i != PAD and i < len(pair.tokenizer)]
    torch.testing.assert_close(logits[..., said], theirs.logits[..., pair.rows[said]])
    probabilities = theirs.logits.log_softmax(-1)[..., pair.rows[said]]  # nothing else is likely
    torch.testing.assert_close(logits.log_softmax(-1)[..., said], probabilities)
    real = src_mask.unsqueeze(2).mT  # a padded position may attend to anything
    for i in range(2):
        found = seen[f"encoder.layers.{i}.self_attn"] * real
        torch.testing.assert_close(found, theirs.encoder_attentions[i] * real)
        for kind, each in ("self", theirs.decoder_attentions), ("src", theirs.cross_attentions):
            torch.testing.assert_close(seen[f"decoder.layers.{i}.{kind}_attn"], each[i])


def generate(pair: SimpleNamespace, sentence: str) -> str:
    asked = pair.tokenizer(sentence, return_tensors="pt")
    size = asked["input_ids"].size(1) + 20
    options = {"max_new_tokens": size, "suppress_tokens": suppressed(pair.tokenizer)}
    found = pair.model.generate(**asked, num_beams=1, **options)
    return pair.tokenizer.decode(found[0], skip_special_tokens=True)


def test_greedy_search_gives_the_same_texts(pair):
    found = pair.ours.translate(ENGLISH[:12], beam=1, max_extra=20)
    assert found == [generate(pair, line) for line in ENGLISH[:12]]
    assert len(set(found)) > 6  # it does not say the same to everything


@pytest.mark.slow
@pytest.mark.parametrize("beam", [4, 6])
def test_a_trained_model_is_searched_alike(tmp_path, beam):
    """A model that knows its task, in transformers and here, under Marian's rule."""
    ours = load_pretrained("multi30k-en-de")
    write_marian(ours, tmp_path)
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path).eval()
    people = "A man", "Two young girls", "The brown dog", "Several people"
    deeds = "is sitting in the snow", "look at a bicycle", "jump over something", "plays the guitar"
    lines = [f"{who} {does} near a crowd." for who in people for does in deeds]
    search = {"beam": beam, "alpha": 1.0, "offset": 0, "max_extra": 20}
    alike = 0
    for (best, *_), line in zip(ours.candidates(lines, **search), lines, strict=True):
        (ids,) = encode_source(ours.tokenizer, [line])
        found = model.generate(
            torch.tensor([ids]), max_length=None, max_new_tokens=len(ids) + 20, num_beams=beam,
            length_penalty=1.0, return_dict_in_generate=True, output_scores=True,
        )  # fmt: skip
        if ours.tokenizer.decode(found.sequences[0].tolist()) == best.text:
            alike += 1
            assert best.score == pytest.approx(found.sequences_scores.item(), abs=1e-4)
    assert alike >= 0.95 * len(lines)


TEXTS = ["", "  the   cat\t sat ", "the Q cat", ">>deu<< the cat", "catA\u0308", "a" * 300]
TEXTS.append("the \ufb01t \uff43\uff41\uff54\u2026")  # which are normalized


@pytest.mark.parametrize("side", ["source", "target"])
def test_pieces_are_those_of_sentencepiece(pair, side: str):
    tokenizer, lines = pair.ours.tokenizer, ENGLISH
    if side == "target":
        tokenizer, lines = pair.ours.target_tokenizer, [line.swapcase() for line in GERMAN]
    for text in [*lines, *TEXTS]:
        if side == "target":
            text = text.swapcase().replace(">>DEU<< ", "")
        options = {"text": text} if side == "source" else {"text_target": text}
        (ids,) = encode_source(tokenizer, [text])
        assert pair.rows[ids].tolist() == pair.tokenizer(**options)["input_ids"], text
        back = pair.tokenizer.decode(pair.rows[ids[:-1]], skip_special_tokens=True)
        if side == "target" and "<unk>" not in back:
            assert tokenizer.decode(ids) == back
            assert pair.ours.tokenizer.decode(ids) == back  # the pieces are the same


def test_weights_of_torch_are_read_too(pair, tmp_path, monkeypatch):
    """But not by a torch whose pickles may run code."""
    folder = changed(pair.folder, tmp_path)
    (folder / "model.safetensors").unlink()
    torch.save(pair.model.state_dict(), folder / "pytorch_model.bin")  # the shared matrix thrice
    same_weights(load_pretrained(folder).model, pair.ours.model)
    monkeypatch.setattr(marian, "_SAFE", "99.0")
    with pytest.raises(FileError, match=r"pytorch_model\.bin: .*torch"):
        load_pretrained(folder)


def same_weights(one: nn.Module, other: nn.Module) -> None:
    for p, q in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(p, q)


def changed(source: Path, tmp_path: Path, **config: Any) -> Path:
    """A copy of a folder, with something else in its configuration."""
    folder = tmp_path / "changed"
    shutil.copytree(source, folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    return folder


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "m2m_100"}, "model_type='marian'; got 'm2m_100'"),
        ({"decoder_layers": 1}, "decoder_layers=2; got 1"),
        ({"encoder_layers": 10**9, "decoder_layers": 10**9}, "N=2 layers|N of at most"),
        ({"d_model": 10**12}, "config.json: expected"),
        ({"d_model": 64}, r"expected .* as \(.*\) of finite floating-point numbers; got"),
        ({"d_model": 33}, "divisible by h"),
        ({"vocab_size": 10**15}, "pieces numbered from 0 to|src_vocab of at most"),
        ({"vocab_size": "many"}, 'field "src_vocab" - should be "int"'),
        ({"scale_embedding": None}, "scale_embedding=True"),
        ({"normalize_before": True}, "normalize_before=False"),
        ({"activation_function": "gelu"}, "expected .* activation; got 'gelu'"),
        ({"decoder_start_token_id": 10**9}, "decoder_start_token_id="),
        ({"eos_token_id": 5}, "eos_token_id=0; got 5"),
    ],
    ids=str,
)
def test_a_configuration_that_does_not_fit_is_refused(pair, tmp_path, config, message):
    with pytest.raises(FileError, match=message):
        load_pretrained(changed(pair.folder, tmp_path, **config))


class Runs:
    """Unpickled, it would leave a file behind."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("it-ran"),)


def rewrite(folder: Path, change: Any) -> None:
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


def pickled(folder: Path, content: bytes) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(content)


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def append(path: Path, more: bytes) -> None:
    path.write_bytes(path.read_bytes() + more)


NORM = "model.encoder.layers.0.final_layer_norm.weight"
TABLE = "model.encoder.embed_positions.weight"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: rewrite(f, lambda t: t.pop(NORM)), f"tensor {NORM} is missing"),
        (lambda f: rewrite(f, lambda t: t[NORM].fill_(torch.nan)), f"{NORM} .* NaN"),
        (lambda f: rewrite(f, lambda t: t.update({"lm_head.weight": torch.zeros(3, 2)})), "lm_"),
        (lambda f: rewrite(f, lambda t: t.update({TABLE: torch.zeros(9, 32)})), f"got: {TABLE}"),
        (lambda f: rewrite(f, lambda t: t.update({TABLE: torch.zeros(9, 2)})), f"got: {TABLE}"),
        (lambda f: (f / "model.safetensors").unlink(), "there is no such file"),
        (lambda f: pickled(f, pickle.dumps(Runs())), "tensors and nothing else"),
        (lambda f: pickled(f, b"\x80\x02}q\x00."), "pytorch_model.bin: expected"),
        (lambda f: (f / "vocab.json").write_text('{"</s>": "0"}'), "pieces numbered from 0"),
        (lambda f: shorten(f / "source.spm"), "truncated"),
        (lambda f: piece_model(f / "source.spm", ENGLISH, "bpe"), "not Unigram"),
        (lambda f: piece_model(f / "source.spm", ENGLISH, byte_fallback=True, vocab_size=300),
         "with user-defined pieces, bytes, spaces kept"),
        (lambda f: piece_model(f / "source.spm", ENGLISH, treat_whitespace_as_suffix=True),
         "spaces at the ends of pieces"),
        (lambda f: piece_model(f / "target.spm", ENGLISH, remove_extra_whitespaces=False),
         "spaces kept"),
        (lambda f: append(f / "source.spm", b"\x1a\x06\x12\x04" + struct.pack("<I", 2**31)),
         "whose tables are sound"),
    ],
)  # fmt: skip
def test_a_damaged_or_hostile_folder_is_refused(pair, tmp_path, monkeypatch, damage, message):
    folder = changed(pair.folder, tmp_path)
    monkeypatch.chdir(tmp_path)
    damage(folder)
    with pytest.raises(FileError, match=message):
        load_pretrained(folder)
    assert not (tmp_path / "it-ran").exists()


def writable(**options: Any) -> Translator:
    model = wild(TOKENIZER.get_vocab_size(), positions="sinusoidal", tie_embeddings=True, **options)
    return Translator(with_biases(model), TOKENIZER)


@pytest.mark.parametrize("options", [{}, {"bias": True, "activation": "swish"}], ids=str)
def test_what_is_written_transformers_reads(tmp_path, options):
    ours = writable(**options)
    export_model(ours, "huggingface", tmp_path / "new")
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "new")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "new")
    words = WORDS.split()
    for text in "two one", "three  three </s>four", *(" ".join(words[i:]) for i in range(6)):
        asked = tokenizer(text, return_tensors="pt")
        assert asked["input_ids"].tolist() == encode_source(TOKENIZER, [text])
        size = asked["input_ids"].size(1) + 8
        options = {"max_length": None, "max_new_tokens": size, "num_beams": 1}
        found = model.generate(asked["input_ids"], **options)
        said = tokenizer.decode(found[0], skip_special_tokens=True)
        assert said == ours.translate(text, beam=1, max_extra=8)


def test_what_was_read_is_written_in_half_the_size(pair, tmp_path):
    write_marian(pair.ours, tmp_path, half=True)
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path, dtype=torch.float32)
    src, tgt, src_mask, tgt_mask = batch(pair)
    ours = pair.ours.model
    with torch.no_grad():
        logits = ours.generator.proj(ours(src, tgt, src_mask, tgt_mask))
        theirs = model(src, src_mask.squeeze(1).long(), tgt)
    torch.testing.assert_close(theirs.logits, logits, rtol=0.01, atol=0.02)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer(ENGLISH)["input_ids"] == encode_source(pair.ours.tokenizer, ENGLISH)
    (ids,) = encode_source(pair.ours.target_tokenizer, GERMAN[:1])
    assert tokenizer.decode(ids, skip_special_tokens=True) == GERMAN[0]


@pytest.mark.parametrize("kind", ["paper", "published", "two tokenizers"])
def test_what_is_written_is_read_back(pair, tmp_path, kind):
    options = {"bias": True, "activation": "swish"} if kind == "published" else {}
    ours = pair.ours if kind == "two tokenizers" else writable(**options)
    write_marian(ours, tmp_path)
    back = load_pretrained(tmp_path)
    before, after = ours.model.state_dict(), back.model.state_dict()
    assert before.keys() <= after.keys()
    for name, tensor in after.items():  # a bias that the paper's model lacks is zero
        assert torch.equal(tensor, before.get(name, torch.zeros_like(tensor))), name
    kept = {"bias": ours.model.config.bias, "max_len": ours.model.config.max_len}
    assert replace(back.model.config, **kept) == ours.model.config
    same_tokenizers(back, ours)


def same_tokenizers(one: Translator, other: Translator) -> None:
    assert (one.target_tokenizer is None) == (other.target_tokenizer is None)
    for name in "tokenizer", "target_tokenizer":
        if (ours := getattr(one, name)) is not None:
            theirs = getattr(other, name)
            assert ours.get_vocab() == theirs.get_vocab()
            assert encode_source(ours, ENGLISH + GERMAN) == encode_source(theirs, ENGLISH + GERMAN)


def test_a_written_folder_that_was_damaged_is_refused(tmp_path):
    write_marian(writable(), tmp_path / "new")
    with pytest.raises(FileError, match="eos_token_id=1; got 7"):
        load_pretrained(changed(tmp_path / "new", tmp_path, eos_token_id=7))
    shorten(tmp_path / "new" / "tokenizer.json")
    with pytest.raises(FileError, match=r"tokenizer\.json"):
        load_pretrained(tmp_path / "new")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"norm_first": True}, "norm_first=False"),
        ({"positions": "learned"}, "sinusoids"),
        ({"d_k": 4}, "d_k = d_v"),
        ({"tie_embeddings": False}, "tie_embeddings=True"),
    ],
)
def test_what_the_format_cannot_hold_is_not_written(tmp_path, options, message):
    base = {"positions": "sinusoidal", "tie_embeddings": True}
    model = wild(TOKENIZER.get_vocab_size(), **base | options)
    with pytest.raises(InputError, match=message):
        write_marian(Translator(model, TOKENIZER), tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_training_goes_on_from_an_imported_model(pair, tmp_path, monkeypatch, capsys):
    """Source and target are each cut by their own rules, in the corpus and afterwards."""
    (card := pair.folder / "README.md").write_text("---\nlicense: cc-by-4.0\n---\n")
    main(["import", str(pair.folder), "--out", str(imported := tmp_path / "own" / "model")])
    card.unlink()
    capsys.readouterr()
    ours = load_pretrained(imported)
    assert capsys.readouterr().err == ""  # it is one of ours now
    same_weights(ours.model, pair.ours.model)
    same_tokenizers(ours, pair.ours)
    assert "license: cc-by-4.0" in (imported / "README.md").read_text()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for split in "train", "dev":
        for lang, lines in (("en", ENGLISH), ("de", GERMAN)):
            (tmp_path / f"{split}.{lang}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    options = {"updates": 2, "factor": 0.0, "out": str(tmp_path / "run")}
    config = fine_tuning(pair.folder, data=f"{tmp_path}-en-de", **options)
    trained = load_pretrained(train(config))
    learned = open_noted(Path(config.out)).train
    assert learned[0][0] == encode_source(pair.ours.tokenizer, ENGLISH)[0]
    assert learned[0][1] == encode_target(pair.ours.target_tokenizer, GERMAN)[0]
    assert trained.translate(ENGLISH[:3]) == pair.ours.translate(ENGLISH[:3])
