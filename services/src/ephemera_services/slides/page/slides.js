"use strict";
// The page of slides: its session, its addresses (#/, #/p/ID and #/settings), and notifications. Each address is a
// state that a reload, a bookmark or another tab shows again.

const WHO = "slides:who"; // who signed in here; the session itself is in a cookie that scripts cannot read
const VIEWS = ["sign-in-view", "library-view", "presentation-view", "settings-view"];
const SAMPLES = [
  [{ layout: "chart", title: "Sales by quarter", bullets: [], table: { header: [], rows: [] }, chart: { labels: ["Q1", "Q2", "Q3", "Q4"], is_time: true, low: 0, high: 30,
    series: [{ name: "Sales", values: [12, 17, 21, 30], texts: ["12", "17", "21", "30"], below: [] }] } }, "night"],
  [{ layout: "bullets", title: "What we learned", bullets: ["Humpback whales have recovered", "Right whales have not"] }, "meadow"],
  [{ layout: "title", title: "Whales", bullets: ["A presentation in four parts"] }, "paper"],
];

function show(view) {
  for (const each of VIEWS) $(each).hidden = each !== view;
  window.scrollTo(0, 0);
  $(view).querySelector("h1").focus({ preventScroll: true });
}

async function route() {
  if (!session.me) return;
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
  if (deck.draft && !await keepDraft()) return;
  const found = location.hash.match(/^#\/p\/([0-9a-f-]{36})$/);
  if (found && found[1] === deck.id) return;
  if (found) {
    show("presentation-view");
    await openPresentation(found[1]);
  } else if (location.hash === "#/settings") {
    closePresentation();
    show("settings-view");
    await openSettings();
  } else {
    closePresentation();
    show("library-view");
    openLibrary();
  }
}
window.addEventListener("hashchange", route);

// --- the session ------------------------------------------------------------------------------------------

async function signedIn(me) {
  session.me = me;
  $("account").hidden = false;
  $("who").textContent = localStorage.getItem(WHO) ?? me.role;
  listen();
  if (me.features.includes("brand_kit")) session.brand = await ask("GET", "brand-kit").catch(() => null);
  if (session.me) await route();
}

function signedOut(reason = "") {
  deck.draft = null;
  closePresentation();
  session.sockets?.close();
  Object.assign(session, { me: null, brand: null, sockets: null });
  Object.assign(library, { documents: [], documentTotal: 0, presentations: [], total: 0, asked: library.asked + 1, chosen: new Set() });
  for (const part of ["presentations", "documents", "usage", "settings"]) $(part).replaceChildren(); // the next user may be another one
  $("account").hidden = true;
  $("search").value = "";
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
  if (reason) toast(reason);
  document.title = "Slides";
  if (!$("samples").children.length) $("samples").append(...SAMPLES.map(([slide, theme]) => drawSlide(slide, theme)));
  if ($("sign-in-view").hidden) show("sign-in-view");
}

$("sign-in").addEventListener("submit", guarded(async (event) => {
  const form = Object.fromEntries(new FormData(event.target));
  const account = await ask("POST", "auth/login", form);
  localStorage.setItem(WHO, `${account.email} · ${form.organization}`);
  event.target.reset();
  await signedIn(await ask("GET", "auth/me"));
}, $("sign-in").querySelector(".error")));

$("sign-out").addEventListener("click", guarded(async () => {
  if (deck.draft && !await keepDraft()) return;
  await ask("POST", "auth/logout");
  localStorage.removeItem(WHO);
  history.replaceState(null, "", "#/");
  signedOut("You are signed out.");
}));

// --- notifications ----------------------------------------------------------------------------------------

function listen() {
  const address = new URL("notifications", location.href);
  address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
  address.hash = "";
  const socket = session.sockets = new WebSocket(address);
  socket.onmessage = (message) => {
    const note = JSON.parse(message.data).message;
    if (note) onNotification(note);
  };
  socket.onclose = () => setTimeout(() => { if (session.sockets === socket) listen(); }, 5000);
}

function onNotification(note) {
  const about = note.about[0].toUpperCase() + note.about.slice(1);
  toast(`${about}: ${note.detail}`, note.state === "failed" ? "bad" : "good");
  if (note.about === "presentation" && !$("library-view").hidden) { refreshPresentations(); refreshUsage(); }
}

$("options").open = matchMedia("(min-width: 56rem)").matches; // a phone shows the library sooner
$("present").hidden = !document.fullscreenEnabled;

(async () => { // not by `ask`: a 401 says only that no one is signed in, and must not undo a faster sign-in
  const response = await fetch("auth/me", { credentials: "same-origin", cache: "no-store" }).catch(() => null);
  if (session.me) return;
  if (response?.ok) await signedIn(await response.json());
  else signedOut(response && response.status !== 401 ? "The service is busy. Please try again in a moment." : "");
})();
