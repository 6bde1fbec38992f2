"use strict";
// Requests, live events, and small tools of all parts of the page.

const $ = (id) => document.getElementById(id);
const session = { me: null, brand: null, sockets: null };
const canEdit = () => session.me !== null && session.me.role !== "viewer";

class Refused extends Error {
  constructor(status, body) {
    const reasons = (body.errors ?? []).map((each) => each.problem).filter(Boolean).join(" ");
    super(reasons || body.detail || body.title || "That did not work. Please try again.");
    this.status = status;
  }
}

async function request(method, path, body) {
  const options = { method, credentials: "same-origin", cache: "no-store" };
  if (body) Object.assign(options, { body: JSON.stringify(body), headers: { "content-type": "application/json" } });
  try {
    return await fetch(path, options);
  } catch {
    throw new Refused(0, { detail: "There is no connection. Please try again." });
  }
}

async function ask(method, path, body) {
  let response = await request(method, path, body);
  const wait = Number(response.headers.get("retry-after"));
  if (response.status === 429 && method === "GET" && wait > 0 && wait <= 60) { // small plans have few requests a minute
    toast(`Your plan's requests of this minute are used up. Continuing in ${wait} s.`);
    await new Promise((resume) => setTimeout(resume, wait * 1000));
    response = await request(method, path, body);
  }
  if (response.ok) return response.status === 204 ? null : response.json();
  const refused = new Refused(response.status, await response.json().catch(() => ({})));
  if (response.status === 401 && path !== "auth/login") signedOut("Your session has ended. Please sign in again.");
  throw refused;
}

/** Upload a file; `onShare` is called with the part that is sent, 0 to 1. */
function upload(file, onShare) {
  return new Promise((resolve, reject) => {
    const sending = new XMLHttpRequest(); // `fetch` does not report progress
    const form = new FormData();
    form.append("file", file);
    sending.open("POST", "documents");
    sending.responseType = "json";
    sending.upload.onprogress = (event) => onShare(event.loaded / event.total);
    sending.onload = () => sending.status < 300 ? resolve(sending.response)
      : reject(new Refused(sending.status, sending.response ?? {}));
    sending.onerror = () => reject(new Refused(0, { detail: "The upload was interrupted." }));
    sending.send(form);
  });
}

/** Follow a job: its events are replayed from the start, and each is delivered once, by its id. */
function follow(jobId, onEvent, onEnd = () => {}) {
  const events = new EventSource(`jobs/${jobId}/events`);
  const seen = new Set();
  const end = () => { events.close(); onEnd(); };
  events.onmessage = (message) => {
    if (seen.has(message.lastEventId)) return;
    seen.add(message.lastEventId);
    onEvent(JSON.parse(message.data));
  };
  events.addEventListener("snapshot", (message) => onEvent({ event_type: "snapshot", ...JSON.parse(message.data) }));
  events.addEventListener("end", end);
  events.onerror = () => { if (events.readyState === EventSource.CLOSED) end(); }; // it reconnects otherwise
  return events;
}

/** The last event of a job, in an event or a snapshot; undefined before its end. */
function ending(event) {
  const last = event.event_type === "snapshot" ? event.state.last_event : event;
  return ["generation_done", "error"].includes(last?.event_type) ? last : undefined;
}

/** Run a handler; what it is refused is shown in a line, or else as a message. */
function guarded(work, line) {
  return async (event) => {
    event?.preventDefault();
    const button = event?.submitter ?? (event?.type === "click" ? event.currentTarget : null);
    if (button?.ariaBusy === "true") return; // not `disabled`, which would take the focus away
    if (line) line.textContent = "";
    if (button) button.ariaBusy = "true";
    try {
      await work(event);
    } catch (problem) {
      if (!(problem instanceof Refused)) throw problem;
      if (line) line.textContent = problem.message;
      else toast(problem.message, "bad");
    } finally {
      if (button) button.ariaBusy = null;
    }
  };
}

function toast(text, kind = "") {
  const line = el("li", { className: kind }, text);
  $("toasts").append(line);
  setTimeout(() => line.remove(), kind === "bad" ? 9000 : 6000);
}

function confirmed(text, action) {
  $("confirm-text").textContent = text;
  $("confirm-yes").textContent = action;
  const dialog = $("confirm-dialog");
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }));
}

/** An element; `role` and names with a dash are set as attributes, others as properties. */
function el(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "role" || name.includes("-")) made.setAttribute(name, value);
    else made[name] = value;
  }
  made.append(...children);
  return made;
}

function day(text) {
  return new Date(text).toLocaleDateString("en", { day: "numeric", month: "short", year: "numeric" });
}
