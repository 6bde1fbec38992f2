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
from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, TypedDict, TypeVar
from uuid import UUID, uuid4, uuid5

import msgspec
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from sqlalchemy import select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from ephemera.adapters.langgraph import JobSaver
from ephemera.errors import ConnectionFailed, JobFailed, JobSnoozed
from ephemera.patterns.jobs import Run
from ephemera_services.slides.chart_data import chart_of
from ephemera_services.slides.chat_writer import ModelFailed, ModelRefused
from ephemera_services.slides.deck import MAX_SLIDES, SlideContent
from ephemera_services.slides.job_resources import JobResources
from ephemera_services.slides.keys import DeckScope, Outline
from ephemera_services.slides.library import DocumentSources
from ephemera_services.slides.progress_events import OutlineReady, SlideCompleted, SlideStarted
from ephemera_services.slides.tables import presentations, slides
from ephemera_services.slides.usage_counts import tokens_spent
from ephemera_services.slides.writers import Brief, WrittenSlide

T = TypeVar("T")

_RETRY_INTERVAL = 1.0  # seconds between attempts to settle the usage
_MAX_PATIENCE = timedelta(hours=1)  # with an endpoint that asks to be called later
_EXTRA_STEPS = 10  # of the graph, besides one per slide


class Deck(TypedDict, total=False):
    """The graph's state: plain values, so that any version of the code can read them."""

    title: str
    titles: list[str]
    written: Annotated[int, operator.add]
    """How many slides are written."""


@dataclass(frozen=True)
class GenerationContext:
    """What the nodes of one run share."""

    run: Run
    resources: JobResources
    presentation_id: UUID
    organization_id: str
    period: str
    brief: Brief
    sources: DocumentSources
    document_ids: list[UUID]

    def slide_id(self, number: int) -> str:
        """The id of a slide, the same in each attempt."""
        return str(uuid5(self.presentation_id, str(number)))


async def generate_deck(run: Run, presentation_id: UUID, organization_id: str, period: str) -> int:
    """Generate a presentation, resuming where it stopped; the number of slides."""
    work = await _load_context(run, presentation_id, organization_id, period)
    saver = JobSaver(run)
    graph = _BUILDER.compile(checkpointer=saver)
    first = await saver.input({"written": 0})
    config: Any = {**saver.config, "recursion_limit": MAX_SLIDES + _EXTRA_STEPS}
    state = await graph.ainvoke(first, config, context=work, durability="sync")  # type: ignore[call-overload]
    return int(state["written"])


async def rewrite_slide(
    run: Run, presentation_id: UUID, slide_id: UUID, organization_id: str, reservation_id: str, period: str
) -> None:
    """Write one slide of a presentation again, with the other slides' titles as the outline."""
    work = await _load_context(run, presentation_id, organization_id, period)
    query = select(slides).where(slides.c.presentation_id == presentation_id).order_by(slides.c.number)
    async with run.engine.connect() as sql:
        rows = (await sql.execute(query)).all()
    number = next((at for at, row in enumerate(rows, 1) if row.id == slide_id), None)
    if number is None:
        raise JobFailed("The slide no longer exists.")
    outline = Outline(title=work.brief.topic, slides=[row.title for row in rows])

    async def write() -> WrittenSlide:
        key = run.idempotency_key("slide")
        return await work.resources.writer.slide(work.brief, number, outline, work.sources, key=key)

    made = await _counting_failures(run, "slide:1", run.step("slide:1", write))
    if not (made.bullets or made.columns or made.table):
        raise JobFailed("The documents say nothing under this title, so the slide was not changed.")
    about: dict[str, Any] = {
        "slide_number": number, "slide_id": str(slide_id), "slide_title": made.title,
    }  # fmt: skip
    shown = SlideContent(**{**slide_fields(made), "notes": ""})
    await run.transact(
        "keep:1", store_slide, presentation_id, slide_id, number, made,
        event=lambda _: SlideCompleted(progress_pct=99, slide=shown, chart=chart_of(made), **about),
    )  # fmt: skip
    await run.step("usage", _settle_usage, work, reservation_id, 0)


async def _load_context(
    run: Run, presentation_id: UUID, organization_id: str, period: str
) -> GenerationContext:
    async with run.engine.connect() as sql:
        found = await sql.execute(select(presentations).where(presentations.c.id == presentation_id))
        row = found.one_or_none()
    if row is None:
        raise JobFailed("The presentation no longer exists.")
    brief = Brief(topic=row.topic, audience=row.audience, language=row.language, slides=row.slides_total)
    document_ids = [UUID(document_id) for document_id in row.document_ids]
    resources: JobResources = run.worker_context
    sources = DocumentSources(resources.library, document_ids)
    return GenerationContext(
        run, resources, presentation_id, organization_id, period, brief, sources, document_ids
    )


async def _outline(state: Deck, runtime: Runtime[GenerationContext]) -> Deck:  # noqa: ARG001 - LangGraph names it
    """Titles for all slides, from the cache or the model."""
    work = runtime.context

    async def write() -> Outline:
        return await _cached_outline(work)

    made = work.run.step(
        "outline", write, event=lambda outline: OutlineReady(progress_pct=0, titles=outline.slides)
    )
    outline = await _counting_failures(work.run, "outline", made)
    return {"title": outline.title, "titles": outline.slides[:MAX_SLIDES]}


