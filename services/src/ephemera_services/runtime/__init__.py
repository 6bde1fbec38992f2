"""What the five services share: settings, resources, application, workers, logs and problem documents.

A service describes itself with a `ServiceDefinition`, reads its `ServiceSettings` from the environment, and
passes both to `create_application`. Its worker process uses `open_resources` and `run_until_signalled`.
README.md in the folder above shows how to write a new service.
"""

from ephemera_services.runtime.application import (
    STOP_TIMEOUT,
    ServiceServer,
    bind_sockets,
    create_application,
)
from ephemera_services.runtime.bearer_tokens import BearerTokens
from ephemera_services.runtime.credentials import (
    DEMO_PASSWORD,
    EMAIL_LENGTH,
    EMAIL_PATTERN,
    LOGIN_NAME_PATTERN,
    GivenPassword,
    NewPassword,
    Passwords,
    RequestBody,
)
from ephemera_services.runtime.limited_process import (
    FunctionRefused,
    LimitExceeded,
    ProcessDied,
    ProcessLimits,
    run_limited,
)
from ephemera_services.runtime.logs import configure_logging, minimum_log_level
from ephemera_services.runtime.mail import (
    MailFailed,
    MailFolder,
    MailServerDown,
    MailTransport,
    NoMailServer,
    SmtpTransport,
    mail_problems,
)
from ephemera_services.runtime.memory import tune_malloc
from ephemera_services.runtime.open_streams import OpenStreams
from ephemera_services.runtime.outbound_requests import OutboundFailed, OutboundRequests
from ephemera_services.runtime.outbox import TransactionalOutbox, outbox_table
from ephemera_services.runtime.pending_sign_outs import PendingSignOuts, sign_outs_table
from ephemera_services.runtime.problem_documents import NO_BACKEND, problem, problems, unauthorized
from ephemera_services.runtime.resources import (
    Resources,
    ServiceDefinition,
    advisory_lock,
    open_engine,
    open_resources,
)
from ephemera_services.runtime.service_tables import declare_tables
from ephemera_services.runtime.settings import (
    InvalidSettings,
    Secret,
    ServiceSettings,
    read_settings,
    variable_names,
)
from ephemera_services.runtime.sign_in_attempts import BoundSignInAttempts, SignInAttempt, SignInAttempts
from ephemera_services.runtime.user_events import (
    UserChanged,
    UserCreated,
    UserDeleted,
    UserEvent,
    UserRoleChanged,
    UserUpdated,
    declare_user_events,
)
from ephemera_services.runtime.web_page import web_page_router
from ephemera_services.runtime.worker import (
    SHUTDOWN_TIMEOUT,
    cancel_and_wait,
    require_server_urls,
    run_until_signalled,
)

__all__ = [
    "DEMO_PASSWORD",
    "EMAIL_LENGTH",
    "EMAIL_PATTERN",
    "LOGIN_NAME_PATTERN",
    "NO_BACKEND",
    "SHUTDOWN_TIMEOUT",
    "STOP_TIMEOUT",
    "BearerTokens",
    "BoundSignInAttempts",
    "FunctionRefused",
    "GivenPassword",
    "InvalidSettings",
    "LimitExceeded",
    "MailFailed",
    "MailFolder",
    "MailServerDown",
    "MailTransport",
    "NewPassword",
    "NoMailServer",
    "OpenStreams",
    "OutboundFailed",
    "OutboundRequests",
    "Passwords",
    "PendingSignOuts",
    "ProcessDied",
    "ProcessLimits",
    "RequestBody",
    "Resources",
    "Secret",
    "ServiceDefinition",
    "ServiceServer",
    "ServiceSettings",
    "SignInAttempt",
    "SignInAttempts",
    "SmtpTransport",
    "TransactionalOutbox",
    "UserChanged",
    "UserCreated",
    "UserDeleted",
    "UserEvent",
    "UserRoleChanged",
    "UserUpdated",
    "advisory_lock",
    "bind_sockets",
    "cancel_and_wait",
    "configure_logging",
    "create_application",
    "declare_tables",
    "declare_user_events",
    "mail_problems",
    "minimum_log_level",
    "open_engine",
    "open_resources",
    "outbox_table",
    "problem",
    "problems",
    "read_settings",
    "require_server_urls",
    "run_limited",
    "run_until_signalled",
    "sign_outs_table",
    "tune_malloc",
    "unauthorized",
    "variable_names",
    "web_page_router",
]
