"""This book's Transformer, and other implementations of the same shape with the same weights.

Each uses the fastest options that its interface offers: fused attention, key-value caches and the
cheapest masks. If its architecture is the paper's, it computes the same function.
"""

import copy
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated.data import END, PAD, SPECIALS, START, UNK, Batch, train_bpe
from annotated.decoding import beam_search
from annotated.machinery.blockwise_loss import linear_cross_entropy
from annotated.machinery.formats.export import ctranslate2_spec
from annotated.machinery.formats.marian import write_marian
from annotated.machinery.translator import Translator
from annotated.model import EncoderDecoder
from annotated.positional import sinusoids
from benchmarks.workload import Workload

Ids = list[list[list[int]]]  # the hypotheses of each sentence


class Contender:
    """A model that is timed.

    Attributes:
        name: as shown in the tables.   package: the package whose version is reported.
        install: how to install it.
        same: whether it computes the same function as our model.
        trains: whether it can be trained.   searches: beam widths that it offers.
        fused: whether its own configuration uses Adam's fused kernel.
        model: an nn.Module, if it is one.
    """

    name = ""
    package = "torch"
    install = "pip install 'annotated-attention[bench]'"
    fused = False
    same = True
    trains = True
    searches: tuple[int, ...] = ()
    model: nn.Module

    def __init__(self, work: Workload, reference: EncoderDecoder) -> None:
        """Build the model in eval mode and give it the weights of the reference."""
        raise NotImplementedError

    def logits(self, src: Tensor, tgt: Tensor) -> Tensor:
        """src (batch, src_len) and tgt (batch, tgt_len) to (batch, tgt_len, vocab)."""
        raise NotImplementedError

    def loss(self, src: Tensor, tgt: Tensor, right: Tensor, smoothing: float) -> Tensor:
        """Smoothed loss by torch's kernel, a mean over the tokens `right` (batch, tgt_len)."""
        logits = self.logits(src, tgt).flatten(0, 1)
        return F.cross_entropy(logits, right.flatten(), ignore_index=PAD, label_smoothing=smoothing)

    def own_loss(self, src: Tensor, tgt: Tensor, right: Tensor, smoothing: float) -> Tensor:
        """The same loss as the project itself computes it."""
        return self.loss(src, tgt, right, smoothing)

    def search(self, src: Tensor, beam: int, steps: int) -> Ids:
        """The `beam` best outputs of exactly `steps` tokens; a beam of 1 is greedy search."""
        raise NotImplementedError

    def to(self, device: str) -> None:
        """Move to a device."""
        self.model.to(device)

    @property
    def parameters(self) -> int:
        """Number of trainable parameters."""
        return sum(p.numel() for p in self.model.parameters() if p.requires_grad)

    @property
    def version(self) -> str:
        try:
            return version(self.package).split("+")[0]
        except PackageNotFoundError:  # our own package, used from its folder
            return ""


class Annotated(Contender):
    """The model of this book."""

    name = "annotated"
    package = "annotated"
    searches = (1, 4)
    fused = True

    def __init__(self, work: Workload, reference: EncoderDecoder) -> None:
        self.model = copy.deepcopy(reference).eval()
        self.for_search = copy.deepcopy(self.model)
        self.for_search.generator.proj.bias = nn.Parameter(work.bias())

    def decode(self, src: Tensor, tgt: Tensor) -> Tensor:
        batch = Batch(src, F.pad(tgt, (0, 1), value=PAD))
        return self.model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)

    def logits(self, src: Tensor, tgt: Tensor) -> Tensor:
        return self.model.generator.proj(self.decode(src, tgt))

    def loss(self, src: Tensor, tgt: Tensor, right: Tensor, smoothing: float) -> Tensor:
        out, weight = self.decode(src, tgt), self.model.generator.proj.weight
        return linear_cross_entropy(out, weight, right, PAD, smoothing) / (right != PAD).sum()

    def to(self, device: str) -> None:
        self.model.to(device)
        self.for_search.to(device)

    def search(self, src: Tensor, beam: int, steps: int) -> Ids:
        # Our search emits END in its last step, where the others just stop: equally many steps.
        extra, mask = steps - src.size(1), Batch(src).src_mask
        found = beam_search(self.for_search, src, mask, beam, max_extra=extra, n_best=beam)
        return [[hypothesis.ids for hypothesis in group] for group in found]


