"use strict";
// The panel of administrators and helpers. Every screen has an address. Live control keeps what was pressed in a
// queue with an id each, in localStorage: on a bad network it is sent again until it is answered, and counts once.

const content = document.getElementById("content");
const dialog = document.getElementById("dialog");
const offline = document.getElementById("offline");
const state = { me: null, round: 0, timer: 0, socket: null, sending: false, pages: {} };
const REFRESH = 8000, RETRY = 3000; // milliseconds
const PAGE = 100; // rows that a list of the API has at most
const POLLED = new Set(["match", "today"]); // the other screens have forms, whose input a redrawing would lose

const SCREENS = {
  today: { title: "Today", draw: drawToday, helper: true },
  fixtures: { title: "Fixtures", draw: drawFixtures },
  clubs: { title: "Clubs", draw: drawClubs },
  comments: { title: "Comments", draw: drawComments },
  users: { title: "Users", draw: drawUsers },
  ads: { title: "Ads", draw: drawAds },
  history: { title: "History", draw: drawHistory },
  system: { title: "System", draw: drawSystem },
};

// --- elements: never markup from data --------------------------------------------------------------------------

function el(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children.flat().filter((child) => child != null && child !== false));
  return made;
}

function button(text, pressed, className = "") {
  const made = el("button", { type: "button", className }, text);
  made.addEventListener("click", async () => {
    made.disabled = true;
    try { await pressed(); } finally { made.disabled = false; }
  });
  return made;
}

function field(title, name, properties = {}) { return el("label", {}, title, el("input", { name, ...properties })); }

function select(title, name, options, value = "") {
  const made = el("select", { name }, ...options.map(([key, text]) => el("option", { value: key }, text)));
  made.value = value;
  return el("label", {}, title, made);
}

function form(fields, text, submitted, className = "row") {
  const made = el("form", { className }, ...fields, text ? el("button", {}, text) : null);
  made.addEventListener("submit", async (event) => {
    event.preventDefault();
    const pressed = made.querySelector("button:not([type=button])");
    if (pressed) pressed.disabled = true;
    try { await submitted(Object.fromEntries(new FormData(made)), made); } finally { if (pressed) pressed.disabled = false; }
  });
  return made;
}

function time(at) { return new Date(at).toLocaleString([], { dateStyle: "medium", timeStyle: "short" }); }
function local(at) { // for an input of type datetime-local
  const shifted = new Date(new Date(at).getTime() - new Date(at).getTimezoneOffset() * 60000);
  return shifted.toISOString().slice(0, 16);
}
function empty(text) { return el("p", { className: "card empty" }, text); }
function tag(text, kind = "") { return el("span", { className: `tag ${kind}` }, text); }
function statusTag(match) {
  const kind = match.status === "live" ? "live" : ["postponed", "cancelled"].includes(match.status) ? "off" : "";
  return tag(match.status === "live" ? match.phase : match.status, kind);
}

function toast(text) {
  const line = document.getElementById("toast");
  line.textContent = text;
  line.hidden = false;
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => { line.hidden = true; }, 5000);
}

function ask(title, ...children) { // a dialog, with its buttons in a row; closing it changes nothing
  const close = button("Back", () => dialog.close(), "plain");
  const actions = children.filter((each) => each.tagName === "BUTTON");
  dialog.replaceChildren(el("h2", { id: "dialog-title" }, title), ...children.filter((each) => !actions.includes(each)), el("div", { className: "row actions" }, ...actions, close));
  if (!dialog.open) dialog.showModal();
}

function confirmThen(title, text, label, confirmed) {
  ask(title, el("p", {}, text), button(label, async () => { dialog.close(); await confirmed(); }, "danger"));
}

// --- requests ------------------------------------------------------------------------------------------------------

async function call(method, path, body) { // { ok, status, body }; throws without a network
  const headers = body === undefined ? {} : { "Content-Type": "application/json" };
  const answer = await fetch(`api/${path}`, { method, headers, cache: "no-store", body: body === undefined ? undefined : JSON.stringify(body) });
  const text = await answer.text();
  let decoded = null;
  try { decoded = text ? JSON.parse(text) : null; } catch { /* not ours */ }
  if (answer.status === 401 && path !== "session") { setUser(null); show(); }
  return { ok: answer.ok, status: answer.status, body: decoded };
}

function said(answer) {
  const first = answer.body?.errors?.[0];
  return first ? `${first.at.replace("body.", "")}: ${first.problem}` : answer.body?.detail || answer.body?.title || `Error ${answer.status}`;
}

