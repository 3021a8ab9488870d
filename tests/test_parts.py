"""A model taken apart: what works with parts that the package does not know.

Each row is a model of two layers, thus with six layers of attention. Its output is searched with a
cache of states, or by decoding the whole output in each step. Of its six layers of attention, so
many have their weights recorded, and their heads switched off. Its embeddings are tied or not. All
are trained, resumed, averaged, saved and loaded; other programs refuse them by name.

part                             search  weights  heads  embeddings  others
an attention's kernel            cache   6        6      tied        refused
the same for the source          whole   6        6      tied        refused
an attention's forward           whole   0        6      tied        refused
an attention's keys and queries  cache   2        6      tied        refused
the same for the source, too     whole   0        6      tied        refused
a foreign attention              whole   0        0      tied        refused
a foreign attention with steps   cache   4        4      tied        refused
the same in all places           whole   0        0      tied        refused
a foreign feed-forward           cache   6        6      tied        refused
a feed-forward's forward         cache   6        6      tied        refused
torch's RMSNorm                  cache   6        6      tied        refused
torch's LayerNorm, another eps   cache   6        6      tied        refused
a foreign norm                   cache   6        6      tied        refused
learned positions                cache   6        6      tied        refused
no positions, but distances      cache   6        6      tied        refused
no positions                     whole   6        6      tied        refused
foreign positions                whole   6        6      tied        refused
positions in a stored buffer     cache   6        6      tied        refused
positions in a computed buffer   cache   6        6      tied        refused
a foreign embedding, tied        cache   6        6      tied        refused
a foreign embedding              cache   6        6      untied      refused
a factorized embedding           cache   6        6      untied      refused
"""

import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from foreign_parts import PARTS, Distances, Factorized, LinearAttention, Silent, TorchStack, changes
from safetensors import safe_open
from small_runs import assert_same_run, refused, run_script
from test_runs_processes import assert_close
from tiny import TOKENIZER, never_end
from torch import Tensor, nn

from annotated.attention import subsequent_mask
from annotated.data import END, PAD, START, UNK, encode_source
from annotated.decoding import beam_search, greedy_decode
from annotated.incremental import DecoderCache
from annotated.machinery.cli.main import main
from annotated.machinery.errors import FileError, InputError
from annotated.machinery.formats import engine
from annotated.machinery.formats.export import FORMS, export_model
from annotated.machinery.formats.own import built, model_tensors
from annotated.machinery.formats.pretrained import load_pretrained
from annotated.machinery.recording import record_attention, switch_off, take, touch
from annotated.machinery.runs.checkpoints import list_checkpoints
from annotated.machinery.runs.trainer import train
from annotated.machinery.scoring import likelihood
from annotated.machinery.translator import Translator
from annotated.model import EncoderDecoder, TransformerConfig, build_model
from annotated.training import TrainingConfig, model_config

TABLE = {line[:33].strip(): line[33:].split() for line in __doc__.splitlines()[7:]}
HEADER, *_ = TABLE.values()


def build(config: TransformerConfig, row: str) -> EncoderDecoder:
    """A model of a row; tied or not as the row says."""
    tied = said(row, "embeddings") == "tied"
    return build_model(replace(config, tie_embeddings=tied), **PARTS[row])


def said(row: str, column: str) -> str:
    return TABLE[row][HEADER.index(column)]


def lively(row: str, vocab: int = 9) -> EncoderDecoder:
    """A tiny model of a row, with weights that let no part sleep."""
    torch.manual_seed(5)
    sizes = {"N": 2, "d_model": 16, "d_ff": 32, "h": 2, "max_len": 40}
    model = build(TransformerConfig(vocab, vocab, **sizes), row)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p), alpha=0.5)
    return model.eval()


each = pytest.mark.parametrize("row", PARTS)
SRC = torch.tensor([[4, 5, 6, 7, END], [8, 4, END, PAD, PAD], [6, 6, 5, END, PAD]])
MASK = (SRC != PAD).unsqueeze(1)
TGT = torch.tensor([[START, 5, 4, 8, 6], [START, 7, 7, 4, 5], [START, 8, 5, 5, 6]])


