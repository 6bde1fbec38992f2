"use strict";
// The library: a form for a new presentation with its sources, and the presentations that exist.

const PAGE = 20;
const STATES = { waiting: "Waiting", running: "Being written", failed: "Failed", dead: "Failed", cancelled: "Cancelled" };
const LANGUAGES = { en: "English", de: "Deutsch", fr: "Français", es: "Español", it: "Italiano", pt: "Português", pl: "Polski",
  cs: "Čeština", uk: "Українська", ru: "Русский", el: "Ελληνικά", tr: "Türkçe", zh: "中文", ja: "日本語" };
const library = { documents: [], documentTotal: 0, chosen: new Set(), presentations: [], total: 0, asked: 0 };

function openLibrary() {
  document.title = "Library · Slides";
  $("generate").hidden = !canEdit();
  $("library-view").classList.toggle("read-only", !canEdit());
  const megabytes = session.me.max_file_size_mb;
  $("file-limit").textContent = `, up to ${megabytes} MB each`;
  refreshPresentations();
  refreshUsage();
  if (canEdit() && !library.documents.length) refreshDocuments();
}

// --- presentations ----------------------------------------------------------------------------------------

const refreshPresentations = guarded(async () => {
  await loadPresentations(0, Math.max(PAGE, Math.min(100, library.presentations.length)));
});

async function loadPresentations(offset, limit = PAGE) {
  const mine = ++library.asked; // an answer to an earlier search must not replace a later one
  const query = new URLSearchParams({ q: $("search").value.trim(), limit, offset });
  const found = await ask("GET", `presentations?${query}`);
  if (mine !== library.asked) return;
  library.presentations = [...library.presentations.slice(0, offset), ...found.presentations];
  library.total = found.total || (offset ? library.total : 0);
  drawPresentations();
}

function drawPresentations() {
  const searched = $("search").value.trim();
  $("presentations").replaceChildren(...library.presentations.map(presentationCard));
  $("more-presentations").hidden = library.presentations.length >= library.total;
  const none = searched ? `Nothing in your library contains “${searched}”.`
    : canEdit() ? "Nothing here yet. Name a topic, and your first presentation is written while you watch."
      : "Nothing here yet. What your colleagues create appears here.";
  $("shelf-state").textContent = library.total ? (searched ? `${library.total} found` : "") : none;
  $("shelf-state").classList.toggle("empty", !library.total);
}

function presentationCard(row) {
  const title = row.title ?? row.topic;
  const cover = drawSlide({ layout: "title", title, bullets: [] }, row.theme);
  cover.setAttribute("aria-hidden", "true");
  const about = [STATES[row.state] ?? `${row.slides} ${row.slides === 1 ? "slide" : "slides"}`, day(row.created_at)];
  const tags = row.shared ? [el("span", { className: "tag" }, "Shared")] : [];
  const state = el("small", { className: `state ${row.state}` }, about.join(" · "));
  return el("li", {}, el("a", { href: `#/p/${row.presentation_id}` }, cover, el("strong", {}, title), state, ...tags));
}

let typing;
$("search").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(guarded(() => loadPresentations(0)), 300);
});
$("more-presentations").addEventListener("click", guarded(() => loadPresentations(library.presentations.length)));

// --- usage ------------------------------------------------------------------------------------------------

async function refreshUsage() {
  let usage;
  try {
    usage = await ask("GET", "usage");
  } catch (problem) {
    if (!(problem instanceof Refused)) throw problem;
    $("usage").replaceChildren(); // Redis is down: the quota is not known
    return;
  }
  const { limits, used, reserved, storage_bytes: stored } = usage;
  const meters = [
    quota("presentations this month", used.presentations + reserved.presentations, limits.max_presentations_per_month),
    quota("AI tokens this month", used.tokens + reserved.tokens, limits.ai_tokens_per_month),
    quota("MB of documents", Math.ceil(stored / 1e6), limits.storage_gb * 1000),
  ];
  const plan = el("p", { className: limits.subscription_status === "past_due" ? "overdue" : "" }, `Plan: ${limits.plan_name}, ${subscription(limits)}`);
  $("usage").replaceChildren(plan, ...meters);
}

function subscription({ subscription_status: status, period_end: end }) {
  const text = { active: "active", trialing: "on trial", past_due: "payment overdue: no new work until it is settled" }[status];
  if (!end) return text;
  return new Date(end) < new Date() ? `ended on ${day(end)}` : `${text}, ${status === "trialing" ? "until" : "renews on"} ${day(end)}`;
}

