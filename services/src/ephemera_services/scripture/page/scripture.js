/* The reading page: chapters, search and questions. The address after # says what is shown. */
"use strict";

const find = (selector) => document.querySelector(selector);
const state = { translations: [], translation: "", books: [], shown: 0, round: 0, searched: null, about: null };
const LAST = "scripture.translation";
const storage = (() => { try { return window.localStorage; } catch { return null; } })(); // null where the browser blocks it
const MANY = 24; // chapters of a book from which a row of links is too long
const EXAMPLES = ["What is said about love?", "Who is the light of the world?", "What comes of hope and patience?"];
const ORIGINS = { exact: "Answered before.", semantic: "From the answer to a similar question.", asked: "" };

/* An element with properties and children; text is never parsed as HTML. */
function make(tag, properties, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

function notice(text) {
  find("#notice").textContent = text;
  find("#notice").hidden = !text;
}

async function problemOf(response) {
  const problem = await response.json().catch(() => ({}));
  if (response.status === 429) {
    return `That was a lot. Please wait ${response.headers.get("retry-after") || "some"} seconds.`;
  }
  return problem.detail || "This does not work at the moment.";
}

async function get(path, parameters = {}) {
  const response = await fetch(`${path}?${new URLSearchParams(parameters)}`).catch(() => null);
  if (response === null) throw new Error("There is no connection.");
  if (!response.ok) throw new Error(await problemOf(response));
  return response.json();
}

class Superseded extends Error {}

/* The same for what is on the screen: an answer that comes after another screen was opened is not shown. */
async function getShown(path, parameters) {
  const round = state.round;
  try {
    return await get(path, parameters);
  } finally {
    if (round !== state.round) throw new Superseded();
  }
}

/* "john.3.16" as people write it. */
function referenceOf(id) {
  const [book, chapter, verse] = id.split(".");
  const named = state.books.find((each) => each.id === book);
  return `${named ? named.name : book} ${chapter}:${verse}`;
}

const passageUrl = (id) => {
  const [book, chapter, verse] = id.split(".");
  return `#/read/${book}/${chapter}/${verse}`;
};

/* A quoted passage; `ranges` are the characters to mark. */
function quotation(passage, ranges = []) {
  const characters = Array.from(passage.text);
  const text = make("p", {});
  let end = 0;
  for (const [from, to] of ranges) {
    text.append(characters.slice(end, from).join(""), make("mark", { textContent: characters.slice(from, to).join("") }));
    end = to;
  }
  text.append(characters.slice(end).join(""));
  return make("li", { className: "quote" }, make("a", { href: passageUrl(passage.id), textContent: passage.reference }), text);
}

async function loadTranslations() {
  state.translations = (await get("translations")).translations;
  const known = state.translations.map((each) => each.id);
  const wanted = [storage?.getItem(LAST), "kjv", ...known];
  find("#translation").replaceChildren(
    ...state.translations.map((each) => make("option", { value: each.id, textContent: each.id.toUpperCase(), title: each.name })));
  await choose(wanted.find((each) => known.includes(each)) || "");
}

async function choose(translation) {
  state.translation = translation;
  storage?.setItem(LAST, translation);
  find("#translation").value = translation;
  const chosen = state.translations.find((each) => each.id === translation);
  find("#rights").textContent = chosen ? `${chosen.name}. ${chosen.rights}` : "";
  state.books = translation ? (await get("books", { translation })).books : [];
  const options = () => state.books.map((each) => make("option", { value: each.id, textContent: each.name }));
  find("#book").replaceChildren(...options());
  find("#within").replaceChildren(make("option", { value: "", textContent: "all books" }), ...options());
}

/* The chapters of all books in their order, for the links at the end of a chapter. */
const allChapters = () => state.books.flatMap((book) => Object.keys(book.chapters).map((number) => ({ book, number })));

/* A few chapters are a row of links; of many, such as those of the Psalms, one is picked. */
function showChapters(book, chapter) {
  const numbers = Object.keys(book.chapters);
  const many = numbers.length > MANY;
  find("#chapters").hidden = many;
  find("#many").hidden = !many;
  find("#chapters").replaceChildren(...(many ? [] : numbers).map((each) => {
    const link = make("a", { href: `#/read/${book.id}/${each}`, textContent: each });
    if (each === chapter) link.setAttribute("aria-current", "page");
    return link;
  }));
  find("#chapter").replaceChildren(...(many ? numbers : []).map((each) => make("option", { value: each, textContent: each })));
  find("#chapter").value = chapter;
}

async function showChapter(bookId, number, verse) {
  const book = state.books.find((each) => each.id === bookId) || state.books[0];
  if (!book) throw new Error("There is nothing to read yet.");
  const chapter = number in book.chapters ? number : Object.keys(book.chapters)[0];
  const found = await getShown(`chapters/${book.id}.${chapter}`, { translation: state.translation });
  find("#book").value = book.id;
  find("#title").textContent = document.title = `${book.name} ${chapter}`;
  showChapters(book, chapter);
  find("#verses").replaceChildren(...found.verses.map((each) => {
    const button = make("button", { type: "button", className: "verse", id: `v${each.verse}` },
      make("sup", { textContent: each.verse }), each.text);
    button.addEventListener("click", () => attempt(() => openVerse(each.passage_id)));
    return button;
  }));
  const all = allChapters();
  const at = all.findIndex((each) => each.book === book && each.number === chapter);
  for (const [id, step, arrow] of [["#previous", -1, "← "], ["#next", 1, ""]]) {
    const other = all[at + step];
    find(id).textContent = other ? `${arrow}${other.book.name} ${other.number}${step > 0 ? " →" : ""}` : "";
    find(id).href = other ? `#/read/${other.book.id}/${other.number}` : "#/read";
    find(id).hidden = !other;
  }
  find("#chapters [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  const target = verse && find(`#v${verse}`);
  if (target) {
    target.scrollIntoView({ block: "center" });
    target.focus();
  } else window.scrollTo(0, 0);
}

async function openVerse(id) {
  const passage = await getShown(`passages/${id}`, { include: "words,xrefs" });
  find("#verse-title").textContent = passage.reference;
  find("#verse-texts").replaceChildren(...Object.entries(passage.texts).flatMap(([translation, text]) => {
    const named = state.translations.find((each) => each.id === translation);
    return [make("h3", { textContent: named ? named.name : translation }), make("p", { className: "text", textContent: text })];
  }));
  const parts = [];
  if (passage.words.length) {
    parts.push(make("h3", { textContent: "Words" }));
    parts.push(...passage.words.map((each) => make("p", {}, make("b", { textContent: each.text }), ` ${each.gloss}`)));
  }
  if (passage.xrefs.length) {
    parts.push(make("h3", { textContent: "See also" }));
    parts.push(...passage.xrefs.map((each) => make("p", {}, make("a", { href: passageUrl(each.passage_id), textContent: each.note || referenceOf(each.passage_id) }))));
  }
  find("#verse-parts").replaceChildren(...parts);
  state.about = { id, reference: passage.reference };
  find("#verse").showModal();
}

async function search(words, book, offset = 0) {
  const parameters = { q: words, translation: state.translation, offset, ...(book ? { book } : {}) };
  const page = await getShown("search", parameters);
  const hits = page.passages.map((each) => quotation(each, each.highlights));
  if (offset) find("#hits").append(...hits);
  else find("#hits").replaceChildren(...hits);
  const count = `${page.total} ${page.total === 1 ? "verse" : "verses"}`;
  find("#found").textContent = !page.total ? "No verse has these words."
    : page.matched === "all" ? count : `No verse has all of these words; ${count} with some.`;
  find("#more").hidden = page.next === null;
  state.searched = { words, book, next: page.next };
}

async function showSearch(words, book) {
  document.title = words ? `${words} – Scripture` : "Search – Scripture";
  find("#search-form [name=q]").value = words;
  find("#within").value = book;
  find("#topics").hidden = Boolean(words);
  if (words) return search(words, book);
  find("#hits").replaceChildren();
  find("#found").textContent = "";
  find("#more").hidden = true;
  const { topics } = await getShown("topics", { limit: 12 });
  find("#topics").replaceChildren(...topics.map((each) => make("div", { className: "topic" },
    make("h2", { textContent: each.title }), make("p", { className: "soft", textContent: each.summary }),
    make("div", {}, ...each.passages.map((id) => make("a", { href: passageUrl(id), textContent: referenceOf(id) }))))));
}

function showAsk() {
  document.title = "Ask – Scripture";
  find("#about").hidden = !state.about;
  if (state.about) {
    const button = make("button", { type: "button", className: "quiet", textContent: "Ask about any passage" });
    button.addEventListener("click", () => { state.about = null; showAsk(); });
    find("#about").replaceChildren(`About ${state.about.reference} `, button);
  }
  find("#examples").replaceChildren(...EXAMPLES.map((text) => {
    const button = make("button", { type: "button", textContent: text });
    button.addEventListener("click", () => {
      find("#ask-form [name=question]").value = text;
      find("#ask-form").requestSubmit();
    });
    return button;
  }));
}

/* The events of a response, as they arrive. */
async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let pending = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    pending += value;
    const blocks = pending.split("\n\n");
    pending = blocks.pop();
    for (const block of blocks) {
      const fields = Object.fromEntries(block.split("\n").map((line) => line.split(/: (.*)/s)));
      if (fields.event) yield [fields.event, JSON.parse(fields.data)];
    }
  }
}