@torch.no_grad()
def copy_layers(
    reference: EncoderDecoder, layers: Iterable[Any], parts: Callable[[Any], Iterable[Any]]
) -> None:
    """Copy the weights of our layers; biases that our model lacks become zero.

    Args:
        layers: another model's, those of the encoder first.
        parts: from such a layer to its linear maps and normalizations in our order: for each
            attention queries, keys, values and output, then all normalizations, then both
            feed-forward maps.
    """
    ours = [*reference.encoder.layers, *reference.decoder.layers]
    for layer, other in zip(ours, layers, strict=True):
        attentions = [layer.self_attn, *([layer.src_attn] if hasattr(layer, "src_attn") else [])]
        maps = [getattr(attention, f"w_{x}") for attention in attentions for x in "qkvo"]
        norms, network = [sublayer.norm for sublayer in layer.sublayer], layer.feed_forward
        for a, b in zip([*maps, *norms, network.w_1, network.w_2], parts(other), strict=True):
            b.weight.copy_(a.weight)
            if b.bias is not None:
                b.bias.zero_() if a.bias is None else b.bias.copy_(a.bias)


class Torch(Contender):
    """torch.nn.Transformer, which leaves embeddings, positions and output to its user."""

    name = "torch.nn.Transformer"
    searches = (1,)  # without a cache, because it has none

    def __init__(self, work: Workload, reference: EncoderDecoder) -> None:
        options = {"dropout": work.dropout, "batch_first": True}
        shape = work.d_model, work.h, work.d_ff
        encoder = nn.TransformerEncoderLayer(*shape, **options)
        decoder = nn.TransformerDecoderLayer(*shape, **options)
        # No additional normalization at the end of a post-norm stack, and no nested tensors,
        # which are for inference.
        stacks = {
            "custom_encoder": nn.TransformerEncoder(encoder, work.N, enable_nested_tensor=False),
            "custom_decoder": nn.TransformerDecoder(decoder, work.N),
        }
        self.model = nn.Transformer(*shape[:2], batch_first=True, **stacks)
        self.model.lut = nn.Embedding.from_pretrained(
            reference.generator.proj.weight.clone(), False
        )
        self.model.drop = nn.Dropout(work.dropout)
        self.model.register_buffer("pe", sinusoids(512, work.d_model))
        self.model.register_buffer("bias", work.bias())
        self.scale = work.d_model**0.5
        layers = [*self.model.encoder.layers, *self.model.decoder.layers]
        copy_layers(reference, layers, self.parts)
        self.model.eval()

    def parts(self, layer: Any) -> Iterator[Any]:
        # Dropout on the attention weights and inside the feed-forward layer, which the paper does
        # not have, costs time, so it is switched off.
        layer.dropout.p = 0.0
        crosses = hasattr(layer, "multihead_attn")
        for attention in [layer.self_attn, *([layer.multihead_attn] if crosses else [])]:
            attention.dropout = 0.0
            each = attention.in_proj_weight.chunk(3), attention.in_proj_bias.chunk(3)
            for weight, bias in zip(*each, strict=True):
                yield SimpleNamespace(weight=weight, bias=bias)
            yield attention.out_proj
        yield from [layer.norm1, layer.norm2, *([layer.norm3] if crosses else [])]
        yield from [layer.linear1, layer.linear2]

    def embed(self, ids: Tensor) -> Tensor:
        return self.model.drop(self.model.lut(ids) * self.scale + self.model.pe[: ids.size(1)])

    def decode(self, memory: Tensor, src: Tensor, tgt: Tensor) -> Tensor:
        causal = nn.Transformer.generate_square_subsequent_mask(tgt.size(1), device=tgt.device)
        masks = {"tgt_mask": causal, "memory_key_padding_mask": src == PAD}
        return self.model.decoder(self.embed(tgt), memory, tgt_is_causal=True, **masks)

    def logits(self, src: Tensor, tgt: Tensor) -> Tensor:
        memory = self.model.encoder(self.embed(src), src_key_padding_mask=src == PAD)
        return F.linear(self.decode(memory, src, tgt), self.model.lut.weight)

    @torch.inference_mode()
    def search(self, src: Tensor, beam: int, steps: int) -> Ids:
        memory = self.model.encoder(self.embed(src), src_key_padding_mask=src == PAD)
        tgt = src.new_full((src.size(0), 1), START)
        for _ in range(steps):
            last = self.decode(memory, src, tgt)[:, -1]
            word = F.linear(last, self.model.lut.weight, self.model.bias).argmax(dim=-1)
            tgt = torch.cat([tgt, word.unsqueeze(1)], dim=1)
        return [[ids] for ids in tgt[:, 1:].tolist()]


