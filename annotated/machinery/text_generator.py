"""Text in, text out: a language model with its tokenizer.

As for a translator, batches affect the speed and never the texts.
"""

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor

from annotated.data import PAD, pad_ids, token_batches
from annotated.language_model import Cache, LanguageModel, draw, generate
from annotated.machinery import checks
from annotated.machinery.checks import check_finite, check_generation, check_prompt, usable_device
from annotated.machinery.errors import InputError, check_whole
from annotated.machinery.files import reading
from annotated.machinery.formats.chat import fill_template

Prompt = str | Sequence[Mapping[str, str]]  # a text, or messages with their roles and contents
Texts = str | Sequence[str]

_BATCH_TOKENS = 1000  # tokens that `score` and `embed` compute together, padding included


@dataclass(frozen=True)
class TextGenerator:
    """A language model with its tokenizer: text in, text out.

    Args:
        model: in evaluation mode.
        tokenizer: None if the folder of the model has none; then it accepts only ids.
        stop: ids that end a text.
        template: the model's own format for conversations, in Jinja, or None.
        symbols: the tokenizer's, by the names that a template uses, such as bos_token.

    >>> generator = load_language_model("HuggingFaceTB/SmolLM2-135M-Instruct")
    >>> generator.generate("The capital of France is", 5, top_k=1)
    >>> generator.generate("What is the capital of France?", chat=True, top_k=1)
    >>> generator.generate(["One, two,", "Red, green,"], 20, stop="\\n")
    >>> generator.perplexity("The capital of France is Paris.")
    """

    model: LanguageModel
    tokenizer: Tokenizer | None
    stop: frozenset[int] = frozenset()
    template: str | None = None
    symbols: Mapping[str, str] = field(default_factory=dict)

    @overload
    def generate(self, prompt: Prompt, max_new_tokens: int = 100, **options: Any) -> str: ...
    @overload
    def generate(
        self, prompt: Sequence[Prompt], max_new_tokens: int = 100, **options: Any
    ) -> list[str]: ...
    def generate(
        self, prompt: Any, max_new_tokens: int = 100, *, batch_size: int = 8, **options: Any
    ) -> str | list[str]:
        """The whole text that `stream` yields, or for several prompts a list, computed in batches.

        Args:
            prompt: as for `stream`, or a list of such prompts; with a seed, each draws from its
                own random numbers: the first from this seed, the next from the seed plus 1, ….
            batch_size: number of prompts that are continued at the same time.
        """
        check_whole("batch_size", batch_size)
        if isinstance(prompt, str | Mapping) or _is_conversation(prompt):
            return "".join(self.stream(prompt, max_new_tokens, **options))
        if not isinstance(prompt, list | tuple):
            raise InputError(f"expected a prompt or a list of them; got {type(prompt).__name__}")
        chat, seed, strings, choices = self._choices(options)
        ids = [self.encode(each, chat) for each in prompt]
        for row in ids:
            check_generation(self.model.config, row, max_new_tokens, seed=seed, **choices)
        texts, order = [""] * len(ids), sorted(range(len(ids)), key=lambda i: -len(ids[i]))

        def cut(i: int, new: list[int]) -> tuple[str, bool]:
            text = self._decode([*ids[i], *new])[len(self._decode(ids[i])) :]
            end = _find(text, strings)
            return text[:end], end is not None

        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            seeds = None if seed is None else [(seed + i) % 2**64 for i in batch]
            ended = lambda row, new, batch=batch: cut(batch[row], new)[1]
            more = max_new_tokens, seeds, ended if strings else None
            found = generate_batch(self.model, [ids[i] for i in batch], *more, **choices)
            for i, new in zip(batch, found, strict=True):
                texts[i], _ = cut(i, new)
        return texts

    def stream(
        self, prompt: Prompt, max_new_tokens: int = 100, *, chat: bool = False, **options: Any
    ) -> Iterator[str]:
        """Continue a text; each part is yielded as soon as no later token can change it.

        Args:
            prompt: the text, or a conversation to answer: a list of messages, each with its role
                and content, such as {"role": "user", "content": "Hello!"}.
            max_new_tokens: maximum number of new tokens.
            chat: treat the text as a user's message and generate the answer.
            options: of `annotated.language_model.generate`: temperature, top_k, top_p, seed, stop.
                Ids in stop replace the model's own ends of a text. A text also ends before the
                first string of stop; one string may stand alone.

        Raises: InputError for a model without a tokenizer or template, for a prompt without
            tokens, and as `generate`.
        """
        chat, seed, strings, choices = self._choices({"chat": chat, **options})
        ids = self.encode(prompt, chat)
        text = self._decode(ids)
        written, is_open = len(text), False
        for token in generate(self.model, ids, max_new_tokens, seed=seed, **choices):
            ids = [*ids, token]  # decoding all of them takes less time than a step of the model
            text, before = self._decode(ids), text
            if text != before:  # a byte may be the beginning of a character
                piece = self.tokenizer.id_to_token(token) or ""  # type: ignore[union-attr]
                is_open = text.endswith("\ufffd") or bool(re.fullmatch("<0x[0-9A-F]{2}>", piece))
            new = text[written:]
            if (end := _find(new, strings)) is not None:
                text = text[: written + end]
                break
            begun = (n for stop in strings for n in range(1, len(stop)) if new.endswith(stop[:n]))
            ready = len(text) - max(begun, default=0)  # a string of stop may have begun
            if ready > written and not is_open:
                yield text[written:ready]
                written = ready
        if len(text) > written:
            yield text[written:]

    def _choices(self, options: dict[str, Any]) -> tuple[Any, Any, list[str], dict[str, Any]]:
        """chat, seed, the strings of stop, and the other options of `annotated.generate`."""
        checks.check_names(options, generate, "chat")
        choices = {"temperature": 1.0, "top_k": None, "top_p": 1.0, "stop": self.stop, **options}
        chat, seed, stop = choices.pop("chat", False), choices.pop("seed", None), choices["stop"]
        stop = [stop] if isinstance(stop, str) else stop
        if not isinstance(stop, list | tuple | set | frozenset):
            return chat, seed, [], choices  # which `generate` refuses
        strings = [each for each in stop if isinstance(each, str)]
        if "" in strings:
            raise InputError("expected strings of stop that are not empty; got ''")
        ids = [each for each in stop if not isinstance(each, str)]
        return chat, seed, strings, choices | {"stop": ids if ids or not strings else self.stop}

    def score(self, text: Texts) -> list[Any]:
        """The log-probability of each token of a text but the first, given all before it.

        Args: text: a text of at least two tokens, or a list of such texts.

        Returns: a list of numbers, or for a list of texts a list of these lists.
        """
        found: dict[int, list[float]] = {}
        for i, ids, out in self._outputs(text, least=2):
            logits = self.model.generator.logits(out[:-1]).float()
            check_finite(logits.amax(dim=-1))
            found[i] = (-F.cross_entropy(logits, ids[1:], reduction="none")).tolist()
        return found[0] if isinstance(text, str) else [found[i] for i in range(len(found))]

    def perplexity(self, text: Texts) -> float:
        """Perplexity per token of a text, or of all texts of a list together; see `score`."""
        found = self.score([text] if isinstance(text, str) else text)
        numbers = [number for numbers in found for number in numbers]
        if not numbers:
            raise InputError("expected at least one text; got none")
        return math.exp(-sum(numbers) / len(numbers))

    def embed(self, text: Texts) -> Tensor:
        """One vector per text, (d_model,) or (texts, d_model): its mean output, not yet logits.

        Args: text: a text or a list of texts.
        """
        found = {i: out.float().mean(dim=0) for i, _, out in self._outputs(text, least=1)}
        rows = [found[i] for i in range(len(found))] or [torch.zeros(0)]
        return rows[0] if isinstance(text, str) else torch.stack(rows)

    @torch.no_grad()
    def _outputs(self, text: Texts, least: int) -> Iterator[tuple[int, Tensor, Tensor]]:
        """For each text, in any order: its index, ids (len,) and outputs (len, d_model)."""
        texts = [text] if isinstance(text, str) else list(checks.each_text(text, bare=False))
        rows = [self.encode(each) for each in texts]
        for number, row in enumerate(rows, start=1):
            check_prompt(self.model.config, row)
            if len(row) < least:
                raise InputError(f"expected text {number} of at least {least} tokens; got one")
        lengths, most = [[len(row)] * 2 for row in rows], max([_BATCH_TOKENS, *map(len, rows)])
        for batch in token_batches(lengths, most, most):
            # Padding comes last, where no token of the text attends to it.
            ids = pad_ids([rows[i] for i in batch]).to(self.model.embed.lut.weight.device)
            for i, one, out in zip(batch.tolist(), ids, self.model.decode(ids), strict=True):
                yield i, one[: len(rows[i])], out[: len(rows[i])]

    def encode(self, text: Prompt, chat: bool = False) -> list[int]:
        """Ids of a text, or of a conversation: messages, or a text as a user's only message.

        As in transformers, a text that contains one of the model's symbols, such as `<|im_end|>`,
        yields the id of this symbol, also in a user's message.

        Raises: InputError as `stream` does.
        """
        if isinstance(text, str):
            messages: Sequence[Mapping[str, str]] = [{"role": "user", "content": text}]
        elif _is_conversation(text):
            messages, chat = text, True
        else:
            wanted = "expected a text as a string, or a list of messages"
            raise InputError(f"{wanted}; got {type(text).__name__}")
        for message in messages:
            known = {"role", "content"} <= message.keys()
            if not known or not all(isinstance(value, str) for value in message.values()):
                wanted = "expected a message with role and content, all strings"
                raise InputError(f"{wanted}; got {message!r:.80}")
        if self.tokenizer is None:
            raise InputError("expected a model with tokenizer.json; this one accepts only ids")
        if chat:
            if self.template is None:
                wanted = "a model with a chat template"
                raise InputError(f"expected {wanted}; this one only continues texts")
            with reading("the chat template", "a template that Jinja can fill in"):
                text = fill_template(self.template, messages, self.symbols)
        text = checks.without_surrogates(str(text))
        with reading("tokenizer.json", "a tokenizer that can split this text"):
            return self.tokenizer.encode(text, add_special_tokens=not chat).ids

    def to(self, device: torch.device | str) -> "TextGenerator":
        """Move the model to a device, such as "cuda"; returns this generator.

        Raises: InputError unless torch can compute there.
        """
        self.model.to(usable_device(device))
        return self

    def _decode(self, ids: list[int]) -> str:
        return self.tokenizer.decode(ids)  # type: ignore[union-attr]  # otherwise `encode` raises


