"""The translator: text in, text out, alone or in company; a model survives its files."""

import json
import math
import re
from dataclasses import asdict
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from tiny import TOKENIZER, WORDS, never_end, wild
from tokenizers import Tokenizer
from torch.nn.utils import parametrizations, prune

from annotated.data import END, encode_source, train_bpe
from annotated.machinery.errors import FileError, InputError
from annotated.machinery.files import resource_path
from annotated.machinery.formats.export import FORMS, export_model
from annotated.machinery.formats.own import save_model
from annotated.machinery.formats.pretrained import load_pretrained
from annotated.machinery.runs.checkpoints import read_config
from annotated.machinery.translator import Translation, Translator
from annotated.model import EncoderDecoder
from annotated.training import preset

SHIPPED = {  # bytes, and the logs of earlier runs
    "multi30k-en-de": (8e6, set()),
    "multi30k-en-fr": (8e6, set()),
    "general-en-fr": (24e6, {"log-first.csv", "log-second.csv"}),
    "craft-parser": (12e6, {"log-first.csv"}),
}

SENTENCE = st.lists(st.sampled_from(WORDS.split()), max_size=6).map(" ".join)


@pytest.mark.slow
@settings(max_examples=10)
@given(
    st.lists(SENTENCE, min_size=1, max_size=4), st.integers(1, 40), st.sampled_from([None, 1, 2, 3])
)
def test_a_sentence_alone_or_in_company(sentences: list[str], batch_tokens: int, chunk: int | None):
    """No batch, no neighbor and no order changes a translation."""
    translator = Translator(wild(60, seed=3), TOKENIZER)
    options = {"n_best": 2, "max_extra": 8}
    alone = [next(translator.candidates([sentence], **options)) for sentence in sentences]
    found = list(translator.candidates(sentences, batch_tokens, chunk, **options))
    assert [[t.text for t in group] for group in found] == [[t.text for t in g] for g in alone]
    assert scores(found) == pytest.approx(scores(alone), abs=1e-5)
    assert translator.translate(sentences, max_extra=8) == [group[0].text for group in alone]


def scores(groups: list[list]) -> list[float]:
    return [candidate.score for group in groups for candidate in group]


BLANKS = ["", " ", "\t\r\x0b", "\u2028", "\u00a0\u3000", "\u200b\u200d", "\ufeff", "\x00", "\ue000"]


def test_what_cannot_be_seen_is_not_translated():
    translator = Translator(wild(60), TOKENIZER)
    translator.model.generator.register_forward_hook(never_end)
    for text in BLANKS:
        assert translator.translate(text, max_extra=2) == ""
        assert translator.translate(text + "one", max_extra=2) != ""
        assert list(translator.candidates([text], n_best=3)) == [[Translation("", 0.0, 0.0)]]


@pytest.mark.parametrize("name", ["batch_tokens", "chunk", "max_source"])
@pytest.mark.parametrize("wrong", [0, "7", 1.5])
def test_wrong_arguments_of_a_translation(name: str, wrong: object):
    translator = Translator(wild(60), TOKENIZER)
    with pytest.raises(InputError, match=name):
        translator.translate([], **{name: wrong})
    assert translator("one", **{name: 10**12}) == translator("one")  # as much as there is


def test_options_have_the_names_of_transformers_too():
    """An output has at most max_new_tokens, its end included, however long its source is."""
    translator = Translator(wild(60, seed=3), TOKENIZER)
    translator.model.generator.register_forward_hook(never_end)
    lines = ["one two", "three four five six"]
    theirs = {"num_beams": 3, "length_penalty": 2.0, "n_best": 2, "max_new_tokens": 9}
    found = list(translator.candidates(lines, **theirs))
    for line, group in zip(lines, found, strict=True):
        (ids,) = encode_source(TOKENIZER, [line])
        ours = {"beam": 3, "alpha": 2.0, "n_best": 2, "max_extra": 9 - len(ids)}
        (alone,) = translator.candidates([line], **ours)
        assert [t.text for t in alone] == [t.text for t in group]
        assert scores([alone]) == pytest.approx(scores([group]), abs=1e-5)
    assert translator(lines, max_new_tokens=1) == ["", ""]
    for pair in ("beam", "num_beams"), ("alpha", "length_penalty"), ("max_len", "max_new_tokens"):
        with pytest.raises(InputError, match=" or ".join(pair)):
            translator("one", **dict.fromkeys(pair, 1))
    for name in "beams", "temperature", "texts":
        with pytest.raises(InputError, match=f"options out of beam, .*num_beams.*; got '{name}'"):
            translator("one", **{name: 1})


