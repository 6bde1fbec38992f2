"""Libraries of web services: sessions, caches, limits, locks, channels, and those of language models."""

from ephemera.operations.libraries._signature import KeySignature as Keys
from ephemera.operations.libraries._signature import Library

_CACHE_PAGE, _SESSIONS_PAGE = "patterns/cache.md", "patterns/sessions.md"
_PICKLED = "values are pickled by default: anyone who can write here can then run code in the service"
_PICKLE = r"^\x80[\x02-\x05]"
_HOLDER = r"^([0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$"
_DOGPILE = r'^\{("ct": [0-9.]+|"v": [0-9]+), [^}]*\}\|'
_REQUEST = r"^[^ ]+:/[^ ]*:[0-9]+:[0-9]+:[0-9a-f]+:[0-9]+$"
_SESSION_LOSS = "a server that evicts signs people out: keep sessions on one that does not"

WEB_LIBRARIES: tuple[Library, ...] = (
    Library(
        "Django sessions",
        (
            Keys(
                "*:#:django.contrib.sessions.cache* :#:django.contrib.sessions.cache*",
                "string",
                "queue",
                "Sessions; the name is the id in the cookie",
                sensitive=True,
            ),
        ),
        (
            "the name of the key is the cookie: anyone who can list names can sign in as any user",
            _PICKLED,
            _SESSION_LOSS,
        ),
        "set SESSION_ENGINE = 'ephemera.adapters.django', which stores a digest of the id",
        "adapters/django.md",
    ),
    Library(
        "Django cache",
        (
            Keys(":#:views.decorators.cache.* :#:template.cache.*", "string", "cache", "Pages and fragments"),
            Keys(
                "*:#:views.decorators.cache.* *:#:template.cache.*", "string", "cache", "Pages and fragments"
            ),
            Keys(":#:*", "string", "cache", "Cached values, by version and key"),
            Keys(
                "*:1:*",
                "string",
                "cache",
                "Cached values, by KEY_PREFIX, version and key",
                content=_PICKLE,
                uniform=True,
            ),
        ),
        (_PICKLED, "`timeout=None` writes keys that never end"),
        "set BACKEND = 'ephemera.adapters.django.RedisCache', which stores JSON and shares one connection",
        "adapters/django.md",
    ),
    Library(
        "starsessions",
        (Keys("starsessions.*", "string", "queue", "Sessions by id", sensitive=True),),
        ("the name of the key is the cookie", _SESSION_LOSS),
        "declare Sessions with the fields you keep",
        _SESSIONS_PAGE,
    ),
    Library(
        "Flask-Session",
        (Keys("session:*", "string", "queue", "Sessions by id", sensitive=True, content="_permanent"),),
        ("the name of the key is the cookie", "sessions stay for 31 days unless configured", _SESSION_LOSS),
        "use the Flask adapter's sessions",
        "adapters/flask.md",
    ),
    Library(
        "Flask-Caching",
        (Keys("flask_cache_*", "string", "cache", "Cached views and functions"),),
        (_PICKLED,),
        "set CACHE_TYPE = 'ephemera.adapters.flask_caching.EphemeraCache', which stores JSON",
        "adapters/flask_caching.md",
    ),
    Library(
        "limits",
        (
            Keys(
                "LIMITS:*", "string list", "cache", "Windows of rate limits (limits, Flask-Limiter, slowapi)"
            ),
            Keys("LIMITER/* LIMITER:*", "string list", "cache", "Windows of rate limits, older versions"),
        ),
        ("limits per address grow with the number of addresses",),
        "change the scheme of the storage to `ephemera://`: old and new processes count together",
        "adapters/limits.md",
    ),
    Library(
        "fastapi-limiter",
        (
            Keys("fastapi-limiter:*", "string", "cache", "Windows of rate limits, before 0.2"),
            Keys("*", "zset", "cache", "Requests in a window", content=_REQUEST),
        ),
        (),
        "replace the dependency with RateLimits",
        "migration/fastapi-limiter.md",
    ),
    Library(
        "fastapi-cache",
        (Keys("fastapi-cache:*", "string", "cache", "Cached responses"),),
        ("many callers compute a missing value at once",),
        "replace the decorator with Cache.cached",
        "migration/fastapi-cache.md",
    ),
    Library(
        "cashews",
        (Keys("_tag:*", "set", "cache", "Keys by tag"),),
        ("values are pickled unless configured otherwise",),
        "move one cached function at a time",
        "migration/cashews.md",
    ),
    Library(
        "dogpile.cache",
        (
            Keys("_lock*:*|*", "string", "cache", "Locks of loads", content=_HOLDER),
            Keys(
                "*:*|*",
                "string",
                "cache",
                "Cached results of functions, by module, name and arguments",
                content=_DOGPILE,
            ),
        ),
        ("values have no TTL unless `redis_expiration_time` is set: `expiration_time` ends none",),
        "configure the region with `ephemera`, whose lock is renewed while a value is made",
        "adapters/dogpile.md",
    ),
    Library(
        "aiocache",
        (
            Keys("aiocache:*", "string hash", "cache", "Cached values, where the namespace is `aiocache`"),
            Keys("*(*)[] *(*)[*] *()[] *()[*]", "string", "cache", "Cached results, by module and arguments"),
        ),
        ("keys have no TTL unless `ttl` is given",),
        "declare a Cache for each function that is worth it",
        _CACHE_PAGE,
    ),
    Library(
        "redis-py locks",
        (Keys("lock:*", "string", "queue", "Held locks, with the holder's token", content=_HOLDER),),
        (
            "a lock without a timeout stays forever when its holder dies",
            "a holder that pauses longer than the timeout continues without the lock: use a fencing token",
        ),
        "use Locks, which renew and fence",
        "patterns/locks.md",
    ),
    Library(
        "Redlock",
        (Keys("redlock:*", "string", "queue", "Held locks, with the holder's token", content=_HOLDER),),
        ("a holder that pauses longer than its lease continues without the lock: use a fencing token",),
        "use Locks, which renew and fence",
        "patterns/locks.md",
    ),
    Library(
        "LangGraph",
        (
            Keys(
                "checkpoint:*",
                "ReJSON-RL hash string",
                "queue",
                "Checkpoints of agents: their whole conversations",
                sensitive=True,
                weak=True,
            ),
            Keys(
                "checkpoint_write:* checkpoint_blob:* checkpoint_latest:* write_keys_zset:*",
                "ReJSON-RL hash string zset",
                "queue",
                "Checkpoints of agents: their whole conversations",
                sensitive=True,
            ),
        ),
        ("checkpoints stay forever unless the saver has a `ttl`",),
        "use the saver of ephemera.adapters.langgraph, which bounds them and reads declared types only",
        "adapters/langgraph.md",
    ),
    Library(
        "RedisVL",
        (
            Keys("llmcache:*", "hash ReJSON-RL", "cache", "Answers of a model, by prompt", sensitive=True),
            Keys(
                "chat_session:* message_history:*", "hash ReJSON-RL", "queue", "Conversations", sensitive=True
            ),
        ),
        (
            "a semantic cache has no TTL unless `ttl` is given",
            "similar is not the same: check numbers and negations",
        ),
        "use SemanticCache, which refuses opposites and differing numbers",
        "patterns/semantic_cache.md",
    ),
    Library(
        "Channels",
        (
            Keys("asgi:group:*", "zset", "queue", "Channels in a group"),
            Keys("asgispecific.*", "zset", "queue", "Messages for one connection", sensitive=True),
            Keys("asgi*", "zset", "queue", "Messages of a channel", sensitive=True, weak=True),
        ),
        ("messages that are not read are dropped after a minute (`expiry`)",),
        "set the backend of CHANNEL_LAYERS to ephemera.adapters.channels.RedisChannelLayer",
        "adapters/channels.md",
    ),
    Library(
        "Socket.IO",
        (
            Keys("socket.io", "stream", "queue", "Packets between servers (streams adapter)", sensitive=True),
            Keys("sio:session:*", "string", "queue", "Sessions to recover", sensitive=True),
        ),
        ("the other adapters use channels, which leave no key",),
        "use the manager of ephemera.adapters.socketio",
        "adapters/socketio.md",
    ),
)
"""Libraries of web services."""
