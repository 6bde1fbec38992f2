"use strict";
// The league's page. A tab requests its data when it is opened and polls while it is visible: every 4 s for
// live data, every 20 s otherwise, every 60 s while the page is hidden. The last response is kept in
// localStorage with its ETag: a 304 changes nothing on the screen, and without a network the last snapshot is
// shown and marked as stale.

const LIVE = 4000, QUIET = 20000, HIDDEN = 60000; // milliseconds from one poll to the next
const OLDEST = 14 * 24 * 3600 * 1000; // milliseconds after which a snapshot is not shown
const STALE = 10; // seconds after its expiry from which a page is marked as stale
const WAIT = new Set([202, 429]); // a page that is being loaded, and too many requests: Retry-After says when
const SOON = 2; // seconds after which a stale page is requested once more: its new version is being loaded

const TABS = {
  Live: { Matches: { every: LIVE, paths: () => ["api/matches/live"], fetch: fetchLive, draw: drawLive } },
  League: { // with a season each
    Table: { every: QUIET, seasonal: true, paths: () => [ofSeason("api/league/table")], draw: drawTable },
    Schedule: { every: QUIET, seasonal: true, paths: () => [ofSeason("api/league/schedule")], draw: ([rows]) => rounds(rows) },
    Results: { every: QUIET, seasonal: true, paths: () => [ofSeason("api/league/results"), ...(state.season === "all" ? ["api/seasons"] : [])], draw: drawResults },
    Stats: { every: QUIET, seasonal: true, paths: () => [ofSeason("api/league/stats")], draw: drawStats },
    Cup: { every: QUIET, seasonal: true, paths: () => [ofSeason("api/league/bracket")], draw: drawCup },
  },
  Predictions: {
    Open: { every: QUIET, paths: () => ["api/predictions", ...(state.me ? ["api/me/predictions"] : [])], draw: drawOpen },
    Mine: { every: QUIET, paths: () => ["api/me/predictions"], draw: drawMine },
  },
  Leaders: {
    Season: { every: QUIET, seasonal: true, paths: () => [ofSeason("api/leaderboards/season")], fetch: fetchBoard, draw: drawBoard },
    Week: { every: QUIET, paths: () => ["api/leaderboards/week"], fetch: fetchBoard, draw: drawBoard },
  },
};
const PROFILE = {
  every: QUIET,
  paths: () => [`api/users/${state.me?.user_id ?? 0}/achievements`, "api/me/predictions", "api/me/leaderboards/season?season=all"],
  draw: drawProfile,
};
const CLUB = { every: QUIET, paths: () => [`api/clubs/${state.club}/matches`], draw: drawClub };

const state = { tab: "League", part: "Table", season: null, match: null, club: null, profile: false, timer: 0, me: null, round: 0, around: 0, day: "" };
const content = document.getElementById("content");
const mark = document.getElementById("mark");

// --- requests and snapshots -------------------------------------------------------------------------------

const storage = (() => {
  try { return window.localStorage; } catch { // the browser blocks it: what is kept lasts as long as the page
    const kept = new Map();
    return { getItem: (key) => kept.get(key) ?? null, setItem: (key, value) => kept.set(key, value), removeItem: (key) => kept.delete(key) };
  }
})();

function snapshot(path) { return recent(keyOf(path)); }

function recent(key) {
  try {
    const kept = JSON.parse(storage.getItem(key));
    return kept && Date.now() - kept.at < OLDEST ? kept : null;
  } catch { return null; }
}

function keyOf(path) { // a private page's snapshot belongs to its user
  return path.startsWith("api/me") ? `league:${state.me?.user_id ?? "anonymous"}:${path}` : `league:${path}`;
}

function forget(isOver) { Object.keys(storage).filter((key) => key.startsWith("league:") && isOver(key)).forEach((key) => storage.removeItem(key)); }

// Returns { body, changed, stale } of a path. Throws if the network or the server fails.
async function ask(path) {
  const known = snapshot(path);
  const headers = known?.etag ? { "If-None-Match": known.etag } : {};
  const response = await fetch(path, { cache: "no-store", headers });
  const late = Number(/ttl=(-\d+)/.exec(response.headers.get("cache-status") ?? "")?.[1] ?? 0);
  const stale = late < -STALE;
  if (response.status === 304 && known) return { body: known.body, changed: false, stale };
  if (response.status === 401 && state.me) setUser(null); // the session has ended
  if (response.status === 404 || response.status === 401) return { body: null, changed: true, stale: false };
  if (response.status !== 200) throw Object.assign(new Error(`${path}: ${response.status}`), { after: WAIT.has(response.status) ? Number(response.headers.get("retry-after")) : 0 });
  const body = await response.json();
  const kept = JSON.stringify({ etag: response.headers.get("etag"), body, at: Date.now() });
  try { storage.setItem(keyOf(path), kept); } catch { /* full: it is requested again */ }
  return { body, changed: JSON.stringify(body) !== JSON.stringify(known?.body), stale };
}