def test_one_sentence_or_several_and_progress_counts_them(capsys, monkeypatch):
    translator = Translator(wild(60, seed=3), TOKENIZER)
    one, two = (translator.translate(word, max_extra=4) for word in ("one", "two"))
    assert isinstance(one, str) and one != two
    words = ["one", "two"]
    for several in words, tuple(words), iter(words), dict.fromkeys(words).keys():
        assert translator.translate(several, max_extra=4) == [one, two]
    for empty in [], (), iter(()):
        assert translator.translate(empty) == []
    assert translator.translate("") == "" and translator.translate([""]) == [""]
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    translator.translate(["one", "", "two three"], max_extra=0, progress=True)
    assert "3/3" in capsys.readouterr().err
    translator.translate(["one"], max_extra=0)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (None, "NoneType"), (b"one", "bytes"), ({"one": "two"}, "dict"), ({"one"}, "set"),
        (["one", "", b"two"], "sentence 3 .* bytes"),
    ],
)  # fmt: skip
def test_what_is_no_text_is_not_translated(wrong: object, said: str):
    with pytest.raises(InputError, match=said):
        Translator(wild(60), TOKENIZER).translate(wrong, max_extra=0)


def test_the_warning_names_the_line_and_its_neighbors_are_translated(recwarn):
    translator = Translator(wild(60, seed=3), TOKENIZER)
    lines = ["one", "", "two " * 30, "two"]
    found = translator.translate(lines, chunk=1, max_source=9, max_extra=2)
    assert [str(w.message).split(" (")[0] for w in recwarn.list] == ["sentence 3"]
    others = translator.translate([*lines[:2], lines[3]], max_extra=2)
    assert [*found[:2], found[3]] == others
    beginning = [*encode_source(TOKENIZER, lines)[2][:8], END]
    assert found[2] == translator.search([beginning], max_extra=2)[0][0].text
    exact = " ".join(["one"] * 4)
    translator.translate(exact, max_source=len(encode_source(TOKENIZER, [exact])[0]), max_extra=0)
    assert len(recwarn.list) == 1
    translator.translate("one two " * 700, max_extra=0)
    assert "more than 80 pieces" in str(recwarn.list[1].message)  # learned positions end there


def save(model: EncoderDecoder, folder: Path) -> None:
    """In half precision, as a training does."""
    TOKENIZER.save(str(folder / "tokenizer.json"))
    save_model(folder, dict(model.named_parameters()), model.config)


@pytest.mark.parametrize("options", [{"tie_embeddings": True}, {"positions": "sinusoidal"}])
@pytest.mark.parametrize("default", [torch.float32, torch.float64, torch.bfloat16])
def test_what_was_saved_is_loaded(tmp_path: Path, options: dict, default: torch.dtype):
    model = wild(60, **options)
    save(model, tmp_path)
    state = torch.get_rng_state()
    torch.set_default_dtype(default)
    try:
        translator = load_pretrained(tmp_path)
        text = translator.translate("one two", max_extra=3)
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(torch.get_rng_state(), state)  # nothing was initialized for nothing
    assert not translator.model.training and translator.model.config == model.config
    for old, new in zip(model.parameters(), translator.model.parameters(), strict=True):
        assert new.dtype == torch.float32 and new.requires_grad
        assert torch.equal(new, old.half().float())
    buffers = zip(model.buffers(), translator.model.buffers(), strict=True)
    assert all(torch.equal(old, new) for old, new in buffers)
    tied = translator.model.src_embed[0].lut.weight is translator.model.generator.proj.weight
    assert tied == model.config.tie_embeddings
    assert load_pretrained(str(tmp_path)).translate("one two", max_extra=3) == text


