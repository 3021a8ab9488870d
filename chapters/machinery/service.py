"""Sentences that wait are translated together: MODEL=runs/prices uvicorn service:app"""

import asyncio
import os
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Body, FastAPI, HTTPException
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

from annotated import load_pretrained

PIECES, TOGETHER, WAITING, SECONDS = 200, 32, 256, 10.0  # the limits
translator = load_pretrained(os.environ.get("MODEL", "multi30k-en-de"))


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
    app.state.waiting = asyncio.Queue(WAITING)
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
    if (pieces := len(translator.tokenizer.encode(text).ids)) > PIECES:
        raise HTTPException(413, f"expected at most {PIECES} pieces; got {pieces}")
    answer = asyncio.get_running_loop().create_future()
    try:
        app.state.waiting.put_nowait((text, answer))
        return await asyncio.wait_for(answer, SECONDS)
    except asyncio.QueueFull:
        raise HTTPException(503, "too many sentences wait; try again later") from None
    except asyncio.TimeoutError:
        raise HTTPException(504, f"no translation within {SECONDS:g} seconds") from None