async function change(method, path, body, done = "Saved.") { // what succeeded is drawn again
  try {
    const answer = await call(method, path, body);
    toast(answer.ok ? done : said(answer));
    if (answer.ok) await show(true);
    return answer.ok ? answer.body ?? {} : null;
  } catch { toast("No connection. Nothing was changed; please try again."); return null; }
}

async function load(path) {
  const answer = await call("GET", `admin/${path}`);
  if (!answer.ok) throw new Error(said(answer));
  return answer.body;
}

// As many pages of a list as are wanted, one after the other, and the button for one more.
async function pages(name, path, cursor, title) {
  const wanted = state.pages[path] ?? 1, rows = [];
  for (let page = 0, next = ""; page < wanted; page += 1) {
    const found = (await load(`${path}${next}`))[name];
    rows.push(...found);
    if (found.length < PAGE) return { rows, more: null };
    next = `&${cursor}=${found.at(-1).id}`;
  }
  const more = pad(title, "plain more", () => { state.pages[path] = wanted + 1; return show(true); }, "more");
  return { rows, more };
}

// --- addresses -------------------------------------------------------------------------------------------------------

function address() {
  const [, screen = "today", id] = /^#\/([a-z]+)(?:\/([0-9]+))?$/.exec(location.hash) ?? [];
  return { screen, id };
}

async function show(keepsFocus = false) {
  const round = ++state.round;
  clearTimeout(state.timer);
  drawTabs();
  if (!state.me) return content.replaceChildren(signInForm());
  if (!["admin", "helper"].includes(state.me.role)) return content.replaceChildren(empty("This page is for administrators and helpers of matches."));
  const { screen, id } = address();
  try {
    const drawn = screen === "match" && id ? await drawMatch(id) : await (SCREENS[screen] ?? SCREENS.today).draw();
    if (round !== state.round) return;
    const focused = content.contains(document.activeElement) && document.activeElement.dataset.key;
    const unfolded = keepsFocus ? [...content.querySelectorAll("details[open]")].map((each) => each.dataset.key) : [];
    content.replaceChildren(...[drawn].flat());
    content.querySelectorAll("details").forEach((each) => { each.open = unfolded.includes(each.dataset.key); });
    if (focused) content.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
    else if (!keepsFocus) content.focus({ preventScroll: true });
    content.dataset.screen = screen;
  } catch (error) {
    if (round !== state.round) return;
    if (content.dataset.screen !== screen) content.replaceChildren(empty(error.message || "No connection."));
  }
  if (POLLED.has(screen)) state.timer = setTimeout(() => show(true), REFRESH);
}