@pytest.mark.parametrize(("half", "kind"), [(True, torch.float16), (False, torch.float32)])
def test_a_translator_saves_what_is_loaded(tmp_path: Path, half: bool, kind: torch.dtype):
    model = wild(60, tie_embeddings=True)
    if half:
        model.half().float()
    one = Translator(model, TOKENIZER, TOKENIZER)
    one.save(tmp_path / "new")
    tensors = load_file(tmp_path / "new" / "model.safetensors")
    assert {tensor.dtype for tensor in tensors.values()} == {kind}
    other = load_pretrained(tmp_path / "new")
    pairs = zip(one.model.parameters(), other.model.parameters(), strict=True)
    assert all(torch.equal(old, new) for old, new in pairs)
    assert other.target_tokenizer.get_vocab() == TOKENIZER.get_vocab()
    other.save(tmp_path / "again")
    for file in (tmp_path / "new").iterdir():
        assert file.read_bytes() == (tmp_path / "again" / file.name).read_bytes()
    with pytest.raises(InputError, match=str(tmp_path / "new")):
        one.save(tmp_path / "new")


@pytest.mark.parametrize(
    "change",
    [
        lambda m: prune.l1_unstructured(m.encoder.layers[0].self_attn.w_q, "weight", amount=0.3),
        lambda m: parametrizations.weight_norm(m.generator.proj),
        lambda m: setattr(m.decoder, "layers", m.decoder.layers[:1]),
        lambda m: setattr(m.src_embed[0], "lut", torch.nn.Embedding(61, 16)),
        lambda m: setattr(m.encoder.layers[1], "self_attn", torch.nn.Identity()),
    ],
)
def test_a_model_that_its_configuration_does_not_describe_is_not_written(tmp_path, change):
    translator = Translator(wild(60, N=2), TOKENIZER)
    change(translator.model)
    for write in (translator.save, *(partial(export_model, translator, form) for form in FORMS)):
        with pytest.raises(InputError, match="configuration"):
            write(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_weights_that_16_bits_cannot_hold_are_not_written(tmp_path: Path):
    translator = Translator(wild(60), TOKENIZER)
    with torch.no_grad():
        translator.model.generator.proj.weight[3, 3] = 1e6
    with pytest.raises(InputError, match=r"65504.*generator\.proj\.weight"):
        save_model(tmp_path, dict(translator.model.named_parameters()), translator.model.config)
    for form in FORMS:
        with pytest.raises(InputError, match=r"65504.*generator\.proj\.weight"):
            export_model(translator, form, tmp_path / form, half=True)
    assert not [*tmp_path.iterdir()]
    translator.save(tmp_path / "single")
    assert load_pretrained(tmp_path / "single").model.generator.proj.weight[3, 3] == 1e6


def test_every_module_with_weights_is_called():
    """So that replaced forwards and hooks, such as those that fetch offloaded weights, work."""
    model, seen = wild(60, norm_first=True), set()
    parts = {name: m for name, m in model.named_modules() if m._parameters}
    for name, module in parts.items():
        module.register_forward_hook(lambda *_, name=name: seen.add(name))
    Translator(model, TOKENIZER).translate("one two", max_extra=2)
    assert seen == parts.keys()
    seen.clear()
    model.generator(model(torch.tensor([[4, 5]]), torch.tensor([[6, 7]])))
    assert seen == parts.keys()


def test_an_unknown_model_is_refused_with_the_known(tmp_path: Path, monkeypatch):
    for name, config in ("one", "src_vocab"), ("two", "src_vocab"), ("language model", "vocab"):
        (tmp_path / "models" / name).mkdir(parents=True)
        (tmp_path / "models" / name / "config.json").write_text(f'{{"{config}": 9}}')
    (tmp_path / "models" / "unfinished").mkdir()
    hub = "annotated.machinery.formats.hub"
    monkeypatch.setattr(f"{hub}.resource_path", lambda name: tmp_path / name)
    for name in "three", "unfinished", str(tmp_path):  # a folder without a model is none
        with pytest.raises(ValueError, match=re.escape(f"one, two; got {name!r}")):
            load_pretrained(name)
    for name in None, 7, b"multi30k-en-de", "", "x" * 9999, "a\0b", "\ud800":
        with pytest.raises(InputError):
            load_pretrained(name)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """The folder of a tiny model, whole."""
    save(wild(60, positions="sinusoidal", tie_embeddings=True), tmp_path)
    return tmp_path


@pytest.mark.parametrize("place", [-1, -1000, -(2**12)])
def test_damaged_and_exchanged_weights_are_refused(saved: Path, place: int):
    """One bit, which leaves a finite number; and those of a model with another vocabulary."""
    path = saved / "model.safetensors"
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[place] ^= 1
    path.write_bytes(damaged)
    assert "SHA-256" in not_loaded(saved, path.name)
    path.write_bytes(whole)
    load_pretrained(saved)
    train_bpe([WORDS[::-1]] * 2, 60).save(str(saved / "tokenizer.json"))
    not_loaded(saved, "tokenizer.json")


def not_loaded(folder: Path, file: str) -> str:
    """The line that refuses a model; it begins with the name of the file."""
    with pytest.raises(FileError) as found:
        load_pretrained(folder)
    line = str(found.value)
    assert str(folder / file) in line and "\n" not in line
    return line


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "model.safetensors"])
def test_every_cut_of_a_models_files_is_noticed(saved: Path, file: str):
    whole = (saved / file).read_bytes()
    same = {len(whole), len(whole.removesuffix(b"\n"))}  # JSON is whole without its last line's end
    for size in {0, 1, *range(2, len(whole), len(whole) // 7)} - same:
        (saved / file).write_bytes(whole[:size])
        not_loaded(saved, file)
    for other in b"<html>" * 99, b"\xff" * 99, b"[" * 99_999, b"[]", b"null", b"{}":
        (saved / file).write_bytes(other)
        not_loaded(saved, file)
    (saved / file).unlink()
    not_loaded(saved, file)
    (saved / file).mkdir()
    not_loaded(saved, file)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"N": 1}, "N=2 layers"), ({"N": 10**30}, "N of at most 1,000"),
        ({"N": "2"}, 'field "N" - should'),
        ({"d_model": 32}, r"\(60, 32\)|\(32, 32\)"), ({"d_model": 10**30}, "d_model of at most"),
        ({"d_ff": 10**7}, r"w_1.* as \(10000000, 16\)"), ({"d_k": 3}, "w_"),
        ({"norm_first": True}, "norm.* is missing"), ({"positions": "learned"}, "pe is missing"),
        ({"max_len": 10**9}, "at most 100,000"), ({"tie_embeddings": False}, "is missing"),
        ({"src_vocab": 61, "tgt_vocab": 61}, r"\(61, 16\)"),
        ({"dropout": 0.2}, "the configuration in"), ({"heads": 2}, 'can not match "heads"'),
    ],
)  # fmt: skip
def test_a_configuration_of_another_model_is_refused(saved: Path, change: dict, said: str):
    config = json.loads((saved / "config.json").read_text(encoding="utf-8"))
    (saved / "config.json").write_text(json.dumps(config | change), encoding="utf-8")
    assert re.search(said, not_loaded(saved, "config.json" if "N" in change else ""))


