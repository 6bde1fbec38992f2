"use strict";
// One presentation: its slides as they are written, thumbnails and the large slide, and its notes.

const deck = { id: null, row: null, slides: [], current: 0, picked: false, source: null, draft: null, titles: [] };
const isOpen = () => ["waiting", "running"].includes(deck.row.state);

async function openPresentation(id) {
  closePresentation();
  deck.id = id;
  let row;
  try {
    row = await ask("GET", `presentations/${id}`);
  } catch (problem) {
    if (!(problem instanceof Refused)) throw problem;
    if (problem.status === 404) { toast("There is no such presentation.", "bad"); location.hash = "#/"; }
    else if (problem.status !== 401) toast(problem.message, "bad");
    return;
  }
  if (deck.id !== id) return; // another one was opened in the meantime
  setPresentation(row);
  if (isOpen()) watchJob();
}

function setPresentation(row) {
  deck.row = row;
  const numbers = row.slides.map((each) => each.number);
  const later = isOpen() ? deck.slides.filter((each) => !numbers.includes(each.number)) : []; // events may be faster than this answer
  deck.slides = [...row.slides, ...later].sort((one, other) => one.number - other.number);
  deck.current = Math.min(deck.current, Math.max(0, deck.slides.length - 1));
  if (isOpen()) showProgress(row.slides_total ? Math.floor((99 * row.slides_completed) / row.slides_total) : 0);
  drawPresentation();
}

function closePresentation() {
  deck.source?.close();
  Object.assign(deck, { id: null, row: null, slides: [], current: 0, picked: false, source: null, draft: null, titles: [] });
  $("bar").value = 0;
  $("state").textContent = "Waiting for a worker…";
  closeEditor();
  $("rename").hidden = true;
  $("deck-title").hidden = false;
  for (const part of ["deck-title", "thumbs", "stage", "position", "count"]) $(part).replaceChildren();
  for (const part of ["job", "notes-box", "deck-actions", "workbench"]) $(part).hidden = true;
}

async function reloadPresentation() {
  const id = deck.id;
  const row = await ask("GET", `presentations/${id}`);
  if (deck.id === id) setPresentation(row);
}

// --- progress ---------------------------------------------------------------------------------------------

function watchJob() {
  const id = deck.id;
  const mine = (work) => (...given) => { if (deck.id === id) work(...given); };
  deck.source = follow(deck.row.job_id, mine(onProgress), mine(guarded(reloadPresentation)));
}

function onProgress(event) {
  if (event.event_type === "snapshot") {
    if (event.state.last_event) onProgress(event.state.last_event);
    else guarded(reloadPresentation)(); // Redis has lost events: SQL has the slides
    return;
  }
  showProgress(event.progress_pct);
  if (event.event_type === "outline_ready") { // a writer may need more slides than were asked for, or fewer
    deck.titles = event.titles;
    deck.row.slides_total = event.titles.length;
  }
  if (event.event_type === "slide_started") $("state").textContent = `Writing: ${event.slide_title}`;
  if (event.event_type === "slide_completed") placeSlide(event);
  if (event.event_type === "generation_done") {
    $("state").textContent = "Done.";
    deck.row.state = "done";
    if (!deck.picked) deck.current = 0;
  }
  if (event.event_type === "error") Object.assign(deck.row, { state: "failed", error: event.error_message });
  drawPresentation();
}

function showProgress(percent) {
  $("bar").value = Math.max($("bar").value, percent);
}

function placeSlide(event) {
  const at = deck.slides.findIndex((each) => each.number >= event.slide_number);
  const known = deck.slides.find((each) => each.number === event.slide_number);
  const slide = { bullets: [], columns: [], table: null, sources: [], layout: "bullets", ...(event.slide ?? { title: event.slide_title }),
    chart: event.chart ?? null, notes: known?.notes ?? "", slide_id: event.slide_id, number: event.slide_number };
  if (known) deck.slides.splice(deck.slides.indexOf(known), 1, slide);
  else deck.slides.splice(at < 0 ? deck.slides.length : at, 0, slide);
  if (!deck.picked) deck.current = deck.slides.indexOf(slide);
}

$("cancel").addEventListener("click", guarded(async () => {
  if (!await confirmed("Stop writing? The slides that are written stay.", "Stop")) return;
  await ask("POST", `jobs/${deck.row.job_id}/cancel`);
}));

// --- what is shown ----------------------------------------------------------------------------------------

