"""A sentence as GUM has it, made by hand, and a model small enough to read it in no time."""

import torch
from spacy.tokens import Doc

from annotated.data import train_bpe
from annotated.machinery.translator import Translator
from annotated.model import make_model
from benchmarks.heads.gold import read_conllu

# The dog lost its ball, but didn't see the cat. "its" means the dog.
ROWS = """\
1	The	the	DET	DT	_	2	det	_	Entity=(7-animal
2	dog	dog	NOUN	NN	_	3	nsubj	_	Entity=7)
3	lost	lose	VERB	VBD	_	0	root	_	_
4	its	its	PRON	PRP$	_	5	nmod:poss	_	Entity=(8-object(7-animal)
5	ball	ball	NOUN	NN	_	3	obj	_	Entity=8)|SpaceAfter=No
6	,	,	PUNCT	,	_	10	punct	_	_
7	but	but	CCONJ	CC	_	10	cc	_	_
8-9	didn't	_	_	_	_	_	_	_	_
8	did	do	AUX	VBD	_	10	aux	_	_
9	n't	not	PART	RB	_	10	advmod	_	_
10	see	see	VERB	VB	_	3	conj	_	_
11	the	the	DET	DT	_	12	det	_	Entity=(9-animal
12	cat	cat	NOUN	NN	_	10	obj	_	Entity=9)|SpaceAfter=No
13	.	.	PUNCT	.	_	3	punct	_	_"""
TEXT = "The dog lost its ball, but didn't see the cat."


def parsed(rows: str = ROWS) -> Doc:
    """The sentence as spaCy has it."""
    (doc,) = read_conllu(f"# text = {TEXT}\n{rows}\n\n")
    return doc


def small_translator() -> Translator:
    torch.manual_seed(0)
    tokenizer = train_bpe([TEXT], 30)
    size = tokenizer.get_vocab_size()
    return Translator(make_model(size, size, N=2, d_model=16, d_ff=32, h=4).eval(), tokenizer)
