"""Feed under load: every published insight is clustered exactly once, with Redis and without.

Guaranteed, and checked here:

- an acknowledged insight is in SQL under its number, and a channel's numbers have no gap;
- in the end every subscriber's clusters include all insights of their channels: none is missing, none is in
  two clusters, and versions are 1, 2, 3. All of it is in SQL, so no loss of Redis excuses anything;
- publishing works while Redis is down: it is refused only when SQL is unavailable;
- an item that was marked as read has its insight marked in SQL.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from uuid import uuid4

from ephemera.embedded import LOOPBACK, free_ports
from tests.chaos.campaign.load.service_load import Load
from tests.chaos.campaign.processes import Member

_TOKEN = "the-token-of-a-campaign"
_INSIGHTS = 60  # of a channel; then another user with another channel comes
_SUBJECTS = (
    "The rocket launch put a crew capsule and its satellite into orbit, says the mission",
    "The central bank keeps interest rates and inflation in view of bond yields, says the governor",
    "The striker scored the winning goal of the football derby in the stadium, says the coach",
)
_ENDS = ("today", "again", "at last", "on Monday", "in the morning", "once more", "as expected", "so far")


@dataclass
class Channel:
    """A channel with one subscriber: what was sent, and the acknowledged numbers with their texts."""

    name: str
    user: str
    sent: int = 0
    acknowledged: dict[int, str] = field(default_factory=dict)
    subscribed: bool = False


class FeedLoad(Load):
    """Publishers, and a reading subscriber for each channel."""

    system = "feed"
    patience = 330.0
    """A user whose worker died, and whom the stream has lost, is enqueued again after 300 s."""

    def staff(self) -> list[Member]:
        """Return one or two serving processes, and as many that plan and cluster."""
        environment = {
            "EPHEMERA_FEED_TICK_SECONDS": "1",
            "EPHEMERA_FEED_PRO_NOVELTY": "1",
            "EPHEMERA_FEED_PRO_COOLDOWN": "1s",
            "EPHEMERA_FEED_BUILDERS": "1",
            "EPHEMERA_FEED_TOKENS": _TOKEN,
        }
        places = (0,) if self.brief else (0, 1)
        serving = [
            self.member(
                place,
                "serve",
                "feed",
                **environment,
                EPHEMERA_FEED_GRPC_ADDRESS=f"{LOOPBACK}:{free_ports(1)[0]}",
            )
            for place in places
        ]
        return [
            *serving,
            *(self.member(place, "worker", "feed", **environment) for place in places),
        ]

    async def prepare(self) -> None:
        """Create the first channels."""
        self._client.headers["authorization"] = f"Bearer {_TOKEN}"
        self.channels: list[Channel] = []
        self.read: set[tuple[str, int]] = set()  # users, and the items that they have marked as read
        for _ in range(2):
            await self._subscribe(self._new_channel())

    def actors(self) -> list[Callable[[], Awaitable[None]]]:
        """Return the actors."""
        return [self._publish, self._publish, self._read]

    async def settle(self) -> None:
        """Wait until planner and workers have caught up."""
        for channel in self.channels:
            if not channel.subscribed:
                await self._insist_on(channel)
        await self.eventually("everything published is clustered", self._unclustered)

    async def check(self) -> None:
        """Check that every insight is once in SQL and once in its subscriber's clusters, and read marks."""
        marks = set(self.rows("SELECT user_id, insight_id FROM feed.read_marks"))
        self.ledger.expect(
            self.read <= marks,
            self.system,
            "an item that was marked as read stays so",
            f"{sorted(self.read - marks)[:10]}",
        )
        rows = self.rows("SELECT channel_id, seq, text, insight_id FROM feed.insights")
        there = {(str(channel), int(seq)): str(text) for channel, seq, text, _ in rows}
        for channel in self.channels:
            for seq, text in channel.acknowledged.items():
                self.ledger.expect(
                    there.get((channel.name, seq)) == text,
                    self.system,
                    "an insight that was acknowledged is in SQL",
                    f"{channel.name} {seq}",
                )
            numbers = sorted(seq for name, seq in there if name == channel.name)
            self.ledger.expect(
                numbers == list(range(1, len(numbers) + 1)),
                self.system,
                "a channel's numbers have no gap",
                f"{channel.name}: {numbers}",
            )
            self._check_clusters(channel, {row[3] for row in rows if row[0] == channel.name})

    def _check_clusters(self, channel: Channel, insights: set[int]) -> None:
        found = self.rows(
            "SELECT cluster_version, clusters, dataset_size, unclustered FROM feed.clusters "
            "WHERE user_id = %s ORDER BY cluster_version",
            channel.user,
        )
        versions = [int(row[0]) for row in found]
        first = versions[0] if versions else 1
        self.ledger.expect(
            versions == list(range(first, first + len(versions))),
            self.system,
            "versions go one by one",
            f"{channel.user}: {versions}",
        )
        if not found:
            return
        _, clusters, size, unclustered = found[-1]
        times = Counter(insight for cluster in clusters for insight in cluster["insights"])
        whole = size == len(insights) and len(times) + unclustered == size
        once = all(count == 1 for count in times.values()) and set(times) <= insights
        self.ledger.expect(
            whole and once,
            self.system,
            "each insight is in the last version once",
            f"{channel.user}: {size} of {len(insights)}, {len(times)} clustered, {unclustered} not",
        )

    def _unclustered(self) -> list[str]:
        rows = self.rows(
            "SELECT s.user_id, c.current_seq, h.last_seq, u.cluster_version, "
            "u.recheck_at - clock_timestamp(), u.enqueued_until - clock_timestamp(), "
            "u.running_until - clock_timestamp() "
            "FROM feed.subscriptions s JOIN feed.channels c USING (channel_id) "
            "JOIN feed.user_stats u USING (user_id) "
            "LEFT JOIN feed.user_cluster_hwm h USING (user_id, channel_id) "
            "WHERE c.current_seq > coalesce(h.last_seq, 0)"
        )
        return [
            f"{user} has seen {seen} of {current} at version {version}; looked at again in {again}, "
            f"handed over for {queued}, running for {running}"
            for user, current, seen, version, again, queued, running in rows
        ]

    def _new_channel(self) -> Channel:
        channel = Channel(f"channel-{uuid4().hex[:8]}", f"user-{uuid4().hex[:8]}")
        self.channels.append(channel)
        return channel

    async def _subscribe(self, channel: Channel) -> None:
        path = f"/feed/users/{channel.user}/subscriptions/{channel.name}"
        answer = await self.ask("subscribe", self.any_service(), "PUT", path, json={"plan": "pro"})
        channel.subscribed = answer is not None and answer.ok

    async def _insist_on(self, channel: Channel) -> None:
        path = f"/feed/users/{channel.user}/subscriptions/{channel.name}"
        await self.request_until_ok("subscribe", "PUT", path, json={"plan": "pro"})
        channel.subscribed = True

    async def _publish(self) -> None:
        """Publish an insight, or three at once; a full channel is replaced."""
        channel = self.chance.choice(self.channels[-2:])
        if not channel.subscribed:
            await self._subscribe(channel)
        forms = [self._insight(channel) for _ in range(self.chance.choice([1, 1, 1, 3]))]
        path, body = (
            ("/feed/bulk/insights", {"insights": forms}) if forms[1:] else ("/feed/insights", forms[0])
        )
        answer = await self.ask("publish", self.any_service(), "POST", path, json=body)
        if answer is not None and answer.ok:
            said = answer.json()["insights"] if forms[1:] else [answer.json()]
            for form, published in zip(forms, said, strict=True):
                channel.acknowledged[int(published["seq"])] = form["text"]
        elif answer is not None:
            self.ledger.expect(
                b"database" in answer.content,
                self.system,
                "publishing works without Redis",
                f"{answer.member.name} answered {answer.status}: {answer.content[:200]!r}",
            )
        if channel.sent >= _INSIGHTS and channel is self.channels[-1]:
            await self._subscribe(self._new_channel())
        await self.rest(0.5)

    def _insight(self, channel: Channel) -> dict[str, str]:
        channel.sent += 1
        subject, end = self.chance.choice(_SUBJECTS), self.chance.choice(_ENDS)
        text = f"{subject} {end}, number {channel.sent} of {channel.name}."
        return {"channel_id": channel.name, "text": text}

    async def _read(self) -> None:
        """Read as a subscriber, which keeps them active, and mark an item as read."""
        channel = self.chance.choice(self.channels[-3:])
        path = f"/feed/users/{channel.user}"
        answer = await self.ask("read", self.any_service(), "GET", path)
        if answer is not None and answer.ok and (items := answer.json()["items"]):
            item = int(self.chance.choice(items)["item_id"])
            marked = await self.ask("mark", self.any_service(), "PUT", f"{path}/items/{item}/read")
            if marked is not None and marked.ok:
                self.read.add((channel.user, item))
        await self.rest(0.8)