function drawTabs() {
  const nav = document.getElementById("tabs");
  const mine = Object.entries(SCREENS).filter(([, its]) => state.me?.role === "admin" || its.helper);
  nav.hidden = mine.length < 2 || !state.me;
  const names = mine.map(([name]) => name);
  if (nav.dataset.names !== `${names}`) nav.replaceChildren(...mine.map(([name, its]) => el("a", { href: `#/${name}` }, its.title)));
  nav.dataset.names = names; // the links stay while they are the same, and with them the focus
  [...nav.children].forEach((link, at) => (names[at] === address().screen ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current")));
  nav.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
}

// --- live control ---------------------------------------------------------------------------------------------------

async function drawToday() {
  const { matches } = await load("matches"); // the live ones, then the nearest
  matches.sort((one, other) => (other.status === "live") - (one.status === "live") || new Date(one.kickoff) - new Date(other.kickoff));
  return [el("h1", {}, "Matches of today"), matches.length ? el("div", { className: "grid" }, ...matches.map(fixtureCard))
    : empty("No match that you can control is played today.")];
}

function fixtureCard(match) {
  const score = ["live", "finished"].includes(match.status) ? `${match.home_goals} : ${match.away_goals}` : "";
  return el("a", { className: "card fixture", href: `#/match/${match.id}` }, el("strong", {}, `${match.home} – ${match.away} ${score}`),
    el("span", { className: "row muted" }, statusTag(match), time(match.kickoff), match.helpers.length ? ` · ${match.helpers.join(", ")}` : ""));
}

const STEPS = { before: ["start", "Start the match"], "first half": ["half-time", "Half-time"], "half-time": ["second half", "Start the second half"], "second half": ["end", "Full time"] };

async function drawMatch(id) {
  const control = await load(`matches/${id}`);
  const { match, teams, events, changes } = control;
  state.control = control;
  const running = match.status === "live";
  const most = match.phase === "first half" ? 45 : 90, added = match.minute - most;
  const clock = running && match.phase.endsWith("half") ? `${added > 0 ? `${most}+${added}` : match.minute}′ · ${match.phase}` : running ? match.phase : match.status;
  const board = el("section", { className: "card board", ariaLabel: "Score" }, el("span", { className: "name" }, match.home),
    el("span", { className: "score" }, running || match.status === "finished" ? `${match.home_goals} : ${match.away_goals}` : "– : –"), el("span", { className: "name" }, match.away),
    el("span", { className: "clock" }, clock));
  const pads = el("section", { className: "pads", ariaLabel: "Live control" });
  if (running) {
    for (const side of ["home", "away"]) pads.append(pad(`Goal ${teams[side].name}`, "goal", () => pick(control, "goal", side), `goal-${side}`));
    for (const side of ["home", "away"]) pads.append(pad(`Card ${teams[side].name}`, "booking", () => pick(control, "card", side), `card-${side}`));
  }
  const step = ["scheduled", "live"].includes(match.status) ? STEPS[match.phase] : null;
  if (step) pads.append(pad(step[1], `wide ${running ? "plain" : ""}`, () => press(control, { kind: step[0] }), "step"));
  const final = match.status === "finished" ? "Correct the result" : "Final result";
  const mayFinalize = state.me.role === "admin" ? !["postponed", "cancelled"].includes(match.status) : running && match.phase === "ended";
  if (mayFinalize) pads.append(pad(final, `wide ${match.phase === "ended" && running ? "" : "plain"}`, () => finalization(match), "final"));
  const recorded = events.length ? el("ul", { className: "list card" }, ...events.map((each) => el("li", {}, el("b", {}, `${each.minute}′`),
    el("span", { className: "grow" }, sign(each.kind), ` ${each.player}, ${each.side === "home" ? match.home : match.away}`)))) : empty("No goals and cards yet.");
  return [el("h1", {}, `${match.home} – ${match.away}`), el("p", { className: "muted row" }, statusTag(match), `${time(match.kickoff)} · ${match.venue}`), board, pads,
    el("h2", {}, "Goals and cards"), recorded, el("h2", {}, "What was done"), changeList(changes)];
}

function folded(key, title, ...children) { // what is open stays open when the screen is drawn again
  const made = el("details", { className: "card" }, el("summary", {}, ...[title].flat()), ...children);
  made.dataset.key = key;
  return made;
}

function pad(text, className, pressed, key) {
  const made = button(text, pressed, className);
  made.dataset.key = key;
  return made;
}

function sign(kind) {
  const made = el("span", { className: kind === "goal" ? "sign" : "sign card_", title: kind });
  made.setAttribute("role", "img");
  made.setAttribute("aria-label", kind);
  return made;
}

function pick(control, kind, side) {
  const team = control.teams[side];
  const chosen = (player) => { dialog.close(); return press(control, { kind, side, ...(player ? { player } : {}) }); };
  const name = form([field("Another name", "player", { maxLength: 100, required: true })], "Record", ({ player }) => chosen(player));
  ask(`${kind === "goal" ? "Goal" : "Card"}: ${team.name}`, el("div", { className: "picks" }, ...team.players.map((player) => button(player, () => chosen(player), "plain")),
    button("Not known", () => chosen(null))), name);
}

// The queue: what was pressed and is not answered yet. An action keeps its id, so it counts once.

const unstored = {}; // where the browser blocks its storage: the queue lasts as long as the page
function queue() {
  const key = `league:queue:${state.me?.user_id}`;
  try { return unstored[key] ?? JSON.parse(localStorage.getItem(key)) ?? []; } catch { return []; }
}
function keep(waiting) {
  const key = `league:queue:${state.me?.user_id}`;
  try { localStorage.setItem(key, JSON.stringify(waiting)); delete unstored[key]; } catch { unstored[key] = waiting; }
}
function identifier() { // crypto.randomUUID exists only over TLS and on this machine
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 15) | 64;
  bytes[8] = (bytes[8] & 63) | 128;
  const hex = [...bytes].map((each) => each.toString(16).padStart(2, "0")).join("");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}

function press(control, action) {
  const minute = action.side && control.match.phase.endsWith("half") ? { minute: control.match.minute } : {};
  keep([...queue(), { match: control.match.id, body: { id: identifier(), seen: control.revision, ...minute, ...action } }]);
  return flush();
}

async function flush() {
  if (state.sending || !state.me) return;
  state.sending = true;
  try {
    for (let waiting = queue(); waiting.length; waiting = queue()) {
      const [first] = waiting;
      const answer = await call("POST", `admin/matches/${first.match}/actions`, first.body);
      if (answer.status >= 500 || answer.status === 429 || answer.status === 401) throw new Error(said(answer));
      keep(queue().filter((each) => each.body.id !== first.body.id));
      if (answer.ok) toast("Recorded.");
      else refused(first, answer);
    }
    offline.hidden = true;
  } catch {
    const number = queue().length;
    offline.textContent = `${number} waiting to be sent`;
    offline.hidden = number === 0;
    setTimeout(flush, RETRY);
  } finally { state.sending = false; }
  await show(true); // what is pressed in the meantime is sent at once
}

function refused(action, answer) {
  const again = (more) => { keep([...queue(), { match: action.match, body: { ...action.body, id: identifier(), ...more } }]); return flush(); };
  if (answer.body?.recorded) {
    ask("Was it another one?", el("p", {}, said(answer)), button("Yes, record mine too", () => { dialog.close(); return again({ seen: answer.body.recorded }); }),
      button("No, it was the same", () => dialog.close(), "plain"));
  } else if (answer.body?.override) {
    ask("Start now?", el("p", {}, said(answer)), form([field("Reason", "note", { maxLength: 100, required: true })], "Start nevertheless",
      ({ note }) => { dialog.close(); return again({ override: true, note }); }, ""));
  } else toast(said(answer));
}

async function finalization(match) {
  const goals = [match.home_goals, match.away_goals];
  const result = el("div", {}, "…");
  const correction = state.me.role === "admin" ? form([field(match.home, "home", { type: "number", min: 0, max: 99, value: goals[0], required: true }),
    field(match.away, "away", { type: "number", min: 0, max: 99, value: goals[1], required: true })], "Preview", ({ home, away }) => preview(Number(home), Number(away))) : null;
  async function preview(home, away) {
    const answer = await call("GET", `admin/matches/${match.id}/finalization?home_goals=${home}&away_goals=${away}`);
    if (!answer.ok) return result.replaceChildren(el("p", { className: "problem" }, said(answer)));
    const found = answer.body;
    const arrow = ([before, after]) => (after < before ? el("b", { className: "up" }, ` ▲ ${after}`) : after > before ? el("b", { className: "down" }, ` ▼ ${after}`) : ` ${after}`);
    const table = found.table.length ? el("table", {}, el("thead", {}, el("tr", {}, ...["Club", "Rank", "Points"].map((each) => el("th", { scope: "col" }, each)))),
      el("tbody", {}, ...found.table.map((row) => el("tr", {}, el("td", {}, row.club), el("td", {}, `${row.rank[0]} →`, arrow(row.rank)), el("td", {}, `${row.points[0]} → ${row.points[1]}`)))))
      : el("p", { className: "muted" }, "The table does not change.");
    const awards = found.awards.filter((each) => each.points[0] !== each.points[1]).map((each) => `${each.name} ${each.points[1]}`).join(", ");
    result.replaceChildren(el("p", { className: "board" }, match.home, el("span", { className: "score" }, `${home} : ${away}`), match.away), table,
      el("p", {}, `${found.predictions} predictions: ${found.exact} exact, ${found.right_winner} with the right winner.`), awards ? el("p", { className: "muted" }, `New points: ${awards}`) : "",
      el("p", { className: "muted" }, `${found.pages.length} pages change at once.`));
    const actions = result.parentElement?.querySelector(".actions"); // unless the dialog has changed since
    actions?.replaceChildren(
      button(`Final: ${home} : ${away}`, async () => {
        dialog.close();
        const override = state.me.role === "admin" && match.status === "scheduled" ? { override: true } : {};
        await change("POST", `admin/matches/${match.id}/finalize`, { home_goals: home, away_goals: away, ...override }, "The result is final. It can be undone.");
      }), actions.lastChild);
  }
  const hint = match.status === "finished" ? el("p", { className: "muted" }, "This corrects the score alone. To add a goal or a card that is missing, first undo the final result below, then record it.") : null;
  ask(`What a final result changes`, ...[hint, correction].filter(Boolean), result);
  await preview(...goals);
}

// --- history -----------------------------------------------------------------------------------------------------------

function changeList(changes) {
  if (!changes.length) return empty("Nothing was done yet.");
  return el("ul", { className: "list card" }, ...changes.map((each) => {
    const detail = each.rows.map(described).filter(Boolean).join("; ");
    return el("li", {}, el("span", { className: "grow" }, el("span", { className: each.undone ? "undone" : "" }, el("b", {}, each.action), detail ? ` · ${detail}` : ""),
      el("span", { className: "muted" }, ` ${each.by}, ${time(each.at)}${each.note ? ` · ${each.note}` : ""}`),
      each.match_id && address().screen === "history" ? [" · ", el("a", { href: `#/match/${each.match_id}` }, `match ${each.match_id}`)] : null),
      each.undoable ? pad("Undo", "plain", () => change("POST", `admin/changes/${each.id}/undo`, undefined, "Undone."), `undo-${each.id}`) : each.undone ? tag("undone", "off") : null);
  }));
}

const HIDDEN = new Set(["phase_since", "match_id", "ended_at", "minute"]);
function described(row) {
  const added = Object.entries(row.added ?? {}).map(([name, by]) => `${name.replace("_", " ")} ${by > 0 ? "+" : ""}${by}`);
  const before = row.before ?? {}, after = row.after ?? {};
  const names = Object.keys(row.before && row.after ? after : {}).filter((name) => !HIDDEN.has(name) && before[name] !== after[name]);
  const written = (name, value) => (value == null ? "–" : name === "kickoff" ? time(value) : value);
  const set = names.map((name) => `${name.replace("_", " ")} ${written(name, before[name])} → ${written(name, after[name])}`);
  const whole = row.before && row.after ? [] : [(row.after ?? row.before)?.text ?? (row.after ?? row.before)?.name ?? (row.after ?? row.before)?.player ?? (row.after ?? row.before)?.title ?? ""];
  return [...added, ...set, ...whole].filter(Boolean).join(", ");
}

async function drawHistory() {
  const { rows: changes, more } = await pages("changes", "changes?", "before", "Older");
  return [el("h1", {}, "History"), el("p", { className: "muted" }, "Everything that was changed here. An undo is a change too, and can be undone."), changeList(changes), more].filter(Boolean);
}

// --- fixtures and clubs ------------------------------------------------------------------------------------------------

async function drawFixtures() {
  const wanted = state.fixtures ?? { season: "", since: local(Date.now() - 3 * 86400000).slice(0, 10) };
  const since = `since=${wanted.since ? new Date(`${wanted.since}T00:00`).toISOString() : "2000-01-01T00:00:00Z"}`;
  const [{ rows: matches, more }, { clubs }, { users }, competitions] = await Promise.all([pages("matches", `matches?${since}${wanted.season ? `&season_id=${wanted.season}` : ""}`, "after", "More"), load("clubs"), load("users?role=helper"), call("GET", "seasons")]);
  const seasons = (competitions.body ?? []).flatMap((each) => each.seasons.map((season) => [season.id, `${each.competition} ${season.name}`, season.status]));
  const options = clubs.map((each) => [each.id, each.name]);
  const current = seasons.find(([, , status]) => status === "current") ?? seasons[0];
  const made = form([select("Season", "season_id", seasons, current?.[0]), select("Home", "home_id", options, options[0]?.[0]), select("Away", "away_id", options, options[1]?.[0]), field("Kick-off", "kickoff", { type: "datetime-local", required: true }),
    field("Venue", "venue", { required: true, maxLength: 100 }), field("Stage", "stage", { value: "league", required: true, maxLength: 100 }), field("Round", "round", { type: "number", min: 1, max: 999, value: 1, required: true })],
  "Create", (given) => change("POST", "admin/matches", { ...given, kickoff: new Date(given.kickoff).toISOString(), season_id: Number(given.season_id), home_id: Number(given.home_id), away_id: Number(given.away_id), round: Number(given.round) }, "The fixture is in the schedule."));
  const filter = form([select("Of the season", "season", [["", "all"], ...seasons], wanted.season), field("From", "since", { type: "date", value: wanted.since })], "Show", (given) => { state.fixtures = given; return show(true); });
  return [el("h1", {}, "Fixtures"), seasonList(competitions.body ?? []), folded("fixture", "New fixture", made), filter,
    !matches.length ? empty("No fixture from this day on.") : el("ul", { className: "list card" }, ...matches.map((match) => el("li", {}, el("span", { className: "grow" }, el("a", { href: `#/match/${match.id}` }, el("b", {}, `${match.home} – ${match.away}`)),
      el("span", { className: "muted" }, ` ${time(match.kickoff)} · ${match.venue}${match.helpers.length ? ` · ${match.helpers.join(", ")}` : ""}`)), statusTag(match), ...fixtureButtons(match, users)))), more].filter(Boolean);
}

function seasonList(competitions) {
  const start = (season, title) => button("Start", () => confirmThen("Start the season?", `${title} becomes the season that everyone sees, and the one before is past. The history can undo it.`, "Start the season",
    () => change("POST", `admin/seasons/${season.id}/start`, undefined, "The season has begun.")), "plain");
  const line = (season, title) => el("li", {}, el("span", { className: "grow" }, title), tag(season.status, season.status === "past" ? "off" : ""), season.status === "upcoming" ? start(season, title) : null);
  const known = competitions[0]?.competition ?? "";
  return folded("seasons", "Seasons",
    el("ul", { className: "list" }, ...competitions.flatMap((each) => each.seasons.map((season) => line(season, `${each.competition} ${season.name}`)))),
    form([field("Competition", "competition", { value: known, required: true, maxLength: 100 }), field("New season", "name", { required: true, maxLength: 100, placeholder: "2027/28" })], "Create",
      (given) => change("POST", "admin/seasons", given, "Created. Plan its fixtures, then start it.")));
}

function fixtureButtons(match, helpers) {
  if (match.status === "finished" || match.status === "cancelled") return [];
  const path = `admin/matches/${match.id}`;
  const assign = button("Helpers", () => {
    const boxes = helpers.map((each) => {
      const box = el("input", { type: "checkbox", name: String(each.id), checked: match.helpers.includes(each.name) });
      return el("label", { className: "row" }, box, each.name);
    });
    ask("Helpers of this match", el("p", { className: "muted" }, "Without any, every helper may control it on its day."), form(boxes.length ? boxes : [el("p", {}, "There are no helpers: give the role to users.")], "Assign",
      (given) => { dialog.close(); return change("PUT", `${path}/helpers`, { user_ids: Object.keys(given).map(Number) }); }, ""));
  }, "quiet");
  const cancel = button("Cancel", () => confirmThen("Cancel the match?", `${match.home} – ${match.away}. The history can undo it.`, "Cancel the match", () => change("POST", `${path}/cancel`, undefined, "Cancelled.")), "quiet");
  if (match.status === "live") return [assign, cancel];
  const move = button("Move", () => ask("Move the match", form([field("Kick-off", "kickoff", { type: "datetime-local", value: local(match.kickoff), required: true }), field("Venue", "venue", { value: match.venue, required: true, maxLength: 100 })],
    "Move", ({ kickoff, venue }) => { dialog.close(); return change("PUT", `${path}/fixture`, { kickoff: new Date(kickoff).toISOString(), venue }, "Moved."); }, "")), "quiet");
  return [move, match.status === "scheduled" ? button("Postpone", () => change("POST", `${path}/postpone`, undefined, "Postponed."), "quiet") : null, assign, cancel];
}

async function drawClubs() {
  const { clubs } = await load("clubs");
  const card = (club) => folded(`club-${club.id}`, [`${club.name} `, tag(`${club.players.length} players`)],
    form([field("Name", "name", { value: club.name, required: true, maxLength: 100 })], "Rename", ({ name }) => change("PUT", `admin/clubs/${club.id}`, { name })),
    el("ul", { className: "list" }, ...club.players.map((each) => el("li", {}, form([field("No.", "number", { type: "number", min: 1, max: 999, value: each.number ?? "" }), field("Player", "name", { value: each.name, required: true, maxLength: 100 })], "Save",
      ({ name, number }) => change("PUT", `admin/players/${each.id}`, { name, number: number ? Number(number) : null })), button("Remove", () => change("DELETE", `admin/players/${each.id}`, undefined, "Removed. The history can undo it."), "quiet")))),
    form([field("No.", "number", { type: "number", min: 1, max: 999 }), field("New player", "name", { required: true, maxLength: 100 })], "Add", ({ name, number }) => change("POST", `admin/clubs/${club.id}/players`, { name, number: number ? Number(number) : null })),
    button("Remove the club", () => change("DELETE", `admin/clubs/${club.id}`, undefined, "Removed. The history can undo it."), "danger"));
  return [el("h1", {}, "Clubs"), form([field("New club", "name", { required: true, maxLength: 100 })], "Create", ({ name }) => change("POST", "admin/clubs", { name })), el("div", { className: "grid" }, ...clubs.map(card))];
}

// --- people ---------------------------------------------------------------------------------------------------------------

async function drawComments() {
  const search = state.comments ?? "";
  const { rows: comments, more } = await pages("comments", `comments?search=${encodeURIComponent(search)}`, "before", "Older");
  return [el("h1", {}, "Comments"), form([field("Search", "search", { value: search, maxLength: 100 })], "Search", ({ search: text }) => { state.comments = text; return show(true); }),
    comments.length ? el("ul", { className: "list card" }, ...comments.map((each) => el("li", {}, el("span", { className: "grow" }, each.text, el("br"), el("span", { className: "muted" }, `${each.by}, ${time(each.at)} · ${each.match}`)),
      button("Remove", () => change("DELETE", `admin/comments/${each.id}`, undefined, "Removed. The history can undo it."), "plain"),
      button("Erase", () => confirmThen("Erase the comment?", "Its text is not kept: this cannot be undone.", "Erase", () => change("DELETE", `admin/comments/${each.id}?erase=true`, undefined, "Erased.")), "danger"))))
      : empty(search ? "No comment is like this." : "No one has written a comment yet."), more].filter(Boolean);
}

async function drawUsers() {
  const wanted = state.users ?? { search: "", role: "" };
  const { rows: users, more } = await pages("users", `users?search=${encodeURIComponent(wanted.search)}${wanted.role ? `&role=${wanted.role}` : ""}`, "before", "Older");
  const roles = [["user", "user"], ["helper", "match helper"], ["admin", "administrator"]];
  return [el("h1", {}, "Users"), form([field("Name", "search", { value: wanted.search, maxLength: 100 }), select("Role", "role", [["", "any"], ...roles], wanted.role)], "Search", (given) => { state.users = given; return show(true); }),
    el("ul", { className: "list card" }, ...users.map((each) => {
      const own = String(each.id) === state.me.user_id;
      const role = select("Role", "role", roles, each.role);
      role.lastChild.disabled = own;
      role.lastChild.addEventListener("change", () => change("PUT", `admin/users/${each.id}`, { role: role.lastChild.value }, "Their sessions have ended."));
      return el("li", {}, el("span", { className: "grow" }, el("b", {}, each.name), " ", each.blocked ? tag("blocked", "off") : null, el("br"), el("span", { className: "muted" }, `${each.predictions} predictions, ${each.comments} comments, since ${time(each.created_at)}`)), role,
        own ? null : each.blocked ? button("Unblock", () => change("PUT", `admin/users/${each.id}`, { blocked: false }), "plain") : button("Block", () => change("PUT", `admin/users/${each.id}`, { blocked: true }, "Blocked: their sessions have ended."), "danger"));
    })), more].filter(Boolean);
}

async function drawAds() {
  const answer = await call("GET", "ads");
  const fields = (ad) => [field("Title", "title", { value: ad.title ?? "", required: true, maxLength: 100 }), field("Link", "link", { value: ad.link ?? "https://", required: true, pattern: "https://.+", maxLength: 300 }), field("Position", "position", { type: "number", min: 0, max: 1000, value: ad.position ?? 0 })];
  const read = (given) => ({ ...given, position: Number(given.position) });
  return [el("h1", {}, "Advertisements"), el("ul", { className: "list card" }, ...(answer.body ?? []).map((ad) => el("li", {}, form(fields(ad), "Save", (given) => change("PUT", `admin/ads/${ad.id}`, read(given))),
    button("Remove", () => change("DELETE", `admin/ads/${ad.id}`, undefined, "Removed. The history can undo it."), "quiet"))), el("li", {}, form(fields({}), "Add", (given) => change("POST", "admin/ads", read(given)))))];
}

async function drawSystem() {
  const [report, { resources }] = await Promise.all([load("monitoring"), load("cache")]);
  const size = (bytes) => (bytes ? `${(bytes / 1048576).toFixed(1)} MB` : "no limit");
  const sql = report.database;
  const figures = { "hit ratio of pages": `${(100 * report.pages.hit_ratio).toFixed(1)} %`, "p95": `${report.http.p95.toFixed(0)} ms`, "p99": `${report.http.p99.toFixed(0)} ms`, requests: report.http.requests, errors: report.http.errors, "votes waiting": report.votes_waiting ?? "–",
    "Redis memory": report.redis ? size(report.redis.used_memory) : "down", "Redis limit": report.redis ? size(report.redis.max_memory) : "–", evicted: report.redis?.evicted_keys ?? "–",
    "Redis clients": report.redis?.connected_clients ?? "–", "queries per second": sql.queries_per_second.toFixed(1), "waits for SQL connections": sql.connection_waits, "slow queries": sql.slow_queries };
  const slow = sql.slow_statements.map((each) => el("tr", {}, el("td", {}, el("code", {}, each.statement)), el("td", {}, each.count), el("td", {}, `${each.slowest.toFixed(0)} ms`)));
  const rows = resources.map((each) => el("tr", {}, el("td", {}, el("code", {}, each.pattern), el("br"), el("span", { className: "muted" }, each.purpose)), el("td", {}, each.hits), el("td", {}, each.misses), el("td", {}, form(each.fields.map((name) => field(name, name, { required: true, maxLength: 20, size: 6 })), "Reload",
    (given) => change("POST", "admin/cache/invalidate", { pattern: each.pattern, fields: given }, "It is loaded again at the next request.")))));
  return [el("h1", {}, "System"), ...report.advice.map((text) => el("p", { className: "card warn" }, text)), el("div", { className: "figures" }, ...Object.entries(figures).map(([name, value]) => el("div", {}, el("b", {}, value), el("span", { className: "muted" }, name)))),
    ...(slow.length ? [el("h2", {}, "Slow queries"), el("div", { className: "scroll card" }, el("table", {}, el("thead", {}, el("tr", {}, ...["Statement", "Times", "Slowest"].map((each) => el("th", { scope: "col" }, each)))), el("tbody", {}, ...slow)))] : []),
    el("h2", {}, "Cache"), el("div", { className: "row" }, button("Prewarm pages", () => change("POST", "admin/prewarm", undefined, "Prewarmed.")), button("Compute leaderboards", () => change("POST", "admin/leaderboards", undefined, "Computed."), "plain")),
    el("div", { className: "scroll card" }, el("table", {}, el("thead", {}, el("tr", {}, ...["Page", "Hits", "Misses", ""].map((each) => el("th", { scope: "col" }, each)))), el("tbody", {}, ...rows)))];
}

// --- the session -------------------------------------------------------------------------------------------------------------

function setUser(me) {
  state.me = me;
  const line = document.getElementById("me");
  line.hidden = !me;
  line.querySelector("b").textContent = me?.name ?? "";
  line.querySelector(".role").textContent = { admin: "administrator", helper: "match helper" }[me?.role] ?? "";
  state.socket?.close();
  state.socket = null;
  if (me && me.role !== "user") listen();
}

function listen() { // what others do is drawn at once; without a socket, at the next refresh
  const base = new URL("ws/admin", document.baseURI);
  base.protocol = base.protocol === "https:" ? "wss:" : "ws:";
  const socket = new WebSocket(base);
  state.socket = socket;
  socket.addEventListener("message", () => {
    if (POLLED.has(address().screen) && !dialog.open) show(true);
  });
  socket.addEventListener("close", () => setTimeout(() => { if (state.socket === socket && state.me) listen(); }, REFRESH));
}

function signInForm() {
  const refusal = el("p", { className: "problem", role: "alert", hidden: true });
  return form([el("h1", {}, "Sign in"), field("Name", "name", { autocomplete: "username", required: true }), field("Password", "password", { type: "password", autocomplete: "current-password", required: true }), refusal], "Sign in", async (given) => {
    const answer = await call("POST", "session", given).catch(() => null);
    refusal.textContent = answer ? said(answer) : "No connection.";
    refusal.hidden = answer?.ok ?? false;
    if (answer?.ok) { setUser(answer.body); await show(); flush(); }
  }, "card narrow");
}

document.getElementById("sign-out").addEventListener("click", async () => { if ((await call("DELETE", "session")).ok) { setUser(null); show(); } });
window.addEventListener("hashchange", () => { if (dialog.open) dialog.close(); state.pages = {}; show(); });
document.addEventListener("visibilitychange", () => { if (!document.hidden && POLLED.has(address().screen)) show(true); });
call("GET", "me").then((answer) => { setUser(answer.ok ? answer.body : null); show(); flush(); }, () => content.replaceChildren(empty("No connection. Reload the page when there is one.")));
