"""Models that leave: other programs compute the probabilities that ours does, and search alike."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tiny import TOKENIZER, wild, with_biases
from torch import Tensor

from annotated.data import END, START, Batch, encode_source, encode_target, pad_ids
from annotated.decoding import beam_search, greedy_decode
from annotated.machinery.errors import InputError, MissingExtra
from annotated.machinery.formats.export import export_model, write_ctranslate2, write_onnx
from annotated.machinery.formats.pretrained import load_pretrained
from annotated.machinery.translator import Translator
from annotated.model import EncoderDecoder

ENGLISH = ["one two three", "four", "nine eight </s> seven ☃ six"]
GERMAN = ["nine", "one six seven", "four four"]
NAMES = [TOKENIZER.id_to_token(i) or f"<unused {i}>" for i in range(60)]
LONG = "one two three " * 40  # beyond the positions that `wild` makes ahead
KINDS = {
    "paper": {"positions": "sinusoidal", "tie_embeddings": True},
    "other": {"norm_first": True},  # with learned positions, and three matrices
    "published": {"positions": "endpoint", "bias": True, "activation": "swish"},
}


def tiny(**options: object) -> Translator:
    return Translator(with_biases(wild(60, seed=4, **options)), TOKENIZER)


def pairs() -> Batch:
    src, tgt = encode_source(TOKENIZER, ENGLISH), encode_target(TOKENIZER, GERMAN)
    return Batch(pad_ids(src), pad_ids(tgt))


@torch.no_grad()
def all_log_probs(model: EncoderDecoder, batch: Batch) -> Tensor:
    """(batch, tgt_len, vocab)"""
    return model.generator(model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask))


class Graphs:
    """Both graphs in ONNX Runtime, fed as model.json says."""

    def __init__(self, folder: Path) -> None:
        onnxruntime = pytest.importorskip("onnxruntime", reason="needs the extra `test`")
        self.said = json.loads((folder / "model.json").read_text())
        self.encoder = onnxruntime.InferenceSession(folder / "encoder.onnx")
        self.decoder = onnxruntime.InferenceSession(folder / "decoder.onnx")

    def open(self, src: Tensor, src_mask: Tensor) -> None:
        given = {"src": src.numpy(), "src_mask": src_mask.numpy()}
        keys, values = self.encoder.run(list(self.said["encoder"]["outputs"]), given)
        self.given = {"src_mask": given["src_mask"], "memory_keys": keys, "memory_values": values}
        self.given |= {"past_keys": keys[:, :, :, :0], "past_values": values[:, :, :, :0]}

    def step(self, tgt: Tensor) -> Tensor:
        """ids (batch, 1) to log-probabilities (batch, vocab)"""
        given = self.given | {"tgt": tgt.numpy()}
        assert set(given) == set(self.said["decoder"]["inputs"])
        outputs = self.decoder.run(list(self.said["decoder"]["outputs"]), given)
        log_probs, self.given["past_keys"], self.given["past_values"] = outputs
        return torch.tensor(log_probs)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "half", "close"),
    [
        ({**KINDS["other"], "d_k": 5, "d_v": 7, "bias": True, "activation": "swish"}, False, 1e-4),
        ({**KINDS["paper"], "N": 1}, True, 0.05),
    ],
)
def test_onnx_computes_what_we_compute(tmp_path: Path, kind: dict, half: bool, close: float):
    pytest.importorskip("onnxscript", reason="needs the extra `export`")
    translator, batch = tiny(**kind), pairs()
    before = all_log_probs(translator.model, batch)
    write_onnx(translator, tmp_path, half)
    assert torch.equal(all_log_probs(translator.model, batch), before)  # ours is as it was
    graphs = Graphs(tmp_path)
    graphs.open(batch.src, batch.src_mask)
    found = torch.stack([graphs.step(row) for row in batch.tgt.T.unsqueeze(2)], dim=1)
    apart = (found - before)[batch.tgt_y != graphs.said["ids"]["padding"]].abs().max()
    assert found.dtype == torch.float32 and apart < close
    assert half == (apart > 1e-4) == (graphs.said["floats"] == "float16")

    src = batch.src[:1, : int(batch.src_mask[0].sum())]  # another batch, another length
    mask = torch.ones(1, 1, src.size(1), dtype=torch.bool)
    graphs.open(src, mask)
    output = [START]
    while len(output) < 12 and output[-1] != END:
        output.append(int(graphs.step(torch.tensor([output[-1:]])).argmax()))
    assert output == greedy_decode(translator.model, src, mask, 12, START, END)[0].tolist()


def test_what_onnx_needs_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch, "__version__", torch.torch_version.TorchVersion("2.8.1"))
    with pytest.raises(InputError, match=r"torch 2\.9 or later.*got 2\.8\.1"):
        write_onnx(tiny(), tmp_path)
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(MissingExtra, match=r"onnxscript.*\[export\]"):
        write_onnx(tiny(), tmp_path)


@pytest.mark.parametrize(("half", "close"), [(False, 1e-4), (True, 0.05)])
@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_ctranslate2_computes_what_we_compute(tmp_path: Path, kind: dict, half, close):
    ctranslate2 = pytest.importorskip("ctranslate2", reason="needs the extra `export`")
    translator, batch = tiny(**kind), pairs()
    write_ctranslate2(translator, tmp_path, half)
    engine = ctranslate2.Translator(str(tmp_path), compute_type="float32")
    pieces = [[TOKENIZER.encode(text).tokens for text in texts] for texts in (ENGLISH, GERMAN)]
    log_probs = all_log_probs(translator.model, batch).gather(2, batch.tgt_y.unsqueeze(2))
    apart = 0.0
    for ours, theirs in zip(log_probs[:, :, 0], engine.score_batch(*pieces), strict=True):
        assert len(theirs.log_probs) == len(theirs.tokens) > 1  # the end symbol among them
        both = ours[: len(theirs.log_probs)], torch.tensor(theirs.log_probs)
        apart = max(apart, float((both[0] - both[1]).abs().max()))
    assert apart < close and half == (apart > 1e-4)
    never = {"disable_unk": True, "suppress_sequences": [["<s>"], ["<pad>"]]}
    for sentence in [*ENGLISH, *[LONG] * (kind == KINDS["paper"])] * (not half):
        (src,), pieces = encode_source(TOKENIZER, [sentence]), TOKENIZER.encode(sentence).tokens
        most = {"max_decoding_length": len(src) + 2}  # an end symbol may follow
        (found,) = engine.translate_batch([pieces], beam_size=1, **most, **never)
        ((ours,),) = beam_search(translator.model, torch.tensor([src]), beam=1, max_extra=3)
        assert found.hypotheses[0] == [NAMES[i] for i in ours.ids]


def test_a_vocabulary_has_a_name_for_every_row(tmp_path: Path):
    pytest.importorskip("ctranslate2", reason="needs the extra `export`")
    write_ctranslate2(tiny(), tmp_path)
    words = json.loads((tmp_path / "shared_vocabulary.json").read_text())
    assert words == NAMES and len(set(words)) == 60 > TOKENIZER.get_vocab_size()


def test_what_ctranslate2_cannot_take_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("ctranslate2", reason="needs the extra `export`")
    with pytest.raises(InputError, match=r"d_model / h.* here 8; got d_k, d_v = \(4, 8\)"):
        export_model(tiny(d_k=4), "ctranslate2", tmp_path / "out")
    assert not os.listdir(tmp_path)
    monkeypatch.setitem(sys.modules, "ctranslate2.specs", None)
    with pytest.raises(MissingExtra, match=r"ctranslate2.*\[export\]"):
        export_model(tiny(), "ctranslate2", tmp_path / "out")


def test_what_is_there_is_left_alone(tmp_path: Path):
    (tmp_path / "file").write_text("mine")
    for place in tmp_path, tmp_path / "file":
        with pytest.raises(InputError, match="a new or an empty folder; got"):
            export_model(tiny(), "ctranslate2", place)
    with pytest.raises(InputError, match=r"onnx, ctranslate2.*got 'torch'"):
        export_model(tiny(), "torch", tmp_path / "new")
    assert os.listdir(tmp_path) == ["file"] and (tmp_path / "file").read_text() == "mine"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "library"),
    [("onnx", "onnxruntime"), ("ctranslate2", "ctranslate2"), ("huggingface", "transformers")],
)
def test_the_example_in_a_card_runs_where_it_stands(tmp_path, form: str, library: str):
    """With a model whose greedy and beam search agree; its own card stays, without dead links."""
    pytest.importorskip(library)
    translator = load_pretrained("multi30k-en-de")
    export_model(translator, form, tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert card.startswith(translator.card[:200]) and "(log.csv)" in translator.card
    assert "(log.csv)" not in card and "research and education" in card
    assert ("length^p" in card) == (form != "onnx")  # its search is greedy
    code = card.partition("## In this folder")[2].split("```python\n")[1].split("```")[0]
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path / "out", capture_output=True, text=True)
    assert translator.translate("A man is riding a bicycle.") in done.stdout, done.stderr
