"""The benchmarks measure what they say: the same function, the same work, in turn."""

import ast
import json
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sacrebleu.metrics import BLEU
from tiny import TOKENIZER, wild

import benchmarks.gpu as gpu
from annotated.data import END, PAD, START, encode_source
from annotated.machinery.errors import InputError
from annotated.machinery.recording import switch_off
from annotated.machinery.translator import Translator
from benchmarks import measure, recall
from benchmarks.__main__ import main
from benchmarks.bits import round_matrices
from benchmarks.contenders import CONTENDERS, Annotated, Torch
from benchmarks.gender import compared
from benchmarks.measure import check_search, check_training
from benchmarks.mutations import faults
from benchmarks.switches import Board, Switch, mean_outputs
from benchmarks.workload import Workload


@pytest.fixture(scope="module")
def work() -> Workload:
    return Workload(
        vocab=60, N=2, d_model=32, d_ff=48, h=4, train_batch=(4, 7), shortest=5,
        decode_batch=(3, 6), steps=9,
    )  # fmt: skip


def test_the_workload_has_the_shapes_that_it_says(work: Workload):
    assert work.source.shape == (4, 7) and work.target.shape == (4, 8)
    assert (work.target[:, 0] == START).all() and work.to_translate.shape == (3, 6)
    for ids in (work.source, work.target[:, 1:], work.to_translate):
        lengths = (ids != PAD).sum(dim=1)
        assert (ids.gather(1, lengths.unsqueeze(1) - 1) == END).all()
        assert lengths.max() == ids.size(1)
    padding = (work.target[:, 1:] == PAD).float().mean().item()
    assert json.loads(json.dumps(work.numbers()))["padding"] == pytest.approx(padding, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("kind", CONTENDERS[1:], ids=lambda kind: kind.__name__)
def test_every_contender_that_is_installed_computes_our_function(work: Workload, kind: type):
    pytest.importorskip("torch" if kind is Torch else kind.package.replace("-", "_"))
    reference = work.reference()
    ours, other = Annotated(work, reference), kind(work, reference)
    if other.trains:
        check_training(work, other, ours)
    for beam in other.searches:
        found = other.search(work.to_translate, beam, work.steps - 1)
        assert [len(group) for group in found] == [beam] * 3
        assert {len(ids) for group in found for ids in group} == {work.steps - 1}
        if other.same:
            check_search(found, ours.search(work.to_translate, beam, work.steps))


def test_a_contender_with_other_weights_is_refused(work: Workload):
    reference = work.reference()
    ours, other = Annotated(work, reference), Torch(work, reference)
    with torch.no_grad():
        other.model.decoder.layers[1].linear2.bias[0] += 0.1
    with pytest.raises(ValueError, match="logits"):
        check_training(work, other, ours)
    with pytest.raises(ValueError, match="got 0 of 2"):
        check_search([[[1, 2]], [[3]]], [[[1, 3]], [[4]]])


@pytest.mark.slow
def test_results_are_added_to_the_file_and_name_no_machine(tmp_path: Path, capsys):
    out = tmp_path / "deep" / "results.json"
    main(["decoding", "--quick", "--only", "Annotated", "--out", str(out)])
    first = json.loads(out.read_text())
    assert first["decoding"]["rounds"] == 3 and first["decoding"]["load"] >= 0
    assert re.search(r"1\.00 × ours \(1\.00 to 1\.00\)", capsys.readouterr().out)
    main(["training", "--quick", "--only", "Annotated", "--out", str(out)])
    both = json.loads(out.read_text())
    assert both["decoding"] == first["decoding"] and "training" in both
    assert list(out.parent.iterdir()) == [out]
    named = {"cpu", "cores", "threads", "system", "python", "torch"}
    assert both["training"]["machine"].keys() == named


def test_a_task_that_cannot_run_is_told_before_another_is_timed(monkeypatch, capsys):
    def missing(*given: str) -> None:
        raise InputError("multi30k: expected test_2016_flickr.en")

    monkeypatch.setitem(sys.modules, "ctranslate2", sys)
    monkeypatch.setattr(measure, "load_pairs", missing)
    monkeypatch.setattr(measure, "run", lambda *given: pytest.fail("a task was run"))
    with pytest.raises(SystemExit):
        main(["training", "engine", "--quick"])
    assert "engine cannot run: multi30k: expected test_2016" in capsys.readouterr().err


def test_faults_are_planted_one_at_a_time_and_taken_out_again():
    code = "def f(x: int=1):\n    g.y = x + 1\n    return h(x, 2) if x < 3 else not True"
    tree = ast.parse(code)
    found = [(ast.unparse(tree), after) for _, _, after in faults(tree)]
    wanted = {"x - 1", "h(2, x)", "x <= 3", "x >= 3", "True", "False", "pass", "4", "0"}
    assert wanted <= {after for _, after in found}
    assert len({planted for planted, _ in found} | {code}) == len(found) + 1
    assert ast.unparse(tree) == code


@pytest.mark.slow
def test_the_benchmark_of_a_gpu_tried_on_the_cpu(tmp_path: Path, monkeypatch, capsys):
    """All settings; one contender is missing, and one fails: each says so, and the others go on."""

    class Broken(Torch):
        name = "broken"

        def logits(self, src, tgt):
            if self.model.training:
                raise RuntimeError("out of memory\nat length")
            return super().logits(src, tgt)

    class Missing(Torch):
        name, install = "missing", "pip install missing"

        def __init__(self, work, reference):
            raise ImportError("No module named 'missing'")

    kinds = {kind.name: kind for kind in (Torch, Broken, Missing)}
    monkeypatch.setattr(gpu, "OTHERS", kinds)
    asked = []  # to compile takes minutes, and is tested with the trainer
    monkeypatch.setattr("torch.compile", lambda loss, **_: asked.append(loss) or loss)
    out = tmp_path / "gpu.json"
    main(["gpu", "--smoke", "--out", str(out)])
    results = json.loads(out.read_text())
    assert results["command"] == f"python -m benchmarks gpu --smoke --out {out}"
    found = {(r["model"], r["contender"], r["compile"], r["parts"]): r for r in results["rows"]}
    for model, name, compiled in gpu.SMOKE.settings():
        if name in ("annotated", Torch.name):
            for parts in gpu.SMOKE.parts:
                row = found[model, name, compiled, parts]
                assert len(row["rounds"]) == 2 and row["tokens_per_second"] in row["rounds"]
                assert 0 <= row["waiting"] < 1 and row["utilisation"] is row["memory"] is None
        elif name == "broken":
            assert found[model, name, compiled, 2]["error"] == "RuntimeError: out of memory"
        else:
            said = "left out (No module named 'missing'): pip install missing"
            assert found[model, name, compiled, 2]["error"] == said
    assert len(asked) >= sum(compiled for _, _, compiled in gpu.SMOKE.settings())
    assert "tokens/s" in capsys.readouterr().out


def test_the_benchmark_of_a_gpu_stops_in_time_and_asks_for_a_gpu(monkeypatch, capsys):
    main(["gpu", "--smoke", "--minutes", "0"])
    assert "no time left for base annotated" in capsys.readouterr().out
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit):
        main(["gpu"])
    assert "expected a GPU; got none; --dry" in capsys.readouterr().err


