"use strict";
// How a slide looks: the same element is the large one, its thumbnail, and the cover in the library.

const TEXTS = ["title", "agenda", "section", "bullets", "closing"]; // layouts that show their bullets
const LINES = 7; // of text that fit at full size
const SYMBOLS = 52; // in such a line

function drawSlide(slide, theme, number = slide.number) {
  const body = el("div", { className: "slide-body" }, el("h2", {}, slide.title), ...slideContent(slide));
  const drawn = el("div", { className: `slide layout-${slide.layout}`, "data-theme": theme }, body);
  if (number) drawn.append(el("span", { className: "number", "aria-hidden": "true" }, number));
  if (slide.sources?.length && !["title", "section", "closing"].includes(slide.layout)) {
    drawn.append(el("span", { className: "cited" }, slide.sources.join(" · ")));
  }
  body.style.setProperty("--fit", String(fit(slide)));
  paintBrand(drawn);
  return drawn;
}

function slideContent(slide) {
  if (["table", "chart"].includes(slide.layout) && slide.table) {
    const points = slide.layout === "chart" ? chartPoints(slide.table) : null;
    return [points ? drawChart(slide.table, points) : drawTable(slide.table)];
  }
  if (slide.layout === "two_columns") {
    return [el("div", { className: "columns" }, ...slide.columns.map((column) =>
      el("div", {}, el("h3", {}, column.heading), list(column.bullets))))];
  }
  if (["title", "section"].includes(slide.layout)) return slide.bullets.slice(0, 1).map((text) => el("p", {}, text));
  if (slide.layout === "closing") return [list([...slide.bullets, ...slide.sources ?? []])];
  return [list(slide.bullets, slide.layout === "agenda" ? "ol" : "ul")];
}

function list(bullets, kind = "ul") {
  return el(kind, {}, ...bullets.map((text) => el("li", {}, text)));
}

/** The part of the full size at which a slide's text fits, by the lines that it fills. */
function fit(slide) {
  const filled = (texts, symbols) => texts.reduce((sum, text) => sum + Math.max(1, Math.ceil(text.length / symbols)), 0);
  let lines = 0;
  if (["table", "chart"].includes(slide.layout) && slide.table) lines = slide.layout === "chart" ? 0 : slide.table.rows.slice(0, 9).length * 0.85 + 1;
  else if (slide.layout === "two_columns") lines = Math.max(0, ...slide.columns.map((each) => 1 + filled(each.bullets, SYMBOLS / 2)));
  else lines = filled([...slide.bullets ?? [], ...slide.layout === "closing" ? slide.sources ?? [] : []], SYMBOLS);
  return lines <= LINES ? 1 : Math.max(0.42, Math.sqrt(LINES / lines)); // smaller text has more symbols in a line, too
}

function drawTable(table) {
  const cells = (row, tag) => row.map((cell) => el(tag, tag === "th" ? { scope: "col" } : {}, cell));
  const shown = table.rows.slice(0, 9);
  const body = el("tbody", {}, ...shown.map((row) => el("tr", {}, ...cells(row, "td"))));
  const made = el("div", { className: "table" }, el("table", {}, el("thead", {}, el("tr", {}, ...cells(table.header, "th"))), body));
  if (table.rows.length > shown.length) made.append(el("p", {}, `… + ${table.rows.length - shown.length}`));
  return made;
}

/** The numbers of a table, by rows; null if it is better shown as a table. */
function chartPoints(table) {
  if (table.rows.length < 2 || table.rows.length > 12 || table.header.length > 4) return null;
  const columns = table.header.slice(1).map((name, at) => ({ name, cells: table.rows.map((row) => row[at + 1]) }));
  const percent = new Set(columns.map(({ name, cells }) => name.includes("%") || cells.every((cell) => cell.includes("%"))));
  if (percent.size > 1 || columns.some(({ cells }) => cells.every((cell) => /^(19|20)\d\d$/.test(cell)))) return null; // no common axis
  const points = table.rows.map((row) => row.slice(1).map(numberOf));
  return points.flat().every((value) => value >= 0) ? points : null;
}

function numberOf(cell) {
  const bare = cell.replace(/[\s%€$£¥₽₺']|EUR|USD|GBP|RUB|CHF|PLN|CZK|TRY/gi, "").replace(/,(?=\d{3}(\D|$))/g, "").replace(",", ".");
  return bare && !Number.isNaN(Number(bare)) ? Number(bare) : NaN;
}

const TIME = /^((Q[1-4]\s*)?(1[89]|20)\d\d([-/.]\d{1,2})?|Q[1-4])$/; // labels that a line connects, as in exports

function drawChart(table, points) {
  const top = Math.max(...points.flat()) || 1;
  const isLine = table.rows.every((row) => TIME.test(row[0]));
  const isClose = (values, series) => values.some((other, at) => at !== series && (other > values[series] || (other === values[series] && at > series)) && other - values[series] < 0.09 * top);
  const groups = table.rows.map((row, at) => {
    const bars = points[at].map((value, series) => {
      const bar = el("i", { className: `series-${series}` }, el("b", {}, row[series + 1]));
      if (isLine && isClose(points[at], series)) bar.classList.add("below"); // its number would be on another one
      bar.style[isLine ? "bottom" : "height"] = `${(86 * value) / top}%`;
      return bar;
    });
    return el("div", { className: "group" }, el("div", { className: "bars" }, ...bars), el("span", {}, row[0]));
  });
  const lines = isLine ? [drawLines(points, top)] : [];
  const chart = el("div", { className: isLine ? "chart over-time" : "chart", role: "img", "aria-label": chartText(table) }, ...lines, ...groups);
  const names = table.header.slice(1).map((name, series) => el("span", {}, el("i", { className: `series-${series}` }), name));
  return el("div", { className: "chart-box" }, chart, el("div", { className: "legend" }, ...names));
}

function drawLines(points, top) {
  const drawn = (name, attributes, ...children) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  };
  const place = (value, at) => `${(100 * (at + 0.5)) / points.length},${100 - (86 * value) / top}`;
  const lines = points[0].map((_, series) =>
    drawn("polyline", { class: `series-${series}`, points: points.map((row, at) => place(row[series], at)).join(" ") }));
  return drawn("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none" }, ...lines);
}

function chartText(table) {
  return table.rows.map((row) => `${row[0]}: ${row.slice(1).join(", ")}`).join("; ");
}

// A brand kit replaces the colours of a theme while the plan includes it, as in exports.
function paintBrand(slide) {
  if (!session.brand) return;
  const { primary, accent } = session.brand;
  slide.style.setProperty("--primary", `#${primary}`);
  slide.style.setProperty("--on-primary", luminance(primary) > 0.18 ? "#101418" : "#ffffff");
  slide.style.setProperty("--accent-colour", `#${accent}`);
  slide.style.setProperty("--accent-text", "var(--slide-ink)");
}

function luminance(colour) {
  const [red, green, blue] = [0, 2, 4].map((at) => (parseInt(colour.slice(at, at + 2), 16) / 255) ** 2.2);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
