"""A service that translates the sentences that wait together."""

import asyncio
import os
import time
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Body, FastAPI, HTTPException
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

from annotated import load_pretrained

PIECES, TOGETHER, SECONDS = 200, 32, 10.0  # the limits
translator = load_pretrained(os.environ.get("MODEL", "multi30k-en-de"))


def count_pieces(text: str) -> int:
    return len(translator.tokenizer.encode(text).ids)


async def translate_together(waiting: asyncio.Queue) -> None:
    while True:
        batch = [await waiting.get()]
        while len(batch) < TOGETHER and not waiting.empty():
            batch.append(waiting.get_nowait())
        batch = [each for each in batch if not each[1].done()]  # those that are not late
        try:
            found = await asyncio.to_thread(translator.translate, [text for text, _ in batch])
        except Exception as error:  # concerns this batch; the service continues
            found = [error] * len(batch)
        for (_, answer), result in zip(batch, found, strict=True):
            if not answer.done():
                failed = isinstance(result, Exception)
                (answer.set_exception if failed else answer.set_result)(result)


@asynccontextmanager
async def running(app: FastAPI):
    """As many pieces may wait as are translated in SECONDS; a first batch tells how many."""
    sentence = "A man in a red shirt is riding a bicycle down the street."
    began = time.perf_counter()
    translator.translate([sentence] * TOGETHER)
    rate = TOGETHER * count_pieces(sentence) / (time.perf_counter() - began)
    app.state.most, app.state.pieces, app.state.waiting = SECONDS * rate, 0, asyncio.Queue()
    worker = asyncio.create_task(translate_together(app.state.waiting))
    yield
    worker.cancel()


app = FastAPI(lifespan=running)


@app.exception_handler(RequestValidationError)
async def refuse(request, error: RequestValidationError):
    """Without the text, which may be long, or half a pair of surrogates, which is no UTF-8."""
    kept = "type", "loc", "msg"
    return JSONResponse({"detail": [{k: e[k] for k in kept} for e in error.errors()]}, 422)


@app.post("/translate")
async def translate(text: Annotated[str, Body(embed=True, max_length=20 * PIECES)]) -> str:
    if (pieces := count_pieces(text)) > PIECES:
        raise HTTPException(413, f"expected at most {PIECES} pieces; got {pieces}")
    if app.state.pieces + pieces > app.state.most:
        raise HTTPException(503, "too many sentences wait; try again later")
    answer = asyncio.get_running_loop().create_future()
    app.state.pieces += pieces
    try:
        app.state.waiting.put_nowait((text, answer))
        return await asyncio.wait_for(answer, SECONDS)
    except asyncio.TimeoutError:
        raise HTTPException(504, f"no translation within {SECONDS:g} seconds") from None
    finally:
        app.state.pieces -= pieces


@app.get("/health")
def health() -> str:
    return "ready"