def test_the_pairs_of_the_gpu_benchmark_are_as_long_as_those_of_wmt():
    lengths = gpu.made_pairs(20_000, 37_000).lengths
    assert lengths.min() >= 3 and lengths.max() <= 200
    assert 27 < lengths.mean() < 31
    assert np.corrcoef(lengths.T)[0, 1] > 0.9


def test_what_is_rounded_twice_shrinks_and_a_factor_undoes_it():
    torch.manual_seed(0)
    linear = torch.nn.Linear(300, 300, bias=False)
    torch.nn.init.normal_(linear.weight)  # most integers are small
    once = round_matrices(linear, 8)
    kept = linear.weight.detach().clone()
    (twice,) = round_matrices(linear, 7)
    assert 0.002 < twice < 0.05 and abs(once[0]) < twice / 10
    with torch.no_grad():
        linear.weight.copy_(kept)
        round_matrices(linear, 7, undone=True)
    slope = (kept * linear.weight).sum() / kept.square().sum()
    assert slope.item() == pytest.approx(1, abs=1e-5)
    assert len(linear.weight.detach().unique()) <= 127


def test_the_interval_of_a_change_of_bleu_is_a_point_if_all_sentences_are_the_same():
    reference, found, whole = (
        [text] * 20 for text in ("a b c d e f", "a b c d e g", "a b c d x f g")
    )
    score = lambda texts: BLEU().corpus_score(texts, [reference]).score
    change = score(found) - score(whole)
    assert change > 10
    told = compared(found, whole, reference)
    assert told["BLEU"] == pytest.approx(score(found), abs=0.005)
    assert [*told["difference"].values()] == pytest.approx([change] * 3, abs=1e-4)