NAME = "decoder.layers.1.feed_forward.w_1.weight"  # (32, 16)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda w: w.T, r"\(32, 16\) .*; got \(16, 32\)"),
        (lambda w: w.long(), "got .*int64"),
        (lambda w: w.double() + 1e300, "infinity"),  # too large for single precision
        (lambda w: w.index_fill(0, torch.tensor(3), math.nan), "NaN"),
    ],
)
def test_a_wrong_tensor_is_refused(saved: Path, change, said: str):
    tensors = load_file(saved / "model.safetensors")
    tensors[NAME] = change(tensors[NAME].float()).contiguous()
    save_file(tensors, saved / "model.safetensors")
    line = not_loaded(saved, "model.safetensors")
    assert NAME in line and re.search(said, line)


def test_padding_and_truncation_of_a_training_elsewhere_are_left_out(saved: Path):
    translator, elsewhere = load_pretrained(saved), saved / "elsewhere"
    expected = translator.translate(["one", "two three, four"])
    export_model(translator, "huggingface", elsewhere)
    tokenizer = Tokenizer.from_file(str(elsewhere / "tokenizer.json"))
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=10**6)
    tokenizer.save(str(elsewhere / "tokenizer.json"))
    assert load_pretrained(elsewhere).translate(["one", "two three, four"]) == expected


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t["model"]["vocab"].update({"zzz": 60}), "at most 60 pieces, .*; got 61"),
        (lambda t: t["model"]["vocab"].update({"zzz": 2**31}), "at most 60 pieces"),
        (lambda t: t["model"]["vocab"].update({"<s>": 1, "</s>": 0}), "the first pieces as"),
        (lambda t: (t["added_tokens"].clear(), t["model"]["vocab"].clear(),
                    t["model"]["merges"].clear()), "<unk>"),
        (lambda t: t["model"].update(unk_token="none"), "none"),
        (lambda t: t.update(normalizer={"type": "Sequence", "normalizers": [  # doubles each a
            {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}] * 40}), "Replace"),
        (lambda t: t.update(pre_tokenizer={"type": "FixedLength", "length": 0}), "FixedLength"),
        (lambda t: t.update(normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
         "Precompiled"),  # a panic of the library
        (lambda t: t["model"]["vocab"].update({"one": 5}), "of the model; got another"),
        (lambda t: t.update(post_processor={"type": "Sequence", "processors": []}), "post_proc"),
        (lambda t: t.update(model=None), "a vocabulary as"),
    ],
)  # fmt: skip
def test_a_vocabulary_that_the_model_does_not_know_is_refused(saved: Path, change, said: str):
    vocabulary = json.loads((saved / "tokenizer.json").read_text(encoding="utf-8"))
    change(vocabulary)
    (saved / "tokenizer.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    assert re.search(said, not_loaded(saved, "tokenizer.json"))


@pytest.mark.parametrize("device", ["meta", "tpu", "", "cuda:99", "cpu:x", 3.5])
def test_a_device_that_cannot_compute_is_refused(saved: Path, device: object):
    with pytest.raises(ValueError, match="device"):
        load_pretrained(saved, device)


@pytest.fixture(scope="module")
def translators() -> dict[str, Translator]:
    return {name: load_pretrained(name) for name in SHIPPED}


@pytest.mark.parametrize(
    "name, man, dogs",
    [
        ("multi30k-en-de", ("Mann", "Fahrrad"), ("Hunde", "Strand")),
        ("multi30k-en-fr", ("homme", "vélo"), ("chiens", "plage")),
        ("general-en-fr", ("homme",), ("chiens", "plage")),
    ],
)
def test_the_shipped_models_translate(translators, name: str, man: tuple, dogs: tuple):
    one = translators[name].translate("A man is riding a bicycle.")
    assert all(word in one for word in man) and one.endswith(".")
    two = translators[name].translate(["Two dogs run on the beach.", "A man is riding a bicycle."])
    assert all(word in two[0] for word in dogs) and two[1] == one


@pytest.mark.gpu
@pytest.mark.parametrize("options", [{"beam": 1}, {"beam": 4, "n_best": 4}])
def test_a_gpu_translates_as_the_cpu_does(options: dict):
    captions = ["A man is riding a bicycle.", "", "Two dogs run on the beach.", "A girl sings."]
    cpu, gpu = (load_pretrained("multi30k-en-de", device) for device in ("cpu", "cuda"))
    expected, found = (list(each.candidates(captions, **options)) for each in (cpu, gpu))
    texts = lambda groups: [[t.text for t in group] for group in groups]
    assert texts(found) == texts(expected)
    assert scores(found) == pytest.approx(scores(expected), abs=1e-3)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_preset_repeats_the_training_of_a_shipped_model(name: str):
    said = asdict(read_config(resource_path("models") / name))
    made = asdict(preset(name, out=said["out"]))
    later_run = {"from_", "factor", "warmup", "seed", "updates", "average", "save_updates"}
    allowed = {"precision"} | (later_run if SHIPPED[name][1] else set())  # as its card tells
    assert {key for key in said if said[key] != made[key]} <= allowed


@pytest.mark.parametrize("name", SHIPPED)
def test_the_shipped_models_are_small_and_come_with_their_logs_and_cards(translators, name: str):
    folder, (most, logs) = resource_path("models") / name, SHIPPED[name]
    files = {path.name: path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    assert sum(files.values()) <= most
    expected = "model.safetensors", "config.json", "tokenizer.json", "training.json", "log.csv"
    assert {*expected, *logs, "README.md"} == set(files)
    config = translators[name].model.config
    assert translators[name].tokenizer.get_vocab_size() <= config.tgt_vocab
    card = (folder / "README.md").read_text(encoding="utf-8")
    results = resource_path("results")
    rows = lambda log: json.loads((results / f"{log}.json").read_text(encoding="utf-8"))
    if name == "general-en-fr":
        for row in rows(name) + rows(f"{name}-newstest2013"):
            told = f"| {row['sentences']:,} | {row['score']:.2f} |"
            assert told in card or row["text"] != "cased, detokenized"
    elif name != "craft-parser":  # see test_parsing_parser
        score = {(row["split"], row["text"]): f"{row['score']:.2f}" for row in rows(name)}
        for split in "dev", "test":
            texts = "cased, detokenized", "lower-cased, tokenized"
            assert " | ".join(score[split, text] for text in texts) in card
