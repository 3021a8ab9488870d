"""All that the paper does not describe, as plain Python. From the bottom up:

- errors, checks: what goes wrong, and what is refused at the doors
- files, texts, downloads: whole files or none, lines of text, SHA-256
- corpora, cleaning, encoding: from a name to sentence pairs, and to their ids
- recording, blockwise_loss: attention weights when asked for, a loss that needs less memory
- vocabularies, piece_models, hub, model_files, marian: models as files, ours and published ones
- prepared: a corpus as ids on disk, once for all runs
- translator, scoring, export: a trained model at work, BLEU, models for other programs
- training: a run's folder, batches, checkpoints, processes, the trainer
- parsing, heads: treebanks and EVALB, what attention heads know about grammar
- visualization, charts, paper, claims: pictures, the paper's own PDF, verdicts
- commands, cli, compat: the command line, and the names of The Annotated Transformer
"""