class Marian(Contender):
    """Hugging Face's Marian, the architecture of the opus-mt models."""

    name = "Hugging Face Marian"
    package = "transformers"
    searches = (1, 4)
    fused = True  # the default of its trainer

    def __init__(self, work: Workload, reference: EncoderDecoder) -> None:
        from transformers import GenerationConfig, MarianMTModel

        with tempfile.TemporaryDirectory() as folder:
            write_marian(Translator(reference, train_bpe(["a"], 5)), Path(folder))
            options = {"attn_implementation": "sdpa", "max_position_embeddings": 512}
            options |= {"forced_eos_token_id": None}
            self.model = MarianMTModel.from_pretrained(folder, **options).eval()
        for stack in self.model.model.encoder, self.model.model.decoder:
            stack.embed_positions.requires_grad_(False)  # it does not learn its sinusoids
        config = GenerationConfig.from_model_config(self.model.config)
        self.model.generation_config = config  # without the symbols that our search never emits
        self.bias = work.bias()

    def logits(self, src: Tensor, tgt: Tensor) -> Tensor:
        masks = {"attention_mask": src != PAD, "decoder_attention_mask": tgt != PAD}
        return self.model(input_ids=src, decoder_input_ids=tgt, use_cache=False, **masks).logits

    def own_loss(self, src: Tensor, tgt: Tensor, right: Tensor, smoothing: float) -> Tensor:
        from transformers.trainer_pt_utils import LabelSmoother

        labels = right.masked_fill(right == PAD, -100)
        return LabelSmoother(smoothing)({"logits": self.logits(src, tgt)}, labels)

    @torch.inference_mode()
    def search(self, src: Tensor, beam: int, steps: int) -> Ids:
        options: dict[str, Any] = {"num_beams": beam, "num_return_sequences": beam}
        options |= {"do_sample": False, "max_new_tokens": steps, "attention_mask": src != PAD}
        self.model.final_logits_bias.copy_(self.bias)
        out = self.model.generate(src, **options)
        self.model.final_logits_bias.zero_()
        return out[:, 1:].unflatten(0, (-1, beam)).tolist()