// --- the poll ------------------------------------------------------------------------------------------

function shown() {
  return state.match ? MATCH : state.club ? CLUB : state.profile ? PROFILE : TABS[state.tab][state.part];
}

function interval() { return document.hidden ? HIDDEN : state.match ? LIVE : shown().every; }

function schedule(after = 0) { // seconds, if it is not the usual interval
  clearTimeout(state.timer);
  document.body.dataset.every = interval();
  // Jitter, so that thousands of pages do not poll at the same time.
  state.timer = setTimeout(poll, (1000 * after || interval()) * (0.9 + 0.2 * Math.random()));
}

async function poll() {
  const round = state.round;
  let after = 0;
  const view = shown();
  try {
    const answers = await Promise.all(await view.fetch?.() ?? view.paths().map(ask));
    if (round !== state.round) return; // another tab was opened
    if (answers.some((each) => each.changed) || !content.dataset.drawn) {
      draw(view, answers.map((each) => each.body));
    }
    const stale = answers.some((each) => each.stale);
    if (stale && mark.hidden) after = SOON;
    mark.hidden = !stale;
  } catch (problem) {
    if (round !== state.round) return;
    after = problem.after;
    mark.hidden = false; // keep what is on the screen
    if (!content.dataset.drawn) content.replaceChildren(empty(after ? "Loading…" : "This cannot be loaded at the moment. Trying again…"));
  }
  schedule(after);
}

const WRITTEN = "input[name=text], .predict input"; // what a user may be typing while a poll draws

function draw(view, bodies) {
  const before = [...content.querySelectorAll(WRITTEN)];
  const kept = before.map((input) => [input.value, input === document.activeElement]);
  const scrolled = content.querySelector(".comments")?.scrollTop;
  content.replaceChildren(view.draw(bodies));
  const after = [...content.querySelectorAll(WRITTEN)];
  if (after.length === before.length) {
    after.forEach((input, place) => {
      if (kept[place][0]) input.value = kept[place][0];
      if (kept[place][1]) input.focus();
    });
  }
  const comments = content.querySelector(".comments");
  if (comments) comments.scrollTop = scrolled ?? comments.scrollHeight;
  content.dataset.drawn = Number(content.dataset.drawn || 0) + 1;
}

// --- addresses: every screen has one, so it can be shared, and the back button works -------------------------

function addressOf({ tab, part, season, match, club, profile }) {
  if (match) return `#/match/${match}`;
  if (club) return `#/club/${club}`;
  if (profile) return "#/me/profile";
  const query = season && TABS[tab][part].seasonal ? `?season=${season}` : "";
  return `#/${tab.toLowerCase()}/${part.toLowerCase()}${query}`;
}

function read(address) {
  const [, first, second, season] = /^#\/([a-z]+)\/([a-z0-9-]+)(?:\?season=(all|[1-9]\d{0,14}))?$/.exec(address) ?? [];
  if (first === "match") return { match: second };
  if (first === "club") return { club: second };
  if (first === "me") return { profile: true };
  const tab = Object.keys(TABS).find((each) => each.toLowerCase() === first);
  const part = tab && Object.keys(TABS[tab]).find((each) => each.toLowerCase() === second);
  if (!part) return { tab: "League", part: "Table", season: null };
  return { tab, part, season: season && TABS[tab][part].seasonal ? season : null };
}

function go(target) {
  const address = addressOf({ tab: state.tab, part: state.part, season: state.season, ...target });
  if (location.hash !== address) history.pushState(null, "", address);
  show();
}

function show() {
  const target = { match: null, club: null, profile: false, ...read(location.hash) };
  Object.assign(state, target, { round: state.round + 1 });
  content.replaceChildren(el("p", { className: "card empty waiting" }, "Loading…"));
  delete content.dataset.drawn;
  drawTabs();
  const view = shown();
  const kept = view.paths().map(snapshot); // immediately, before the network answers
  if (kept.every(Boolean)) draw(view, kept.map((each) => each.body));
  poll();
}

window.addEventListener("hashchange", show);
document.addEventListener("visibilitychange", () => document.hidden ? schedule() : poll());
setInterval(() => {
  content.querySelectorAll("[data-until]").forEach((each) => { each.textContent = countdown(each.dataset.until); });
  content.querySelectorAll(".minute").forEach((each) => { each.textContent = minute(each.match); });
  const day = new Date().toDateString();
  if (state.day !== day) content.querySelectorAll("time").forEach((each) => { each.textContent = each.written(); }); // "Today" was yesterday
  state.day = day;
}, 1000);

// --- seasons: the list is requested when it is opened, or when the address names a season --------------------

function ofSeason(path) { return state.season ? `${path}?season=${state.season}` : path; }

const seasons = document.getElementById("seasons");
const label = seasons.firstElementChild;

