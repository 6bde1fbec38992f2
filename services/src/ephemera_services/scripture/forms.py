"""Request and response models of scripture's routes, except those of the ingest."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import Path, Query
from pydantic import BaseModel, Field, StrictBool

from ephemera_services.runtime import RequestBody
from ephemera_services.scripture.records import PART_NAMES

_ONE_OF = f"({'|'.join(PART_NAMES)})"
_ADDRESS = r"^[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63}){1,4}$"
NO_CONTROL = r"^[^\x00-\x1f\x7f]*$"
PASSAGE = r"^[1-3]?[a-z]{2,6}\.[1-9][0-9]{0,2}\.[1-9][0-9]{0,2}$"
BOOK = r"^[1-3]?[a-z]{2,6}$"
TRANSLATION = r"^[a-z][a-z0-9]{1,11}$"
TOPIC = r"^[a-z0-9][a-z0-9-]{0,59}$"
WORD = r"^[gh][1-9][0-9]{0,4}$"

PassageId = Annotated[str, Field(pattern=PASSAGE, examples=["john.3.16"])]
PassagePath = Annotated[str, Path(pattern=PASSAGE, examples=["john.3.16"])]
BookPath = Annotated[str, Path(pattern=BOOK, examples=["john"])]
ChapterPath = Annotated[int, Path(ge=1, le=150, examples=[3])]
TopicPath = Annotated[str, Path(pattern=TOPIC, examples=["love"])]
WordPath = Annotated[str, Path(pattern=WORD, examples=["g26"])]
Translation = Annotated[str, Field(pattern=TRANSLATION, examples=["web"])]
TranslationQuery = Annotated[str, Query(pattern=TRANSLATION, examples=["web"])]
TranslationPath = Annotated[str, Path(pattern=TRANSLATION, examples=["web"])]
OptionalTranslation = Annotated[str | None, Query(pattern=TRANSLATION, examples=["web"])]
Include = Annotated[
    str | None,
    Query(
        pattern=f"^{_ONE_OF}(,{_ONE_OF}){{0,3}}$",
        description="Parts to include, comma-separated",
        examples=["words,xrefs"],
    ),
]
Question = Annotated[
    str, Field(min_length=3, max_length=500, pattern=NO_CONTROL, examples=["What is said about love?"])
]
SearchQuery = Annotated[
    str, Query(min_length=1, max_length=200, pattern=NO_CONTROL, examples=["light darkness"])
]
BookQuery = Annotated[str, Query(pattern=BOOK, examples=["john"])]
OptionalBook = Annotated[str | None, Query(pattern=BOOK, examples=["john"])]
ChapterQuery = Annotated[int, Query(ge=1, le=150, examples=[3])]
AfterTopic = Annotated[str | None, Query(pattern=TOPIC, description="List topics after this one")]
Limit = Annotated[int, Query(ge=1, le=50, description="How many at most")]
Offset = Annotated[int, Query(ge=0, le=1000, description="How many to skip")]
Plan = Literal["free", "paid", "ai"]
Feature = Literal["witnesses", "words", "xrefs", "commentary", "ai"]


class PassageView(BaseModel):
    """A passage in all translations, with the included parts."""

    id: str
    reference: str
    book_id: str
    chapter: int
    verse: int
    texts: dict[str, str]
    witnesses: list[dict[str, Any]] | None = None
    words: list[dict[str, Any]] | None = None
    xrefs: list[dict[str, Any]] | None = None
    commentary: list[dict[str, Any]] | None = None


class VerseView(BaseModel):
    """A verse of a chapter."""

    passage_id: str
    verse: int
    text: str


class ChapterView(BaseModel):
    """A chapter in one translation."""

    book_id: str
    book: str
    chapter: int
    translation: str
    verses: list[VerseView]


class TopicView(BaseModel):
    """A topic, and the passages about it."""

    id: str
    title: str
    summary: str
    passages: list[str]


class LexiconView(BaseModel):
    """A word of Hebrew or Greek."""

    id: str
    language: str
    lemma: str
    transliteration: str
    gloss: str
    definition: str


class QuotationView(BaseModel):
    """A passage in one translation."""

    id: str
    reference: str
    translation: str
    text: str


class HitView(QuotationView):
    """A passage that a search found, and where its text has words of the search."""

    highlights: Annotated[
        list[tuple[int, int]], Field(description="From a character of the text, to before another")
    ]


class SearchResults(BaseModel):
    """A page of search results, best first."""

    passages: list[HitView]
    total: int
    matched: Annotated[
        Literal["all", "any"], Field(description="Whether they have all words of the search, or some")
    ]
    next: Annotated[int | None, Field(description="The offset of the next page; null after the last")]


class TranslationView(BaseModel):
    """A translation, and the number of its verses."""

    id: str
    name: str
    rights: str
    verses: int


class Translations(BaseModel):
    """All translations."""

    translations: list[TranslationView]


class BookView(BaseModel):
    """A book of a translation: its chapters, with their numbers of verses."""

    id: str
    name: str
    chapters: dict[int, int]


class Books(BaseModel):
    """The books of a translation, in the usual order."""

    translation: str
    books: list[BookView]


class Topics(BaseModel):
    """A page of topics, in the order of their ids."""

    topics: list[TopicView]
    next: Annotated[str | None, Field(description="`after` of the next page; null after the last")]


class AskForm(RequestBody):
    """A question, and the passages it is about."""

    question: Question
    translation: Translation = "web"
    passages: Annotated[
        list[PassageId],
        Field(default_factory=list, max_length=10, description="Passages that the question is about"),
    ]


class AnswerView(BaseModel):
    """An answer, and the passages it is based on."""

    id: str
    answer: str
    passages: list[QuotationView]
    model: str
    how: Literal["exact", "semantic", "asked"]
    similarity: float


class PreferencesForm(RequestBody):
    """Reading preferences."""

    font_size: Annotated[int, Field(ge=8, le=48, strict=True)] = 16
    reading_mode: Literal["day", "night", "sepia"] = "day"
    translation: Translation = "web"
    verse_numbers: StrictBool = True


class Channels(RequestBody):
    """Whether a kind of notification is sent, by channel."""

    mail: StrictBool
    push: StrictBool


class NotificationsForm(RequestBody):
    """What a user is notified of: changes of the account, and new content."""

    account: Channels
    content: Channels


class PushKey(BaseModel):
    """The key that browsers subscribe with."""

    public_key: str


class PushKeys(RequestBody):
    """The keys of a browser, in base64url: a point of P-256, and a secret of 16 bytes."""

    p256dh: Annotated[str, Field(pattern=r"^B[A-Za-z0-9_-]{86}$")]
    auth: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{22}$")]


class PushSubscriptionForm(RequestBody):
    """A subscription as the browser's `PushSubscription.toJSON()` gives it."""

    endpoint: Annotated[
        str,
        Field(
            pattern=r"^https?://[A-Za-z0-9.-]{1,253}(:[0-9]{1,5})?/[\x21-\x7e]*$",
            max_length=1000,
            examples=["https://push.example.com/send/f2a9"],
        ),
    ]
    keys: PushKeys
    expiration_time: Annotated[
        float | None, Field(alias="expirationTime", ge=0, le=2**53, description="Not used")
    ] = None