class XTransformers(Contender):
    """x-transformers: post-norm and tied as in the paper, otherwise its own architecture."""

    name = "x-transformers"
    package = "x-transformers"
    same = False
    searches = (1,)  # its beam search does not accept batches with an encoder

    def __init__(self, work: Workload, reference: EncoderDecoder) -> None:
        from x_transformers import AutoregressiveWrapper, Decoder, Encoder, TransformerWrapper

        layers = {
            "dim": work.d_model, "depth": work.N, "heads": work.h,
            "attn_dim_head": work.d_model // work.h, "attn_flash": True,
            "ff_mult": work.d_ff // work.d_model, "ff_custom_activation": nn.ReLU(),
            "ff_dropout": work.dropout, "pre_norm": False,
        }  # fmt: skip
        outside = {"num_tokens": work.vocab, "max_seq_len": 512, "emb_dropout": work.dropout}
        outside |= {"scaled_sinu_pos_emb": True}
        encoder = Encoder(**layers)
        encoder = TransformerWrapper(attn_layers=encoder, return_only_embed=True, **outside)
        outside |= {"token_emb": encoder.token_emb, "tie_embedding": True}
        decoder = Decoder(cross_attend=True, **layers)
        decoder = TransformerWrapper(attn_layers=decoder, **outside)
        generator = AutoregressiveWrapper(decoder, pad_value=PAD)
        self.model = nn.ModuleDict({"encoder": encoder, "decoder": generator}).eval()

    def logits(self, src: Tensor, tgt: Tensor) -> Tensor:
        mask = src != PAD
        memory = self.model.encoder(src, mask=mask)
        return self.model.decoder.net(tgt, context=memory, context_mask=mask)

    @torch.inference_mode()
    def search(self, src: Tensor, beam: int, steps: int) -> Ids:
        mask, start = src != PAD, src.new_full((src.size(0), 1), START)
        context = {"context": self.model.encoder(src, mask=mask), "context_mask": mask}
        decoder = self.model.decoder
        return decoder.generate(start, steps, temperature=0.0, **context).unsqueeze(1).tolist()


class JoeyNMT(Contender):
    """JoeyNMT, the teaching toolkit."""

    name = "JoeyNMT"
    package = "joeynmt"
    install = "pip install --no-deps joeynmt, because it requires old versions of other packages"
    searches = (1, 4)  # without a cache, because it has none

    def __init__(self, work: Workload, reference: EncoderDecoder) -> None:
        from joeynmt.decoders import TransformerDecoder
        from joeynmt.embeddings import Embeddings
        from joeynmt.encoders import TransformerEncoder
        from joeynmt.model import Model

        options = {
            "hidden_size": work.d_model, "ff_size": work.d_ff, "num_layers": work.N,
            "num_heads": work.h, "dropout": work.dropout, "emb_dropout": work.dropout,
            "layer_norm": "post",
        }  # fmt: skip
        vocabulary = SimpleNamespace(
            pad_index=PAD, bos_index=START, eos_index=END, unk_index=UNK, sep_index=None,
            specials=[], lang_tags=[],
        )  # fmt: skip
        embed = Embeddings(work.d_model, scale=True, vocab_size=work.vocab, padding_idx=PAD)
        decoder = TransformerDecoder(vocab_size=work.vocab, **options)
        decoder.output_layer.weight = embed.lut.weight
        encoder = TransformerEncoder(**options)
        self.model = Model(encoder, decoder, embed, embed, vocabulary, vocabulary).eval()
        embed.lut.weight.data.copy_(reference.generator.proj.weight)
        copy_layers(reference, [*encoder.layers, *decoder.layers], self.parts)

    def parts(self, layer: Any) -> Iterator[Any]:
        ff = layer.feed_forward
        # This additional dropout, which the paper does not have, costs time.
        ff.pwff_layer[2].p = 0.0
        if hasattr(layer, "trg_trg_att"):
            attentions = [layer.trg_trg_att, layer.src_trg_att]
            norms = [layer.x_layer_norm, layer.dec_layer_norm]
        else:
            attentions, norms = [layer.src_src_att], [layer.layer_norm]
        for attention in attentions:
            attention.dropout.p = 0.0
            yield from [attention.q_layer, attention.k_layer, attention.v_layer]
            yield attention.output_layer
        yield from [*norms, ff.layer_norm, ff.pwff_layer[0], ff.pwff_layer[3]]

    def own_loss(self, src: Tensor, tgt: Tensor, right: Tensor, smoothing: float) -> Tensor:
        from joeynmt.loss import XentLoss

        log_probs = self.logits(src, tgt).log_softmax(dim=-1)
        return XentLoss(PAD, smoothing)(log_probs, trg=right) / (right != PAD).sum()

    def logits(self, src: Tensor, tgt: Tensor) -> Tensor:
        masks = {"src_mask": (src != PAD).unsqueeze(1), "trg_mask": (tgt != PAD).unsqueeze(1)}
        lengths = {"src_length": (src != PAD).sum(dim=1)}
        return self.model._encode_decode(src=src, trg_input=tgt, **masks, **lengths)[0]

    @torch.inference_mode()
    def search(self, src: Tensor, beam: int, steps: int) -> Ids:
        from joeynmt.search import beam_search, greedy

        mask = (src != PAD).unsqueeze(1)
        memory, hidden = self.model._encode(src=src, src_length=mask.sum(-1), src_mask=mask)
        encoded = {"encoder_output": memory, "encoder_hidden": hidden, "src_mask": mask}
        options: dict[str, Any] = {"min_output_length": steps, "generate_unk": False}
        options |= {"model": self.model, "max_output_length": steps, **encoded}
        if beam == 1:
            out, _, _ = greedy(**options)
            return [[ids] for ids in out.tolist()]
        out, _, _ = beam_search(beam_size=beam, alpha=0.6, n_best=beam, **options)
        return torch.as_tensor(out).unflatten(0, (-1, beam)).tolist()