async function drawSeasons() {
  seasons.hidden = !shown().seasonal;
  label.textContent = state.season === "all" ? "All seasons" : state.season ? "Another season" : "This season";
  seasons.open = seasons.open && !seasons.hidden;
  if (seasons.hidden || !(seasons.open || state.season)) return;
  const { body } = await ask("api/seasons").catch(() => ({ body: snapshot("api/seasons")?.body }));
  const list = (body ?? []).flatMap((each) => each.seasons.map((season) => ({
    id: String(season.id), title: `${each.competition} ${season.name}`, current: season.status === "current" && each === body[0],
  })));
  const rows = [...list, { id: "all", title: "All seasons" }];
  const chosen = rows.find((row) => state.season ? row.id === state.season : row.current);
  if (chosen) label.textContent = chosen.title;
  seasons.lastElementChild.replaceChildren(...rows.map((row) => {
    const link = el("a", { href: addressOf({ tab: state.tab, part: state.part, season: row.current ? null : row.id }) }, row.title);
    if (row === chosen) link.setAttribute("aria-current", "true");
    link.addEventListener("click", () => { seasons.open = false; });
    return link;
  }));
}

seasons.addEventListener("toggle", () => { if (seasons.open) drawSeasons(); });
document.addEventListener("click", (event) => { if (!seasons.contains(event.target)) seasons.open = false; });
document.addEventListener("keydown", (event) => { if (event.key === "Escape") seasons.open = false; });

// --- a match: its versions are polled, and a part is requested when its version changes  -------------------

const PARTS = ["meta", "live", "comments"];
const MATCH = {
  paths: () => PARTS.map((part) => `api/matches/${state.match}/${part}`),
  seen: null,
  async fetch() {
    const versions = await ask(`api/matches/${state.match}/versions`);
    const before = this.seen?.match === state.match ? this.seen.body : {};
    const parts = this.paths().map((path, place) => {
      const known = snapshot(path), part = PARTS[place];
      const same = known && before[part] === versions.body?.[part];
      return same ? { body: known.body, changed: false, stale: false } : ask(path);
    });
    const [recalled, ...found] = await Promise.all([recall(state.match).catch(() => false), ...parts]);
    this.seen = { match: state.match, body: versions.body };
    found[0] = { ...found[0], changed: found[0].changed || recalled, stale: found[0].stale || versions.stale };
    return found;
  },
  recalled: null,
  draw: drawMatch,
};

// One's own vote and prediction, once: they may have been placed in another browser.
async function recall(match) {
  const key = voteKey(match);
  if (!state.me || MATCH.recalled === key) return false;
  const [vote] = await Promise.all([ask(`api/me/votes/${match}`), ask("api/me/predictions")]);
  MATCH.recalled = key;
  try { if (vote.body?.choice) storage.setItem(key, vote.body.choice); } catch { /* it is not marked */ }
  return true;
}

// --- drawing: elements alone, never markup from data --------------------------------------------------------

function el(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children.filter((child) => child != null));
  return made;
}

function crest(club) { // a colour and letters that are always the same for a club
  const hue = [...club].reduce((sum, letter) => (sum * 137 + letter.codePointAt(0) * 53) % 360, 7);
  const made = el("span", { className: "crest" }, club.slice(0, 2).toUpperCase());
  made.setAttribute("aria-hidden", "true");
  made.style.background = `hsl(${hue} 55% ${hue > 30 && hue < 195 ? 28 : 38}%)`; // yellow and green are bright
  return made;
}

function side(club) { return el("span", { className: "side" }, crest(club), el("span", {}, club)); }

function empty(text) { return el("p", { className: "card empty" }, text); }

function table(rows, columns, rowClass = () => "") {
  const kind = (name) => (rows?.some((row) => typeof row[name] === "number") || name === "difference" || name === "scored" ? "number" : "");
  const head = Object.entries(columns).map(([title, name]) =>
    el("th", { className: `${kind(name)} ${WIDE.has(title) ? "wide" : ""}`, scope: "col" }, title));
  const lines = (rows ?? []).map((row, place) => el("tr", { className: rowClass(row, place) },
    ...Object.entries(columns).map(([title, name]) =>
      el("td", { className: `${kind(name)} ${WIDE.has(title) ? "wide" : ""} ${name === "points" ? "strong" : ""}` }, row[name]))));
  return el("div", { className: "card scroll" }, el("table", {}, el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...lines)));
}
const WIDE = new Set(["W", "D", "L", "Scored", "Form"]); // not on phones

