"""The Transformer of "Attention Is All You Need", section by section.

Generated from the chapters by book/extract.py. Each name is imported from its module when it is
first used, so that `import annotated` stays quick.
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from annotated.attention import KeyValueCache as KeyValueCache
    from annotated.attention import MultiHeadedAttention as MultiHeadedAttention
    from annotated.attention import check_mask as check_mask
    from annotated.attention import fused_attention as fused_attention
    from annotated.attention import head_widths as head_widths
    from annotated.attention import masked_softmax as masked_softmax
    from annotated.attention import scaled_dot_product as scaled_dot_product
    from annotated.attention import subsequent_mask as subsequent_mask
    from annotated.charts import PALETTE as PALETTE
    from annotated.charts import chart_theme as chart_theme
    from annotated.claims import MARKS as MARKS
    from annotated.claims import Verdict as Verdict
    from annotated.claims import claim as claim
    from annotated.complexity import BareSelfAttention as BareSelfAttention
    from annotated.complexity import Convolution as Convolution
    from annotated.complexity import Recurrent as Recurrent
    from annotated.complexity import RestrictedSelfAttention as RestrictedSelfAttention
    from annotated.complexity import layers_to_link as layers_to_link
    from annotated.complexity import longest_chain as longest_chain
    from annotated.complexity import multiply_adds as multiply_adds
    from annotated.data import END as END
    from annotated.data import PAD as PAD
    from annotated.data import SPECIALS as SPECIALS
    from annotated.data import START as START
    from annotated.data import UNK as UNK
    from annotated.data import Batch as Batch
    from annotated.data import Corpus as Corpus
    from annotated.data import CorpusFile as CorpusFile
    from annotated.data import EncodedPairs as EncodedPairs
    from annotated.data import HeldOut as HeldOut
    from annotated.data import PairReport as PairReport
    from annotated.data import archive_texts as archive_texts
    from annotated.data import cache_folder as cache_folder
    from annotated.data import clean_pairs as clean_pairs
    from annotated.data import corpora as corpora
    from annotated.data import corpus_file as corpus_file
    from annotated.data import corpus_files as corpus_files
    from annotated.data import corpus_parts as corpus_parts
    from annotated.data import decode_lines as decode_lines
    from annotated.data import download as download
    from annotated.data import encode_source as encode_source
    from annotated.data import encode_target as encode_target
    from annotated.data import fetch_url as fetch_url
    from annotated.data import find_corpus as find_corpus
    from annotated.data import known_split as known_split
    from annotated.data import learn_vocabulary as learn_vocabulary
    from annotated.data import load_pairs as load_pairs
    from annotated.data import local_file as local_file
    from annotated.data import make_batch as make_batch
    from annotated.data import pad_ids as pad_ids
    from annotated.data import parse_data as parse_data
    from annotated.data import part_lines as part_lines
    from annotated.data import read_lines as read_lines
    from annotated.data import sha256_of as sha256_of
    from annotated.data import shipped as shipped
    from annotated.data import token_batches as token_batches
    from annotated.data import train_bpe as train_bpe
    from annotated.data import train_wordpiece as train_wordpiece
    from annotated.data import word_vocabulary as word_vocabulary
    from annotated.decoding import Beam as Beam
    from annotated.decoding import Follow as Follow
    from annotated.decoding import Hypothesis as Hypothesis
    from annotated.decoding import Translation as Translation
    from annotated.decoding import Translator as Translator
    from annotated.decoding import beam_search as beam_search
    from annotated.decoding import budget_batches as budget_batches
    from annotated.decoding import can_win as can_win
    from annotated.decoding import check_search as check_search
    from annotated.decoding import each_sentence as each_sentence
    from annotated.decoding import extend as extend
    from annotated.decoding import forbid as forbid
    from annotated.decoding import greedy_decode as greedy_decode
    from annotated.decoding import is_blank as is_blank
    from annotated.decoding import length_penalty as length_penalty
    from annotated.decoding import load_pretrained as load_pretrained
    from annotated.decoding import model_folder as model_folder
    from annotated.decoding import next_log_probs as next_log_probs
    from annotated.decoding import open_beam as open_beam
    from annotated.decoding import read_tokenizer as read_tokenizer
    from annotated.decoding import take_complete as take_complete
    from annotated.embeddings import Embeddings as Embeddings
    from annotated.embeddings import Generator as Generator
    from annotated.embeddings import check_ids as check_ids
    from annotated.embeddings import check_tokens as check_tokens
    from annotated.evaluation import TEXTS as TEXTS
    from annotated.evaluation import TFLOPS as TFLOPS
    from annotated.evaluation import Likelihood as Likelihood
    from annotated.evaluation import all_scores as all_scores
    from annotated.evaluation import as_scored as as_scored
    from annotated.evaluation import bleu as bleu
    from annotated.evaluation import evaluate as evaluate
    from annotated.evaluation import likelihood as likelihood
    from annotated.evaluation import lower_tokenise as lower_tokenise
    from annotated.evaluation import model_cost as model_cost
    from annotated.evaluation import moses_tokenise as moses_tokenise
    from annotated.evaluation import score_files as score_files
    from annotated.evaluation import split_compounds as split_compounds
    from annotated.evaluation import table_2 as table_2
    from annotated.evaluation import training_cost as training_cost
    from annotated.evaluation import try_searches as try_searches
    from annotated.feed_forward import PositionwiseFeedForward as PositionwiseFeedForward
    from annotated.files import FileError as FileError
    from annotated.files import InputError as InputError
    from annotated.files import MissingFile as MissingFile
    from annotated.files import append_text as append_text
    from annotated.files import check_whole as check_whole
    from annotated.files import fits as fits
    from annotated.files import locked as locked
    from annotated.files import read_json as read_json
    from annotated.files import read_tensors as read_tensors
    from annotated.files import reading as reading
    from annotated.files import settings as settings
    from annotated.files import write_tensors as write_tensors
    from annotated.files import write_text as write_text
    from annotated.files import writing as writing
    from annotated.heads import DISTANCES as DISTANCES
    from annotated.heads import PLACES as PLACES
    from annotated.heads import Arrows as Arrows
    from annotated.heads import Pronouns as Pronouns
    from annotated.heads import Seen as Seen
    from annotated.heads import answer as answer
    from annotated.heads import antecedents as antecedents
    from annotated.heads import arrows as arrows
    from annotated.heads import at_place as at_place
    from annotated.heads import best_for_pronouns as best_for_pronouns
    from annotated.heads import best_heads as best_heads
    from annotated.heads import best_place as best_place
    from annotated.heads import by_distance as by_distance
    from annotated.heads import common_relations as common_relations
    from annotated.heads import head_relations as head_relations
    from annotated.heads import holm as holm
    from annotated.heads import interval as interval
    from annotated.heads import load_gum as load_gum
    from annotated.heads import look as look
    from annotated.heads import places as places
    from annotated.heads import profile as profile
    from annotated.heads import pronouns as pronouns
    from annotated.heads import read_conllu as read_conllu
    from annotated.heads import strongest as strongest
    from annotated.heads import study as study
    from annotated.heads import sure as sure
    from annotated.heads import tasks as tasks
    from annotated.heads import untrained as untrained
    from annotated.heads import word_weights as word_weights
    from annotated.launcher import PEAK_TFLOPS as PEAK_TFLOPS
    from annotated.launcher import Run as Run
    from annotated.launcher import command as command
    from annotated.launcher import keep_results as keep_results
    from annotated.launcher import launch as launch
    from annotated.launcher import loss_chart as loss_chart
    from annotated.launcher import peak_tflops as peak_tflops
    from annotated.launcher import training_plan as training_plan
    from annotated.launcher import training_work as training_work
    from annotated.model import EncoderDecoder as EncoderDecoder
    from annotated.model import TransformerConfig as TransformerConfig
    from annotated.model import build_model as build_model
    from annotated.model import check_config as check_config
    from annotated.model import initialise as initialise
    from annotated.model import make_model as make_model
    from annotated.model import parameter_shapes as parameter_shapes
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
    from annotated.parsing import Bracketing as Bracketing
    from annotated.parsing import Grammar as Grammar
    from annotated.parsing import HeldTranslator as HeldTranslator
    from annotated.parsing import LineRules as LineRules
    from annotated.parsing import Parser as Parser
    from annotated.parsing import Place as Place
    from annotated.parsing import Rules as Rules
    from annotated.parsing import Score as Score
    from annotated.parsing import Tagger as Tagger
    from annotated.parsing import bare_label as bare_label
    from annotated.parsing import bracketed as bracketed
    from annotated.parsing import bracketing as bracketing
    from annotated.parsing import check_limit as check_limit
    from annotated.parsing import clean as clean
    from annotated.parsing import compare as compare
    from annotated.parsing import compare_parsers as compare_parsers
    from annotated.parsing import is_marked as is_marked
    from annotated.parsing import is_tag as is_tag
    from annotated.parsing import line_tokens as line_tokens
    from annotated.parsing import line_tree as line_tree
    from annotated.parsing import linearize as linearize
    from annotated.parsing import load_parser as load_parser
    from annotated.parsing import load_trees as load_trees
    from annotated.parsing import read_rules as read_rules
    from annotated.parsing import read_trees as read_trees
    from annotated.parsing import restore as restore
    from annotated.parsing import right_branching as right_branching
    from annotated.parsing import same_punctuation as same_punctuation
    from annotated.parsing import score_parser as score_parser
    from annotated.parsing import score_tree_files as score_tree_files
    from annotated.parsing import score_trees as score_trees
    from annotated.parsing import sentence_line as sentence_line
    from annotated.parsing import split_words as split_words
    from annotated.parsing import summary as summary
    from annotated.parsing import table_4 as table_4
    from annotated.parsing import tree_files as tree_files
    from annotated.parsing import tree_line as tree_line
    from annotated.parsing import tree_lines as tree_lines
    from annotated.parsing import tree_svg as tree_svg
    from annotated.parsing import write_treebank as write_treebank
    from annotated.positional import LearnedPositionalEncoding as LearnedPositionalEncoding
    from annotated.positional import PositionalEncoding as PositionalEncoding
    from annotated.positional import sinusoids as sinusoids
    from annotated.regularization import BlockwiseLoss as BlockwiseLoss
    from annotated.regularization import Dropout as Dropout
    from annotated.regularization import LabelSmoothing as LabelSmoothing
    from annotated.regularization import projected_cross_entropy as projected_cross_entropy
    from annotated.regularization import smoothed_cross_entropy as smoothed_cross_entropy
    from annotated.stacks import Decoder as Decoder
    from annotated.stacks import DecoderCache as DecoderCache
    from annotated.stacks import DecoderLayer as DecoderLayer
    from annotated.stacks import Encoder as Encoder
    from annotated.stacks import EncoderLayer as EncoderLayer
    from annotated.stacks import SublayerConnection as SublayerConnection
    from annotated.stacks import clones as clones
    from annotated.stacks import final_norm as final_norm
    from annotated.training import INTERRUPTED as INTERRUPTED
    from annotated.training import PRESETS as PRESETS
    from annotated.training import Group as Group
    from annotated.training import ModelLoss as ModelLoss
    from annotated.training import Part as Part
    from annotated.training import Processes as Processes
    from annotated.training import Progress as Progress
    from annotated.training import RunLog as RunLog
    from annotated.training import SimpleLossCompute as SimpleLossCompute
    from annotated.training import Stopped as Stopped
    from annotated.training import StopRequest as StopRequest
    from annotated.training import Trainer as Trainer
    from annotated.training import TrainingConfig as TrainingConfig
    from annotated.training import TrainState as TrainState
    from annotated.training import agree as agree
    from annotated.training import ahead as ahead
    from annotated.training import average_checkpoints as average_checkpoints
    from annotated.training import check_resume as check_resume
    from annotated.training import check_training as check_training
    from annotated.training import checkpoints as checkpoints
    from annotated.training import dev_loss as dev_loss
    from annotated.training import digest as digest
    from annotated.training import encode_corpus as encode_corpus
    from annotated.training import find_precision as find_precision
    from annotated.training import groups as groups
    from annotated.training import interrupt as interrupt
    from annotated.training import join_processes as join_processes
    from annotated.training import leaving as leaving
    from annotated.training import load_checkpoint as load_checkpoint
    from annotated.training import longest_sentence as longest_sentence
    from annotated.training import mix as mix
    from annotated.training import model_config as model_config
    from annotated.training import newest_checkpoint as newest_checkpoint
    from annotated.training import part as part
    from annotated.training import parts_from as parts_from
    from annotated.training import prepare as prepare
    from annotated.training import preset as preset
    from annotated.training import progress_bar as progress_bar
    from annotated.training import read_checkpoint as read_checkpoint
    from annotated.training import read_config as read_config
    from annotated.training import read_log as read_log
    from annotated.training import ready as ready
    from annotated.training import record as record
    from annotated.training import run as run
    from annotated.training import run_epoch as run_epoch
    from annotated.training import run_lock as run_lock
    from annotated.training import run_vocabulary as run_vocabulary
    from annotated.training import save_checkpoint as save_checkpoint
    from annotated.training import save_model as save_model
    from annotated.training import share_parts as share_parts
    from annotated.training import show as show
    from annotated.training import start_run as start_run
    from annotated.training import timed_update as timed_update
    from annotated.training import to_device as to_device
    from annotated.training import train as train
    from annotated.training import update as update
    from annotated.variations import BASE as BASE
    from annotated.variations import count_parameters as count_parameters
    from annotated.variations import full_command as full_command
    from annotated.variations import full_config as full_config
    from annotated.variations import leads as leads
    from annotated.variations import read_runs as read_runs
    from annotated.variations import row_config as row_config
    from annotated.variations import rows as rows
    from annotated.variations import small_config as small_config
    from annotated.variations import train_and_score as train_and_score
    from annotated.variations import vary as vary
    from annotated.variations import verdict as verdict
    from annotated.visualization import Attention as Attention
    from annotated.visualization import Choice as Choice
    from annotated.visualization import attention_lines as attention_lines
    from annotated.visualization import connections as connections
    from annotated.visualization import describe as describe
    from annotated.visualization import heat_map as heat_map
    from annotated.visualization import leave_out as leave_out
    from annotated.visualization import merge_words as merge_words
    from annotated.visualization import overview as overview
    from annotated.visualization import piece_names as piece_names
    from annotated.visualization import read_attention as read_attention
    from annotated.visualization import readable as readable
    from annotated.visualization import reader_controls as reader_controls
    from annotated.visualization import weight_rows as weight_rows
    from annotated.visualization import word_groups as word_groups

try:
    __version__ = version("annotated-attention")
except PackageNotFoundError:  # used from the source tree without being installed
    __version__ = "0"

_MODULES = {
    "attention": [
        "KeyValueCache",
        "MultiHeadedAttention",
        "check_mask",
        "fused_attention",
        "head_widths",
        "masked_softmax",
        "scaled_dot_product",
        "subsequent_mask",
    ],
    "charts": ["PALETTE", "chart_theme"],
    "claims": ["MARKS", "Verdict", "claim"],
    "complexity": [
        "BareSelfAttention",
        "Convolution",
        "Recurrent",
        "RestrictedSelfAttention",
        "layers_to_link",
        "longest_chain",
        "multiply_adds",
    ],
    "data": [
        "Batch",
        "Corpus",
        "CorpusFile",
        "END",
        "EncodedPairs",
        "HeldOut",
        "PAD",
        "PairReport",
        "SPECIALS",
        "START",
        "UNK",
        "archive_texts",
        "cache_folder",
        "clean_pairs",
        "corpora",
        "corpus_file",
        "corpus_files",
        "corpus_parts",
        "decode_lines",
        "download",
        "encode_source",
        "encode_target",
        "fetch_url",
        "find_corpus",
        "known_split",
        "learn_vocabulary",
        "load_pairs",
        "local_file",
        "make_batch",
        "pad_ids",
        "parse_data",
        "part_lines",
        "read_lines",
        "sha256_of",
        "shipped",
        "token_batches",
        "train_bpe",
        "train_wordpiece",
        "word_vocabulary",
    ],
    "decoding": [
        "Beam",
        "Follow",
        "Hypothesis",
        "Translation",
        "Translator",
        "beam_search",
        "budget_batches",
        "can_win",
        "check_search",
        "each_sentence",
        "extend",
        "forbid",
        "greedy_decode",
        "is_blank",
        "length_penalty",
        "load_pretrained",
        "model_folder",
        "next_log_probs",
        "open_beam",
        "read_tokenizer",
        "take_complete",
    ],
    "embeddings": ["Embeddings", "Generator", "check_ids", "check_tokens"],
    "evaluation": [
        "Likelihood",
        "TEXTS",
        "TFLOPS",
        "all_scores",
        "as_scored",
        "bleu",
        "evaluate",
        "likelihood",
        "lower_tokenise",
        "model_cost",
        "moses_tokenise",
        "score_files",
        "split_compounds",
        "table_2",
        "training_cost",
        "try_searches",
    ],
    "feed_forward": ["PositionwiseFeedForward"],
    "files": [
        "FileError",
        "InputError",
        "MissingFile",
        "append_text",
        "check_whole",
        "fits",
        "locked",
        "read_json",
        "read_tensors",
        "reading",
        "settings",
        "write_tensors",
        "write_text",
        "writing",
    ],
    "heads": [
        "Arrows",
        "DISTANCES",
        "PLACES",
        "Pronouns",
        "Seen",
        "answer",
        "antecedents",
        "arrows",
        "at_place",
        "best_for_pronouns",
        "best_heads",
        "best_place",
        "by_distance",
        "common_relations",
        "head_relations",
        "holm",
        "interval",
        "load_gum",
        "look",
        "places",
        "profile",
        "pronouns",
        "read_conllu",
        "strongest",
        "study",
        "sure",
        "tasks",
        "untrained",
        "word_weights",
    ],
    "launcher": [
        "PEAK_TFLOPS",
        "Run",
        "command",
        "keep_results",
        "launch",
        "loss_chart",
        "peak_tflops",
        "training_plan",
        "training_work",
    ],
    "model": [
        "EncoderDecoder",
        "TransformerConfig",
        "build_model",
        "check_config",
        "initialise",
        "make_model",
        "parameter_shapes",
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
    "parsing": [
        "Bracketing",
        "Grammar",
        "HeldTranslator",
        "LineRules",
        "Parser",
        "Place",
        "Rules",
        "Score",
        "Tagger",
        "bare_label",
        "bracketed",
        "bracketing",
        "check_limit",
        "clean",
        "compare",
        "compare_parsers",
        "is_marked",
        "is_tag",
        "line_tokens",
        "line_tree",
        "linearize",
        "load_parser",
        "load_trees",
        "read_rules",
        "read_trees",
        "restore",
        "right_branching",
        "same_punctuation",
        "score_parser",
        "score_tree_files",
        "score_trees",
        "sentence_line",
        "split_words",
        "summary",
        "table_4",
        "tree_files",
        "tree_line",
        "tree_lines",
        "tree_svg",
        "write_treebank",
    ],
    "positional": ["LearnedPositionalEncoding", "PositionalEncoding", "sinusoids"],
    "regularization": [
        "BlockwiseLoss",
        "Dropout",
        "LabelSmoothing",
        "projected_cross_entropy",
        "smoothed_cross_entropy",
    ],
    "stacks": [
        "Decoder",
        "DecoderCache",
        "DecoderLayer",
        "Encoder",
        "EncoderLayer",
        "SublayerConnection",
        "clones",
        "final_norm",
    ],
    "training": [
        "Group",
        "INTERRUPTED",
        "ModelLoss",
        "PRESETS",
        "Part",
        "Processes",
        "Progress",
        "RunLog",
        "SimpleLossCompute",
        "StopRequest",
        "Stopped",
        "TrainState",
        "Trainer",
        "TrainingConfig",
        "agree",
        "ahead",
        "average_checkpoints",
        "check_resume",
        "check_training",
        "checkpoints",
        "dev_loss",
        "digest",
        "encode_corpus",
        "find_precision",
        "groups",
        "interrupt",
        "join_processes",
        "leaving",
        "load_checkpoint",
        "longest_sentence",
        "mix",
        "model_config",
        "newest_checkpoint",
        "part",
        "parts_from",
        "prepare",
        "preset",
        "progress_bar",
        "read_checkpoint",
        "read_config",
        "read_log",
        "ready",
        "record",
        "run",
        "run_epoch",
        "run_lock",
        "run_vocabulary",
        "save_checkpoint",
        "save_model",
        "share_parts",
        "show",
        "start_run",
        "timed_update",
        "to_device",
        "train",
        "update",
    ],
    "variations": [
        "BASE",
        "count_parameters",
        "full_command",
        "full_config",
        "leads",
        "read_runs",
        "row_config",
        "rows",
        "small_config",
        "train_and_score",
        "vary",
        "verdict",
    ],
    "visualization": [
        "Attention",
        "Choice",
        "attention_lines",
        "connections",
        "describe",
        "heat_map",
        "leave_out",
        "merge_words",
        "overview",
        "piece_names",
        "read_attention",
        "readable",
        "reader_controls",
        "weight_rows",
        "word_groups",
    ],
}

_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "BASE",
    "DISTANCES",
    "END",
    "INTERRUPTED",
    "MARKS",
    "PAD",
    "PALETTE",
    "PEAK_TFLOPS",
    "PLACES",
    "PRESETS",
    "SPECIALS",
    "START",
    "TEXTS",
    "TFLOPS",
    "UNK",
    "Arrows",
    "Attention",
    "BareSelfAttention",
    "Batch",
    "Beam",
    "BlockwiseLoss",
    "Bracketing",
    "Choice",
    "Convolution",
    "Corpus",
    "CorpusFile",
    "Decoder",
    "DecoderCache",
    "DecoderLayer",
    "Dropout",
    "Embeddings",
    "EncodedPairs",
    "Encoder",
    "EncoderDecoder",
    "EncoderLayer",
    "FileError",
    "Follow",
    "Generator",
    "Grammar",
    "Group",
    "HeldOut",
    "HeldTranslator",
    "Hypothesis",
    "InputError",
    "KeyValueCache",
    "LabelSmoothing",
    "LearnedPositionalEncoding",
    "Likelihood",
    "LineRules",
    "MissingFile",
    "ModelLoss",
    "MultiHeadedAttention",
    "PairReport",
    "Paper",
    "Parser",
    "Part",
    "Place",
    "PositionalEncoding",
    "PositionwiseFeedForward",
    "Processes",
    "Progress",
    "Pronouns",
    "Quotation",
    "Recurrent",
    "RestrictedSelfAttention",
    "Rules",
    "Run",
    "RunLog",
    "Score",
    "Seen",
    "SimpleLossCompute",
    "StopRequest",
    "Stopped",
    "SublayerConnection",
    "Tagger",
    "TrainState",
    "Trainer",
    "TrainingConfig",
    "TransformerConfig",
    "Translation",
    "Translator",
    "Verdict",
    "agree",
    "ahead",
    "all_scores",
    "answer",
    "antecedents",
    "append_text",
    "archive_texts",
    "arrows",
    "as_scored",
    "at_place",
    "attention_lines",
    "average_checkpoints",
    "bare_label",
    "beam_search",
    "best_for_pronouns",
    "best_heads",
    "best_place",
    "bleu",
    "bracketed",
    "bracketing",
    "budget_batches",
    "build_model",
    "by_distance",
    "cache_folder",
    "can_win",
    "chart_theme",
    "check_config",
    "check_ids",
    "check_limit",
    "check_mask",
    "check_resume",
    "check_search",
    "check_tokens",
    "check_training",
    "check_whole",
    "checkpoints",
    "claim",
    "clean",
    "clean_pairs",
    "clones",
    "command",
    "common_relations",
    "compare",
    "compare_parsers",
    "connections",
    "corpora",
    "corpus_file",
    "corpus_files",
    "corpus_parts",
    "count_parameters",
    "decode_lines",
    "describe",
    "dev_loss",
    "digest",
    "download",
    "each_sentence",
    "encode_corpus",
    "encode_source",
    "encode_target",
    "evaluate",
    "extend",
    "extract_paper",
    "fetch_url",
    "final_norm",
    "find_corpus",
    "find_paper",
    "find_precision",
    "fits",
    "forbid",
    "full_command",
    "full_config",
    "fused_attention",
    "get_paper",
    "greedy_decode",
    "groups",
    "head_relations",
    "head_widths",
    "heat_map",
    "holm",
    "import_paper",
    "initialise",
    "interrupt",
    "interval",
    "is_blank",
    "is_marked",
    "is_tag",
    "join_processes",
    "keep_results",
    "known_split",
    "launch",
    "layers_to_link",
    "leads",
    "learn_vocabulary",
    "leave_out",
    "leaving",
    "length_penalty",
    "likelihood",
    "line_tokens",
    "line_tree",
    "linearize",
    "load_checkpoint",
    "load_gum",
    "load_pairs",
    "load_parser",
    "load_pretrained",
    "load_trees",
    "local_file",
    "locked",
    "longest_chain",
    "longest_sentence",
    "look",
    "loss_chart",
    "lower_tokenise",
    "make_batch",
    "make_model",
    "masked_softmax",
    "merge_words",
    "mix",
    "model_config",
    "model_cost",
    "model_folder",
    "moses_tokenise",
    "multiply_adds",
    "newest_checkpoint",
    "next_log_probs",
    "open_beam",
    "overview",
    "pad_ids",
    "paper_folder",
    "paper_optimizer",
    "parameter_shapes",
    "parse_data",
    "part",
    "part_lines",
    "parts_from",
    "peak_tflops",
    "piece_names",
    "places",
    "prepare",
    "preset",
    "profile",
    "progress_bar",
    "projected_cross_entropy",
    "pronouns",
    "quote",
    "rate",
    "read_attention",
    "read_checkpoint",
    "read_config",
    "read_conllu",
    "read_json",
    "read_lines",
    "read_log",
    "read_rules",
    "read_runs",
    "read_tensors",
    "read_tokenizer",
    "read_trees",
    "readable",
    "reader_controls",
    "reading",
    "ready",
    "record",
    "restore",
    "right_branching",
    "row_config",
    "rows",
    "run",
    "run_epoch",
    "run_lock",
    "run_vocabulary",
    "same_punctuation",
    "save_checkpoint",
    "save_model",
    "scaled_dot_product",
    "score_files",
    "score_parser",
    "score_tree_files",
    "score_trees",
    "sentence_line",
    "settings",
    "sha256_of",
    "share_parts",
    "shipped",
    "show",
    "sinusoids",
    "small_config",
    "smoothed_cross_entropy",
    "split_compounds",
    "split_words",
    "start_run",
    "strongest",
    "study",
    "subsequent_mask",
    "summary",
    "sure",
    "table_2",
    "table_4",
    "take_complete",
    "tasks",
    "tie_embeddings",
    "timed_update",
    "to_device",
    "token_batches",
    "train",
    "train_and_score",
    "train_bpe",
    "train_wordpiece",
    "training_cost",
    "training_plan",
    "training_work",
    "tree_files",
    "tree_line",
    "tree_lines",
    "tree_svg",
    "try_searches",
    "untrained",
    "update",
    "vary",
    "verdict",
    "weight_rows",
    "word_groups",
    "word_vocabulary",
    "word_weights",
    "write_tensors",
    "write_text",
    "write_treebank",
    "writing",
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
