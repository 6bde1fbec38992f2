"use strict";
// The league's page. A tab requests its data when it is opened and polls while it is visible: every 4 s for
// live data, every 20 s otherwise, every 60 s while the page is hidden. The last response is kept in
// localStorage with its ETag: a 304 changes nothing on the screen, and without a network the last snapshot is
// shown and marked as stale.

const LIVE = 4000, QUIET = 20000, HIDDEN = 60000; // milliseconds from one poll to the next
const OLDEST = 14 * 24 * 3600 * 1000; // milliseconds after which a snapshot is not shown
const STALE = 10; // seconds after its expiry from which a page is marked as stale

const TABS = {
  Live: { Matches: { every: LIVE, paths: () => ["api/matches/live"], draw: drawLive } },
  League: {
    Table: { every: QUIET, paths: () => ["api/league/table"], draw: ([rows]) => table(rows, TABLE) },
    Schedule: { every: QUIET, paths: () => ["api/league/schedule"], draw: ([rows]) => matchList(rows) },
    Results: { every: QUIET, paths: () => ["api/league/results"], draw: ([rows]) => matchList(rows) },
    Stats: { every: QUIET, paths: () => ["api/league/stats"], draw: drawStats },
    Cup: { every: QUIET, paths: () => ["api/league/bracket"], draw: drawCup },
  },
  Predictions: {
    Open: { every: QUIET, paths: () => ["api/predictions"], draw: drawOpen },
    Mine: { every: QUIET, paths: () => ["api/me/predictions"], draw: drawMine },
  },
  Leaders: {
    Season: { every: QUIET, paths: () => ["api/leaderboards/season"], draw: ([rows]) => table(rows, BOARD) },
    Week: { every: QUIET, paths: () => ["api/leaderboards/week"], draw: ([rows]) => table(rows, BOARD) },
  },
};
const TABLE = { "#": "place", Club: "club", P: "played", W: "won", D: "drawn", L: "lost", Points: "points" };
const BOARD = { "#": "place", Name: "name", Points: "points", Exact: "exact" };

const state = { tab: "League", part: "Table", match: null, timer: 0, me: null, round: 0 };
const content = document.getElementById("content");
const mark = document.getElementById("mark");

// --- requests and snapshots -------------------------------------------------------------------------------

function snapshot(path) {
  try {
    const kept = JSON.parse(localStorage.getItem(keyOf(path)));
    return kept && Date.now() - kept.at < OLDEST ? kept : null;
  } catch { return null; }
}

function keyOf(path) { // a private page's snapshot belongs to its user
  return path.startsWith("api/me") ? `league:${state.me?.user_id ?? "anonymous"}:${path}` : `league:${path}`;
}

// Returns { body, changed, stale } of a path. Throws if the network or the server fails.
async function ask(path) {
  const known = snapshot(path);
  const headers = known ? { "If-None-Match": known.etag } : {};
  const response = await fetch(path, { cache: "no-store", headers });
  const late = Number(/ttl=(-\d+)/.exec(response.headers.get("cache-status") ?? "")?.[1] ?? 0);
  const stale = late < -STALE;
  if (response.status === 304 && known) return { body: known.body, changed: false, stale };
  if (response.status === 404 || response.status === 401) return { body: null, changed: true, stale: false };
  if (response.status !== 200) throw new Error(`${path}: ${response.status}`);
  const body = await response.json();
  const kept = JSON.stringify({ etag: response.headers.get("etag"), body, at: Date.now() });
  try { localStorage.setItem(keyOf(path), kept); } catch { /* full: it is requested again */ }
  return { body, changed: true, stale };
}

// --- the poll ------------------------------------------------------------------------------------------

function shown() { return TABS[state.tab][state.part]; }

function interval() { return document.hidden ? HIDDEN : state.match ? LIVE : shown().every; }

function schedule() {
  clearTimeout(state.timer);
  document.body.dataset.every = interval();
  // Jitter, so that thousands of pages do not poll at the same time.
  state.timer = setTimeout(poll, interval() * (0.9 + 0.2 * Math.random()));
}

