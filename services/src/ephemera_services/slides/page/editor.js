"use strict";
// Changes of a presentation: the text of a slide with a preview, order, regeneration, deletion, title and theme.

const LAYOUTS = { title: "Title", agenda: "Agenda", section: "Section", bullets: "Bullets", two_columns: "Two columns",
  table: "Table", chart: "Chart", closing: "Closing" };
const lines = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean).slice(0, 20);
const slidePath = (slide) => `presentations/${deck.id}/slides/${slide.slide_id}`;

// --- the form ---------------------------------------------------------------------------------------------

function closeEditor() {
  $("slide-form").hidden = true;
  $("workbench").classList.remove("editing");
  $("edit-open").setAttribute("aria-expanded", "false");
  $("edit-open").textContent = "Edit slide";
}

$("edit-open").addEventListener("click", guarded(async () => {
  if (!$("slide-form").hidden) { if (await keepDraft()) closeEditor(); return; }
  $("slide-form").hidden = false;
  $("workbench").classList.add("editing");
  $("edit-open").setAttribute("aria-expanded", "true");
  $("edit-open").textContent = "Done";
  fillEditor();
  $("slide-form").elements.title.focus();
}));

function fillEditor() {
  const slide = deck.slides[deck.current];
  if ($("slide-form").hidden || !slide) return;
  const field = (name, text, control) => el("label", {}, text, Object.assign(control, { name }));
  const area = (value, rows) => el("textarea", { value, rows, maxLength: 10000 });
  const layout = el("select", {}, ...Object.entries(LAYOUTS).map(([value, text]) => el("option", { value, selected: value === slide.layout }, text)));
  const button = (text, work, kind = "quiet") => {
    const made = el("button", { type: "button", className: kind }, text);
    made.addEventListener("click", guarded(work));
    return made;
  };
  const at = deck.current;
  $("slide-form").replaceChildren(
    field("title", "Title", el("input", { value: slide.title, maxLength: 500 })),
    field("layout", "Layout", layout),
    el("div", { id: "layout-fields" }, ...layoutFields(slide, field, area)),
    field("notes", "Speaker notes", area(slide.notes, 4)),
    el("p", { className: "error", role: "alert" }),
    el("div", { className: "line" }, el("button", {}, "Save"), el("span", { id: "saved", "aria-live": "polite" })),
    el("div", { className: "line tools" },
      button("Move up", () => moveSlide(at, at - 1)), button("Move down", () => moveSlide(at, at + 1)),
      button("Regenerate", () => regenerate(slide)), button("Delete slide", () => deleteSlide(slide), "quiet danger")),
  );
  layout.addEventListener("change", () => {
    deck.draft = { ...slide, ...formValues(), layout: layout.value };
    $("layout-fields").replaceChildren(...layoutFields(withContent(deck.draft), field, area));
    onInput();
  });
}

function layoutFields(slide, field, area) {
  if (slide.layout === "two_columns") {
    const columns = [0, 1].map((at) => slide.columns[at] ?? { heading: "", bullets: [] });
    return columns.flatMap((column, at) => [
      field(`heading${at}`, at ? "Right heading" : "Left heading", el("input", { value: column.heading, maxLength: 500 })),
      field(`column${at}`, at ? "Right bullets, one per line" : "Left bullets, one per line", area(column.bullets.join("\n"), 4)),
    ]);
  }
  if (["table", "chart"].includes(slide.layout)) {
    const rows = slide.table ? [slide.table.header, ...slide.table.rows] : [];
    return [field("table", "Rows, with | between cells; the first is the header", area(rows.map((row) => row.join(" | ")).join("\n"), 8))];
  }
  const name = ["title", "section"].includes(slide.layout) ? "Subtitle" : "Bullets, one per line";
  return [field("bullets", name, area(slide.bullets.join("\n"), 7))];
}

/** A slide with something to begin with in its new layout. */
function withContent(slide) {
  if (slide.layout !== "two_columns" || slide.columns.length) return slide;
  const half = Math.ceil(slide.bullets.length / 2);
  return { ...slide, columns: [slide.bullets.slice(0, half), slide.bullets.slice(half)].map((bullets) => ({ heading: "", bullets })) };
}

function formValues() {
  const form = $("slide-form").elements;
  const values = { title: form.title.value.trim(), layout: form.layout.value, notes: form.notes.value };
  if (form.bullets) values.bullets = lines(form.bullets.value);
  if (form.heading0) values.columns = [0, 1].map((at) => ({ heading: form[`heading${at}`].value.trim(), bullets: lines(form[`column${at}`].value) }));
  if (form.table) values.table = tableOf(form.table.value);
  return values;
}

function tableOf(text) {
  const rows = text.split("\n").filter((line) => line.trim()).map((line) => line.split(/\t|\|/).map((cell) => cell.trim()));
  if (!rows.length) return null;
  const width = rows[0].length;
  const [header, ...body] = rows.map((row) => Array.from({ length: width }, (_, at) => row[at] ?? ""));
  return { header, rows: body };
}

