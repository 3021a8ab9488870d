"""Tiny random models in Marian's format, made by transformers and sentencepiece."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch

sentencepiece = pytest.importorskip("sentencepiece")
transformers = pytest.importorskip("transformers")
WORDS = "the cat sat on a mat and saw two dogs in park while it rained all day long"
WORDS = WORDS.split()
ENGLISH = [" ".join(WORDS[(i * j + j) % len(WORDS)] for j in range(2, 12)) for i in range(60)]
GERMAN = [line.replace("the", "die").replace("a", "ä").swapcase() for line in ENGLISH]


def piece_model(path: Path, lines: list[str], kind: str = "unigram", **options: Any) -> list[str]:
    """Learn a SentencePiece model; its pieces, symbols apart."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=written,
        model_type=kind,
        hard_vocab_limit=False,
        minloglevel=2,
        **{"vocab_size": 60} | options,
    )
    path.write_bytes(written.getvalue())
    model = sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())
    ids = range(model.get_piece_size())
    return [model.id_to_piece(i) for i in ids if not (model.is_control(i) or model.is_unknown(i))]


def published(folder: Path, **shape: Any) -> tuple[Any, Any]:
    """Write a random model, and a vocabulary that lacks a piece; the model and its tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    sides = [
        piece_model(folder / f"{side}.spm", lines)
        for side, lines in (("source", ENGLISH), ("target", GERMAN))
    ]
    pieces = list(dict.fromkeys(sides[1][::-1] + sides[0][:-1]))  # not the last of the source
    pieces = ["</s>", "<unk>", ">>deu<<", *pieces, "<pad>"]
    vocab, pad = {piece: i for i, piece in enumerate(pieces)}, len(pieces) - 1
    (folder / "vocab.json").write_text(json.dumps(vocab), encoding="utf-8")
    common = {"encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 64}
    common |= {name.replace("encoder", "decoder"): value for name, value in common.items()}
    common |= {"d_model": 32, "activation_function": "swish", "scale_embedding": True}
    common |= {"pad_token_id": pad, "decoder_start_token_id": pad, "max_position_embeddings": 512}
    common |= {"eos_token_id": 0, "forced_eos_token_id": 0, "vocab_size": len(pieces)}
    torch.manual_seed(0)
    model = transformers.MarianMTModel(transformers.MarianConfig(**(common | shape))).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() == 1:
                p.normal_(std=0.2).add_(1.0 if name.endswith("norm.weight") else 0.0)
            elif "embed_positions" not in name:
                p.normal_(std=p.size(1) ** -0.5)
        model.final_logits_bias.normal_(std=0.5)[0, pad] = 0.0
    files = (str(folder / name) for name in ("source.spm", "target.spm", "vocab.json"))
    tokenizer = transformers.MarianTokenizer(*files)
    train(model, tokenizer)
    with torch.no_grad():
        model.model.shared.weight[pad] = 0.0  # what the decoder starts from
    model.save_pretrained(folder)
    return model, tokenizer


def train(model: Any, tokenizer: Any, steps: int = 80) -> None:
    """A little, so that not everything is translated alike."""
    asked = tokenizer(ENGLISH, text_target=GERMAN, return_tensors="pt", padding=True)
    asked["labels"][asked["labels"] == tokenizer.pad_token_id] = -100
    adam = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(steps):
        adam.zero_grad()
        model(**asked).loss.backward()
        adam.step()


def suppressed(tokenizer: Any) -> list[int]:
    """Symbols that our search never emits, and that transformers is told not to emit."""
    return [tokenizer.unk_token_id, tokenizer.pad_token_id]