def _is_conversation(prompt: object) -> bool:
    """Whether a prompt is a list of messages."""
    is_list = isinstance(prompt, list | tuple) and len(prompt) > 0
    return is_list and all(isinstance(each, Mapping) for each in prompt)  # type: ignore[attr-defined]


def _find(text: str, strings: Sequence[str]) -> int | None:
    """The place of the first of some strings in a text."""
    return min((i for each in strings if (i := text.find(each)) >= 0), default=None)


@torch.inference_mode()
def generate_batch(
    model: LanguageModel,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int = 100,
    seeds: Sequence[int] | None = None,
    ended: Callable[[int, list[int]], bool] | None = None,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float = 1.0,
    stop: Collection[int] = (),
) -> list[list[int]]:
    """The new ids of `generate` for several prompts, which are padded on the left.

    Args:
        seeds: one per prompt.   ended: whether the text of a prompt, given by its index and its
            new ids, is complete; it is asked after each id.
    """
    device = model.embed.lut.weight.device
    randoms = [torch.Generator(device) for _ in prompts]
    for i, random in enumerate(randoms):
        random.seed() if seeds is None else random.manual_seed(seeds[i])
    longest = max(map(len, prompts))
    new = ids = torch.tensor([[PAD] * (longest - len(p)) + [*p] for p in prompts], device=device)
    fill = torch.tensor([longest - len(p) for p in prompts], device=device)
    padding = fill if fill.any() else None
    cache: Cache | None = {} if model.has_step else None
    found: list[list[int]] = [[] for _ in prompts]
    rows = [*range(len(prompts))]  # the texts that are not complete
    for _ in range(max_new_tokens):
        out = model.decode(ids if cache is None else new, cache, padding)[:, -1]
        going = []
        for place, (i, logits) in enumerate(zip(rows, model.generator.logits(out), strict=True)):
            token = draw(logits, temperature, top_k, top_p, randoms[i])
            if token in stop:
                continue
            found[i].append(token)
            if ended is None or not ended(i, found[i]):
                going.append(place)
        if not going:
            break
        if len(going) < len(rows):
            rows, ids = [rows[place] for place in going], ids[going]
            padding = None if padding is None else padding[going]
            for state in (cache or {}).values():
                state[:] = [part[going] for part in state]
        new = torch.tensor([found[i][-1:] for i in rows], device=device)
        ids = torch.cat([ids, new], dim=1)
    return found
