"""Writing a presentation: a graph of outline, slides and filing, whose state is in the job's checkpoint.

    outline --> slide --> slide --> ... --> file

What must not be done twice is a step of the job, and SQL remembers it: the model is asked once for the
outline (through the semantic cache) and once for each slide, whoever dies meanwhile. The graph's own state is
saved by LangGraph's checkpointer in `gen_checkpoint:{job_id}`, fenced; lost with Redis, the graph begins anew
and its steps come from SQL.
"""

from __future__ import annotations

import asyncio
import operator
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict
from uuid import UUID, uuid5

from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from sqlalchemy import delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from ephemera.errors import ConnectionFailed, JobFailed
from ephemera.patterns.jobs import Run
from ephemera.patterns.langgraph_checkpoints import JobSaver
from ephemera_services.slides.equipment import Equipment
from ephemera_services.slides.keys import DeckScope, Outline
from ephemera_services.slides.progress_events import OutlineReady, SlideCompleted, SlideStarted
from ephemera_services.slides.tables import presentations, slides
from ephemera_services.slides.writer import Brief, SlideText

_PASSAGES = 4  # that a slide is written from
_PAUSE = 1.0  # seconds between two attempts to count what was used
_MORE_STEPS = 10  # of the graph, besides one for each slide


class Deck(TypedDict, total=False):
    """The graph's state: plain values, so that any version of the program can read them."""

    title: str
    titles: list[str]
    written: Annotated[list[dict[str, Any]], operator.add]
    tokens: Annotated[int, operator.add]


@dataclass(frozen=True)
class Commission:
    """What the nodes of one run share."""

    run: Run
    equipment: Equipment
    presentation_id: UUID
    organization_id: str
    period: str
    brief: Brief
    document_ids: list[UUID]

    def slide_id(self, number: int) -> str:
        """The id of a slide, the same in each attempt."""
        return str(uuid5(self.presentation_id, str(number)))

    def percent(self, slides_done: int) -> int:
        """How far it is when so many slides are written; filing them is the rest."""
        return slides_done * 99 // self.brief.slides


async def generate_deck(run: Run, presentation_id: UUID, organization_id: str, period: str) -> int:
    """Write a presentation, from where it was left; how many slides it has."""
    work = await _prepared(run, presentation_id, organization_id, period)
    saver = JobSaver(run)
    graph = _BUILDER.compile(checkpointer=saver)
    first = await saver.input({"written": [], "tokens": 0})
    config: Any = {**saver.config, "recursion_limit": work.brief.slides + _MORE_STEPS}
    state = await graph.ainvoke(first, config, context=work, durability="sync")  # type: ignore[call-overload]
    return len(state["written"])


async def _prepared(run: Run, presentation_id: UUID, organization_id: str, period: str) -> Commission:
    async with run.engine.connect() as sql:
        found = await sql.execute(select(presentations).where(presentations.c.id == presentation_id))
        row = found.one_or_none()
    if row is None:
        raise JobFailed("The presentation is not there any more.")
    brief = Brief(topic=row.topic, audience=row.audience, language=row.language, slides=row.slides_total)
    sources = [UUID(document_id) for document_id in row.document_ids]
    return Commission(run, run.worker_context, presentation_id, organization_id, period, brief, sources)


async def _outline(state: Deck, runtime: Runtime[Commission]) -> Deck:  # noqa: ARG001 - LangGraph names it
    """Titles for all slides, from the cache or the model."""
    work = runtime.context

    async def written() -> Outline:
        return await _cached_outline(work)

    outline = await work.run.step(
        "outline", written, event=lambda made: OutlineReady(progress_pct=0, titles=made.slides)
    )
    return {"title": outline.title, "titles": outline.slides, "tokens": outline.tokens}


async def _cached_outline(work: Commission) -> Outline:
    """An outline; it cost nothing if somebody of the organization had asked for the like."""
    brief, writer = work.brief, work.equipment.writer
    scope = DeckScope(
        organization=work.organization_id,
        provider=writer.provider,
        model=writer.model,
        language=brief.language,
        documents=frozenset(map(str, work.document_ids)),
        slides=brief.slides,
        audience=brief.audience,
    )

    async def ask(prompt: str) -> Outline:
        passages = await work.equipment.library.passages(work.document_ids, prompt, brief.slides)
        return await writer.outline(brief, passages, key=work.run.idempotency_key("outline"))

    answer = await work.equipment.outlines.get_or_ask(brief.topic, scope, ask)
    made = answer.value
    return made if answer.origin == "asked" else Outline(title=made.title, slides=made.slides)


async def _slide(state: Deck, runtime: Runtime[Commission]) -> Deck:
    """One more slide."""
    work = runtime.context
    number = len(state["written"]) + 1
    title = state["titles"][number - 1]
    about: dict[str, Any] = {"slide_number": number, "slide_id": work.slide_id(number), "slide_title": title}
    started = SlideStarted(progress_pct=work.percent(number - 1), **about)
    await work.run.step(f"start:{number}", _nothing, event=started)

    async def written() -> SlideText:
        library, writer = work.equipment.library, work.equipment.writer
        passages = await library.passages(work.document_ids, f"{title} {work.brief.topic}", _PASSAGES)
        key = work.run.idempotency_key(f"slide:{number}")
        return await writer.slide(work.brief, number, title, passages, key=key)

    completed = SlideCompleted(progress_pct=work.percent(number), **about)
    made = await work.run.step(f"slide:{number}", written, event=completed)
    content = {
        "title": made.title,
        "bullets": made.bullets,
        "notes": made.notes,
        "sources": made.sources,
        "number": number,
    }
    return {"written": [content], "tokens": made.tokens}


async def _file(state: Deck, runtime: Runtime[Commission]) -> Deck:
    """Write the presentation to SQL, and count what it took."""
    work = runtime.context
    rows = [
        {**content, "id": UUID(work.slide_id(content["number"])), "presentation_id": work.presentation_id}
        for content in state["written"]
    ]

    async def filed(sql: AsyncConnection) -> int:
        await sql.execute(delete(slides).where(slides.c.presentation_id == work.presentation_id))
        await sql.execute(insert(slides), rows)
        named = update(presentations).where(presentations.c.id == work.presentation_id)
        await sql.execute(named.values(title=state["title"]))
        return len(rows)

    await work.run.transact("file", filed)
    await work.run.step("usage", _counted, work, len(rows), state["tokens"])
    return {}


async def _counted(work: Commission, slides_written: int, tokens: int) -> bool:
    """Settle what was reserved, once; while Redis is away the job waits for it."""
    usage = work.equipment.usage
    reserved = usage.reservation(work.organization_id, str(work.presentation_id), work.period)
    cost = work.equipment.cost(tokens)
    while True:
        try:
            return await reserved.settle(
                presentations=1, slides=slides_written, tokens=tokens, cost_micros=cost
            )
        except ConnectionFailed:
            await asyncio.sleep(_PAUSE)


async def _nothing() -> None:
    """A step that is only told of."""


def _next(state: Deck) -> str:
    return "slide" if len(state["written"]) < len(state["titles"]) else "file"


_BUILDER = StateGraph(Deck, context_schema=Commission)
_BUILDER.add_node("outline", _outline)
_BUILDER.add_node("slide", _slide)
_BUILDER.add_node("file", _file)
_BUILDER.add_edge(START, "outline")
_BUILDER.add_conditional_edges("outline", _next, ["slide", "file"])
_BUILDER.add_conditional_edges("slide", _next, ["slide", "file"])
_BUILDER.add_edge("file", END)
