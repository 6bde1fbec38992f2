"use strict";
// A reader of one user's feed. The token is in sessionStorage: other tabs do not have it, and it ends with this
// one. Whatever insights contain is shown as text; the service admits only links of http and https.

const STORED = "feed:reader";
const storage = (() => { try { return window.sessionStorage; } catch { return null; } })(); // null where the browser blocks it
const RETRY = 3000; // milliseconds until a lost stream of events is opened again
const $ = (id) => document.getElementById(id);
const state = { user: "", token: "", cursor: null, version: 0, items: [], events: null };

class Refused extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

async function request(method, path, options = {}) {
  const headers = state.token ? { authorization: `Bearer ${state.token}` } : {};
  let response;
  try {
    response = await fetch(`feed/users/${encodeURIComponent(state.user)}${path}`, { method, headers, cache: "no-store", ...options });
  } catch (failure) {
    if (failure.name === "AbortError") throw failure;
    throw new Refused(0, "There is no connection. Please try again.");
  }
  if (response.ok) return response;
  const problem = await response.json().catch(() => ({}));
  throw new Refused(response.status, problem.detail || "That did not work. Please try again.");
}

function el(tag, properties, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children.filter((each) => each !== null && each !== ""));
  return made;
}

function ago(time) {
  const seconds = Math.max(0, (Date.now() - new Date(time)) / 1000);
  const units = [["day", 86400], ["hour", 3600], ["minute", 60]];
  const [unit, length] = units.find(([, length]) => seconds >= length) ?? ["minute", 60];
  const format = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
  const text = seconds < 60 ? "just now" : format.format(-Math.floor(seconds / length), unit);
  return el("time", { dateTime: time, title: new Date(time).toLocaleString() }, text);
}

const counted = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

function withoutTitle({ title, summary }) { // quoted summaries have the title's sentence, too
  const sentence = /[.!?…。！？]$/.test(title) ? title : `${title}.`;
  return summary.replace(sentence, () => "").replace(/\s+/g, " ").trim();
}

// --- items --------------------------------------------------------------------------------------------------

function draw(item) {
  const card = el("article", { className: item.unread ? "" : "read" });
  const origins = item.sources.length ? item.sources : item.channel_ids;
  const shown = origins.slice(0, 3).join(", ") + (origins.length > 3 ? ` and ${origins.length - 3} more` : "");
  const toggle = el("button", { type: "button", className: "quiet" }, `Show ${counted(item.distinct, "insight")}`);
  const mark = el("button", { type: "button", className: "quiet" }, item.unread ? "Mark as read" : "Mark as unread");
  const list = el("ol", { hidden: true });
  toggle.setAttribute("aria-expanded", "false");
  toggle.addEventListener("click", () => busy(toggle, () => expand(item, toggle, list, card)));
  mark.addEventListener("click", () => busy(mark, () => setRead(item, Boolean(item.unread), card)));
  const news = item.unread && item.unread < item.size ? `${item.unread} unread` : item.new && item.unread ? "New" : "";
  card.append(
    el("h2", {}, item.title),
    el("p", { className: "meta" }, news ? el("span", { className: "tag" }, news) : null, ago(item.newest), el("span", {}, shown)),
    el("p", {}, withoutTitle(item)),
    list,
    el("p", { className: "actions" }, toggle, mark),
  );
  item.card = card;
  return card;
}

async function expand(item, toggle, list, card) {
  if (!list.childElementCount) {
    const { insights } = await (await request("GET", `/items/${item.item_id}/insights?version=${item.version}`)).json();
    list.append(...insights.map((each) => {
      const text = each.url ? el("a", { href: each.url, target: "_blank", rel: "noopener noreferrer" }, each.text) : each.text;
      const same = each.duplicate_ids.length;
      return el("li", { lang: each.language ?? "" }, el("p", {}, text),
        el("p", { className: "meta" }, el("span", {}, each.source ?? each.channel_id), ago(each.published_at ?? each.ts),
          same ? el("span", {}, `and ${same} more that ${same === 1 ? "says" : "say"} the same`) : null));
    }));
  }
  list.hidden = !list.hidden;
  toggle.setAttribute("aria-expanded", String(!list.hidden));
  toggle.textContent = list.hidden ? `Show ${counted(item.distinct, "insight")}` : "Hide insights";
  if (!list.hidden && item.unread) await setRead(item, true, card, list, toggle);
}

async function setRead(item, read, card, list = null, toggle = null) {
  await request(read ? "PUT" : "DELETE", `/items/${item.item_id}/read?version=${item.version}`); // not what came since then
  item.unread = read ? 0 : item.insight_ids.length;
  if (list) { // it is being read: it stays open
    card.className = "read";
    card.querySelector(".actions").lastElementChild.textContent = "Mark as unread";
    card.querySelector(".tag")?.remove();
    toggle.focus();
  } else {
    const drawn = draw(item);
    card.replaceWith(drawn);
    drawn.querySelector(".actions").lastElementChild.focus();
    filter();
  }
  about();
}