async function poll() {
  const round = state.round;
  const view = state.match ? MATCH : shown();
  try {
    const answers = await Promise.all(await view.fetch?.() ?? view.paths().map(ask));
    if (round !== state.round) return; // another tab was opened
    if (answers.some((each) => each.changed) || !content.dataset.drawn) {
      draw(view, answers.map((each) => each.body));
    }
    mark.hidden = !answers.some((each) => each.stale);
  } catch {
    if (round !== state.round) return;
    mark.hidden = false; // keep what is on the screen
  }
  schedule();
}

function draw(view, bodies) {
  const written = content.querySelector("input[name=text]"); // keep a comment that is being written
  const focused = written && written === document.activeElement;
  content.replaceChildren(view.draw(bodies));
  const again = content.querySelector("input[name=text]");
  if (written && again) {
    again.value = written.value;
    if (focused) again.focus();
  }
  content.dataset.drawn = Number(content.dataset.drawn || 0) + 1;
}

function open(tab, part, match = null) {
  Object.assign(state, { tab, part, match, round: state.round + 1 });
  content.replaceChildren();
  delete content.dataset.drawn;
  drawTabs();
  const view = match ? MATCH : shown();
  const kept = view.paths().map(snapshot); // immediately, before the network answers
  if (kept.every(Boolean)) draw(view, kept.map((each) => each.body));
  poll();
}

document.addEventListener("visibilitychange", () => document.hidden ? schedule() : poll());

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
    const found = await Promise.all(parts);
    this.seen = { match: state.match, body: versions.body };
    found[0] = { ...found[0], stale: found[0].stale || versions.stale };
    return found;
  },
  draw: drawMatch,
};

// --- drawing: elements alone, never markup from data --------------------------------------------------------

function el(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children.filter((child) => child != null));
  return made;
}

function table(rows, columns) {
  const number = (name) => (typeof rows?.[0]?.[name] === "number" ? "number" : "");
  const head = Object.entries(columns).map(([title, name]) => el("th", { className: number(name) }, title));
  const lines = (rows ?? []).map((row) =>
    el("tr", {}, ...Object.values(columns).map((name) => el("td", { className: number(name) }, row[name]))));
  return el("table", {}, el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...lines));
}

function matchList(rows) {
  if (!rows?.length) return el("p", {}, "Nothing here at the moment.");
  return el("ul", {}, ...rows.map((row) => {
    const when = new Date(row.kickoff).toLocaleString([], { dateStyle: "short", timeStyle: "short" });
    const score = row.score ? `${row.score[0]} : ${row.score[1]}` : "– : –";
    const link = el("button", { type: "button" }, `${row.home} ${score} ${row.away}`);
    link.addEventListener("click", () => open(state.tab, state.part, row.id));
    return el("li", {}, `${when} `, link, row.minute ? ` ${row.minute}′` : null);
  }));
}

function drawLive([rows]) {
  return rows?.length ? matchList(rows) : el("p", {}, "No match is live.");
}

function drawStats([stats]) {
  const scorers = table(stats.scorers, { Player: "player", Club: "club", Goals: "goals" });
  return el("div", {}, el("p", {}, `${stats.played} matches, ${stats.goals} goals`), scorers);
}

function drawCup([rounds]) {
  return el("div", {}, ...rounds.map((each) => el("section", {}, el("h2", {}, each.round), matchList(each.matches))));
}

function drawMatch([meta, live, comments]) {
  if (!meta) return el("p", {}, "There is no such match.");
  const score = live ? `${live.score[0]} : ${live.score[1]}` : "– : –";
  const title = el("h2", {}, `${meta.home} – ${meta.away}`);
  const under = el("p", {}, el("span", { className: "score" }, score), ` ${live ? `${live.status} ${live.minute}′` : ""}`);
  const events = (live?.events ?? []).map((each) => el("li", {}, `${each.minute}′ ${each.kind}: ${each.player}`));
  const votes = ["home", "draw", "away"].map((choice) => {
    const button = el("button", { type: "button" }, `${choice}: ${live?.votes[choice] ?? 0}`);
    button.addEventListener("click", () => send("POST", `api/matches/${meta.id}/votes`, { choice }));
    return button;
  });
  const said = (comments ?? []).map((each) => el("p", {}, el("b", {}, each.by), ` ${each.text}`));
  return el("article", {}, title, under, el("ul", {}, ...events), el("p", {}, "Who wins? ", ...votes),
    el("div", { className: "comments" }, ...said), commentForm(meta.id));
}