function quota(name, used, limit) {
  const text = limit === null ? `${used.toLocaleString("en")} ${name}` : `${used.toLocaleString("en")} of ${limit.toLocaleString("en")} ${name}`;
  const line = el("div", { className: "quota" }, el("span", {}, text));
  if (limit !== null) line.append(el("meter", { max: limit, value: Math.min(used, limit), high: limit * 0.8, "aria-label": text }));
  return line;
}

// --- documents --------------------------------------------------------------------------------------------

const refreshDocuments = guarded(async () => {
  await loadDocuments(0);
});

async function loadDocuments(offset) {
  const found = await ask("GET", `documents?limit=${PAGE}&offset=${offset}`);
  const known = new Set(library.documents.map((each) => each.document_id)); // also what was sent since the question
  const others = found.documents.filter((each) => !known.has(each.document_id));
  library.documents.push(...others);
  library.documentTotal = Math.max(found.total, library.documents.filter((each) => each.document_id).length);
  for (const each of others) if (["waiting", "running"].includes(each.state)) watchDocument(each);
  drawDocuments();
}

function drawDocuments() {
  const listed = library.documents.filter((each) => each.document_id).length;
  $("documents").replaceChildren(...library.documents.map(documentLine));
  $("more-documents").hidden = listed >= library.documentTotal;
}

function documentLine(row) {
  const ready = row.state === "done";
  const box = el("input", { type: "checkbox", checked: library.chosen.has(row.document_id), disabled: !ready });
  box.addEventListener("change", () => library.chosen[box.checked ? "add" : "delete"](row.document_id));
  const texts = { waiting: "waiting", running: "being read…", done: "ready" };
  const state = row.sent !== undefined ? `uploading, ${Math.round(100 * row.sent)} %` : texts[row.state] ?? row.error ?? "failed";
  const line = el("li", { className: row.state ?? "" }, el("label", {}, box, el("span", {}, row.name, el("small", {}, state))));
  const remove = el("button", { type: "button", className: "remove", "aria-label": `Remove ${row.name}` }, "×");
  remove.addEventListener("click", guarded(() => removeDocument(row)));
  if (row.sent === undefined) line.append(remove);
  return line;
}

async function removeDocument(row) {
  if (row.document_id) {
    if (!await confirmed(`Delete “${row.name}”? Presentations that were made from it stay.`, "Delete")) return;
    await ask("DELETE", `documents/${row.document_id}`);
    library.documentTotal -= 1;
  }
  library.chosen.delete(row.document_id);
  library.documents = library.documents.filter((each) => each !== row);
  drawDocuments();
}

async function addFile(file) {
  const row = { name: file.name, state: "uploading", sent: 0 };
  library.documents.unshift(row);
  drawDocuments();
  try {
    const accepted = await upload(file, (sent) => { row.sent = sent; drawDocuments(); });
    delete row.sent;
    Object.assign(row, accepted, { state: "waiting" });
    library.documentTotal += 1;
    watchDocument(row, true);
  } catch (problem) {
    if (!(problem instanceof Refused)) throw problem;
    delete row.sent;
    Object.assign(row, { state: "failed", error: problem.message });
    if (problem.status === 401) signedOut("Your session has ended. Please sign in again.");
  }
  drawDocuments();
}

function watchDocument(row, choose = false) {
  follow(row.job_id, (event) => {
    const last = ending(event);
    if (!last) return;
    row.state = last.event_type === "error" ? "failed" : "done";
    row.error = last.error_message;
    if (choose && row.state === "done") library.chosen.add(row.document_id);
    drawDocuments();
  });
}

const addFiles = (files) => { for (const file of files) addFile(file); };
$("files").addEventListener("change", (event) => { addFiles([...event.target.files]); event.target.value = ""; });
$("more-documents").addEventListener("click", guarded(() => loadDocuments(library.documents.filter((each) => each.document_id).length)));
for (const kind of ["dragover", "dragleave", "drop"]) {
  $("generate").addEventListener(kind, (event) => {
    event.preventDefault();
    $("drop").classList.toggle("over", kind === "dragover");
    if (kind === "drop") addFiles(event.dataTransfer.files);
  });
}

// --- a new presentation -----------------------------------------------------------------------------------

for (const [code, name] of Object.entries(LANGUAGES)) $("generate").elements.language.append(el("option", { value: code }, name));

$("generate").addEventListener("submit", guarded(async (event) => {
  const form = Object.fromEntries(new FormData(event.target));
  const listed = new Set(library.documents.map((each) => each.document_id));
  const sources = [...library.chosen].filter((id) => listed.has(id));
  const wanted = { ...form, slides: Number(form.slides), document_ids: sources };
  const accepted = await ask("POST", "presentations", wanted);
  event.target.reset();
  library.chosen.clear(); // the next one may be about something else
  location.hash = `#/p/${accepted.presentation_id}`;
}, $("generate").querySelector(".error")));