function drawTable([rows]) {
  if (!rows?.length) return empty("No club has joined yet.");
  const lines = rows.map((row) => {
    const link = el("a", { href: `#/club/${row.club_id}` }, side(row.club));
    const difference = row.goals[0] - row.goals[1];
    link.firstChild.lastChild.append(form_(row.form)); // a column where there is room for it, otherwise below the name
    return { ...row, form: form_(row.form), club: link, difference: `${difference > 0 ? "+" : difference < 0 ? "−" : ""}${Math.abs(difference)}`, scored: row.goals.join(":") };
  });
  const columns = { "#": "rank", Club: "club", P: "played", W: "won", D: "drawn", L: "lost", Scored: "scored", "+/−": "difference", Points: "points", Form: "form" };
  if (state.season === "all" || rows.length < RANKED) return table(lines, columns);
  const legend = el("p", { className: "muted legend" }, el("span", { className: "first" }, "First two"), el("span", { className: "last" }, "Last two"));
  return el("div", {}, table(lines, columns, (row, place) => (place < 2 ? "first" : place >= rows.length - 2 ? "last" : "")), legend);
}
const RANKED = 6; // clubs of a season from which its ends are marked
const NAMES = { W: "won", D: "drawn", L: "lost" };

function form_(signs) { return el("span", { className: "form" }, ...(signs ?? []).map((each) => el("i", { className: each, title: NAMES[each] }, each))); }

async function fetchBoard() { // with one's own place, if it is not among the first
  const [path] = this.paths();
  const board = await ask(path);
  const listed = !state.me || !board.body?.length || board.body.some((row) => row.name === state.me.name);
  return listed ? [board] : [board, await ask(path.replace("api/", "api/me/"))];
}

function drawBoard([rows, own]) {
  if (!rows?.length) return empty("No points yet. Predict a match, and be the first.");
  const all = own?.rank ? [...rows, { ...own, name: state.me.name }] : rows;
  const lines = all.map((row) => ({ ...row, name: el("span", {}, row.rank <= 3 ? medal(row.rank) : null, row.name), own: row.name === state.me?.name }));
  return table(lines, { "#": "rank", Name: "name", Exact: "exact", Points: "points" }, (row) => (row.own ? "mine" : ""));
}
const MEDALS = ["#d9a520", "#a9b1b7", "#b3713a"];

function medal(rank) {
  const made = shape("medal");
  made.style.setProperty("--medal", MEDALS[rank - 1]);
  return made;
}

function shape(name) { // a drawn sign, whose meaning stands beside it as text
  const made = el("span", { className: name });
  made.setAttribute("aria-hidden", "true");
  return made;
}

function when(at, day = "short") { // the day as "Today" or "Mon, 23 Nov", "full" with its name, or without it
  const made = el("time", { dateTime: at });
  made.written = () => [day && dayOf(new Date(at), day), new Date(at).toLocaleTimeString([], { timeStyle: "short" })].filter(Boolean).join(", ");
  made.textContent = made.written();
  return made;
}

const NEAR_DAYS = { "-1": "Yesterday", 0: "Today", 1: "Tomorrow" };

function dayOf(at, style) {
  const today = new Date(), days = Math.round((new Date(at).setHours(0, 0, 0, 0) - new Date(today).setHours(0, 0, 0, 0)) / 86400000);
  if (NEAR_DAYS[days]) return NEAR_DAYS[days];
  const year = at.getFullYear() === today.getFullYear() ? {} : { year: "numeric" };
  return at.toLocaleDateString([], style === "full" ? { dateStyle: "full" } : { weekday: "short", day: "numeric", month: "short", ...year });
}

function countdown(until) {
  const seconds = Math.floor((new Date(until) - Date.now()) / 1000);
  if (seconds <= 0) return "closed";
  const days = Math.floor(seconds / 86400), hours = Math.floor(seconds / 3600) % 24, minutes = Math.floor(seconds / 60) % 60;
  return days ? `${days} d ${hours} h` : hours ? `${hours} h ${minutes} min` : `${minutes} min ${seconds % 60} s`;
}

function matchCard(row) {
  const [home, away] = row.score ?? ["", ""];
  const over = row.status === "finished";
  const lost = (mine, theirs) => `goals${over && mine < theirs ? " lost" : ""}`;
  const scorers = (row.goals ?? []).map((goal) => `${goal.player} ${goal.minute}′`).join(", ");
  const state_ = row.status === "live" ? clock(row)
    : el("span", { className: "muted" }, over ? "Full time" : OFF.has(row.status) ? row.status : row.venue ?? "");
  const card = el("button", { type: "button", className: "match" },
    side(row.home), el("span", { className: lost(home, away) }, home),
    side(row.away), el("span", { className: lost(away, home) }, away),
    scorers ? el("span", { className: "scorers" }, shape("ball"), ` ${scorers}`) : null,
    el("span", { className: "foot" }, when(row.kickoff), state_));
  card.setAttribute("aria-label", row.score ? `${row.home} ${home} : ${away} ${row.away}` : `${row.home} – ${row.away}`);
  card.addEventListener("click", () => go({ match: row.id }));
  return card;
}

