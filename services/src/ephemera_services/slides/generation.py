"""Generating a presentation: a LangGraph graph of outline, slides and storing.

    outline --> slide --> slide --> ... --> store

Work that must not be repeated is a step of the job, which SQL records: the model is asked once for the
outline (through the semantic cache) and once for each slide, even if workers die. The graph's own state is
saved by LangGraph's checkpointer in `gen_checkpoint:{job_id}`, fenced. If it is lost with Redis, the graph
restarts and its steps return their results from SQL.
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
from ephemera_services.slides.job_resources import JobResources
from ephemera_services.slides.keys import DeckScope, Outline
from ephemera_services.slides.progress_events import OutlineReady, SlideCompleted, SlideStarted
from ephemera_services.slides.tables import presentations, slides
from ephemera_services.slides.writers import Brief, SlideText

_PASSAGES_PER_SLIDE = 4
_RETRY_INTERVAL = 1.0  # seconds between attempts to settle the usage
_EXTRA_STEPS = 10  # of the graph, besides one per slide


class Deck(TypedDict, total=False):
    """The graph's state: plain values, so that any version of the code can read them."""

    title: str
    titles: list[str]
    written: Annotated[list[dict[str, Any]], operator.add]
    tokens: Annotated[int, operator.add]


@dataclass(frozen=True)
class GenerationContext:
    """What the nodes of one run share."""

    run: Run
    resources: JobResources
    presentation_id: UUID
    organization_id: str
    period: str
    brief: Brief
    document_ids: list[UUID]

    def slide_id(self, number: int) -> str:
        """The id of a slide, the same in each attempt."""
        return str(uuid5(self.presentation_id, str(number)))

    def percent(self, slides_done: int) -> int:
        """Progress after this many slides; storing them is the rest."""
        return slides_done * 99 // self.brief.slides


async def generate_deck(run: Run, presentation_id: UUID, organization_id: str, period: str) -> int:
    """Generate a presentation, resuming where it stopped; the number of slides."""
    work = await _load_context(run, presentation_id, organization_id, period)
    saver = JobSaver(run)
    graph = _BUILDER.compile(checkpointer=saver)
    first = await saver.input({"written": [], "tokens": 0})
    config: Any = {**saver.config, "recursion_limit": work.brief.slides + _EXTRA_STEPS}
    state = await graph.ainvoke(first, config, context=work, durability="sync")  # type: ignore[call-overload]
    return len(state["written"])


async def _load_context(
    run: Run, presentation_id: UUID, organization_id: str, period: str
) -> GenerationContext:
    async with run.engine.connect() as sql:
        found = await sql.execute(select(presentations).where(presentations.c.id == presentation_id))
        row = found.one_or_none()
    if row is None:
        raise JobFailed("The presentation no longer exists.")
    brief = Brief(topic=row.topic, audience=row.audience, language=row.language, slides=row.slides_total)
    sources = [UUID(document_id) for document_id in row.document_ids]
    return GenerationContext(
        run, run.worker_context, presentation_id, organization_id, period, brief, sources
    )


async def _outline(state: Deck, runtime: Runtime[GenerationContext]) -> Deck:  # noqa: ARG001 - LangGraph names it
    """Titles for all slides, from the cache or the model."""
    work = runtime.context

    async def write() -> Outline:
        return await _cached_outline(work)

    outline = await work.run.step(
        "outline", write, event=lambda outline: OutlineReady(progress_pct=0, titles=outline.slides)
    )
    return {"title": outline.title, "titles": outline.slides, "tokens": outline.tokens}


async def _cached_outline(work: GenerationContext) -> Outline:
    """An outline; it costs no tokens if the organization asked for a similar one before."""
    brief, writer = work.brief, work.resources.writer
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
        passages = await work.resources.library.passages(work.document_ids, prompt, brief.slides)
        return await writer.outline(brief, passages, key=work.run.idempotency_key("outline"))

    answer = await work.resources.outlines.get_or_ask(brief.topic, scope, ask)
    made = answer.value
    return made if answer.origin == "asked" else Outline(title=made.title, slides=made.slides)


async def _slide(state: Deck, runtime: Runtime[GenerationContext]) -> Deck:
    """Write the next slide."""
    work = runtime.context
    number = len(state["written"]) + 1
    title = state["titles"][number - 1]
    about: dict[str, Any] = {"slide_number": number, "slide_id": work.slide_id(number), "slide_title": title}
    started = SlideStarted(progress_pct=work.percent(number - 1), **about)
    await work.run.step(f"start:{number}", _announce, event=started)

    async def write() -> SlideText:
        library, writer = work.resources.library, work.resources.writer
        passages = await library.passages(
            work.document_ids, f"{title} {work.brief.topic}", _PASSAGES_PER_SLIDE
        )
        key = work.run.idempotency_key(f"slide:{number}")
        return await writer.slide(work.brief, number, title, passages, key=key)

    completed = SlideCompleted(progress_pct=work.percent(number), **about)
    made = await work.run.step(f"slide:{number}", write, event=completed)
    content = {
        "title": made.title,
        "bullets": made.bullets,
        "notes": made.notes,
        "sources": made.sources,
        "number": number,
    }
    return {"written": [content], "tokens": made.tokens}


async def _store(state: Deck, runtime: Runtime[GenerationContext]) -> Deck:
    """Write the presentation to SQL, and settle its usage."""
    work = runtime.context
    rows = [
        {**content, "id": UUID(work.slide_id(content["number"])), "presentation_id": work.presentation_id}
        for content in state["written"]
    ]

    async def insert_slides(sql: AsyncConnection) -> int:
        await sql.execute(delete(slides).where(slides.c.presentation_id == work.presentation_id))
        await sql.execute(insert(slides), rows)
        named = update(presentations).where(presentations.c.id == work.presentation_id)
        await sql.execute(named.values(title=state["title"]))
        return len(rows)

    await work.run.transact("file", insert_slides)
    await work.run.step("usage", _settle_usage, work, len(rows), state["tokens"])
    return {}


async def _settle_usage(work: GenerationContext, slides_written: int, tokens: int) -> bool:
    """Settle the reservation exactly once; while Redis is down the job waits."""
    usage = work.resources.usage
    reserved = usage.reservation(work.organization_id, str(work.presentation_id), work.period)
    cost = work.resources.cost(tokens)
    while True:
        try:
            return await reserved.settle(
                presentations=1, slides=slides_written, tokens=tokens, cost_micros=cost
            )
        except ConnectionFailed:
            await asyncio.sleep(_RETRY_INTERVAL)


async def _announce() -> None:
    """A step that only publishes its event."""


def _next(state: Deck) -> str:
    return "slide" if len(state["written"]) < len(state["titles"]) else "file"


_BUILDER = StateGraph(Deck, context_schema=GenerationContext)
_BUILDER.add_node("outline", _outline)
_BUILDER.add_node("slide", _slide)
_BUILDER.add_node("file", _store)
_BUILDER.add_edge(START, "outline")
_BUILDER.add_conditional_edges("outline", _next, ["slide", "file"])
_BUILDER.add_conditional_edges("slide", _next, ["slide", "file"])
_BUILDER.add_edge("file", END)