class PushSubscriptionView(BaseModel):
    """A stored subscription."""

    subscription_id: UUID


class UserForm(RequestBody):
    """A user of the identity service."""

    user_id: UUID
    email: Annotated[str, Field(pattern=_ADDRESS, max_length=254, examples=["ann@example.com"])]
    name: Annotated[str, Field(min_length=1, max_length=100, pattern=NO_CONTROL, examples=["Ann"])]
    plan: Plan = "free"


class UserView(BaseModel):
    """A user."""

    user_id: UUID
    plan: Plan


class PlanForm(RequestBody):
    """A user's new plan."""

    plan: Plan


class FeatureForm(RequestBody):
    """Whether a plan has a feature."""

    allowed: StrictBool


class FeatureView(FeatureForm):
    """A feature of a plan."""

    plan: Plan
    feature: Feature


class PartName(BaseModel):
    """A part of a passage."""

    passage_id: str
    suffix: str


class ChapterName(BaseModel):
    """A chapter in one translation."""

    book_id: str
    chapter: int
    translation: str


class Ingested(BaseModel):
    """A committed ingest that is invalidated in every cache: what it changed."""

    ingest_id: str
    fence: int
    passages: list[str]
    parts: list[PartName]
    chapters: list[ChapterName]
    topics: list[str]
    lexicon: list[str]
