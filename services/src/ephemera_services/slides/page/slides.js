// The page of slides. The current job is in the URL (#job=...&presentation=...), so a reload, a bookmark or
// another tab shows the same; events are replayed from the start, and each is shown once, by its id.
"use strict";

const $ = (selector) => document.querySelector(selector);
const show = (selector, visible) => { $(selector).hidden = !visible; };
const documents = new Map();
let source = null;
let notes = null;

async function ask(path, options = {}) {
  if (options.json) {
    options.body = JSON.stringify(options.json);
    options.headers = { "content-type": "application/json" };
  }
  const response = await fetch(path, { ...options, credentials: "same-origin" });
  if (response.status === 204) return null;
  const body = await response.json();
  if (response.ok) return body;
  if (response.status === 401) signedOut();
  throw new Error(body.detail || body.title);
}

function guarded(work) {
  return async (event) => {
    event.preventDefault();
    $("#message").textContent = "";
    try { await work(event); } catch (problem) { $("#message").textContent = problem.message; }
  };
}

function follow(jobId, onEvent, onEnd) {
  const events = new EventSource(`jobs/${jobId}/events`);
  const seen = new Set();
  events.onmessage = (message) => {
    if (seen.has(message.lastEventId)) return;
    seen.add(message.lastEventId);
    onEvent(JSON.parse(message.data));
  };
  events.addEventListener("snapshot", (message) => onEvent({ event_type: "snapshot", ...JSON.parse(message.data) }));
  events.addEventListener("end", () => { events.close(); onEnd(); });
  return events;
}

function signedOut() {
  show("#work", false);
  show("#sign-in", true);
  show("#sign-out", false);
  if (source) source.close();
  if (notes) notes.close();
  source = notes = null;
}

function signedIn() {
  show("#sign-in", false);
  show("#work", true);
  show("#sign-out", true);
  listen();
  watch();
}

function listen() {
  const address = new URL("notifications", location.href);
  address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
  address.hash = "";
  notes = new WebSocket(address);
  notes.onmessage = (message) => {
    const notification = JSON.parse(message.data).message;
    if (!notification) return;
    const line = document.createElement("li");
    line.textContent = `${notification.about}: ${notification.detail}`;
    $("#notes").prepend(line);
  };
  const mine = notes;
  notes.onclose = () => { if (notes === mine) setTimeout(() => { if (notes === mine) listen(); }, 5000); };
}

function watch() {
  const where = new URLSearchParams(location.hash.slice(1));
  if (source) source.close();
  if (!where.get("job")) return;
  show("#job", true);
  show("#files", false);
  show("#download", false);
  $("#bar").value = 0;
  $("#written").replaceChildren();
  $("#state").textContent = "Waiting for a worker…";
  source = follow(where.get("job"), onProgress, () => {});
}

function onProgress(event) {
  if (event.event_type === "snapshot") {
    if (event.state.last_event) onProgress(event.state.last_event);
    return;
  }
  $("#bar").value = Math.max($("#bar").value, event.progress_pct);
  if (event.event_type === "slide_started") $("#state").textContent = `Writing: ${event.slide_title}`;
  if (event.event_type === "slide_completed") {
    const line = document.createElement("li");
    line.textContent = event.slide_title;
    $("#written").append(line);
  }
  if (event.event_type === "generation_done") {
    $("#state").textContent = "Done.";
    show("#files", true);
  }
  if (event.event_type === "error") $("#state").textContent = event.error_message;
}

$("#sign-in").onsubmit = guarded(async (event) => {
  const form = new FormData(event.target);
  await ask("auth/login", { method: "POST", json: Object.fromEntries(form) });
  event.target.reset();
  signedIn();
});

$("#sign-out").onclick = guarded(async () => {
  await ask("auth/logout", { method: "POST" });
  location.hash = "";
  signedOut();
});

$("#upload").onsubmit = guarded(async (event) => {
  const form = new FormData(event.target);
  const name = form.get("file").name;
  const accepted = await ask("documents", { method: "POST", body: form });
  event.target.reset();
  const line = document.createElement("li");
  line.textContent = `${name}: being read…`;
  $("#documents").append(line);
  follow(accepted.job_id, (event) => {
    const last = event.event_type === "snapshot" ? event.state.last_event : event;
    if (!last) return;
    const failed = last.event_type === "error";
    line.textContent = failed ? `${name}: ${last.error_message}` : `${name}: ready`;
    if (!failed) documents.set(accepted.document_id, name);
  }, () => {});
});

$("#generate").onsubmit = guarded(async (event) => {
  const form = Object.fromEntries(new FormData(event.target));
  const request = { topic: form.topic, slides: Number(form.slides), document_ids: [...documents.keys()] };
  const accepted = await ask("presentations", { method: "POST", json: request });
  location.hash = new URLSearchParams({ job: accepted.job_id, presentation: accepted.presentation_id });
  watch();
});

$("#files").onclick = guarded(async (event) => {
  const format = event.target.dataset.format;
  if (!format) { if (event.target.id === "download") location.assign(event.target.href); return; }
  show("#download", false);
  const presentation = new URLSearchParams(location.hash.slice(1)).get("presentation");
  const accepted = await ask(`presentations/${presentation}/exports`, { method: "POST", json: { format } });
  follow(accepted.job_id, () => {}, async () => {
    const exported = await ask(`exports/${accepted.export_id}`);
    if (exported.state !== "done") { $("#message").textContent = exported.error; return; }
    const link = $("#download");
    link.href = exported.url;
    link.textContent = `Download the ${format.toUpperCase()}`;
    show("#download", true);
  });
});

(async () => { // not by `ask`: a late 401 must not undo a sign-in that was faster
  const response = await fetch("auth/me", { credentials: "same-origin" });
  if (response.ok && !notes) signedIn();
})();