function showSources(passages) {
  find("#sources-title").hidden = !passages.length;
  find("#sources").replaceChildren(...passages.map((each) => quotation(each)));
}

async function ask(question) {
  const body = { question, translation: state.translation, passages: state.about ? [state.about.id] : [] };
  find("#answer").textContent = find("#how").textContent = "";
  showSources([]);
  find("#reply").hidden = false;
  find("#reply").classList.add("waiting");
  try {
    const response = await fetch("ai/ask/stream", {
      method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body),
    }).catch(() => null);
    if (response === null) throw new Error("There is no connection.");
    if (!response.ok) throw new Error(await problemOf(response));
    let complete = false;
    for await (const [event, data] of eventsOf(response)) {
      if (event === "passages") showSources(data.passages);
      if (event === "text") find("#answer").append(data.text);
      if (event === "error") throw new Error(data.detail);
      if (event === "answer") {
        complete = true;
        find("#answer").textContent = data.answer;
        find("#how").textContent = ORIGINS[data.how];
        showSources(data.passages);
      }
    }
    if (!complete) throw new Error("The answer was cut off; please ask again.");
  } catch (problem) {
    find("#reply").hidden = true;
    throw problem;
  } finally {
    find("#reply").classList.remove("waiting");
  }
}

async function show() {
  state.round += 1;
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [part, ...rest] = path.split("/");
  const tab = ["read", "search", "ask"].includes(part) ? part : "read";
  if (find("#verse").open) find("#verse").close();
  for (const link of document.querySelectorAll("#tabs a")) {
    if (link.dataset.tab === tab) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  for (const section of document.querySelectorAll("main > section")) section.hidden = section.id !== tab;
  const parameters = new URLSearchParams(query);
  if (tab === "read") await showChapter(...rest);
  else if (tab === "search") await showSearch(parameters.get("q") || "", parameters.get("book") || "");
  else showAsk();
}

/* Run something, and say when it fails. */
async function attempt(work) {
  notice("");
  try {
    await work();
  } catch (problem) {
    if (!(problem instanceof Superseded)) notice(problem.message);
  }
  document.body.dataset.ready = String(++state.shown);
}

const searchUrl = () => {
  const words = find("#search-form [name=q]").value.trim();
  return `#/search?${new URLSearchParams({ q: words, book: find("#within").value })}`;
};
addEventListener("hashchange", () => attempt(show));
find("#translation").addEventListener("change", (event) => attempt(async () => {
  await choose(event.target.value);
  await show();
}));
find("#book").addEventListener("change", (event) => { location.hash = `#/read/${event.target.value}`; });
find("#chapter").addEventListener("change", (event) => { location.hash = `#/read/${find("#book").value}/${event.target.value}`; });
find("#within").addEventListener("change", () => { if (find("#search-form [name=q]").value.trim()) location.hash = searchUrl(); });
find("#search-form").addEventListener("submit", (event) => {
  event.preventDefault();
  location.hash = searchUrl();
});
find("#more").addEventListener("click", () => attempt(() => search(state.searched.words, state.searched.book, state.searched.next)));
find("#ask-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = event.target.querySelector("button");
  if (button.disabled) return; // an example was pressed while the last answer is written
  button.disabled = true;
  await attempt(() => ask(event.target.question.value));
  button.disabled = false;
});
find("#close").addEventListener("click", () => { state.about = null; find("#verse").close(); });
find("#verse").addEventListener("click", (event) => { // beside the dialog
  const { left, right, top, bottom } = find("#verse").getBoundingClientRect();
  const inside = event.clientX >= left && event.clientX <= right && event.clientY >= top && event.clientY <= bottom;
  if (event.target === find("#verse") && !inside) find("#close").click();
});
find("#ask-about").addEventListener("click", () => { location.hash = "#/ask"; });
for (const link of document.querySelectorAll("#tabs a")) link.addEventListener("click", () => { state.about = null; });
attempt(async () => {
  await loadTranslations();
  await show();
});