async function busy(button, work) {
  button.disabled = true;
  $("problem").textContent = "";
  try {
    await work();
  } catch (refused) {
    if (refused.status === 404 || refused.status === 410) await load().catch(failed); // the version has ended
    else failed(refused);
  } finally {
    button.disabled = false;
  }
}

function failed(refused) {
  if (refused.status === 401) signOut(refused.message);
  else $("problem").textContent = refused.message;
}

function filter() {
  for (const item of state.items) item.card.hidden = $("unread-only").checked && !item.unread;
  const visible = state.items.some((item) => !item.card.hidden);
  $("empty").hidden = visible;
  $("empty").textContent = state.items.length ? "You have read everything." : "Nothing yet. Items appear when there is enough to cluster.";
}

function about() {
  const unread = state.items.filter((item) => item.unread).length;
  const omitted = state.omitted ? `, and ${state.omitted} smaller or older ${state.omitted === 1 ? "one" : "ones"} not shown` : "";
  $("about").textContent = state.version ? `${counted(state.items.length, "item")}, ${unread} unread${omitted}` : "";
  document.title = unread ? `(${unread}) Feed` : "Feed";
}

async function load(cursor = null) {
  const { user } = state;
  $("items").setAttribute("aria-busy", "true");
  try {
    const query = cursor ? `?cursor=${encodeURIComponent(cursor)}` : "";
    const feed = await (await request("GET", query)).json();
    if (state.user !== user) return; // signed out in the meantime
    if (!cursor) {
      state.items = [];
      $("items").replaceChildren();
      $("news").hidden = true;
    }
    state.version = feed.cluster_version;
    state.cursor = feed.next_cursor;
    state.omitted = feed.next_cursor ? 0 : feed.omitted; // said after the last page
    for (const item of feed.items) item.version = feed.cluster_version;
    state.items.push(...feed.items);
    $("items").append(...feed.items.map(draw));
    $("more").hidden = !feed.next_cursor;
    about();
    filter();
  } finally {
    $("items").setAttribute("aria-busy", "false");
  }
}

// --- something new --------------------------------------------------------------------------------------------

async function listen() {
  const events = (state.events = new AbortController());
  while (!events.signal.aborted) {
    try {
      const reader = (await request("GET", "/events", { signal: events.signal })).body.pipeThrough(new TextDecoderStream()).getReader();
      for (let text = "", part; !(part = await reader.read()).done;) {
        text += part.value;
        const complete = text.lastIndexOf("\n") + 1;
        for (const found of text.slice(0, complete).matchAll(/"cluster_version":\s*(\d+)/g)) {
          if (Number(found[1]) <= state.version) continue;
          if (state.items.length) $("news").hidden = false;
          else await load(); // nothing is being read that would move
        }
        text = text.slice(complete);
      }
    } catch (refused) {
      if (events.signal.aborted) return;
      if (refused.status === 401) return signOut(refused.message);
    }
    await new Promise((done) => setTimeout(done, RETRY));
  }
}

// --- signing in and out ---------------------------------------------------------------------------------------

async function signIn(user, token) {
  Object.assign(state, { user, token });
  await load();
  storage?.setItem(STORED, JSON.stringify({ user, token }));
  $("sign-in").hidden = true;
  $("feed").hidden = $("who").hidden = false;
  $("who").firstElementChild.textContent = user;
  $("feed").querySelector("h1").focus();
  listen();
}

function signOut(message = "") {
  state.events?.abort();
  storage?.removeItem(STORED);
  Object.assign(state, { user: "", token: "", items: [], version: 0, cursor: null });
  $("items").replaceChildren();
  document.title = "Feed";
  $("feed").hidden = $("who").hidden = $("news").hidden = true;
  $("sign-in").hidden = false;
  $("sign-in").querySelector(".error").textContent = message;
  $("sign-in").querySelector("input").focus();
}

$("sign-in").querySelector("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const form = event.target, { user, token } = Object.fromEntries(new FormData(form));
  form.querySelector(".error").textContent = "";
  form.querySelector("button").disabled = true;
  try {
    await signIn(user, token);
    form.reset();
  } catch (refused) {
    form.querySelector(".error").textContent = refused.message;
  } finally {
    form.querySelector("button").disabled = false;
  }
});
$("sign-out").addEventListener("click", () => signOut());
$("unread-only").addEventListener("change", filter);
$("more").addEventListener("click", () => busy($("more"), () => load(state.cursor)));
$("news").addEventListener("click", () => busy($("news"), async () => {
  await load();
  $("feed").querySelector("h1").focus();
}));

const kept = JSON.parse(storage?.getItem(STORED) ?? "null");
if (kept) signIn(kept.user, kept.token).catch((refused) => signOut(refused.message));
else signOut();