function liveCard(row) { // what one came for: large, with the scorers of each side below it
  const club = (name) => el("span", { className: "club" }, crest(name), name);
  const scorers = (side_) => el("span", { className: "scorers" }, ...(row.goals ?? []).filter((goal) => goal.side === side_).map((goal) => el("span", {}, `${goal.player} ${goal.minute}′`)));
  const link = el("a", { className: "card hero big match", href: `#/match/${row.id}` }, club(row.home),
    el("span", {}, el("span", { className: "score" }, row.score.join(" : ")), clock(row)), club(row.away),
    scorers("home"), row.goals?.length ? shape("ball") : el("span", {}), scorers("away"));
  link.setAttribute("aria-label", `${row.home} ${row.score.join(" : ")} ${row.away}, live`);
  return link;
}

const OFF = new Set(["postponed", "cancelled"]);

const ADDED = 45; // minutes of stoppage time that are shown at most
// The minute counts here: the data has when the clock began, and stays the same until something happens.
function minute(live) {
  if (live.phase === "half-time") return "Half-time";
  if (live.phase === "ended") return "Full time";
  if (live.minute == null) return "live";
  const [least, most] = live.phase === "second half" ? [46, 90] : [1, 45];
  const now = Math.max(least, live.clock ? Math.floor((Date.now() - new Date(live.clock)) / 60000) + 1 : live.minute);
  return now > most ? `${most}+${Math.min(now - most, ADDED)}′` : `${now}′`;
}

function clock(live) {
  return Object.assign(el("span", { className: "minute" }, minute(live)), { match: live });
}

function cards(rows) { return el("div", { className: "grid" }, ...rows.map(matchCard)); }

function rounds(rows) {
  if (!rows?.length) return empty("Nothing here at the moment.");
  const grouped = new Map();
  for (const row of rows) {
    const round = row.stage === "league" ? `Round ${row.round}` : row.stage;
    const name = state.season === "all" ? `${round} · ${row.season}` : round;
    grouped.set(name, [...(grouped.get(name) ?? []), row]);
  }
  return el("div", {}, ...[...grouped].map(([name, its]) => el("section", {}, el("h2", {}, name), cards(its))));
}

function drawResults([rows, competitions]) { // of all seasons the latest; each season has the rest
  const links = (competitions ?? []).flatMap((each) => each.seasons.map((season) =>
    el("a", { href: `#/league/results?season=${season.id}` }, `${each.competition} ${season.name}`)));
  return links.length && rows?.length ? el("div", {}, rounds(rows), el("h2", {}, "All results of a season"), el("p", { className: "card row" }, ...links)) : rounds(rows);
}

const AROUND = ["api/predictions", "api/league/results"]; // what is next and what was last: below the live matches
const NEAR = 3; // of each

async function fetchLive() {
  const due = Date.now() - state.around >= QUIET;
  const before = JSON.stringify(around());
  if (due) state.around = Date.now();
  const [live] = await Promise.all([ask("api/matches/live"), ...(due ? AROUND.map((path) => ask(path).catch(() => null)) : [])]);
  return [{ ...live, changed: live.changed || JSON.stringify(around()) !== before }];
}

function around() {
  const [ahead, over] = AROUND.map((path) => snapshot(path)?.body ?? []);
  return [["Next", ahead.filter((row) => new Date(row.kickoff) > Date.now()).slice(0, NEAR)], ["Latest results", over.slice(0, NEAR)]];
}

function drawLive([rows]) {
  // The score as text too, for those who hear the page.
  const said = rows?.length ? el("p", { className: "unseen" }, rows.map((row) => `${row.home} ${row.score.join(" : ")} ${row.away}`).join(" · ")) : null;
  return el("div", {}, rows?.length ? el("div", { className: "grid now" }, ...rows.map(liveCard)) : empty("No match is being played at the moment."), said,
    ...around().filter(([, its]) => its.length).map(([title, its]) => el("section", {}, el("h2", {}, title), cards(its))));
}

function drawStats([stats]) {
  const average = stats.played ? (stats.goals / stats.played).toFixed(1) : "0";
  const cards_ = stats.cards?.length ? [el("h2", {}, "Cards"), table(stats.cards, { Player: "player", Club: "club", Cards: "cards" })] : [];
  const figures = figureCard([stats.played, "matches"], [stats.goals, "goals"], [average, "per match"]);
  return el("div", {}, figures, el("h2", {}, "Scorers"), table(stats.scorers, { Player: "player", Club: "club", Goals: "goals" }), ...cards_);
}

function figure(number, text) { return el("div", {}, el("div", { className: "score" }, number ?? "–"), el("span", { className: "muted" }, text)); }

function figureCard(...figures) { return el("div", { className: "card hero figures" }, ...figures.map((each) => figure(...each))); }

function drawCup([rows]) {
  if (!rows?.length) return empty("The cup has not been drawn yet.");
  const cups = new Map();
  for (const each of rows) cups.set(each.season, [...(cups.get(each.season) ?? []), each]);
  return el("div", {}, ...[...cups].map(([season, its]) => el("section", {}, cups.size > 1 ? el("h2", {}, season) : null, bracket(its))));
}

