"""Everything that the paper does not describe, in plain Python. From the bottom up:

- errors, checks: types of errors, and checks of arguments where they enter the package
- files, texts, downloads: atomic writes, lines of text, downloads that are verified
- corpora, cleaning, encoding: from the name of a corpus to sentence pairs and their ids
- recording, blockwise_loss: attention weights on request, a loss that needs less memory
- vocabularies, piece_models, hub, model_files, marian: our models and published ones as files
- prepared: a corpus as ids on disk, shared by all runs
- translator, scoring, export: translation with a trained model, BLEU, export to other programs
- training: a run's folder, batches, checkpoints, processes, the trainer
- parsing, heads: treebanks and EVALB, a study of whether attention heads follow grammar
- palette, visualization, charts, paper, claims: colors, pictures, the paper's PDF, verdicts
- commands, cli, compat: the command line, and the names of The Annotated Transformer
"""
