"""Everything that the paper does not describe, in plain Python. A room is a folder of modules:

- errors, checks, files, limits, progress, palette: errors, checks of arguments, atomic writes,
  processes with limits, bars, and the colors of all drawings
- options, parts, recurrence: choices declared once, the classes for them, another kind of layer
- stepping, recording: one position at a time, looking into a model
- kernels, blockwise_loss: the fastest of torch's kernels, a leaner loss
- translator, scoring, text_generator: translation with a trained model, BLEU, language models
- corpora: from the name of a corpus to sentence pairs, and to ids that all runs share
  (downloads, registry, languages, texts, tables, cleaning, vocabularies, encoding, prepared)
- formats: models as files, in our own format, as others publish them, and for other programs
  (own, card, piece_models, marian, firefox, hub, pretrained, causal, causal_tokenizer, chat, gguf,
  export, engine)
- runs: the folder of a training run, its batches, checkpoints, reports and processes, and the
  trainer (folder, batches, checkpoints, fine_tuning, logs, report, processes, trainer, launcher)
- trees: treebanks, trees as lines of tokens and as drawings, and EVALB
  (penn, linear, constraints, evalb, svg)
- visualization: attention as pictures (weights, drawing)
- paper: the paper's own PDF and quotations from it (pdf, quotation)
- cli: the command line (main, commands)
"""