// A column for each round; a tie stands between those that its clubs come from. Rounds to come are drawn empty.
function bracket(played) {
  const columns = played.map((each) => ({ name: each.round, ties: each.matches }));
  for (let ahead = columns.length - 1; ahead > 0; ahead -= 1) {
    const place = (tie) => columns[ahead].ties.findIndex((next) => [next.home, next.away].some((club) => club === tie.home || club === tie.away));
    const order = new Map(columns[ahead - 1].ties.map((tie) => [tie, place(tie) < 0 ? Infinity : place(tie)]));
    columns[ahead - 1].ties = [...columns[ahead - 1].ties].sort((one, other) => order.get(one) - order.get(other) || 0);
  }
  for (let open = columns.at(-1).ties.length / 2; open >= 1; open /= 2) {
    columns.push({ name: ROUNDS[open] ?? "next round", ties: Array(Math.floor(open)).fill(null) });
  }
  const tie = (each) => el("li", {}, each ? matchCard(each) : el("p", { className: "card empty" }, "To be played"));
  const made = el("div", { className: "bracket", tabIndex: 0 }, ...columns.map((each) => el("section", {}, el("h2", {}, each.name), el("ol", {}, ...each.ties.map(tie)))));
  made.setAttribute("role", "group");
  made.setAttribute("aria-label", "Bracket");
  return made;
}
const ROUNDS = { 1: "final", 2: "semi-final", 4: "quarter-final" };

function drawClub([club]) {
  if (!club) return empty("There is no such club.");
  document.title = `${club.club} · League`;
  const played = club.matches.filter((row) => row.score).reverse();
  const ahead = club.matches.filter((row) => !row.score);
  const seasons_ = [...new Set(played.map((row) => row.season))];
  const over = played.filter((row) => row.status === "finished" && row.stage === "league" && row.season === seasons_[0]).map((row) => ({ ...row, sign: signOf(row, club.club) }));
  const count = (sign) => over.filter((row) => row.sign === sign).length;
  return el("div", {}, el("div", { className: "card hero big" }, el("span", {}), el("b", { className: "club" }, crest(club.club), club.club, over.length ? form_(over.slice(0, RECENT).reverse().map((row) => row.sign)) : null), el("span", {})),
    over.length ? figureCard([count("W"), "won"], [count("D"), "drawn"], [count("L"), "lost"]) : null,
    el("h2", {}, "Next"), ahead.length ? cards(ahead.slice(0, NEAR)) : empty("No further match is planned."),
    ...seasons_.flatMap((season) => [el("h2", {}, `Played in ${season}`), cards(played.filter((row) => row.season === season))]),
    ...(played.length ? [] : [el("h2", {}, "Played"), empty("No match was played yet.")]));
}
const RECENT = 5; // matches of a form

function signOf({ home, score }, club) {
  const [own, other] = home === club ? score : [score[1], score[0]];
  return own > other ? "W" : own < other ? "L" : "D";
}

function drawMatch(bodies) {
  const [meta, current, comments] = MATCH.bodies = bodies;
  if (!meta) return empty("There is no such match.");
  document.title = `${meta.home} – ${meta.away} · League`;
  const live = current ?? meta.result; // of a match that ended hours ago
  const club = (name, id) => el("a", { className: "club", href: `#/club/${id}` }, crest(name), name);
  const score = live?.status === "live" || live?.status === "finished" ? live.score.join(" : ") : "– : –";
  const state_ = live?.status === "live" ? el("div", {}, clock(live))
    : el("div", { className: "muted" }, live?.status === "finished" ? "Full time" : OFF.has(live?.status) ? live.status : "");
  const middle = el("div", {}, el("div", { className: "score" }, score), state_);
  const hero = el("div", { className: "card hero big" }, club(meta.home, meta.home_id), middle, club(meta.away, meta.away_id));
  const about = el("p", { className: "muted" }, when(meta.kickoff, "full"), ` · ${meta.venue}`);
  const events = (live?.events ?? []).map((each) => {
    const text = el("span", { title: each.kind }, shape(each.kind === "goal" ? "ball" : "booked"), el("span", { className: "unseen" }, each.kind), ` ${each.player}`);
    const cells = [el("span", {}), el("b", {}, `${each.minute}′`), el("span", {})];
    cells[each.side === "home" ? 0 : 2] = text;
    return el("li", { className: each.side }, ...cells);
  });
  const timeline = events.length ? [el("h2", {}, "Timeline"), el("ul", { className: "card timeline" }, ...events)] : [];
  const posted = (at) => when(at, new Date(at).toDateString() === new Date().toDateString() ? null : "short");
  const said = (comments ?? []).map((each) => el("p", {}, el("b", {}, `${each.by} `, posted(each.at)), ` ${each.text}`));
  const placed = (state.me && snapshot("api/me/predictions")?.body)?.find((row) => row.id === meta.id);
  const predicting = live?.status === "scheduled" && new Date(meta.kickoff) > Date.now()
    ? [el("h2", {}, "Your prediction"), predictionForm(meta, placed?.prediction)] : [];
  return el("article", {}, hero, about, ...timeline, ...predicting, el("h2", {}, live?.status === "finished" ? "Who was to win?" : "Who wins?"), voteBars(meta, live),
    el("h2", {}, "Comments"), el("div", { className: "card" },
      el("div", { className: "comments" }, ...(said.length ? said : [el("span", { className: "muted" }, "Be the first to say something.")])),
      commentForm(meta.id)));
}

