"""A semantic cache of a model's answers: by exact match, and if you choose an embedder by similar prompts.

    OUTLINES = SemanticCache(
        catalogue, "semantic_cache:{hash}", Outline, scope=Scope, lifetime=fixed(hours=24),
        purpose="Outlines as the model wrote them",
    )
    backend = SemanticBackend(embedder=MiniLM(), vectors=Qdrant("http://qdrant:6333"))
    async with connect(url, catalogue, resources={OUTLINES: backend}) as store:
        answer = await store[OUTLINES].get_or_ask(prompt, scope, ask_the_model)

*Keys.* An answer is a value of a `cache`, with its companions `loading:`, `loaded:` and `tags:`. `hits:...`
counts its uses; `tally:...:{day}` those of all answers; `swept:...` says that the vectors were swept lately.
An answer, its load token and its counts share a cluster slot. Vectors are in Qdrant, in one collection per
embedding model, and contain no answer.

*Lifetimes.* Answers and counts live as declared, a load token for its lease, the tally for 90 days. A vector
has no lifetime: without its answer it is an orphan, removed by the next search that finds it, and by a sweep.

*Atomicity.* Claiming, storing, invalidating and removing an answer are one script each; a vector is deleted
only if it is the one that was read. An answer that was asked for before `delete`, `report_bad_hit` or
`invalidate_source` is never returned to a caller that comes after it, by exact match or as a neighbour.

*Similar matching* is off until a `SemanticBackend` names an embedder. A similar prompt's answer is returned
only if the guard finds no difference between the two prompts in negations, opposites, numbers, units, dates,
names, symbols, code and quoted text, and if the verifier, where there is one, agrees. The guard is English.

*When Redis is down* or hangs, the model is asked, once for all callers of a process with the same prompt, at
most `ModelCalls.max_concurrent` at a time. Without Qdrant or the embedder, exact match alone works, and
there is no search for five seconds. An evicted answer is asked for again, and its vector is removed. An
evicted marker of an invalidated source invalidates nothing: see `cache`.
"""

from ephemera.patterns.semantic_cache._answers import Hits, Scope, Shadow, StoredAnswer, Tally
from ephemera.patterns.semantic_cache._declaration import (
    MatchPolicy,
    ModelCalls,
    SemanticBackend,
    SemanticCache,
)
from ephemera.patterns.semantic_cache._guard import prompt_difference
from ephemera.patterns.semantic_cache._neighbours import Neighbour, SweepReport
from ephemera.patterns.semantic_cache._runtime import Answer, BoundSemanticCache
from ephemera.patterns.semantic_cache._vector_stores import Point, PointPage, Qdrant, ScoredPoint, VectorStore

__all__ = [
    "Answer",
    "BoundSemanticCache",
    "Hits",
    "MatchPolicy",
    "ModelCalls",
    "Neighbour",
    "Point",
    "PointPage",
    "Qdrant",
    "Scope",
    "ScoredPoint",
    "SemanticBackend",
    "SemanticCache",
    "Shadow",
    "StoredAnswer",
    "SweepReport",
    "Tally",
    "VectorStore",
    "prompt_difference",
]
