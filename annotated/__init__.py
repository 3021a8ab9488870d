"""The Transformer of "Attention Is All You Need", section by section.

Generated from the chapters by book/extract.py. Each name is imported from its module when it is
first used, so that `import annotated` stays quick.
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from annotated.attention import MultiHeadedAttention as MultiHeadedAttention
    from annotated.attention import fused_attention as fused_attention
    from annotated.attention import masked_softmax as masked_softmax
    from annotated.attention import scaled_dot_product as scaled_dot_product
    from annotated.attention import subsequent_mask as subsequent_mask
    from annotated.charts import PALETTE as PALETTE
    from annotated.charts import chart_theme as chart_theme
    from annotated.data import END as END
    from annotated.data import PAD as PAD
    from annotated.data import SPECIALS as SPECIALS
    from annotated.data import START as START
    from annotated.data import UNK as UNK
    from annotated.data import Batch as Batch
    from annotated.data import Corpus as Corpus
    from annotated.data import corpora as corpora
    from annotated.data import corpus_file as corpus_file
    from annotated.data import encode_source as encode_source
    from annotated.data import encode_target as encode_target
    from annotated.data import find_corpus as find_corpus
    from annotated.data import load_pairs as load_pairs
    from annotated.data import make_batch as make_batch
    from annotated.data import pad_ids as pad_ids
    from annotated.data import read_lines as read_lines
    from annotated.data import shipped as shipped
    from annotated.data import token_batches as token_batches
    from annotated.data import train_bpe as train_bpe
    from annotated.decoding import Translator as Translator
    from annotated.decoding import greedy_decode as greedy_decode
    from annotated.decoding import load_pretrained as load_pretrained
    from annotated.embeddings import Embeddings as Embeddings
    from annotated.embeddings import Generator as Generator
    from annotated.embeddings import check_ids as check_ids
    from annotated.evaluation import bleu as bleu
    from annotated.evaluation import evaluate as evaluate
    from annotated.evaluation import lower_tokenise as lower_tokenise
    from annotated.feed_forward import PositionwiseFeedForward as PositionwiseFeedForward
    from annotated.model import EncoderDecoder as EncoderDecoder
    from annotated.model import TransformerConfig as TransformerConfig
    from annotated.model import build_model as build_model
    from annotated.model import check_config as check_config
    from annotated.model import initialise as initialise
    from annotated.model import make_model as make_model
    from annotated.model import tie_embeddings as tie_embeddings
    from annotated.optimizer import paper_optimizer as paper_optimizer
    from annotated.optimizer import rate as rate
    from annotated.paper import Paper as Paper
    from annotated.paper import Quotation as Quotation
    from annotated.paper import extract_paper as extract_paper
    from annotated.paper import find_paper as find_paper
    from annotated.paper import get_paper as get_paper
    from annotated.paper import import_paper as import_paper
    from annotated.paper import paper_folder as paper_folder
    from annotated.paper import quote as quote
    from annotated.positional import LearnedPositionalEncoding as LearnedPositionalEncoding
    from annotated.positional import PositionalEncoding as PositionalEncoding
    from annotated.positional import sinusoids as sinusoids
    from annotated.regularization import LabelSmoothing as LabelSmoothing
    from annotated.stacks import Decoder as Decoder
    from annotated.stacks import DecoderLayer as DecoderLayer
    from annotated.stacks import Encoder as Encoder
    from annotated.stacks import EncoderLayer as EncoderLayer
    from annotated.stacks import SublayerConnection as SublayerConnection
    from annotated.stacks import clones as clones
    from annotated.stacks import final_norm as final_norm
    from annotated.training import SimpleLossCompute as SimpleLossCompute
    from annotated.training import Trainer as Trainer
    from annotated.training import TrainingConfig as TrainingConfig
    from annotated.training import TrainState as TrainState
    from annotated.training import average_checkpoints as average_checkpoints
    from annotated.training import checkpoints as checkpoints
    from annotated.training import dev_loss as dev_loss
    from annotated.training import load_checkpoint as load_checkpoint
    from annotated.training import log_row as log_row
    from annotated.training import model_config as model_config
    from annotated.training import run_epoch as run_epoch
    from annotated.training import save_checkpoint as save_checkpoint
    from annotated.training import save_model as save_model
    from annotated.training import start_run as start_run
    from annotated.training import train as train
    from annotated.training import train_epoch as train_epoch
    from annotated.training import write_tensors as write_tensors
    from annotated.training import write_text as write_text

try:
    __version__ = version("annotated")
except PackageNotFoundError:  # used from the source tree without being installed
    __version__ = "0"

_MODULES = {
    "attention": [
        "MultiHeadedAttention",
        "fused_attention",
        "masked_softmax",
        "scaled_dot_product",
        "subsequent_mask",
    ],
    "charts": ["PALETTE", "chart_theme"],
    "data": [
        "Batch",
        "Corpus",
        "END",
        "PAD",
        "SPECIALS",
        "START",
        "UNK",
        "corpora",
        "corpus_file",
        "encode_source",
        "encode_target",
        "find_corpus",
        "load_pairs",
        "make_batch",
        "pad_ids",
        "read_lines",
        "shipped",
        "token_batches",
        "train_bpe",
    ],
    "decoding": ["Translator", "greedy_decode", "load_pretrained"],
    "embeddings": ["Embeddings", "Generator", "check_ids"],
    "evaluation": ["bleu", "evaluate", "lower_tokenise"],
    "feed_forward": ["PositionwiseFeedForward"],
    "model": [
        "EncoderDecoder",
        "TransformerConfig",
        "build_model",
        "check_config",
        "initialise",
        "make_model",
        "tie_embeddings",
    ],
    "optimizer": ["paper_optimizer", "rate"],
    "paper": [
        "Paper",
        "Quotation",
        "extract_paper",
        "find_paper",
        "get_paper",
        "import_paper",
        "paper_folder",
        "quote",
    ],
    "positional": ["LearnedPositionalEncoding", "PositionalEncoding", "sinusoids"],
    "regularization": ["LabelSmoothing"],
    "stacks": [
        "Decoder",
        "DecoderLayer",
        "Encoder",
        "EncoderLayer",
        "SublayerConnection",
        "clones",
        "final_norm",
    ],
    "training": [
        "SimpleLossCompute",
        "TrainState",
        "Trainer",
        "TrainingConfig",
        "average_checkpoints",
        "checkpoints",
        "dev_loss",
        "load_checkpoint",
        "log_row",
        "model_config",
        "run_epoch",
        "save_checkpoint",
        "save_model",
        "start_run",
        "train",
        "train_epoch",
        "write_tensors",
        "write_text",
    ],
}

_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "END",
    "PAD",
    "PALETTE",
    "SPECIALS",
    "START",
    "UNK",
    "Batch",
    "Corpus",
    "Decoder",
    "DecoderLayer",
    "Embeddings",
    "Encoder",
    "EncoderDecoder",
    "EncoderLayer",
    "Generator",
    "LabelSmoothing",
    "LearnedPositionalEncoding",
    "MultiHeadedAttention",
    "Paper",
    "PositionalEncoding",
    "PositionwiseFeedForward",
    "Quotation",
    "SimpleLossCompute",
    "SublayerConnection",
    "TrainState",
    "Trainer",
    "TrainingConfig",
    "TransformerConfig",
    "Translator",
    "average_checkpoints",
    "bleu",
    "build_model",
    "chart_theme",
    "check_config",
    "check_ids",
    "checkpoints",
    "clones",
    "corpora",
    "corpus_file",
    "dev_loss",
    "encode_source",
    "encode_target",
    "evaluate",
    "extract_paper",
    "final_norm",
    "find_corpus",
    "find_paper",
    "fused_attention",
    "get_paper",
    "greedy_decode",
    "import_paper",
    "initialise",
    "load_checkpoint",
    "load_pairs",
    "load_pretrained",
    "log_row",
    "lower_tokenise",
    "make_batch",
    "make_model",
    "masked_softmax",
    "model_config",
    "pad_ids",
    "paper_folder",
    "paper_optimizer",
    "quote",
    "rate",
    "read_lines",
    "run_epoch",
    "save_checkpoint",
    "save_model",
    "scaled_dot_product",
    "shipped",
    "sinusoids",
    "start_run",
    "subsequent_mask",
    "tie_embeddings",
    "token_batches",
    "train",
    "train_bpe",
    "train_epoch",
    "write_tensors",
    "write_text",
]


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(f"annotated.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'annotated' has no attribute {name!r}")
    value = getattr(import_module(f"annotated.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME, *_MODULES])