async def _cached_outline(work: GenerationContext) -> Outline:
    """An outline; it costs no tokens if the organization asked for a similar one before."""
    brief, writer = work.brief, work.resources.writer
    key = work.run.idempotency_key("outline")
    if writer.is_free:
        return await writer.outline(brief, work.sources, key=key)
    scope = DeckScope(
        organization=work.organization_id,
        provider=writer.provider,
        model=writer.model,
        language=brief.language,
        documents=frozenset(map(str, work.document_ids)),
        slides=brief.slides,
        audience=brief.audience,
    )

    async def ask(_: str) -> Outline:
        return await writer.outline(brief, work.sources, key=key)

    answer = await work.resources.outlines.get_or_ask(brief.topic, scope, ask)
    made = answer.value
    return made if answer.origin == "asked" else Outline(title=made.title, slides=made.slides)


async def _slide(state: Deck, runtime: Runtime[GenerationContext]) -> Deck:
    """Write the next slide, and store it: it can be read at once."""
    work, titles = runtime.context, state["titles"]
    number = state["written"] + 1
    slide_id, title = work.slide_id(number), titles[number - 1]
    about: dict[str, Any] = {"slide_number": number, "slide_id": slide_id, "slide_title": title}
    started = SlideStarted(progress_pct=_percent(number - 1, titles), **about)
    await work.run.step(f"start:{number}", _announce, event=started)
    outline = Outline(title=state["title"], slides=titles)

    async def write() -> WrittenSlide:
        key = work.run.idempotency_key(f"slide:{number}")
        return await work.resources.writer.slide(work.brief, number, outline, work.sources, key=key)

    made = await _counting_failures(work.run, f"slide:{number}", work.run.step(f"slide:{number}", write))
    shown = SlideContent(**{**slide_fields(made), "notes": ""})
    await work.run.transact(
        f"keep:{number}", store_slide, work.presentation_id, UUID(slide_id), number, made,
        event=lambda _: SlideCompleted(
            progress_pct=_percent(number, titles), slide=shown, chart=chart_of(made), **about
        ),
    )  # fmt: skip
    return {"written": 1}


def _percent(done: int, titles: list[str]) -> int:
    """Progress after this many slides; the usage is the rest."""
    return done * 99 // len(titles)


def slide_fields(slide: SlideContent) -> dict[str, Any]:
    """The fields of a slide, as they are stored."""
    fields = msgspec.to_builtins(slide)
    return {name: fields[name] for name in SlideContent.__struct_fields__}


async def store_slide(
    sql: AsyncConnection, presentation_id: UUID, slide_id: UUID, number: int, slide: SlideContent
) -> None:
    """Write a slide to SQL, in place of an earlier attempt's."""
    fields = slide_fields(slide)
    row = {"id": slide_id, "presentation_id": presentation_id, "number": number, **fields}
    await sql.execute(
        upsert(slides).values(row).on_conflict_do_update(index_elements=[slides.c.id], set_=fields)
    )


async def _counting_failures(run: Run, name: str, step: Awaitable[T]) -> T:
    """The result of a step that asks a model; what a failed one cost is recorded for the usage.

    If the endpoint says when to come back, the job waits for that long without losing an attempt, unless it
    has been trying for an hour.
    """
    try:
        return await step
    except (ModelFailed, ModelRefused) as failed:
        if failed.tokens:
            await run.step(f"failed:{name}:{uuid4().hex}", _spent, failed.tokens)
        if isinstance(failed, ModelRefused):
            raise
        age = datetime.now(UTC) - run.row.created_at
        if failed.retry_after is None or age > _MAX_PATIENCE:
            raise
        raise JobSnoozed(failed.retry_after) from failed


async def _spent(tokens: int) -> dict[str, int]:
    return {"tokens": tokens}


async def _store(state: Deck, runtime: Runtime[GenerationContext]) -> Deck:
    """Complete the presentation in SQL, and settle its usage."""
    work, count = runtime.context, state["written"]

    async def complete(sql: AsyncConnection) -> int:
        named = update(presentations).where(presentations.c.id == work.presentation_id)
        await sql.execute(named.values(title=state["title"]))
        return count

    await work.run.transact("file", complete)
    await work.run.step("usage", _settle_usage, work, str(work.presentation_id), count)
    return {}


async def _settle_usage(work: GenerationContext, reservation_id: str, slides_written: int) -> bool:
    """Settle the reservation exactly once; while Redis is down the job waits."""
    tokens = await tokens_spent(work.run.engine, work.run.id)
    usage = work.resources.usage
    reserved = usage.reservation(work.organization_id, reservation_id, work.period)
    written = 1 if slides_written else 0  # a slide that is written again is not another one
    cost = work.resources.cost(tokens)
    while True:
        try:
            return await reserved.settle(
                presentations=written, slides=slides_written, tokens=tokens, cost_micros=cost
            )
        except ConnectionFailed:
            await asyncio.sleep(_RETRY_INTERVAL)


async def _announce() -> None:
    """A step that only publishes its event."""


def _next(state: Deck) -> str:
    return "slide" if state["written"] < len(state["titles"]) else "file"


_BUILDER = StateGraph(Deck, context_schema=GenerationContext)
_BUILDER.add_node("outline", _outline)
_BUILDER.add_node("slide", _slide)
_BUILDER.add_node("file", _store)
_BUILDER.add_edge(START, "outline")
_BUILDER.add_conditional_edges("outline", _next, ["slide", "file"])
_BUILDER.add_conditional_edges("slide", _next, ["slide", "file"])
_BUILDER.add_edge("file", END)