function voteBars(meta, live) {
  const votes = live?.votes ?? { home: 0, draw: 0, away: 0 };
  const total = votes.home + votes.draw + votes.away;
  const own = storage.getItem(voteKey(meta.id));
  const closed = ["finished", "cancelled"].includes(live?.status);
  const count = total ? `${total} ${total === 1 ? "vote" : "votes"}` : "No votes yet";
  const hint = el("p", { className: "muted" }, `${count}${closed || own ? "" : " · choose one, you cannot change it"}`);
  const titles = { home: meta.home, draw: "A draw", away: meta.away };
  const bars = Object.keys(titles).map((choice) => {
    const share = total ? Math.round((100 * votes[choice]) / total) : 0;
    const bar = el("i", {});
    bar.style.width = `${share}%`;
    const button = el("button", { type: "button", className: own === choice ? "own" : "", disabled: closed },
      el("span", {}, `${own === choice ? "✓ " : ""}${titles[choice]}`), el("span", { className: "bar" }, bar),
      el("span", { className: "count" }, `${share} %`));
    button.setAttribute("aria-label", `${titles[choice]}: ${votes[choice]} of ${total} votes${own === choice ? ", yours" : ""}`);
    button.addEventListener("click", async () => {
      if (!signedIn()) return;
      if (await send("POST", `api/matches/${meta.id}/votes`, { choice })) {
        try { storage.setItem(voteKey(meta.id), choice); } catch { /* it is counted all the same */ }
        toast("Your vote is counted within seconds.");
        draw(MATCH, MATCH.bodies);
      } else MATCH.recalled = null;
    });
    return button;
  });
  return el("div", { className: "card votes" }, ...bars, hint);
}

function voteKey(match) { return `league:vote:${state.me?.user_id ?? "anonymous"}:${match}`; }

function commentForm(match) {
  const text = el("input", { name: "text", maxLength: 500, required: true, placeholder: "write a comment" });
  const form = el("form", { className: "line" }, text, el("button", {}, "Send"));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (signedIn() && await send("POST", `api/matches/${match}/comments`, { text: text.value })) {
      text.value = "";
      poll();
    }
  });
  return form;
}

function drawOpen([rows, placed]) {
  if (!rows?.length) return empty("No match can be predicted at the moment.");
  const mine = new Map((placed ?? []).map((row) => [row.id, row.prediction]));
  return el("div", { className: "grid" }, ...rows.map((row) => predictionForm(row, mine.get(row.id))));
}

function predictionForm(row, placed) {
  const goals = ["home_goals", "away_goals"].map((name, place) => {
    const input = el("input", { name, type: "number", min: 0, max: 99, required: true, inputMode: "numeric", value: placed?.[place] ?? "" });
    input.setAttribute("aria-label", `Goals of ${place ? row.away : row.home}`);
    return input;
  });
  const left = el("b", {}, countdown(row.kickoff)), others = row.predictions ? ` · predicted by ${row.predictions}` : "";
  left.dataset.until = row.kickoff;
  const form = el("form", { className: "card predict" }, side(row.home), side(row.away),
    el("div", { className: "line" }, goals[0], ":", goals[1], el("button", {}, placed ? "Change" : "Predict")),
    el("p", { className: "muted" }, when(row.kickoff), " · closes in ", left, others));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const score = Object.fromEntries(goals.map((input) => [input.name, Number(input.value)]));
    if (signedIn() && await send("PUT", `api/me/predictions/${row.id}`, score)) {
      toast(`${row.home} ${score.home_goals} : ${score.away_goals} ${row.away}. Good luck!`);
      MATCH.recalled = null;
      poll();
    }
  });
  return form;
}

function drawMine([rows]) {
  if (!rows) return empty("Sign in to see your predictions.");
  if (!rows.length) return empty("You have not predicted a match yet.");
  const lines = rows.map((row) => ({
    match: `${row.home} – ${row.away}`, prediction: row.prediction.join(" : "), result: row.score?.join(" : ") ?? "",
    points: row.points ?? "",
  }));
  return table(lines, { Match: "match", Prediction: "prediction", Result: "result", Points: "points" });
}

function drawProfile([earned, predictions, place]) {
  if (!state.me || !predictions) return empty("Sign in to see your profile.");
  const badges = (earned?.achievements ?? []).map((name) => el("span", {}, name));
  return el("div", {}, el("div", { className: "card hero big figures" }, el("b", { className: "club" }, crest(state.me.name), state.me.name), figure(place?.points ?? 0, "points"), figure(place?.rank, "all-time place")),
    el("h2", {}, "Achievements"), badges.length ? el("div", { className: "card badges" }, ...badges) : empty("None yet: predict, comment, come back."),
    el("h2", {}, "Predictions"), drawMine([predictions]));
}