def test_a_replaced_head_is_a_constant_beside_the_others():
    """Its output's columns of W^O are gone, and its value times them is a bias."""
    model, layer = wild(), "encoder.layers.1.self_attn"
    src, value = torch.tensor([[3, 4, 5, 6]]), torch.randn(16)
    with switch_off(model, {layer: [0]}, {layer: value}):
        found = model.encode(src)
    w_o = model.get_submodule(layer).w_o
    with torch.no_grad():
        constant = w_o.weight[:, :8] @ value[:8]
        w_o.weight[:, :8] = 0
    handle = w_o.register_forward_hook(lambda _module, _inputs, out: out + constant)
    torch.testing.assert_close(found, model.encode(src))
    handle.remove()


def test_the_mean_of_one_sentence_is_that_of_its_positions():
    translator = Translator(wild(TOKENIZER.get_vocab_size()), TOKENIZER)
    pieces = torch.tensor(encode_source(TOKENIZER, ["one two three"]))
    seen: list[torch.Tensor] = []
    w_o = translator.model.encoder.layers[1].self_attn.w_o
    w_o.register_forward_pre_hook(lambda _module, inputs: seen.append(inputs[0]))
    translator.model.encode(pieces)
    found = mean_outputs(translator, ["one two three"])["encoder.layers.1.self_attn"]
    torch.testing.assert_close(found, seen[0].mean(dim=(0, 1)))


def test_the_book_s_order_is_by_costs_if_they_add_up():
    heads = [Switch("encoder", 1, n + 1) for n in range(20)]
    costs = dict(zip(heads, torch.randperm(20).tolist(), strict=True))

    class Sums(Board):
        def __init__(self) -> None:
            self.heads = heads

        def loss(self, off: list[Switch], start: int, end: int) -> float:
            return sum(costs[head] for head in off)

    order = list(Sums().greedy({head: float(cost) for head, cost in costs.items()}))
    assert [costs[head] for head in order] == list(range(20))
    assert Sums().held_out(order, 10) == [0, 45, 190]


@pytest.mark.slow
def test_stacks_that_may_not_learn_long_are_all_at_the_limit(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["recall", "--limit", "2", "--out", str(tmp_path / "r.csv")])
    recall.main()
    table = pd.read_csv(tmp_path / "r.csv")
    assert len(table) == 4 * (10 + 2) * 3 and (table["steps"] == 2).all()
    monkeypatch.setattr("sys.argv", [*sys.argv, "--marked"])
    recall.main()
    table = pd.read_csv(tmp_path / "r.csv")
    assert len(table) == (6 + 1) * 5 * 8 and (table["steps"] == 2).all()