def open_engine(folder: str, device: str, threads: int) -> None:
    """Load a model into CTranslate2, in the process that serves it."""
    import ctranslate2

    # Two libraries with thread pools slow each other down, so torch has none here.
    torch.set_num_threads(1)
    search_engine.model = ctranslate2.Translator(
        folder, device, compute_type="float32", intra_threads=threads
    )


def search_engine(words: list[list[str]], beam: int, steps: int) -> list[list[list[str]]]:
    """The hypotheses of each sentence, in pieces."""
    found = search_engine.model.translate_batch(
        words, beam_size=beam, num_hypotheses=beam, max_decoding_length=steps
    )
    return [row.hypotheses for row in found]


class CTranslate2(Contender):
    """CTranslate2, a C++ engine for inference only, in the same 32-bit floats.

    It runs in a separate process, which receives the sentences through a pipe.
    """

    name = "CTranslate2"
    package = "ctranslate2"
    trains = False
    searches = (1, 4)

    def __init__(self, work: Workload, reference: EncoderDecoder) -> None:
        self.model = reference  # to count its parameters
        self.words = [*SPECIALS, *(f"w{i}" for i in range(len(SPECIALS), work.vocab))]
        self.numbers = {word: i for i, word in enumerate(self.words)}
        spec = ctranslate2_spec(reference, self.words, self.words)
        spec.decoder.projection.bias = work.bias().numpy()
        spec.validate()
        spec.optimize()
        self.folder = tempfile.TemporaryDirectory()
        spec.save(self.folder.name)
        self.to(work.device)

    def to(self, device: str) -> None:  # the process begins with the first search
        given = self.folder.name, device, torch.get_num_threads()
        self.process = ProcessPoolExecutor(1, get_context("spawn"), open_engine, given)

    def search(self, src: Tensor, beam: int, steps: int) -> Ids:
        words = [[self.words[i] for i in ids if i != PAD] for ids in src.tolist()]
        found = self.process.submit(search_engine, words, beam, steps).result()
        return [[[self.numbers[w] for w in ids] for ids in row] for row in found]


CONTENDERS = [Annotated, Torch, Marian, XTransformers, JoeyNMT, CTranslate2]