function drawTabs() {
  const button = (title, selected, target) => {
    const made = el("button", { type: "button" }, title);
    made.setAttribute("role", "tab");
    made.setAttribute("aria-selected", selected);
    made.addEventListener("click", () => go({ ...target, match: null, club: null, profile: false }));
    return made;
  };
  const elsewhere = state.match || state.club || state.profile;
  document.getElementById("tabs").replaceChildren(...Object.entries(TABS).map(([tab, its]) =>
    button(tab, tab === state.tab && !elsewhere, { tab, part: Object.keys(its)[0], season: null })));
  const parts = elsewhere ? [] : Object.keys(TABS[state.tab]);
  document.getElementById("parts").replaceChildren(...(parts.length < 2 ? [] : parts).map((part) =>
    button(part, part === state.part, { tab: state.tab, part })));
  document.querySelector("#parts [aria-selected=true]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  drawSeasons();
  document.title = state.profile ? "Profile · League" : elsewhere ? "League" : `${state.part} · League`;
}

// --- the session -----------------------------------------------------------------------------------------

async function send(method, path, body, refused = toast) {
  try {
    const headers = body ? { "Content-Type": "application/json" } : {};
    const answer = await fetch(path, { method, headers, body: body && JSON.stringify(body) });
    if (answer.ok) return answer.status === 204 ? {} : await answer.json();
    const problem = await answer.json();
    if (answer.status === 401 && path !== "api/session") { setUser(null); account.showModal(); }
    refused(problem.detail || problem.title);
  } catch { mark.hidden = false; }
  return null;
}

function toast(text) {
  const line = document.getElementById("toast");
  line.textContent = text;
  line.hidden = false;
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => { line.hidden = true; }, 4000);
}

const account = document.getElementById("account");
const form = document.getElementById("sign-in");
const refusal = form.querySelector(".problem");

function signedIn() {
  if (!state.me) account.showModal();
  return Boolean(state.me);
}

function setUser(me) { // all tabs of a browser have the same session
  const before = state.me;
  state.me = me;
  if (before && before.user_id !== me?.user_id) forget((key) => key.startsWith(`league:${before.user_id}:`) || key.startsWith(`league:vote:${before.user_id}:`));
  try { storage.setItem(SIGNED_IN, JSON.stringify(me)); } catch { /* it is known in this tab alone */ }
  document.getElementById("enter").hidden = Boolean(me);
  const line = document.getElementById("me");
  line.hidden = !me;
  line.firstElementChild.textContent = me?.name ?? "";
  document.getElementById("panel").hidden = !["admin", "helper"].includes(me?.role);
}

function registering(yes) {
  form.dataset.registering = yes;
  document.getElementById("account-title").textContent = yes ? "Create an account" : "Sign in";
  form.querySelector("[type=submit]").textContent = yes ? "Create it" : "Sign in";
  document.getElementById("switch").textContent = yes ? "I have an account" : "I have no account yet";
  form.elements.password.autocomplete = yes ? "new-password" : "current-password";
  refusal.hidden = true;
}

document.getElementById("enter").addEventListener("click", () => { registering(false); account.showModal(); });
document.getElementById("close").addEventListener("click", () => account.close());
document.getElementById("switch").addEventListener("click", () => registering(form.dataset.registering !== "true"));
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const given = Object.fromEntries(new FormData(form));
  const show_ = (text) => { refusal.textContent = text; refusal.hidden = false; };
  if (form.dataset.registering === "true" && !await send("POST", "api/users", given, show_)) return;
  const me = await send("POST", "api/session", given, show_);
  if (!me) return;
  setUser(me);
  form.reset();
  account.close();
  show();
});
document.getElementById("sign-out").addEventListener("click", async () => {
  if (await send("DELETE", "api/session")) { setUser(null); show(); }
});

const SIGNED_IN = "league:me";

function known() { try { return JSON.parse(storage.getItem(SIGNED_IN)); } catch { return null; } }

window.addEventListener("storage", ({ key }) => { // signed in or out in another tab
  const me = known();
  if (key === SIGNED_IN && me?.user_id !== state.me?.user_id) { setUser(me); show(); }
});

async function drawAds() { // once per visit: they change rarely
  const kept = snapshot("api/ads");
  const rows = await ask("api/ads").then((answer) => answer.body, () => kept?.body);
  const links = (rows ?? []).map((row) => el("a", { href: row.link, rel: "sponsored noopener" }, row.title));
  document.getElementById("ads").replaceChildren(...links);
}

forget((key) => key.includes("api/") && !recent(key)); // or the storage would be full some day
setUser(known());
show();
drawAds();
if (state.me) ask("api/me").then(() => state.me || show(), () => {}); // the session may have ended in the meantime