function drawPresentation() {
  const title = deck.row.title ?? deck.row.topic;
  document.title = `${title} · Slides`;
  $("deck-title").textContent = title;
  $("deck-theme").value = deck.row.theme;
  $("presentation-view").classList.toggle("read-only", !canEdit());
  $("presentation-view").classList.toggle("open", isOpen());
  $("deck-actions").hidden = isOpen() || !canEdit();
  $("export-open").hidden = deck.row.state !== "done";
  $("job").hidden = deck.row.state === "done";
  $("cancel").hidden = !isOpen();
  $("bar").hidden = !isOpen();
  if (!isOpen() && deck.row.state !== "done") $("state").textContent = deck.row.error ?? STATES[deck.row.state];
  $("count").textContent = isOpen() ? `${deck.slides.length} of ${deck.row.slides_total} slides` : "";
  drawThumbs();
  drawStage();
}

function drawThumbs() {
  const focused = $("thumbs").contains(document.activeElement);
  const missing = isOpen() ? Math.max(0, deck.row.slides_total - deck.slides.length) : 0;
  const coming = Array.from({ length: missing }, (_, at) => {
    const title = deck.titles[deck.slides.length + at] ?? "";
    return el("li", { className: "coming" }, el("div", { className: "slide blank" }, el("span", {}, title)));
  });
  $("thumbs").replaceChildren(...deck.slides.map(thumb), ...coming);
  $("workbench").hidden = !deck.slides.length && !missing;
  const current = $("thumbs").children[deck.current]?.querySelector("button");
  if (focused) current?.focus();
  if (current) scrollThumbs(current.parentElement);
}

function thumb(slide, at) {
  const drawn = drawSlide(slide, deck.row.theme);
  drawn.setAttribute("aria-hidden", "true");
  const button = el("button", { type: "button", "aria-label": `Slide ${at + 1}: ${slide.title}` }, drawn);
  if (at === deck.current) button.setAttribute("aria-current", "true");
  button.addEventListener("click", () => showSlide(at));
  const item = el("li", { className: slide.rewriting ? "written rewriting" : "written", "data-id": slide.slide_id }, el("span", { "aria-hidden": "true" }, at + 1), button);
  allowDragging(item, button, at);
  return item;
}

function scrollThumbs(item) { // not by scrollIntoView, which moves the page too
  const list = $("thumbs");
  list.scrollTo({ left: item.offsetLeft - (list.clientWidth - item.clientWidth) / 2, top: item.offsetTop - (list.clientHeight - item.clientHeight) / 2 });
}

function drawStage() {
  const slide = deck.draft ?? deck.slides[deck.current];
  const total = deck.slides.length;
  $("stage").replaceChildren(slide ? drawSlide(slide, deck.row.theme, deck.current + 1) : el("div", { className: "slide blank" }));
  $("stage").setAttribute("aria-label", slide ? `Slide ${deck.current + 1} of ${total}` : "No slide yet");
  $("stage").classList.toggle("rewriting", Boolean(slide?.rewriting));
  $("position").textContent = total ? `${deck.current + 1} / ${total}` : "";
  $("previous").disabled = deck.current <= 0;
  $("next").disabled = deck.current >= total - 1;
  $("edit-open").hidden = !canEdit() || isOpen() || !slide;
  $("notes-box").hidden = !slide || isOpen();
  $("notes").textContent = slide?.notes || "No notes.";
  $("notes").classList.toggle("none", !slide?.notes);
  $("cited").textContent = slide?.sources?.length ? `Sources: ${slide.sources.join(", ")}` : "";
}

async function showSlide(at) {
  if (at < 0 || at >= deck.slides.length || at === deck.current) return;
  if (!await keepDraft()) return;
  deck.current = at;
  deck.picked = true;
  drawThumbs();
  drawStage();
  fillEditor();
}

$("previous").addEventListener("click", () => showSlide(deck.current - 1));
$("next").addEventListener("click", () => showSlide(deck.current + 1));
$("present").addEventListener("click", () => { $("stage").focus(); $("stage").requestFullscreen?.().catch(() => {}); });

const STEPS = { ArrowRight: 1, ArrowDown: 1, PageDown: 1, ArrowLeft: -1, ArrowUp: -1, PageUp: -1 };
const SIDEWAYS = ["ArrowRight", "ArrowLeft"]; // the other keys scroll the page, unless a slide has the focus
document.addEventListener("keydown", (event) => {
  const elsewhere = $("presentation-view").hidden || !deck.row || document.querySelector("dialog[open]");
  if (elsewhere || event.target.closest("input, textarea, select") || event.ctrlKey || event.metaKey) return;
  const onSlides = event.target.closest("#thumbs, #stage");
  if (!onSlides && (event.altKey || !SIDEWAYS.includes(event.key))) return;
  if (event.altKey) {
    if (!STEPS[event.key]) return;
    event.preventDefault();
    moveSlide(deck.current, deck.current + STEPS[event.key]);
    return;
  }
  const to = event.key === "Home" ? 0 : event.key === "End" ? deck.slides.length - 1 : deck.current + (STEPS[event.key] ?? NaN);
  if (Number.isNaN(to)) return;
  event.preventDefault();
  showSlide(to);
});
