"""A cache of a model's answers: by exact match first, then to prompts that mean the same.

    OUTLINES = SemanticCache(
        catalogue, "semantic_cache:{hash}", Outline, scope=Scope, lifetime=fixed(hours=24),
        purpose="Outlines as the model wrote them",
    )
    outlines = store[OUTLINES.equipped(embedder=MiniLM(), vectors=Qdrant("http://qdrant:6333"))]
    answer = await outlines.get_or_ask(prompt, scope, ask_the_model)

Keys: the answer, a value, by a `cache` with its companions `loading:`, `loaded:` and `tags:`; `hits:...`, its
counts; `tally:...:{day}`, those of all answers; `swept:...`, whose turn it was to sweep. Answer, load and
counts share a cluster slot. Vectors are in Qdrant, in a collection for each embedding model, and hold no
answer.
Lifetimes: answers and counts as declared, a load its lease, the tally 90 days. A vector has none of its own:
without its answer it is an orphan, buried by whoever comes near it, and by a sweep.
Atomic: claiming, storing, ending and burying an answer are one script each; a vector goes only if it is the
one that was seen. An answer that was asked for before `delete`, `report_bad_hit` or `end_source` is never
given to who comes after it, by exact match or as a neighbour.
Down or hung Redis: the model is asked, once for all callers of a process with the same prompt, `most_asks` at
a time. Without Qdrant or the embedder: exact match alone, and no search for five seconds. Evicting: an
evicted answer is asked for again, and its vector is buried. An evicted marker of an ended source ends nothing
any more: see `cache`.
"""

from ephemera.patterns.semantic_cache._declaration import Equipped, SemanticCache
from ephemera.patterns.semantic_cache._neighbours import Neighbour
from ephemera.patterns.semantic_cache._qdrant import Qdrant
from ephemera.patterns.semantic_cache._runtime import Answer, BoundSemanticCache
from ephemera.patterns.semantic_cache._scope import Scope
from ephemera.patterns.semantic_cache._shadow import Shadow
from ephemera.patterns.semantic_cache._sweeper import Swept
from ephemera.patterns.semantic_cache._tally import Hits, Tally
from ephemera.patterns.semantic_cache._vectors import Near, Page, Point, Vectors

__all__ = [
    "Answer",
    "BoundSemanticCache",
    "Equipped",
    "Hits",
    "Near",
    "Neighbour",
    "Page",
    "Point",
    "Qdrant",
    "Scope",
    "SemanticCache",
    "Shadow",
    "Swept",
    "Tally",
    "Vectors",
]