function commentForm(match) {
  const text = el("input", { name: "text", maxLength: 500, required: true, placeholder: "write a comment" });
  const form = el("form", {}, text, el("button", {}, "Send"));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (await send("POST", `api/matches/${match}/comments`, { text: text.value })) {
      text.value = "";
      poll();
    }
  });
  return form;
}

function drawOpen([rows]) {
  if (!rows?.length) return el("p", {}, "No match can be predicted at the moment.");
  return el("div", {}, ...rows.map((row) => {
    const goals = ["home_goals", "away_goals"].map((name) =>
      el("input", { name, type: "number", min: 0, max: 99, required: true, size: 2 }));
    const form = el("form", {}, `${row.home} – ${row.away} `, ...goals, el("button", {}, "Predict"));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const score = Object.fromEntries(goals.map((input) => [input.name, Number(input.value)]));
      send("PUT", `api/me/predictions/${row.id}`, score);
    });
    return form;
  }));
}

function drawMine([rows]) {
  if (!rows) return el("p", {}, "Sign in to see your predictions.");
  const lines = rows.map((row) => ({
    match: `${row.home} – ${row.away}`, prediction: row.prediction.join(" : "), points: row.points ?? "",
  }));
  return table(lines, { Match: "match", Prediction: "prediction", Points: "points" });
}

function drawTabs() {
  const [tabs, parts] = document.querySelectorAll("nav");
  const button = (title, selected, go) => {
    const made = el("button", { type: "button" }, title);
    made.setAttribute("role", "tab");
    made.setAttribute("aria-selected", selected);
    made.addEventListener("click", go);
    return made;
  };
  tabs.replaceChildren(...Object.entries(TABS).map(([tab, its]) =>
    button(tab, tab === state.tab, () => open(tab, Object.keys(its)[0]))));
  parts.replaceChildren(...Object.keys(TABS[state.tab]).map((part) =>
    button(part, part === state.part && !state.match, () => open(state.tab, part))));
}

// --- the session -----------------------------------------------------------------------------------------

async function send(method, path, body) {
  try {
    const headers = body ? { "Content-Type": "application/json" } : {};
    const answer = await fetch(path, { method, headers, body: body && JSON.stringify(body) });
    if (answer.ok) return answer.status === 204 ? {} : await answer.json();
    const problem = await answer.json();
    alert(problem.detail || problem.title);
  } catch { mark.hidden = false; }
  return null;
}

function setUser(me) {
  state.me = me;
  try { sessionStorage.setItem("league:me", JSON.stringify(me)); } catch { /* it is requested again */ }
  document.getElementById("sign-in").hidden = Boolean(me);
  const line = document.getElementById("me");
  line.hidden = !me;
  line.firstElementChild.textContent = me?.name ?? "";
}

document.getElementById("sign-in").addEventListener("submit", async (event) => {
  event.preventDefault();
  const form = new FormData(event.target);
  const me = await send("POST", "api/session", Object.fromEntries(form));
  if (me) { setUser(me); open(state.tab, state.part, state.match); }
});
document.getElementById("sign-out").addEventListener("click", async () => {
  if (await send("DELETE", "api/session")) { setUser(null); open(state.tab, state.part, state.match); }
});

async function drawAds() { // once per visit: they change rarely
  const kept = snapshot("api/ads");
  const rows = await ask("api/ads").then((answer) => answer.body, () => kept?.body);
  const links = (rows ?? []).map((row) => el("a", { href: row.link, rel: "sponsored noopener" }, row.title));
  document.getElementById("ads").replaceChildren(...links);
}

setUser(JSON.parse(sessionStorage.getItem("league:me") ?? "null"));
open("League", "Table");
drawAds();