def close(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


def own_classes(row: str) -> set[Any]:
    return {getattr(part, "func", part) for part in PARTS[row].values()}


def name_of(row: str) -> str:
    return next(iter(own_classes(row))).__name__


def measured(row: str) -> list[str]:
    """What a model does, in the columns of the table."""
    model = lively(row)
    with record_attention(model) as seen:
        model(SRC, TGT, MASK)
    heads, shared = 0, model.generator.proj.weight
    for name, _ in model.named_modules():
        with suppress(InputError), switch_off(model, {name: [0]}):
            heads += 1
    tied = any(p is shared for p in model.tgt_embed.parameters())
    cached = DecoderCache(model, model.encode(SRC, MASK), MASK).states is not None
    others, translator = [], Translator(lively(row, 60), TOKENIZER)
    for form in FORMS:
        with suppress(InputError):
            export_model(translator, form, os.devnull)
            others.append(form)
    search, embeddings = ("whole", "cache")[cached], ("untied", "tied")[tied]
    return [search, str(len(seen)), str(heads), embeddings, "+".join(others) or "refused"]


@pytest.mark.slow
def test_the_table():
    assert {row: measured(row) for row in PARTS} == dict(list(TABLE.items())[1:])


@each
@torch.no_grad()
def test_every_search_finds_what_the_model_says(row: str):
    model, ids = lively(row), TGT[:, :1]
    model.generator.register_forward_hook(never_end)  # before the limit
    while ids.size(1) < 10:
        newest = model.generator(model(SRC, ids, MASK, subsequent_mask(ids.size(1))))[:, -1]
        ids = torch.cat([ids, newest.argmax(-1, keepdim=True)], dim=1)
    assert torch.equal(greedy_decode(model, SRC, MASK, 10, START), ids)

    search = partial(beam_search, model, SRC, MASK, beam=3, n_best=3, max_extra=6)
    found = search()
    model.decoder.register_forward_hook(lambda *_: None)  # nothing is cached for it
    for ours, whole in zip(found, search(), strict=True):
        assert [one.ids for one in ours] == [one.ids for one in whole]
        close(*(torch.tensor([one.log_prob for one in some]) for some in (ours, whole)))
    assert len({tuple(one.ids) for ours in found for one in ours}) > 3


@each
@torch.no_grad()
def test_recorded_weights_are_those_that_mix_the_values(row: str):
    """Those of the layer's own kernel, from which its output follows."""
    model = lively(row)
    expected = model(SRC, TGT, MASK)
    with record_attention(model) as seen:
        close(model(SRC, TGT, MASK), expected)
    layers, values, outputs = dict(model.named_modules()), {}, {}
    watch = {f"{name}.w_v:in": lambda x, name=name: values.update({name: x}) for name in seen}
    watch |= {name: lambda x, name=name: outputs.update({name: x}) for name in seen}
    with touch(model, watch):
        model(SRC, TGT, MASK)
    for name, weights in seen.items():
        close(weights.sum(-1), torch.ones(weights.shape[:-1]))
        layer, value = layers[name], layers[name].w_v(values[name])
        heads = weights @ value.unflatten(-1, (layer.h, -1)).transpose(1, 2)
        close(layer.w_o(heads.transpose(1, 2).flatten(2)), outputs[name])


@each
@torch.no_grad()
def test_activations_and_heads_are_changed_by_name(row: str):
    model, seen = lively(row), {}
    expected, modules = model(SRC, TGT, MASK), dict(model.named_modules())
    names = [name for name, module in modules.items() if type(module) in own_classes(row)]
    with touch(model, {name: lambda x, name=name: seen.update({name: x}) for name in names}):
        model(SRC, TGT, MASK)
    assert seen.keys() == set(names) != set()
    for name, at in product(names, [(), (slice(None), 0)]):
        with touch(model, {name: take(seen[name], *at)}):
            close(model(SRC, TGT, MASK), expected)
        with touch(model, {name: take(seen[name] * 2, *at)}):
            assert (model(SRC, TGT, MASK) - expected).abs().max() > 1e-3
    for name in [name for name in modules if name.endswith("_attn")]:
        if not hasattr(modules[name], "watchers"):
            with pytest.raises(InputError, match=name), switch_off(model, {name: [1]}):
                pass
            continue
        with switch_off(model, {name: [1]}):
            without = model(SRC, TGT, MASK)
        weight = modules[name].w_o.weight
        kept, weight[:, 8:] = weight.clone(), 0.0
        close(model(SRC, TGT, MASK), without)
        assert (without - expected).abs().max() > 1e-3
        weight.copy_(kept)


def is_refused(translator: Translator, told: str, folder: Path, *more: Callable) -> None:
    """By all other programs, and by `more`."""
    exports = [partial(export_model, translator, form) for form in FORMS]
    for store in [*exports, *more, lambda _: engine.EngineTranslator(translator)]:
        with pytest.raises(InputError, match=told) as error:
            store(folder / "new")
        assert "\n" not in str(error.value)


@each
def test_other_programs_refuse_by_name(row: str, tmp_path: Path):
    is_refused(Translator(lively(row, 60), TOKENIZER), name_of(row), tmp_path)
    assert not os.listdir(tmp_path)


@each
def test_a_model_built_by_hand_translates_and_is_not_stored(row: str, tmp_path: Path):
    model, texts = lively(row, 60), ["one two three", "nine"]
    places = model.encoder, model.decoder, model.src_embed, model.tgt_embed, model.generator
    ours, hand = Translator(model, TOKENIZER), Translator(EncoderDecoder(*places), TOKENIZER)
    assert hand.translate(texts, max_len=9) == ours.translate(texts, max_len=9)
    assert likelihood(hand, texts, texts) == likelihood(ours, texts, texts)
    is_refused(hand, "expected a model from build_model", tmp_path, hand.save)
    assert not os.listdir(tmp_path)


SMALL = TransformerConfig(60, 60, N=2, d_model=16, d_ff=32, h=2)


@pytest.mark.parametrize("told", changes(build_model(SMALL)))
def test_what_changes_a_built_model_belongs_to_its_build(told: str, tmp_path: Path):
    """Its parameters have the names and shapes of the paper's, but it computes something else."""

    def changed(config: TransformerConfig) -> EncoderDecoder:
        model = build_model(config)
        setattr(*changes(model)[told])
        return model.eval()

    translator = Translator(changed(SMALL), TOKENIZER)
    is_refused(translator, told, tmp_path, translator.save)

    translator = Translator(built(changed, SMALL), TOKENIZER)
    translator.save(tmp_path / "new")
    for stranger in {}, {"build": build_model}, {"attention": Distances}:
        with pytest.raises(InputError, match=r"build=.*changed"):
            load_pretrained(tmp_path / "new", **stranger)
    loaded = load_pretrained(tmp_path / "new", build=changed).model
    assert torch.equal(loaded(SRC, TGT, MASK), translator.model(SRC, TGT, MASK))


def test_a_part_that_does_not_fit_is_refused_by_name():
    config = TransformerConfig(60, 60, N=1, d_model=16, d_ff=32, h=2, tie_embeddings=True)
    wrong = {"atention": Distances, "attention": Distances(2, 16), "embedding": Factorized}
    for name, part in wrong.items():
        told = "one nn.Embedding .* in src_embed, to tie" if name == "embedding" else f"got {name}="
        with pytest.raises(InputError, match=told):
            build_model(config, **{name: part})
    called = r"feed_forward\(16, 32, activation='swish'\); got: .*forward_expansion"
    wrong = lambda d_model, d_ff, forward_expansion, activation: nn.Identity()
    with pytest.raises(InputError, match=called):
        build_model(replace(config, activation="swish"), feed_forward=wrong)
    model = build_model(config, attention=Silent)
    with pytest.raises(InputError, match=r"encoder\.layers\.0\.self_attn"), record_attention(model):
        model(SRC, TGT, MASK)


@torch.no_grad()
def test_stacks_of_torch_translate():
    """Nothing in them is of this package."""
    layers = nn.TransformerEncoderLayer, nn.TransformerDecoderLayer
    first, second = (layer(16, 2, 32, batch_first=True) for layer in layers)
    stacks = TorchStack(first, 2), TorchStack(second, 2)
    out = nn.Sequential(nn.Linear(16, 60), nn.LogSoftmax(-1))
    model = EncoderDecoder(*stacks, nn.Embedding(60, 16), nn.Embedding(60, 16), out).eval()
    found = Translator(model, TOKENIZER).candidates(["one two", "nine"], beam=1, max_len=5)
    for text, (best,) in zip(["one two", "nine"], found, strict=True):
        src, ids = torch.tensor(encode_source(TOKENIZER, [text])), [START]
        while len(ids) < 5 and ids[-1] != END:
            log_probs = model.generator(model(src, torch.tensor([ids])))[0, -1]
            ids.append(int(log_probs.index_fill(0, torch.tensor([PAD, START, UNK]), -99).argmax()))
        assert best.text == TOKENIZER.decode(ids[1:])


def maker(row: str) -> Callable[[TransformerConfig], EncoderDecoder]:
    """What `train` and `load_pretrained` take; a run's own configuration ties."""
    tied = said(row, "embeddings") == "tied"
    return partial(build_model, **PARTS[row]) if tied else partial(build, row=row)


@pytest.mark.slow
@each
def test_a_run_goes_on_and_its_model_is_loaded(row: str, config, tmp_path: Path, capsys):
    config, make, name = replace(config, updates=6, save_updates=2), maker(row), name_of(row)
    stopped = replace(config, out=str(tmp_path / "stopped"))
    train(config, build=make)
    train(replace(stopped, updates=4), build=make)
    for stranger in build_model, partial(build_model, source_attention=LinearAttention):
        with pytest.raises(FileError, match=rf"{name}.*build="):
            train(stopped, resume=True, build=stranger)
    assert name in refused(stopped, capsys)
    train(stopped, resume=True, build=make)
    assert_same_run(config, stopped)

    for stranger in {}, {"source_attention": LinearAttention}:
        with pytest.raises(InputError, match=name):
            load_pretrained(config.out, **stranger)
    export = f"export {config.out} --to onnx --out {tmp_path / 'new'}"
    for command in f"translate {config.out} one", export:
        assert name in refused(command, capsys)
    main(["average", config.out, "--last", "1"])  # which needs no part
    model = make(model_config(config)).eval()
    with safe_open(list_checkpoints(config.out)[-1], "pt") as file:
        for key, tensor in model_tensors(model).items():
            stored = file.get_tensor(f"model.{key}")
            tensor.data = stored.half().float() if isinstance(tensor, nn.Parameter) else stored
    translator = load_pretrained(config.out, build=make)
    translator.save(tmp_path / "saved")
    for loaded in translator, load_pretrained(tmp_path / "saved", build=make):
        assert torch.equal(loaded.model(SRC, TGT, MASK), model(SRC, TGT, MASK))


SCRIPT = """
import json, sys
from contextlib import nullcontext
from dataclasses import replace
from annotated.machinery.runs import trainer
from test_parts import PARTS, TrainingConfig, maker

config = TrainingConfig(**json.loads(sys.argv[1]))
join, leave = trainer.join_processes(), trainer.leave_together
with leave(join):  # once for all runs
    trainer.join_processes, trainer.leave_together = lambda _: join, lambda _: nullcontext()
    for number, row in enumerate(PARTS):
        trainer.train(replace(config, out=f"{config.out}{number}"), build=maker(row))
"""


@pytest.mark.processes
def test_two_processes_train_what_one_does(config: TrainingConfig, tmp_path: Path):
    config = replace(config, parts=2, updates=4, save_updates=2, log_updates=2)
    two = replace(config, out=str(tmp_path / "two"))
    ended = run_script(SCRIPT, two, json.dumps(asdict(two)))
    assert ended.returncode == 0, ended.stderr
    for number, row in enumerate(PARTS):
        one = replace(config, out=str(tmp_path / f"one{number}"))
        train(one, build=maker(row))
        assert_close(one, replace(two, out=f"{two.out}{number}"))
