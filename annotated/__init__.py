"""The Transformer of "Attention Is All You Need", section by section.

Generated from the chapters by book/extract.py: `chapters/api.md` lists the names.
Each is imported from its module on first use, so that importing the package takes milliseconds.
"""

import lazy_loader

_NAMES = {
    "_version": "__version__",
    "attention": "MultiHeadedAttention scaled_dot_product subsequent_mask",
    "compat": "SimpleLossCompute run_epoch",
    "data": "Batch END PAD START UNK encode_source encode_target learn_vocabulary token_batches",
    "decoding": "Hypothesis beam_search greedy_decode",
    "embeddings": "Embeddings Generator",
    "evaluation": "model_cost table_2 training_cost",
    "feed_forward": "PositionwiseFeedForward",
    "language_model": "LanguageModel LanguageModelConfig generate",
    "machinery.corpora.registry": "known_corpora load_pairs",
    "machinery.errors": "FileError InputError",
    "machinery.formats.causal": "load_language_model",
    "machinery.formats.export": "export_model",
    "machinery.formats.pretrained": "load_pretrained",
    "machinery.paper.quotation": "quote",
    "machinery.recording": "record_attention switch_off take touch",
    "machinery.runs.checkpoints": "average_checkpoints",
    "machinery.runs.fine_tuning": "fine_tuning",
    "machinery.runs.launcher": "launch",
    "machinery.runs.trainer": "Trainer train",
    "machinery.scoring": "bleu evaluate",
    "machinery.text_generator": "TextGenerator",
    "machinery.translator": "Translation Translator",
    "machinery.trees.evalb": "evalb_compare",
    "machinery.trees.svg": "tree_svg",
    "machinery.visualization.drawing": "attention_lines heat_map",
    "machinery.visualization.weights": "AttentionWeights read_attention",
    "model": "EncoderDecoder TransformerConfig build_model make_model tie_embeddings",
    "optimizer": "paper_optimizer rate",
    "parsing": "Parser load_parser table_4",
    "positional": "LearnedPositionalEncoding PositionalEncoding sinusoids",
    "regularization": "LabelSmoothing",
    "stacks": "Decoder DecoderLayer Encoder EncoderLayer SublayerConnection",
    "training": "TrainingConfig preset",
    "variations": "count_parameters row_config table_3",
}
_OFFERED = {module: names.split() for module, names in _NAMES.items()}
_MODULES = """
attention data decoding embeddings evaluation feed_forward incremental language_model model
optimizer parsing positional regularization stacks training variations by_hand compat machinery
"""
__getattr__, *_ = lazy_loader.attach(__name__, _MODULES.split(), _OFFERED)
__all__ = sorted(name for names in _OFFERED.values() for name in names if name[0] != "_")


def __dir__() -> list[str]:
    """The names that the package offers; its modules are attributes too."""
    return __all__
