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
    return [slide.layout === "chart" && slide.chart ? drawChart(slide.chart) : drawTable(slide.table)];
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

/** The size at which a slide's text fits, by the lines that it fills: few of them are larger, as in exports. */
function fit(slide) {
  const filled = (texts, symbols) => texts.reduce((sum, text) => sum + Math.max(1, Math.ceil(text.length / symbols)), 0);
  let lines = 0;
  if (["table", "chart"].includes(slide.layout) && slide.table) lines = slide.layout === "chart" && slide.chart ? 0 : slide.table.rows.slice(0, 9).length * 0.85 + 1;
  else if (slide.layout === "two_columns") lines = Math.max(0, ...slide.columns.map((each) => 1 + filled(each.bullets, SYMBOLS / 2)));
  else lines = filled([...slide.bullets ?? [], ...slide.layout === "closing" ? slide.sources ?? [] : []], SYMBOLS);
  return lines ? Math.min(1.15, Math.max(0.42, Math.sqrt(LINES / lines))) : 1; // smaller text has more symbols in a line, too
}

function drawTable(table) {
  const shown = table.rows.slice(0, 9);
  const areFigures = table.header.map((_, at) => { // digits, and no letter: on the right, as in exports
    const cells = shown.map((row) => row[at] ?? "");
    return cells.some((cell) => /\d/.test(cell)) && !cells.some((cell) => /\p{L}/u.test(cell));
  });
  const cells = (row, tag) => row.map((cell, at) =>
    el(tag, { className: areFigures[at] ? "figure" : "", ...tag === "th" ? { scope: "col" } : {} }, cell));
  const body = el("tbody", {}, ...shown.map((row) => el("tr", {}, ...cells(row, "td"))));
  const made = el("div", { className: "table" }, el("table", {}, el("thead", {}, el("tr", {}, ...cells(table.header, "th"))), body));
  if (table.rows.length > shown.length) made.append(el("p", {}, `… + ${table.rows.length - shown.length}`));
  return made;
}

/** A chart as the server read it from the table: the page reads no numbers. */
function drawChart(chart) {
  const [floor, room] = chart.low < 0 ? [8, 78] : [0, 86]; // of the height: values are written above, negative ones below
  const level = (value) => floor + (room * (value - chart.low)) / (chart.high - chart.low);
  const zero = level(0);
  const groups = chart.labels.map((label, at) => {
    const bars = chart.series.map(({ values, texts, below }, series) => {
      const value = values[at];
      const bar = el("i", { className: `series-${series}` }, el("b", {}, texts[at]));
      if (below[at] || (!chart.is_time && value < 0)) bar.classList.add("below");
      bar.style.bottom = `${chart.is_time ? level(value) : Math.min(level(value), zero)}%`;
      if (!chart.is_time) bar.style.height = `${Math.abs(level(value) - zero)}%`;
      return bar;
    });
    return el("div", { className: "group" }, el("div", { className: "bars" }, ...bars), el("span", {}, label));
  });
  const lines = chart.is_time ? [drawLines(chart, level)] : [];
  if (chart.low < 0) {
    lines.push(el("hr", {}));
    lines.at(-1).style.bottom = `${zero}%`;
  }
  const name = `chart${chart.is_time ? " over-time" : ""}${chart.low < 0 ? " signed" : ""}`;
  const drawn = el("div", { className: name, role: "img", "aria-label": chartText(chart) }, ...lines, ...groups);
  const names = chart.series.map((each, series) => el("span", {}, el("i", { className: `series-${series}` }), each.name));
  return el("div", { className: "chart-box" }, drawn, el("div", { className: "legend" }, ...names));
}

function drawLines(chart, level) {
  const drawn = (name, attributes, ...children) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  };
  const place = (value, at) => `${(100 * (at + 0.5)) / chart.labels.length},${100 - level(value)}`;
  const lines = chart.series.map((each, series) => drawn("polyline", { class: `series-${series}`, points: each.values.map(place).join(" ") }));
  return drawn("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none" }, ...lines);
}

function chartText(chart) {
  return chart.labels.map((label, at) => `${label}: ${chart.series.map((each) => each.texts[at]).join(", ")}`).join("; ");
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