function onInput() {
  const slide = deck.slides[deck.current], values = formValues();
  const sameTable = JSON.stringify(values.table) === JSON.stringify(slide.table);
  deck.draft = { ...slide, ...values, chart: sameTable ? slide.chart : null }; // only the server reads numbers: a table until it is saved
  $("saved").textContent = "Not saved yet";
  drawStage();
}
$("slide-form").addEventListener("input", onInput);
window.addEventListener("beforeunload", (event) => { if (deck.draft) event.preventDefault(); });

async function save() {
  const at = deck.current;
  const saved = await ask("PATCH", slidePath(deck.slides[at]), formValues());
  deck.slides[at] = saved;
  deck.draft = null;
  drawThumbs();
  drawStage();
  if ($("saved")) $("saved").textContent = "Saved";
}
$("slide-form").addEventListener("submit", (event) => guarded(save, $("slide-form").querySelector(".error"))(event));

/** Save what is being edited before it is left; false if it cannot be saved. */
async function keepDraft() {
  if (!deck.draft) return true;
  await guarded(save, $("slide-form").querySelector(".error"))();
  return deck.draft === null;
}

// --- slides -----------------------------------------------------------------------------------------------

async function moveSlide(from, to) {
  if (!canEdit() || isOpen() || from === to || to < 0 || to >= deck.slides.length || !await keepDraft()) return;
  const [moved] = deck.slides.splice(from, 1);
  deck.slides.splice(to, 0, moved);
  deck.current = to;
  deck.picked = true;
  drawThumbs();
  drawStage();
  fillEditor();
  try {
    await ask("PUT", `presentations/${deck.id}/order`, { slide_ids: deck.slides.map((each) => each.slide_id) });
    deck.slides.forEach((each, at) => { each.number = at + 1; });
  } catch (problem) {
    if (!(problem instanceof Refused)) throw problem;
    toast(problem.message, "bad");
    if (problem.status !== 401) await guarded(reloadPresentation)();
  }
}

function allowDragging(item, button, at) {
  if (!canEdit() || isOpen()) return;
  button.draggable = true;
  button.addEventListener("dragstart", (event) => { event.dataTransfer.setData("text/plain", String(at)); event.dataTransfer.effectAllowed = "move"; });
  item.addEventListener("dragover", (event) => { event.preventDefault(); item.classList.add("over"); });
  item.addEventListener("dragleave", () => item.classList.remove("over"));
  item.addEventListener("drop", (event) => { event.preventDefault(); item.classList.remove("over"); moveSlide(Number(event.dataTransfer.getData("text/plain")), at); });
}

async function regenerate(slide) {
  if (!await keepDraft()) return;
  const { job_id: job } = await ask("POST", `${slidePath(slide)}/regenerate`);
  const id = deck.id;
  slide.rewriting = true;
  drawThumbs();
  drawStage();
  follow(job, (event) => {
    const last = ending(event);
    if (last?.event_type === "error") toast(last.error_message, "bad");
  }, guarded(async () => {
    if (deck.id !== id) return;
    await reloadPresentation();
    if (!deck.draft) fillEditor();
  }));
}

async function deleteSlide(slide) {
  if (!await confirmed(`Delete the slide “${slide.title}”?`, "Delete")) return;
  await ask("DELETE", slidePath(slide));
  deck.draft = null;
  deck.slides = deck.slides.filter((each) => each.slide_id !== slide.slide_id);
  deck.current = Math.min(deck.current, deck.slides.length - 1);
  drawThumbs();
  drawStage();
  fillEditor();
}

// --- the presentation -------------------------------------------------------------------------------------

function renaming(yes) {
  $("rename").hidden = !yes;
  $("deck-title").hidden = yes;
  if (yes) { $("rename").elements.title.value = $("deck-title").textContent; $("rename").elements.title.select(); }
  else $("rename-open").focus();
}
$("rename-open").addEventListener("click", () => renaming(true));
$("rename-cancel").addEventListener("click", () => renaming(false));
$("rename").addEventListener("keydown", (event) => { if (event.key === "Escape") renaming(false); });
$("rename").addEventListener("submit", guarded(async () => {
  await changePresentation({ title: $("rename").elements.title.value.trim() });
  renaming(false);
}));
$("deck-theme").addEventListener("change", guarded(() => changePresentation({ theme: $("deck-theme").value })));

async function changePresentation(values) {
  await ask("PATCH", `presentations/${deck.id}`, values);
  Object.assign(deck.row, values);
  drawPresentation();
}

$("delete-deck").addEventListener("click", guarded(async () => {
  if (!await confirmed("Delete this presentation, its exports and its public link?", "Delete")) return;
  await ask("DELETE", `presentations/${deck.id}`);
  deck.draft = null;
  location.hash = "#/";
}));
